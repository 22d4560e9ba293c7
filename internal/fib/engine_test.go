package fib

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

func check(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// printOps prints what was carried out since it was asked last.
func (d *fake) printOps() []string {
	synctest.Wait()
	var out []string
	for _, op := range d.takeOps() {
		if op.Delete {
			out = append(out, "del "+op.Route.Key.String())
		} else {
			out = append(out, "put "+op.Route.String())
		}
	}
	return out
}

// idle waits until all inputs are taken. After many looks at the inbox the engine pauses before
// the next one, and how many looks a loop of inputs makes is up to the scheduler.
func (r *running) idle() {
	synctest.Wait()
	time.Sleep(throttleInterval)
	synctest.Wait()
}

func (r *running) state(k string) (out Entry) {
	synctest.Wait()
	entries := slices.DeleteFunc(r.Entries(pfx(k)), func(e Entry) bool {
		return e.Key.Prefix != pfx(k)
	})
	if len(entries) == 1 {
		return entries[0]
	}
	return out
}

func signalled(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// bubble runs f with an engine that has adopted an empty data plane.
func bubble(t *testing.T, f func(*testing.T, *running)) {
	journal := filepath.Join(t.TempDir(), "journal")
	synctest.Test(t, func(t *testing.T) {
		r := start(newFake(node("a")), journal)
		synctest.Wait()
		f(t, r)
		r.stop()
	})
}

// again ends the process and starts the next on the same data plane and journal.
func (r *running) again() *running {
	r.stop()
	*r = *start(r.dp, r.Engine.keeps.path)
	synctest.Wait()
	return r
}

func TestAWishIsWrittenOnceAndAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		began := time.Now()
		r.Learn(pfx("10.1.0.64/26"), via("10.0.0.2"))
		check(t, "learned", r.dp.printOps(), "put 10.1.0.64/26 via 10.0.0.2 eth0")
		r.Learn(pfx("10.1.0.64/26"), via("10.0.0.2"))
		check(t, "learned again", r.dp.printOps())
		r.Learn(pfx("10.1.0.64/26"), via("10.0.0.2", "10.0.0.3"))
		check(t, "a path more", r.dp.printOps(),
			"put 10.1.0.64/26 via 10.0.0.2 eth0, 10.0.0.3 eth0")
		r.Learn(pfx("10.1.0.64/26"), nil)
		check(t, "withdrawn", r.dp.printOps(), "del 10.1.0.64/26")
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v on an idle engine", waited)
		}
		if n := len(r.Entries(netip.Prefix{})); n != 0 {
			t.Errorf("%d entries remain", n)
		}
	})
}

func TestSetRoutesIsAState(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26"), drop("10.1.0.64/26")})
		if ops := r.dp.printOps(); len(ops) != 2 {
			t.Errorf("ops %q", ops)
		}
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.64/26"), drop("10.1.0.0/26")})
		check(t, "the same", r.dp.printOps())
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.128/26"), drop("10.1.0.64/26")})
		check(t, "one for another", r.dp.printOps(), "put 10.1.0.128/26 drop", "del 10.1.0.0/26")
		r.Learn(pfx("10.1.0.64/26"), via("10.0.0.2"))
		check(t, "BGP is worse", r.dp.printOps())
		r.SetRoutes(route.Own, nil)
		check(t, "BGP remains", r.dp.printOps(), "put 10.1.0.64/26 via 10.0.0.2 eth0",
			"del 10.1.0.128/26")
	})
}

// A host route of this node's own to a peer carries the peer's next hops, which are mostly the peer
// itself; a drop route does not.
func TestOwnRouteToAPeerCarriesItsNextHops(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		peer := route.Route{Key: key("10.9.0.5/32"), Paths: via("10.0.0.9")}
		r.Learn(pfx("10.1.0.64/26"), via("10.9.0.5"))
		r.SetRoutes(route.Own, []route.Route{peer, drop("10.1.0.0/26")})
		check(t, "both", r.dp.routes(), "10.1.0.0/26 drop", "10.1.0.64/26 via 10.9.0.5",
			"10.9.0.5/32 via 10.0.0.9 eth0")
		r.SetRoutes(route.Own, []route.Route{drop("10.9.0.5/32")})
		check(t, "a drop", r.dp.routes(), "10.9.0.5/32 drop")
		r.SetRoutes(route.Own, []route.Route{peer})
		check(t, "again", r.dp.routes(), "10.1.0.64/26 via 10.9.0.5",
			"10.9.0.5/32 via 10.0.0.9 eth0")
	})
}

// TestOwnRouteToAConnectedPeerCarriesItsNextHops: the host route is a longer match than the
// connected subnet, as in BIRD. A gateway stays a neighbour even if a host route leads to it;
// otherwise two host routes through each other would depend on which came first.
func TestOwnRouteToAConnectedPeerCarriesItsNextHops(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		peer := route.Route{Key: key("10.0.0.2/32"), Paths: via("10.0.0.9")}
		gateway := route.Route{Key: key("10.0.0.9/32"), Paths: via("10.0.0.2")}
		r.Learn(pfx("10.1.0.64/26"), via("10.0.0.2"))
		r.Learn(pfx("10.1.0.128/26"), via("10.0.0.9"))
		check(t, "without", r.dp.routes(),
			"10.1.0.128/26 via 10.0.0.9 eth0", "10.1.0.64/26 via 10.0.0.2 eth0")
		r.SetRoutes(route.Own, []route.Route{peer})
		check(t, "with", r.dp.routes(), "10.0.0.2/32 via 10.0.0.9 eth0",
			"10.1.0.128/26 via 10.0.0.9 eth0", "10.1.0.64/26 via 10.0.0.2")
		r.dp.takeOps()
		r.Learn(pfx("10.1.0.192/26"), via("10.0.0.2", "10.0.0.4"))
		check(t, "beside a nearer one", r.dp.printOps(), "put 10.1.0.192/26 via 10.0.0.4 eth0")
		r.Learn(pfx("10.1.0.192/26"), via("10.0.0.2", "10.9.0.5"))
		check(t, "set of its own", r.dp.printOps(), "put 10.1.0.192/26 via 10.0.0.2")
		r.SetRoutes(route.Own, []route.Route{peer, gateway})
		check(t, "two that are each other's gateway", r.dp.routes(),
			"10.0.0.2/32 via 10.0.0.9 eth0", "10.0.0.9/32 via 10.0.0.2 eth0",
			"10.1.0.128/26 via 10.0.0.9", "10.1.0.192/26 via 10.0.0.2", "10.1.0.64/26 via 10.0.0.2")
		r.SetRoutes(route.Own, nil)
		check(t, "without again", r.dp.routes(), "10.1.0.128/26 via 10.0.0.9 eth0",
			"10.1.0.192/26 via 10.0.0.2 eth0", "10.1.0.64/26 via 10.0.0.2 eth0")
	})
}

// TestRefusedVia tells a next hop that every route is refused over from one that some routes are
// programmed over.
func TestRefusedVia(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		want := func(what string, routes int) {
			t.Helper()
			synctest.Wait()
			got, err := r.RefusedVia(addr("10.0.0.2"))
			if got != routes || (err != nil) != (routes > 0) {
				t.Errorf("%s: %d refused, %v; want %d", what, got, err, routes)
			}
		}
		want("no route", 0)
		first, second := "10.1.0.0/26", "10.1.0.64/26"
		r.dp.refuse[key(first)] = errors.New("no room")
		r.dp.refuse[key(second)] = errors.New("no room")
		r.Learn(pfx(first), via("10.0.0.2"))
		r.Learn(pfx(second), via("10.0.0.2"))
		want("all are refused", 2)
		r.Learn(pfx("10.1.0.128/26"), via("10.0.0.3"))
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.192/26")})
		r.Learn(pfx("10.1.0.192/26"), via("10.0.0.2"))
		want("others are not, and one goes by the node's own", 2)
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.2", "10.0.0.3"))
		want("one is programmed", 0)
	})
}

func TestTwoRoutesWithOneKeyPanic(t *testing.T) {
	defer func() {
		if s := fmt.Sprint(recover()); s != "fib: two own routes with one key 10.1.0.0/26" {
			t.Error(s)
		}
	}()
	r := running{Engine: New(Config{})}
	r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26"), drop("10.1.0.0/26")})
}

func TestOwnRoutesAreAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		signalled(r.Changed())
		r.dp.hang = true
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26")})
		if signalled(r.Changed()) || r.Programmed(own("10.1.0.0/26")) {
			t.Error("acknowledged before the data plane said yes")
		}
		r.dp.heal()
		if !signalled(r.Changed()) || !r.Programmed(own("10.1.0.0/26")) {
			t.Error("not acknowledged")
		}
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.2"))
		if signalled(r.Changed()) {
			t.Error("BGP routes are nobody's business")
		}
	})
}

func TestRefusedOpHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.refuse[key("10.1.0.0/26")] = fmt.Errorf("no such table")
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.2"))
		check(t, "the other", r.dp.printOps(), "put 10.2.0.0/26 via 10.0.0.2 eth0")
		e := r.state("10.1.0.0/26")
		if e.State != Failed || e.Error != "no such table" || e.Attempts != 1 {
			t.Errorf("%+v", e)
		}
		time.Sleep(10 * time.Minute)
		if n := r.state("10.1.0.0/26").Attempts; n < 20 || n > 40 {
			t.Errorf("%d attempts in 10 minutes, want about one every 30 s after the first few", n)
		}
		r.dp.state(func() { clear(r.dp.refuse) })
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.3"))
		check(t, "a new desired route does not wait", r.dp.printOps(),
			"put 10.1.0.0/26 via 10.0.0.3 eth0")
	})
}

func TestRefusedDeletionIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.dp.refuse[key("10.1.0.0/26")] = fmt.Errorf("busy")
		r.Learn(pfx("10.1.0.0/26"), nil)
		if e := r.state("10.1.0.0/26"); e.State != Deleting || e.Error != "busy" {
			t.Errorf("%+v", e)
		}
		r.dp.state(func() { clear(r.dp.refuse) })
		time.Sleep(time.Second)
		check(t, "gone", r.dp.routes())
	})
}

func TestUnansweredOpsAreRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.3.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.dp.takeOps()
		// the first is answered, the second happens unheard, the third does not
		r.dp.state(func() { r.dp.sever, r.dp.lost = 1, 1 })
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.3.0.0/26"), nil)
		synctest.Wait()
		r.dp.heal()
		time.Sleep(10 * time.Second)
		ops := r.dp.printOps()
		check(t, "FIB", r.dp.routes(), "10.1.0.0/26 via 10.0.0.2 eth0",
			"10.2.0.0/26 via 10.0.0.2 eth0")
		if n := strings.Count(strings.Join(ops, "\n"), "put 10.1.0.0/26"); n != 1 {
			t.Errorf("the answered op was carried out %d times", n)
		}
	})
}

func TestWhileTheDataPlaneHangsOnlyTheNewestWishCounts(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.hang = true
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		for i := range 100 {
			r.Learn(pfx("10.1.0.0/26"), via(fmt.Sprintf("10.0.0.%d", 2+i)))
			r.Learn(pfx("10.2.0.0/26"), via(fmt.Sprintf("10.0.0.%d", 2+i)))
			synctest.Wait()
		}
		time.Sleep(throttleInterval) // so many changes are a load
		e := r.state("10.2.0.0/26")
		if e.State != Pending || e.Paths[0].NextHop != addr("10.0.0.101") {
			t.Errorf("selection stands still: %+v", e)
		}
		r.dp.heal()
		check(t, "after", r.dp.printOps(),
			"put 10.1.0.0/26 via 10.0.0.2 eth0", "put 10.2.0.0/26 via 10.0.0.101 eth0",
			"put 10.1.0.0/26 via 10.0.0.101 eth0")
	})
}

func TestAdditionsGoBeforeDeletions(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.dp.hang = true
		r.Learn(pfx("10.9.0.0/26"), via("10.0.0.2")) // occupies the applier
		synctest.Wait()
		r.Learn(pfx("10.1.0.0/26"), nil)
		r.Learn(pfx("10.1.0.0/25"), via("10.0.0.2"))
		synctest.Wait()
		r.dp.takeOps()
		r.dp.heal()
		check(t, "order", r.dp.printOps(), "put 10.9.0.0/26 via 10.0.0.2 eth0",
			"put 10.1.0.0/25 via 10.0.0.2 eth0", "del 10.1.0.0/26")
	})
}

func TestRestartOfTheAgentIsQuiet(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		for i := range 100 {
			r.Learn(pfx(fmt.Sprintf("10.1.%d.0/26", i)), via("10.0.0.2", "10.0.1.2"))
		}
		r.SetRoutes(route.Own, []route.Route{drop("10.2.0.0/26")})
		r.idle()
		r.dp.takeOps()
		lists := r.dp.lists

		r.again()
		s := r.Stats()
		if !s.Present || s.Adopted != "journal" || s.AdoptedRoutes != 101 || r.dp.lists != lists {
			t.Fatalf("%+v, %d listings", s, r.dp.lists-lists)
		}
		for i := range 99 {
			r.Learn(pfx(fmt.Sprintf("10.1.%d.0/26", i)), via("10.0.0.2", "10.0.1.2"))
		}
		r.SetRoutes(route.Own, []route.Route{drop("10.2.0.0/26")})
		r.idle()
		check(t, "unchanged routes", r.dp.printOps())
		if !r.Programmed(own("10.2.0.0/26")) {
			t.Error("an adopted own route is acknowledged")
		}
		time.Sleep(time.Hour)
		check(t, "before the sweep", r.dp.printOps())
		if e := r.state("10.1.99.0/26"); e.State != Held {
			t.Errorf("%+v", e)
		}
		r.AllowSweep()
		check(t, "sweep", r.dp.printOps(), "del 10.1.99.0/26")
	})
}

func TestAnAdoptedRouteStaysWhileItsNextHopIsLookedUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.foreign[key("0.0.0.0/0")] = true
		r.Learn(pfx("10.1.0.0/26"), via("192.0.2.1", "192.0.2.2"))
		check(t, "put", r.dp.printOps(), "put 10.1.0.0/26 via 192.0.2.1, 192.0.2.2")
		r.dp.resolveErr = errGone
		r.again()
		r.Learn(pfx("10.1.0.0/26"), via("192.0.2.1", "192.0.2.2"))
		r.AllowSweep()
		time.Sleep(time.Minute)
		check(t, "unanswered", r.dp.printOps())
		r.dp.heal()
		time.Sleep(time.Second)
		check(t, "answered", r.dp.printOps())
	})
}

func TestWithoutJournalOneListing(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.dp.takeOps()
		r.stop()
		os.Remove(r.Engine.keeps.path)
		*r = *start(r.dp, r.Engine.keeps.path)
		synctest.Wait()
		if s := r.Stats(); s.Adopted != "listing" || s.AdoptedRoutes != 2 || r.dp.lists != 2 {
			t.Fatalf("%+v, %d listings", s, r.dp.lists)
		}
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.AllowSweep()
		check(t, "ops", r.dp.printOps(), "del 10.2.0.0/26")
	})
}

func TestLivesOfTheDataPlane(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.dp.takeOps()

		r.dp.tell(route.Facts{Problem: "socket closed"})
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.2"))
		check(t, "away", r.dp.printOps())
		if e := r.state("10.2.0.0/26"); e.State != Pending {
			t.Errorf("what is wanted is kept: %+v", e)
		}
		r.dp.tell(node("a"))
		check(t, "back", r.dp.printOps(), "put 10.2.0.0/26 via 10.0.0.2 eth0")

		r.dp.state(func() { clear(r.dp.ours) })
		r.dp.tell(node("b"))
		ops := r.dp.printOps()
		slices.Sort(ops)
		check(t, "restarted", ops, "put 10.1.0.0/26 via 10.0.0.2 eth0",
			"put 10.2.0.0/26 via 10.0.0.2 eth0")
	})
}

func TestFailedListingIsRepeatedAndNothingWrittenBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dp := newFake(node("a"))
		dp.listErr = errGone
		r := start(dp, "")
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		time.Sleep(time.Minute)
		check(t, "unknown", dp.printOps())
		if dp.lists < 30 || dp.lists > 120 {
			t.Errorf("%d listings in a minute", dp.lists)
		}
		dp.heal()
		time.Sleep(2 * time.Second)
		check(t, "known", dp.printOps(), "put 10.1.0.0/26 via 10.0.0.2 eth0")
		r.stop()
	})
}

func TestInterfaceUnderAnotherIndex(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.AllowSweep()
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
		synctest.Wait()
		r.dp.takeOps()
		f := node("a")
		f.Interfaces[1].Index = 9
		r.dp.tell(f)
		check(t, "while running", r.dp.printOps(), "put 10.2.0.0/26 via 10.0.1.2 eth1")

		r.stop()
		f = node("a")
		f.Interfaces[0].Index = 10
		f.Interfaces[1].Index = 9
		r.dp.now = f
		*r = *start(r.dp, r.Engine.keeps.path)
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
		check(t, "while we were away", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.2 eth0")
	})
}

func TestInterfaceMadeAnewUnderItsOldIndex(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.AllowSweep()
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
		synctest.Wait()
		r.dp.takeOps()
		r.dp.makeEth1Anew()
		check(t, "after its second generation began", r.dp.printOps(),
			"del 10.2.0.0/26", "put 10.2.0.0/26 via 10.0.1.2 eth1")
		check(t, "that lead nowhere", r.dp.printStuck())
	})
}

// More routes than are selected at once: those that are yet to be selected still lead over the
// interface, and are not put over it.
func TestNothingIsPutOverAnInterfaceThatWentDown(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		const routes = 3 * chunk
		r.AllowSweep()
		for i := range routes {
			r.Learn(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32),
				via("10.0.1.2"))
		}
		r.idle()
		r.dp.takeOps()
		f := node("a")
		f.Interfaces[1].Up = false
		f.Interfaces[1].Generation++
		r.dp.tell(f)
		synctest.Wait()
		puts, deletes := 0, 0
		for _, op := range r.dp.takeOps() {
			if op.Delete {
				deletes++
			} else {
				puts++
			}
		}
		if puts != 0 || deletes != routes {
			t.Errorf("%d put, %d deleted, want %d", puts, deletes, routes)
		}
		f.Interfaces[1].Up = true
		r.dp.tell(f)
		synctest.Wait()
		if n := len(r.dp.takeOps()); n != routes {
			t.Errorf("%d ops when it is up again, want %d", n, routes)
		}
	})
}

// What waits in the queue of puts when the interface goes down is not put either.
func TestNothingQueuedIsPutOverAnInterfaceThatWentDown(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.AllowSweep()
		synctest.Wait()
		f := node("a")
		f.Interfaces[1].Up = false
		f.Interfaces[1].Generation++
		r.mu.Lock()
		defer r.mu.Unlock()
		r.selection.learn(BestPaths{Prefix: pfx("10.2.0.0/26"), Paths: via("10.0.1.2")})
		r.selection.selectDirty(chunk)
		r.setFacts(f)
		cut := func() (ops []route.Op) {
			if b := r.sync.cut(false); b != nil { // perhaps for the journal alone
				ops = b.ops
				r.sync.finish(b)
			}
			return ops
		}
		if ops := cut(); len(ops) > 0 {
			t.Errorf("it is put all the same: %v", ops)
		}
		r.selection.selectDirty(chunk)
		if ops := cut(); len(ops) > 0 {
			t.Errorf("it is put over what is down: %v", ops)
		}
		r.setFacts(node("a"))
		r.selection.selectDirty(chunk)
		if ops := cut(); len(ops) != 1 {
			t.Errorf("it is not put when the interface is up again: %v", ops)
		}
	})
}

// What is yet to be selected may be over an interface that no path set leads over just now.
func TestInterfaceMadeAnewWhileItsRoutesWaitForSelection(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.AllowSweep()
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
		var external []route.Route
		for i := range chunk { // selected first, and nothing follows from that
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32)
			external = append(external, drop(p.String()))
			r.Learn(p, via("10.0.1.2"))
		}
		r.SetRoutes(route.External, external)
		time.Sleep(time.Second) // the engine may be between two batches
		synctest.Wait()
		r.dp.takeOps()
		f := node("a")
		f.Interfaces[1].Up = false
		r.mu.Lock()
		r.setFacts(f)
		r.selection.selectDirty(chunk)
		r.mu.Unlock()
		f = node("a")
		f.Interfaces[1].Generation++
		r.dp.tell(f)
		check(t, "ops", r.dp.printOps(),
			"del 10.2.0.0/26", "put 10.2.0.0/26 via 10.0.1.2 eth1")
	})
}

// While the data plane is away none is put: they would all get the path of the last one.
func TestRoutesOverAnInterfaceMadeAnewGoBeforeAnyIsPut(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.AllowSweep()
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
		r.Learn(pfx("10.2.1.0/26"), via("10.0.1.2"))
		synctest.Wait()
		r.dp.takeOps()
		r.dp.state(func() { r.dp.sever = 1 })
		r.dp.makeEth1Anew()
		synctest.Wait()
		r.dp.heal()
		time.Sleep(time.Minute)
		check(t, "ops", r.dp.printOps(), "del 10.2.0.0/26", "del 10.2.1.0/26",
			"put 10.2.0.0/26 via 10.0.1.2 eth1", "put 10.2.1.0/26 via 10.0.1.2 eth1")
		check(t, "that lead nowhere", r.dp.printStuck())
	})
}

// One of them is not touched until a next hop has been looked up, and the others are put meanwhile.
func TestRouteThatWaitsOverAnInterfaceMadeAnew(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.AllowSweep()
		r.dp.foreign[key("192.0.2.0/24")] = true
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
		r.Learn(pfx("10.2.1.0/26"), via("10.0.1.2"))
		synctest.Wait()
		r.dp.state(func() { r.dp.resolveErr = errGone })
		r.Learn(pfx("10.2.0.0/26"), via("192.0.2.7"))
		synctest.Wait()
		r.dp.makeEth1Anew()
		time.Sleep(time.Minute)
		r.dp.state(func() { r.dp.resolveErr = nil })
		time.Sleep(time.Minute)
		check(t, "routes", r.dp.routes(), "10.2.0.0/26 via 192.0.2.7",
			"10.2.1.0/26 via 10.0.1.2 eth1")
		check(t, "that lead nowhere", r.dp.printStuck())
	})
}

// One of them is to become a drop, which the data plane refuses for a while, before or after a
// restart.
func TestRouteThatIsNotReplacedOverAnInterfaceMadeAnew(t *testing.T) {
	for name, restart := range map[string]bool{"at once": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *running) {
				over := func(s string) route.Route {
					return route.Route{Key: key(s), Paths: via("10.0.1.2")}
				}
				a, b := over("10.2.0.0/26"), over("10.2.1.0/26")
				changed := []route.Route{{Key: a.Key, Kind: route.Drop}, b}
				r.AllowSweep()
				r.SetRoutes(route.Etcd, []route.Route{a, b})
				synctest.Wait()
				r.dp.state(func() { r.dp.refuse[a.Key] = errGone })
				if r.SetRoutes(route.Etcd, changed); restart {
					synctest.Wait()
					r.stop()
					*r = *start(r.dp, r.Engine.keeps.path)
					synctest.Wait()
					r.dp.makeEth1Anew()
					synctest.Wait()
					r.SetRoutes(route.Etcd, changed)
					r.AllowSweep()
				}
				synctest.Wait()
				if !restart {
					r.dp.makeEth1Anew()
				}
				synctest.Wait()
				r.dp.heal()
				time.Sleep(time.Minute)
				check(t, "routes", r.dp.routes(), "10.2.0.0/26 drop",
					"10.2.1.0/26 via 10.0.1.2 eth1")
				check(t, "that lead nowhere", r.dp.printStuck())
			})
		})
	}
}

// A new route gets the path of one that is there, also of one that is on its way out.
func TestRouteThatReplacesOneOverAnInterfaceMadeAnew(t *testing.T) {
	for name, factsFirst := range map[string]bool{"facts first": true, "facts last": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *running) {
				r.AllowSweep()
				r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
				synctest.Wait()
				r.dp.takeOps()
				if factsFirst {
					r.dp.makeEth1Anew()
				}
				r.Learn(pfx("10.2.0.0/26"), nil)
				r.Learn(pfx("10.2.1.0/26"), via("10.0.1.2"))
				if !factsFirst {
					r.dp.makeEth1Anew()
				}
				time.Sleep(time.Minute)
				r.dp.printOps()
				check(t, "routes", r.dp.routes(), "10.2.1.0/26 via 10.0.1.2 eth1")
				check(t, "that lead nowhere", r.dp.printStuck())
			})
		})
	}
}

// One deletion that is refused holds up no other route, and shows.
func TestRefusedDeletionOfARouteOverAnInterfaceMadeAnew(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.AllowSweep()
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
		r.Learn(pfx("10.2.1.0/26"), via("10.0.1.2"))
		synctest.Wait()
		r.dp.takeOps()
		r.dp.state(func() { r.dp.refuse[key("10.2.0.0/26")] = errors.New("no") })
		r.dp.makeEth1Anew()
		synctest.Wait()
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		time.Sleep(time.Minute)
		check(t, "ops", r.dp.printOps(), "del 10.2.1.0/26", "put 10.2.1.0/26 via 10.0.1.2 eth1",
			"put 10.1.0.0/26 via 10.0.0.2 eth0")
		if s := r.Stats(); s.Errors < 5 || s.Errors > 20 || s.Refusal == nil {
			t.Errorf("%d refusals, the last %v", s.Errors, s.Refusal)
		}
		r.dp.state(func() { clear(r.dp.refuse) })
		time.Sleep(time.Minute)
		// What was put meanwhile had the path of one that led nowhere.
		check(t, "ops", r.dp.printOps(), "del 10.2.0.0/26", "del 10.2.1.0/26",
			"put 10.2.0.0/26 via 10.0.1.2 eth1", "put 10.2.1.0/26 via 10.0.1.2 eth1")
		check(t, "what leads nowhere", r.dp.printStuck())
	})
}

// What a listing shows was put before an interface was made anew: the routes over it are put again,
// and no others.
func TestInterfaceMadeAnewWhileTheDataPlaneIsListed(t *testing.T) {
	for name, ours := range map[string][]string{
		"with routes over it": {"eth0", "eth1"}, "with nothing to adopt": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dp := newFake(route.Facts{Problem: "not there yet"})
				for i, over := range ours {
					k := key(fmt.Sprintf("10.1.%d.0/26", i))
					dp.ours[k] = route.Route{
						Key: k, Paths: []route.Path{
							{
								NextHop:   addr(fmt.Sprintf("10.0.%d.2", i)),
								Interface: over, Weight: 1,
							},
						},
					}
				}
				r := startWith(dp, Config{})
				defer r.stop()
				r.AllowSweep()
				dp.listing = func() {
					f := node("a")
					f.Interfaces[1].Generation++
					f.Interfaces[2].Index = 9
					dp.state(func() { dp.stick("eth1") })
					dp.tell(f)
					time.Sleep(time.Millisecond)
					for i := range ours {
						r.Learn(pfx(fmt.Sprintf("10.1.%d.0/26", i)),
							via(fmt.Sprintf("10.0.%d.2", i)))
					}
					time.Sleep(time.Millisecond)
				}
				dp.tell(node("a"))
				time.Sleep(time.Minute)
				check(t, "that lead nowhere", dp.printStuck())
				check(t, "ops", dp.printOps(), []string{"del 10.1.1.0/26",
					"put 10.1.1.0/26 via 10.0.1.2 eth1"}[:len(ours)]...)
				if s := r.Stats(); s.AdoptedRoutes != len(ours) || r.sync.suspect != nil {
					t.Errorf("%+v; the doubt about %v has not ended", s, r.sync.suspect)
				}
			})
		})
	}
}

// An interface that was made anew while the agent was away looks as before. Spot checks find it,
// once the routes over it are known or before.
func TestInterfaceMadeAnewWhileTheAgentWasAway(t *testing.T) {
	for name, late := range map[string]time.Duration{"routes at once": 0, "late": time.Minute} {
		t.Run(name, func(t *testing.T) {
			watchful(t, false, 3, func(t *testing.T, r *running) {
				r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
				r.Learn(pfx("10.2.1.0/26"), via("10.0.1.2", "10.0.0.2"))
				synctest.Wait()
				r.stop()
				r.dp.stick("eth1")
				r.dp.takeOps()
				journal := r.Engine.keeps.path
				said := &bytes.Buffer{} // nobody writes to it while the bubble's clock stands
				*r = *startWith(r.dp, Config{Journal: journal, Tuning: Tuning{SpotChecks: 5},
					Log: slog.New(slog.NewTextHandler(said, nil))})
				time.Sleep(late)
				check(t, "before the routes are known", r.dp.printOps())
				for _, p := range []string{one, two, three} {
					r.Learn(pfx(p), via("10.0.0.2"))
				}
				r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
				r.Learn(pfx("10.2.1.0/26"), via("10.0.1.2", "10.0.0.2"))
				time.Sleep(time.Minute)
				check(t, "that lead nowhere", r.dp.printStuck())
				check(t, "ops", r.dp.printOps(), "del 10.2.0.0/26", "del 10.2.1.0/26",
					"put 10.2.0.0/26 via 10.0.1.2 eth1",
					"put 10.2.1.0/26 via 10.0.0.2 eth0, 10.0.1.2 eth1")
				const kept = "a route of another program keeps a path that leads nowhere"
				if strings.Contains(said.String(), kept) {
					t.Errorf("none does: %s", said)
				}
				r.dp.state(func() { r.dp.stick("eth1") }) // as if another's routes kept the path
				time.Sleep(time.Minute)
				check(t, "again", r.dp.printOps())
				if !strings.Contains(said.String(), kept) {
					t.Errorf("it does not say so: %s", said)
				}
				r.dp.tell(route.Facts{Problem: "away"})
				synctest.Wait()
				r.dp.tell(node("a"))
				time.Sleep(time.Minute)
				if len(r.dp.printOps()) == 0 {
					t.Error("after a reconnect nothing is put again")
				}
			})
		})
	}
}

// An interface goes and comes back under its index before the routes over it could be deleted.
func TestInterfaceIsBackBeforeItsRoutesAreDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
		r.Learn(pfx("10.2.1.0/26"), via("10.0.1.2"))
		synctest.Wait()
		r.dp.state(func() { r.dp.hang = true; r.dp.stick("eth1") })
		r.Learn(pfx("10.3.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		gone, back := node("a"), node("a")
		gone.Interfaces = slices.Delete(gone.Interfaces, 1, 2)
		back.Interfaces[1].Generation++
		for _, f := range []route.Facts{gone, back} {
			r.dp.tell(f)
			synctest.Wait()
		}
		r.dp.state(func() { r.dp.hang = false; close(r.dp.release) })
		time.Sleep(time.Minute)
		check(t, "that lead nowhere", r.dp.printStuck())
	})
}

// What was adopted is not known yet to lead over the interface. Until all of it is known, a new
// route may get the path of one that leads nowhere.
func TestInterfaceMadeAnewBeforeAdoptedRoutesAreKnown(t *testing.T) {
	for name, restarts := range map[string]bool{"one process": false, "two": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *running) {
				r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
				r.Learn(pfx("10.2.1.0/26"), via("10.0.1.2"))
				synctest.Wait()
				r.again()
				r.dp.takeOps()
				r.dp.makeEth1Anew()
				r.Learn(pfx("10.2.2.0/26"), via("10.0.1.2"))
				r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
				synctest.Wait()
				if restarts {
					r.again()
					r.Learn(pfx("10.2.2.0/26"), via("10.0.1.2"))
					r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
				}
				r.Learn(pfx("10.2.1.0/26"), via("10.0.1.2"))
				time.Sleep(time.Minute)
				check(t, "that lead nowhere", r.dp.printStuck())
				if r.sync.suspect != nil || r.sync.anew != nil {
					t.Errorf("doubt about %v has not ended", r.sync.suspect)
				}
				r.dp.takeOps()
				r.again()
				r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
				r.Learn(pfx("10.2.1.0/26"), via("10.0.1.2"))
				r.Learn(pfx("10.2.2.0/26"), via("10.0.1.2"))
				check(t, "and once only", r.dp.printOps())
			})
		})
	}
}

func TestInterfaceChangesItsIndexWhileABatchIsInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.hang = true
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
		synctest.Wait()
		f := node("a")
		f.Interfaces[1].Index = 9
		r.dp.tell(f)
		synctest.Wait()
		r.dp.heal()
		check(t, "ops", r.dp.printOps(), "put 10.2.0.0/26 via 10.0.1.2 eth1",
			"put 10.2.0.0/26 via 10.0.1.2 eth1")
	})
}

func TestRestartBeforeRoutesOverAChangedInterfaceWerePutAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.1.2"))
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
		synctest.Wait()
		r.dp.state(func() { r.dp.resolveErr = errGone })
		// waits for a look-up, and stays as it is
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2", "192.0.2.1"))
		f := node("a")
		f.Interfaces[1].Index = 9
		r.dp.tell(f)
		check(t, "before", r.dp.printOps()[2:], "put 10.1.0.0/26 via 10.0.1.2 eth1")
		r.again()
		r.Learn(pfx("10.1.0.0/26"), via("10.0.1.2"))
		r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
		check(t, "after", r.dp.printOps(), "put 10.2.0.0/26 via 10.0.1.2 eth1")
	})
}

func TestInterfaceThatChangedTwoProcessesAgo(t *testing.T) {
	hops := map[string]string{"10.1.0.0/26": "10.0.0.2", "10.2.0.0/26": "10.0.1.2",
		"10.3.0.0/26": "10.0.0.2"}
	for name, order := range map[string][]string{
		"the doubt ends with a write": {"10.1.0.0/26", "10.3.0.0/26", "10.2.0.0/26"},
		"the doubt ends without one":  {"10.1.0.0/26", "10.2.0.0/26", "10.3.0.0/26"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *running) {
				learn := func(prefix string) {
					r.Learn(pfx(prefix), via(hops[prefix]))
					synctest.Wait()
				}
				learn("10.1.0.0/26")
				learn("10.2.0.0/26")
				gone := node("a")
				gone.Interfaces = slices.Delete(gone.Interfaces, 1, 2)
				r.stop()
				r.dp.now = gone
				r.again()
				learn("10.3.0.0/26") // is written while eth1 is away and 10.2.0.0/26 held
				back := node("a")
				back.Interfaces[1].Index = 9
				r.stop()
				r.dp.now = back
				r.again()
				r.dp.takeOps()
				for _, prefix := range order {
					learn(prefix)
				}
				check(t, "ops", r.dp.printOps(), "put 10.2.0.0/26 via 10.0.1.2 eth1")
				r.AllowSweep()
				r.again()
				learn("10.2.0.0/26")
				check(t, "and once only", r.dp.printOps())
			})
		})
	}
}

func TestAnswersFromAnEarlierLifeCountForNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.hang, r.dp.ghost = true, true
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.dp.tell(node("b"))
		synctest.Wait()
		r.dp.heal()
		check(t, "FIB", r.dp.routes(), "10.1.0.0/26 via 10.0.0.2 eth0")
	})
}

// A batch may wait for the disk while the data plane is restarted. What it would make in the next
// one would count as another's.
func TestABatchOfAnEarlierLifeIsNotCarriedOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.tell(node("b"))
		synctest.Wait()
		for _, tc := range []struct {
			generation int
			want       string
		}{{1, ""}, {2, "put 10.1.0.0/26 drop"}} {
			b := &batch{generation: tc.generation, done: make([]bool, 1), last: 1,
				ops: []route.Op{{Route: drop("10.1.0.0/26")}}}
			r.carryOut(t.Context(), &journal{}, b)
			got := strings.Join(r.dp.printOps(), ", ")
			if got != tc.want || b.void != (tc.want == "") {
				t.Errorf("generation %d: %q, void: %t", tc.generation, got, b.void)
			}
		}
	})
}

func TestANextHopUnderASweptRouteIsLookedUpAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.foreign[key("0.0.0.0/0")] = true
		r.Learn(pfx("192.0.2.0/24"), via("10.0.0.2"))
		synctest.Wait()
		r.again()
		r.Learn(pfx("10.1.0.0/26"), via("192.0.2.1"))
		time.Sleep(time.Second + 10*time.Millisecond) // between two turns of the rotation
		check(t, "before", r.dp.routes(), "192.0.2.0/24 via 10.0.0.2 eth0")
		r.AllowSweep()
		check(t, "after", r.dp.routes(), "10.1.0.0/26 via 192.0.2.1")
	})
}

func TestAnInterfaceOfAPodWritesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.dp.takeOps()
		for i := range 10 {
			f := node("a")
			f.Interfaces = append(f.Interfaces, route.Interface{
				Name: "tap1", Index: uint32(20 + i), Up: true,
			})
			r.dp.tell(f)
			synctest.Wait()
			r.dp.tell(node("a"))
			synctest.Wait()
		}
		check(t, "ops", r.dp.printOps())
	})
}

func TestRoutesThatResolveThroughEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.foreign[key("0.0.0.0/0")] = true
		r.Engine.Learn(BestPaths{Prefix: pfx("10.9.0.0/24"), Paths: via("10.8.0.5")}, // at once
			BestPaths{Prefix: pfx("10.8.0.0/24"), Paths: via("10.9.0.5")})
		time.Sleep(10 * time.Minute)
		check(t, "neither is ever programmed", r.dp.printOps())
		e := r.state("10.9.0.0/24")
		if e.State != Unusable ||
			!strings.Contains(e.Reason.String(), "through our own route 10.8.0.0/24") {
			t.Errorf("%+v", e)
		}
		r.Learn(pfx("10.8.0.0/24"), nil)
		time.Sleep(time.Second)
		check(t, "alone it is", r.dp.printOps(), "put 10.9.0.0/24 via 10.8.0.5")
	})
}

func TestNextHopsAreFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("192.0.2.1"))
		r.Learn(pfx("10.2.0.0/26"), via("192.0.2.2"))
		r.Learn(pfx("10.3.0.0/26"), via("192.0.2.2", "10.0.0.2"))
		time.Sleep(500 * time.Millisecond)
		check(t, "no route to them", r.dp.printOps(), "put 10.3.0.0/26 via 10.0.0.2 eth0")
		if u := r.UnusableNextHops(); len(u) != 0 {
			t.Errorf("reported too early: %v", u)
		}
		signalled(r.Changed())
		time.Sleep(600 * time.Millisecond)
		if u := r.UnusableNextHops(); len(u) != 2 || u[0].Address != addr("192.0.2.1") ||
			u[0].Reason.String() != "there is no route to next hop 192.0.2.1" ||
			!signalled(r.Changed()) {
			t.Errorf("not reported: %v", u)
		}

		r.Learn(pfx("10.1.0.0/26"), nil) // BGP rejects it now
		time.Sleep(time.Minute)
		if u := r.UnusableNextHops(); len(u) != 2 {
			t.Errorf("forgotten, so that BGP would take it back at once: %v", u)
		}

		r.dp.state(func() { r.dp.foreign[key("192.0.2.0/24")] = true })
		time.Sleep(time.Second)
		check(t, "a route appears", r.dp.printOps(), "put 10.2.0.0/26 via 192.0.2.2")
		if u := r.UnusableNextHops(); len(u) != 0 || !signalled(r.Changed()) {
			t.Errorf("still reported: %v", u)
		}
		n := 0
		r.dp.state(func() { n = r.dp.lookups })
		time.Sleep(time.Minute)
		r.dp.state(func() { n = r.dp.lookups - n })
		if n < 1000 || n > 1200 {
			t.Errorf("%d look-ups in a minute, want 20/s", n)
		}
	})
}

func TestAForgottenNextHopIsNotReportedForEver(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("192.0.2.1"))
		time.Sleep(2 * time.Second)
		if u := r.UnusableNextHops(); len(u) != 0 {
			t.Errorf("%v, though BGP has nothing better", u)
		}
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.2"))
		time.Sleep(2 * time.Second)
		r.Learn(pfx("10.1.0.0/26"), nil)
		r.Learn(pfx("10.2.0.0/26"), nil)
		time.Sleep(time.Minute)
		if u := r.UnusableNextHops(); len(u) != 1 {
			t.Errorf("%v, want 192.0.2.1", u)
		}
		time.Sleep(2 * time.Hour)
		if u := r.UnusableNextHops(); len(u) != 0 || r.Stats().NextHops != 0 {
			t.Errorf("%v, %d tracked", u, r.Stats().NextHops)
		}
	})
}

func TestAPeerIsReportedAsNextHopOnlyWherePathsNameIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Protect([]netip.Addr{addr("10.0.0.1")}, []netip.Addr{addr("192.0.2.1")})
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.2"))
		time.Sleep(time.Minute)
		if u := r.UnusableNextHops(); len(u) != 0 {
			t.Errorf("%v is reported, but only protected", u)
		}
		r.Learn(pfx("10.1.0.0/26"), via("192.0.2.1"))
		synctest.Wait()
		r.Learn(pfx("10.1.0.0/26"), nil)
		time.Sleep(time.Minute)
		if u := r.UnusableNextHops(); len(u) != 1 || u[0].Address != addr("192.0.2.1") {
			t.Errorf("%v, want the peer that a path named", u)
		}
		time.Sleep(2 * time.Hour)
		if u := r.UnusableNextHops(); len(u) != 0 {
			t.Errorf("%v for ever", u)
		}
	})
}

func TestEtcdStepsInWhereBGPIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.Etcd, []route.Route{
			{Key: key("10.1.0.64/26"), Paths: via("10.0.0.2")},
			{Key: key("10.1.0.5/32"), Paths: via("10.0.0.3")},
		})
		if n := len(r.dp.printOps()); n != 2 {
			t.Errorf("%d ops", n)
		}
		r.Learn(pfx("10.1.0.0/24"), via("10.0.1.2"))
		check(t, "BGP covers", r.dp.printOps(), "put 10.1.0.0/24 via 10.0.1.2 eth1")
		time.Sleep(coverHold)
		both := r.dp.printOps()
		slices.Sort(both) // they come in no order
		check(t, "for longer than a moment", both, "del 10.1.0.5/32", "del 10.1.0.64/26")
		r.Learn(pfx("10.1.0.0/24"), nil)
		check(t, "BGP is gone", r.dp.printOps(), "put 10.1.0.5/32 via 10.0.0.3 eth0",
			"put 10.1.0.64/26 via 10.0.0.2 eth0", "del 10.1.0.0/24")
	})
}

func TestAPeerIsNotCutOff(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.foreign[key("0.0.0.0/0")] = true
		r.Protect(nil, []netip.Addr{addr("192.0.2.1")})
		r.Learn(pfx("192.0.2.0/24"), via("10.0.0.2"))
		r.Learn(pfx("0.0.0.0/0"), via("10.0.0.254"))
		check(t, "the default only", r.dp.printOps(), "put 0.0.0.0/0 via 10.0.0.254 eth0")
		r.Protect(nil, nil)
		check(t, "no peer any more", r.dp.printOps(), "put 192.0.2.0/24 via 10.0.0.2 eth0")
	})
}

func TestServicesAreKeptOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		ops := func() []string { return slices.Sorted(slices.Values(r.dp.printOps())) }
		r.Learn(pfx("10.96.0.0/12"), via("10.0.0.2"))
		r.Learn(pfx("10.97.0.1/32"), via("10.0.0.2"))
		r.Learn(pfx("10.0.0.0/8"), via("10.0.0.3"))
		check(t, "nothing kept out", ops(), "put 10.0.0.0/8 via 10.0.0.3 eth0",
			"put 10.96.0.0/12 via 10.0.0.2 eth0", "put 10.97.0.1/32 via 10.0.0.2 eth0")
		r.KeepOut([]netip.Prefix{pfx("10.96.0.0/12")})
		check(t, "kept out", ops(), "del 10.96.0.0/12", "del 10.97.0.1/32")
		r.Learn(pfx("10.97.0.2/32"), via("10.0.0.2"))
		check(t, "and what comes later", ops())
		shown := r.state("10.97.0.2/32")
		want := "it lies in 10.96.0.0/12, a range of service addresses, which are not " +
			"reached by BGP routes"
		if fmt.Sprint(shown.Reason) != want {
			t.Errorf("shown as %+v", shown)
		}
		r.KeepOut(nil)
		check(t, "let in", ops(), "put 10.96.0.0/12 via 10.0.0.2 eth0",
			"put 10.97.0.1/32 via 10.0.0.2 eth0", "put 10.97.0.2/32 via 10.0.0.2 eth0")
	})
}

// Single addresses come and go beside a range, and with it.
func TestSingleServicesAreKeptOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		ops := func() []string { return slices.Sorted(slices.Values(r.dp.printOps())) }
		r.Learn(pfx("10.97.0.1/32"), via("10.0.0.2"))
		r.Learn(pfx("10.97.0.2/32"), via("10.0.0.2"))
		ops()
		r.KeepOut([]netip.Prefix{pfx("10.97.0.1/32"), pfx("192.0.2.0/24")})
		check(t, "one", ops(), "del 10.97.0.1/32")
		r.KeepOut([]netip.Prefix{pfx("10.97.0.2/32"), pfx("192.0.2.0/24")})
		check(t, "the other", ops(), "del 10.97.0.2/32", "put 10.97.0.1/32 via 10.0.0.2 eth0")
		r.KeepOut([]netip.Prefix{pfx("10.97.0.0/24"), pfx("10.97.0.2/32")})
		check(t, "both", ops(), "del 10.97.0.1/32")
		r.KeepOut([]netip.Prefix{pfx("10.97.0.2/32")})
		check(t, "without the range", ops(), "put 10.97.0.1/32 via 10.0.0.2 eth0")
		r.KeepOut(nil)
		check(t, "none", ops(), "put 10.97.0.2/32 via 10.0.0.2 eth0")
	})
}

// A route that is kept out covers no next hop any more, and did so before although it is not
// usable itself: as in BIRD, the longest match among all routes counts.
func TestNextHopsAmongServicesAreLookedAtAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.foreign[key("0.0.0.0/0")] = true
		r.Learn(pfx("10.96.0.0/12"), via("10.0.0.1")) // our own address
		r.Learn(pfx("10.5.0.0/24"), via("10.97.0.1"))
		check(t, "behind a route of ours", r.dp.printOps())
		r.KeepOut([]netip.Prefix{pfx("10.96.0.0/12")})
		check(t, "kept out", r.dp.printOps(), "put 10.5.0.0/24 via 10.97.0.1")
		r.KeepOut(nil)
		check(t, "let in", r.dp.printOps(), "del 10.5.0.0/24")
	})
}

func TestUnwritableJournalIsShownAndNotBelieved(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.stop()
		path := r.Engine.keeps.path
		os.Remove(path)
		if err := os.Mkdir(path, 0o700); err != nil { // permissions would not stop root
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(path, "occupied"), nil, 0o600)
		*r = *start(r.dp, path)
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.3"))
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.3"))
		synctest.Wait()
		check(t, "it goes on", r.dp.routes(), "10.1.0.0/26 via 10.0.0.3 eth0",
			"10.2.0.0/26 via 10.0.0.3 eth0")
		if s := r.Stats(); s.Journal.Problem == "" || s.Adopted != "listing" {
			t.Errorf("%+v", s)
		}
		os.RemoveAll(path)
		time.Sleep(time.Minute)
		r.Learn(pfx("10.2.0.0/26"), nil)
		synctest.Wait()
		if s := r.Stats(); s.Journal.Problem != "" {
			t.Errorf("%+v", s)
		}
		r.dp.takeOps()
		r.again()
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.3"))
		r.AllowSweep()
		check(t, "the new journal is whole", r.dp.printOps())
		if s := r.Stats(); s.Adopted != "journal" {
			t.Errorf("%+v", s)
		}
	})
}

func TestStatsAndFilters(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.refuse[key("10.3.0.0/26")] = fmt.Errorf("no")
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26")})
		r.Learn(pfx("10.2.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("fd10::/64"), via("fd00::2"))
		r.Learn(pfx("127.0.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		if s := r.Stats(); s.Put != 3 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
		r.Learn(pfx("10.3.0.0/26"), via("10.0.0.2"))
		time.Sleep(time.Second)
		s := r.Stats()
		want := []Count{
			{Origin: route.Own, Desired: 1, Programmed: 1},
			{Origin: route.BGP, Desired: 2, Programmed: 1, Failed: 1, Unusable: 1},
			{IPv6: true, Origin: route.BGP, Desired: 1, Programmed: 1},
		}
		if !slices.Equal(s.Routes, want) || s.Errors == 0 {
			t.Errorf("%+v", s)
		}
		programmed, failed := len(inState(r.Engine, Programmed)), len(inState(r.Engine, Failed))
		if programmed != 3 || failed != 1 {
			t.Errorf("%d programmed, %d failed", programmed, failed)
		}
		for within, want := range map[netip.Prefix]int{
			{}: 5, pfx("fd10::/64"): 1, pfx("fd10::/65"): 1, pfx("fd10::/16"): 1,
			pfx("fd11::/64"): 0,
		} {
			if n := len(r.Entries(within)); n != want {
				t.Errorf("%v: %d entries, want %d", within, n, want)
			}
		}
	})
}

// Entries is all of List.
func (e *Engine) Entries(within netip.Prefix) []Entry { return slices.Collect(e.List(within)) }

// inState are the entries in one state.
func inState(e *Engine, s State) []Entry {
	return slices.DeleteFunc(e.Entries(netip.Prefix{}), func(x Entry) bool { return x.State != s })
}

func TestForeignRoutesAreNeverNamed(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.foreign[key("10.1.0.0/26")] = true
		r.AllowSweep()
		time.Sleep(time.Hour)
		check(t, "ops", r.dp.printOps())
	})
}

// own is the drop route of an own block, as wanted by its origin.
func own(prefix string) route.Route {
	r := drop(prefix)
	r.Origin = route.Own
	return r
}

func TestAnotherOriginsRouteIsNotOurs(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		if r.Programmed(own("10.1.0.0/26")) {
			t.Error("a learned route counts as the drop route for the same prefix")
		}
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26")})
		time.Sleep(time.Second)
		synctest.Wait()
		if !r.Programmed(own("10.1.0.0/26")) {
			t.Error("not acknowledged")
		}
	})
}

// Where paths need an interface of their own (Facts.AttachedOnly), one without addresses that goes
// down takes the routes by its neighbours along.
func TestANeighbourBehindAnInterfaceThatGoesDown(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		for _, up := range []bool{true, false, true} {
			f := node("a")
			f.AttachedOnly = true
			f.Interfaces = append(f.Interfaces, route.Interface{Name: "tunl9", Index: 9, Up: up})
			r.dp.state(func() {
				r.dp.foreign[key("192.0.2.0/24")] = true
				r.dp.by = map[route.Key]string{key("192.0.2.0/24"): "tunl9"}
			})
			r.dp.tell(f)
			r.Learn(pfx("10.1.0.0/26"), via("192.0.2.1"))
			time.Sleep(time.Second)
			if s := r.state("10.1.0.0/26"); (s.State == Programmed) != up {
				t.Errorf("up %v: %s, %s", up, s.State, s.Reason)
			}
		}
	})
}

// An interface that is missing when the agent comes back is made under its old index before all
// that was adopted is known.
func TestInterfaceThatComesBackBeforeAdoptedRoutesAreKnown(t *testing.T) {
	for _, how := range []string{"journal", "listing"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *running) {
				learn := func() {
					r.Learn(pfx("10.2.0.0/26"), via("10.0.1.2"))
					r.Learn(pfx("10.2.1.0/26"), via("10.0.1.2"))
					synctest.Wait()
				}
				learn()
				dp := r.dp
				r.stop()
				without := node("a")
				without.Interfaces = slices.Delete(without.Interfaces, 1, 2)
				dp.tell(without)
				comesBack := func() {
					dp.state(func() { dp.stick("eth1") })
					dp.tell(node("a"))
					time.Sleep(time.Millisecond)
				}
				journal := r.Engine.keeps.path
				if how == "listing" {
					journal = filepath.Join(t.TempDir(), "new")
					dp.listing = sync.OnceFunc(comesBack)
				}
				*r = *start(dp, journal)
				synctest.Wait()
				if how == "journal" {
					comesBack()
				}
				learn()
				time.Sleep(time.Minute)
				check(t, "that lead nowhere", dp.printStuck())
			})
		})
	}
}
