package gobgp

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	api "github.com/osrg/gobgp/v3/api"
)

// deadHops knows which peers a change of the rejected next hops concerns. Taking a peer's paths through the import policy again costs
// GoBGP as much as learning them anew, so it must not be done to a thousand peers because one node went away.
//
// GoBGP does not say which paths its policy has rejected, and asking it for all paths would cost more than what is to be saved. So:
//   - a hop that dies concerns the peers that had it in a best-path set since their session came up (announced);
//   - a path with it that was not best then, and becomes best later, is found when it does (resurfaced);
//   - a hop that lives again concerns the peers of whom paths met the policy while any hop was dead: those that were taken through it
//     again (screened), and those that have sent an UPDATE since (heard).
//
// Each may name a peer too many, never one too few.
type deadHops struct {
	mu         sync.Mutex
	announced  map[netip.Addr]map[netip.Addr]struct{} // by peer
	dead       map[netip.Addr]struct{}
	resurfaced map[netip.Addr]struct{}
	found      chan struct{} // of size 1: resurfaced has an item

	// Owned by the Speaker's goroutine.
	heard    map[netip.Addr]uint64   // the peers' UPDATE counters when the first hop died; nil: no hop is dead, or it is not known
	screened map[netip.Addr]struct{} // since then
}

// manyHops is how many next hops of a peer are kept apart; one with more is concerned by every change. A peer must not be able to fill
// our memory.
const manyHops = 10_000

func newDeadHops() *deadHops {
	return &deadHops{announced: map[netip.Addr]map[netip.Addr]struct{}{}, resurfaced: map[netip.Addr]struct{}{}, found: make(chan struct{}, 1)}
}

// note takes a path of a best-path set.
func (d *deadHops) note(peer, hop netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	hops := d.announced[peer]
	if hops == nil {
		hops = map[netip.Addr]struct{}{}
		d.announced[peer] = hops
	}
	if len(hops) <= manyHops {
		hops[hop] = struct{}{}
	}
	if _, ok := d.dead[hop]; ok {
		d.resurfaced[peer] = struct{}{}
		wake(d.found)
	}
}

// forget drops what was noted about a peer that GoBGP is rid of. Its UPDATE counter begins anew with it.
func (d *deadHops) forget(peer netip.Addr) {
	d.screen(peer)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.announced, peer)
}

// reset forgets everything about peers, when GoBGP is rid of all.
func (d *deadHops) reset() {
	d.heard, d.screened = nil, nil
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.announced)
}

// set says which hops are dead now.
func (d *deadHops) set(dead []netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead = make(map[netip.Addr]struct{}, len(dead))
	for _, a := range dead {
		d.dead[a] = struct{}{}
	}
}

func (d *deadHops) takeResurfaced() []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := slices.Collect(maps.Keys(d.resurfaced))
	clear(d.resurfaced)
	return out
}

// announcers returns the peers that had one of the hops in a best-path set.
func (d *deadHops) announcers(hops []netip.Addr) []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []netip.Addr
	for peer, theirs := range d.announced {
		has := func(h netip.Addr) bool { _, ok := theirs[h]; return ok }
		if len(hops) > 0 && (len(theirs) > manyHops || slices.ContainsFunc(hops, has)) {
			out = append(out, peer)
		}
	}
	return out
}

// screen notes that paths of these peers meet the policy again.
func (d *deadHops) screen(peers ...netip.Addr) {
	for _, p := range peers {
		if d.heard != nil {
			d.screened[p] = struct{}{}
		}
	}
}

// changeDead is called before the policy rejects now instead of old. The function that it returns is called after that, and returns the
// peers to be taken through the policy again.
func (s *Speaker) changeDead(ctx context.Context, old, now []netip.Addr) (func() []netip.Addr, error) {
	d := s.deadHops
	added, removed := without(now, old), without(old, now)
	var concerned []netip.Addr
	if len(removed) > 0 || d.heard == nil && len(added) > 0 {
		counters, err := s.updateCounters(ctx)
		if err != nil {
			return nil, err
		}
		for peer := range s.applied.peers {
			before, known := d.heard[peer]
			_, again := d.screened[peer]
			if len(removed) > 0 && (again || !known || counters[peer] != before) {
				concerned = append(concerned, peer)
			}
		}
		if d.heard == nil {
			d.heard, d.screened = counters, map[netip.Addr]struct{}{}
		}
	}
	d.set(now)
	return func() []netip.Addr {
		if len(now) == 0 {
			d.heard, d.screened = nil, nil
		}
		for _, peer := range d.announcers(added) { // only now, after what was accepted until the policy changed
			if !slices.Contains(concerned, peer) {
				concerned = append(concerned, peer)
			}
		}
		return concerned
	}, nil
}

// updateCounters returns how many UPDATEs came from each peer since it was added.
func (s *Speaker) updateCounters(ctx context.Context) (map[netip.Addr]uint64, error) {
	all := map[netip.Addr]uint64{}
	err := s.applied.server.ListPeer(ctx, &api.ListPeerRequest{}, func(p *api.Peer) {
		if a, err := netip.ParseAddr(p.GetState().GetNeighborAddress()); err == nil {
			all[a] = p.GetState().GetMessages().GetReceived().GetUpdate()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("gobgp: list peers: %w", err)
	}
	return all, nil
}

func without(list, others []netip.Addr) (rest []netip.Addr) {
	for _, a := range list {
		if _, found := slices.BinarySearchFunc(others, a, netip.Addr.Compare); !found {
			rest = append(rest, a)
		}
	}
	return rest
}

// reviewResurfaced takes paths through the policy again that were accepted before their next hop died, and have become best since.
func (s *Speaker) reviewResurfaced(ctx context.Context) {
	if !s.applied.policySet {
		return
	}
	if err := s.review(ctx, s.deadHops.takeResurfaced()); err != nil {
		s.log.Warn("paths with a dead next hop stay best", "err", err)
	}
}
