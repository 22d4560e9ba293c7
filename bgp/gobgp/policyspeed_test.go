package gobgp

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"vpp-route-agent/bgp"
)

// A filter that changes at run time has every learned route meet it, for each group of peers that
// has it. The test prints what that costs per route; ROUTES=200000 measures the real thing instead
// of taking it from a small one.
func TestFilterChangeSpeed(t *testing.T) {
	routes := 500
	if text := os.Getenv("ROUTES"); text != "" {
		var err error
		if routes, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, filters := range []int{1, 10, 50} {
		t.Run(fmt.Sprintf("%d filters", filters), func(t *testing.T) {
			wall, processor, heap := filterChange(t, filters, routes)
			t.Logf("%d routes, %d filters of three rules: %.2f s, %.2f s of processor time, "+
				"which is %.0f µs per route; %d bytes of heap per route",
				routes, filters, wall.Seconds(), processor.Seconds(),
				float64(processor.Microseconds())/float64(routes), heap/routes)
		})
	}
}

// filterChange returns how long it takes until a peer has heard of a filter that lets out nothing
// any more, and what the routes hold on the heap before that, with what the far ends keep of them.
// One route of two is outside all pools.
func filterChange(t *testing.T, filters, routes int) (wall, processor time.Duration, heap int) {
	t.Attr("part", "GoBGP 3.37.0 peers on loopback")
	l := newLabAlone(t)
	n := l.node(64512)
	n.farPeer("127.0.0.60", 64512)
	p := bgp.Policies{
		ExportPools: []netip.Prefix{pfx("10.0.0.0/8")}, Filters: map[string]bgp.Filter{},
		Normal4: 2147482623, Normal6: 2147482623,
	}
	for i := range filters {
		name := fmt.Sprintf("f%d", i)
		n.farPeer(fmt.Sprintf("127.0.1.%d", i+1), uint32(65001+i))
		n.plan.Peers[i+1].Filters = []string{name}
		p.Filters[name] = bgp.Filter{Export4: []bgp.Rule{
			{
				Name:  name + "[0]",
				Match: bgp.Match{Prefix: pfx(fmt.Sprintf("192.168.%d.0/24", i)), Min: 24, Max: 32},
			},
			{Name: name + "[1]", Match: bgp.Match{Community: &largeC}, Accept: true},
			{
				Name: name + "[2]", Match: bgp.Match{Prefix: pfx("10.128.0.0/9"), Min: 9, Max: 32},
				Accept: true, Operations: []bgp.Operation{{Add: &addedC}},
			},
		}}
	}
	n.plan.Policies = p
	set(t, n)
	source := dialFar(t, n, "127.0.0.60", 64512, 90, true, gracefulCap(false))
	filtered := dialFar(t, n, "127.0.1.1", 65001, 90, true, gracefulCap(false))
	empty := liveHeap()
	for i := 0; i < routes; i += 700 {
		var nlri []*packet.IPAddrPrefix
		for k := i; k < min(i+700, routes); k++ {
			nlri = append(nlri,
				ipv4(0, fmt.Sprintf("%d.%d.%d.%d/32", 10+k&1, k>>16, k>>8&255, k&255)))
		}
		source.send(packet.NewBGPUpdateMessage(nil, pathAttributes("192.0.2.1", 100), nlri))
	}
	within(t, "routes learned", routes, n.size)
	within(t, "routes passed on", routes/2, func() int { return len(filtered.received()) })
	heap = liveHeap() - empty

	f := p.Filters["f0"]
	f.Export4 = append([]bgp.Rule{{Name: "f0[all]"}}, f.Export4...)
	p.Filters = map[string]bgp.Filter{"f0": f}
	for name, old := range n.plan.Policies.Filters {
		if name != "f0" {
			p.Filters[name] = old
		}
	}
	n.plan.Policies = p
	start, busy := time.Now(), processorTime(t)
	set(t, n)
	within(t, "routes withdrawn", 0, func() int { return len(filtered.received()) })
	return time.Since(start), processorTime(t) - busy, heap
}

// liveHeap is what a collection leaves, in bytes.
func liveHeap() int {
	runtime.GC()
	runtime.GC() // what lay in a sync.Pool outlives the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func processorTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// within is eventually for what takes long.
func within(t *testing.T, what string, want int, got func() int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for g := got(); g != want; g = got() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d, want %d", what, g, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
