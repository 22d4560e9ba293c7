package fib

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

var (
	errInTheWay = errors.New("another address is in the way")
	errNoTable  = errors.New("no such table")
)

// inTable is a drop route of a VRF.
func inTable(table uint32, s string) route.Route {
	return route.Route{Key: route.Key{Table: table, Prefix: pfx(s)}, Kind: route.Drop}
}

func vrf(id uint32, name string) route.Table {
	return route.Table{TableID: route.TableID{ID: id}, Name: name}
}

func (d *fake) hasTable(id route.TableID) bool { return d.table(id) != (route.ObjectKey{}) }

// table returns the key of a table, whoever made it.
func (d *fake) table(id route.TableID) route.ObjectKey {
	for k := range d.objects {
		if t, err := route.TableOf(k); err == nil && t.TableID == id {
			return k
		}
	}
	return route.ObjectKey{}
}

// loseObjects: with interfaces, and with the data plane, go the objects on them, but those that are
// interfaces themselves.
func (d *fake) loseObjects(next route.Facts) {
	if next.Identity == "" {
		return
	}
	gone := changedInterfaces(indexes(d.last.Interfaces), indexes(next.Interfaces))
	for _, i := range d.last.Interfaces {
		j, there := next.Interface(i.Name)
		if there && j.Generation != i.Generation && d.objects[route.LinkKey(i.Name)] == nil {
			gone[i.Name] = true // another program made it anew
		}
	}
	maps.DeleteFunc(d.objects, func(k route.ObjectKey, _ route.Object) bool {
		if (!gone[k.Interface] || k.HasOwnPaths()) && d.last.Identity == next.Identity {
			return false
		}
		d.went[k] = true
		return true
	})
	d.last = next
}

// reach is an error where an object cannot be.
func (d *fake) reach(k route.ObjectKey) error {
	if d.now.Identity == "" {
		return errGone
	}
	if _, ok := d.now.Interface(k.Interface); !ok && k.Interface != "" &&
		k.Kind != route.MadeLink {
		return fmt.Errorf("%w %s", route.ErrNoLink, k.Interface)
	}
	return nil
}

func (d *fake) Object(_ context.Context, k route.ObjectKey) (route.Object, error) {
	if d.lookingUp != nil {
		d.lookingUp(k)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.looked != nil {
		d.looked[k]++
	}
	if err := errors.Join(d.reach(k), d.lookupErr); err != nil {
		return nil, err
	}
	if t, err := route.TableOf(k); err == nil {
		k = d.table(t.TableID)
	}
	return d.objects[k], nil
}

func (d *fake) PutObject(_ context.Context, o route.Object) error {
	if d.slow > 0 {
		time.Sleep(d.slow)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if refusing := d.refusing; refusing != nil && d.refuseObject[o.Key()] != nil {
		d.mu.Unlock()
		refusing()
		d.mu.Lock()
	}
	if err := d.reach(o.Key()); err != nil {
		return err
	}
	x, excludes := o.(route.Excluder)
	for k := range d.objects {
		if k != o.Key() && excludes && x.Excludes(k) {
			return errInTheWay
		}
	}
	err := d.refuseObject[o.Key()]
	if err == nil || d.lostObjects {
		d.makeAnew(o)
		d.objects[o.Key()] = o
		d.objectOps = append(d.objectOps, "put "+o.Key().String())
	}
	return d.answer(err)
}

// makeAnew: with another interface under the name, routes lead nowhere.
func (d *fake) makeAnew(o route.Object) {
	was := d.objects[o.Key()]
	if o.Key().Kind == route.MadeLink && was != nil && was.Digest() != o.Digest() {
		d.stick(o.Key().Interface)
	}
}

// makeEth1Anew has eth1 of node("a") deleted and made again under its index, and tells.
func (d *fake) makeEth1Anew() {
	f := node("a")
	f.Interfaces[1].Generation++
	d.state(func() { d.stick("eth1") })
	d.tell(f)
}

// changeInterface changes an interface of the facts, and tells.
func (d *fake) changeInterface(name string, change func(*route.Interface)) {
	f := d.now
	f.Interfaces = slices.Clone(f.Interfaces)
	for i := range f.Interfaces {
		if f.Interfaces[i].Name == name {
			change(&f.Interfaces[i])
		}
	}
	d.tell(f)
}

// stick: the interface was deleted and made again. The dead routes lead over another index.
func (d *fake) stick(name string) {
	d.anew[name] = true
	for k, r := range d.ours {
		over := func(p route.Path) bool { return p.Interface == name }
		if !d.dead[k] && slices.ContainsFunc(r.Paths, over) {
			d.stuck[k] = true
		}
	}
}

func (d *fake) DeleteObject(_ context.Context, k route.ObjectKey) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now.Identity == "" {
		return errGone
	}
	if d.deleting != nil {
		d.deleting(k)
	}
	err := d.refuseObject[k]
	if err == nil || d.lostObjects {
		if t, tableErr := route.TableOf(k); tableErr == nil && len(d.inTable(t.TableID)) > 0 {
			panic(fmt.Sprintf("%v goes before its routes", k))
		}
		if id, ok := endpointOf(k); ok {
			d.mustNotLead(id)
		}
		maps.DeleteFunc(d.objects, func(o route.ObjectKey, _ route.Object) bool {
			return k == o || k.TakesAlong(o)
		})
		d.objectOps = append(d.objectOps, "del "+k.String())
	}
	return d.answer(err)
}

func (d *fake) answer(err error) error {
	if err != nil && d.lostObjects {
		return fmt.Errorf("%w: %w", route.ErrUnanswered, err)
	}
	return err
}

// printObjectOps returns what was carried out since it was asked last.
func (d *fake) printObjectOps() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	ops := d.objectOps
	d.objectOps = nil
	return ops
}

// there lists the objects, whoever made them.
func (d *fake) there() (out []string) {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range d.objects {
		out = append(out, k.String())
	}
	slices.Sort(out)
	return out
}

// others makes an object by another's hand, and returns its key.
func (d *fake) others(o route.Object) route.ObjectKey {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects[o.Key()] = o
	delete(d.went, o.Key())
	return o.Key()
}

// steal takes an object away by another's hand, and with a table what is in it.
func (d *fake) steal(o route.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.objects, o.Key())
	if t, ok := o.(route.Table); ok {
		for _, k := range d.inTable(t.TableID) {
			delete(d.ours, k)
		}
	}
}

// spoil changes an endpoint that is there.
func (d *fake) spoil(k route.ObjectKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.objects[k].(route.Endpoint)
	e.VXLAN.MAC = "another"
	d.objects[k] = e
}

// inTable lists our routes in a table.
func (d *fake) inTable(id route.TableID) (keys []route.Key) {
	for k := range d.ours {
		if k.TableID() == id {
			keys = append(keys, k)
		}
	}
	return keys
}

// setObjects sets all objects of a source, which is complete then.
func (r *running) setObjects(source route.Origin, all ...route.Object) {
	r.set(func(w *Wanted) {
		w.Sources[source].Objects, w.Sources[source].Complete = all, true
	})
}

// objectStates prints how objects stand.
func (r *running) objectStates() (out []string) {
	synctest.Wait()
	for _, e := range r.Objects() {
		s := fmt.Sprintf("%s %s", e.Object, e.State)
		if e.Error != "" {
			s += ": " + e.Error
		}
		out = append(out, s)
	}
	return out
}

func on(name, address string) route.Address {
	return route.Address{Interface: name, Address: pfx(address)}
}

// mustNotLead panics if a route of ours leads through an endpoint.
func (d *fake) mustNotLead(id endpointID) {
	for _, r := range d.ours {
		if slices.Contains(endpointsOf(r.Paths), id) {
			panic(fmt.Sprintf("%v goes before %v", id, r))
		}
	}
}

// Objects implements Bulk.
func (d *fake) Objects(_ context.Context, kind route.ObjectKind) (all []route.Object, err error) {
	var slow time.Duration
	d.state(func() { slow = d.slowList })
	time.Sleep(slow)
	d.mu.Lock()
	defer d.mu.Unlock()
	if kind == route.TunnelEndpoint {
		d.objectLists++
	}
	if d.now.Identity == "" {
		return nil, errGone
	}
	for k, o := range d.objects {
		found, isFound := o.(route.FoundLink)
		if k.Kind == kind && (!isFound || found.Marked()) {
			all = append(all, o)
		}
	}
	return all, d.lookupErr
}

func (d *fake) listings() (n int) {
	d.state(func() { n = d.objectLists })
	return n
}

// ApplyObjects implements Bulk.
func (d *fake) ApplyObjects(ctx context.Context, ops []route.ObjectOp, done func(int, error)) {
	d.state(func() { d.bulks++ })
	for i, op := range ops {
		if op.Put != nil {
			done(i, d.PutObject(ctx, op.Put))
		} else {
			done(i, d.DeleteObject(ctx, op.Key))
		}
	}
}
