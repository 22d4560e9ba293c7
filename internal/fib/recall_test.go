package fib

import (
	"context"
	"slices"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
)

// forgetful is a fake that looks next hops up by itself, as Linux does, and knows what was put only since this process began.
type forgetful struct {
	*fake
	known    map[route.Key]bool
	recalled []string
}

func newForgetful(d *fake) *forgetful { return &forgetful{fake: d, known: map[route.Key]bool{}} }

func (d *forgetful) Apply(ctx context.Context, ops []route.Op, done func(int, error)) error {
	return d.fake.Apply(ctx, ops, func(i int, err error) {
		if err == nil {
			d.known[ops[i].Route.Key] = true
		}
		done(i, err)
	})
}

func (d *forgetful) Recall(_ context.Context, routes []route.Route) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range routes {
		d.recalled = append(d.recalled, r.String())
		d.known[r.Key] = d.known[r.Key] || d.recallErr == nil
	}
	return d.recallErr
}

// asked is what was to be recalled.
func (d *forgetful) asked() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.recalled))
}

func (d *forgetful) Lookup(ctx context.Context, k route.Key) (route.Route, bool, error) {
	r, ok, err := d.fake.Lookup(ctx, k)
	return d.look(r), ok, err
}

func (d *forgetful) Routes(ctx context.Context) ([]route.Route, error) {
	routes, err := d.fake.Routes(ctx)
	for i, r := range routes {
		routes[i] = d.look(r)
	}
	return routes, err
}

// look is how r reads.
func (d *forgetful) look(r route.Route) route.Route {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known[r.Key] && recursive(r) {
		r.Paths = []route.Path{{NextHop: addr("10.0.0.9"), Interface: "eth0", Weight: 1}}
	}
	return r
}

// recalling runs f on an engine that was started on the journal of one before, over routes that recurse (one, two) and one that does not (three).
func recalling(t *testing.T, f func(t *testing.T, r *running, d *forgetful)) {
	watchful(t, true, 0, func(t *testing.T, r *running) {
		r.dp.state(func() { r.dp.foreign[key("10.9.0.0/24")] = true })
		for _, k := range []string{one, two} {
			r.Learn(pfx(k), via("10.9.0.5"))
		}
		r.Learn(pfx(three), via("10.0.0.2"))
		r.dp.routes()
		time.Sleep(time.Minute)
		r.stop()
		r.dp.takeOps()
		d := newForgetful(r.dp)
		*r = *startOn(d, r.dp, Config{Journal: r.Engine.journal.Path, Tuning: Tuning{SpotChecks: 5, RepairDrift: true}})
		time.Sleep(time.Minute)
		f(t, r, d)
	})
}

func (r *running) wantAgain() {
	for _, k := range []string{one, two} {
		r.Learn(pfx(k), via("10.9.0.5"))
	}
	r.Learn(pfx(three), via("10.0.0.2"))
	time.Sleep(time.Minute)
}

func TestRecursiveRoutesAreRecalledOnceTheyAreWantedAgain(t *testing.T) {
	recalling(t, func(t *testing.T, r *running, d *forgetful) {
		check(t, "before", d.asked())
		r.wantAgain()
		r.wantAgain()
		check(t, "recalled", d.asked(), "10.1.0.0/26 via 10.9.0.5", "10.1.0.64/26 via 10.9.0.5")
		check(t, "written", r.dp.printOps())
		s := r.Stats()
		if s.Drift.Different != 0 || s.Drift.Checked == 0 {
			t.Errorf("%+v", s.Drift)
		}
		if report, err := r.Audit(t.Context()); err != nil || report.Compared != 3 || r.Stats().Drift.Different != 0 {
			t.Errorf("audit: %+v, %v", report, err)
		}
	})
}

func TestWhatIsWantedOtherwiseIsPutAndNotRecalled(t *testing.T) {
	recalling(t, func(t *testing.T, r *running, d *forgetful) {
		r.Learn(pfx(one), via("10.9.0.6"))
		time.Sleep(time.Minute)
		check(t, "recalled", d.asked())
		check(t, "written", r.dp.printOps(), "put 10.1.0.0/26 via 10.9.0.6")
	})
}

func TestAFailedRecallIsRepeated(t *testing.T) {
	recalling(t, func(t *testing.T, r *running, d *forgetful) {
		d.state(func() { d.recallErr = errGone })
		r.wantAgain()
		if n := len(d.asked()); n < 4 {
			t.Errorf("asked for %d routes in a minute", n)
		}
		d.state(func() { d.recallErr, d.recalled = nil, nil })
		time.Sleep(time.Minute)
		check(t, "recalled", d.asked(), "10.1.0.0/26 via 10.9.0.5", "10.1.0.64/26 via 10.9.0.5")
		check(t, "written", r.dp.printOps())
		if s := r.Stats(); s.Drift.Different != 0 {
			t.Errorf("%+v", s.Drift)
		}
	})
}

// TestWhatCarriesNextHopsIsRecalled covers routes that this process put for another origin, and
// routes that an earlier process put.
func TestWhatCarriesNextHopsIsRecalled(t *testing.T) {
	recalling(t, func(t *testing.T, r *running, d *forgetful) {
		r.wantAgain()
		d.state(func() { d.recalled = nil })
		r.SetRoutes(route.Own, []route.Route{{Key: key(three), Paths: via("10.0.0.2")}})
		time.Sleep(time.Minute)
		check(t, "recalled", d.asked(), "10.1.0.128/26 via 10.0.0.2 eth0")
		r.stop()
		*r = *startOn(newForgetful(d.fake), d.fake, Config{Journal: r.Engine.journal.Path})
		r.SetRoutes(route.Own, []route.Route{{Key: key(three), Paths: via("10.0.0.2")}})
		time.Sleep(time.Minute)
		next := r.dataplane.(*forgetful)
		check(t, "recalled by the next process", next.asked(), "10.1.0.128/26 via 10.0.0.2 eth0")
		check(t, "written", r.dp.printOps())
	})
}

// TestADeletionThatFailedLeavesARouteToBeRecalled: it is still as the process before put it.
func TestADeletionThatFailedLeavesARouteToBeRecalled(t *testing.T) {
	recalling(t, func(t *testing.T, r *running, d *forgetful) {
		d.state(func() { d.recallErr = errGone })
		r.wantAgain()
		d.state(func() { d.refuse[key(one)] = errGone })
		r.Learn(pfx(one), nil)
		time.Sleep(time.Minute)
		r.Learn(pfx(one), via("10.9.0.5"))
		time.Sleep(time.Minute)
		d.state(func() { d.recallErr, d.recalled = nil, nil; clear(d.refuse) })
		time.Sleep(time.Minute)
		check(t, "recalled", d.asked(), "10.1.0.0/26 via 10.9.0.5", "10.1.0.64/26 via 10.9.0.5")
		check(t, "written", r.dp.printOps())
		if s := r.Stats(); s.Drift.Different != 0 {
			t.Errorf("%+v", s.Drift)
		}
	})
}
