package demo

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico/calicotest"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }

// As VPP 25.10 prints them.
const (
	vppHead     = "ipv4-VRF:0, fib_index:0, flow hash:[src dst sport dport proto flowlabel ] epoch:0 flags:none locks:[adjacency:1, default-route:1, ]\n"
	vppAttached = vppHead + `10.1.0.64/26 fib:0 index:21 locks:2
  vpp-route-agent@18ea71c9 refs:1 src-flags:added,contributing,active,
    path-list:[26] locks:8 flags:shared, uPRF-list:22 len:1 itfs:[1, ]
      path:[28] pl-index:26 ip4 weight=1 pref=0 attached-nexthop:  oper-flags:resolved,
        192.168.4.12 host-uplink
      [@0]: ipv4 via 192.168.4.12 host-uplink: mtu:9000 next:5 flags:[] 02fed7be6d6602fe5e60a7f20800

 forwarding:   unicast-ip4-chain
  [@0]: dpo-load-balance: [proto:ip4 index:22 buckets:1 uRPF:22 to:[0:0]]
    [0] [@5]: ipv4 via 192.168.4.12 host-uplink: mtu:9000 next:5 flags:[] 02fed7be6d6602fe5e60a7f20800
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
		"drop":                              {vppDrop, "10.1.0.0/26", true, ""},
		"of another source only":            {vppForeign, "10.1.0.128/26", false, ""},
		"behind another source":             {vppShadowed, "10.1.0.1/32", true, "192.168.4.12"},
		"a shorter match is another prefix": {vppAttached, "10.1.0.65/32", false, ""},
		"nothing":                           {"", "10.1.0.0/26", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e, ours := parseFIBEntry(c.text, pfx(c.prefix))
			via := ""
			if e.nextHop.IsValid() {
				via = e.nextHop.String()
			}
			if ours != c.ours || via != c.via || ours && !strings.HasPrefix(e.where, "VPP, source vpp-route-agent, ") {
				t.Errorf("ours %v, %+v", ours, e)
			}
		})
	}
}

func TestKernelRoutes(t *testing.T) {
	k := &kernelFIB{protocol: birdProtocol}
	got, err := k.parse([]byte(`[{"type":"blackhole","dst":"10.1.0.128/26","flags":[]},
		{"dst":"10.1.0.2","gateway":"192.168.4.12","dev":"eth0","metric":1024,"flags":[]},
		{"dst":"default","gateway":"192.168.4.1","dev":"eth0","flags":[]}]`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.Prefix]entry{
		pfx("10.1.0.128/26"): {where: "kernel, proto bird, blackhole"},
		pfx("10.1.0.2/32"):   {addr("192.168.4.12"), "kernel, proto bird, dev eth0"},
		pfx("0.0.0.0/0"):     {addr("192.168.4.1"), "kernel, proto bird, dev eth0"},
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	for p, e := range want {
		if got[p] != e {
			t.Errorf("%s: got %+v, want %+v", p, got[p], e)
		}
	}
	for _, bad := range []string{`{`, `[{"dst":"nowhere"}]`, `[{"dst":"10.0.0.0/8","gateway":"x"}]`} {
		if got, err := k.parse([]byte(bad)); err == nil {
			t.Errorf("%s: got %v", bad, got)
		}
	}
}

// twoNodes is a cluster with a block each, and a workload of the first block on the second node.
func twoNodes() (d *demo, a, b *node) {
	a = &node{name: "a", address: addr("192.168.4.11"), nextHop: addr("192.168.4.11")}
	b = &node{name: "b", address: addr("192.168.4.12"), nextHop: addr("192.168.4.12")}
	return &demo{
		nodes:  []*node{a, b},
		blocks: []block{{pfx("10.1.0.0/26"), a}, {pfx("10.1.0.64/26"), b}},
		workloads: []*workload{
			{name: "w1", address: addr("10.1.0.1"), node: a},
			{name: "w2", address: addr("10.1.0.2"), node: b},
		},
	}, a, b
}

func TestWantedRoutes(t *testing.T) {
	d, a, b := twoNodes()
	for _, c := range []struct {
		node *node
		want map[string]string
	}{
		{a, map[string]string{"10.1.0.0/26": "drop", "10.1.0.64/26": "192.168.4.12", "10.1.0.2/32": "192.168.4.12"}},
		{b, map[string]string{"10.1.0.0/26": "192.168.4.11", "10.1.0.64/26": "drop"}},
	} {
		got := d.wanted(c.node)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v", c.node.name, got)
		}
		for p, via := range c.want {
			if hop(got[pfx(p)]) != via {
				t.Errorf("%s: %s via %s, want %s", c.node.name, p, hop(got[pfx(p)]), via)
			}
		}
	}
}

func TestDifferencesAreNamed(t *testing.T) {
	want := map[netip.Prefix]netip.Addr{pfx("10.1.0.0/26"): {}, pfx("10.1.0.64/26"): addr("192.168.4.12"), pfx("10.1.1.0/26"): addr("192.168.4.12")}
	have := map[netip.Prefix]entry{pfx("10.1.0.0/26"): {}, pfx("10.1.0.64/26"): {nextHop: addr("192.168.4.13")}, pfx("10.1.9.0/26"): {}}
	got := differences(want, have)
	if !slices.Equal(got, []string{
		"10.1.0.64/26 is via 192.168.4.13, not 192.168.4.12", "10.1.1.0/26 is missing", "10.1.9.0/26 should not be there",
	}) {
		t.Errorf("got %q", got)
	}
	delete(want, pfx("10.1.1.0/26"))
	delete(have, pfx("10.1.9.0/26"))
	have[pfx("10.1.0.64/26")] = entry{nextHop: addr("192.168.4.12")}
	if got := differences(want, have); got != nil {
		t.Errorf("nothing differs, got %q", got)
	}
}

func TestReportCountsWhatDidNotHold(t *testing.T) {
	for name, c := range map[string]struct {
		checks []bool
		ok     bool
		said   string
	}{
		"all held":      {[]bool{true, true}, true, "All 2 checks held"},
		"one did not":   {[]bool{true, false}, false, "1 of 2 checks did not hold"},
		"nothing shown": {nil, false, "0 of 0"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := &report{out: &out}
			r.chapter("first")
			for _, ok := range c.checks {
				r.check(ok, "something", "3 ms")
			}
			r.finish(time.Second)
			if r.result.OK != c.ok || !strings.Contains(out.String(), c.said) {
				t.Errorf("ok %v:\n%s", r.result.OK, &out)
			}
			if _, err := json.Marshal(r.result); err != nil {
				t.Error(err)
			}
			if strings.Contains(out.String(), "\x1b") {
				t.Error("colours that nobody asked for")
			}
		})
	}
}

func TestTableLinesUpCharactersNotBytes(t *testing.T) {
	var out strings.Builder
	r := &report{out: &out}
	r.table([][]string{{"A", "B"}, {"·", "x"}, {"→→", "y"}})
	want := "     A   B\n     ·   x\n     →→  y\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestDurationsForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		300 * time.Microsecond: "0.3 ms", 12 * time.Millisecond: "12 ms", 2345 * time.Millisecond: "2.3 s",
	} {
		if got := inSeconds(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

func TestEtcdIsReachedBySocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	l.Close() // free a moment ago, and nobody is likely to take it
	dir := t.TempDir()
	socket := filepath.Join(dir, "etcd.sock")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ServeEtcd(ctx, listen, filepath.Join(dir, "data"), socket) }()

	ok, err := await(t.Context(), 20*time.Second, func(ctx context.Context) (bool, error) {
		if _, err := os.Stat(socket); err != nil {
			return false, err
		}
		cluster, err := calicotest.Connect(ctx, "unix://"+socket, nil)
		if err != nil {
			return false, err
		}
		defer cluster.Close()
		return true, cluster.AddPool(ctx, "p", pfx("10.1.0.0/16"), 0)
	})
	if !ok {
		t.Error(err)
	}
	cluster, err := calicotest.Connect(t.Context(), "http://"+listen, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	snapshot, err := cluster.Snapshot(t.Context(), "")
	if err != nil || len(snapshot.IPPools) != 1 {
		t.Errorf("what was written by the socket is not there: %v, %v", snapshot, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
