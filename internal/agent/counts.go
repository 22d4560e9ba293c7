package agent

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Counter is what counts packets by route and by what they leave by; package vpp has it. What a
// data plane does not count is an error that says why.
type Counter interface {
	// CountRoutes returns the counts of keys that the data plane has an entry for.
	CountRoutes(ctx context.Context, keys []route.Key) (map[route.Key]route.Counts, error)
	// CountNextHops returns those of all next hops, whatever the prefix.
	CountNextHops(ctx context.Context) ([]route.HopCounts, error)
	// CountTunnels returns those of tunnels by the nodes' addresses, for tunnels that are
	// interfaces.
	CountTunnels(ctx context.Context) (map[netip.Addr]route.TunnelCounts, error)
}

// uncounted says why a data plane without a Counter counts nothing.
func (a *Agent) uncounted() string {
	if a.cfg.Dataplane == "kernel" {
		return "Linux counts no packets by route, next hop or node"
	}
	return errNoTraffic.Error()
}

// HopsCounted is what `routes --counters` prints of next hops.
type HopsCounted struct {
	NextHops   []PathStatus `json:"nextHops"`             // with Packets and Bytes
	NotCounted string       `json:"notCounted,omitempty"` // why there are none
}

// countHops never waits longer than askPatience.
func (a *Agent) countHops(ctx context.Context) (all []route.HopCounts, problem string) {
	if a.cfg.Counter == nil {
		return nil, a.uncounted()
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	all, err := a.cfg.Counter.CountNextHops(ctx)
	if err != nil {
		return nil, err.Error()
	}
	return all, ""
}

// hopsCounted shows counts of next hops: of those that used wants, or of all if it is nil.
func hopsCounted(all []route.HopCounts, used func(route.Path) bool) []PathStatus {
	out := []PathStatus{}
	for _, h := range all {
		if used == nil || used(h.Path) {
			hop := pathStatus(h.Path, 0)
			hop.Packets, hop.Bytes = &h.Packets, &h.Bytes
			out = append(out, hop)
		}
	}
	slices.SortFunc(out, func(a, b PathStatus) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), cmp.Compare(a.NextHop, b.NextHop))
	})
	return out
}

// leadsBy reports whether one of the paths has the next hop on the interface of h.
func leadsBy(paths []route.Path, h route.Path) bool {
	return slices.ContainsFunc(paths, func(p route.Path) bool {
		return p.NextHop == h.NextHop && p.Interface == h.Interface
	})
}

func (a *Agent) serveNextHops(ctx context.Context) HopsCounted {
	all, problem := a.countHops(ctx)
	return HopsCounted{hopsCounted(all, nil), problem}
}

// counted is what the data plane has counted for a listing of routes; the zero value: nothing.
type counted struct {
	routes map[route.Key]route.Counts
	hops   map[route.Path]route.Counts // by next hop and interface
}

// addTo adds what was counted for e to what is shown of it.
func (c counted) addTo(r *RouteStatus, e fib.Entry) {
	if of, ok := c.routes[e.Key]; ok {
		r.Packets, r.Bytes = &of.Packets, &of.Bytes
	}
	for i, p := range e.Paths {
		if of, ok := c.hops[route.Path{NextHop: p.NextHop, Interface: p.Interface}]; ok {
			r.Paths[i].Packets, r.Paths[i].Bytes = &of.Packets, &of.Bytes
		}
	}
}

// counted returns the counts of entries. Those of next hops may be missing: /v1/next-hops says why.
func (a *Agent) counted(ctx context.Context, entries iter.Seq[fib.Entry]) (c counted, err error) {
	if a.cfg.Counter == nil {
		return counted{}, fmt.Errorf("packets are not counted: %s", a.uncounted())
	}
	var keys []route.Key
	for e := range entries {
		if e.State.IsAcknowledged() || e.State == fib.Held {
			keys = append(keys, e.Key)
		}
	}
	if len(keys) == 0 { // which would ask for all
		return counted{}, nil
	}
	if c.routes, err = a.cfg.Counter.CountRoutes(ctx, keys); err != nil {
		return counted{}, err
	}
	hops, _ := a.countHops(ctx)
	c.hops = make(map[route.Path]route.Counts, len(hops))
	for _, h := range hops {
		c.hops[h.Path] = h.Counts
	}
	return c, nil
}

// Why tunnels are not told apart.
const (
	sharedDevice = "one device of Linux leads to all nodes, and counts for all of them together"
	sharedIPIP   = "in: VPP counts what comes in by IPIP for all nodes together"
)

// countTunnels adds to each tunnel what went through it. Those of IPIP on VPP are one interface:
// what leaves to a node is what the routes have forwarded that lead to that node alone.
func (a *Agent) countTunnels(ctx context.Context, all []TunnelStatus) {
	if a.cfg.Counter == nil {
		for i := range all {
			all[i].NotCounted = a.uncounted()
			if a.cfg.Dataplane == "kernel" {
				all[i].NotCounted = sharedDevice
			}
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	var vxlan map[netip.Addr]route.TunnelCounts
	var byVXLAN, byIPIP error
	var ipip tunnelRoutes
	kinds := map[route.Encap]bool{}
	for _, t := range all {
		kinds[t.Encapsulation] = true
	}
	if kinds[route.VXLAN] {
		vxlan, byVXLAN = a.cfg.Counter.CountTunnels(ctx)
	}
	if kinds[route.IPIP] {
		ipip, byIPIP = a.countIPIP(ctx)
	}
	for i := range all {
		t := &all[i]
		switch t.Encapsulation {
		case route.VXLAN:
			if c, ok := vxlan[t.OuterDestination]; ok {
				t.PacketsIn, t.BytesIn = &c.In.Packets, &c.In.Bytes
				t.PacketsOut, t.BytesOut = &c.Out.Packets, &c.Out.Bytes
			} else if byVXLAN != nil {
				t.NotCounted = byVXLAN.Error()
			}
		case route.IPIP:
			if t.NotCounted = sharedIPIP; byIPIP != nil {
				t.NotCounted += "; out: " + byIPIP.Error()
				continue
			}
			c := ipip.out[t.OuterDestination]
			t.PacketsOut, t.BytesOut = &c.Packets, &c.Bytes
			if n := ipip.shared[t.OuterDestination]; n > 0 {
				t.NotCounted += fmt.Sprintf("; out: without %d packets by routes that lead to "+
					"several next hops", n)
			}
		}
	}
}

// tunnelRoutes are what routes have forwarded by IPIP, by the nodes' addresses.
type tunnelRoutes struct {
	out    map[netip.Addr]route.Counts
	shared map[netip.Addr]uint64 // packets of routes that lead elsewhere, too
}

// countIPIP looks routes up without a pause of the data plane, or not at all.
func (a *Agent) countIPIP(ctx context.Context) (tunnelRoutes, error) {
	led := map[route.Key][]route.Path{}
	count := 0
	a.cfg.FIB.Forwarding(func(k route.Key, paths []route.Path) {
		if _, twice := led[k]; twice || !slices.ContainsFunc(paths, byIPIP) {
			return
		}
		if count++; count <= route.MaxLookups {
			led[k] = paths
		}
	})
	if count == 0 {
		return tunnelRoutes{}, nil
	}
	if count > route.MaxLookups {
		return tunnelRoutes{}, fmt.Errorf("%d routes lead through tunnels, and to count more than "+
			"%d VPP's workers stand still: `routes --counters` does that", count, route.MaxLookups)
	}
	counts, err := a.cfg.Counter.CountRoutes(ctx, slices.Collect(maps.Keys(led)))
	of := tunnelRoutes{map[netip.Addr]route.Counts{}, map[netip.Addr]uint64{}}
	for k, c := range counts {
		for _, p := range led[k] {
			outer, _ := route.EndpointBehind(p)
			if !byIPIP(p) {
				continue
			}
			if len(led[k]) > 1 {
				of.shared[outer] += c.Packets
				continue
			}
			sum := of.out[outer]
			sum.Add(c)
			of.out[outer] = sum
		}
	}
	return of, err
}

func byIPIP(p route.Path) bool {
	_, ok := route.EndpointBehind(p)
	return ok && route.EncapBy(p.Interface) == route.IPIP
}
