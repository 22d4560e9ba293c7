package fib

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

// tunnelled has a node with tunl0, and two other nodes, one of them in the node's own network.
func tunnelled(t *testing.T, f func(*testing.T, *running)) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.foreign[key("0.0.0.0/0")] = true
		r.tellOfTunnels()
		r.encapsulate("10.0.0.2", "192.0.2.1")
		synctest.Wait()
		r.dp.printObjectOps()
		f(t, r)
	})
}

func (r *running) tellOfTunnels() {
	facts := node("a")
	facts.Interfaces = append(facts.Interfaces,
		route.Interface{Name: "tunl0", Index: 4, Up: true})
	r.dp.tell(facts)
}

// encapsulate wants tunnels to these nodes: always for 10.1/16, across subnets for 10.2/16.
func (r *running) encapsulate(nodes ...string) {
	e := &route.Encapsulation{Own4: pfx("10.0.0.1/24"),
		Pools: []route.Pool{{Name: "always", Prefix: pfx("10.1.0.0/16"), Encap: route.IPIP},
			{Name: "cross", Prefix: pfx("10.2.0.0/16"), Encap: route.IPIP, CrossSubnet: true}}}
	var all []route.Object
	for _, n := range nodes {
		e.Nodes = e.Nodes.With(route.Nodes{{Address: addr(n), Name: n}}, nil)
		all = append(all, route.Endpoint{Interface: "tunl0", Outer: addr(n)})
	}
	r.set(func(w *Wanted) {
		w.Encapsulation = e
		w.Sources[route.Own].Objects, w.Sources[route.Own].Complete = all, true
	})
}

func sorted(all []string) []string { return slices.Sorted(slices.Values(all)) }

func TestTheSameNextHopIsPlainAndATunnel(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		for _, p := range []string{"10.1.0.0/26", "10.2.0.0/26", "10.3.0.0/26"} {
			r.Learn(pfx(p), via("10.0.0.2"))
		}
		check(t, "near", r.dp.printOps(),
			"put 10.1.0.0/26 via fe80::5efe:a00:2 tunl0", "put 10.2.0.0/26 via 10.0.0.2 eth0",
			"put 10.3.0.0/26 via 10.0.0.2 eth0")
		r.Learn(pfx("10.2.0.64/26"), via("192.0.2.1"))
		r.Learn(pfx("10.3.0.64/26"), via("192.0.2.1"))
		check(t, "far", sorted(r.dp.printOps()), "put 10.2.0.64/26 via fe80::5efe:c000:201 tunl0",
			"put 10.3.0.64/26 via 192.0.2.1")
		r.Learn(pfx("10.1.0.128/26"), via("10.0.0.9"))
		if s := r.state("10.1.0.128/26"); s.State != Unusable || s.Reason.String() !=
			"IPPool(always) has IPIP: next hop 10.0.0.9 is not the address of a Node" {
			t.Errorf("by a next hop that is no Node: %s, %s", s.State, s.Reason)
		}
		r.set(func(w *Wanted) { w.Encapsulation = nil })
		check(t, "no pool encapsulates any more", sorted(r.dp.printOps()),
			"put 10.1.0.0/26 via 10.0.0.2 eth0", "put 10.1.0.128/26 via 10.0.0.9 eth0",
			"put 10.2.0.64/26 via 192.0.2.1")
	})
}

func TestTheInterfaceOfTunnelsGoesDown(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		for _, up := range []bool{false, true} {
			r.dp.changeInterface("tunl0", func(i *route.Interface) { i.Up = up })
			synctest.Wait()
			if s := r.state("10.1.0.0/26"); (s.State == Programmed) != up {
				t.Errorf("up %v: %s, %s", up, s.State, s.Reason)
			}
		}
	})
}

// With encapsulation gone before the data plane answers, nothing is left that would leave by it.
func TestEncapsulationEndsBeforeTheDataplaneComes(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	synctest.Test(t, func(t *testing.T) {
		r := start(newFake(route.Facts{Problem: "away"}), journal)
		defer r.stop()
		r.encapsulate()
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.encapsulate("10.0.0.2")
		synctest.Wait()
		r.set(func(w *Wanted) { w.Encapsulation, w.Sources[route.Own].Objects = nil, nil })
		synctest.Wait()
		r.dp.tell(node("a"))
		synctest.Wait()
		check(t, "plain", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.2 eth0")
	})
}

// A plan makes each VXLAN device anew. Of a node that stays as it is nothing is resolved again.
func TestOfNodesThatStayNothingIsResolvedAgain(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		r.Learn(pfx("10.1.0.64/26"), via("192.0.2.1"))
		synctest.Wait()
		with := func(mac string) *route.Encapsulation {
			e := *r.wanted.Encapsulation
			e.Nodes = route.Nodes{{Address: addr("10.0.0.2"), Name: "b",
				VXLAN: &route.VTEP{MAC: "66:00:00:00:00:01"}},
				{Address: addr("192.0.2.1"), Name: "c", VXLAN: &route.VTEP{MAC: mac}}}
			return &e
		}
		r.set(func(w *Wanted) { w.Encapsulation = with("66:00:00:00:00:02") })
		synctest.Wait()
		for _, set := range r.selection.sets.byID {
			set.seen = nil
		}
		r.selection.setEncapsulation(with("66:00:00:00:00:03"))
		for _, set := range r.selection.sets.byID {
			to := set.paths[0].NextHop
			if got, want := set.seen != nil, to == addr("192.0.2.1"); got != want {
				t.Errorf("resolved again, path to %s: %v, want %v", to, got, want)
			}
		}
	})
}

// In a pool with VXLAN the datastore alone says where packets go, whatever covers its routes.
func TestOverlayGoesBeforeBGP(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		facts := node("a")
		facts.Interfaces = append(facts.Interfaces,
			route.Interface{Name: "vxlan.calico", Index: 5, Up: true})
		r.dp.tell(facts)
		e := &route.Encapsulation{Own4: pfx("10.0.0.1/24"), Nodes: route.Nodes{{Name: "b",
			Address: addr("10.0.0.2"), VXLAN: &route.VTEP{MAC: "66:00:00:00:00:02"}}},
			Pools: []route.Pool{{Name: "v", Prefix: pfx("10.4.0.0/16"), Encap: route.VXLAN}}}
		pools := func(e *route.Encapsulation, overlay ...route.Route) {
			r.set(func(w *Wanted) {
				w.Encapsulation = e
				w.Sources[route.Overlay].Routes = overlay
				w.Sources[route.Own].Objects = []route.Object{route.Endpoint{
					Interface: "vxlan.calico", Outer: addr("10.0.0.2"),
					VXLAN: route.VXLANSettings{MAC: "66:00:00:00:00:02"}}}
			})
		}
		ours := route.Route{Key: key("10.4.0.0/26"), Origin: route.Overlay, Paths: via("10.0.0.2")}
		for _, p := range []string{"10.4.0.0/26", "10.4.0.64/26", "10.4.0.0/15"} {
			r.Learn(pfx(p), via("10.0.0.3"))
		}
		check(t, "no pool", sorted(r.dp.printOps()), "put 10.4.0.0/15 via 10.0.0.3 eth0",
			"put 10.4.0.0/26 via 10.0.0.3 eth0", "put 10.4.0.64/26 via 10.0.0.3 eth0")
		pools(e, ours)
		check(t, "VXLAN", sorted(r.dp.printOps()), "del 10.4.0.64/26",
			"put 10.4.0.0/26 via 10.0.0.2 vxlan.calico")
		if s := r.state("10.4.0.64/26"); s.State != Unusable || s.Reason.String() !=
			"IPPool(v) has VXLAN: its routes come from blocks and Nodes, not from BGP" {
			t.Errorf("%s, %s", s.State, s.Reason)
		}
		broken := *e
		broken.Nodes = route.Nodes{{Address: addr("10.0.0.2"), Name: "b",
			VXLAN: &route.VTEP{Problem: "why"}}}
		pools(&broken, ours)
		check(t, "the node has no VTEP", r.dp.printOps(), "del 10.4.0.0/26")
		if s := r.state("10.4.0.0/26"); s.Reason.String() != "IPPool(v) has VXLAN: why" {
			t.Errorf("%s, %s", s.State, s.Reason)
		}
		pools(e, ours)
		check(t, "it has one", r.dp.printOps(), "put 10.4.0.0/26 via 10.0.0.2 vxlan.calico")
		pools(nil)
		check(t, "no pool again", sorted(r.dp.printOps()), "put 10.4.0.0/26 via 10.0.0.3 eth0",
			"put 10.4.0.64/26 via 10.0.0.3 eth0")
	})
}

// A tunnel of VXLAN is an interface: what leads through it leads nowhere when it is made again.
func TestRoutesThroughATunnelThatWasLost(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		facts := node("a")
		facts.Interfaces = append(facts.Interfaces,
			route.Interface{Name: "tunl0", Index: 4, Up: true},
			route.Interface{Name: "vxlan.calico", Index: 5, Up: true})
		r.dp.tell(facts)
		vtep := route.Endpoint{Interface: "vxlan.calico", Outer: addr("10.0.0.2"),
			VXLAN: route.VXLANSettings{MAC: "66:00:00:00:00:02"}}
		ipip := route.Endpoint{Interface: "tunl0", Outer: addr("10.0.0.2")}
		r.set(func(w *Wanted) {
			w.Encapsulation = &route.Encapsulation{Own4: pfx("10.0.0.1/24"),
				Nodes: route.Nodes{{Address: vtep.Outer, Name: "b",
					VXLAN: &route.VTEP{MAC: vtep.VXLAN.MAC}}},
				Pools: []route.Pool{
					{Name: "v", Prefix: pfx("10.4.0.0/16"), Encap: route.VXLAN},
					{Name: "i", Prefix: pfx("10.1.0.0/16"), Encap: route.IPIP}}}
			w.Sources[route.Overlay].Routes = []route.Route{{Key: key("10.4.0.0/26"),
				Origin: route.Overlay, Paths: via("10.0.0.2")}}
			w.Sources[route.Own].Objects = []route.Object{vtep, ipip}
		})
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		time.Sleep(time.Minute)
		r.dp.printOps()
		r.dp.steal(ipip)
		time.Sleep(time.Minute)
		check(t, "IPIP", r.dp.printOps())
		r.dp.steal(vtep)
		time.Sleep(time.Minute)
		check(t, "VXLAN", r.dp.printOps(), "del 10.4.0.0/26",
			"put 10.4.0.0/26 via 10.0.0.2 vxlan.calico")
		changed := vtep
		changed.VXLAN.MAC = "66:00:00:00:00:99" // it stays the same interface
		r.set(func(w *Wanted) {
			w.Sources[route.Own].Objects = []route.Object{changed, ipip}
		})
		check(t, "another MAC address", r.dp.printOps())
	})
}

// Another program deletes the interface that tunnels of VXLAN borrow their address from, and then
// nobody wants them: they are there still, and go.
func TestTunnelsOutliveTheirInterface(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		facts := node("a")
		facts.Interfaces = append(facts.Interfaces,
			route.Interface{Name: "vxlan.calico", Index: 5, Up: true})
		r.dp.tell(facts)
		vtep := route.Endpoint{Interface: "vxlan.calico", Outer: addr("10.0.0.2"),
			VXLAN: route.VXLANSettings{MAC: "66:00:00:00:00:02"}}
		r.setObjects(route.Own, vtep)
		check(t, "there", r.dp.there(), vtep.Key().String())
		time.Sleep(2 * factsDelay)
		r.dp.tell(node("a"))
		synctest.Wait()
		r.setObjects(route.Own)
		check(t, "nobody wants it", r.dp.there())
	})
}

// A route of ours must not become the longest match for the node behind its tunnel.
func TestTunnelsDoNotLoop(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		r.encapsulate("10.1.0.7")
		r.Learn(pfx("10.1.0.0/26"), via("10.1.0.7"))
		if s := r.state("10.1.0.0/26"); s.State != Unusable {
			t.Errorf("%s, %s", s.State, s.Reason)
		}
	})
}

func TestARouteWaitsForItsTunnel(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		e := route.Endpoint{Interface: "tunl0", Outer: addr("192.0.2.2")}
		r.dp.state(func() { r.dp.refuseObject[e.Key()] = errGone })
		r.encapsulate("10.0.0.2", "192.0.2.2")
		r.Learn(pfx("10.1.0.0/26"), via("192.0.2.2"))
		r.Learn(pfx("10.1.0.64/26"), via("10.0.0.2"))
		check(t, "one is refused", r.dp.printOps(), "put 10.1.0.64/26 via fe80::5efe:a00:2 tunl0")
		if s := r.state("10.1.0.0/26"); s.State != Pending {
			t.Errorf("%s", s.State)
		}
		if refused := r.RefusedEndpoints(); len(refused) != 0 {
			t.Errorf("refused at once: %v", refused)
		}
		time.Sleep(10 * time.Second)
		if refused := r.RefusedEndpoints(); refused[addr("192.0.2.2")] != errGone.Error() ||
			len(refused) != 1 {
			t.Errorf("refused for long: %v", refused)
		}
		r.mu.Lock()
		r.sync.objects.byKey[e.Key()].since += 3600 // the clock is set back by an hour
		r.mu.Unlock()
		f := r.dp.now
		for i := range 3 { // another interface comes
			f.Interfaces = append(slices.Clone(f.Interfaces),
				route.Interface{Name: fmt.Sprint("veth", i), Index: uint32(20 + i), Up: true})
			r.dp.tell(f)
			synctest.Wait()
			if refused := r.RefusedEndpoints(); len(refused) != 1 {
				t.Errorf("another interface has come: %v", refused)
			}
			time.Sleep(100 * time.Millisecond)
		}
		r.dp.heal()
		time.Sleep(time.Minute)
		if refused := r.RefusedEndpoints(); len(refused) != 0 {
			t.Errorf("not refused: %v", refused)
		}
		check(t, "it is there", r.dp.printOps(), "put 10.1.0.0/26 via fe80::5efe:c000:202 tunl0")
	})
}

// The data plane refuses to delete the route of a node that is gone; and then the agent is
// restarted, which knows of that route no more than a digest.
func TestATunnelGoesAfterItsRoutes(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		tunnelled(t, func(t *testing.T, r *running) {
			r.Learn(pfx("10.1.0.0/26"), via("192.0.2.1"))
			check(t, "learned", r.dp.printOps(), "put 10.1.0.0/26 via fe80::5efe:c000:201 tunl0")
			r.dp.state(func() { r.dp.refuse[key("10.1.0.0/26")] = errGone })
			if restarted {
				r.again()
			}
			r.encapsulate("10.0.0.2")
			r.AllowSweep()
			time.Sleep(time.Minute)
			check(t, "the route is there", r.dp.printObjectOps())
			r.dp.heal()
			time.Sleep(time.Minute)
			check(t, "the route is gone", r.dp.printOps(), "del 10.1.0.0/26")
			check(t, "and the tunnel", r.dp.printObjectOps(), "del tunnel to 192.0.2.1 by tunl0")
		})
	}
}

func TestTunnelsAreWrittenAtOnceAndListed(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		var nodes []string
		for i := range 500 {
			nodes = append(nodes, fmt.Sprintf("192.0.%d.%d", i/250, i%250+1))
		}
		r.dp.state(func() { r.dp.bulks = 0 })
		r.encapsulate(nodes...)
		n := len(r.dp.printObjectOps())
		r.dp.state(func() {
			if n != 502 || r.dp.bulks > 3 || r.dp.lookups > 0 {
				t.Errorf("%d ops in %d calls, %d look-ups", n, r.dp.bulks, r.dp.lookups)
			}
		})
		r.dp.steal(route.Endpoint{Interface: "tunl0", Outer: addr(nodes[7])})
		time.Sleep(time.Minute)
		check(t, "one was taken away", r.dp.printObjectOps(),
			"put tunnel to "+nodes[7]+" by tunl0")
		r.dp.spoil(route.Endpoint{Interface: "tunl0", Outer: addr(nodes[8])}.Key())
		time.Sleep(time.Minute)
		check(t, "one was changed", r.dp.printObjectOps(), "put tunnel to "+nodes[8]+" by tunl0")
		before := r.dp.listings()
		time.Sleep(time.Minute)
		if n := r.dp.listings() - before; n > 6 {
			t.Errorf("%d listings a minute", n)
		}
		r.again() // what follows is found in the journal
		r.encapsulate(nodes...)
		time.Sleep(time.Minute)
		check(t, "after a restart", r.dp.printObjectOps())
	})
}

// However long a listing took, the next one follows a minute later at most.
func TestTunnelsAreListedAgainAfterASlowListing(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		r.encapsulate("192.0.2.1", "192.0.2.2")
		r.dp.state(func() { r.dp.slowList = 10 * time.Second })
		time.Sleep(30 * time.Second)
		r.dp.steal(route.Endpoint{Interface: "tunl0", Outer: addr("192.0.2.1")})
		r.dp.printObjectOps()
		time.Sleep(listMost + 20*time.Second)
		check(t, "one was taken away", r.dp.printObjectOps(), "put tunnel to 192.0.2.1 by tunl0")
	})
}

// tunnelObjects are an interface for tunnels with an address, and tunnels to these nodes.
func tunnelObjects(nodes ...string) []route.Object {
	all := []route.Object{route.Link{Name: "tunl0", Kind: route.IPIPTunnel},
		route.Up{Interface: "tunl0"}, on("tunl0", "10.9.0.1/32")}
	for _, n := range nodes {
		all = append(all, route.Endpoint{Interface: "tunl0", Outer: addr(n)})
	}
	return all
}

// An interface and its state are written before the tunnels on it are taken in. Its address, which
// no tunnel needs, is written meanwhile.
func TestTunnelsAreTakenInAfterTheirInterface(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.slow = 5 * time.Millisecond
		r.tellOfTunnels()
		began := time.Now()
		r.setObjects(route.Own, tunnelObjects("10.0.0.2")...)
		for _, step := range []struct {
			at, wanted, there int
		}{{4, 3, 0}, {9, 3, 1}, {11, 4, 2}} {
			time.Sleep(time.Duration(step.at)*time.Millisecond - time.Since(began))
			synctest.Wait()
			if o := r.Stats().Objects; o.Desired != step.wanted || o.Programmed != step.there {
				t.Errorf("after %d ms: %+v, want %+v", step.at, o, step)
			}
		}
	})
}

// A tunnel that waits for its interface is not made when that comes, if it is not in the newest
// list, though that is taken in only then.
func TestTunnelThatIsNotInTheNewestListIsNotMade(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.slow = 25 * time.Millisecond // more than objectsHead
		r.tellOfTunnels()
		r.setObjects(route.Own, tunnelObjects("10.0.0.2", "10.0.0.3")...)
		time.Sleep(40 * time.Millisecond)
		synctest.Wait()
		if o := r.Stats().Objects; o.Desired != 5 || o.Programmed != 1 {
			t.Fatalf("while the interface comes up: %+v", o)
		}
		r.setObjects(route.Own, tunnelObjects("10.0.0.3")...)
		time.Sleep(time.Second)
		check(t, "made", r.dp.printObjectOps(), "put new interface tunl0", "put interface tunl0",
			"put address 10.9.0.1/32 of tunl0", "put tunnel to 10.0.0.3 by tunl0")
	})
}

// Of two sources that want one tunnel the first has it, and then the other.
func TestTunnelThatTwoSourcesWant(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		end := route.Endpoint{Interface: "tunl0", Outer: addr("10.0.0.2")}
		origin := func() route.Origin {
			synctest.Wait()
			return r.FindObject(end.Key()).Origin
		}
		r.setObjects(route.External, end)
		if o := origin(); o != route.Own {
			t.Errorf("wanted by both: %v's", o)
		}
		r.setObjects(route.Own)
		if o := origin(); o != route.External {
			t.Errorf("wanted by one: %v's", o)
		}
	})
}

// The agent is restarted while the data plane is away, and what it wants is known before that is
// back.
func TestTunnelsThatAreAdoptedLateAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		r.dp.foreign[key("0.0.0.0/0")] = true
		r.tellOfTunnels()
		r.setObjects(route.Own, tunnelObjects("10.0.0.2", "10.0.0.3")...)
		synctest.Wait()
		r.stop()
		facts := r.dp.now
		r.dp.tell(route.Facts{Problem: "away"})
		<-r.dp.facts
		r.again()
		r.setObjects(route.Own, tunnelObjects("10.0.0.2", "10.0.0.3")...)
		time.Sleep(time.Second)
		r.dp.tell(facts)
		time.Sleep(time.Second)
		synctest.Wait()
		if o := r.Stats().Objects; o.Desired != 5 || o.Programmed != 5 {
			t.Errorf("counted: %+v", o)
		}
		if s := r.Settled(1); s.Revision != r.revision {
			t.Errorf("revision %d was set, settled: %+v", r.revision, s)
		}
	})
}

// A refused tunnel whose time comes while a list is taken in is tried again.
func TestTunnelIsTriedAgainWhileAListIsTakenIn(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		end := route.Endpoint{Interface: "tunl0", Outer: addr("10.0.0.9")}
		r.dp.state(func() { r.dp.refuseObject[end.Key()] = errGone })
		r.setObjects(route.Own, end)
		synctest.Wait()
		r.dp.heal()
		r.mu.Lock()
		s := r.Engine.sync
		s.now = s.now.Add(time.Minute)
		s.beginObjects(&r.wanted.Sources, r.revision)
		s.retry()
		s.takeMany(shortBatch)
		waits := s.objects.puts.len()
		r.mu.Unlock()
		if waits != 1 {
			t.Errorf("%d tunnels are to be made", waits)
		}
	})
}

func TestObjectDoesNotWaitForOneThatIsNotWantedAnyMore(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		link, a := route.Link{Name: "eth0"}, on("eth0", "192.168.4.7/24")
		r.dp.state(func() { r.dp.refuseObject[link.Key()] = errGone })
		r.setObjects(route.External, link, a)
		check(t, "refused", r.dp.printObjectOps())
		r.setObjects(route.External, a)
		check(t, "without it", r.dp.printObjectOps(), "put address 192.168.4.7/24 of eth0")
	})
}

// What an earlier run left, of which no journal tells, goes when all is known.
func TestTunnelsOfALostJournalAreSwept(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		r.stop()
		if err := os.Remove(r.Engine.keeps.path); err != nil {
			t.Fatal(err)
		}
		r.again()
		r.encapsulate("10.0.0.2")
		time.Sleep(time.Minute)
		if there := r.dp.there(); !slices.Contains(there, "tunnel to 192.0.2.1 by tunl0") {
			t.Errorf("it is gone before all is known: %v", there)
		}
		r.AllowSweep()
		time.Sleep(time.Minute)
		check(t, "left", r.dp.there(), "tunnel to 10.0.0.2 by tunl0")
	})
}

// So do interfaces with our mark. Another program's stays, and so does one that is wanted.
func TestInterfacesOfALostJournalAreSwept(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		kept, gone := route.Link{Name: "tunl0"}, route.Link{Name: "vxlan.calico"}
		r.dp.others(route.FoundLink{Name: "eth7"})
		r.setObjects(route.Own, kept, gone)
		synctest.Wait()
		r.stop()
		if err := os.Remove(r.Engine.keeps.path); err != nil {
			t.Fatal(err)
		}
		r.dp.printObjectOps()
		r.again()
		r.setObjects(route.Own, kept)
		time.Sleep(time.Minute)
		check(t, "before all is known", r.dp.printObjectOps())
		r.AllowSweep()
		time.Sleep(time.Minute)
		check(t, "then", r.dp.printObjectOps(), "del new interface vxlan.calico")
		check(t, "states", r.objectStates(), "new interface tunl0 programmed")
	})
}

// So do those that are not in the journal, which is an older copy.
func TestInterfacesThatAnOlderJournalLacksAreSwept(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		first, second := route.Link{Name: "tunl0"}, route.Link{Name: "vxlan.calico"}
		r.setObjects(route.Own, first)
		synctest.Wait()
		older, err := os.ReadFile(r.Engine.keeps.path)
		if err != nil {
			t.Fatal(err)
		}
		r.setObjects(route.Own, first, second)
		synctest.Wait()
		r.stop()
		if err := os.WriteFile(r.Engine.keeps.path, older, 0o600); err != nil {
			t.Fatal(err)
		}
		r.dp.printObjectOps()
		r.again()
		r.setObjects(route.Own, first)
		time.Sleep(time.Minute)
		check(t, "before all is known", r.dp.printObjectOps())
		r.AllowSweep()
		time.Sleep(time.Minute)
		check(t, "then", r.dp.printObjectOps(), "del new interface vxlan.calico")
	})
}

// What is wanted on such an interface is ours, too, though it is there already.
func TestAddressOnAnInterfaceOfALostJournal(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		link := route.Link{Name: "eth0"}
		a := on("eth0", "192.168.4.7/24")
		r.setObjects(route.Own, link, a)
		synctest.Wait()
		check(t, "put", r.dp.printObjectOps(), "put new interface eth0", "put "+a.Key().String())
		r.stop()
		if err := os.Remove(r.Engine.keeps.path); err != nil {
			t.Fatal(err)
		}
		r.again()
		r.setObjects(route.Own, link, a)
		time.Sleep(time.Minute)
		check(t, "states", r.objectStates(), a.Key().String()+" programmed",
			"new interface eth0 programmed")
		r.dp.printObjectOps()
		r.setObjects(route.Own, link)
		time.Sleep(time.Minute)
		check(t, "deleted", r.dp.printObjectOps(), "del "+a.Key().String())
	})
}

// The next run's journal knows them, though that run ends before it has asked for anything else.
func TestTunnelsOfALostJournalAreInTheNext(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		r.stop()
		if err := os.Remove(r.Engine.keeps.path); err != nil {
			t.Fatal(err)
		}
		r.again()
		r.again()
		r.encapsulate()
		r.AllowSweep()
		time.Sleep(time.Minute)
		check(t, "left", r.dp.there())
	})
}

// While routes of an earlier run are not clear, the journal says of an interface that has blinked
// that it is another one. Its tunnels are there all the same.
func TestTunnelsOnAnInterfaceThatHasBlinkedAreInTheNext(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		synctest.Wait()
		r.again()
		r.dp.changeInterface("tunl0", func(i *route.Interface) { i.Generation++ })
		time.Sleep(time.Minute)
		r.again()
		r.encapsulate()
		r.AllowSweep()
		time.Sleep(time.Minute)
		check(t, "left", r.dp.there())
	})
}

// What was on an interface that is another one since may be gone with it. That is not left to the
// next listing.
func TestTunnelsOnAnInterfaceThatWasMadeAnew(t *testing.T) {
	tunnelled(t, func(t *testing.T, r *running) {
		r.stop()
		r.dp.changeInterface("tunl0", func(i *route.Interface) { i.Index++ })
		for _, n := range []string{"10.0.0.2", "192.0.2.1"} {
			r.dp.steal(route.Endpoint{Interface: "tunl0", Outer: addr(n)})
		}
		r.again()
		r.encapsulate("10.0.0.2", "192.0.2.1")
		check(t, "at once", sorted(r.dp.printObjectOps()),
			"put tunnel to 10.0.0.2 by tunl0", "put tunnel to 192.0.2.1 by tunl0")
	})
}

// Where no pool encapsulates nothing is asked about tunnels.
func TestNothingIsListedWithoutTunnels(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		time.Sleep(time.Minute)
		if n := r.dp.listings(); n != 1 { // the data plane was new
			t.Errorf("%d listings", n)
		}
		r.again()
		time.Sleep(time.Minute)
		if n := r.dp.listings(); n != 1 {
			t.Errorf("%d listings after a restart", n)
		}
	})
}

// What is on an interface that was just made is put at once and is not looked up. Many tunnels go
// in several calls, so that routes through the first are under way while the rest is.
func TestTunnelsOnANewInterface(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		f := node("a")
		f.Interfaces = append(f.Interfaces, route.Interface{Name: "tunl0", Index: 4, Up: true})
		r.dp.tell(f)
		up := route.Up{Interface: "tunl0"}
		all := []route.Object{route.Link{Name: "tunl0", Kind: route.IPIPTunnel}, up}
		const nodes, calls = 1000, (1000 + shortBatch - 1) / shortBatch
		for i := range nodes {
			all = append(all, route.Endpoint{Interface: "tunl0",
				Outer: netip.AddrFrom4([4]byte{192, 0, byte(2 + i>>8), byte(i)})})
		}
		r.dp.state(func() { r.dp.looked = map[route.ObjectKey]int{} })
		began := time.Now()
		set := func(what string, objects ...route.Object) {
			r.dp.state(func() { r.dp.bulks = 0 })
			r.setObjects(route.Own, objects...)
			if there := len(r.dp.there()); there != len(objects) || r.dp.bulks != calls {
				t.Errorf("%s: %d are there, in %d calls", what, there, r.dp.bulks)
			}
		}
		set("put", all...)
		set("deleted")
		if n := r.dp.looked[up.Key()]; n > 0 || time.Since(began) > 0 {
			t.Errorf("looked up %d times, in %s", n, time.Since(began))
		}
	})
}
