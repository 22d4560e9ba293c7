package main

import (
	"net/netip"
	"strings"
	"testing"

	"vpp-route-agent/internal/route"
)

// TestPlanEncapsulation has one line for each other node, and none where no pool has a mode.
func TestPlanEncapsulation(t *testing.T) {
	pfx := netip.MustParsePrefix
	e := &route.Encapsulation{
		Pools: []route.Pool{
			{Name: "ipip", Prefix: pfx("10.1.0.0/16"), Encap: route.IPIP, CrossSubnet: true},
			{Name: "plain", Prefix: pfx("10.2.0.0/16")},
			{Name: "later", Prefix: pfx("10.3.0.0/16"), Note: "vxlanMode Always is not there"},
			{Name: "waits", Prefix: pfx("10.4.0.0/16"), Encap: route.IPIP, Waits: "no address"},
			{Name: "felix", Prefix: pfx("10.5.0.0/16"), Encap: route.VXLAN, Felix: true},
		},
		Own4: pfx("192.0.2.5/24"),
		Nodes: route.Nodes{{Address: netip.MustParseAddr("192.0.2.9"), Name: "edge-9"},
			{Address: netip.MustParseAddr("198.51.100.7"), Name: "edge-7"},
			{Address: netip.MustParseAddr("fd77::7"), Name: "edge-7"}},
	}
	for dest, want := range map[string]string{
		"10.1.0.0/26": `
  leaves to 192.0.2.9 (edge-9) as it is: IPPool(ipip) has IPIP CrossSubnet: 192.0.2.9 is in ` +
			`this node's network 192.0.2.0/24
  leaves to 198.51.100.7 (edge-7) in IPIP from 192.0.2.5 to 198.51.100.7: IPPool(ipip) has IPIP ` +
			`CrossSubnet: 198.51.100.7 is Node(edge-7)
`,
		"10.2.0.0/26": "",
		"10.9.0.0/26": "",
		"10.3.0.0/26": `
  leaves without encapsulation, though IPPool(later) asks for it: vxlanMode Always is not there
`,
		"10.5.0.0/26": `
  leaves as Felix says: on Linux it has the routes of IPPool(felix)
`,
		"10.4.0.1/32": `
  leaves to 192.0.2.9 (edge-9) not at all: IPPool(waits) has IPIP: no address
  leaves to 198.51.100.7 (edge-7) not at all: IPPool(waits) has IPIP: no address
`,
	} {
		var b strings.Builder
		if p := planEncapsulation(pfx(dest), e); p != nil {
			writeEncapsulation(&b, *p)
		}
		if got := b.String(); got != strings.TrimPrefix(want, "\n") {
			t.Errorf("%s: got\n%swant%s", dest, got, want)
		}
	}
}
