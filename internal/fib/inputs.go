package fib

import (
	"fmt"
	"net/netip"
	"sync"

	"vpp-route-agent/internal/route"
)

// inbox is where sources leave what they know. Taking it out is cheap, so that a source never waits
// longer than for a slice to grow.
type inbox struct {
	wake chan struct{} // size one

	mu      sync.Mutex // guards what follows
	pending pendingInputs
}

// pendingInputs is what has come in since the engine looked last.
type pendingInputs struct {
	learned    [][]learned // pieces of at most chunk, none of them empty
	routes     map[route.Origin]wishes
	protect    *protection
	excluded   *[]netip.Prefix // see KeepOut
	heard      []route.Origin  // see AllowSweep
	release    bool            // of what the guard holds
	normal     *[2]uint32
	converging *bool
	follow     *[]netip.Addr // see FollowOutgoing
}

// wishes are all routes of one origin; listed: since the engine looked last the origin has listed
// its source anew.
type wishes struct {
	routes []route.Route
	listed bool
}

type learned struct {
	prefix     netip.Prefix
	paths      []route.Path
	preference uint32
}

// learn adds l. A list of one piece would be copied again and again while it grows, which for a
// full table is a tenth of all that Learn and selection cost.
func (o *pendingInputs) learn(l learned) {
	last := len(o.learned) - 1
	if last < 0 {
		o.learned, last = [][]learned{nil}, 0
	} else if len(o.learned[last]) == chunk {
		o.learned, last = append(o.learned, make([]learned, 0, chunk)), last+1
	}
	o.learned[last] = append(o.learned[last], l)
}

type protection struct{ own, peers []netip.Addr }

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
	o := i.pending
	i.pending = pendingInputs{}
	return o
}

// Learn hands over BGP's complete new set of paths of a prefix in the default table; none means
// withdrawn. It stores and returns. The caller does not change paths afterwards.
func (e *Engine) Learn(prefix netip.Prefix, paths []route.Path) { e.LearnPreferred(prefix, paths, 0) }

// LearnPreferred is Learn with the LOCAL_PREF that the paths have in common: a host route is
// elevated if that is above the normal one.
func (e *Engine) LearnPreferred(prefix netip.Prefix, paths []route.Path, preference uint32) {
	e.inbox.change(func(o *pendingInputs) { o.learn(learned{prefix, paths, preference}) })
}

// SetNormal says which LOCAL_PREF routes have that are not elevated, for IPv4 and IPv6 (Calico:
// 2147483647 less the normal route priority). Until it is called none is elevated.
func (e *Engine) SetNormal(v4, v6 uint32) {
	e.inbox.change(func(o *pendingInputs) { o.normal = &[2]uint32{v4, v6} })
}

// SetRoutes hands over everything an origin other than BGP wants, one route for each key. Handing
// over the same again does nothing.
func (e *Engine) SetRoutes(origin route.Origin, routes []route.Route) {
	e.setRoutes(origin, routes, false)
}

// SetListed is SetRoutes where the difference to what was wanted before may come from nothing but
// listing the source anew. If such a list lacks suspiciously much (Config.GuardShare), the rest of
// it takes effect at once, and the deletions when it has stayed like that for a minute, or upon
// ReleaseGuard.
func (e *Engine) SetListed(origin route.Origin, routes []route.Route) {
	e.setRoutes(origin, routes, true)
}

// ReleaseGuard carries out the deletions that are held now: somebody has looked and they are right.
func (e *Engine) ReleaseGuard() {
	e.inbox.change(func(o *pendingInputs) { o.release = true })
}

// SetBGPConverging says whether BGP is yet to tell some of what it knows: a session is coming up,
// or has gone a moment ago. Meanwhile no etcd route is removed for being covered by one of BGP's.
func (e *Engine) SetBGPConverging(yes bool) {
	e.inbox.change(func(o *pendingInputs) { o.converging = &yes })
}

func (e *Engine) setRoutes(origin route.Origin, routes []route.Route, listed bool) {
	if origin != route.Own && origin != route.External && origin != route.Etcd {
		panic(fmt.Sprintf("fib: routes set for origin %v", origin))
	}
	keys := make(map[route.Key]struct{}, len(routes))
	for _, r := range routes {
		if _, ok := keys[r.Key]; ok {
			panic(fmt.Sprintf("fib: two %v routes with one key %v", origin, r.Key))
		}
		keys[r.Key] = struct{}{}
	}
	e.inbox.change(func(o *pendingInputs) {
		if o.routes == nil {
			o.routes = make(map[route.Origin]wishes)
		}
		o.routes[origin] = wishes{routes, listed || o.routes[origin].listed}
	})
}

// Protect tells the guard the addresses of this node and of its BGP peers.
func (e *Engine) Protect(own, peers []netip.Addr) {
	e.inbox.change(func(o *pendingInputs) { o.protect = &protection{own, peers} })
}

// KeepOut sets the ranges where no BGP route is programmed: service addresses, which kube-proxy or
// its like has on every node.
func (e *Engine) KeepOut(services []netip.Prefix) {
	e.inbox.change(func(o *pendingInputs) { o.excluded = &services })
}

// AllowSweep says that these sources have told all they know, or all sources if none is named. Routes
// that they left in an earlier run and that nobody wants are deleted from now on. Whose a route is
// the journal tells; one that a listing found waits for all sources.
func (e *Engine) AllowSweep(sources ...route.Origin) {
	if len(sources) == 0 {
		sources = []route.Origin{route.Unknown}
	}
	e.inbox.change(func(o *pendingInputs) { o.heard = append(o.heard, sources...) })
}
