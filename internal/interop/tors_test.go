package interop

import (
	"testing"

	"vpp-route-agent/internal/testcluster"
)

// TestTwoToRs has two top-of-rack routers (FRR) that both know the way out: traffic is shared among
// them, and one of them dies.
func TestTwoToRs(t *testing.T) {
	t.Parallel()
	l := newLab(t, "tors")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	inner := l.birdNode(t, "inner", "10.0.0.6/24", "10.0.0.2")
	var tors [2]*frrRouter
	for i, name := range []string{"tor1", "tor2"} {
		address := []string{"10.0.0.1", "10.0.0.3"}[i]
		lines := frrPeer("10.0.0.2", asNumber)
		lines = append(lines, "address-family ipv4 unicast", "neighbor 10.0.0.2 default-originate",
			"network 10.99.0.0/24", "exit-address-family")
		tors[i] = l.frrRouter(t, name, torAS, address+"/24", lines...)
		check(t, tors[i].NS.AddAddress("lo", pfx("10.99.0.7/32"))) // one place behind both
		l.apply(t, testcluster.Peer(name, address, torAS, ""))
	}
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	inner.setBlocks(t, "10.1.0.64/26")
	pod := us.pod(t, "pod", "10.1.0.1")
	inner.workload(t, "innerpod", "10.1.0.65")
	inner.start(t)
	us.start(t)

	us.awaitPeers(t, "10.0.0.1", "10.0.0.3", "10.0.0.6")
	const own, learned = "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.6"
	both := []string{
		own, learned, "0.0.0.0/0 via 10.0.0.1 10.0.0.3", "10.99.0.0/24 via 10.0.0.1 10.0.0.3",
	}
	us.awaitFIB(t, "-4", both...)
	// Neither gets what the other has told us: it is in no pool.
	for _, tor := range tors {
		tor.awaitRIB(t, "ipv4", "10.0.0.2", "10.1.0.0/26 via 10.0.0.2 64512",
			"10.1.0.64/26 via 10.0.0.2 64512")
		ping(t, tor.NS, "10.1.0.1")
		ping(t, tor.NS, "10.1.0.65")
	}
	ping(t, pod, "10.99.0.7")

	t.Run("one dies", func(t *testing.T) {
		watch := us.watchRoutes(t)
		control, through := flow(t, pod, "10.1.0.65"), flow(t, tors[1].NS, "10.1.0.1")
		check(t, tors[0].Kill()) // its kernel goes on, but it has promised no graceful restart
		us.awaitFIB(t, "-4", own, learned, "0.0.0.0/0 via 10.0.0.3", "10.99.0.0/24 via 10.0.0.3")
		ping(t, pod, "10.99.0.7")
		check(t, tors[0].Restart(t.Context()))
		us.awaitPeers(t, "10.0.0.1", "10.0.0.3", "10.0.0.6")
		us.awaitFIB(t, "-4", both...)
		// Each change is one replace: nobody is left without a route meanwhile.
		for _, change := range watch.stop(t, agentProtocol, "") {
			if change[0] == 'D' {
				t.Errorf("a route was deleted: %s", change)
			}
		}
		noneLost(t, control, through)
	})
	t.Run("one withdraws one prefix", func(t *testing.T) {
		since := us.sessionsOf(t, "10.0.0.1", "10.0.0.3", "10.0.0.6")
		check(t, tors[1].Configure(t.Context(), "router bgp 65001", "address-family ipv4 unicast",
			"no network 10.99.0.0/24"))
		us.awaitFIB(t, "-4", own, learned, "0.0.0.0/0 via 10.0.0.1 10.0.0.3",
			"10.99.0.0/24 via 10.0.0.1")
		us.sameSessions(t, since)
	})
}
