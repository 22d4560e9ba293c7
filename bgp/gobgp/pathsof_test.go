package gobgp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"vpp-route-agent/bgp"
)

// Whoever asks about a prefix is told what each peer sent, also what is not used, and why.
func TestPathsOf(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.plan.Policies.Filters = map[string]bgp.Filter{
		"none": {Import4: []bgp.Rule{{Name: "none"}}},
		"more": {Import4: []bgp.Rule{{Name: "more", Accept: true,
			Operations: []bgp.Operation{{LocalPref: 300}}}}},
	}
	for i, filters := range [][]string{nil, nil, {"none"}, {"more"}, nil} {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 150+i), 65001+uint32(i))
		n.plan.Peers[i].Filters = filters
	}
	set(t, n)
	var fars []*far
	for i := range 5 {
		f := dialFar(t, n, fmt.Sprintf("127.0.0.%d", 150+i), 65001+uint32(i), 90, true)
		fars = append(fars, f)
	}
	for i, f := range fars {
		as := []uint32{65001 + uint32(i)}
		if i == 1 {
			as = append(as, 64512) // it went through this node's AS
		}
		f.announce("10.1.0.0/26", fmt.Sprintf("192.0.2.%d", 10+i), as...)
	}
	fars[0].announce("10.0.0.0/8", "192.0.2.9", 65001)
	if err := n.SetUsable(t.Context(), func(_ netip.Prefix, hop netip.Addr) bool {
		return hop != addr("192.0.2.14")
	}); err != nil {
		t.Fatal(err)
	}
	asked := []netip.Prefix{pfx("10.1.0.0/26"), pfx("10.1.0.0/16"), pfx("10.0.0.0/8")}
	eventually(t, "paths", `10.1.0.0/26
127.0.0.153 via 192.0.2.13 as [65004] pref 300 best
127.0.0.150 via 192.0.2.10 as [65001]
127.0.0.154 via 192.0.2.14 as [65005] rejected
127.0.0.151 via 192.0.2.11 as [65002 64512] looped
127.0.0.152 via 192.0.2.12 as [65003] not accepted
10.0.0.0/8
127.0.0.150 via 192.0.2.9 as [65001] best
`, func() string {
		found, err := n.PathsOf(t.Context(), asked)
		if err != nil {
			return err.Error()
		}
		return describePaths(found)
	})

	n.announce("10.1.0.0/26", n.addr.String())
	set(t, n)
	found, err := n.PathsOf(t.Context(), asked[:1])
	if err != nil || len(found) != 1 || !found[0].Own {
		t.Errorf("with a path of its own: %+v, %v", found, err)
	}
}

func describePaths(all []bgp.PrefixPaths) string {
	var b strings.Builder
	for _, p := range all {
		fmt.Fprintln(&b, p.Prefix)
		for _, r := range p.Received {
			fmt.Fprintf(&b, "%s via %s as %v", r.Peer, r.Sent.NextHop, r.Sent.ASPath)
			if r.Accepted != nil && r.Accepted.LocalPref != nil {
				fmt.Fprintf(&b, " pref %d", *r.Accepted.LocalPref)
			}
			for _, is := range []struct {
				what string
				yes  bool
			}{{"best", r.Best}, {"rejected", r.Rejected}, {"looped", r.Looped},
				{"not accepted", r.Accepted == nil && !r.Looped}} {
				if is.yes {
					fmt.Fprint(&b, " ", is.what)
				}
			}
			fmt.Fprintln(&b)
		}
	}
	return b.String()
}
