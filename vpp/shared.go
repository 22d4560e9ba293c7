package vpp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"

	"vpp-route-agent/internal/route"
)

// A VPP without FIB sources of one's own knows the older messages only. They write under source API, as every other program does, and show
// entries without their source. What is ours then is what the journal says we put there and what still looks like it:
//
//   - Routes lists nothing, so that nothing is adopted but from the journal. Lookup shows what is there, whosever it is.
//   - A put goes out where nothing stands, or what we put there (Op.Was), or just what is to be put: with a lost journal our own
//     routes are found again by that. Anything else is somebody else's, and the put is refused.
//   - A delete goes out where just what we put there stands; else it succeeds without being sent.
//
// So a route of ours may stay behind, as where an interface that it leads over is gone and its paths read differently; nobody else's
// is touched unless it is path for path what we put there.

const sharedProblem = "routes are written under the API source, which other programs use too"

// sharedChunk is how many routes are looked at before they are written: as long as that takes, somebody else's put may go unseen.
const sharedChunk = 256

// useSharedSource has l write under the API source. Nothing in such a VPP tells one life of it from another for certain; the process id
// and the time at which VPP made its socket do as far as one can see.
func (l *life) useSharedSource(socket string, pid uint32) {
	born := randomHex() // not seen: no journal is for this life
	if info, err := os.Stat(socket); err == nil {
		born = fmt.Sprint(info.ModTime().UnixNano())
	}
	l.shared = true
	l.remember(nil)
	l.facts.Identity = fmt.Sprintf("API source pid %d socket of %s", pid, born)
	l.facts.Problem = fmt.Sprintf("%s has no FIB sources of one's own: %s", l.facts.Version, sharedProblem)
}

// unsettled are the digests of puts whose outcome is not known, in one life of VPP: what stands there may be ours without being Op.Was.
type unsettled struct {
	identity string
	digests  map[route.Key]uint64
}

func (u *unsettled) of(identity string) map[route.Key]uint64 {
	if u.identity != identity || u.digests == nil {
		u.identity, u.digests = identity, map[route.Key]uint64{}
	}
	return u.digests
}

// applyShared carries out those ops that concern nobody else's routes.
func (v *VPP) applyShared(ctx context.Context, l *life, ops []route.Op, done func(i int, err error)) error {
	for first := 0; first < len(ops); {
		n := distinct(ops[first:])
		chunk := ops[first : first+n]
		err := v.applyChunk(ctx, l, chunk, func(i int, err error) { done(first+i, err) })
		if err != nil {
			return err
		}
		first += n
	}
	return nil
}

// distinct returns how many ops, of the first few, are for different keys: the second for a key must see what the first did.
func distinct(ops []route.Op) int {
	seen := map[route.Key]bool{}
	for i, op := range ops[:min(len(ops), sharedChunk)] {
		if seen[op.Route.Key] {
			return i
		}
		seen[op.Route.Key] = true
	}
	return min(len(ops), sharedChunk)
}

func (v *VPP) applyChunk(ctx context.Context, l *life, ops []route.Op, done func(i int, err error)) error {
	standing, err := l.lookAt(ctx, ops)
	if err != nil {
		return err
	}
	unsettled := v.unsettled.of(l.facts.Identity)
	var send []route.Op
	var index []int // of each one in ops
	for i, op := range ops {
		k := op.Route.Key
		ours, err := l.mayChange(ctx, op, standing[i], unsettled[k])
		switch {
		case err != nil:
			return err
		case ours:
			send, index = append(send, op), append(index, i)
			if !op.Delete {
				unsettled[k] = op.Route.Digest()
			}
		case op.Delete:
			done(i, nil)
		default:
			done(i, fmt.Errorf("vpp: put %s: another route is there, and this VPP cannot tell whose", k))
		}
	}
	return v.pipeline(ctx, l, send, func(i int, err error) {
		delete(unsettled, send[i].Route.Key)
		done(index[i], err)
	})
}

// lookAt returns what VPP has for exactly the key of each op, nil where there is nothing or where asking makes no sense.
func (l *life) lookAt(ctx context.Context, ops []route.Op) ([]*ip.IPRouteV2, error) {
	var reqs []request
	var index []int
	for i, op := range ops {
		if p, ok := route.Normalize(op.Route.Prefix); ok {
			reqs = append(reqs, &ip.IPRouteLookup{TableID: op.Route.Table, Prefix: encodePrefix(p), Exact: 1})
			index = append(index, i)
		}
	}
	standing := make([]*ip.IPRouteV2, len(ops))
	var bad error
	err := dump(ctx, l.conn, reqs, func(i int, r *ip.IPRouteLookupReply) {
		switch retval := apiError(r.Retval); retval {
		case 0:
			found := withoutSource(r.Route)
			standing[index[i]] = &found
		case noSuchEntry, noSuchFIB:
		default:
			bad = fmt.Errorf("look up %s: %w", ops[index[i]].Route.Key, retval)
		}
	})
	if err := errors.Join(err, bad); err != nil {
		return nil, err
	}
	return standing, nil
}

// mayChange reports whether op, where found stands, concerns us alone. maybe is the digest of a put whose outcome is not known.
func (l *life) mayChange(ctx context.Context, op route.Op, found *ip.IPRouteV2, maybe uint64) (bool, error) {
	if found == nil {
		return !op.Delete, nil
	}
	r, ok, err := l.claimed(ctx, *found)
	if err != nil || !ok {
		return !op.Delete, err
	}
	digest := r.Digest()
	return digest == op.Was || digest == maybe || !op.Delete && digest == op.Route.Digest(), nil
}

// claimed returns found as a route, if somebody wants it as far as one can see.
func (l *life) claimed(ctx context.Context, found ip.IPRouteV2) (route.Route, bool, error) {
	r, err := decodeRoute(found, l.links.Load().name)
	if err != nil || l.isGap(r.Prefix, found) {
		return route.Route{}, false, err
	}
	return r, true, nil
}

// fillers are in every table; a default route belongs to them if it drops.
var fillers = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/32"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("fe80::/10"),
}

func onlyDrops(paths []fib_types.FibPath) bool {
	return !slices.ContainsFunc(paths, func(p fib_types.FibPath) bool { return p.Type != fib_types.FIB_API_PATH_TYPE_DROP })
}

// forwardsAsCover reports whether r, at prefix p, is a host route that does what would be done without it: most likely VPP made it for a
// next hop or a neighbour.
func (l *life) forwardsAsCover(ctx context.Context, p netip.Prefix, r ip.IPRouteV2) (bool, error) {
	if !p.IsSingleIP() {
		return false, nil
	}
	cover, ok, err := l.lookup(ctx, r.TableID, netip.PrefixFrom(p.Addr(), p.Bits()-1), false)
	if err != nil || !ok {
		return false, err
	}
	if slices.Equal(r.Paths, cover.Paths) {
		return true, nil
	}
	return isNeighbour(p.Addr(), r.Paths) && isSubnet(cover.Paths) && r.Paths[0].SwIfIndex == cover.Paths[0].SwIfIndex, nil
}

// isNeighbour: packets to a go to a itself, on some interface.
func isNeighbour(a netip.Addr, paths []fib_types.FibPath) bool {
	return len(paths) == 1 && paths[0].Type == fib_types.FIB_API_PATH_TYPE_NORMAL && paths[0].SwIfIndex != noInterface &&
		decodeUnion(paths[0].Nh.Address, a.Is6()) == a
}

// isSubnet: whoever is addressed is a neighbour on some interface.
func isSubnet(paths []fib_types.FibPath) bool {
	return len(paths) == 1 && paths[0].Type == fib_types.FIB_API_PATH_TYPE_NORMAL && paths[0].SwIfIndex != noInterface &&
		decodeUnion(paths[0].Nh.Address, true).IsUnspecified()
}

// withoutSource is what an older VPP shows, in the newer form.
func withoutSource(r ip.IPRoute) ip.IPRouteV2 {
	return ip.IPRouteV2{TableID: r.TableID, StatsIndex: r.StatsIndex, Prefix: r.Prefix, NPaths: r.NPaths, Paths: r.Paths}
}
