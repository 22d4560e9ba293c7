// Package fib keeps the forwarding table of a data plane equal to what its sources want: it selects
// one route per prefix (Select), compares with what the data plane acknowledged, writes the
// difference, retries, adopts and sweeps after a restart, and remembers on disk what is ours. It
// does not speak BGP, VPP or netlink, and it never touches what other programs put into the table.
package fib

import (
	"context"
	"net/netip"

	"vpp-route-agent/internal/route"
)

// Dataplane is what the reconciler needs of a FIB that forwards packets; packages vpp and
// internal/kernel provide it. A data plane shows and touches only routes that carry its own mark
// (VPP: our FIB source; Linux: our protocol number), never others'.
//
// Calls fail at once with an error that says so while the data plane is absent (Facts.Identity
// empty). Apply is called by one goroutine at a time; the other methods may be called beside it.
type Dataplane interface {
	// Routes lists all routes of ours, in no order, canonical. Dear where routes are many: it is
	// not part of a quiet restart.
	Routes(ctx context.Context) ([]route.Route, error)

	// Lookup reads one route of ours by exact match: a spot check. ok is false where we have none.
	// Where another's goes before ours it fails with a route.HiddenError that names the other. With
	// ok r is what stands behind it; without ok that cannot be seen, since the data plane shows
	// only the best of several owners' routes for one prefix (VPP), and ours may or may not be
	// there. Another's that would give way to ours hides nothing.
	Lookup(ctx context.Context, k route.Key) (r route.Route, ok bool, err error)

	// Resolve says how the data plane would forward to addr: the longest match in table, whoever
	// owns it. It is the only look-up of a next hop: with Facts.AttachedOnly routes are put with
	// what it answered.
	Resolve(ctx context.Context, table uint32, addr netip.Addr) (route.Resolution, error)

	// Apply carries out ops, pipelined, and calls done once for each op whose result is known, in
	// any order, from one goroutine at a time, never after Apply has returned. Putting replaces the
	// whole route atomically; both putting what is there and deleting what is not succeed. A put
	// into a table that does not exist makes the table, marked as ours, where tables have to be
	// made (see TableKeeper); a table that is only named by a path is not made. An op that the data
	// plane refuses gets its own error and holds up no other. When Apply itself returns an error
	// (connection lost, time-out, ctx ended), ops without a done call may or may not have happened.
	Apply(ctx context.Context, ops []route.Op, done func(i int, err error)) error

	// Facts delivers the newest facts, first as soon as they are known, then whenever they change.
	// Only the newest is kept for a slow reader. There is one reader.
	Facts() <-chan route.Facts
}

// TableKeeper is what a Dataplane provides besides if its tables (VRFs) must be made before routes
// can be put into them. Putting makes them; only the engine knows when none is needed any more.
type TableKeeper interface {
	// KeepTables removes the tables that carry our mark (VPP: their name, so also those made by an
	// earlier process) and are not in keep, which is sorted. Tables that others made stay, and so
	// does table 0. It is not called while Apply runs, nor before our sources have told all they
	// want; each time keep is complete. An error has it repeated later.
	KeepTables(ctx context.Context, keep []uint32) error
}

// Overseer is what a Dataplane provides besides if it lists our routes also where another's goes
// before them (Linux): a listing alone does not tell then which of them forward.
type Overseer interface {
	// Hidden says which of these routes of ours are hidden, and by whom, in the words of
	// route.HiddenError.
	Hidden(ctx context.Context, routes []route.Route) (map[route.Key]string, error)
}
