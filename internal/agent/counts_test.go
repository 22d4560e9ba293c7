package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// fakeCounter counts what a test says.
type fakeCounter struct {
	frozen    bool
	routes    map[route.Key]route.Counts
	hops      []route.HopCounts
	noHops    error
	tunnels   map[netip.Addr]route.TunnelCounts
	asked     [][]route.Key // of CountRoutes
	noTunnels error
}

// answer is the error of a frozen data plane, or nil.
func (f *fakeCounter) answer(ctx context.Context) error {
	if f.frozen {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *fakeCounter) CountRoutes(ctx context.Context,
	keys []route.Key) (map[route.Key]route.Counts, error) {
	f.asked = append(f.asked, keys)
	out := map[route.Key]route.Counts{}
	for _, k := range keys {
		if c, ok := f.routes[k]; ok {
			out[k] = c
		}
	}
	return out, f.answer(ctx)
}

func (f *fakeCounter) CountNextHops(ctx context.Context) ([]route.HopCounts, error) {
	return f.hops, errors.Join(f.noHops, f.answer(ctx))
}

func (f *fakeCounter) CountTunnels(
	ctx context.Context) (map[netip.Addr]route.TunnelCounts, error) {
	return f.tunnels, errors.Join(f.noTunnels, f.answer(ctx))
}

// ask asks the admin API.
func (n *node) ask(t *testing.T, path string, out any) (problem string) {
	t.Helper()
	answer := httptest.NewRecorder()
	n.agent.AdminHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	if answer.Code != http.StatusOK {
		return strings.TrimSpace(answer.Body.String())
	}
	if err := json.Unmarshal(answer.Body.Bytes(), out); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return ""
}

func TestRoutesWithCounters(t *testing.T) {
	counter := &fakeCounter{routes: map[route.Key]route.Counts{
		key("10.1.0.0/26"): {Packets: 7, Bytes: 700}}}
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		var with, without []RouteStatus
		n.ask(t, "/v1/routes?counters=true", &with)
		n.ask(t, "/v1/routes", &without)
		if len(with) != len(without) || len(with) == 0 || len(counter.asked) != 1 {
			t.Fatalf("%d and %d routes, asked %d times", len(with), len(without),
				len(counter.asked))
		}
		for i, r := range with {
			if without[i].Packets != nil || without[i].Bytes != nil {
				t.Errorf("%s has counters that nobody asked for", r.Prefix)
			}
			if r.Prefix == pfx("10.1.0.0/26") && (r.Packets == nil || *r.Packets != 7 ||
				*r.Bytes != 700) {
				t.Errorf("%s: %v packets", r.Prefix, r.Packets)
			}
		}
		n.ask(t, "/v1/routes?counters=true&prefix=203.0.113.7", &with)
		if len(with) != 0 || len(counter.asked) != 1 {
			t.Errorf("of no route: %v, asked %d times", with, len(counter.asked))
		}
	}, func(c *Config) { c.Counter = counter })
}

// What is not counted says why: without a Counter, and where that has it off.
func TestNotCountedSaysWhy(t *testing.T) {
	const linux = "Linux counts no packets by route, next hop or node"
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		if got := n.ask(t, "/v1/routes?counters=true", nil); got !=
			"packets are not counted: "+linux {
			t.Errorf("%q", got)
		}
		var hops HopsCounted
		n.ask(t, "/v1/next-hops", &hops)
		if hops.NotCounted != linux || hops.NextHops == nil {
			t.Errorf("%+v", hops)
		}
	}, func(c *Config) { c.Dataplane = "kernel" })
	counter := &fakeCounter{noHops: errors.New("they are off")}
	inBubble(t, func(t *testing.T, n *node) {
		var hops HopsCounted
		n.ask(t, "/v1/next-hops", &hops)
		if hops.NotCounted != "they are off" {
			t.Errorf("%+v", hops)
		}
		counter.noHops = nil
		counter.hops = []route.HopCounts{
			{Path: route.Path{NextHop: addr("192.0.2.9"), Interface: "b"},
				Counts: route.Counts{Packets: 1, Bytes: 2}},
			{Path: route.Path{NextHop: route.EndpointHop(addr("192.0.2.7")),
				Interface: route.IPIP.Interface(addr("192.0.2.7"))},
				Counts: route.Counts{Packets: 3, Bytes: 4}},
		}
		hops = HopsCounted{}
		n.ask(t, "/v1/next-hops", &hops)
		if hops.NotCounted != "" || len(hops.NextHops) != 2 {
			t.Fatalf("%+v", hops)
		}
		if h := hops.NextHops[1]; h.NextHop != "192.0.2.7" || *h.Encapsulation != route.IPIP ||
			*h.Packets != 3 || *h.Bytes != 4 {
			t.Errorf("%+v", h)
		}
	}, func(c *Config) { c.Counter = counter })
}

// What leaves by IPIP is what routes have forwarded that lead to one node; those that lead to
// several are named.
func TestTunnelsAreCounted(t *testing.T) {
	b, c := addr("192.168.4.3"), addr("192.168.4.4")
	counter := &fakeCounter{routes: map[route.Key]route.Counts{
		key("10.1.3.0/26"): {Packets: 7, Bytes: 700}, key("10.1.4.0/26"): {Packets: 1, Bytes: 90},
		key("10.1.5.0/26"): {Packets: 5, Bytes: 500}, key("10.2.0.0/26"): {Packets: 9, Bytes: 900}}}
	eth0 := live.Interfaces[0]
	eth0.MTU = 1500
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- route.Facts{Identity: "one", Interfaces: []route.Interface{eth0,
			{Name: "tunl0", Index: 9, Up: true}}}
		s := encapsulated("Always")
		other := s.Nodes["b"]
		other.Name, other.IPv4 = "c", netip.PrefixFrom(c, other.IPv4.Bits())
		s.Nodes["c"] = other
		n.snapshots <- s
		time.Sleep(time.Minute)
		learn := func(prefix string, hops ...netip.Addr) {
			best := fib.BestPaths{Prefix: pfx(prefix)}
			for _, h := range hops {
				best.Paths = append(best.Paths, route.Path{NextHop: h, Weight: 1})
			}
			n.engine.Learn(best)
		}
		learn("10.1.3.0/26", b)
		learn("10.1.4.0/26", b)
		learn("10.1.5.0/26", b, c)
		learn("10.2.0.0/26", b) // of no pool: plain
		time.Sleep(time.Minute)
		var all []TunnelStatus
		n.ask(t, "/v1/tunnels", &all)
		if len(all) != 2 || all[0].Node != "b" || all[1].Node != "c" {
			t.Fatalf("%+v", all)
		}
		const shared = "in: VPP counts what comes in by IPIP for all nodes together; out: " +
			"without 5 packets by routes that lead to several next hops"
		for i, want := range []route.Counts{{Packets: 8, Bytes: 790}, {}} {
			got := all[i]
			if got.PacketsOut == nil || *got.PacketsOut != want.Packets ||
				*got.BytesOut != want.Bytes || got.PacketsIn != nil || got.BytesIn != nil ||
				got.NotCounted != shared {
				t.Errorf("%s: %+v", got.Node, got)
			}
		}
		for _, x := range n.agent.Tunnels() { // what status and explain show asks nobody
			if x.PacketsOut != nil || x.NotCounted != "" {
				t.Errorf("%+v", x)
			}
		}
		var many []fib.BestPaths
		for i := range route.MaxLookups {
			a := netip.AddrFrom4([4]byte{10, 1, 16 + byte(i>>8), byte(i)})
			many = append(many, fib.BestPaths{Prefix: route.HostPrefix(a),
				Paths: []route.Path{{NextHop: b, Weight: 1}}})
		}
		n.engine.Learn(many...)
		time.Sleep(time.Hour)
		asked := len(counter.asked)
		n.ask(t, "/v1/tunnels", &all)
		if len(counter.asked) != asked || !strings.Contains(all[0].NotCounted,
			"out: 4099 routes lead through tunnels") {
			t.Errorf("asked %d times; %+v", len(counter.asked)-asked, all[0])
		}
	}, func(c *Config) {
		c.BGP, c.Counter = bgp.Options{Tunnels: []route.Encap{route.IPIP}}, counter
	})
}

func TestVXLANTunnelsAreCounted(t *testing.T) {
	b, c := addr("192.168.4.3"), addr("192.168.4.4")
	counter := &fakeCounter{tunnels: map[netip.Addr]route.TunnelCounts{
		b: {In: route.Counts{Packets: 1, Bytes: 2}, Out: route.Counts{Packets: 3, Bytes: 4}}}}
	tunnels := func() []TunnelStatus {
		return []TunnelStatus{{Encapsulation: route.VXLAN, OuterDestination: b},
			{Encapsulation: route.VXLAN, OuterDestination: c}}
	}
	a := New(Config{Dataplane: "vpp", Counter: counter, Datastore: make(datastoreStub)})
	all := tunnels()
	a.countTunnels(t.Context(), all)
	got := all[0]
	if *got.PacketsIn != 1 || *got.BytesIn != 2 || *got.PacketsOut != 3 || *got.BytesOut != 4 ||
		got.NotCounted != "" {
		t.Errorf("%+v", got)
	}
	if all[1].PacketsIn != nil || all[1].NotCounted != "" { // it is not there yet
		t.Errorf("%+v", all[1])
	}
	counter.tunnels, counter.noTunnels = nil, errors.New("it does not answer")
	all = tunnels()
	a.countTunnels(t.Context(), all)
	if all[0].PacketsIn != nil || all[0].NotCounted != "it does not answer" {
		t.Errorf("%+v", all[0])
	}
	a = New(Config{Dataplane: "kernel", Datastore: make(datastoreStub)})
	a.countTunnels(t.Context(), all)
	if all[0].NotCounted != sharedDevice {
		t.Errorf("%+v", all[0])
	}
}

// What is left out of metrics is counted, and the widest routes are there.
func TestMetricsOfRoutesAreBounded(t *testing.T) {
	counter := &fakeCounter{routes: map[route.Key]route.Counts{}, noHops: errors.New("off")}
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		n.metrics(t, `counted_left_out{of="routes"} 0`, `counted_ok{of="routes"} 1`,
			`counted_ok{of="next_hops"} 0`)
		var learned []fib.BestPaths
		for i, prefix := range []string{"10.7.0.0/24", "10.8.0.1/32", "10.6.0.0/16",
			"2001:db8::/64", "10.9.0.1/32"} {
			learned = append(learned, fib.BestPaths{Prefix: pfx(prefix),
				Paths: []route.Path{{NextHop: addr("192.168.4.3"), Weight: 1}}})
			counter.routes[key(prefix)] = route.Counts{Packets: uint64(i), Bytes: 100}
		}
		learned[3].Paths[0].NextHop = addr("fd00::3")
		n.engine.Learn(learned...)
		time.Sleep(time.Minute)
		counter.noHops = nil
		for _, hop := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"} {
			counter.hops = append(counter.hops, route.HopCounts{
				Path:   route.Path{NextHop: addr(hop), Interface: "b"},
				Counts: route.Counts{Packets: 6, Bytes: 60}})
		}
		n.metrics(t, `counted_left_out{of="routes"} 2`, `counted_left_out{of="next_hops"} 1`,
			`counted_ok{of="next_hops"} 1`,
			`route_packets_total{prefix="10.6.0.0/16",table="0"} 2`,
			`route_bytes_total{prefix="10.7.0.0/24",table="0"} 100`,
			`next_hop_packets_total{interface="b",next_hop="192.0.2.3"} 6`,
			`next_hop_bytes_total{interface="b",next_hop="192.0.2.1"} 60`)
		for _, asked := range counter.asked {
			if len(asked) > 3 || len(asked) == 0 {
				t.Errorf("asked for %v", asked)
			}
		}
		counter.frozen = true
		began := time.Now()
		n.metrics(t, `counted_ok{of="routes"} 0`, `counted_ok{of="next_hops"} 0`)
		if took := time.Since(began); took > 2*askPatience {
			t.Errorf("a frozen data plane holds a scrape up for %s", took)
		}
	}, func(c *Config) { c.Counter, c.MetricsRoutes = counter, 3 })
	inBubble(t, func(t *testing.T, n *node) { // nobody has asked for them
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		n.metrics(t)
		if asked := len(counter.asked); asked > 0 {
			t.Errorf("asked %d times", asked)
		}
	}, func(c *Config) {
		counter = &fakeCounter{}
		c.Counter = counter
	})
}
