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
