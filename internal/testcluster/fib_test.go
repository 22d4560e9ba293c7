package testcluster

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }

// As VPP 25.10 prints them.
const (
	vppHead = "ipv4-VRF:0, fib_index:0, flow hash:[src dst sport dport proto flowlabel ] " +
		"epoch:0 flags:none locks:[adjacency:1, default-route:1, ]\n"
	vppAttached = vppHead + `10.1.0.64/26 fib:0 index:21 locks:2
  vpp-route-agent@18ea71c9 refs:1 src-flags:added,contributing,active,
    path-list:[26] locks:8 flags:shared, uPRF-list:22 len:1 itfs:[1, ]
      path:[28] pl-index:26 ip4 weight=1 pref=0 attached-nexthop:  oper-flags:resolved,
        192.168.4.12 host-uplink
      [@0]: ipv4 via 192.168.4.12 host-uplink: mtu:9000 next:5 flags:[] 02fed7be6d6602fe5e60a7f20800

 forwarding:   unicast-ip4-chain
  [@0]: dpo-load-balance: [proto:ip4 index:22 buckets:1 uRPF:22 to:[0:0]]
    [0] [@5]: ipv4 via 192.168.4.12 host-uplink: mtu:9000 next:5 flags:[] 02fed7be6d6602fe5e60a7f2
`
	vppDrop = vppHead + `10.1.0.0/26 fib:0 index:15 locks:2
  vpp-route-agent@18ea71c9 refs:1 src-flags:added,contributing,active,
    path-list:[23] locks:2 flags:shared, uPRF-list:19 len:0 itfs:[]
      path:[25] pl-index:23 ip4 weight=1 pref=0 special:  cfg-flags:drop,
        [@0]: dpo-drop ip4

 forwarding:   unicast-ip4-chain
  [@0]: dpo-load-balance: [proto:ip4 index:16 buckets:1 uRPF:19 to:[0:0]]
    [0] [@0]: dpo-drop ip4
`
	vppForeign = vppHead + `10.1.0.128/26 fib:0 index:13 locks:2
  CLI refs:1 src-flags:added,contributing,active,
    path-list:[21] locks:2 flags:shared, uPRF-list:18 len:1 itfs:[1, ]
      path:[23] pl-index:21 ip4 weight=1 pref=0 recursive:  oper-flags:resolved,
        via 192.168.4.12 in fib:0 via-fib:14 via-dpo:[dpo-load-balance:14]

 forwarding:   unicast-ip4-chain
`
	vppShadowed = vppHead + `10.1.0.1/32 fib:0 index:12 locks:3
  CLI refs:1 entry-flags:attached, src-flags:added,contributing,active, cover:15
    path-list:[20] locks:2 uPRF-list:16 len:1 itfs:[3, ]
      path:[22] pl-index:20 ip4 weight=1 pref=0 attached-nexthop:  oper-flags:resolved,
        10.1.0.1 host-caliw11
      [@0]: ipv4 via 10.1.0.1 host-caliw11: mtu:9000 next:4 flags:[] 667e091a9341eeeeeeeeeeee0800
  vpp-route-agent@18ea71c9 refs:1 src-flags:added,
    path-list:[26] locks:8 flags:shared, uPRF-list:22 len:1 itfs:[1, ]
      path:[28] pl-index:26 ip4 weight=1 pref=0 attached-nexthop:  oper-flags:resolved,
        192.168.4.12 host-uplink

 forwarding:   unicast-ip4-chain
`
)

func TestVPPEntryOfOurs(t *testing.T) {
	for name, c := range map[string]struct {
		text, prefix string
		ours         bool
		via          string
	}{
		"attached":                          {vppAttached, "10.1.0.64/26", true, "192.168.4.12"},
		"drop":                              {vppDrop, "10.1.0.0/26", true, "drop"},
		"of another source only":            {vppForeign, "10.1.0.128/26", false, "drop"},
		"behind another source":             {vppShadowed, "10.1.0.1/32", true, "192.168.4.12"},
		"a shorter match is another prefix": {vppAttached, "10.1.0.65/32", false, "drop"},
		"nothing":                           {"", "10.1.0.0/26", false, "drop"},
	} {
		t.Run(name, func(t *testing.T) {
			r, ours := parseEntry(c.text, pfx(c.prefix))
			if ours != c.ours || Hop(r.NextHop()) != c.via || ours && r.Kind+r.Device == "" {
				t.Errorf("ours %v, %+v", ours, r)
			}
		})
	}
}

func TestVPPForwarding(t *testing.T) {
	const text = vppHead + `10.1.0.0/26
  unicast-ip4-chain
  [@0]: dpo-load-balance: [proto:ip4 index:17 buckets:1 uRPF:20 to:[0:0]]
    [0] [@0]: dpo-drop ip4
10.1.0.1/32
  unicast-ip4-chain
  [@0]: dpo-load-balance: [proto:ip4 index:13 buckets:1 uRPF:16 to:[397549:17492156]]
    [0] [@5]: ipv4 via 10.1.0.1 host-calinode-1: mtu:9000 next:4 flags:[] 52f8d8ddc1daeeeeeeeeeeee
10.1.1.0/26
  unicast-ip4-chain
  [@0]: dpo-load-balance: [proto:ip4 index:21 buckets:2 uRPF:24 to:[198664:8741216]]
    [0] [@3]: arp-ipv4: via 192.168.4.12 host-uplink
    [1] [@5]: ipv4 via 192.168.4.13 host-uplink: mtu:9000 next:5 flags:[] aa1d4ad8c9f702fe00000001
192.168.4.111/32
  unicast-ip4-chain
  [@0]: dpo-load-balance: [proto:ip4 index:9 buckets:1 uRPF:13 to:[0:0]]
    [0] [@12]: dpo-receive: 192.168.4.111 on host-uplink
`
	want := map[netip.Prefix]forwarding{
		pfx("10.1.0.0/26"):      {1, []netip.Addr{{}}},
		pfx("10.1.0.1/32"):      {1, []netip.Addr{addr("10.1.0.1")}},
		pfx("10.1.1.0/26"):      {2, []netip.Addr{addr("192.168.4.12"), addr("192.168.4.13")}},
		pfx("192.168.4.111/32"): {1, nil},
	}
	if got := parseForwarding(text); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestKernelRoutes(t *testing.T) {
	got, err := parseKernel([]byte(`[{"type":"blackhole","dst":"10.1.0.128/26","flags":[]},
		{"dst":"10.1.0.2","gateway":"192.168.4.12","dev":"eth0","metric":1024,"flags":[]},
		{"dst":"10.1.0.3","nexthops":[{"gateway":"192.168.4.1"},{"gateway":"192.168.4.2"}]},
		{"type":"unicast","dst":"default","gateway":"192.168.4.1","dev":"eth0","flags":[]}]`), "-4")
	if err != nil {
		t.Fatal(err)
	}
	hops := func(texts ...string) (all []netip.Addr) {
		for _, s := range texts {
			all = append(all, addr(s))
		}
		return all
	}
	want := []Route{
		{Prefix: pfx("10.1.0.128/26"), Kind: "blackhole"},
		{Prefix: pfx("10.1.0.2/32"), NextHops: hops("192.168.4.12"), Device: "eth0", Metric: 1024},
		{Prefix: pfx("10.1.0.3/32"), NextHops: hops("192.168.4.1", "192.168.4.2")},
		{Prefix: pfx("0.0.0.0/0"), NextHops: hops("192.168.4.1"), Device: "eth0"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, bad := range []string{
		`{`, `[{"dst":"nowhere"}]`, `[{"dst":"10.0.0.0/8","gateway":"x"}]`,
	} {
		if got, err := parseKernel([]byte(bad), "-4"); err == nil {
			t.Errorf("%s: got %v", bad, got)
		}
	}
}

func TestDifferencesAreNamed(t *testing.T) {
	want := map[netip.Prefix]netip.Addr{
		pfx("10.1.0.0/26"): {}, pfx("10.1.0.64/26"): addr("192.168.4.12"),
		pfx("10.1.1.0/26"): addr("192.168.4.12"),
	}
	via := func(hop string) Route { return Route{NextHops: []netip.Addr{addr(hop)}} }
	have := FIB{
		pfx("10.1.0.0/26"): {}, pfx("10.1.0.64/26"): via("192.168.4.13"), pfx("10.1.9.0/26"): {},
	}
	got := have.Difference(want)
	if !slices.Equal(got, []string{
		"10.1.0.64/26 is via 192.168.4.13, not 192.168.4.12", "10.1.1.0/26 is missing",
		"10.1.9.0/26 should not be there",
	}) {
		t.Errorf("got %q", got)
	}
	delete(want, pfx("10.1.1.0/26"))
	delete(have, pfx("10.1.9.0/26"))
	have[pfx("10.1.0.64/26")] = via("192.168.4.12")
	if got := have.Difference(want); got != nil {
		t.Errorf("nothing differs, got %q", got)
	}
}
