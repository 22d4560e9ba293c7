package interop

import (
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// TestReflectedByBIRD has two route reflectors with BIRD and no mesh: what one of them sends of a
// prefix with two paths arrives as two, by ADD-PATH, and when one of them dies nothing is lost.
func TestReflectedByBIRD(t *testing.T) {
	t.Parallel()
	l := newLab(t, "reflected")
	l.apply(t, testcluster.NoMesh+testcluster.Peer("r1", "10.0.0.101", asNumber, "")+
		testcluster.Peer("r2", "10.0.0.102", asNumber, ""))
	us := l.agentNode(t, "us", "10.0.0.2/24")
	var reflectors, clients []*birdNode
	for _, name := range []string{"r1", "r2"} {
		address := "10.0.0.10" + name[1:]
		r := l.birdRouter(t, name, address+"/24") // not in Calico's data, as a physical one
		r.config.Cluster = addr("10.0.0.100")
		r.config.Peers = []netlab.BirdPeer{
			{Name: "Us", Address: addr("10.0.0.2"), AS: asNumber, Client: true},
			{Name: "Four", Address: addr("10.0.0.4"), AS: asNumber, Client: true},
			{Name: "Six", Address: addr("10.0.0.6"), AS: asNumber, Client: true},
		}
		reflectors = append(reflectors, r)
	}
	for _, address := range []string{"10.0.0.4", "10.0.0.6"} {
		c := l.birdNode(t, "c"+address[len(address)-1:], address+"/24")
		for i, r := range []string{"10.0.0.101", "10.0.0.102"} {
			c.config.Peers = append(c.config.Peers, netlab.BirdPeer{
				Name: []string{"First", "Second"}[i], Address: addr(r), AS: asNumber,
			})
		}
		clients = append(clients, c)
	}
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	clients[0].setBlocks(t, "10.1.0.64/26")
	clients[1].setBlocks(t, "10.1.0.128/26")
	for _, c := range clients { // the same prefix at both, as a service's would be
		c.config.Blocks = append(c.config.Blocks, pfx("10.1.9.0/26"))
		check(t, c.NS.AddAddress("lo", pfx("10.1.9.1/32")))
	}
	pod := us.pod(t, "pod", "10.1.0.1")
	far := clients[0].workload(t, "far", "10.1.0.65")
	clients[1].workload(t, "farther", "10.1.0.129")
	for _, b := range append(reflectors, clients...) {
		b.start(t)
	}
	us.start(t)
	us.awaitPeers(t, "10.0.0.101", "10.0.0.102")
	for _, b := range append(reflectors, clients...) {
		b.awaitEstablished(t)
	}

	fib := []string{
		"10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.4", "10.1.0.128/26 via 10.0.0.6",
		"10.1.9.0/26 via 10.0.0.4 10.0.0.6",
	}
	t.Run("both paths of both reflectors make one route", func(t *testing.T) {
		us.awaitFIB(t, "-4", fib...)
	})
	t.Run("ours is reflected", func(t *testing.T) {
		for _, c := range clients {
			for _, from := range []string{"First", "Second"} {
				other := iBGP("10.1.0.64/26", "10.0.0.4")
				if c == clients[0] {
					other = iBGP("10.1.0.128/26", "10.0.0.6")
				}
				c.awaitRIB(t, from, iBGP("10.1.0.0/26", "10.0.0.2"), other,
					iBGP("10.1.9.0/26",
						map[bool]string{true: "10.0.0.6", false: "10.0.0.4"}[c == clients[0]]))
			}
			ping(t, c.NS, "10.1.0.1")
		}
	})
	t.Run("packets arrive", func(t *testing.T) {
		ping(t, pod, "10.1.0.65")
		ping(t, pod, "10.1.0.129")
		ping(t, pod, "10.1.9.1")
	})
	t.Run("a reflector dies", func(t *testing.T) {
		watch, gaps := us.watchRoutes(t), watchGaps(t, clients[0])
		control := flow(t, clients[0].NS, "10.0.0.6")
		out := flow(t, pod, "10.1.0.65")
		in := flow(t, far, "10.1.0.1")
		check(t, reflectors[0].Stop()) // with CEASE: nothing of it is kept
		us.awaitUp(t, "10.0.0.102")
		clients[0].awaitRIB(t, "First")
		us.awaitFIB(t, "-4", fib...)
		time.Sleep(time.Second)
		noneLostThrough(t, gaps, addr("10.1.0.1"), control, out, in)
		if changes := watch.stop(t, agentProtocol, ""); len(changes) > 0 {
			t.Errorf("our kernel's routes changed:%s", lines(changes))
		}
	})
	t.Run("a client withdraws its path", func(t *testing.T) {
		since := us.sessionsOf(t, "10.0.0.102")
		_, err := clients[0].NS.Run(t.Context(), "ip", "address", "delete",
			"10.1.9.1/32", "dev", "lo")
		check(t, err)
		clients[0].config.Blocks = prefixes("10.1.0.64/26")
		clients[0].reconfigure(t)
		us.awaitFIB(t, "-4", append(fib[:3:3], "10.1.9.0/26 via 10.0.0.6")...)
		us.sameSessions(t, since)
	})
}
