package fib

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

// settled checks how many revisions are not settled, and the keys that are open, with their states.
func (r *running) settled(t *testing.T, what string, behind uint64, open ...string) {
	t.Helper()
	r.idle()
	s := r.Settled(3)
	var got []string
	for _, e := range s.Open {
		got = append(got, e.Key.String()+" "+e.State.String())
	}
	check(t, what, got, open...)
	for revision := range r.revision + 1 {
		if settled, busy := r.Progress(revision); settled != (revision <= s.Revision) || busy {
			t.Errorf("%s: revision %d: settled %v, busy %v", what, revision, settled, busy)
		}
	}
	if s.Taken != r.revision || s.Taken-s.Revision != behind {
		t.Errorf("%s: %d set, %d taken in, %d settled; want %d behind", what, r.revision, s.Taken,
			s.Revision, behind)
	}
}

func TestARevisionIsSettledWhenItsKeysAre(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.64/26"), via("10.0.0.2"))
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26")})
		r.settled(t, "put", 0)
		r.dp.state(func() { r.dp.refuse[key("10.1.0.64/26")] = errors.New("full") })
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26"), drop("10.1.0.64/26")})
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.64/26"), drop("10.1.0.128/26")})
		r.settled(t, "refused", 2, "10.1.0.64/26 failed")
		if e := r.Settled(1).Open[0]; e.Error != "full" || e.Origin != route.Own {
			t.Errorf("%+v", e)
		}
		r.dp.heal()
		time.Sleep(lastRetry)
		r.settled(t, "taken at last", 0)

		r.dp.state(func() { r.dp.refuse[key("10.1.0.128/26")] = errors.New("busy") })
		r.SetRoutes(route.Own, nil)
		r.settled(t, "a deletion refused", 1, "10.1.0.128/26 deleting")
		r.dp.heal()
		time.Sleep(lastRetry)
		r.settled(t, "deleted at last", 0)

		r.Learn(pfx("10.3.0.0/26"), via("10.9.9.9"))
		r.SetRoutes(route.Own, []route.Route{drop("10.3.0.0/26")})
		r.settled(t, "BGP cannot be used", 0)
		r.SetRoutes(route.Own, nil)
		r.settled(t, "BGP alone is left, and unusable", 0)

		r.SetRoutes(route.Etcd, []route.Route{{Key: key("10.2.0.0/26"), Paths: via("10.9.9.9")}})
		r.settled(t, "no way to the next hop", 1, "10.2.0.0/26 unusable")
	})
}

// While the data plane is away nothing new is settled, and what is settled remains so.
func TestWhatIsOpenIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Etcd, blocks(0, 1))
		r.settled(t, "one", 0)
		r.dp.tell(route.Facts{Problem: "away"})
		synctest.Wait()
		r.SetRoutes(route.Etcd, blocks(0, 10))
		r.settled(t, "away", 1, "10.1.1.0/26 pending", "10.1.2.0/26 pending", "10.1.3.0/26 pending")
		if s := r.Settled(3); s.More != 6 {
			t.Errorf("%d more, want 6", s.More)
		}
		r.dp.tell(node("a"))
		r.settled(t, "back", 0)
	})
}

func TestASetIsNotSettledBeforeItIsTakenIn(t *testing.T) {
	e := New(Config{Dataplane: newFake(node("a"))})
	if n := e.Set(Wanted{}); n != 1 || e.Settled(1).Revision != 0 {
		t.Errorf("revision %d, settled %+v", n, e.Settled(1))
	}
}

func TestWhatTheGuardHoldsIsNotSettled(t *testing.T) {
	guardedEngine(t, func(t *testing.T, r *running) {
		r.SetListed(route.Etcd, blocks(101, 99))
		r.settled(t, "held", 1, "10.1.0.0/26 programmed", "10.1.1.0/26 programmed",
			"10.1.2.0/26 programmed")
		r.ReleaseGuard()
		r.settled(t, "released", 0)
	})
}

func TestAnEngineIsBusyUntilTheDataPlaneHasAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		is := func(what string, wantSettled, wantBusy bool) {
			t.Helper()
			synctest.Wait()
			if settled, busy := r.Progress(r.revision); settled != wantSettled || busy != wantBusy {
				t.Errorf("%s: settled %v, busy %v", what, settled, busy)
			}
		}
		r.dp.state(func() { r.dp.hang = true })
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26")})
		is("no answer", false, true)
		r.dp.heal()
		is("answered", true, false)
		r.dp.tell(route.Facts{})
		r.SetRoutes(route.Own, nil)
		is("the data plane is away", false, false)
	})
}
