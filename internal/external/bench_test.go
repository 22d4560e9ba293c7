package external

import (
	"fmt"
	"runtime"
	"testing"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// BenchmarkItems is what 10 000 routes cost: decoded (heap per item), then merged and judged.
func BenchmarkItems(b *testing.B) {
	const n = 10_000
	before := heap()
	s := Source{Name: "etcd", Items: make(map[string]Item, n)}
	for i := range n {
		prefix := fmt.Sprintf("10.%d.%d.0/24", 100+i/256, i%256)
		key := "config/vpp/v2/route/vrf/0/dst/" + prefix + "/gw/10.0.0.2"
		value := fmt.Sprintf(`{"dst_network":%q,"next_hop_addr":"10.0.0.2"}`, prefix)
		s.Items[key] = DecodeJSON(key, []byte(value), Item{})
	}
	plan := Merge([]Source{s}, allowed)
	if len(plan.Routes) != n {
		b.Fatalf("%d routes", len(plan.Routes))
	}
	facts := Facts{}
	for _, r := range plan.Routes {
		facts.Entries = append(facts.Entries, fib.Entry{Key: r.Key, State: fib.Programmed,
			Origin: route.External, Paths: r.Paths})
	}
	perItem := float64(heap()-before) / n
	b.Run("merge", func(b *testing.B) {
		for b.Loop() {
			plan = Merge([]Source{s}, allowed)
		}
	})
	b.Run("judge", func(b *testing.B) {
		b.ReportMetric(perItem, "heap-B/item")
		for b.Loop() {
			Judge(plan, facts)
		}
	})
	runtime.KeepAlive(s)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
