package fib

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vpp-route-agent/internal/route"
)

// watchful runs f with an engine that makes five spot checks a second and has programmed n routes
// 10.1.i.0/26.
func watchful(t *testing.T, repair bool, n int, f func(*testing.T, *running)) {
	journal := filepath.Join(t.TempDir(), "journal")
	synctest.Test(t, func(t *testing.T) {
		r := startWith(newFake(node("a")), Config{
			Journal: journal, Tuning: Tuning{SpotChecks: 5, RepairDrift: repair},
		})
		r.AllowSweep()
		for i := range n {
			r.Learn(pfx(fmt.Sprintf("10.1.%d.%d/26", i/4, i%4*64)), via("10.0.0.2"))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		r.dp.takeOps()
		f(t, r)
		r.dp.heal()
		r.stop()
	})
}

const (
	one   = "10.1.0.0/26"
	two   = "10.1.0.64/26"
	three = "10.1.0.128/26"
)

// lose deletes a route of ours behind our back, change makes it another.
func (d *fake) lose(k string) { d.state(func() { delete(d.ours, key(k)) }) }

func (d *fake) change(k string) { d.state(func() { d.ours[key(k)] = drop(k) }) }

func (d *fake) hide(k, by string) { d.state(func() { d.hidden[key(k)] = by }) }

func (r *running) drift() DriftStats {
	synctest.Wait()
	s := r.Stats().Drift
	s.Checked = 0
	return s
}

func TestDriftIsFoundAndRepaired(t *testing.T) {
	watchful(t, true, 3, func(t *testing.T, r *running) {
		r.dp.lose(one)
		r.dp.change(two)
		time.Sleep(time.Second)
		ops := r.dp.printOps()
		slices.Sort(ops)
		check(t, "ops", ops, "put 10.1.0.0/26 via 10.0.0.2 eth0",
			"put 10.1.0.64/26 via 10.0.0.2 eth0")
		if d := r.drift(); d != (DriftStats{Missing: 1, Different: 1, Repaired: 2}) {
			t.Errorf("%+v", d)
		}
		if e := r.state(one); e.State != Programmed || e.Drift != NoDrift {
			t.Errorf("%+v", e)
		}
	})
}

// A path that another program's route keeps stays dead. What else is wrong with its route is found
// nonetheless.
func TestDriftOfARouteThatLeadsNowhere(t *testing.T) {
	watchful(t, false, 1, func(t *testing.T, r *running) {
		r.dp.state(func() { r.dp.hidden[key(one)] = "another" })
		time.Sleep(time.Second)
		if e := r.state(one); e.State != Shadowed {
			t.Errorf("%+v", e)
		}
		r.dp.state(func() { delete(r.dp.hidden, key(one)); r.dp.stick("eth0") })
		time.Sleep(time.Second)
		r.dp.state(func() { r.dp.stick("eth0") }) // as if another's routes kept the path
		time.Sleep(time.Second)
		if e := r.state(one); e.State != Programmed {
			t.Errorf("%+v", e)
		}
		r.dp.takeOps()
		r.dp.state(func() {
			r.dp.ours[key(one)] = route.Route{Key: key(one), Paths: []route.Path{
				{NextHop: netip.MustParseAddr("10.0.0.9"), Interface: "eth0", Weight: 1}}}
		})
		time.Sleep(time.Second)
		if e := r.state(one); e.State != Drifted || e.Drift != Different {
			t.Errorf("%+v", e)
		}
		check(t, "ops", r.dp.printOps())
	})
}

func TestDriftIsOnlyReported(t *testing.T) {
	watchful(t, false, 2, func(t *testing.T, r *running) {
		r.SetRoutes(route.Own, []route.Route{drop("10.3.0.0/26")})
		synctest.Wait()
		r.dp.takeOps()
		r.dp.lose(one)
		r.dp.change(two)
		r.dp.lose("10.3.0.0/26")
		time.Sleep(time.Hour)
		check(t, "ops", r.dp.printOps())
		if d := r.drift(); d != (DriftStats{Missing: 2, Different: 1}) {
			t.Errorf("%+v; each is counted once, however often it is seen", d)
		}
		if e := r.state(one); e.State != Drifted || e.Drift != Missing || e.Found != "" {
			t.Errorf("%+v", e)
		}
		if e := r.state(two); e.State != Drifted || e.Drift != Different || e.Found != two+" drop" {
			t.Errorf("%+v", e)
		}
		if !r.Programmed(own("10.3.0.0/26")) {
			t.Error("a block would be withdrawn because somebody took its drop route away")
		}
		if c := r.Stats().Routes[1]; c.Desired != 2 || c.Programmed != 0 || c.Drifted != 2 {
			t.Errorf("%+v", c)
		}
		paths := r.state(two).Paths
		r.dp.state(func() { r.dp.ours[key(one)] = route.Route{Key: key(one), Paths: paths} })
		time.Sleep(time.Second)
		if e := r.state(one); e.State != Programmed {
			t.Errorf("it is back: %+v", e)
		}
		r.dp.state(func() { r.dp.hang = true })
		r.Learn(pfx(two), via("10.0.0.3"))
		if e := r.state(two); e.State != Pending {
			t.Errorf("a new desired route: %+v", e)
		}
		r.dp.heal()
		check(t, "a new desired route is written all the same", r.dp.printOps(),
			"put 10.1.0.64/26 via 10.0.0.3 eth0")
		if e := r.state(two); e.State != Programmed {
			t.Errorf("%+v", e)
		}
	})
}

func TestARepairThatIsRefusedIsShown(t *testing.T) {
	watchful(t, true, 1, func(t *testing.T, r *running) {
		r.dp.lose(one)
		r.dp.state(func() { r.dp.refuse[key(one)] = errors.New("no") })
		time.Sleep(2 * time.Second)
		if e := r.state(one); e.State != Failed || e.Error != "no" || e.Drift != Missing {
			t.Errorf("%+v", e)
		}
		r.dp.heal()
		time.Sleep(time.Minute)
		d := r.drift()
		if d != (DriftStats{Missing: 1, Repaired: 1}) || r.state(one).State != Programmed {
			t.Errorf("%+v", d)
		}
	})
}

func TestSpotChecksKeepToTheirBudget(t *testing.T) {
	watchful(t, true, 100, func(t *testing.T, r *running) {
		spots := func(after func()) int {
			r.dp.state(func() { r.dp.spots = 0 })
			after()
			synctest.Wait()
			return r.dp.spots
		}
		minute := func() { time.Sleep(time.Minute) }
		if n := spots(minute); n < 299 || n > 301 {
			t.Errorf("%d in a minute, want 5/s", n)
		}
		checked := r.Stats().Drift.Checked
		r.dp.state(func() { r.dp.lookupErr = errGone })
		if n := spots(minute); n < 299 || n > 301 || r.Stats().Drift.Checked > checked+1 ||
			r.drift() != (DriftStats{}) {
			t.Errorf("%d that fail; %+v", n, r.drift())
		}
		r.dp.heal()
		r.dp.state(func() { r.dp.hang = true })
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		if n := spots(minute); n != 0 {
			t.Errorf("%d while a batch is on its way", n)
		}
		r.dp.heal()
		synctest.Wait()
		r.dp.tell(route.Facts{Problem: "away"})
		synctest.Wait()
		if n := spots(minute); n != 0 {
			t.Errorf("%d without a data plane", n)
		}
		if n := spots(func() { r.dp.tell(node("a")) }); n < handful || n > handful+1 {
			t.Errorf("%d at once after a reconnect, want a handful", n)
		}
		if n := spots(func() { r.dp.tell(node("b")); synctest.Wait() }); n > 1 {
			t.Errorf("%d at once in a new generation, where there is nothing to verify", n)
		}
	})
}

func TestWhereALookupIsDearFewAreMade(t *testing.T) {
	watchful(t, true, 10, func(t *testing.T, r *running) {
		r.dp.state(func() { r.dp.holdLookup, r.dp.spots = make(chan struct{}), 0 })
		time.Sleep(10 * time.Minute) // each look-up takes until it is given up
		synctest.Wait()
		if n := r.dp.spots; n < 9 || n > 13 {
			t.Errorf("%d in ten minutes, want one in 55 s", n)
		}
		r.dp.state(func() { close(r.dp.holdLookup); r.dp.holdLookup = nil })
	})
}

func TestAnEmptiedTableIsRefilledAtThePaceOfLookups(t *testing.T) {
	watchful(t, true, 1000, func(t *testing.T, r *running) {
		r.dp.state(func() { clear(r.dp.ours) })
		time.Sleep(time.Second)
		if n := len(r.dp.routes()); n != 1000 {
			t.Errorf("%d of 1000 are back after a second", n)
		}
		if d := r.drift(); d != (DriftStats{Missing: 1000, Repaired: 1000}) {
			t.Errorf("%+v", d)
		}
	})
}

func TestAnAnswerThatWasOvertakenCountsForNothing(t *testing.T) {
	for name, overtake := range map[string]func(*running){
		"by a new entry": func(r *running) {
			r.Learn(pfx(one), nil)
			synctest.Wait()
			r.Learn(pfx(one), via("10.0.0.2"))
		},
		"by two puts": func(r *running) {
			r.Learn(pfx(one), via("10.0.0.3"))
			synctest.Wait()
			r.Learn(pfx(one), via("10.0.0.2"))
		},
		"by another generation": func(r *running) {
			r.dp.state(func() {
				r.dp.ours[key(one)] = route.Route{
					Key: key(one), Paths: r.table.get(key(one)).want.paths,
				}
			})
			r.dp.tell(node("b"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			watchful(t, true, 1, func(t *testing.T, r *running) {
				hold := make(chan struct{})
				r.dp.lose(one)
				r.dp.state(func() { r.dp.holdLookup, r.dp.spots = hold, 0 })
				time.Sleep(time.Second) // a check has been answered, and the answer is on its way
				overtake(r)
				synctest.Wait()
				r.dp.takeOps()
				r.dp.state(func() { r.dp.holdLookup = nil })
				close(hold)
				check(t, "ops", r.dp.printOps())
				if d := r.drift(); d != (DriftStats{}) || r.dp.spots == 0 {
					t.Errorf("%+v after %d checks", d, r.dp.spots)
				}
			})
		})
	}
}

func TestDriftAndShadowsFollowWhatIsFound(t *testing.T) {
	watchful(t, false, 1, func(t *testing.T, r *running) {
		expect := func(what string, state State, drift Drift, by string) {
			t.Helper()
			time.Sleep(time.Second)
			if e := r.state(one); e.State != state || e.Drift != drift || e.By != by {
				t.Errorf("%s: %+v", what, e)
			}
		}
		r.dp.change(one)
		expect("changed", Drifted, Different, "")
		r.dp.state(func() {
			r.dp.ours[key(one)] = route.Route{Key: key(one), Kind: route.Prohibit}
		})
		expect("changed again", Drifted, Different, "")
		r.dp.hide(one, "CLI")
		expect("hidden", Shadowed, NoDrift, "CLI")
		r.dp.hide(one, "")
		r.dp.lose(one)
		expect("lost", Drifted, Missing, "")
		if d := r.drift(); d != (DriftStats{Different: 2, Missing: 1}) {
			t.Errorf("%+v", d)
		}
		for i, drift := range []bool{true, false} {
			r.dp.tell(node(fmt.Sprint("generation ", i)))
			if e := r.state(one); e.State != Programmed {
				t.Errorf("in a new generation: %+v", e)
			}
			if drift {
				r.dp.hide(one, "CLI")
				expect("hidden", Shadowed, NoDrift, "CLI")
				r.dp.hide(one, "")
			}
		}
	})
}

func TestTheNextProcessVerifiesWhatItTrusts(t *testing.T) {
	watchful(t, true, 3, func(t *testing.T, r *running) {
		r.stop()
		r.dp.lose(two)
		*r = *startWith(r.dp, Config{
			Journal: r.Engine.keeps.path, Tuning: Tuning{SpotChecks: 5, RepairDrift: true},
		})
		for _, k := range []string{one, two, three} {
			r.Learn(pfx(k), via("10.0.0.2"))
		}
		check(t, "ops", r.dp.printOps(), "put 10.1.0.64/26 via 10.0.0.2 eth0")
	})
}

func TestALostRouteThatNobodyWantsYetIsPutOnceSomebodyDoes(t *testing.T) {
	watchful(t, true, 2, func(t *testing.T, r *running) {
		r.stop()
		r.dp.lose(one)
		*r = *startWith(r.dp, Config{
			Journal: r.Engine.keeps.path, Tuning: Tuning{SpotChecks: 5, RepairDrift: true},
		})
		time.Sleep(time.Minute)
		check(t, "held", r.dp.printOps())
		if e := r.state(one); e.State != Held || e.Drift != Missing {
			t.Errorf("%+v", e)
		}
		r.Learn(pfx(one), via("10.0.0.2"))
		check(t, "wanted", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.2 eth0")
		r.AllowSweep()
		check(t, "sweep", r.dp.printOps(), "del 10.1.0.64/26")
	})
}

func TestShadowedRoutesAreShownAndLeftAlone(t *testing.T) {
	watchful(t, true, 3, func(t *testing.T, r *running) {
		r.dp.hide(one, "CLI")
		time.Sleep(time.Second)
		if e := r.state(one); e.State != Shadowed || e.By != "CLI" {
			t.Errorf("%+v", e)
		}
		c := r.Stats().Routes[0]
		if c.Desired != 3 || c.Programmed != 2 || c.Shadowed != 1 ||
			len(inState(r.Engine, Shadowed)) != 1 {
			t.Errorf("%+v", c)
		}
		r.Learn(pfx(one), via("10.0.0.3"))
		check(t, "what is desired changes", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.3 eth0")
		if e := r.state(one); e.State != Shadowed {
			t.Errorf("%+v", e)
		}
		r.dp.hide(one, "")
		time.Sleep(time.Second)
		if e := r.state(one); e.State != Programmed || e.By != "" {
			t.Errorf("%+v", e)
		}
		check(t, "nothing was repaired", r.dp.printOps())
		if d := r.drift(); d != (DriftStats{}) {
			t.Errorf("%+v", d)
		}
	})
}

func TestAShadowIsSeenSoonAfterThePut(t *testing.T) {
	watchful(t, true, 1000, func(t *testing.T, r *running) {
		r.dp.hide("10.3.0.0/26", "API")
		r.Learn(pfx("10.3.0.0/26"), via("10.0.0.2"))
		time.Sleep(time.Second)
		if e := r.state("10.3.0.0/26"); e.State != Shadowed || e.By != "API" {
			t.Errorf("%+v", e)
		}
		r.Learn(pfx("10.3.0.0/26"), via("10.0.0.1"))
		if e := r.state("10.3.0.0/26"); e.State != Unusable || e.By != "" {
			t.Errorf("deleted, as its next hop is of no use: %+v", e)
		}
		r.Learn(pfx("10.3.0.0/26"), nil)
		synctest.Wait()
		if n := len(r.sync.shadows); n != 0 {
			t.Errorf("%d shadows of nothing", n)
		}
	})
}

// In Linux another's route stands beside ours, and a look-up shows both: what is wrong with ours is
// seen behind it too.
func TestShadowsWhereBothRoutesAreShown(t *testing.T) {
	watchful(t, false, 3, func(t *testing.T, r *running) {
		r.stop()
		r.dp.open = true
		*r = *startWith(r.dp, Config{Journal: r.Engine.keeps.path, Tuning: Tuning{SpotChecks: 5}})
		for _, k := range []string{one, two, three} {
			r.Learn(pfx(k), via("10.0.0.2"))
		}
		expect := func(what string, state State, drift Drift, by string) {
			t.Helper()
			if e := r.state(one); e.State != state || e.Drift != drift || e.By != by {
				t.Errorf("%s: %+v", what, e)
			}
		}
		steps := []struct {
			what  string
			do    func()
			state State
			drift Drift
			by    string
		}{
			{"hidden", func() { r.dp.hide(one, "proto bird") }, Shadowed, NoDrift, "proto bird"},
			{"hidden and changed", func() { r.dp.change(one) }, Drifted, Different, "proto bird"},
			{"gone, and another's is there", func() { r.dp.lose(one) }, Drifted, Missing, ""},
			{"nobody's", func() { r.dp.hide(one, "") }, Drifted, Missing, ""},
		}
		for _, s := range steps {
			s.do()
			time.Sleep(time.Second)
			expect(s.what, s.state, s.drift, s.by)
			r.audit(t)
			expect(s.what+", audited", s.state, s.drift, s.by)
		}
		check(t, "ops", r.dp.printOps())
	})
}

func TestAnAuditFindsShadowsAmongWhatIsListed(t *testing.T) {
	watchful(t, true, 3, func(t *testing.T, r *running) {
		r.stop()
		r.dp.open = true
		*r = *startWith(r.dp, Config{Journal: r.Engine.keeps.path})
		for _, k := range []string{one, two, three} {
			r.Learn(pfx(k), via("10.0.0.2"))
		}
		time.Sleep(time.Minute)
		for _, by := range []string{"proto bird", ""} {
			r.dp.hide(two, by)
			report := r.audit(t)
			e := r.state(two)
			if report.Hidden != len(inState(r.Engine, Shadowed)) || e.By != by ||
				report.Listed != 3 {
				t.Errorf("by %q: %+v, %+v", by, e, report)
			}
		}
		check(t, "ops", r.dp.printOps())
	})
}

func (r *running) audit(t rapid.TB) Report {
	t.Helper()
	report, err := r.Audit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func (f Finding) String() string {
	return fmt.Sprintf("%v %v want %v found %v %s", f.Key, f.Drift, f.Want.Prefix.IsValid(),
		f.Found.Prefix.IsValid(), f.By)
}

// disturb does everything at once that an audit can find.
func disturb(d *fake) {
	d.lose(one)
	d.change(two)
	d.hide(three, "CLI")
	d.state(func() { d.ours[key("10.9.0.0/24")] = drop("10.9.0.0/24") })
}

func checkDisturbed(t *testing.T, report Report) {
	t.Helper()
	var found []string
	for _, f := range report.Findings {
		found = append(found, f.String())
	}
	check(t, "findings", found, "10.1.0.0/26 missing want true found false ",
		"10.1.0.64/26 different want true found true ",
		"10.1.0.128/26 hidden want true found false CLI",
		"10.9.0.0/24 extra want false found true ")
	if report.Listed != 9 || report.Compared != 10 || report.Missing != 1 ||
		report.Different != 1 || report.Extra != 1 || report.Hidden != 1 {
		t.Errorf("%+v", report)
	}
}

func TestAuditFindsAndRepairs(t *testing.T) {
	watchful(t, true, 10, func(t *testing.T, r *running) {
		r.sync.spots.pause = 0
		disturb(r.dp)
		checkDisturbed(t, r.audit(t))
		ops := r.dp.printOps()
		slices.Sort(ops)
		check(t, "ops", ops, "del 10.9.0.0/24", "put 10.1.0.0/26 via 10.0.0.2 eth0",
			"put 10.1.0.64/26 via 10.0.0.2 eth0")
		if d := r.drift(); d != (DriftStats{Missing: 1, Different: 1, Extra: 1, Repaired: 3}) {
			t.Errorf("%+v", d)
		}
		if report := r.audit(t); len(report.Findings) != 1 || report.Hidden != 1 {
			t.Errorf("again: %+v", report)
		}
		if n := len(r.Entries(netip.Prefix{})); n != 10 {
			t.Errorf("%d entries", n)
		}
	})
}

func TestAuditOnlyReports(t *testing.T) {
	watchful(t, false, 10, func(t *testing.T, r *running) {
		r.sync.spots.pause = 0
		disturb(r.dp)
		checkDisturbed(t, r.audit(t))
		check(t, "ops", r.dp.printOps())
		checkDisturbed(t, r.audit(t))
	})
}

func TestAnExtraRouteIsCountedOnceForAsLongAsItStays(t *testing.T) {
	watchful(t, false, 1, func(t *testing.T, r *running) {
		extra := func(r route.Route) func(*fake) {
			return func(d *fake) { d.ours[key("10.9.0.0/24")] = r }
		}
		prohibit := route.Route{Key: key("10.9.0.0/24"), Kind: route.Prohibit}
		for _, step := range []struct {
			what    string
			do      func(*fake)
			found   int
			counted uint64
		}{
			{"it comes", extra(drop("10.9.0.0/24")), 1, 1},
			{"it stays", func(*fake) {}, 1, 1},
			{"another comes", func(d *fake) { d.ours[key("10.8.0.0/24")] = drop("10.8.0.0/24") }, 2,
				2},
			{"it changes", extra(prohibit), 2, 3},
			{"it goes", func(d *fake) { delete(d.ours, key("10.9.0.0/24")) }, 1, 3},
			{"it comes back", extra(prohibit), 2, 4},
		} {
			r.dp.state(func() { step.do(r.dp) })
			if report := r.audit(t); report.Extra != step.found || r.drift().Extra != step.counted {
				t.Errorf("%s: %d found, %d counted; want %d and %d",
					step.what, report.Extra, r.drift().Extra, step.found, step.counted)
			}
		}
	})
}

func TestAuditLeavesOutWhatIsWrittenMeanwhile(t *testing.T) {
	watchful(t, true, 4, func(t *testing.T, r *running) {
		r.dp.state(func() {
			r.dp.hang = true
			r.dp.listing = func() { // the listing has been made, but is not delivered yet
				r.dp.heal()
				r.Learn(pfx(one), nil)
				r.Learn(pfx(two), via("10.0.0.3"))
				r.Learn(pfx("10.3.0.0/26"), via("10.0.0.3"))
				time.Sleep(time.Second)
			}
		})
		r.Learn(pfx(three), via("10.0.0.3")) // on its way when the audit begins
		synctest.Wait()
		report := r.audit(t)
		if len(report.Findings) != 0 || report.Compared != 1 {
			t.Errorf("%+v", report)
		}
		if n := len(r.dp.printOps()); n != 4 {
			t.Errorf("%d ops", n)
		}
	})
}

func TestAuditNeedsADataPlaneThatStays(t *testing.T) {
	watchful(t, true, 3, func(t *testing.T, r *running) {
		r.dp.state(func() {
			r.dp.listing = func() {
				r.dp.state(func() { r.dp.listing = nil })
				if _, err := r.Audit(context.Background()); !errors.Is(err, errAuditing) {
					t.Error(err)
				}
				r.dp.tell(node("b"))
				time.Sleep(time.Millisecond)
			}
		})
		if _, err := r.Audit(context.Background()); !errors.Is(err, errChanged) {
			t.Error(err)
		}
		synctest.Wait()
		r.dp.tell(route.Facts{Problem: "away"})
		synctest.Wait()
		_, err := r.Audit(context.Background())
		if !errors.Is(err, errAbsent) || !strings.HasSuffix(err.Error(), ": away") {
			t.Error(err)
		}
		r.dp.tell(node("b"))
		synctest.Wait()
		r.audit(t)
		r.dp.lose(one)
		r.dp.state(func() { r.dp.lookupErr = errGone })
		if _, err := r.Audit(context.Background()); !errors.Is(err, errGone) {
			t.Error(err)
		}
	})
}

func TestAnExtraRouteWaitsForTheSweepAlsoInTheNextProcess(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		journal := r.Engine.keeps.path
		r.stop()
		*r = *startWith(r.dp, Config{Journal: journal, Tuning: Tuning{RepairDrift: true}})
		synctest.Wait()
		r.dp.state(func() { r.dp.ours[key("10.9.0.0/24")] = drop("10.9.0.0/24") })
		if report := r.audit(t); report.Extra != 1 {
			t.Errorf("%+v", report)
		}
		check(t, "before the sweep", r.dp.printOps())
		if e := r.state("10.9.0.0/24"); e.State != Held || e.Drift != Extra {
			t.Errorf("%+v", e)
		}
		r.Learn(pfx(one), via("10.0.0.2")) // something is written, and the journal with it
		synctest.Wait()
		r.again()
		r.dp.takeOps()
		r.Learn(pfx(one), via("10.0.0.2"))
		r.AllowSweep()
		check(t, "next process", r.dp.printOps(), "del 10.9.0.0/24")
		if s := r.Stats(); s.Adopted != "journal" {
			t.Errorf("%+v", s)
		}
	})
}
