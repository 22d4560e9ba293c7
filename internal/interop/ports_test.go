package interop

import (
	"context"
	"fmt"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// TestTwoPortsOfOneAddress has two BIRDs behind one address, which dial us as well.
func TestTwoPortsOfOneAddress(t *testing.T) {
	t.Parallel()
	l := newLab(t, "ports")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	tor := l.host(t, "tor", "10.0.0.9/24")
	ports := []int{1790, 1791}
	var birds []*netlab.Bird
	for i, port := range ports {
		name := fmt.Sprint("tor-", port)
		l.apply(t, testcluster.Peer(name, fmt.Sprint("10.0.0.9:", port), torAS, ""))
		b, err := l.StartBirdText(t.Context(), programs.Bird, tor.NS, name, fmt.Sprintf(`
			router id 10.0.9.%d;
			listen bgp address 10.0.0.9 port %d;
			protocol device {}
			protocol static { route 10.99.%d.0/24 blackhole; route 10.99.9.0/24 blackhole; }
			protocol bgp node {
				local 10.0.0.9 as %d;
				neighbor 10.0.0.2 as %d;
				import all;
				export all;
				connect delay time 1;
				connect retry time 1;
			}
		`, i+1, port, i+1, torAS, asNumber))
		check(t, err)
		birds = append(birds, b)
	}
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	us.start(t)

	both := []string{"10.0.0.9", "10.0.0.9 port 1791"}
	awaitNames(t, us, both...)
	const own, first = "10.1.0.0/26 blackhole", "10.99.1.0/24 via 10.0.0.9"
	const second, shared = "10.99.2.0/24 via 10.0.0.9", "10.99.9.0/24 via 10.0.0.9"
	us.awaitFIB(t, "-4", own, first, second, shared)
	before := us.sessionsOf(t, "10.0.0.9")

	check(t, birds[1].Kill()) // it has promised no graceful restart
	us.awaitFIB(t, "-4", own, first, shared)
	awaitNames(t, us, both[:1]...)
	check(t, birds[1].Restart(t.Context()))
	awaitNames(t, us, both...)
	us.awaitFIB(t, "-4", own, first, second, shared)
	us.sameSessions(t, before)
}

// awaitNames waits until exactly these peers have a session.
func awaitNames(t *testing.T, n *agentNode, names ...string) {
	t.Helper()
	await(t, fmt.Sprintf("%s has sessions with %v", n.name, names),
		func(ctx context.Context) error {
			s, err := n.agent.Status(ctx)
			if err != nil {
				return err
			}
			var up []string
			for _, p := range s.BGP.Peers {
				if p.Established {
					up = append(up, p.Peer.String())
				}
			}
			return same("established", up, names)
		})
}
