package interop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// TestImportByInterface has import rules that ask by which interface a learned route leaves. BIRD
// 1.6 with the same interfaces, and the filters that confd makes of the rules, accepts the same.
// The agent also follows a way that changes, and resets no session.
func TestImportByInterface(t *testing.T) {
	t.Parallel()
	for _, plane := range []string{"kernel", "none"} {
		t.Run(plane, func(t *testing.T) {
			t.Parallel()
			importByInterface(t, plane)
		})
	}
}

func importByInterface(t *testing.T, plane string) {
	l := newLab(t, "iface"+plane)
	back, err := l.Segment("back")
	check(t, err)
	attach := func(h *host, address string) {
		end := netlab.End{Namespace: h.NS, Device: "back0", Addresses: prefixes(address)}
		check(t, l.Attach(back, end))
		check(t, h.NS.AddRoute(pfx("10.7.0.0/24"), addr("10.6.0.9"), "back0"))
	}
	us := l.agentNode(t, "us", "10.0.0.2/24")
	if plane == "none" {
		us.agent.Dataplane = []string{"--dataplane", "none"}
	}
	attach(us.host, "10.6.0.2/24")
	twin := l.birdRouter(t, "twin", "10.0.0.3/24")
	attach(twin.host, "10.6.0.3/24")
	l.bird2Router(t, "tor", "10.0.0.1/24", `
protocol static {
  ipv4; route 10.90.0.0/24 blackhole; route 10.91.0.0/24 blackhole; route 10.92.0.0/24 blackhole;
}
filter hops {
  if source != RTS_STATIC then reject;
  if net = 10.91.0.0/24 then bgp_next_hop = 10.6.0.9;
  if net = 10.92.0.0/24 then bgp_next_hop = 10.7.0.9;
  accept;
}
template bgp node { local 10.0.0.1 as 64512; connect delay time 1; connect retry time 2;
  error wait time 1, 2; ipv4 { import all; export filter hops; }; }
protocol bgp Us from node { neighbor 10.0.0.2 as 64512; }
protocol bgp Twin from node { neighbor 10.0.0.3 as 64512; }
`)
	filter := func(rules string) {
		l.apply(t, testcluster.Resource("BGPFilter", "f", "importV4: ["+rules+"]"))
	}
	const byEth0, connected, beyond = "10.90.0.0/24", "10.91.0.0/24", "10.92.0.0/24"
	filter(`{interface: back*, action: Reject}`)
	l.apply(t, testcluster.Peer("tor", "10.0.0.1", 64512, "filters: [f]"))
	us.start(t)
	us.awaitPeers(t, "10.0.0.1")
	since := us.sessionsOf(t, "10.0.0.1")

	awaitBird := func(rules string, want ...string) {
		t.Helper()
		if twin.Bird != nil {
			check(t, twin.Bird.Stop())
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var err error
		name := fmt.Sprintf("twin-%d", len(rules))
		twin.Bird, err = l.StartBirdText(ctx, programs.Bird, twin.NS, name, `
router id 10.0.0.3;
protocol device { scan time 2; }
protocol direct { }
protocol kernel { learn; persist; scan time 2; import all; export none; }
filter rules { `+rules+` accept; }
protocol bgp Tor { local 10.0.0.3 as 64512; neighbor 10.0.0.1 as 64512; multihop; gateway recursive;
  connect delay time 1; connect retry time 2; error wait time 1, 2;
  import filter rules; export none; }
`)
		check(t, err)
		await(t, "BIRD accepts the same", func(ctx context.Context) error {
			routes, err := twin.Routes(ctx, "protocol Tor")
			var accepted []string
			for _, r := range routes {
				accepted = append(accepted, r.Prefix.String())
			}
			slices.Sort(accepted)
			if err == nil {
				err = same("BIRD", accepted, want)
			}
			return err
		})
	}
	awaitAccepted := func(what string, want ...string) {
		t.Helper()
		await(t, what, func(ctx context.Context) error {
			rib, err := us.rib(ctx, "ipv4")
			if err != nil {
				return err
			}
			return same("accepted", slices.Sorted(maps.Keys(rib)), want)
		})
	}
	awaitAccepted("what leaves by back0 is rejected", byEth0)
	awaitBird(`if (defined(ifname)) && (ifname ~ "back*") then reject;`, byEth0)

	check(t, us.NS.AddRoute(pfx("10.7.0.0/25"), addr("10.0.0.1"), "eth0"))
	awaitAccepted("the way is another", byEth0, beyond)
	filter(`{interface: "eth?", action: Accept}, {action: Reject}`)
	awaitAccepted("only what leaves by eth0 is accepted", byEth0, beyond)
	_, err = us.NS.Run(t.Context(), "ip", "route", "del", "10.7.0.0/25")
	check(t, err)
	awaitAccepted("the way is the one before", byEth0)
	awaitBird(`if (defined(ifname)) && (ifname ~ "eth?") then accept; reject;`, byEth0)
	filter(`{interface: back0, action: Accept}, {action: Reject}`)
	awaitAccepted("only what leaves by back0 is accepted", connected, beyond)
	awaitBird(`if (defined(ifname)) && (ifname ~ "back0") then accept; reject;`, connected, beyond)
	us.sameSessions(t, since)
}
