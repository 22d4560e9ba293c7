package interop

import (
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
)

// TestNodeChanges changes what the sessions are made of: our address, a peer's port, our port.
// BIRD's configuration follows, as confd would have it.
func TestNodeChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t, "change")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2")
	ten := l.birdNode(t, "ten", "10.0.0.10/24", "10.0.0.2")
	// a new process takes over when the peers have finished; with our address of before they cannot
	us.agent.Flags = []string{"--deferral", "5s"}
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	nine.setBlocks(t, "10.1.0.64/26")
	ten.setBlocks(t, "10.1.0.128/26")
	pod := us.pod(t, "pod", "10.1.0.1")
	nine.workload(t, "ninepod", "10.1.0.65")
	ten.workload(t, "tenpod", "10.1.0.129")
	nine.start(t)
	ten.start(t)
	us.start(t)
	converged := func(t *testing.T, ourAddress, portOfTen, portOfUs string) {
		t.Helper()
		us.awaitPeers(t, "10.0.0.9", "10.0.0.10")
		nine.awaitEstablished(t)
		ten.awaitEstablished(t)
		us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9",
			"10.1.0.128/26 via 10.0.0.10")
		for _, b := range []*birdNode{nine, ten} {
			b.awaitRIB(t, mesh(ourAddress), iBGP("10.1.0.0/26", ourAddress))
		}
		for _, c := range []struct{ peer, port, want string }{
			{"10.0.0.9", portOfUs, "accepted"}, {"10.0.0.10", portOfTen, "dialled"},
		} {
			got, err := us.connections(t.Context(), addr(c.peer), c.port)
			check(t, err)
			if len(got) != 1 || got[0] != c.want {
				t.Errorf("connections with %s on port %s: %v, want one, %s",
					c.peer, c.port, got, c.want)
			}
		}
		ping(t, pod, "10.1.0.65")
		ping(t, pod, "10.1.0.129")
	}
	t.Run("at first", func(t *testing.T) { converged(t, "10.0.0.2", "179", "179") })
	if t.Failed() {
		return
	}
	t.Run("our address changes", func(t *testing.T) {
		check(t, us.NS.AddAddress("eth0", pfx("10.0.0.20/24")))
		check(t, l.Data.AddNode(t.Context(), "us", pfx("10.0.0.20/24")))
		for _, b := range []*birdNode{nine, ten} {
			b.config.Peers = []netlab.BirdPeer{
				netlab.MeshPeer(b.config.Address, addr("10.0.0.20"), asNumber),
			}
			b.reconfigure(t)
		}
		converged(t, "10.0.0.20", "179", "179")
	})
	t.Run("a peer's port changes", func(t *testing.T) {
		l.apply(t, listenPort("ten", 1790))
		check(t, ten.Stop()) // BIRD 1.6 does not open another port while it runs
		ten.config.Port = 1790
		ten.start(t)
		converged(t, "10.0.0.20", "1790", "179")
	})
	t.Run("our port changes", func(t *testing.T) {
		l.apply(t, listenPort("us", 1791))
		nine.config.Peers[0].Port = 1791
		nine.reconfigure(t)
		converged(t, "10.0.0.20", "1790", "1791")
	})
}

// TestOurAddressChangesWhileARouterIsAway: what peers kept of us leads to the address of before, so
// none of them waits for what another one has to say.
func TestOurAddressChangesWhileARouterIsAway(t *testing.T) {
	t.Parallel()
	l := newLab(t, "moves")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2")
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	nine.setBlocks(t, "10.1.0.64/26")
	l.apply(t, `
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: away}
spec: {node: us, peerIP: 10.0.0.99, asNumber: 65099}
`)
	nine.start(t)
	us.start(t)
	nine.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
	us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9")
	check(t, us.NS.AddAddress("eth0", pfx("10.0.0.20/24")))
	check(t, l.Data.AddNode(t.Context(), "us", pfx("10.0.0.20/24")))
	nine.config.Peers = []netlab.BirdPeer{
		netlab.MeshPeer(nine.config.Address, addr("10.0.0.20"), asNumber),
	}
	nine.reconfigure(t)
	nine.awaitEstablished(t)
	up := time.Now()
	nine.awaitRIB(t, mesh("10.0.0.20"), iBGP("10.1.0.0/26", "10.0.0.20"))
	// half of learnedDeferral in bgp/gobgp
	if took := time.Since(up); took > 15*time.Second {
		t.Errorf("BIRD has our block %s after its session came up", took)
	}
}
