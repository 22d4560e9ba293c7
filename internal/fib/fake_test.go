package fib

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

// fake is a data plane in memory: it has a state and can fail, and it expects nothing.
type fake struct {
	facts chan route.Facts

	mu   sync.Mutex // guards what follows
	now  route.Facts
	ours map[route.Key]route.Route
	dead map[route.Key]bool // of ours: over an interface that has gone since they were put
	// of ours: over an interface that was made anew. A put with the paths of one that is stuck is
	// so too.
	stuck   map[route.Key]bool
	anew    map[string]bool      // interfaces over which something was stuck
	hidden  map[route.Key]string // of ours: by whose route
	open    bool                 // what is hidden is listed and shown too, as in Linux
	foreign map[route.Key]bool   // routes of others: what next hops resolve through; true: forwards
	by      map[route.Key]string // of foreign: the interface
	refuse  map[route.Key]error
	// sever makes Apply stop after so many ops (0: at once) with an error; -1: never. lost: the ops
	// after that happen all the same, unheard.
	sever, lost int
	// Apply says yes and does nothing, until healed: it spoke to a generation that is no more
	ghost      bool
	hang       bool // Apply waits for ctx or for the release
	release    chan struct{}
	listErr    error
	resolveErr error
	lookupErr  error
	// not nil: a Lookup that has its answer waits until this is closed
	holdLookup chan struct{}
	listing    func()                // called before Routes returns what it has found
	deleting   func(route.ObjectKey) // called before DeleteObject does
	lookingUp  func(route.ObjectKey) // called before Object looks
	refusing   func()                // called before PutObject refuses
	slow       time.Duration         // PutObject takes so long
	slowList   time.Duration         // Objects takes so long

	notStarting bool // Start refuses
	starts      int  // calls of Start

	objects map[route.ObjectKey]route.Object // whoever made them
	// of objects: those that went with an interface or the data plane
	went map[route.ObjectKey]bool
	last route.Facts // with an identity
	// of objects; a nil key: all
	refuseObject map[route.ObjectKey]error
	lostObjects  bool                    // what is refused happens all the same
	looked       map[route.ObjectKey]int // calls of Object
	objectOps    []string                // all that were carried out
	objectLists  int
	bulks        int // calls of ApplyObjects

	ops     []route.Op // all that were carried out
	lists   int
	lookups int
	spots   int // calls of Lookup
}

var errGone = errors.New("connection lost")

func newFake(f route.Facts) *fake {
	d := &fake{
		facts: make(chan route.Facts, 1), ours: make(map[route.Key]route.Route),
		foreign: make(map[route.Key]bool),
		stuck:   make(map[route.Key]bool), anew: make(map[string]bool),
		dead: make(map[route.Key]bool), hidden: make(map[route.Key]string),
		refuse: make(map[route.Key]error), sever: -1, release: make(chan struct{}),
		objects:      make(map[route.ObjectKey]route.Object),
		went:         make(map[route.ObjectKey]bool),
		refuseObject: make(map[route.ObjectKey]error),
	}
	d.tell(f)
	return d
}

// tell publishes facts; the newest wins.
func (d *fake) tell(f route.Facts) {
	d.mu.Lock()
	d.loseObjects(f)
	d.now = f
	d.mu.Unlock()
	select {
	case <-d.facts:
	default:
	}
	d.facts <- f
}

func (d *fake) Facts() <-chan route.Facts { return d.facts }

func (d *fake) Routes(ctx context.Context) ([]route.Route, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lists++
	if d.now.Identity == "" {
		return nil, errGone
	}
	var out []route.Route
	for k := range d.ours {
		if d.open || d.hidden[k] == "" {
			out = append(out, d.shown(k))
		}
	}
	if d.listing != nil {
		d.mu.Unlock()
		d.listing()
		d.mu.Lock()
	}
	return out, d.listErr
}

// shown is how a route of ours looks from outside.
func (d *fake) shown(k route.Key) route.Route {
	r := d.ours[k]
	if d.dead[k] { // the index in its paths names nothing now
		r.Paths = []route.Path{{Interface: "deleted", Weight: 1}}
	}
	return r
}

func (d *fake) Lookup(ctx context.Context, k route.Key) (route.Route, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spots++
	r, ok, by, err := d.shown(k), d.ours[k].Prefix.IsValid(), d.hidden[k], d.lookupErr
	if hold := d.holdLookup; hold != nil {
		d.mu.Unlock()
		select {
		case <-hold:
		case <-ctx.Done():
			err = ctx.Err()
		}
		d.mu.Lock()
	}
	switch {
	case d.now.Identity == "":
		return route.Route{}, false, errGone
	case err != nil:
		return route.Route{}, false, err
	case by != "":
		err = fmt.Errorf("look up %v: %w", k, route.HiddenError{By: by})
		if !d.open {
			return route.Route{}, false, err
		}
		if ok {
			return r, true, err
		}
	}
	for _, p := range r.Paths {
		if d.stuck[k] && d.anew[p.Interface] {
			return r, ok, route.DeadPathError{Interface: p.Interface}
		}
	}
	return r, ok, nil
}

// overseer is a fake that is open.
type overseer struct{ *fake }

func (d overseer) Hidden(_ context.Context, routes []route.Route) (map[route.Key]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	by := map[route.Key]string{}
	for _, r := range routes {
		if other := d.hidden[r.Key]; other != "" {
			by[r.Key] = other
		}
	}
	return by, d.listErr
}

// starter is a fake that is one, too: results come in later.
type starter struct{ *fake }

func (d starter) Start(ops []route.Op, done func(int, error), ended func(error)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.starts++; d.notStarting {
		return false
	}
	go func() { ended(d.Apply(context.Background(), ops, done)) }()
	return true
}

func (d *fake) Resolve(ctx context.Context, table uint32, a netip.Addr) (route.Resolution, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookups++
	if d.now.Identity == "" {
		return route.Resolution{}, errGone
	}
	if d.resolveErr != nil {
		return route.Resolution{}, d.resolveErr
	}
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, _ := a.Prefix(bits)
		k := route.Key{Table: table, Prefix: p}
		if forwards, ok := d.foreign[k]; ok {
			r := route.Resolution{Prefix: p, Usable: forwards, Interface: d.by[k]}
			if forwards && d.now.AttachedOnly {
				r.Paths = []route.Path{gateway}
				if d.by[k] != "" {
					r.Paths[0].Interface = d.by[k]
				}
			}
			return r, nil
		}
		for _, k := range []route.Key{k, k.Counterpart()} {
			if _, ok := d.ours[k]; ok {
				return route.Resolution{Prefix: p, Ours: true}, nil
			}
		}
	}
	return route.Resolution{}, nil
}

func (d *fake) Apply(ctx context.Context, ops []route.Op, done func(int, error)) error {
	d.mu.Lock()
	ghost := d.ghost
	if d.hang {
		release := d.release
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-release:
		}
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	if d.now.Identity == "" {
		return errGone
	}
	for i, op := range ops {
		if ghost {
			done(i, nil)
			continue
		}
		if i == d.sever {
			for _, op := range ops[i:min(i+d.lost, len(ops))] {
				d.carryOut(op)
			}
			return errGone
		}
		done(i, d.carryOut(op))
	}
	return nil
}

func (d *fake) carryOut(op route.Op) error {
	if err := d.refuse[op.Route.Key]; err != nil {
		return err
	}
	d.ops = append(d.ops, op)
	delete(d.dead, op.Route.Key)
	if op.Delete {
		delete(d.stuck, op.Route.Key)
		delete(d.ours, op.Route.Key)
		return nil
	}
	if d.now.AttachedOnly && recursive(op.Route) {
		panic(fmt.Sprintf("%s has a path without an interface", op.Route))
	}
	for _, p := range op.Route.Paths {
		if _, ok := d.now.Interface(p.Interface); p.Interface != "" && !ok {
			return fmt.Errorf("no interface %s", p.Interface)
		}
	}
	if t := op.Route.TableID(); t.ID != 0 && !d.hasTable(t) {
		return errNoTable
	}
	other, ok := d.ours[op.Route.Key.Counterpart()]
	if ok && recursive(other) && recursive(op.Route) {
		panic(fmt.Sprintf("VPP crashes on %s beside %s", op.Route, other))
	}
	r := op.Route
	if d.isStuck(r.Paths) {
		d.stuck[r.Key] = true
	} else {
		delete(d.stuck, r.Key)
	}
	r.Origin = route.Unknown
	d.ours[r.Key] = r
	return nil
}

func (d *fake) isStuck(paths []route.Path) bool {
	for k := range d.stuck {
		if slices.Equal(d.ours[k].Paths, paths) {
			return true
		}
	}
	return false
}

func (d *fake) printStuck() (out []string) {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range d.stuck {
		out = append(out, k.String())
	}
	return out
}

// gateway is where foreign routes lead to.
var gateway = route.Path{NextHop: addr("10.0.0.9"), Interface: "eth0"}

func recursive(r route.Route) bool {
	return slices.ContainsFunc(r.Paths, func(p route.Path) bool { return p.Interface == "" })
}

// heal ends all faults.
func (d *fake) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.refuse)
	clear(d.refuseObject)
	d.ghost, d.lostObjects = false, false
	d.sever, d.listErr, d.resolveErr, d.lookupErr = -1, nil, nil, nil
	if d.hang {
		d.hang = false
		close(d.release)
		d.release = make(chan struct{})
	}
}

// state runs f with the data plane standing still.
func (d *fake) state(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (d *fake) takeOps() []route.Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	ops := d.ops
	d.ops = nil
	return ops
}

func (d *fake) routes() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, r := range d.ours {
		out = append(out, r.String())
	}
	slices.Sort(out)
	return out
}

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }
func key(s string) route.Key    { return route.Key{Prefix: pfx(s)} }
func hop(s string) NextHop      { return NextHop{Address: addr(s)} }
func drop(s string) route.Route { return route.Route{Key: key(s), Kind: route.Drop} }
func via(s ...string) []route.Path {
	var out []route.Path
	for _, s := range s {
		out = append(out, route.Path{NextHop: addr(s), Weight: 1})
	}
	return route.CanonicalPaths(out)
}

// node is a data plane with two up-links, 10.0.0.1/24 on eth0 and 10.0.1.1/24 on eth1.
func node(identity string) route.Facts {
	return route.Facts{Identity: identity, Interfaces: []route.Interface{
		{
			Name: "eth0", Index: 1, Up: true,
			Addresses: []netip.Prefix{pfx("10.0.0.1/24"), pfx("fd00::1/64")},
		},
		{Name: "eth1", Index: 2, Up: true, Addresses: []netip.Prefix{pfx("10.0.1.1/24")}},
		{Name: "loop0", Index: 3, Up: true, Addresses: []netip.Prefix{pfx("10.200.0.1/32")}},
	}}
}
