// Package fib keeps the forwarding table of a data plane equal to what its sources want: it selects
// one route per prefix, compares with what the data plane acknowledged, writes the difference,
// retries, adopts and sweeps after a restart, and remembers on disk what is ours. It does not speak
// BGP, VPP or netlink, and it never touches what other programs put into the table.
package fib

import (
	"context"
	"net/netip"

	"vpp-route-agent/internal/route"
)

// Dataplane is what the engine needs of a FIB; packages vpp and internal/kernel provide it. It
// shows and touches only routes with its own mark. Calls fail at once while the data plane is
// absent (Facts.Identity empty). One goroutine at a time calls Apply; other methods may run beside
// it. One that is a Starter has a change that comes alone sooner.
type Dataplane interface {
	// Routes lists all routes of ours, in no order, canonical. It is expensive where routes are
	// many, and no part of a quiet restart.
	Routes(ctx context.Context) ([]route.Route, error)

	// Lookup reads one route of ours by exact match; ok is false without one. A route.HiddenError
	// names another owner's route that forwards instead: with ok r is ours behind it; without ok it
	// is not known whether ours is there, since VPP shows only the best of several owners' routes.
	// With a route.DeadPathError r is there, and a path of it leads nowhere.
	Lookup(ctx context.Context, k route.Key) (r route.Route, ok bool, err error)

	// Resolve says how the data plane would forward to addr: the longest match in table, whoever
	// owns it. It is the only look-up of a next hop: with Facts.AttachedOnly routes are put with
	// what it answered.
	Resolve(ctx context.Context, table uint32, addr netip.Addr) (route.Resolution, error)

	// Apply carries out ops and calls done once for each known result, in any order, from one
	// goroutine at a time, before it returns. Put replaces the whole route and makes a missing
	// table; a repeated put or delete succeeds. After an error of Apply itself, ops without done
	// may have happened.
	Apply(ctx context.Context, ops []route.Op, done func(i int, err error)) error

	// Object reads an object, whoever made it; nil: it is not there. It is an error if what it
	// would be on, such as its interface, is missing.
	Object(ctx context.Context, k route.ObjectKey) (route.Object, error)

	// PutObject makes or changes an object; a repetition succeeds. After route.ErrUnanswered it
	// may have happened, after another error not. Like DeleteObject it is not called while Apply
	// runs.
	PutObject(ctx context.Context, o route.Object) error

	// DeleteObject deletes an object, and succeeds if it or its interface is not there.
	DeleteObject(ctx context.Context, k route.ObjectKey) error

	// Facts delivers the newest facts, first as soon as they are known, then whenever they change.
	// Only the newest is kept for a slow reader. There is one reader.
	Facts() <-chan route.Facts
}

// Overseer is what a Dataplane provides besides if it lists our routes also where another's goes
// before them (Linux): a listing alone does not show then which of them forward.
type Overseer interface {
	// Hidden says which of these routes of ours are hidden, and by whom, in the words of
	// route.HiddenError.
	Hidden(ctx context.Context, routes []route.Route) (map[route.Key]string, error)
}

// Bulk is what a Dataplane provides besides that has kinds of objects of which there may be
// thousands (route.ObjectKind.IsMany). All that lie on interfaces with our mark are ours, so they
// are listed instead of looked up one by one, and changed many at a time.
type Bulk interface {
	// Objects lists those of a kind that are ours; of interfaces (route.MadeLink) those of tunnels
	// that have our mark.
	Objects(ctx context.Context, kind route.ObjectKind) ([]route.Object, error)

	// ApplyObjects carries out ops and calls done once for each, in any order, with what PutObject
	// or DeleteObject would return. Like them it is not called while Apply runs.
	ApplyObjects(ctx context.Context, ops []route.ObjectOp, done func(i int, err error))
}
