package interop

import (
	"context"
	"fmt"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// elevatedLab is a route reflector with a block of its own, clients of it with BIRD that have no
// session with each other, and a router.
type elevatedLab struct {
	*lab
	reflector     *host
	target, third *birdNode
	tor           *birdNode

	// peers waits for all sessions of the reflector, hears for exactly these routes in its kernel,
	// besides those of the clients' blocks.
	peers func(*testing.T)
	hears func(t *testing.T, more ...string)
	same  func(*testing.T) // its sessions are those that peers saw
}

// TestElevatedThroughReflector moves a machine from a route reflector to a client of it, as a live
// migration does: its address lies in the reflector's own block, and while it is elevated, the
// other client and the router hear of it all the same. BIRD as the reflector says what is right.
func TestElevatedThroughReflector(t *testing.T) {
	t.Parallel()
	for name, reflector := range map[string]func(*testing.T, *elevatedLab){
		"ours": ourElevated, "BIRD's": birdElevated,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			elevatedThrough(t, newElevatedLab(t, reflector))
		})
	}
}

func newElevatedLab(t *testing.T, reflector func(*testing.T, *elevatedLab)) *elevatedLab {
	t.Helper()
	l := &elevatedLab{lab: newLab(t, "elevated")}
	l.target = l.birdNode(t, "target", "10.0.0.4/24")
	l.third = l.birdNode(t, "third", "10.0.0.6/24")
	for _, c := range []*birdNode{l.target, l.third} {
		c.config.Peers = []netlab.BirdPeer{{Name: "Rr", Address: addr("10.0.0.2"), AS: asNumber}}
	}
	l.target.setBlocks(t, "10.1.0.64/26")
	l.third.setBlocks(t, "10.1.0.128/26")
	l.tor = l.birdRouter(t, "tor", "10.0.0.1/24")
	l.tor.config.AS = torAS
	l.tor.config.Extra = fmt.Sprintf(torProtocols, "", "")
	for _, b := range []*birdNode{l.target, l.third, l.tor} {
		b.start(t)
	}
	reflector(t, l)
	l.peers(t)
	for _, b := range []*birdNode{l.target, l.third, l.tor} {
		b.awaitEstablished(t)
	}
	return l
}

func ourElevated(t *testing.T, l *elevatedLab) {
	rr := l.agentNode(t, "rr", "10.0.0.2/24")
	l.reflector = rr.host
	l.apply(t, reflectorNode("rr", "10.0.0.2/24")+testcluster.NoMesh+testcluster.ToReflectors+
		testcluster.Peer("tor", "10.0.0.1", torAS, ""))
	check(t, l.Data.ClaimBlock(t.Context(), "rr", pfx("10.1.0.0/26")))
	rr.start(t)
	l.peers = func(t *testing.T) {
		t.Helper()
		peers := []string{"10.0.0.1", "10.0.0.4", "10.0.0.6"}
		rr.awaitPeers(t, peers...)
		since := rr.sessionsOf(t, peers...)
		l.same = func(t *testing.T) { rr.sameSessions(t, since) }
	}
	l.hears = func(t *testing.T, more ...string) {
		t.Helper()
		rr.awaitFIB(t, "-4",
			append(more, "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.4",
				"10.1.0.128/26 via 10.0.0.6",
				"0.0.0.0/0 via 10.0.0.1", "10.99.0.0/24 via 10.0.0.1")...)
	}
}

func birdElevated(t *testing.T, l *elevatedLab) {
	rr := l.birdNode(t, "rr", "10.0.0.2/24")
	l.reflector = rr.host
	rr.config.Cluster = addr("10.0.0.100")
	for name, client := range map[string]string{"Target": "10.0.0.4", "Third": "10.0.0.6"} {
		rr.config.Peers = append(rr.config.Peers, netlab.BirdPeer{
			Name: name, Address: addr(client), AS: asNumber, Client: true,
		})
	}
	rr.config.Peers = append(rr.config.Peers, netlab.BirdPeer{
		Name: "Tor", Address: addr("10.0.0.1"), AS: torAS,
	})
	rr.setBlocks(t, "10.1.0.0/26")
	rr.start(t)
	l.peers = func(t *testing.T) { t.Helper(); rr.awaitEstablished(t) }
	l.hears = func(t *testing.T, more ...string) {
		t.Helper()
		for _, m := range more {
			rr.awaitKernelHas(t, m)
		}
	}
	l.same = func(*testing.T) {}
}

func elevatedThrough(t *testing.T, l *elevatedLab) {
	const guest, home = "10.1.0.5", "10.1.0.0/26"
	l.reflector.workload(t, "guest", guest)
	watcher := l.third.workload(t, "watcher", "10.1.0.129")
	l.target.workload(t, "nearby", "10.1.0.65")
	// third and the router hear from the reflector of the blocks, and of more; attributes of the
	// clients' routes stay what they were.
	heard := func(t *testing.T, third []string, tor ...string) {
		t.Helper()
		l.third.awaitRIB(t, "Rr",
			append(third, iBGP(home, "10.0.0.2"), iBGP("10.1.0.64/26", "10.0.0.4"))...)
		l.tor.awaitRIB(t, "Us",
			append(tor, eBGP(home, "64512"), eBGP("10.1.0.64/26", "64512"),
				eBGP("10.1.0.128/26", "64512"))...)
	}
	felix := func(h *host, verb, device string, metric int) {
		t.Helper()
		_, err := h.NS.Run(t.Context(), "ip", "route", verb, guest+"/32", "dev", device, "scope",
			"link", "metric", fmt.Sprint(metric))
		check(t, err)
	}
	heard(t, nil)
	l.third.awaitKernelHas(t, home+" via 10.0.0.2")
	ping(t, watcher, guest)
	ping(t, l.tor.NS, guest)
	control, packets := flow(t, watcher, "10.1.0.65"), flow(t, watcher, guest)

	t.Run("it runs on both nodes, elevated on its new one", func(t *testing.T) {
		l.target.workload(t, "guest2", guest)
		felix(l.target.host, "add", "caliguest2", 512)
		heard(t, []string{guest + "/32 via 10.0.0.4 2147483135 IGP"}, eBGP(guest+"/32", "64512"))
		l.third.awaitKernelHas(t, guest+"/32 via 10.0.0.4")
		l.hears(t, guest+"/32 via 10.0.0.4")
	})
	t.Run("it runs on the new one alone", func(t *testing.T) {
		check(t, l.reflector.NS.DeleteLink("caliguest"))
		heard(t, []string{guest + "/32 via 10.0.0.4 2147483135 IGP"}, eBGP(guest+"/32", "64512"))
		ping(t, watcher, guest)
		ping(t, l.tor.NS, guest)
	})
	t.Run("it is like any borrowed address there: the reflector's block covers it",
		func(t *testing.T) {
			felix(l.target.host, "delete", "caliguest2", 512)
			heard(t, nil)
			l.hears(t, guest+"/32 via 10.0.0.4")
			await(t, "third's kernel has no trace of it", func(ctx context.Context) error {
				out, err := l.third.NS.Run(ctx, "ip", "route", "show", guest+"/32")
				if err == nil && len(out) > 0 {
					err = fmt.Errorf("%s", out)
				}
				return err
			})
			ping(t, watcher, guest)
			ping(t, l.tor.NS, guest)
		})
	noneLost(t, control, packets)
	t.Run("it ends", func(t *testing.T) {
		felix(l.target.host, "delete", "caliguest2", 1024)
		heard(t, nil)
		l.hears(t)
	})
	l.same(t)
}
