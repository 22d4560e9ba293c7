package fib

import (
	"net/netip"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

func external(prefixes ...string) (out []route.Route) {
	for _, p := range prefixes {
		out = append(out, route.Route{Key: key(p), Paths: via("10.0.0.3")})
	}
	return out
}

// A block comes after the route, and goes before it.
func TestExternalRoutesStayOutOfOwnBlocks(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.SetRoutes(route.External, external("10.1.0.5/32", "10.1.1.0/24"))
		synctest.Wait()
		r.dp.printOps()
		r.SetRoutes(route.Own, []route.Route{{Key: key("10.1.0.0/26"), Kind: route.Drop}})
		synctest.Wait()
		check(t, "a block around one", r.dp.printOps(), "put 10.1.0.0/26 drop", "del 10.1.0.5/32")
		found, _ := r.Find([]route.Key{key("10.1.0.5/32"), key("10.1.1.0/24"), key("10.1.9.0/24")})
		if f := found[0]; f.State != Unusable || f.Reason.Waits() {
			t.Errorf("%+v is not refused for good", f)
		}
		if found[1].State != Programmed || found[2].State != Any {
			t.Errorf("found %+v", found)
		}
		r.SetRoutes(route.Own, nil)
		synctest.Wait()
		check(t, "no block", r.dp.printOps(), "put 10.1.0.5/32 via 10.0.0.3 eth0",
			"del 10.1.0.0/26")
	})
}

// Find saves the reason where there is none, and no other.
func TestFindSaysWhyAPathIsLeftOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		all := external("10.1.0.0/24", "10.1.1.0/24")
		all[1].Paths = append(via("10.0.0.3"), route.Path{Interface: "missing", Weight: 1})
		r.SetRoutes(route.External, all)
		synctest.Wait()
		found, _ := r.Find([]route.Key{all[0].Key, all[1].Key})
		for i, want := range []string{"", "there is no interface missing"} {
			f := found[i]
			if f.State != Programmed || len(f.Paths) != 1 || f.Reason.String() != want {
				t.Errorf("%v: %v, reason %q, want %q", f.Key, f.State, f.Reason, want)
			}
		}
	})
}

func TestBackupRoutesGiveWayToBGPAndComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startWith(newFake(node("a")), Config{
			Journal:   filepath.Join(t.TempDir(), "journal"),
			Distances: map[route.Origin]uint8{route.External: 200},
		})
		defer r.stop()
		r.SetRoutes(route.External, external("10.1.0.5/32", "10.1.1.0/24"))
		r.Learn(pfx("0.0.0.0/0"), via("10.0.0.2"))
		synctest.Wait()
		check(t, "a default route is no cover", r.dp.printOps(),
			"put 10.1.0.5/32 via 10.0.0.3 eth0", "put 10.1.1.0/24 via 10.0.0.3 eth0",
			"put 0.0.0.0/0 via 10.0.0.2 eth0")
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.1.1.0/24"), via("10.0.0.2"))
		time.Sleep(2 * coverHold)
		synctest.Wait()
		check(t, "BGP has them", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.2 eth0",
			"put 10.1.1.0/24 via 10.0.0.2 eth0", "del 10.1.0.5/32")
		found, _ := r.Find([]route.Key{key("10.1.0.5/32"), key("10.1.1.0/24")})
		if f := found[0]; f.State != Unusable || !f.Reason.Waits() {
			t.Errorf("%+v does not wait for BGP to go", f)
		}
		if f := found[1]; f.Origin != route.BGP {
			t.Errorf("%+v is not BGP's", f)
		}
		<-r.ExternalChanged() // of before
		r.Learn(pfx("10.1.0.0/26"), nil)
		synctest.Wait()
		check(t, "the cover is gone", r.dp.printOps(),
			"put 10.1.0.5/32 via 10.0.0.3 eth0", "del 10.1.0.0/26")
		r.Learn(pfx("10.1.1.0/24"), nil)
		synctest.Wait()
		check(t, "BGP is gone", r.dp.printOps(), "put 10.1.1.0/24 via 10.0.0.3 eth0")
		select {
		case <-r.ExternalChanged():
		default:
			t.Error("no signal that external routes changed")
		}
	})
}

func TestExternalConfigurationHearsOfObjectsAndFacts(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		signalled := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-r.ExternalChanged():
			default:
				t.Errorf("%s: no signal", what)
			}
		}
		signalled("the start")
		f := node("a")
		f.Interfaces[0].Addresses = nil
		r.dp.tell(f)
		signalled("another address")
		r.setObjects(route.External, on("eth0", "192.168.4.7/24"))
		signalled("an object")
		r.dp.state(func() { r.dp.lookupErr = errGone })
		time.Sleep(2 * objectInterval)
		signalled("a look-up fails")
		r.dp.state(func() { r.dp.lookupErr = nil })
		r.dp.tell(node("a"))

		r.SetRoutes(route.External, external("10.1.1.0/24"))
		signalled("a route")
		r.dp.state(func() { r.dp.hang = true })
		r.SetRoutes(route.External, nil)
		signalled("nobody wants it")
		r.dp.heal()
		signalled("it is gone")
	})
}

// attemptsOf counts the refusals of one op from now on, and returns the pauses between them.
func (r *running) attemptsOf(k route.Key, within time.Duration) (pauses []time.Duration) {
	last, before := time.Time{}, 0
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		synctest.Wait()
		found, _ := r.Find([]route.Key{k})
		if n := found[0].Attempts; n != before {
			if before > 0 {
				pauses = append(pauses, time.Since(last))
			}
			last, before = time.Now(), n
		}
	}
	return pauses
}

func TestExternalRoutesAreTriedAgainWithGrowingPauses(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		k := key("10.1.1.0/24")
		r.dp.state(func() { r.dp.refuse[k] = errGone })
		r.SetRoutes(route.External, external("10.1.1.0/24"))
		pauses := r.attemptsOf(k, 5*time.Minute)
		if len(pauses) < 15 {
			t.Fatalf("pauses %v", pauses)
		}
		for i, p := range pauses {
			want := min(firstRetry<<min(i, 16), lastRetry)
			if p < want-want/4 || p > want+want/4+20*time.Millisecond {
				t.Errorf("pause %d is %v, want %v or a quarter more or less", i+1, p, want)
			}
		}
		r.dp.state(func() { clear(r.dp.refuse) })
		time.Sleep(2 * lastRetry)
		if found, _ := r.Find([]route.Key{k}); found[0].State != Programmed {
			t.Errorf("%+v", found[0])
		}
	})
}

// limited is an engine that gives up on what external configuration wants after so many refusals.
func limited(t *testing.T, attempts int, test func(r *running)) {
	synctest.Test(t, func(t *testing.T) {
		r := startWith(newFake(node("a")), Config{
			Journal:  filepath.Join(t.TempDir(), "journal"),
			Attempts: map[route.Origin]int{route.External: attempts},
		})
		defer r.stop()
		test(r)
	})
}

// What was refused by what the interfaces were before says nothing of what they are now.
func TestARouteThatMissedItsInterfaceIsNotGivenUp(t *testing.T) {
	limited(t, 1, func(r *running) {
		synctest.Wait()
		const one = "10.1.1.0/24"
		k := key(one)
		r.dp.state(func() { r.dp.refuse[k], r.dp.hang = errGone, true })
		r.SetRoutes(route.External, external(one))
		synctest.Wait()
		f := node("a")
		f.Interfaces[1].Generation = 1
		r.dp.tell(f)
		synctest.Wait()
		close(r.dp.release)
		synctest.Wait()
		r.dp.state(func() { r.dp.hang = false; clear(r.dp.refuse) })
		time.Sleep(lastRetry)
		synctest.Wait()
		if found, _ := r.Find([]route.Key{k}); found[0].State != Programmed {
			t.Errorf("%+v", found[0])
		}
	})
}

// givenUp compares whether the engine has given up on k after a while.
func (r *running) givenUp(t *testing.T, what string, k route.Key, want bool) {
	t.Helper()
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	found, _ := r.Find([]route.Key{k})
	if f := found[0]; f.GivenUp != want || want && (f.Attempts != 3 || f.State != Failed) {
		t.Errorf("%s: %+v", what, f)
	}
}

func TestARouteIsGivenUpUntilItOrADependencyChanges(t *testing.T) {
	limited(t, 3, func(r *running) {
		const one = "10.1.1.0/24"
		k := key(one)
		bgp := key("10.2.0.0/24")
		r.dp.state(func() { r.dp.refuse[k], r.dp.refuse[bgp] = errGone, errGone })
		r.SetRoutes(route.External, external(one))
		r.Learn(bgp.Prefix, via("10.0.0.2"))
		r.givenUp(t, "refused", k, true)
		r.givenUp(t, "a route of BGP", bgp, false)
		<-r.ExternalChanged()

		other := external(one)
		other[0].Paths = via("10.0.1.3")
		r.SetRoutes(route.External, other)
		synctest.Wait()
		if found, _ := r.Find([]route.Key{k}); found[0].GivenUp || found[0].Attempts != 1 {
			t.Errorf("the route has changed: %+v", found[0])
		}
		r.givenUp(t, "changed", k, true)
		select {
		case <-r.ExternalChanged():
		default:
			t.Error("no signal that it is given up")
		}

		f := node("a")
		f.Interfaces[1].Index = 12
		r.dp.tell(f)
		synctest.Wait()
		if found, _ := r.Find([]route.Key{k}); found[0].GivenUp || found[0].Attempts != 1 {
			t.Errorf("its interface was made anew: %+v", found[0])
		}
		r.givenUp(t, "its interface was made anew", k, true)

		r.dp.state(func() { clear(r.dp.refuse) })
		r.givenUp(t, "the data plane would take it", k, true)
		r.dp.tell(node("b"))
		r.givenUp(t, "the data plane was restarted", k, false)
		check(t, "routes", r.dp.routes(), one+" via 10.0.1.3 eth1",
			bgp.Prefix.String()+" via 10.0.0.2 eth0")
	})
}

// Who shows how often a route was refused hears of it each time that the number has doubled.
func TestRefusalsAreToldNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		const one = "10.1.1.0/24"
		r.dp.state(func() { r.dp.refuse[key(one)] = errGone })
		r.SetRoutes(route.External, external(one))
		var told []int
		for range 10 * 60 * 10 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if signalled(r.ExternalChanged()) {
				found, _ := r.Find([]route.Key{key(one)})
				told = append(told, found[0].Attempts)
			}
		}
		if len(told) < 4 || len(told) > 6 || told[len(told)-1] != 16 {
			t.Errorf("told of %v attempts", told)
		}
	})
}

func TestWhatNeedsATableIsTriedAgainWithTheTable(t *testing.T) {
	limited(t, 3, func(r *running) {
		red := vrf(7, "red")
		k := inTable(7, "10.1.1.0/24").Key
		r.dp.state(func() { r.dp.refuse[k], r.dp.refuseObject[red.Key()] = errGone, errGone })
		r.setObjects(route.External, red)
		r.SetRoutes(route.External, []route.Route{inTable(7, "10.1.1.0/24")})
		time.Sleep(10 * time.Minute)
		if e := r.FindObject(red.Key()); !e.GivenUp || e.State != Failed {
			t.Errorf("the table: %+v", e)
		}
		r.dp.state(func() { clear(r.dp.refuseObject) })
		r.dp.tell(node("b"))
		r.givenUp(t, "the table is there", k, true)
		r.dp.state(func() { clear(r.dp.refuse) })
		r.givenUp(t, "nothing has changed", k, true)
		r.dp.steal(red)
		r.givenUp(t, "the table was made again", k, false)
		check(t, "routes", r.dp.routes(), inTable(7, "10.1.1.0/24").String())
	})
}

// Routes that wait for their interface cost nothing until it comes. Each is written once then.
func TestRoutesThatWaitForAnInterfaceAreWrittenOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		const n = 10_000
		var waiting []route.Route
		for i := range n {
			prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{20, 0, byte(i >> 8), byte(i)}), 32)
			waiting = append(waiting, route.Route{Key: route.Key{Prefix: prefix},
				Paths: []route.Path{{Interface: "memif9"}}, Origin: route.External})
		}
		r.SetRoutes(route.External, waiting)
		r.idle()
		signalled(r.ExternalChanged())
		time.Sleep(time.Hour)
		if signalled(r.ExternalChanged()) || len(r.dp.ops) != 0 {
			t.Errorf("%d operations, or a signal, while they wait", len(r.dp.ops))
		}
		before := r.Stats().Batches
		f := node("a")
		f.Interfaces = append(f.Interfaces,
			route.Interface{Name: "memif9", Index: 9, Up: true})
		r.dp.tell(f)
		r.idle()
		if settled, _ := r.Progress(r.revision); !settled || len(r.dp.ops) != n {
			t.Errorf("settled %v, %d operations", settled, len(r.dp.ops))
		}
		if cut := r.Stats().Batches - before; cut > n/chunk+1 { // one for each part selected
			t.Errorf("%d batches", cut)
		}
	})
}
