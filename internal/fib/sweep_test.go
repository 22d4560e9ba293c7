package fib

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

// restarted runs before on one engine and after on the next, with its journal.
func restarted(t *testing.T, before, after func(t *testing.T, r *running)) {
	journal := filepath.Join(t.TempDir(), "journal")
	synctest.Test(t, func(t *testing.T) {
		dp := newFake(node("a"))
		r := start(dp, journal)
		before(t, r)
		time.Sleep(time.Minute)
		r.stop()
		dp.takeOps()
		r = start(dp, journal)
		defer r.stop()
		after(t, r)
	})
}

func TestEachSourceIsSweptWhenItHasSpoken(t *testing.T) {
	restarted(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Own, []route.Route{drop(one)})
		r.Learn(pfx(two), via("10.0.0.2"))
	}, func(t *testing.T, r *running) {
		check(t, "no source is complete", r.dp.printOps())
		r.AllowSweep(route.External)
		check(t, "a source that has left nothing is", r.dp.printOps())
		r.AllowSweep(route.Own)
		check(t, "this node is", r.dp.printOps(), "del "+one)
		if e := r.state(two); e.State != Held {
			t.Errorf("%+v", e)
		}
		r.AllowSweep()
		check(t, "all are", r.dp.printOps(), "del "+two)
	})
}

// With 200 000 routes selecting all of them again for each source took a tenth of the time.
func TestNothingIsSelectedAgainWhereNothingIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx(two), via("10.0.0.2"))
		r.idle()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.sync.allowSweep(sourceID(route.BGP)); len(r.table.dirty) > 0 {
			t.Errorf("%d prefixes are selected again", len(r.table.dirty))
		}
	})
}

// TestWhoTakesARouteOverAsItIsOwnsIt, although nothing is written.
func TestWhoTakesARouteOverAsItIsOwnsIt(t *testing.T) {
	restarted(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Etcd, []route.Route{{Key: key(one), Paths: via("10.0.0.2")}})
		synctest.Wait()
		r.Learn(pfx(one), via("10.0.0.2"))
		r.SetRoutes(route.Etcd, nil)
		check(t, "ops", r.dp.printOps(), "put "+one+" via 10.0.0.2 eth0")
		if n := r.Stats().Batches; n != 1 {
			t.Errorf("%d batches", n)
		}
	}, func(t *testing.T, r *running) {
		r.AllowSweep(route.Etcd)
		check(t, "etcd is complete", r.dp.printOps())
		r.AllowSweep(route.BGP)
		check(t, "BGP has", r.dp.printOps(), "del "+one)
	})
}

// TestARouteOfUnknownOwnerWaitsForAllSources: a listing names none, and neither does a journal of
// version 1.
func TestARouteOfUnknownOwnerWaitsForAllSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dp := newFake(node("a"))
		dp.ours[key(one)] = drop(one)
		r := start(dp, "")
		defer r.stop()
		r.AllowSweep(route.Own, route.External, route.BGP, route.Etcd)
		check(t, "each is complete", dp.printOps())
		r.AllowSweep()
		check(t, "all are", dp.printOps(), "del "+one)
	})
}

// TestAJournalOfVersion1IsTakenOver and written anew, with owners, before the first batch.
func TestAJournalOfVersion1IsTakenOver(t *testing.T) {
	old, err := os.ReadFile("testdata/journal-1")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := start(newFake(node("life")), path)
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26"), drop("10.77.0.0/16")})
		synctest.Wait()
		if s := r.Stats(); s.Adopted != "journal" || s.AdoptedRoutes != 7 {
			t.Errorf("adopted %d by %q", s.AdoptedRoutes, s.Adopted)
		}
		check(t, "ops", r.dp.printOps(), "put 10.77.0.0/16 drop")
		time.Sleep(time.Minute)
		r.stop()
		r = start(r.dp, path)
		defer r.stop()
		synctest.Wait()
		r.AllowSweep(route.Own)
		ops := r.dp.printOps()
		if s := r.Stats(); s.Adopted != "journal" || len(ops) != 2 {
			t.Errorf("adopted by %q, swept %v", s.Adopted, ops)
		}
	})
}
