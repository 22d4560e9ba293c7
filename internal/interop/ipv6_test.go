package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// TestIPv6Only has a node without IPv4 (its machine has an address of it, for etcd, which BGP does
// not know), a node with bird6, and routers that announce every kind of next hop that RFC 2545 §3
// has.
func TestIPv6Only(t *testing.T) {
	t.Parallel()
	l := newLab(t, "ipv6only")
	us := l.agentNode(t, "us", "fd00::2/64")
	check(t, us.NS.AddAddress("eth0", pfx("10.0.0.2/24")))
	us.agent.Flags = []string{"--router-id", "hash"}
	nine := l.birdNode(t, "nine", "fd00::9/64", "fd00::2")
	// FRR sends its global and its link-local address to a peer on its own link.
	tor := l.frrRouter(t, "tor", torAS, "fd00::1/64",
		append(append([]string{"no bgp default ipv4-unicast"},
			append(frrPeer("fd00::2", asNumber), frrPeer("fd00::9", asNumber)...)...),
			"address-family ipv6 unicast", "neighbor fd00::2 activate", "neighbor fd00::9 activate",
			"network fd99::/64")...)
	check(t, tor.NS.AddAddress("lo", pfx("fd99::7/128")))
	// This one says that its routes are to be reached by a link-local address and by no other.
	l.bird2Router(t, "bare", "fd00::3/64", `
protocol static { ipv6; route fd98::/64 blackhole; }
filter link_local { if source != RTS_STATIC then reject; bgp_next_hop = fe80::3; accept; }
template bgp node {
  local fd00::3 as 65003; connect delay time 1; connect retry time 2; error wait time 1, 2;
  ipv6 { import all; export filter link_local; next hop keep; };
}
protocol bgp Us from node { neighbor fd00::2 as 64512; }
protocol bgp Nine from node { neighbor fd00::9 as 64512; }
`)
	l.apply(t, testcluster.Peer("tor", "fd00::1", torAS, "")+
		testcluster.Peer("bare", "fd00::3", 65003, ""))
	nine.config.Peers = append(nine.config.Peers,
		netlab.BirdPeer{Name: "Bare", Address: addr("fd00::3"), AS: 65003},
		netlab.BirdPeer{Name: "Tor", Address: addr("fd00::1"), AS: torAS})
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("fd01::/122")))
	nine.setBlocks(t, "fd01::40/122")
	pod := us.pod(t, "pod", "fd01::1")
	ninePod := nine.workload(t, "pod9", "fd01::41")
	nine.start(t)
	us.start(t)

	us.awaitPeers(t, "fd00::1", "fd00::3", "fd00::9")
	nine.awaitEstablished(t)
	s, err := us.agent.Status(t.Context())
	check(t, err)
	if s.BGP.RouterID == "" || s.BGP.RouterID == "10.0.0.2" {
		t.Errorf("router ID %s", s.BGP.RouterID)
	}
	t.Run("a pair of next hops", func(t *testing.T) {
		await(t, "BIRD has got both of them", func(ctx context.Context) error {
			shown, err := nine.Command(ctx, "show route all for fd99::/64 protocol Tor")
			if err == nil &&
				!strings.Contains(strings.Join(shown, "\n"), "BGP.next_hop: fd00::1 fe80::") {
				err = fmt.Errorf("%q", shown)
			}
			return err
		})
		us.awaitOnlyKernel(t, "-6", "fd01::/122 blackhole", "fd01::40/122 via fd00::9",
			"fd99::/64 via fd00::1")
		ping(t, pod, "fd99::7")
		ping(t, tor.NS, "fd01::1")
	})
	t.Run("a link-local one alone", func(t *testing.T) {
		await(t, "we say so, and BIRD does without it, too", func(ctx context.Context) error {
			var routes []agent.RouteStatus
			if err := us.agent.Get(ctx, "/v1/routes", &routes); err != nil {
				return err
			}
			i := slices.IndexFunc(routes, func(r agent.RouteStatus) bool {
				return r.Prefix == pfx("fd98::/64")
			})
			s, err := us.agent.Status(ctx)
			if err != nil {
				return err
			}
			named := i >= 0 && strings.Contains(routes[i].Reason, "link-local")
			for _, u := range s.FIB.UnusableNextHops {
				named = named ||
					u.Address == addr("fe80::3") && strings.Contains(u.Reason, "link-local")
			}
			if !named {
				return fmt.Errorf("routes %+v, unusable next hops %+v",
					routes, s.FIB.UnusableNextHops)
			}
			kernel, err := nine.kernel(ctx, "-6", "bird")
			if err != nil {
				return err
			}
			for _, r := range kernel {
				if strings.HasPrefix(r.text, "fd98::/64 via") {
					return fmt.Errorf("BIRD's kernel has %s", r.text)
				}
			}
			return nil
		})
	})
	t.Run("both ways", func(t *testing.T) {
		nine.awaitRIB(t, mesh("fd00::2"), iBGP("fd01::/122", "fd00::2"))
		tor.awaitRIB(t, "ipv6", "fd00::2", "fd01::/122 via fd00::2 64512",
			"fd01::40/122 via fd00::2 64512")
		ping(t, pod, "fd01::41")
		ping(t, ninePod, "fd01::1")
	})
}
