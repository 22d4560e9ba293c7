package fib

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"vpp-route-agent/internal/route"
)

// inbox is where sources leave what they know. Taking it out is cheap, so that a source never waits
// longer than for a slice to grow.
type inbox struct {
	wake chan struct{} // size one

	mu      sync.Mutex // guards what follows
	pending pendingInputs
	added   int    // learned prefixes, since it was taken
	now     Moment // when the last of them came, or one of clockEvery before it
	last    Wanted // that was set
}

// clockEvery is small against what comes in a millisecond under load.
const clockEvery = 16

// pendingInputs is what has come in since the engine looked last.
type pendingInputs struct {
	learned [][]BestPaths // pieces of at most chunk, none of them empty
	wanted  *Wanted
	release bool // of what the guard holds
}

// numSources counts the origins, Unknown among them.
const numSources = sourceID(route.Overlay) + 1

// Wanted is everything that the FIB is to be made of, besides what BGP has learned. The slices are
// not changed after Set.
type Wanted struct {
	// Sources are what the origins other than BGP want; Unknown and BGP have none.
	Sources [numSources]Source
	// Own and Peers are the addresses of this node and of its BGP peers, which the guard protects.
	Own, Peers []netip.Addr
	// Services are the ranges where no BGP route is programmed: service addresses, which kube-proxy
	// or its like has on every node.
	Services []netip.Prefix
	// Encapsulation says how packets leave by the pools; nil: plain. It is another value whenever
	// it says something else.
	Encapsulation *route.Encapsulation
	// Normal4 and Normal6 are the LOCAL_PREF of routes that are not elevated (Calico: 2147483647
	// less the normal route priority); 0: not known, and none is elevated.
	Normal4, Normal6 uint32
	// Converging: not all BGP routes are known yet, since a session is coming up, or has
	// gone a moment ago. Meanwhile no etcd route is removed for being covered by one of BGP's.
	Converging bool
	// Complete: all sources are complete, BGP too. What an earlier run left and nobody
	// wants is deleted from now on. It stays true.
	Complete bool
	// Follow are addresses to which the way is looked up, as it is to next hops, so that Outgoing
	// knows it, and Changed is signalled when one changes; nil: not asked for.
	Follow []netip.Addr
	// Received is when the datastore's event came that made this what it is; zero: none did. Stats
	// has how long it took from then.
	Received time.Time

	revision uint64    // counts Set
	set      time.Time // when that was
}

// Source is what one origin wants.
type Source struct {
	// Routes have one route for each key.
	Routes []route.Route
	// Objects are what is wanted besides routes. Of two sources that want one the first has it.
	Objects []route.Object
	// List is the number of the listing of the datastore that Routes are from. With another number
	// than before, routes may be missing only because the list is broken. If it lacks suspiciously
	// much (Tuning.GuardShare), the rest of it takes effect at once, and the deletions when it has
	// stayed like that for a minute, or upon ReleaseGuard.
	List int
	// Complete: this source has set all it wants. What it left in an earlier run, as the journal
	// tells, need not wait for the others (see Wanted.Complete). Its objects wait for nothing else.
	// It stays true.
	Complete bool
}

// BestPaths is BGP's complete new set of paths of a prefix in the default table; none: withdrawn.
type BestPaths struct {
	Prefix netip.Prefix
	Paths  []route.Path // not changed after Learn
	// Preference is the LOCAL_PREF that the paths have in common; 0: not known. A host route is
	// elevated if it is above Wanted.Normal4 or Normal6.
	Preference uint32

	received Moment
}

// add appends b. A list of one piece would be copied again and again while it grows, which for a
// full table is a tenth of all that Learn and selection cost.
func (p *pendingInputs) add(b BestPaths) {
	last := len(p.learned) - 1
	if last < 0 {
		p.learned, last = [][]BestPaths{nil}, 0
	} else if len(p.learned[last]) == chunk {
		p.learned, last = append(p.learned, make([]BestPaths, 0, chunk)), last+1
	}
	p.learned[last] = append(p.learned[last], b)
}

func (i *inbox) change(f func(*pendingInputs)) {
	i.mu.Lock()
	f(&i.pending)
	i.mu.Unlock()
	i.nudge()
}

func (i *inbox) nudge() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

func (i *inbox) take() pendingInputs {
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.pending
	i.pending, i.added = pendingInputs{}, 0
	return p
}

func (i *inbox) lastSet() Wanted {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last
}

// Learn takes what BGP has learned. It stores and returns, or starts a change that comes alone.
func (e *Engine) Learn(learned ...BestPaths) {
	if !e.inbox.add(learned, e.table.recorder) || !e.startAlone() {
		e.inbox.nudge()
	}
}

// add reports whether a few learned prefixes are all that has come in. Under load one in clockEvery
// looks at the clock, which takes as long as to record a route.
func (i *inbox) add(learned []BestPaths, r Recorder) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, b := range learned {
		if r != nil && i.added%clockEvery == 0 {
			i.now = r.At(time.Now())
		}
		i.added++
		b.received = i.now
		i.pending.add(b)
	}
	return i.pending.areFew()
}

func (i *inbox) hasFew() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.pending.areFew()
}

func (p *pendingInputs) areFew() bool {
	return p.wanted == nil && !p.release && len(p.learned) == 1 && len(p.learned[0]) <= few
}

// Set replaces all that is wanted besides what BGP has learned. What is as it was costs nothing.
// What is set after Learn takes effect after what was learned, where it would delete. The revision
// is what Settled speaks of.
func (e *Engine) Set(to Wanted) (revision uint64) {
	last := e.inbox.lastSet()
	for i, s := range to.Sources { // not under the lock, for which Learn may wait
		if !sameSlice(s.Routes, last.Sources[i].Routes) {
			mustBeKeyed(route.Origin(i), s.Routes)
		}
	}
	e.inbox.change(func(p *pendingInputs) {
		to.revision, to.set = e.inbox.last.revision+1, time.Now()
		if p.wanted != nil {
			to.Received = sooner(p.wanted.Received, to.Received)
		}
		p.wanted, e.inbox.last = &to, to
	})
	return to.revision
}

// mustBeKeyed panics if two routes have one key, or if they are of an origin that has no Source.
func mustBeKeyed(origin route.Origin, routes []route.Route) {
	if len(routes) > 0 && (origin == route.Unknown || origin == route.BGP) {
		panic(fmt.Sprintf("fib: routes set for origin %v", origin))
	}
	if isStrictlySorted(routes) {
		return
	}
	keys := make(map[route.Key]struct{}, len(routes))
	for _, r := range routes {
		if _, ok := keys[r.Key]; ok {
			panic(fmt.Sprintf("fib: two %v routes with one key %v", origin, r.Key))
		}
		keys[r.Key] = struct{}{}
	}
}

func isStrictlySorted(routes []route.Route) bool {
	for i := 1; i < len(routes); i++ {
		if route.CompareKeys(routes[i-1].Key, routes[i].Key) >= 0 {
			return false
		}
	}
	return true
}

// ReleaseGuard carries out the deletions that are held now: an operator has found them right.
func (e *Engine) ReleaseGuard() {
	e.inbox.change(func(p *pendingInputs) { p.release = true })
}
