package vpp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip"

	"vpp-route-agent/internal/route"
)

// ErrNoHopCounts says that VPP counts nothing by next hop.
var ErrNoHopCounts = errors.New("VPP's counters of adjacencies are off: its command " +
	"`adjacency counters enable` turns them on, which costs it some speed")

// lookupBatch bounds the look-ups in one write: VPP serves others in between.
const lookupBatch = 256

// Forwarded returns how many packets VPP has received on all interfaces since its start, including
// those of the host, from its statistics segment. A frozen VPP blocks it for Config.ReplyTimeout.
func (v *VPP) Forwarded() (packets uint64, err error) {
	packets, err = readSegment(context.Background(), v, func(s segment) (sum uint64) {
		for i := range s.indexes(receivedByLink) {
			sum += s.of(receivedByLink, i).Packets
		}
		return sum
	}, receivedByLink)
	if err != nil {
		return 0, fmt.Errorf("vpp: count packets: %w", err)
	}
	return packets, nil
}

// CountRoutes returns what VPP has forwarded by its entries of prefixes, whoever's these are, since
// each was made; one that VPP has not is left out. Above route.MaxLookups, and for nil, it returns
// all of our routes that forward: VPP lists them, and its workers stop meanwhile.
func (v *VPP) CountRoutes(ctx context.Context,
	keys []route.Key) (map[route.Key]route.Counts, error) {
	l, err := v.current()
	if err != nil {
		return nil, err
	}
	var all []countedRoute
	if keys == nil || len(keys) > route.MaxLookups {
		all, err = l.listCounted(ctx)
	} else {
		all, err = l.lookCounted(ctx, keys)
	}
	var counts []route.Counts
	if err == nil && len(all) > 0 {
		counts, err = readSegment(ctx, v, func(s segment) []route.Counts {
			out := make([]route.Counts, len(all)) // a map of a million would take too long
			for i, r := range all {
				out[i] = s.of(byRoute, r.index)
			}
			return out
		}, byRoute)
	}
	if err != nil {
		return nil, fmt.Errorf("vpp: count packets by route: %w", err)
	}
	out := make(map[route.Key]route.Counts, len(all))
	for i, r := range all {
		out[r.key] = counts[i]
	}
	return out, nil
}

// countedRoute is an entry with where it is counted.
type countedRoute struct {
	key   route.Key
	index uint32
}

func (l *session) lookCounted(ctx context.Context, keys []route.Key) ([]countedRoute, error) {
	all := make([]countedRoute, 0, len(keys))
	for part := range slices.Chunk(keys, lookupBatch) {
		reqs, found := make([]request, len(part)), make([]*ip.IPRouteLookupV2Reply, len(part))
		for i, k := range part {
			reqs[i] = lookupRequest(k.Table, k.Prefix, true)
		}
		err := dump(ctx, l.conn, reqs, func(i int, r *ip.IPRouteLookupV2Reply) { found[i] = r })
		if err != nil {
			return nil, err // the reader may still be in the handler
		}
		for i, r := range found {
			switch {
			case r == nil:
				return nil, fmt.Errorf("VPP gave no reply about %s", part[i])
			case r.Retval == 0:
				all = append(all, countedRoute{part[i], r.Route.StatsIndex})
			case isMissing(vppError(r.Retval)):
			default:
				return nil, fmt.Errorf("%s: %w", part[i], vppError(r.Retval))
			}
		}
	}
	return all, nil
}

func (l *session) listCounted(ctx context.Context) (all []countedRoute, err error) {
	tables, err := readTables(ctx, l.conn)
	if err != nil {
		return nil, err
	}
	for t := range tables {
		for _, s := range []source{l.own, l.elevated} {
			var part []countedRoute
			err := l.dumpRoutes(ctx, ip.IPTable{TableID: t.ID, IsIP6: t.IPv6}, s.id,
				func(found ip.IPRouteV2) {
					if p, err := decodePrefix(found.Prefix); err == nil && found.Src == s.id {
						part = append(part, countedRoute{route.Key{Table: t.ID, Prefix: p,
							Elevated: s == l.elevated}, found.StatsIndex})
					}
				})
			if err != nil {
				return nil, err // the reader may still be in the handler
			}
			all = append(all, part...)
		}
	}
	return all, nil
}

// CountTunnels returns what VPP has counted by each tunnel of VXLAN that we have made, by the
// nodes' addresses, since it was made. Bytes that came in have inner Ethernet headers, those that
// went out all headers of VXLAN. VPP counts tunnels of IPIP, one interface, together.
func (v *VPP) CountTunnels(ctx context.Context) (map[netip.Addr]route.TunnelCounts, error) {
	l, err := v.current()
	if err != nil {
		return nil, err
	}
	indexes := l.vteps.all()
	if len(indexes) == 0 {
		return nil, nil
	}
	counts, err := readSegment(ctx, v, func(s segment) map[netip.Addr]route.TunnelCounts {
		out := make(map[netip.Addr]route.TunnelCounts, len(indexes))
		for outer, index := range indexes {
			out[outer] = route.TunnelCounts{In: s.of(receivedByLink, index),
				Out: s.of(sentByLink, index)}
		}
		return out
	}, receivedByLink, sentByLink)
	if err != nil {
		return nil, fmt.Errorf("vpp: count packets by tunnel: %w", err)
	}
	return counts, nil
}

// CountNextHops returns what VPP has sent to each next hop on an interface, for whatever prefix,
// since it knows the next hop: ErrNoHopCounts where it does not count that. Which next hops there
// are is up to a minute old. It counts the header of the link, or of the tunnel, twice in the bytes
// (src/vnet/ip/ip4_forward.c, ip4_rewrite_inline).
func (v *VPP) CountNextHops(ctx context.Context) ([]route.HopCounts, error) {
	l, err := v.current()
	if err != nil {
		return nil, err
	}
	out, err := v.countNextHops(ctx, l)
	if err != nil && !errors.Is(err, ErrNoHopCounts) {
		err = fmt.Errorf("vpp: count packets by next hop: %w", err)
	}
	return out, err
}

// adjacenciesFor is how long those that were read are used. VPP's workers stand still while it
// shows them, and Prometheus comes again and again.
const adjacenciesFor = time.Minute

// shownAdjacencies are those that VPP has shown last.
type shownAdjacencies struct {
	mu   sync.Mutex
	read time.Time
	all  []adjacency
}

// adjacencies returns which adjacency is whose, as it was up to a minute ago.
func (l *session) adjacencies(ctx context.Context) ([]adjacency, error) {
	s := &l.shown
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.read.IsZero() && time.Since(s.read) < adjacenciesFor {
		return s.all, nil
	}
	links, err := readDetails(ctx, l.conn)
	if err != nil {
		return nil, err
	}
	shown, err := l.conn.command(ctx, "show adj nbr")
	if err != nil {
		return nil, err
	}
	s.read, s.all = time.Now(), neighbours(shown, l.pathOn(links))
	return s.all, nil
}

func (s *shownAdjacencies) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read, s.all = time.Time{}, nil
}

// countNextHops asks VPP's command line: no other message says which adjacency is whose.
func (v *VPP) countNextHops(ctx context.Context, l *session) ([]route.HopCounts, error) {
	on, err := l.conn.command(ctx, "show adj summary")
	switch {
	case err != nil:
		return nil, err
	case strings.Contains(on, "counters: disabled"):
		l.shown.forget() // whoever turns them on wants to see them at once
		return nil, ErrNoHopCounts
	case !strings.Contains(on, "counters: enabled"):
		return nil, fmt.Errorf("VPP's `show adj summary` says %q", on)
	}
	all, err := l.adjacencies(ctx)
	if err != nil {
		return nil, err
	}
	return readSegment(ctx, v, func(s segment) []route.HopCounts {
		counts := map[route.Path]route.Counts{} // of all kinds of packets
		var order []route.Path
		for _, n := range all {
			sum, known := counts[n.path]
			if !known {
				order = append(order, n.path)
			}
			sum.Add(s.of(byAdjacency, n.index))
			counts[n.path] = sum
		}
		out := make([]route.HopCounts, len(order))
		for i, p := range order {
			out[i] = route.HopCounts{Path: p, Counts: counts[p]}
		}
		return out
	}, byAdjacency)
}

// pathOn names the interface of a next hop, by VPP's name, as paths of routes do.
func (l *session) pathOn(all []*interfaces.SwInterfaceDetails) func(string,
	netip.Addr) route.Path {
	indexes := map[string]uint32{}
	for _, d := range all {
		indexes[text(d.InterfaceName)] = uint32(d.SwIfIndex)
	}
	name := l.nameIn(l.links.Load())
	return func(on string, hop netip.Addr) route.Path {
		p := route.Path{Interface: on, NextHop: hop}
		if index, ok := indexes[on]; ok {
			p.Interface = name(index)
		}
		return offTunnel(p)
	}
}

// adjacency is one to a neighbour.
type adjacency struct {
	index uint32
	path  route.Path
}

// neighbourLine is how VPP shows one: "[@7]  ipv4 via 192.0.2.7 loop0: mtu:9000 …", where
// "[features]" may stand before "via". What a midchain is stacked on follows, indented.
var neighbourLine = regexp.MustCompile(`(?m)^\[@(\d+)\] +\S+(?: \[features\])? via (\S+) +(\S+): `)

// neighbours reads VPP's `show adj nbr`.
func neighbours(shown string, path func(on string, hop netip.Addr) route.Path) (all []adjacency) {
	for _, m := range neighbourLine.FindAllStringSubmatch(shown, -1) {
		index, err := strconv.ParseUint(m[1], 10, 32)
		hop, bad := netip.ParseAddr(m[2])
		if err == nil && bad == nil {
			all = append(all, adjacency{uint32(index), path(m[3], hop)})
		}
	}
	return all
}
