package fib

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

// attached runs f on an engine whose data plane takes neighbours only. 10.9.0.0/24 is behind
// 10.0.0.9.
func attached(t *testing.T, f func(t *testing.T, r *running)) {
	synctest.Test(t, func(t *testing.T) {
		facts := node("a")
		facts.AttachedOnly = true
		dp := newFake(facts)
		dp.foreign[key("10.9.0.0/24")] = true
		dp.by = map[route.Key]string{}
		r := startWith(dp, Config{Tuning: Tuning{SpotChecks: 5, RepairDrift: true}})
		defer r.stop()
		r.AllowSweep()
		f(t, r)
	})
}

func TestNeighboursStandForANextHop(t *testing.T) {
	attached(t, func(t *testing.T, r *running) {
		r.Learn(pfx(one), via("10.9.0.5"))
		check(t, "one", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.9 eth0")
		r.SetRoutes(route.External, []route.Route{
			{Key: key(two), Paths: via("10.9.0.5", "10.9.0.6", "10.0.1.2")}})
		check(t, "weights of a neighbour that two have in common add up", r.dp.printOps(),
			"put 10.1.0.64/26 via 10.0.0.9 eth0 weight 2, 10.0.1.2 eth1")
		if e := r.state(one); e.State != Programmed || e.Paths[0].Interface != "eth0" {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Minute)
		if s := r.Stats(); s.Drift.Checked == 0 || s.Drift.Different != 0 {
			t.Errorf("%+v", s.Drift)
		}
	})
}

// TestChangedRoutesAreFollowedAtOnce, and not in rotation alone.
func TestChangedRoutesAreFollowedAtOnce(t *testing.T) {
	attached(t, func(t *testing.T, r *running) {
		var others []netip.Addr // more than the rotation asks about in ten seconds
		for i := range 200 {
			others = append(others, netip.AddrFrom4([4]byte{10, 9, 0, byte(20 + i)}))
		}
		r.Protect(nil, others)
		r.Learn(pfx(one), via("10.9.0.5"))
		check(t, "one way", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.9 eth0")
		facts := r.dp.now
		facts.RouteChanges++
		r.dp.state(func() { r.dp.by[key("10.9.0.0/24")] = "eth1" })
		r.dp.tell(facts)
		check(t, "another", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.9 eth1")
	})
}

func TestRoutesLeaveWithTheInterfaceOfANeighbour(t *testing.T) {
	attached(t, func(t *testing.T, r *running) {
		r.Learn(pfx(one), via("10.9.0.5"))
		check(t, "up", r.dp.printOps(), "put 10.1.0.0/26 via 10.0.0.9 eth0")
		down := r.dp.now
		down.Interfaces = node("a").Interfaces
		down.Interfaces[0].Up = false
		r.dp.tell(down)
		check(t, "down", r.dp.printOps(), "del 10.1.0.0/26")
	})
}

// TestNextHopsGoTheWayOfARouteThatCarriesThem, whatever of it can be used at the moment.
func TestNextHopsGoTheWayOfARouteThatCarriesThem(t *testing.T) {
	attached(t, func(t *testing.T, r *running) {
		r.Learn(pfx(one), via("10.9.0.5"))
		r.dp.printOps()
		carrier := func(hops ...string) {
			r.SetRoutes(route.Own, []route.Route{{Key: key("10.9.0.5/32"), Paths: via(hops...)}})
		}
		carrier("10.0.1.2")
		check(t, "one way", r.dp.printOps(), "put 10.9.0.5/32 via 10.0.1.2 eth1",
			"put 10.1.0.0/26 via 10.0.1.2 eth1")
		carrier("10.0.1.2", "10.0.0.2")
		check(t, "two ways", r.dp.printOps(), "put 10.9.0.5/32 via 10.0.0.2 eth0, 10.0.1.2 eth1",
			"put 10.1.0.0/26 via 10.0.0.2 eth0, 10.0.1.2 eth1")
		r.SetRoutes(route.Own, nil)
		check(t, "no more", r.dp.routes(), "10.1.0.0/26 via 10.0.0.9 eth0")
	})
}
