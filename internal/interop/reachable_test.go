package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/testcluster"
)

// reachableLab has two routers (BIRD 2) and two gateways to them that speak no BGP. The router far
// speaks from an address outside the connected subnet, near from one inside.
type reachableLab struct {
	*lab
	us            *agentNode
	far           *birdNode
	first, second *host // gateways, 10.0.0.254 and 10.0.0.253
}

func newReachableLab(t *testing.T, name string) *reachableLab {
	l := &reachableLab{lab: newLab(t, name)}
	l.us = l.agentNode(t, "us", "10.0.0.2/24")
	l.first = l.gateway(t, "first", "10.0.0.254/24")
	l.second = l.gateway(t, "second", "10.0.0.253/24")
	l.far = l.routerBehind(t, "far", "10.0.0.9/24", "10.5.0.9", "10.99.0.0/24")
	l.routerBehind(t, "near", "10.0.0.8/24", "10.0.0.8", "10.98.0.0/24")
	for _, g := range []*host{l.first, l.second} {
		check(t, g.NS.AddRoute(pfx("10.5.0.9/32"), addr("10.0.0.9"), "eth0"))
		check(t, g.NS.AddRoute(pfx("10.99.0.0/24"), addr("10.0.0.9"), "eth0"))
		check(t, g.NS.AddRoute(pfx("10.98.0.0/24"), addr("10.0.0.8"), "eth0"))
	}
	return l
}

// reach has both routers reached by a gateway; "" for the near one: directly.
func (l *reachableLab) reach(t *testing.T, far, near string) {
	t.Helper()
	spec := func(gateway string) string {
		if gateway == "" {
			return ""
		}
		return fmt.Sprintf("reachableBy: %q", gateway)
	}
	l.apply(t, testcluster.Peer("far", "10.5.0.9", torAS, spec(far)))
	l.apply(t, testcluster.Peer("near", "10.0.0.8", torAS, spec(near)))
}

// awaitReady waits until status says that the node is ready.
func (n *agentNode) awaitReady(t *testing.T) {
	t.Helper()
	await(t, n.name+" is ready", func(ctx context.Context) error {
		s, err := n.agent.Status(ctx)
		if err == nil && !s.Ready {
			err = fmt.Errorf("%+v", s.Conditions)
		}
		return err
	})
}

// TestReachableBy has packets to both routers take their gateway, as those of a node with BIRD 1.6
// that has the same sessions.
func TestReachableBy(t *testing.T) {
	t.Parallel()
	l := newReachableLab(t, "reach")
	us := l.us
	l.reach(t, "10.0.0.254", "10.0.0.254")
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	pod := us.pod(t, "pod", "10.1.0.1")
	us.start(t)
	us.awaitPeers(t, "10.5.0.9", "10.0.0.8")

	through := func(t *testing.T, farVia, nearVia string) {
		t.Helper()
		want := []string{"10.1.0.0/26 blackhole", "10.5.0.9/32 via " + farVia,
			"10.98.0.0/24 via " + nearVia, "10.99.0.0/24 via " + farVia}
		if nearVia != "10.0.0.8" {
			want = slices.Insert(want, 0, "10.0.0.8/32 via "+nearVia)
		}
		await(t, "routes go through "+farVia, func(ctx context.Context) error {
			got, err := us.kernel(ctx, "-4", agentProtocol)
			if err != nil {
				return err
			}
			return same("kernel of us", stripMetric(got), want)
		})
		us.awaitReady(t)
		ping(t, pod, "10.99.0.1")
		ping(t, pod, "10.98.0.1")
	}
	through(t, "10.0.0.254", "10.0.0.254")
	var twins []kernelRoute
	for _, p := range []string{"10.0.0.8/32", "10.5.0.9/32", "10.98.0.0/24", "10.99.0.0/24"} {
		twins = append(twins, kernelRoute{text: p + " via 10.0.0.254"})
	}
	l.birdBehind(t).awaitKernel(t, "-4", twins...)
	for _, g := range []*host{l.first, l.second} {
		if got := g.forwarded(t); (got > 0) != (g == l.first) {
			t.Errorf("the %s gateway forwarded %d packets", g.name, got)
		}
	}

	t.Run("another gateway", func(t *testing.T) {
		since := us.sessionsOf(t, "10.5.0.9", "10.0.0.8")
		control := flow(t, us.NS, "10.0.0.250")
		toFar, toNear := flow(t, pod, "10.99.0.1"), flow(t, pod, "10.98.0.1")
		l.reach(t, "10.0.0.253", "10.0.0.253")
		through(t, "10.0.0.253", "10.0.0.253")
		noneLost(t, control, toFar, toNear)
		us.sameSessions(t, since)
	})
	t.Run("the agent is killed, and then the gateway changes", func(t *testing.T) {
		control := flow(t, us.NS, "10.0.0.250")
		toFar, toNear := flow(t, pod, "10.99.0.1"), flow(t, pod, "10.98.0.1")
		check(t, us.agent.Kill())
		us.start(t)
		us.awaitPeers(t, "10.5.0.9", "10.0.0.8")
		through(t, "10.0.0.253", "10.0.0.253")
		l.reach(t, "10.0.0.254", "10.0.0.254")
		through(t, "10.0.0.254", "10.0.0.254")
		noneLost(t, control, toFar, toNear)
	})
	t.Run("the neighbour needs none", func(t *testing.T) {
		since := us.sessionsOf(t, "10.0.0.8")
		l.reach(t, "10.0.0.254", "")
		through(t, "10.0.0.254", "10.0.0.8")
		us.sameSessions(t, since)
	})
	t.Run("the route outlives the session", func(t *testing.T) {
		check(t, l.Data.Delete(t.Context(), "BGPPeer", "far"))
		await(t, "the router gets the CEASE", func(ctx context.Context) error {
			text, err := l.far.Bird.Command(ctx, "show protocols all Us")
			if err == nil && !slices.ContainsFunc(text, func(line string) bool {
				return strings.Contains(line, "Received: Peer de-configured")
			}) {
				err = errors.New(strings.Join(text, "\n"))
			}
			return err
		})
		await(t, "the host route goes", func(ctx context.Context) error {
			got, err := us.kernel(ctx, "-4", agentProtocol)
			if err != nil {
				return err
			}
			return same("kernel of us", stripMetric(got),
				[]string{"10.1.0.0/26 blackhole", "10.98.0.0/24 via 10.0.0.8"})
		})
	})
}

// TestReachableByOnVPP is the same with a VPP that packets from another machine pass. It has an
// adjacency to the near router, a neighbour, before that gets a gateway.
func TestReachableByOnVPP(t *testing.T) {
	t.Parallel()
	vpp := needVPP(t)
	l := newReachableLab(t, "reachvpp")
	v := l.us.startVPP(t, vpp)
	// The session is the kernel's, not VPP's.
	check(t, l.us.NS.AddRoute(pfx("10.5.0.9/32"), addr("10.0.0.254"), "eth0"))
	l.us.agent.Dataplane = []string{"--dataplane", "vpp", "--vpp-socket", v.APISocket()}
	source := l.host(t, "source", "10.0.0.50/24")
	for _, p := range []string{"10.98.0.0/24", "10.99.0.0/24"} {
		check(t, source.NS.AddRoute(pfx(p), addr("10.0.0.102"), "eth0"))
	}
	l.reach(t, "10.0.0.254", "")
	l.us.start(t)
	l.us.awaitPeers(t, "10.5.0.9", "10.0.0.8")
	l.us.awaitReady(t)

	// passes sends packets and counts how many of them a gateway forwards.
	passes := func(to string, by *host, want bool) {
		t.Helper()
		const packets = 5
		what := fmt.Sprintf("packets to %s pass %s: %t", to, by.name, want)
		await(t, what, func(ctx context.Context) error {
			before := by.forwarded(t)
			for range packets {
				if _, err := source.NS.Ping(ctx, addr(to)); err != nil {
					return err
				}
			}
			if n := by.forwarded(t) - before; (n >= packets) != want {
				return fmt.Errorf("%d of %d packets", n, packets)
			}
			return nil
		})
	}
	passes("10.99.0.1", l.first, true)
	passes("10.98.0.1", l.first, false)
	for _, c := range []struct {
		gateway string
		host    *host
	}{{"10.0.0.254", l.first}, {"10.0.0.253", l.second}} {
		l.reach(t, c.gateway, c.gateway)
		passes("10.99.0.1", c.host, true)
		passes("10.98.0.1", c.host, true)
		l.us.awaitReady(t)
	}
	l.reach(t, "10.0.0.253", "")
	passes("10.98.0.1", l.second, false)
	passes("10.99.0.1", l.second, true)
}

// gateway is a machine that forwards, also back to where packets come from, and tells nobody of a
// shorter way.
func (l *lab) gateway(t *testing.T, name, address string) *host {
	t.Helper()
	g := l.host(t, name, address)
	for _, key := range []string{"all", "eth0"} { // one of both is enough to send redirects
		check(t, g.NS.Sysctl("net.ipv4.conf."+key+".send_redirects", "0"))
	}
	return g
}

// forwarded is how many IPv4 packets h has forwarded.
func (h *host) forwarded(t *testing.T) (packets int) {
	t.Helper()
	out, err := h.NS.Run(t.Context(), "cat", "/proc/net/snmp")
	check(t, err)
	var names []string
	for line := range strings.Lines(string(out)) {
		switch words := strings.Fields(line); {
		case words[0] == "Ip:" && names == nil:
			names = words
		case words[0] == "Ip:":
			_, err := fmt.Sscan(words[slices.Index(names, "ForwDatagrams")], &packets)
			check(t, err)
		}
	}
	return packets
}

// birdBehind makes a node with BIRD that reaches both routers through the first gateway, by the
// static routes that confd makes of reachableBy.
func (l *lab) birdBehind(t *testing.T) *birdNode {
	t.Helper()
	b := l.birdRouter(t, "twin", "10.0.0.3/24")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	b.Bird, err = l.StartBirdText(ctx, programs.Bird, b.NS, "twin-bird", `
router id 10.0.0.3;
protocol device { scan time 2; }
protocol direct {}
protocol static { route 10.0.0.8/32 via 10.0.0.254; route 10.5.0.9/32 via 10.0.0.254; }
protocol kernel { import none; export where source != RTS_DEVICE; }
template bgp node { local 10.0.0.3 as 64512; multihop; gateway recursive; connect delay time 1;
  connect retry time 2; error wait time 1, 2; import all; export none; }
protocol bgp Far from node { neighbor 10.5.0.9 as 65001; }
protocol bgp Near from node { neighbor 10.0.0.8 as 65001; }
`)
	check(t, err)
	return b
}

// routerBehind makes a router that speaks BGP from an address that it has besides that of its
// interface, and announces a prefix whose first address it has.
func (l *lab) routerBehind(t *testing.T, name, address, speaker, prefix string) *birdNode {
	t.Helper()
	r := l.bird2Router(t, name, address, fmt.Sprintf(`
protocol direct { ipv4; }
protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }
protocol static { ipv4; route %s blackhole; }
template bgp node { local %s as %d; multihop; connect delay time 1; connect retry time 2;
  error wait time 1, 2; ipv4 { import all; export where source = RTS_STATIC; }; }
protocol bgp Us from node { neighbor 10.0.0.2 as %[4]d; }
protocol bgp Twin from node { neighbor 10.0.0.3 as %[4]d; }
`, prefix, speaker, torAS, asNumber))
	check(t, r.NS.AddAddress("lo", pfx(pfx(prefix).Addr().Next().String()+"/32")))
	if !strings.HasPrefix(address, speaker+"/") {
		check(t, r.NS.AddAddress("lo", pfx(speaker+"/32")))
	}
	return r
}
