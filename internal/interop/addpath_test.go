package interop

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// severalResources make us a route reflector of the other nodes and of a client that Calico does
// not know, or just their peer.
func severalResources(cluster string) string {
	return fmt.Sprintf(hubNode, cluster) + testcluster.NoMesh +
		testcluster.Peer("outside", "10.0.0.7", asNumber, "node: us")
}

// TestSeveralPathsByOurReflector has two nodes announce the same prefix to our reflector, which has
// clients with BIRD 1.6 and BIRD 2: by ADD-PATH they see both paths, no longer than they are there,
// and one at most while we are no reflector.
func TestSeveralPathsByOurReflector(t *testing.T) {
	t.Parallel()
	l := newLab(t, "several")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	toUs := netlab.BirdPeer{Name: "Us", Address: addr("10.0.0.2"), AS: asNumber}
	var nodes []*birdNode
	for _, last := range []string{"4", "5", "6"} {
		n := l.birdNode(t, "n"+last, "10.0.0."+last+"/24")
		n.config.Peers = []netlab.BirdPeer{toUs}
		nodes = append(nodes, n)
	}
	one, two, client := nodes[0], nodes[1], nodes[2]
	both := prefixes("10.1.9.0/26")
	one.config.Blocks, two.config.Blocks = both, both // the same at both, as a service's would be
	for _, n := range []*birdNode{one, two} {
		check(t, n.NS.AddAddress("lo", pfx("10.1.9.1/32")))
	}
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	pod := us.pod(t, "pod", "10.1.0.1")
	l.apply(t, severalResources(", routeReflectorClusterID: 244.0.0.1"))
	for _, n := range nodes {
		n.start(t)
	}
	outside := l.bird2Router(t, "outside", "10.0.0.7/24", `
protocol direct { ipv4; }
protocol bgp Us {
  local 10.0.0.7 as 64512;
  neighbor 10.0.0.2 as 64512;
  connect delay time 1; connect retry time 2; error wait time 1, 2;
  ipv4 { import all; export none; add paths on; };
}
`)
	us.start(t)
	peers := []string{"10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"}
	us.awaitPeers(t, peers...)
	since := us.sessionsOf(t, peers...)

	have := func(t *testing.T, hops ...string) {
		t.Helper()
		for _, c := range []*birdNode{client, outside} {
			await(t, fmt.Sprintf("%s has %d paths", c.name, len(hops)),
				func(ctx context.Context) error {
					routes, err := c.Routes(ctx, "protocol Us")
					var got []string
					for _, r := range routes {
						if r.Prefix == both[0] {
							got = append(got, r.NextHop.String())
						}
					}
					if err == nil {
						slices.Sort(got)
						err = same("next hops at "+c.name, got, hops)
					}
					return err
				})
			c.awaitHas(t, "Us", "10.1.0.0/26")
		}
	}
	// forward: our kernel shares traffic among these next hops, and packets arrive.
	forward := func(t *testing.T, hops string) {
		t.Helper()
		us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.9.0/26 via "+hops)
		ping(t, pod, "10.1.9.1")
		for _, n := range nodes {
			ping(t, n.NS, "10.1.0.1")
		}
	}
	t.Run("a reflector sends both", func(t *testing.T) {
		have(t, "10.0.0.4", "10.0.0.5")
		forward(t, "10.0.0.4 10.0.0.5")
		client.awaitKernelHas(t, "10.1.9.0/26 via 10.0.0.4 10.0.0.5")
		ping(t, client.NS, "10.1.9.1")
	})
	t.Run("what reflects is one cluster", func(t *testing.T) {
		shown, err := client.Command(t.Context(), "show route all for 10.1.9.0/26 protocol Us")
		check(t, err)
		if err := count(shown, "BGP.cluster_list: 244.0.0.1", 2); err != nil {
			t.Error(err)
		}
		shown, err = client.Command(t.Context(), "show route all for 10.1.0.0/26 protocol Us")
		check(t, err)
		if err := count(shown, "BGP.originator_id: 10.0.0.2", 0); err != nil {
			t.Error(err)
		}
	})
	t.Run("one goes", func(t *testing.T) {
		one.config.Blocks = nil
		_, err := one.NS.Run(t.Context(), "ip", "address", "delete", "10.1.9.1/32", "dev", "lo")
		check(t, err)
		one.reconfigure(t)
		have(t, "10.0.0.5")
		forward(t, "10.0.0.5")
		client.awaitKernelHas(t, "10.1.9.0/26 via 10.0.0.5")
		ping(t, client.NS, "10.1.9.1")
	})
	t.Run("and comes back", func(t *testing.T) {
		one.config.Blocks = both
		check(t, one.NS.AddAddress("lo", pfx("10.1.9.1/32")))
		one.reconfigure(t)
		have(t, "10.0.0.4", "10.0.0.5")
	})
	t.Run("no reflector any more", func(t *testing.T) {
		l.apply(t, severalResources(""))
		have(t)
		forward(t, "10.0.0.4 10.0.0.5")
	})
	t.Run("again, of another cluster", func(t *testing.T) {
		l.apply(t, severalResources(", routeReflectorClusterID: 244.0.0.2"))
		have(t, "10.0.0.4", "10.0.0.5")
		l.apply(t, severalResources(", routeReflectorClusterID: 244.0.0.3"))
		await(t, "the client sees the new cluster ID", func(ctx context.Context) error {
			shown, err := client.Command(ctx, "show route all for 10.1.9.0/26 protocol Us")
			if err == nil {
				err = count(shown, "BGP.cluster_list: 244.0.0.3", 2)
			}
			return err
		})
	})
	t.Run("no session was reset", func(t *testing.T) { us.sameSessions(t, since) })
	t.Run("what a first dump had goes too", func(t *testing.T) {
		for _, c := range []*birdNode{client, outside} {
			_, err := c.Command(t.Context(), "restart Us")
			check(t, err)
		}
		us.awaitPeers(t, peers...)
		have(t, "10.0.0.4", "10.0.0.5")
		check(t, two.Stop())
		have(t, "10.0.0.4")
	})
}

// awaitHas waits until BIRD has a prefix by a protocol.
func (b *birdNode) awaitHas(t *testing.T, protocol, prefix string) {
	t.Helper()
	await(t, b.name+" has "+prefix, func(ctx context.Context) error {
		routes, err := b.Routes(ctx, "for "+prefix+" protocol "+protocol)
		if err == nil && len(routes) == 0 {
			err = fmt.Errorf("no route")
		}
		return err
	})
}

// count says how often a line is among others, unless it is so often.
func count(all []string, line string, want int) error {
	n := 0
	for _, l := range all {
		if len(l) > 0 && l[0] == '\t' && l[1:] == line {
			n++
		}
	}
	if n != want {
		return fmt.Errorf("%q is there %d times, not %d:%s", line, n, want, lines(all))
	}
	return nil
}
