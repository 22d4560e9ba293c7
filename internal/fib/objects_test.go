package fib

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

var up0 = route.Up{Interface: "eth0"}

func TestObjectsArePutAndDeletedInTheOrderOfTheirNeeds(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		began := time.Now()
		r.setObjects(route.Uplink, on("eth0", "192.168.4.7/24"), up0)
		check(t, "wanted", r.dp.printObjectOps(),
			"put interface eth0", "put address 192.168.4.7/24 of eth0")
		check(t, "states", r.objectStates(),
			"interface eth0 programmed", "address 192.168.4.7/24 of eth0 programmed")
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v on an idle engine", waited)
		}
		if s := r.Settled(1); s.Revision != r.revision || len(r.Stats().Routes) != 0 {
			t.Errorf("settled %+v, counts %+v", s, r.Stats().Routes)
		}
		if c := r.Stats().Objects; c != (Count{Desired: 2, Programmed: 2}) {
			t.Errorf("objects: %+v", c)
		}
		r.setObjects(route.Uplink)
		check(t, "unwanted", r.dp.printObjectOps(),
			"del address 192.168.4.7/24 of eth0", "del interface eth0")
		check(t, "states", r.objectStates())
	})
}

// Objects that others need go first, and hold routes up for a moment at most.
func TestRoutesAreTakenInAfterObjectsThatOthersNeed(t *testing.T) {
	for _, tc := range []struct {
		took, looked time.Duration
		taken        int
	}{
		{5 * time.Millisecond, 4 * time.Millisecond, 0},
		{5 * time.Millisecond, 6 * time.Millisecond, 1},
		{time.Second, objectsHead - time.Millisecond, 0},
		{time.Second, objectsHead + time.Millisecond, 1},
	} {
		bubble(t, func(t *testing.T, r *running) {
			r.dp.slow = tc.took
			r.set(func(w *Wanted) {
				w.Sources[route.External].Objects = []route.Object{
					route.Up{Interface: "eth1"}, on("eth1", "192.168.4.7/24")}
				w.Sources[route.External].Routes = []route.Route{drop("10.1.0.0/26")}
			})
			time.Sleep(tc.looked)
			synctest.Wait()
			if n := len(r.Stats().Routes); n != tc.taken {
				t.Errorf("an object takes %v, %v later: %d routes, want %d", tc.took, tc.looked, n,
					tc.taken)
			}
		})
	}
}

// The time may be over when the engine looks when to come again.
func TestEngineThatYieldsComesAgain(t *testing.T) {
	e := New(Config{Dataplane: newFake(node("a")), Log: slog.New(slog.DiscardHandler)})
	e.sync.present, e.sync.taking = true, true
	e.sync.objects.looking = &object{entry: &entry{want: &forward{digest: 1}}}
	e.checking, e.resolving = true, true // until that is answered
	e.pending.wanted = &Wanted{}
	now := time.Now()
	e.objectsFirst = now.Add(time.Microsecond)
	if e.workAt(now) {
		t.Fatal("does not yield")
	}
	e.sync.objects.looking.actual = 1
	if e.yields() {
		t.Error("yields to a look at what is there")
	}
	e.sync.objects.looking.actual = 0
	time.Sleep(time.Millisecond)
	if wait := e.dispatch(nil, nil); wait > objectsHead {
		t.Errorf("comes again in %v", wait)
	}
}

// What is set while the engine yields is taken when that ends, though nothing wakes it any more.
func TestWhatIsSetWhileTheEngineYieldsIsTaken(t *testing.T) {
	e := New(Config{Dataplane: newFake(node("a")), Log: slog.New(slog.DiscardHandler)})
	e.sync.present = true
	e.sync.objects.looking = &object{entry: &entry{want: &forward{digest: 1}}}
	var w Wanted
	set := func() {
		w.Sources[route.External].Objects = []route.Object{route.Up{Interface: "eth1"}}
		e.Set(w)
		<-e.inbox.wake // as Run does
	}
	now := time.Now()
	work := func() {
		for e.workAt(now) {
		}
	}
	set()
	work()
	set()
	if work(); e.wanted.revision != 0 {
		t.Fatal("does not yield")
	}
	e.sync.objects.looking, e.sync.objects.soon = nil, nil
	if work(); e.wanted.revision != 1 {
		t.Fatalf("revision %d is taken, want the first", e.wanted.revision)
	}
	select {
	case <-e.inbox.wake:
	default:
		t.Error("nobody looks for what was set last")
	}
}

func TestObjectOfAnotherIsNeitherWrittenNorDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		a := on("eth0", "192.168.4.7/24")
		r.dp.others(a)
		r.setObjects(route.Uplink, a)
		check(t, "wanted", r.dp.printObjectOps())
		check(t, "states", r.objectStates(), "address 192.168.4.7/24 of eth0 shadowed")
		if s := r.Settled(1); s.Revision != r.revision {
			t.Errorf("settled %+v", s)
		}
		r.setObjects(route.Uplink)
		check(t, "unwanted", r.dp.there(), "address 192.168.4.7/24 of eth0")
		r.setObjects(route.Uplink, a)
		check(t, "wanted again", r.dp.printObjectOps())
		r.again()
		r.setObjects(route.Uplink)
		check(t, "unwanted after a restart", r.dp.there(), "address 192.168.4.7/24 of eth0")
		r.setObjects(route.Uplink, a)
		synctest.Wait()
		r.dp.steal(a)
		time.Sleep(2 * objectInterval)
		check(t, "taken away", r.dp.printObjectOps(), "put address 192.168.4.7/24 of eth0")
		r.setObjects(route.Uplink)
		check(t, "ours now", r.dp.there())
	})
}

func TestObjectThatIsTakenAwayComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		a, b := on("eth0", "192.168.4.7/24"), on("eth1", "192.168.5.7/24")
		r.setObjects(route.Uplink, up0, a, b)
		r.dp.printObjectOps()
		r.dp.steal(a)
		time.Sleep(objectInterval + time.Millisecond)
		check(t, "taken away", r.dp.printObjectOps(), "put address 192.168.4.7/24 of eth0")
		check(t, "states", r.objectStates(), "interface eth0 programmed",
			"address 192.168.4.7/24 of eth0 programmed",
			"address 192.168.5.7/24 of eth1 programmed")
	})
}

// Objects are looked up however busy routes keep the engine.
func TestObjectComesBackWhileRoutesChange(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		a := on("eth0", "192.168.4.7/24")
		r.setObjects(route.Uplink, a)
		r.dp.printObjectOps()
		r.dp.steal(a)
		for i := range 2000 {
			r.Learn(pfx("10.1.0.64/26"), via([]string{"10.0.0.2", "10.0.0.3"}[i%2]))
			time.Sleep(time.Millisecond)
		}
		check(t, "taken away", r.dp.printObjectOps(), "put address 192.168.4.7/24 of eth0")
	})
}

// Each change of an interface has all objects looked up, which may take longer than until the next.
func TestObjectIsDeletedWhileInterfacesChange(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		all := []route.Object{up0}
		for i := range 50 {
			all = append(all, on("eth0", fmt.Sprintf("192.168.4.%d/32", i+1)))
		}
		r.setObjects(route.Uplink, all...)
		time.Sleep(time.Second)
		r.dp.mu.Lock()
		r.dp.lookingUp = func(route.ObjectKey) { time.Sleep(time.Millisecond) }
		r.dp.mu.Unlock()
		storm := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				f := r.dp.now
				f.Interfaces = slices.Clone(f.Interfaces)
				last := &f.Interfaces[len(f.Interfaces)-1]
				last.MTU++
				r.dp.tell(f)
				time.Sleep(20 * time.Millisecond)
			}
		}
		storm(time.Second)
		r.setObjects(route.Uplink, all[:len(all)-1]...)
		storm(2 * time.Second)
		if there := r.dp.there(); len(there) != len(all)-1 {
			t.Errorf("%d objects are there, want %d", len(there), len(all)-1)
		}
	})
}

func TestObjectWaitsForItsInterface(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.setObjects(route.Uplink, on("tap0", "192.168.4.7/24"))
		check(t, "states", r.objectStates(),
			"address 192.168.4.7/24 of tap0 pending: there is no interface tap0")
		if s := r.Settled(1); s.Revision == r.revision ||
			s.Open[0].Object != on("tap0", "192.168.4.7/24").Key() {
			t.Errorf("settled %+v", s)
		}
		f := node("a")
		f.Interfaces = append(f.Interfaces, route.Interface{Name: "tap0", Index: 9, Up: true})
		r.dp.tell(f)
		check(t, "there", r.dp.printObjectOps(), "put address 192.168.4.7/24 of tap0")
		r.dp.tell(node("a"))
		check(t, "gone", r.objectStates(),
			"address 192.168.4.7/24 of tap0 pending: there is no interface tap0")
		f.Interfaces[3].Index = 10
		r.dp.tell(f)
		check(t, "made anew", r.dp.printObjectOps(), "put address 192.168.4.7/24 of tap0")
	})
}

// Of one that was not looked up yet nobody can say for what it waits: it may be another program's.
func TestObjectThatWasNotLookedUpYet(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		first := route.VethEnd{Name: "a0", Peer: "b0"}
		second := route.VethEnd{Name: "b0", Peer: "a0"}
		theirs := route.FoundLink{Name: "b0"}
		r.dp.others(theirs)
		r.dp.state(func() { r.dp.refuseObject[first.Key()] = errGone })
		hold := make(chan struct{})
		r.dp.lookingUp = func(k route.ObjectKey) {
			if k == second.Key() {
				<-hold
			}
		}
		r.setObjects(route.External, first, second)
		check(t, "states", r.objectStates(),
			"new interface a0 failed: "+errGone.Error(), "new interface b0 pending")
		close(hold)
		check(t, "states", r.objectStates(),
			"new interface a0 failed: "+errGone.Error(), "new interface b0 shadowed")
		r.dp.steal(theirs)
		time.Sleep(2 * objectInterval)
		check(t, "states", r.objectStates(), "new interface a0 failed: "+errGone.Error(),
			"new interface b0 pending: waits for new interface a0")
	})
}

func TestObjectInTheWayGoesFirst(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.setObjects(route.Uplink, on("eth0", "192.168.4.7/24"))
		r.dp.printObjectOps()
		began := time.Now()
		for _, step := range []struct {
			what string
			next route.Address
			want []string
		}{
			{"of one subnet", on("eth0", "192.168.4.8/24"), []string{
				"put address 192.168.4.8/24 of eth0", "del address 192.168.4.7/24 of eth0"}},
			{"of an overlapping one", on("eth0", "192.168.4.8/25"), []string{
				"del address 192.168.4.8/24 of eth0", "put address 192.168.4.8/25 of eth0"}},
			{"elsewhere", on("eth1", "192.168.4.8/25"), []string{
				"del address 192.168.4.8/25 of eth0", "put address 192.168.4.8/25 of eth1"}},
		} {
			r.setObjects(route.Uplink, step.next)
			check(t, step.what, r.dp.printObjectOps(), step.want...)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v", waited)
		}
	})
}

// After a restart an interface is asked to leave its table before its address has gone.
func TestAddressWaitsForAnInterfaceThatCannotLeaveItsTable(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		table, address := vrf(1, "blue"), on("eth0", "192.168.4.7/24")
		before, in := address, route.InTable{Interface: "eth0", Table: table}
		before.Table = 1
		r.setObjects(route.External, table, in, before)
		synctest.Wait()
		r.dp.state(func() { r.dp.refuseObject[in.Key()] = errInTheWay })
		r.again()
		r.dp.printObjectOps()
		r.setObjects(route.External, table, address)
		check(t, "ops", r.dp.printObjectOps(), "del address 192.168.4.7/24 table 1 of eth0")
		check(t, "states", r.objectStates(),
			"address 192.168.4.7/24 of eth0 pending: waits for IPv4 table of eth0",
			`VRF table 1 (IPv4) "blue" programmed`,
			"IPv4 table of eth0 deleting: another address is in the way")
		r.dp.heal()
		time.Sleep(lastRetry)
		check(t, "ops", r.dp.printObjectOps(), "del IPv4 table of eth0",
			"put address 192.168.4.7/24 of eth0")
	})
}

// What a route over an interface leads to was looked up in the table that the interface was in.
func TestInterfaceThatChangesItsTable(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		table := vrf(1, "blue")
		in := route.InTable{Interface: "eth0", Table: table}
		over := route.Route{Key: key("10.1.0.9/32"), Origin: route.External,
			Paths: []route.Path{{Interface: "eth0", Weight: 1}}}
		is := func(what string, objects []route.Object, ops ...string) {
			t.Helper()
			r.set(func(w *Wanted) {
				w.Sources[route.External] = Source{Complete: true, Objects: objects,
					Routes: []route.Route{over, drop("10.2.0.0/26")}}
			})
			time.Sleep(time.Second)
			check(t, what, r.dp.printOps(), ops...)
		}
		is("at first", []route.Object{table}, "put 10.1.0.9/32 via eth0", "put 10.2.0.0/26 drop")
		is("in a table", []route.Object{table, in}, "put 10.1.0.9/32 via eth0")
		is("out of it", []route.Object{table}, "put 10.1.0.9/32 via eth0")
	})
}

func TestRefusedObjectIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		a := on("eth0", "192.168.4.7/24")
		r.dp.others(on("eth1", "192.168.4.1/24"))
		r.setObjects(route.Uplink, a, up0)
		check(t, "states", r.objectStates(), "interface eth0 programmed",
			"address 192.168.4.7/24 of eth0 failed: another address is in the way")
		if s := r.Stats(); s.Errors != 0 || s.Refusal != nil {
			t.Errorf("counted among routes: %+v", s)
		}
		r.dp.steal(on("eth1", "192.168.4.1/24"))
		time.Sleep(time.Second)
		check(t, "states", r.objectStates(), "interface eth0 programmed",
			"address 192.168.4.7/24 of eth0 programmed")
		// An answer that got lost, and then nobody wants it any more.
		b := on("eth0", "192.168.5.7/24")
		r.dp.state(func() { r.dp.refuseObject[b.Key()], r.dp.lostObjects = errGone, true })
		r.setObjects(route.Uplink, a, b)
		synctest.Wait()
		r.dp.heal()
		r.setObjects(route.Uplink, a)
		time.Sleep(time.Second)
		check(t, "there", r.dp.there(), a.Key().String())
	})
}

// What was refused and is then made by another is another's, in the next process, too.
func TestRefusedObjectIsMadeByAnother(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		a, other := on("eth0", "192.168.4.7/24"), on("eth1", "192.168.4.1/24")
		r.dp.others(other)
		r.setObjects(route.Uplink, a)
		check(t, "states", r.objectStates(),
			"address 192.168.4.7/24 of eth0 failed: another address is in the way")
		r.stop()
		r.dp.steal(other)
		r.dp.others(a)
		*r = *start(r.dp, r.Engine.keeps.path)
		r.setObjects(route.Uplink)
		time.Sleep(time.Second)
		check(t, "there in the next process", r.dp.there(), a.Key().String())

		r.dp.steal(a)
		r.dp.others(other)
		r.setObjects(route.Uplink, a)
		synctest.Wait()
		r.dp.steal(other)
		r.dp.others(a)
		time.Sleep(time.Second)
		check(t, "states", r.objectStates(), "address 192.168.4.7/24 of eth0 shadowed")
		r.setObjects(route.Uplink)
		check(t, "there", r.dp.there(), a.Key().String())
	})
}

func TestObjectsAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		a, b := on("eth0", "192.168.4.7/24"), on("eth0", "192.168.5.7/24")
		r.setObjects(route.Uplink, up0, a)
		r.setObjects(route.External, b)
		synctest.Wait()
		r.again()
		r.dp.printObjectOps()
		r.AllowSweep()
		time.Sleep(time.Minute)
		check(t, "held until their source is complete", r.objectStates(), "interface eth0 held",
			"address 192.168.4.7/24 of eth0 held", "address 192.168.5.7/24 of eth0 held")
		r.setObjects(route.Uplink, up0, on("eth0", "192.168.4.8/24"))
		check(t, "swept", r.dp.printObjectOps(), "put address 192.168.4.8/24 of eth0",
			"del address 192.168.4.7/24 of eth0")
		r.again()
		r.set(func(w *Wanted) {
			w.Sources[route.Uplink].Objects = []route.Object{up0, on("eth0", "192.168.4.8/24")}
			w.Sources[route.External].Objects = []route.Object{b}
		})
		check(t, "wanted as before", r.dp.printObjectOps())
		check(t, "states", r.objectStates(), "interface eth0 programmed",
			"address 192.168.4.8/24 of eth0 programmed",
			"address 192.168.5.7/24 of eth0 programmed")
		// Another generation of the data plane has none of it, and what is there is another's.
		r.dp.tell(node("b"))
		check(t, "the data plane restarted", r.dp.there(), "address 192.168.4.8/24 of eth0",
			"address 192.168.5.7/24 of eth0", "interface eth0")
		r.stop()
		r.dp.tell(node("c"))
		r.dp.others(b)
		*r = *start(r.dp, r.Engine.keeps.path)
		r.setObjects(route.External)
		check(t, "another's", r.dp.there(), b.Key().String())
	})
}

// While the agent was away an interface was made anew: what is on it now is not ours.
func TestObjectsOfAnInterfaceMadeAnewWhileAway(t *testing.T) {
	for _, list := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *running) {
			a := on("eth1", "192.168.4.7/24")
			restart := func() {
				r.stop()
				*r = *startWith(r.dp, Config{Journal: r.Engine.keeps.path, ListRoutes: list})
				synctest.Wait()
			}
			restart()
			r.setObjects(route.Uplink, a)
			synctest.Wait()
			f := node("a")
			f.Interfaces[1].Index = 7
			r.stop()
			r.dp.tell(f)
			r.dp.others(a)
			*r = *startWith(r.dp, Config{Journal: r.Engine.keeps.path, ListRoutes: list})
			r.setObjects(route.Uplink)
			check(t, "there", r.dp.there(), a.Key().String())
		})
	}
}

// An interface of ours has a mark: it is ours under another index, too.
func TestInterfaceOfOursThatWasMadeAnewWhileAwayIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		link := route.Link{Name: "eth1"}
		r.setObjects(route.Own, link)
		synctest.Wait()
		r.stop()
		f := node("a")
		f.Interfaces[1].Index = 7
		r.dp.tell(f)
		r.dp.others(link)
		*r = *start(r.dp, r.Engine.keeps.path)
		r.setObjects(route.Own)
		check(t, "there", r.dp.there())
	})
}

// Nor is it ours for the agent after the next, though that one's journal knows the new interface.
func TestObjectsOfAnInterfaceMadeAnewAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		a, up := on("eth1", "192.168.4.7/24"), route.Up{Interface: "eth1"}
		r.setObjects(route.Uplink, a)
		synctest.Wait()
		r.stop()
		f := node("a")
		f.Interfaces[1].Index = 7
		r.dp.tell(f)
		*r = *start(r.dp, r.Engine.keeps.path)
		r.setObjects(route.Uplink, up)
		synctest.Wait()
		r.dp.others(a)
		r.again()
		r.setObjects(route.Uplink, up)
		check(t, "there", r.dp.there(), a.Key().String(), up.Key().String())
	})
}

// An interface goes and comes back with its index, and nothing is written meanwhile.
func TestLostObjectIsNoLongerOursAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		a := on("eth1", "192.168.4.7/24")
		r.setObjects(route.Uplink, a)
		r.again()
		f := node("a")
		f.Interfaces = append(f.Interfaces[:1], f.Interfaces[2])
		r.dp.tell(f)
		synctest.Wait()
		r.dp.tell(node("a"))
		synctest.Wait()
		r.dp.others(a)
		r.again()
		r.setObjects(route.Uplink)
		check(t, "there", r.dp.there(), a.Key().String())
	})
}

// An interface is made anew and gets an address of ours before the agent hears of it.
func TestObjectThatIsPutBeforeTheFactsIsOurs(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		f := node("a")
		f.Interfaces[1].Index = 7
		r.dp.state(func() { r.dp.now, r.dp.last = f, f })
		a := on("eth1", "192.168.4.7/24")
		r.setObjects(route.Uplink, a)
		synctest.Wait()
		r.dp.tell(f)
		check(t, "states", r.objectStates(), "address 192.168.4.7/24 of eth1 programmed")
		r.setObjects(route.Uplink)
		check(t, "there", r.dp.there())
	})
}

// While routes of an earlier run may lead over an earlier interface, the journal says so. An object
// that was put on the new one is known to the next run all the same.
func TestObjectOnAnInterfaceThatIsInDoubt(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		bubble(t, func(t *testing.T, r *running) {
			r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
			synctest.Wait()
			r.stop()
			r.dp.changeInterface("eth0", func(i *route.Interface) { i.Index += 100 })
			r.again() // the route is as it was found
			a := on("eth0", "192.168.4.7/24")
			r.setObjects(route.Own, a)
			synctest.Wait()
			check(t, "put", r.dp.printObjectOps(), "put "+a.Key().String())
			r.again()
			if wanted {
				r.setObjects(route.Own, a)
			} else {
				r.setObjects(route.Own)
			}
			time.Sleep(time.Minute)
			if wanted {
				check(t, "states", r.objectStates(), a.Key().String()+" programmed")
				check(t, "written", r.dp.printObjectOps())
			} else {
				check(t, "written", r.dp.printObjectOps(), "del "+a.Key().String())
			}
		})
	}
}

// With ListRoutes the journal has objects and no routes.
func TestJournalOfObjectsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		restart := func() {
			r.stop()
			*r = *startWith(r.dp, Config{Journal: r.Engine.keeps.path, ListRoutes: true})
			synctest.Wait()
		}
		restart()
		a := on("eth0", "192.168.4.7/24")
		r.dp.state(func() { r.dp.refuse[key("10.1.0.0/26")] = errGone })
		r.setObjects(route.Uplink, a)
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26"), drop("10.2.0.0/26")})
		synctest.Wait()
		file, err := os.Open(r.Engine.keeps.path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		found, err := readJournal(bufio.NewReader(file))
		if err != nil || len(found.digests) != 0 || len(found.objects) != 1 ||
			found.objects[a.Key()].unsure {
			t.Errorf("%+v, %v", found, err)
		}
		r.dp.heal()
		restart()
		r.setObjects(route.Uplink)
		check(t, "swept", r.dp.there())
		if s := r.Stats(); s.Adopted != "listing" || s.AdoptedRoutes != 1 || s.Journal.Enabled {
			t.Errorf("%+v", s)
		}
	})
}

// An interface of ours may have been made anew after the journal noted its index. It has our mark,
// and goes all the same.
func TestInterfaceMadeAnewBeforeAListing(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		restart := func() {
			r.stop()
			*r = *startWith(r.dp, Config{Journal: r.Engine.keeps.path, ListRoutes: true})
			synctest.Wait()
		}
		restart()
		link := route.Link{Name: "eth0"}
		r.setObjects(route.External, link)
		check(t, "put", r.dp.printObjectOps(), "put "+link.Key().String())
		r.stop()
		r.dp.changeInterface("eth0", func(i *route.Interface) { i.Index += 100 })
		r.dp.others(link)
		restart()
		r.setObjects(route.External)
		time.Sleep(time.Minute)
		check(t, "then", r.dp.printObjectOps(), "del "+link.Key().String())
	})
}

// So may one be while the next process lists what is there. What is on it then is another's.
func TestInterfaceMadeAnewDuringAListing(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		c := Config{Journal: r.Engine.keeps.path, ListRoutes: true}
		r.stop()
		*r = *startWith(r.dp, c)
		a := on("eth0", "192.168.4.7/24")
		r.setObjects(route.External, a)
		check(t, "put", r.dp.printObjectOps(), "put "+a.Key().String())
		r.stop()
		dp := r.dp
		dp.state(func() {
			dp.listing = func() { // the engine calls it
				f := node("a")
				f.Interfaces[0].Generation++
				dp.tell(f)
				time.Sleep(time.Second)
			}
		})
		*r = *startWith(dp, c)
		r.setObjects(route.External)
		time.Sleep(time.Minute)
		check(t, "then", r.dp.printObjectOps())
	})
}

// TestRefusedHalfway: the data plane makes an interface and refuses the rest, so it is deleted
// again. That interfaces have changed is no reason to try again at once then, and nothing waits.
func TestRefusedHalfway(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		link, a := route.Link{Name: "loop7"}, on("eth0", "192.168.4.7/24")
		r.setObjects(route.External, a)
		r.dp.printObjectOps()
		dp, attempts := r.dp, atomic.Int32{}
		dp.state(func() {
			dp.refuseObject[link.Key()] = errGone
			dp.refusing = func() {
				attempts.Add(1)
				with := node("a")
				with.Interfaces = append(with.Interfaces, route.Interface{Name: link.Name})
				dp.tell(with)
				time.Sleep(time.Millisecond)
				dp.tell(node("a"))
			}
		})
		r.setObjects(route.External, link)
		time.Sleep(time.Second)
		check(t, "the rest", dp.printObjectOps(), "del "+a.Key().String())
		time.Sleep(time.Minute)
		if n := attempts.Load(); n < 8 || n > 12 {
			t.Errorf("%d attempts", n)
		}
		dp.state(func() { clear(dp.refuseObject) })
		time.Sleep(lastRetry + lastRetry/4)
		check(t, "the interface", dp.printObjectOps(), "put "+link.Key().String())
	})
}

// TestAddressIsFreed: an interface was refused for an address that is then deleted.
func TestAddressIsFreed(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		link, a := route.Link{Name: "loop7"}, on("eth0", "192.168.4.7/24")
		r.setObjects(route.External, a)
		r.dp.state(func() { r.dp.refuseObject[link.Key()] = errInTheWay })
		r.setObjects(route.External, a, link)
		time.Sleep(time.Minute) // the next attempt is half a minute away
		r.dp.printObjectOps()
		r.dp.state(func() { clear(r.dp.refuseObject) })
		r.setObjects(route.External, link)
		time.Sleep(firstRetry)
		check(t, "at once", r.dp.printObjectOps(), "del "+a.Key().String(),
			"put "+link.Key().String())
	})
}

// TestGivenUpJustBeforeInterfacesChange: the data plane refused an interface for what goes then.
func TestGivenUpJustBeforeInterfacesChange(t *testing.T) {
	limited(t, 3, func(r *running) {
		link := route.Link{Name: "loop7"}
		r.dp.state(func() { r.dp.refuseObject[link.Key()] = errGone })
		r.setObjects(route.External, link)
		time.Sleep(time.Second)
		with := node("a")
		with.Interfaces = append(with.Interfaces, route.Interface{Name: "loop8"})
		for range 3 {
			if e := r.FindObject(link.Key()); !e.GivenUp {
				t.Fatalf("%+v", e)
			}
			r.dp.tell(with)
			time.Sleep(time.Second)
		}
		r.dp.state(func() { clear(r.dp.refuseObject) })
		r.dp.tell(node("a"))
		time.Sleep(lastRetry + lastRetry/4)
		check(t, "then", r.dp.printObjectOps(), "put "+link.Key().String())
	})
}

// TestUpgradeFromAJournalWithoutObjects: testdata/journal-2 was written by an agent of before
// version 3, which kept the uplink's addresses elsewhere. Nothing is written but the journal.
func TestUpgradeFromAJournalWithoutObjects(t *testing.T) {
	old, err := os.ReadFile("testdata/journal-2")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		a := on("eth0", "192.168.4.7/24")
		dp := newFake(node("a"))
		dp.ours[key("10.1.0.0/26")] = drop("10.1.0.0/26")
		dp.others(a)
		earlier := func(identity string, interfaces map[string]uint32) []route.Object {
			if identity != "a" || interfaces["eth0"] != 1 {
				t.Errorf("asked about %q, %v", identity, interfaces)
			}
			return []route.Object{a}
		}
		r := startWith(dp, Config{Journal: path, Earlier: earlier})
		r.SetRoutes(route.Own, []route.Route{drop("10.1.0.0/26")})
		r.setObjects(route.Uplink, a)
		r.AllowSweep()
		check(t, "routes", dp.printOps())
		check(t, "objects", dp.printObjectOps())
		if s := r.Stats(); s.Adopted != "journal" || s.AdoptedRoutes != 1 {
			t.Errorf("%+v", s)
		}
		r.again() // which asks nobody: the journal knows
		r.setObjects(route.Uplink)
		check(t, "ours", dp.printObjectOps(), "del address 192.168.4.7/24 of eth0")
		r.stop()
	})
}

func TestTwoSourcesWantOneObject(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		a := on("eth0", "192.168.4.7/24")
		r.setObjects(route.Uplink, a)
		r.setObjects(route.External, a)
		check(t, "put once", r.dp.printObjectOps(), "put address 192.168.4.7/24 of eth0")
		r.setObjects(route.Uplink)
		check(t, "still wanted", r.dp.printObjectOps())
		r.setObjects(route.External)
		check(t, "unwanted", r.dp.printObjectOps(), "del address 192.168.4.7/24 of eth0")
	})
}

func TestObjectThatCannotBeLookedUpStays(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		a := on("eth0", "192.168.4.7/24")
		r.setObjects(route.Uplink, a)
		r.dp.printObjectOps()
		r.dp.state(func() { r.dp.lookupErr = errors.New("no answer") })
		time.Sleep(2 * objectInterval)
		check(t, "states", r.objectStates(),
			"address 192.168.4.7/24 of eth0 programmed: no answer")
		check(t, "written", r.dp.printObjectOps())
		r.dp.heal()
		time.Sleep(2 * objectInterval)
		check(t, "states", r.objectStates(), "address 192.168.4.7/24 of eth0 programmed")
	})
}

func TestRoutesWaitForTheirTable(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		red, blue := vrf(7, "red"), vrf(8, "blue")
		r.dp.state(func() { r.dp.refuseObject[red.Key()] = errGone })
		r.dp.foreign[route.Key{Table: 7, Prefix: pfx("192.0.2.0/24")}] = true
		over := route.Route{Key: key(two),
			Paths: []route.Path{{NextHop: addr("192.0.2.1"), Table: 7, Weight: 1}}}
		routes := []route.Route{inTable(7, one), inTable(8, one), over}
		set := func(routes []route.Route, tables ...route.Object) {
			r.set(func(w *Wanted) {
				w.Sources[route.External] = Source{Routes: routes, Objects: tables, Complete: true}
			})
			time.Sleep(time.Second)
		}
		set(routes, red, blue)
		check(t, "one is refused", r.dp.routes(), inTable(8, one).String())
		r.dp.heal()
		time.Sleep(time.Minute)
		check(t, "both are there", r.dp.routes(), inTable(7, one).String(),
			inTable(8, one).String(), over.String())
		if s := r.Stats(); s.Errors != 0 {
			t.Errorf("routes were refused: %+v", s)
		}
		r.dp.printObjectOps()
		set(routes[:2], red, blue)
		set(nil, red)
		check(t, "an empty table stays as long as it is wanted", r.dp.there(), red.Key().String())
		set(nil)
		check(t, "gone", r.dp.there())
		if n := len(r.sync.objects.awaited); n != 0 {
			t.Errorf("%d routes still wait", n)
		}
	})
}

func TestTableOfAnotherProgramIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.others(vrf(7, "theirs"))
		r.set(func(w *Wanted) {
			w.Sources[route.External] = Source{Routes: []route.Route{inTable(7, one)},
				Objects: []route.Object{vrf(7, "ours")}, Complete: true}
		})
		time.Sleep(time.Minute)
		check(t, "states", r.objectStates(), `VRF table 7 (IPv4) "ours" shadowed`)
		if by := r.Objects()[0].By; by != `VRF table 7 (IPv4) "theirs"` {
			t.Errorf("by %s", by)
		}
		check(t, "routes", r.dp.routes())
		r.set(func(w *Wanted) { w.Sources[route.External] = Source{Complete: true} })
		check(t, "written", r.dp.printObjectOps())
		check(t, "there", r.dp.there(), `VRF table 7 (IPv4) "theirs"`)
	})
}

// A table with our name is ours without a journal, too.
func TestTableIsKnownByItsName(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		red := vrf(7, "red")
		r.dp.others(red)
		r.setObjects(route.External, red)
		check(t, "states", r.objectStates(), `VRF table 7 (IPv4) "red" programmed`)
		r.setObjects(route.External)
		check(t, "there", r.dp.there())
	})
}

func TestTableThatIsTakenAwayComesBackWithItsRoutes(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		red := vrf(7, "red")
		r.set(func(w *Wanted) {
			w.Sources[route.External] = Source{Routes: []route.Route{inTable(7, one)},
				Objects: []route.Object{red}}
		})
		synctest.Wait()
		r.dp.steal(red)
		time.Sleep(2 * objectInterval)
		check(t, "routes", r.dp.routes(), inTable(7, one).String())
	})
}

// A table gets another name when it is empty.
func TestTableThatIsRenamedWaitsForItsRoutes(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		routes := []route.Route{inTable(7, one)}
		set := func(routes []route.Route, table route.Object) {
			r.set(func(w *Wanted) {
				w.Sources[route.External] = Source{Routes: routes,
					Objects: []route.Object{table}, Complete: true}
			})
			time.Sleep(time.Second)
		}
		set(routes, vrf(7, "red"))
		set(routes, vrf(7, "blue"))
		check(t, "renamed", r.objectStates(),
			`VRF table 7 (IPv4) "blue" pending: waits for VRF table 7 (IPv4) "red"`,
			`VRF table 7 (IPv4) "red" deleting`)
		set(nil, vrf(7, "blue"))
		check(t, "empty", r.objectStates(), `VRF table 7 (IPv4) "blue" programmed`)
	})
}

func TestWhatIsOnAnInterfaceThatWeMakeGoesAndComesWithIt(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		link, a := route.Link{Name: "tap0"}, on("tap0", "192.168.4.7/24")
		r.setObjects(route.External, link, a)
		check(t, "made", r.dp.printObjectOps(), "put new interface tap0")
		f := node("a")
		f.Interfaces = append(f.Interfaces, route.Interface{Name: "tap0", Index: 9, Up: true})
		r.dp.tell(f)
		check(t, "there", r.dp.printObjectOps(), "put address 192.168.4.7/24 of tap0")
		link.MAC = "02:fe:00:00:00:01"
		r.setObjects(route.External, link, a)
		check(t, "made anew", r.dp.printObjectOps(),
			"put new interface tap0", "put address 192.168.4.7/24 of tap0")
		r.dp.state(func() { r.dp.lookupErr = errGone })
		r.setObjects(route.External, a)
		check(t, "deleted", r.dp.printObjectOps(), "del new interface tap0")
		check(t, "without it", r.objectStates(),
			"address 192.168.4.7/24 of tap0 pending: "+errGone.Error())
		r.dp.heal()
		r.setObjects(route.External, link, a)
		check(t, "back", r.dp.printObjectOps(),
			"put new interface tap0", "put address 192.168.4.7/24 of tap0")
		r.setObjects(route.External)
		check(t, "all deleted", r.dp.printObjectOps(),
			"del address 192.168.4.7/24 of tap0", "del new interface tap0")
	})
}

// The facts say so later: a client that was told meanwhile that all is programmed would lose
// packets.
func TestRoutesOverAnInterfaceThatWeMakeAnewArePutBeforeTheFactsCome(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		var routes []route.Route
		for _, p := range []string{"10.8.0.0/24", "10.8.1.0/24"} { // with one path
			routes = append(routes, route.Route{Key: key(p), Kind: route.Via,
				Origin: route.External, Paths: []route.Path{{
					NextHop: addr("192.168.4.9"), Interface: "tap0", Weight: 1}}})
		}
		link := route.Link{Name: "tap0"}
		set := func() {
			r.set(func(w *Wanted) {
				w.Sources[route.External] = Source{Routes: routes,
					Objects: []route.Object{link}, Complete: true}
			})
			synctest.Wait()
		}
		f := node("a")
		f.Interfaces = append(f.Interfaces, route.Interface{Name: "tap0", Index: 9, Up: true})
		set()
		r.dp.tell(f)
		set()
		puts := []string{"put 10.8.0.0/24 via 192.168.4.9 tap0",
			"put 10.8.1.0/24 via 192.168.4.9 tap0"}
		r.dp.printOps()
		link.MAC = "02:fe:00:00:00:01"
		set()
		check(t, "over the next", r.dp.printOps(),
			append([]string{"del 10.8.0.0/24", "del 10.8.1.0/24"}, puts...)...)
		f.Interfaces = slices.Clone(f.Interfaces)
		f.Interfaces[len(f.Interfaces)-1].Generation++
		r.dp.tell(f)
		check(t, "when the facts say so", r.dp.printOps(), puts...)
		check(t, "that lead nowhere", r.dp.printStuck())
	})
}

// Of an interface that we made anew the facts come later than what we put on it.
func TestWhatIsOnAnInterfaceThatWeMadeAnewIsOurs(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		link, a := route.Link{Name: "tap0"}, on("tap0", "192.168.4.7/24")
		r.setObjects(route.External, link, a)
		f := node("a")
		f.Interfaces = append(f.Interfaces, route.Interface{Name: "tap0", Index: 9, Up: true})
		r.dp.tell(f)
		check(t, "made", r.dp.printObjectOps(),
			"put new interface tap0", "put address 192.168.4.7/24 of tap0")
		r.dp.steal(link)
		r.dp.steal(a)
		time.Sleep(2 * objectInterval)
		check(t, "made anew", r.dp.there(),
			"address 192.168.4.7/24 of tap0", "new interface tap0")
		f.Interfaces = slices.Clone(f.Interfaces)
		f.Interfaces[3].Index = 10
		r.dp.state(func() { r.dp.now, r.dp.last = f, f }) // the address stays
		r.dp.tell(f)
		check(t, "states", r.objectStates(), "address 192.168.4.7/24 of tap0 programmed",
			"new interface tap0 programmed")
		r.setObjects(route.External, link)
		check(t, "deleted", r.dp.there(), "new interface tap0")
	})
}

// An interface of ours is made anew after a restart, before the routes over it are known.
func TestInterfaceThatWeMakeAnewBeforeAdoptedRoutesAreKnown(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		f := node("a")
		f.Interfaces = append(f.Interfaces, route.Interface{Name: "tap0", Index: 9, Up: true,
			Addresses: []netip.Prefix{pfx("10.0.9.1/24")}})
		set := func(link route.Link) {
			r.set(func(w *Wanted) {
				w.Sources[route.External] = Source{Objects: []route.Object{link}, Complete: true}
			})
			synctest.Wait()
		}
		learn := func() {
			r.Learn(pfx("10.2.0.0/26"), via("10.0.9.2"))
			r.Learn(pfx("10.2.1.0/26"), via("10.0.9.2"))
			synctest.Wait()
		}
		set(route.Link{Name: "tap0"})
		r.dp.tell(f)
		learn()
		r.again()
		set(route.Link{Name: "tap0", MAC: "02:fe:00:00:00:01"})
		f.Interfaces = slices.Clone(f.Interfaces)
		f.Interfaces[len(f.Interfaces)-1].Generation++
		r.dp.tell(f)
		learn()
		time.Sleep(time.Minute)
		check(t, "that lead nowhere", r.dp.printStuck())
		if r.sync.suspect != nil || r.sync.anew != nil {
			t.Errorf("doubt about %v has not ended", r.sync.suspect)
		}
	})
}
