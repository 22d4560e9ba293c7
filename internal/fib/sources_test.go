package fib

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

// blocks are n routes of Calico's data, 10.1.i.0/26 from first on.
func blocks(first, n int) []route.Route {
	var out []route.Route
	for i := first; i < first+n; i++ {
		out = append(out, route.Route{
			Key: key(fmt.Sprintf("10.1.%d.0/26", i)), Paths: via("10.0.0.2"),
		})
	}
	return out
}

// guardedEngine runs f with an engine that holds mass deletions and has programmed blocks(0, 200).
func guardedEngine(t *testing.T, f func(*testing.T, *running)) {
	journal := filepath.Join(t.TempDir(), "journal")
	synctest.Test(t, func(t *testing.T) {
		r := startWith(newFake(node("a")), Config{
			Journal: journal,
			Tuning:  Tuning{GuardShare: 0.5, GuardMinimum: 100},
		})
		r.AllowSweep()
		r.SetListed(route.Etcd, blocks(0, 200))
		synctest.Wait()
		r.dp.takeOps()
		f(t, r)
		r.stop()
	})
}

// counted says how many of ours were put and deleted since it was asked last.
func (d *fake) counted() string {
	puts, dels := 0, 0
	for _, s := range d.printOps() {
		if strings.HasPrefix(s, "put") {
			puts++
		} else {
			dels++
		}
	}
	return fmt.Sprintf("%d put, %d deleted", puts, dels)
}

func (r *running) expect(t *testing.T, what, ops string, held int) {
	t.Helper()
	if got := r.dp.counted(); got != ops {
		t.Errorf("%s: %s, want %s", what, got, ops)
	}
	n := 0
	for _, h := range r.Stats().Guard {
		n += h.Held
	}
	if n != held {
		t.Errorf("%s: %d held, want %d", what, n, held)
	}
}

func TestAListThatLosesTooMuchIsNotBelievedForAMinute(t *testing.T) {
	guardedEngine(t, func(t *testing.T, r *running) {
		r.SetListed(route.Etcd, append(blocks(0, 99), blocks(200, 5)...))
		r.expect(t, "at once", "5 put, 0 deleted", 101)
		began := time.Now()
		g := r.Stats().Guard[0]
		if g != (GuardHold{route.Etcd, 101, began, began.Add(time.Minute)}) {
			t.Errorf("%+v", g)
		}
		if e := r.state("10.1.150.0/26"); e.State != Programmed ||
			!strings.Contains(e.Reason.String(), "guard") {
			t.Errorf("%+v", e)
		}
		if e := r.state("10.1.50.0/26"); e.Reason != (Reason{}) {
			t.Errorf("%+v", e)
		}
		time.Sleep(59 * time.Second)
		r.SetListed(route.Etcd, append(blocks(0, 99), blocks(200, 5)...))
		r.expect(t, "the same list again", "0 put, 0 deleted", 101)
		time.Sleep(time.Second)
		r.expect(t, "after a minute", "0 put, 101 deleted", 0)
		if n := len(r.Entries(netip.Prefix{})); n != 104 {
			t.Errorf("%d entries", n)
		}
	})
}

func TestAWholeListEndsTheHold(t *testing.T) {
	guardedEngine(t, func(t *testing.T, r *running) {
		r.SetListed(route.Etcd, nil)
		r.expect(t, "empty", "0 put, 0 deleted", 200)
		time.Sleep(30 * time.Second)
		r.SetListed(route.Etcd, blocks(0, 200))
		r.expect(t, "whole", "0 put, 0 deleted", 0)
		time.Sleep(time.Hour)
		r.expect(t, "later", "0 put, 0 deleted", 0)
	})
}

func TestAnotherListMakesTheHoldLast(t *testing.T) {
	guardedEngine(t, func(t *testing.T, r *running) {
		r.SetListed(route.Etcd, nil)
		time.Sleep(50 * time.Second)
		r.SetListed(route.Etcd, blocks(0, 10))
		time.Sleep(50 * time.Second)
		r.expect(t, "100 s after the first", "0 put, 0 deleted", 190)
		r.SetListed(route.Etcd, blocks(0, 150))
		r.expect(t, "a plausible one", "0 put, 50 deleted", 0)
	})
}

func TestReleaseGuard(t *testing.T) {
	guardedEngine(t, func(t *testing.T, r *running) {
		r.SetListed(route.Etcd, nil)
		r.expect(t, "held", "0 put, 0 deleted", 200)
		r.ReleaseGuard()
		r.expect(t, "released", "0 put, 200 deleted", 0)
		if n := len(r.Entries(netip.Prefix{})); n != 0 {
			t.Errorf("%d entries", n)
		}
		r.Learn(pfx("10.1.0.0/16"), via("10.0.0.2")) // covers what etcd wanted
		r.expect(t, "all is forgotten", "1 put, 0 deleted", 0)
	})
}

func TestWhatIsNeverHeld(t *testing.T) {
	for name, lose := range map[string]func(*running){
		"events": func(r *running) { r.SetRoutes(route.Etcd, nil) },
		"without the guard": func(r *running) {
			r.sources.share = 0
			r.SetListed(route.Etcd, nil)
		},
		"a hundred of a few": func(r *running) {
			r.sources.minimum = 200
			r.SetListed(route.Etcd, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			guardedEngine(t, func(t *testing.T, r *running) {
				lose(r)
				r.expect(t, name, "0 put, 200 deleted", 0)
			})
		})
	}
	t.Run("half of a list, then the few that are left", func(t *testing.T) {
		guardedEngine(t, func(t *testing.T, r *running) {
			r.sources.minimum = 0
			r.SetListed(route.Etcd, blocks(0, 100))
			r.expect(t, "half", "0 put, 100 deleted", 0)
			r.sources.minimum = 100
			r.SetListed(route.Etcd, nil)
			r.expect(t, "a hundred", "0 put, 100 deleted", 0)
		})
	})
	t.Run("withdraws", func(t *testing.T) {
		guardedEngine(t, func(t *testing.T, r *running) {
			for _, b := range blocks(0, 200) {
				r.Learn(b.Prefix, via("10.0.0.3"))
			}
			r.idle()
			r.SetRoutes(route.Etcd, nil)
			r.expect(t, "learned", "200 put, 0 deleted", 0)
			for _, b := range blocks(0, 200) {
				r.Learn(b.Prefix, nil)
			}
			r.idle()
			r.expect(t, "withdrawn", "0 put, 200 deleted", 0)
		})
	})
}

func TestEventsWhileTheGuardHolds(t *testing.T) {
	guardedEngine(t, func(t *testing.T, r *running) {
		r.SetListed(route.Etcd, blocks(0, 20))
		r.expect(t, "list", "0 put, 0 deleted", 180)
		r.SetRoutes(route.Etcd, blocks(1, 20))
		r.expect(t, "one goes, one is back", "0 put, 1 deleted", 179)
		r.SetListed(route.Own, []route.Route{drop("10.2.0.0/26")})
		r.expect(t, "another origin", "1 put, 0 deleted", 179)
		r.dp.state(func() { clear(r.dp.ours) })
		r.dp.tell(node("b"))
		r.expect(t, "the data plane restarts", "200 put, 0 deleted", 179)
		time.Sleep(time.Minute)
		r.expect(t, "a minute later", "0 put, 179 deleted", 0)
	})
}

func TestAListIsNotMistakenForTheEventsBehindIt(t *testing.T) {
	guardedEngine(t, func(t *testing.T, r *running) {
		r.SetListed(route.Etcd, nil)
		r.SetRoutes(route.Etcd, blocks(0, 1)) // before the engine has looked
		r.expect(t, "both", "0 put, 0 deleted", 199)
	})
}

// What is discarded may be discarded in another way.
func TestKindOfARouteChanges(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		for _, kind := range []route.Kind{route.Drop, route.Prohibit} {
			r.SetRoutes(route.Etcd, []route.Route{{Key: key("10.1.0.0/26"), Kind: kind}})
			check(t, "ops", r.dp.printOps(), "put 10.1.0.0/26 "+kind.String())
		}
	})
}

// What is set at once is taken in part by part. Nothing is deleted before all of it is.
func TestNothingIsDeletedWhileMoreIsTakenIn(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		moved, lost := "20.9.0.0/24", "20.250.0.0/24"
		many := map[string]string{}
		for i := range 20 * wantedChunk {
			many[fmt.Sprintf("20.%d.%d.0/24", i>>8, i&255)] = "10.0.0.2"
		}
		r.set(func(w *Wanted) {
			w.Sources[route.Etcd].Routes = etcdRoutes(map[string]string{
				moved: "10.0.0.2", lost: "10.0.0.2"})
			w.Sources[route.Uplink].Objects = []route.Object{on("eth0", "192.168.4.7/24")}
		})
		r.idle()
		r.dp.printOps()
		many[moved] = "10.0.0.3"
		gains := etcdRoutes(many)
		routesGone := -1 // when the address went
		r.dp.state(func() {
			r.dp.deleting = func(route.ObjectKey) { routesGone = len(r.dp.ops) }
		})
		r.set(func(w *Wanted) {
			w.Sources[route.Etcd].Routes, w.Sources[route.Overlay].Routes = nil, gains
			w.Sources[route.Uplink].Objects = nil
		})
		r.idle()
		ops := r.dp.printOps()
		if all := len(gains) + 1; routesGone != all || len(ops) != all {
			t.Errorf("the address went after %d operations of %d, of %d", routesGone, len(ops), all)
		}
		if last := ops[len(ops)-1]; last != "del "+lost {
			t.Errorf("the last was %s", last)
		}
	})
}

// A prefix is not among those that it covers: a change is selected once.
func TestAChangeIsSelectedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.External, []route.Route{{Key: key("10.1.0.0/24"),
			Paths: []route.Path{{Interface: "memif9"}}, Origin: route.External}})
		synctest.Wait()
		f := node("a")
		f.Interfaces = append(f.Interfaces, route.Interface{Name: "memif9", Index: 9, Up: true})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.setFacts(f)
		if r.selection.selectDirty(1) {
			t.Error("what was selected is dirty again")
		}
	})
}
