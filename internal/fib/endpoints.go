package fib

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// A route into a tunnel is put when the endpoint that its path names is there, as a route in a VRF
// waits for its table. An endpoint is deleted when no acknowledged route leads through it.

// endpointID is how a path names an endpoint.
type endpointID struct {
	iface   string
	nextHop netip.Addr
}

// endpoints is the part of objects that knows which routes lead through tunnels.
type endpoints struct {
	on   bool // there are any, or may be: until then nothing is noted about routes
	byID map[endpointID]*object
	// through are the endpoints that what is in the data plane for a route leads through.
	through map[*entry][]endpointID
	users   map[endpointID]int
	// unclear are routes of an earlier run, of which only a digest is known until they are written.
	unclear map[*entry]struct{}
}

func newEndpoints() endpoints {
	return endpoints{
		byID: make(map[endpointID]*object), through: make(map[*entry][]endpointID),
		users: make(map[endpointID]int), unclear: make(map[*entry]struct{}),
	}
}

// endpointOf returns how paths name o; ok is false if o is no endpoint.
func endpointOf(k route.ObjectKey) (id endpointID, ok bool) {
	if k.Kind != route.TunnelEndpoint {
		return id, false
	}
	e, err := route.EndpointOf(k)
	return endpointID{k.Interface, e.NextHop()}, err == nil
}

// endpointsOf lists those that paths lead through.
func endpointsOf(paths []route.Path) (all []endpointID) {
	for _, p := range paths {
		if _, ok := route.EndpointBehind(p); ok {
			all = append(all, endpointID{p.Interface, p.NextHop})
		}
	}
	return all
}

// leads notes what the data plane has for e now; more: it may have what it had before as well.
func (s *syncer) leads(e *entry, paths []route.Path, more bool) {
	x := &s.objects.endpoints
	if !x.on {
		return
	}
	before := x.through[e]
	now := endpointsOf(paths)
	if more {
		now = append(now, before...)
	} else if _, was := x.unclear[e]; was {
		delete(x.unclear, e)
		if len(x.unclear) == 0 {
			defer s.settleLeaving()
		}
	}
	if len(before) == 0 && len(now) == 0 {
		return
	}
	for _, id := range now {
		x.users[id]++
	}
	if x.through[e] = now; len(now) == 0 {
		delete(x.through, e)
	}
	for _, id := range before {
		if x.users[id]--; x.users[id] > 0 {
			continue
		}
		delete(x.users, id)
		if o := x.byID[id]; o != nil && o.want == nil {
			s.settle(o.entry) // it may go
		}
	}
}

// adoptedLeads notes what is known of a route of an earlier run when something is wanted for it.
func (s *syncer) adoptedLeads(e *entry) {
	x := &s.objects.endpoints
	_, unclear := x.unclear[e]
	switch {
	case !x.on, e.isObject(), e.actual == 0, !e.is(isAdopted) && !unclear:
	case e.want != nil && e.want.digest == e.actual:
		s.leads(e, e.want.paths, false)
	default:
		x.unclear[e] = struct{}{}
	}
}

// losePaths: these endpoints were lost and are there again, so that the paths of routes through
// them lead nowhere, as those over an interface that was made anew (syncer.stale).
func (s *syncer) losePaths(lost map[endpointID]bool) {
	if len(lost) == 0 {
		return
	}
	s.rewrite = true
	for e, through := range s.objects.endpoints.through {
		if !e.is(isStale) && slices.ContainsFunc(through, func(id endpointID) bool {
			return lost[id]
		}) {
			e.set(isUnsure | isStale | inDeletes)
			s.stale.push(s.queuedNow(e))
			s.markDirty(e)
		}
	}
}

// isLedThrough reports whether a route in the data plane leads, or may lead, through an endpoint.
func (s *syncer) isLedThrough(k route.ObjectKey) bool {
	id, ok := endpointOf(k)
	if !ok {
		return false
	}
	x := &s.objects.endpoints
	return x.users[id] > 0 || s.adoptedLeft > 0 || len(x.unclear) > 0
}

// forgetLeads: nothing is in the data plane any more.
func (s *syncer) forgetLeads() {
	x := &s.objects.endpoints
	clear(x.through)
	clear(x.users)
	clear(x.unclear)
}

// endpointsFor returns the endpoints that e is to lead through, of those that are wanted.
func (s *syncer) endpointsFor(e *entry) (all []*object) {
	if !s.objects.endpoints.on {
		return nil
	}
	for _, id := range endpointsOf(e.want.paths) {
		if o := s.objects.endpoints.byID[id]; o != nil && o.want != nil &&
			!slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	return all
}

// RefusedEndpoints are the nodes to which the data plane has refused an IPIP tunnel for a second or
// more, and why. That its interface is missing is no refusal of one node's.
func (e *Engine) RefusedEndpoints() map[netip.Addr]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	refused := map[netip.Addr]string{}
	if len(e.sync.failures) == 0 {
		return refused
	}
	for _, o := range e.sync.objects.endpoints.byID {
		f, age := e.sync.failures[o.entry], time.Since(time.Unix(int64(o.since), 0))
		isNew := age >= 0 && age < reportAfter // below 0 the clock was set back
		if f == nil || isNew || e.sync.stateOf(o.entry) != Failed ||
			errors.Is(f.err, route.ErrNoLink) {
			continue
		}
		end, err := route.EndpointOf(o.key)
		if err == nil && route.EncapBy(end.Interface) == route.IPIP {
			refused[end.Outer] = f.err.Error()
		}
	}
	return refused
}
