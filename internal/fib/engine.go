package fib

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"vpp-route-agent/internal/route"
)

// Config is what an Engine is made of.
type Config struct {
	Dataplane Dataplane
	// Journal is the path of the ownership journal; "" keeps none, and every start reads the data plane once.
	Journal string
	Log     *slog.Logger
	// Distances replace route.Origin.DefaultDistance for the origins they name.
	Distances map[route.Origin]uint8
}

// Engine keeps a data plane equal to what its sources want. All methods may be called from any goroutine, before and while Run runs.
type Engine struct{ changed chan struct{} }

// New returns an engine that does nothing until Run; inputs given before are kept.
func New(c Config) *Engine { return &Engine{changed: make(chan struct{}, 1)} }

// Run owns the FIB until ctx ends; it leaves the data plane as it is.
func (e *Engine) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Learn hands over BGP's complete new set of paths of a prefix in the default table; none means withdrawn. It stores and returns. The
// caller does not change paths afterwards.
func (e *Engine) Learn(prefix netip.Prefix, paths []route.Path) {}

// SetRoutes hands over everything an origin other than BGP wants. Handing over the same again does nothing.
func (e *Engine) SetRoutes(origin route.Origin, routes []route.Route) {}

// Protect tells the guard the addresses of this node and of its BGP peers.
func (e *Engine) Protect(own, peers []netip.Addr) {}

// AllowSweep says that the sources have told all they know: adopted routes that nobody wants are deleted from now on.
func (e *Engine) AllowSweep() {}

// Programmed reports whether the route wanted for k is acknowledged by the data plane.
func (e *Engine) Programmed(k route.Key) bool { return false }

// Changed is signalled (size one) when an own route was acknowledged or lost, when the facts changed, when adoption ended and when
// UnusableNextHops changed. There is one reader.
func (e *Engine) Changed() <-chan struct{} { return e.changed }

// Facts returns the newest facts of the data plane; the zero value before the first.
func (e *Engine) Facts() route.Facts { return route.Facts{} }

// UnusableNextHops lists the BGP next hops that have not been usable for a second or more, by address.
func (e *Engine) UnusableNextHops() []UnusableNextHop { return nil }

// UnusableNextHop is a next hop that BGP should not choose now.
type UnusableNextHop struct {
	Address netip.Addr
	Reason  Reason
}

// Filter chooses entries; the zero value chooses all.
type Filter struct {
	Prefix netip.Prefix // valid: this prefix only, exactly, in any table
	Origin route.Origin // not Unknown: wanted by this origin only
	State  State        // not Any: in this state only
}

// State is how an entry stands.
type State uint8

const (
	Any        State = iota // no state: only in a Filter
	Pending                 // wanted, not acknowledged yet
	Programmed              // acknowledged by the data plane
	Failed                  // refused by the data plane, tried again later
	Unusable                // wanted by a source, but not to be programmed: see Reason
	Held                    // ours from before a restart, wanted by nobody yet, kept until the sweep
	Deleting                // no longer wanted, its deletion not acknowledged yet
)

// Entry is one key as Engine sees it, for people.
type Entry struct {
	Key      route.Key
	State    State
	Origin   route.Origin // whose wish it is; Unknown for Held and Deleting
	Kind     route.Kind
	Paths    []route.Path // wanted; as the source gave them while Unusable
	Reason   Reason       // why Unusable, or which path is left out
	Error    string       // of the last attempt, while Failed
	Attempts int
	Since    time.Time // in this state
}

// Entries lists the entries that f chooses, by key.
func (e *Engine) Entries(f Filter) []Entry { return nil }

// Count says how many routes of one family and origin are in each state.
type Count struct {
	IPv6       bool
	Origin     route.Origin
	Desired    int // Programmed + Pending + Failed
	Programmed int
	Failed     int
	Unusable   int
	Held       int
}

// Stats are the engine's counters and gauges.
type Stats struct {
	Routes   []Count // by family, then origin
	Put      uint64  // ops acknowledged
	Deleted  uint64
	Errors   uint64    // ops refused
	Queued   int       // ops waiting or in flight
	LastSync time.Time // when last nothing was waiting, in flight or failed; zero: never
	// Present: the data plane is there and adoption has ended, so routes are programmed.
	Present bool
	// Adopted says how this process took over the data plane: "" not yet, "journal" (same identity, trusted) or "listing".
	Adopted       string
	AdoptedRoutes int
	SweepAllowed  bool
	Journal       JournalState
	NextHops      int // tracked
}

// JournalState tells how the journal does.
type JournalState struct {
	Enabled bool
	Problem string // why it is not being written now; "" when all is well
	Records int
	Bytes   int64
}

// Stats returns the counters now.
func (e *Engine) Stats() Stats { return Stats{} }
