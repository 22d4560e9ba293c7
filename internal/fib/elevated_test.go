package fib

import (
	"testing"

	"vpp-route-agent/internal/route"
)

// A static route is the operator's word for an address, and a migrating machine does not go before
// it. Without it the machine has its place again.
func TestAStaticRouteGoesBeforeAnElevatedOne(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		static := []route.Route{{Key: key("10.1.0.9/32"), Paths: via("10.0.1.2")}}
		r.SetNormal(100, 100)
		r.LearnPreferred(pfx("10.1.0.9/32"), via("10.0.0.2"), 200)
		check(t, "elevated", r.dp.printOps(), "put 10.1.0.9/32 elevated via 10.0.0.2 eth0")
		r.SetRoutes(route.External, static)
		check(t, "a static route comes", r.dp.printOps(), "put 10.1.0.9/32 via 10.0.1.2 eth1",
			"del 10.1.0.9/32 elevated")
		r.LearnPreferred(pfx("10.1.0.9/32"), via("10.0.0.3"), 300)
		check(t, "the machine moves on", r.dp.printOps())
		r.SetRoutes(route.External, nil)
		check(t, "the static route goes", r.dp.printOps(),
			"put 10.1.0.9/32 elevated via 10.0.0.3 eth0", "del 10.1.0.9/32")
		r.SetRoutes(route.Etcd, static)
		check(t, "a route from etcd is none", r.dp.printOps())
		r.SetRoutes(route.Own, static)
		check(t, "one of this node is", r.dp.printOps(), "put 10.1.0.9/32 via 10.0.1.2 eth1",
			"del 10.1.0.9/32 elevated")
	})
}

// A restarted node hears of a machine's old place before its new one. The elevated route of before
// stays until all peers have said what they have, or the operator says otherwise.
func TestAnElevatedRouteOfBeforeWaitsForItsPeer(t *testing.T) {
	for name, c := range map[string]struct {
		then func(*running)
		want []string
	}{
		"its peer comes": {func(r *running) {
			r.LearnPreferred(pfx("10.1.0.9/32"), via("10.0.0.2"), 200)
			r.AllowSweep(route.BGP)
		}, []string{"del 10.1.0.9/32"}},
		"its peer does not come": {func(r *running) {
			r.AllowSweep(route.BGP)
		}, []string{"del 10.1.0.9/32 elevated"}},
		"a static route comes": {func(r *running) {
			r.AllowSweep(route.External)
			r.SetRoutes(route.External, []route.Route{
				{Key: key("10.1.0.9/32"), Paths: via("10.0.1.2")}})
		}, []string{"put 10.1.0.9/32 via 10.0.1.2 eth1", "del 10.1.0.9/32 elevated"}},
	} {
		t.Run(name, func(t *testing.T) {
			restarted(t, func(t *testing.T, r *running) {
				r.SetNormal(100, 100)
				r.LearnPreferred(pfx("10.1.0.9/32"), via("10.0.0.2"), 200)
			}, func(t *testing.T, r *running) {
				r.SetNormal(100, 100)
				r.LearnPreferred(pfx("10.1.0.9/32"), via("10.0.0.3"), 100)
				check(t, "the old place", r.dp.printOps(), "put 10.1.0.9/32 via 10.0.0.3 eth0")
				c.then(r)
				check(t, name, r.dp.printOps(), c.want...)
			})
		})
	}
}
