package main

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
)

func TestLostBeforeTheFault(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	outage := func(first, last time.Duration, lost int) netlab.Report {
		return netlab.Report{Outages: []netlab.Outage{{First: start.Add(first), Last: start.Add(last), Lost: lost}}}
	}
	for name, c := range map[string]struct {
		report netlab.Report
		want   int
	}{
		"long before":          {outage(-4*time.Second, -3*time.Second, 7), 7},
		"on the way":           {outage(-10*time.Millisecond, -time.Millisecond, 7), 0},
		"from before until it": {outage(-time.Second, time.Second, 7), 0},
		"after":                {outage(time.Second, 2*time.Second, 7), 0},
		"nothing":              {netlab.Report{}, 0},
	} {
		if got := lostBefore([]netlab.Report{c.report}, start); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestLostInStalls(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	stalls := map[int][]netlab.Stall{1: {{From: at(1000), To: at(1300)}}} // of the second node
	outage := func(first, last, lost int) netlab.Report {
		return netlab.Report{Outages: []netlab.Outage{{First: at(first), Last: at(last), Lost: lost}}}
	}
	for name, c := range map[string]struct {
		report netlab.Report
		want   int
	}{
		"when the ring is full":     {outage(1160, 1299, 140), 140},
		"before the ring is full":   {outage(1010, 1299, 290), 0},
		"from before the stall":     {outage(990, 1299, 310), 0},
		"until long after it":       {outage(1160, 1400, 240), 0},
		"elsewhere":                 {outage(2000, 2100, 100), 0},
		"nothing":                   {netlab.Report{}, 0},
		"on the way when it was up": {outage(1160, 1305, 146), 146},
	} {
		for flow, passes := range []bool{true, true, false} {
			reports, want := make([]netlab.Report, 3), 0
			if reports[flow] = c.report; passes {
				want = c.want
			}
			if got := lostInStalls(reports, stalls); got != want {
				t.Errorf("%s, flow %d: %d, want %d", name, flow+1, got, want)
			}
		}
	}
}

func TestParseFIB(t *testing.T) {
	const text = `ipv4-VRF:0, fib_index:0, flow hash:[src dst sport dport proto flowlabel ] epoch:0 flags:none locks:[adjacency:1, default-route:1, ]
10.1.0.0/26
  unicast-ip4-chain
  [@0]: dpo-load-balance: [proto:ip4 index:17 buckets:1 uRPF:20 to:[0:0]]
    [0] [@0]: dpo-drop ip4
10.1.0.1/32
  unicast-ip4-chain
  [@0]: dpo-load-balance: [proto:ip4 index:13 buckets:1 uRPF:16 to:[397549:17492156]]
    [0] [@5]: ipv4 via 10.1.0.1 host-calinode-1: mtu:9000 next:4 flags:[] 52f8d8ddc1daeeeeeeeeeeee0800
10.1.1.0/26
  unicast-ip4-chain
  [@0]: dpo-load-balance: [proto:ip4 index:21 buckets:2 uRPF:24 to:[198664:8741216]]
    [0] [@3]: arp-ipv4: via 192.168.4.12 host-uplink
    [1] [@5]: ipv4 via 192.168.4.13 host-uplink: mtu:9000 next:5 flags:[] aa1d4ad8c9f702fe000000010800
192.168.4.111/32
  unicast-ip4-chain
  [@0]: dpo-load-balance: [proto:ip4 index:9 buckets:1 uRPF:13 to:[0:0]]
    [0] [@12]: dpo-receive: 192.168.4.111 on host-uplink
`
	hop := netip.MustParseAddr
	want := map[netip.Prefix]fibEntry{
		netip.MustParsePrefix("10.1.0.0/26"):      {1, []netip.Addr{{}}},
		netip.MustParsePrefix("10.1.0.1/32"):      {1, []netip.Addr{hop("10.1.0.1")}},
		netip.MustParsePrefix("10.1.1.0/26"):      {2, []netip.Addr{hop("192.168.4.12"), hop("192.168.4.13")}},
		netip.MustParsePrefix("192.168.4.111/32"): {1, nil},
	}
	if got := parseFIB(text); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
