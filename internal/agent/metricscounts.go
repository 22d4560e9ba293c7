package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/route"
)

// collectCounts adds what the data plane counts, for up to MetricsRoutes routes and as many next
// hops. It waits no longer than for an answer to an operator.
func (a *Agent) collectCounts(gauge, counter func(name, help string, labels ...string) series) {
	most := a.cfg.MetricsRoutes
	if most == 0 || a.cfg.Counter == nil {
		return
	}
	ok := gauge("counted_ok", "1 while the data plane says what it has counted; absent without "+
		"--metrics-routes.", "of")
	left := gauge("counted_left_out", "Routes and next hops that have no counters here, since "+
		"there are more than --metrics-routes.", "of")

	keys, more := a.widestRoutes(most)
	left(float64(more), "routes")
	ctx, cancel := context.WithTimeout(context.Background(), askPatience)
	defer cancel()
	routes := map[route.Key]route.Counts{}
	var err error
	if len(keys) > 0 { // none would ask for all
		routes, err = a.cfg.Counter.CountRoutes(ctx, keys)
	}
	ok(oneIf(err == nil), "routes")
	packets := counter("route_packets_total", "Packets that the data plane has forwarded by its "+
		"entry for a prefix, since that was made; with --metrics-routes.", "prefix", "table")
	bytes := counter("route_bytes_total", "Bytes of these, of IP.", "prefix", "table")
	for _, k := range keys {
		if c, counted := routes[k]; counted {
			table := fmt.Sprint(k.Table)
			packets(float64(c.Packets), k.Prefix.String(), table)
			bytes(float64(c.Bytes), k.Prefix.String(), table)
		}
	}

	all, problem := a.countHops(context.Background())
	ok(oneIf(problem == ""), "next_hops")
	hops := hopsCounted(all, nil)
	left(float64(max(len(hops)-most, 0)), "next_hops")
	toHop := counter("next_hop_packets_total", "Packets that the data plane has sent to a next "+
		"hop, for whatever prefix; with --metrics-routes, while VPP counts that.", "next_hop",
		"interface")
	bytesToHop := counter("next_hop_bytes_total", "Bytes of these, as VPP counts them: with the "+
		"header of the link or the tunnel, twice.", "next_hop", "interface")
	for _, h := range hops[:min(len(hops), most)] {
		toHop(float64(*h.Packets), h.NextHop, h.Interface)
		bytesToHop(float64(*h.Bytes), h.NextHop, h.Interface)
	}
}

// widestRoutes returns the acknowledged routes with the most addresses, at most so many, and how
// many more there are. A prefix with an elevated entry, too, is one entry to VPP.
func (a *Agent) widestRoutes(most int) (keys []route.Key, more int) {
	a.cfg.FIB.Forwarding(func(k route.Key, _ []route.Path) {
		k.Elevated = false
		at, twice := slices.BinarySearchFunc(keys, k, compareWidth)
		switch {
		case twice:
		case len(keys) < most:
			keys = slices.Insert(keys, at, k)
		case at < most:
			keys = slices.Insert(keys[:most-1], at, k)
			more++
		default:
			more++
		}
	})
	return keys, more
}

// compareWidth has routes with more addresses first.
func compareWidth(a, b route.Key) int {
	return cmp.Or(-cmp.Compare(width(a.Prefix), width(b.Prefix)), route.CompareKeys(a, b))
}

func width(p netip.Prefix) int { return p.Addr().BitLen() - p.Bits() }
