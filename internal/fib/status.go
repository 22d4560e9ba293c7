package fib

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/route"
)

// State is how an entry stands.
type State uint8

const (
	Any        State = iota // no state: not yet counted
	Pending                 // wanted, not acknowledged yet
	Programmed              // acknowledged by the data plane
	Failed                  // refused by the data plane, tried again later
	Unusable                // wanted by a source, but not to be programmed: see Reason
	// ours from before a restart, not wanted yet, kept until the sweep
	Held
	Deleting // no longer wanted, its deletion not acknowledged yet
	// acknowledged, and another owner's route for the same prefix forwards instead; of an object:
	// another has made it
	Shadowed
	Drifted   // acknowledged, and then found missing or different
	lastState = Drifted
)

// IsAcknowledged reports whether the data plane has acknowledged what is wanted, whatever others
// did to it afterwards, or has it without us.
func (s State) IsAcknowledged() bool { return s == Programmed || s == Shadowed || s == Drifted }

var stateNames = [...]string{"any", "pending", "programmed", "failed", "unusable", "held",
	"deleting", "shadowed", "drifted"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// ParseState takes the name of a state that a route can have.
func ParseState(name string) (State, error) {
	if i := slices.Index(stateNames[:], name); i > int(Any) {
		return State(i), nil
	}
	return Any, fmt.Errorf("state %q is none of %s", name,
		strings.Join(stateNames[Pending:], ", "))
}

// Entry is one key as Engine sees it, for people.
type Entry struct {
	Key    route.Key
	Object route.ObjectKey // instead of Key; the zero value: it is a route
	State  State
	Origin route.Origin // who wants it; Unknown for Held and Deleting
	Kind   route.Kind
	// wanted; as the source gave them while nothing can be programmed; none for Held and Deleting
	Paths    []route.Path
	Reason   Reason // why Unusable or waiting, or which path is left out
	Error    string // of the last attempt that the data plane refused, or look-up of an object
	Unread   bool   // Error is of a look-up, and not that the object's interface is missing
	Attempts int
	GivenUp  bool      // of Failed: it is not tried again as things are
	Since    time.Time // in this state
	By       string    // of Shadowed: the owner whose route forwards, in the data plane's words
	Drift    Drift     // of Drifted, and of Held and Deleting that were found otherwise
	Found    string    // what is there instead, of Different and Extra
}

// List goes through the entries whose prefix lies inside within or covers it, in any table, or
// through all if within is the zero Prefix; by key. Which keys those are is found now: over a
// million takes a second or so, holds up nothing, and keeps 40 bytes for each. Each entry is as it
// is when it is reached, and left out if it has gone. Nothing is locked while the caller has one.
func (e *Engine) List(within netip.Prefix) iter.Seq[Entry] {
	var keys []route.Key
	e.walk(func(x *entry) {
		if k := x.key(); !within.IsValid() || within.Overlaps(k.Prefix) {
			keys = append(keys, k)
		}
	})
	slices.SortFunc(keys, route.CompareKeys)
	keys = slices.Compact(keys)
	return func(yield func(Entry) bool) {
		for part := range slices.Chunk(keys, chunk) {
			for _, x := range e.showAll(part) {
				if !yield(x) {
					return
				}
			}
		}
	}
}

// showAll leaves out what is not there, and what is wanted elevated instead.
func (e *Engine) showAll(keys []route.Key) (all []Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, k := range keys {
		if x := e.table.get(k); x != nil {
			if shown := e.show(x, true); shown.State != Any {
				all = append(all, shown)
			}
		}
	}
	return all
}

// Forwarding calls each for every route that the data plane has as it is wanted, and whose prefix
// no other's route hides, in no order; one may come twice. The table is walked a piece at a time,
// and is locked while each runs.
func (e *Engine) Forwarding(each func(route.Key, []route.Path)) {
	e.walk(func(x *entry) {
		if !x.isObject() && x.want != nil && e.sync.stateOf(x) == Programmed {
			each(x.key(), x.want.paths)
		}
	})
}

// Find returns the entries of these keys, in this order; State Any: nobody wants one. One that is
// still to be selected is Pending, and one with all paths of the only candidate has no Reason.
// taken is the last revision that they follow.
func (e *Engine) Find(keys []route.Key) (found []Entry, taken uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	found = make([]Entry, len(keys))
	for i, k := range keys {
		found[i].Key = k
		switch x := e.table.get(k); {
		case x == nil:
		case x.is(isDirty):
			found[i].State = Pending
		default:
			x = e.selection.goesBy(x)
			found[i] = e.show(x, !x.hasAllPaths())
		}
	}
	return found, e.wanted.revision
}

// hasAllPaths reports whether all paths of the only candidate are wanted.
func (e *entry) hasAllPaths() bool {
	c := e.first
	if c == nil || c.next != nil || c.set == nil || c.set.seen == nil {
		return false
	}
	all := &c.set.seen.all
	return e.want != nil && e.want == all.forward && all.reason == (Reason{})
}

// show selects once more if asked for the reason: it is not kept for a million entries.
func (e *Engine) show(x *entry, withReason bool) Entry {
	if o := e.sync.objectOf(x); o != nil {
		return e.showObject(o)
	}
	out := Entry{Key: x.key(), State: e.sync.stateOf(x), Origin: x.origin()}
	if x.since != 0 {
		out.Since = time.Unix(int64(x.since), 0)
	}
	selected := x // who has the candidates
	if c := e.table.counterpart(x); x.key().Elevated && x.is(isWanted) && c != nil {
		selected = c
	}
	switch {
	case !x.is(isWanted), !withReason:
	case e.selection.view == nil:
		out.Reason = Reason{what: noFacts}
	default:
		out.Reason = e.selection.selectEntry(selected).reason
	}
	if x.want != nil {
		out.Kind, out.Paths = x.want.kind, x.want.paths
	} else if x.is(isWanted) {
		for c := selected.first; c != nil; c = c.next {
			if c.origin == x.origin() || x.origin() == route.Unknown {
				out.Kind, out.Origin = c.kind, c.origin
				if c.set != nil {
					out.Paths = c.set.paths
				}
				break
			}
		}
	}
	if out.Reason == (Reason{}) && e.sources.kept(x.key(), x.origin()) {
		out.Reason = Reason{what: keptByGuard}
	}
	out.By = e.sync.shadows[x]
	if d := e.sync.drifts[x]; d.kind != NoDrift {
		out.Drift = d.kind
		if d.found.Prefix.IsValid() {
			out.Found = d.found.String()
		}
	}
	if f := e.sync.failures[x]; f != nil {
		out.Error, out.Attempts, out.GivenUp = f.err.Error(), f.attempts, f.givenUp
	}
	return out
}

// Count says how many routes of one family and origin are in each state.
type Count struct {
	IPv6       bool
	Origin     route.Origin // Unknown: adopted or being deleted
	Desired    int          // Programmed + Shadowed + Drifted + Pending + Failed
	Programmed int
	Failed     int
	Unusable   int
	Held       int
	Deleting   int
	Shadowed   int
	Drifted    int
}

// Stats are the engine's counters and gauges.
type Stats struct {
	Routes  []Count // by family, then origin; without those that are all zero
	Objects Count   // of all origins
	Put     uint64  // ops acknowledged
	Deleted uint64  // ops acknowledged
	Errors  uint64  // ops refused
	Refusal error   // of the op that was refused last
	Batches uint64  // in which ops were handed to the data plane
	Queued  int     // ops waiting or in flight
	// Present: the data plane is there and adoption has ended, so routes are programmed.
	Present bool
	// Adopted says how this process took over the data plane last: "" not yet, "journal" (the
	// generation that an earlier process wrote for, trusted) or "listing".
	Adopted       string
	AdoptedRoutes int
	Journal       JournalState
	NextHops      int // tracked
	Drift         DriftStats
	Guard         []GuardHold // by origin; none while nothing is held
	// Delays are the times from events of the datastore (Wanted.Received) until the data plane had
	// acknowledged all that they changed.
	Delays Histogram
}

// Filled reports whether the data plane has answered for every route that it is to have.
func (s Stats) Filled() bool {
	return s.Present && !slices.ContainsFunc(s.Routes, func(c Count) bool {
		return c.Desired > c.Programmed+c.Shadowed+c.Drifted+c.Failed
	})
}

// JournalState is how the journal of routes stands.
type JournalState struct {
	Enabled bool
	Problem string // why it is not being written now; "" when all is well
}

// Stats returns the counters now.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.sync
	s := Stats{
		Put: t.put, Deleted: t.del, Errors: t.errors, Refusal: t.refusal, Batches: t.cuts,
		Present: t.present, Adopted: t.howAdopted, AdoptedRoutes: t.numAdopted,
		Journal:  JournalState{Enabled: e.journals, Problem: e.journal.problem},
		NextHops: len(e.hops.sorted), Queued: t.queued(), Drift: t.drift,
		Delays: t.delays.histogram,
	}
	for origin, h := range e.sources.holds {
		s.Guard = append(s.Guard, GuardHold{origin, len(h.keys), h.since, h.release})
	}
	slices.SortFunc(s.Guard, func(a, b GuardHold) int { return cmp.Compare(a.Origin, b.Origin) })
	for class, origins := range t.counts[:classObject] {
		for origin, n := range origins {
			c := countOf(n)
			if c != (Count{}) {
				c.IPv6, c.Origin = class == classIPv6, route.Origin(origin)
				s.Routes = append(s.Routes, c)
			}
		}
	}
	var objects [lastState + 1]int
	for _, n := range t.counts[classObject] {
		for state := range n {
			objects[state] += n[state]
		}
	}
	s.Objects = countOf(objects)
	return s
}

func countOf(n [lastState + 1]int) Count {
	return Count{
		Desired:    n[Programmed] + n[Shadowed] + n[Drifted] + n[Pending] + n[Failed],
		Programmed: n[Programmed], Failed: n[Failed], Unusable: n[Unusable], Held: n[Held],
		Deleting: n[Deleting], Shadowed: n[Shadowed], Drifted: n[Drifted],
	}
}
