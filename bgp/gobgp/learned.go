package gobgp

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osrg/gobgp/v3/pkg/apiutil"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
)

// learned turns what is watched into calls of the Sink, in the order of the events: its lock is
// held meanwhile. GoBGP sends no event when paths become stale or when a restarted peer announces
// them again unchanged. So sets of several paths are kept, and handed over again without the stale
// ones.
type learned struct {
	log      *slog.Logger
	sink     Sink
	sessions *sessions
	suspect  bool // look for local paths that are not ours

	suspicion chan struct{} // of size 1: there are suspects

	// Read without mu: the Sink may wait for a disk.
	dropped atomic.Int64 // unusable paths
	foreign atomic.Int64 // local paths that were not ours

	mu sync.Mutex
	// complete best-path sets of two or more, stale ones included
	sets     map[netip.Prefix][]bgp.Path
	inSets   map[bgp.PeerID]int // how many paths of a peer are in them
	suspects map[netip.Prefix]struct{}
	named    map[string]struct{} // unusable paths that were logged
}

// noSink is the Sink when the configuration has none.
type noSink struct{}

func (noSink) Learned(netip.Prefix, []bgp.Path) {}

func newLearned(log *slog.Logger, sink Sink, ss *sessions, suspect bool) *learned {
	if sink == nil {
		sink = noSink{}
	}
	return &learned{
		log: log, sink: sink, sessions: ss, suspect: suspect,
		suspicion: make(chan struct{}, 1),
		sets:      map[netip.Prefix][]bgp.Path{},
		inSets:    map[bgp.PeerID]int{},
		suspects:  map[netip.Prefix]struct{}{},
		named:     map[string]struct{}{},
	}
}

// end stops calls of the Sink.
func (l *learned) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sink = noSink{}
}

// take takes what happened, in order.
func (l *learned) take(batch []server.Watched, now time.Time) {
	for len(batch) > 0 {
		n := 1
		switch w := batch[0]; {
		case w.NLRI != nil:
			n = setLength(batch)
			l.best(batch[:n], now)
		case w.EndOfRIB != 0:
			l.endOfRIB(peerOf(w), w.EndOfRIB)
		case w.NothingStale:
			l.mark(peerOf(w), false)
		case l.sessions.state(peerOf(w), w.Up, now) && !w.Up:
			// What is still in a set then is kept by graceful restart: without it, GoBGP has
			// withdrawn the peer's paths before it reports the state.
			l.mark(peerOf(w), true)
		}
		batch = batch[n:]
	}
}

// setLength returns how many paths of the batch are its first set.
func setLength(batch []server.Watched) int {
	for i, w := range batch {
		if !w.More {
			return i + 1
		}
	}
	return len(batch)
}

// best takes the new best-path set of a prefix: all of its paths, or one that is withdrawn.
func (l *learned) best(paths []server.Watched, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	prefix, err := prefixOf(paths[0].NLRI)
	if err != nil {
		l.drop(fmt.Sprint(paths[0].Peer, err), "peer", peerOf(paths[0]), "err", err)
		return
	}
	set := make([]bgp.Path, 0, len(paths))
	for _, w := range paths {
		if !w.Peer.IsValid() {
			if l.suspect {
				l.suspects[prefix] = struct{}{}
				wake(l.suspicion)
			}
			continue
		}
		l.sessions.update(peerOf(w), now)
		if w.Withdrawn {
			continue
		}
		path, err := pathFrom(prefix, w)
		if err != nil {
			l.drop(fmt.Sprint(w.Peer, prefix, err), "peer", peerOf(w), "prefix", prefix, "err", err)
			continue
		}
		path.External = l.sessions.external(path.Peer)
		set = append(set, path)
	}
	slices.SortFunc(set, comparePaths)
	set = slices.Compact(set)
	l.keep(prefix, set)
	l.sink.Learned(prefix, freshOf(set))
}

// keep remembers a set of several paths.
func (l *learned) keep(prefix netip.Prefix, set []bgp.Path) {
	for _, p := range l.sets[prefix] {
		if l.inSets[p.Peer]--; l.inSets[p.Peer] == 0 {
			delete(l.inSets, p.Peer)
		}
	}
	if len(set) < 2 {
		delete(l.sets, prefix)
		return
	}
	for _, p := range set {
		l.inSets[p.Peer]++
	}
	l.sets[prefix] = set
}

// drop counts a path that cannot be used and names it, each kind of it once.
func (l *learned) drop(kind string, attrs ...any) {
	l.dropped.Add(1)
	// a peer must not be able to fill our memory or disk
	if _, ok := l.named[kind]; ok || len(l.named) >= 1000 {
		return
	}
	l.named[kind] = struct{}{}
	l.log.Warn("a received path cannot be used", attrs...)
}

// mark sets Stale of peer's paths in the remembered sets, and reports the sets that change by it.
func (l *learned) mark(peer bgp.PeerID, stale bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inSets[peer] == 0 { // as most of a mesh
		return
	}
	for prefix, set := range l.sets {
		if !slices.ContainsFunc(set, func(p bgp.Path) bool {
			return p.Peer == peer && p.Stale != stale
		}) {
			continue
		}
		set = slices.Clone(set) // the Sink may hold the old one
		for i := range set {
			if set[i].Peer == peer {
				set[i].Stale = stale
			}
		}
		l.sets[prefix] = set
		l.sink.Learned(prefix, freshOf(set))
	}
}

func (l *learned) endOfRIB(peer bgp.PeerID, family packet.RouteFamily) {
	// a session has the family of its address
	if apiutil.ToRouteFamily(familyOf(peer.Address)) == family {
		l.sessions.endOfRIB(peer)
	}
}

func (l *learned) takeSuspects() []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Collect(maps.Keys(l.suspects))
	clear(l.suspects)
	return out
}

// freshOf returns the fresh paths of a set, or all of it when there are none. The result is not to
// be edited.
func freshOf(set []bgp.Path) []bgp.Path {
	stale := func(p bgp.Path) bool { return p.Stale }
	if !slices.ContainsFunc(set, stale) {
		return set
	}
	fresh := slices.DeleteFunc(slices.Clone(set), stale)
	if len(fresh) == 0 {
		return set
	}
	return fresh
}

func comparePaths(a, b bgp.Path) int {
	return cmp.Or(a.NextHop.Compare(b.NextHop), a.Peer.Compare(b.Peer),
		cmp.Compare(a.LocalPref, b.LocalPref))
}

// wake makes ch have an item.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
