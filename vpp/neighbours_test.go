package vpp

import (
	"net/netip"
	"slices"
	"testing"

	"vpp-route-agent/internal/route"
)

// shownByVPP is what a VPP 25.10 has said.
const shownByVPP = `[@8]  ipv4 via fe80::5efe:c000:208 ipip17900000: mtu:9000 next:3 ` +
	`flags:[fixup-ip4o4 ] 45000000000000004004f6f0c0000201c0000208
  stacked-on entry:13:
    [@2]: ipv4 via 192.0.2.8 loop0: mtu:9000 next:4 flags:[] 020000000008dead000000000800
[@6]  ipv6 [features] via fe80::5efe:c000:208 ipip17900000: mtu:9000 next:3 flags:[] 4500
[@9]  arp-ipv4: via 192.0.2.9 loop0
[@4]  ipv4 via 192.0.2.8 loop0: mtu:9000 next:4 flags:[] 020000000008dead000000000800
[@5000000000]  ipv4 via 192.0.2.8 loop0: mtu:9000
[@1]  ipv4 via nobody loop0: mtu:9000
`

func TestNeighboursOfCommandLine(t *testing.T) {
	hop := func(address, on string) route.Path {
		return route.Path{NextHop: netip.MustParseAddr(address), Interface: on}
	}
	got := neighbours(shownByVPP, func(on string, a netip.Addr) route.Path {
		return hop(a.String(), on)
	})
	want := []adjacency{{8, hop("fe80::5efe:c000:208", "ipip17900000")},
		{6, hop("fe80::5efe:c000:208", "ipip17900000")}, {4, hop("192.0.2.8", "loop0")}}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
