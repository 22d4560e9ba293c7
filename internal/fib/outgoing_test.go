package fib

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

func outgoing(r *running) (texts []string) {
	synctest.Wait()
	for _, o := range r.Outgoing() {
		texts = append(texts, fmt.Sprint(o.Prefix, " ", o.Interface))
	}
	return texts
}

// TestOutgoing covers connected subnets, next hops in use beyond them, addresses that somebody asks
// for, and a host route of this node's own that leads elsewhere.
func TestOutgoing(t *testing.T) {
	bubble(t, func(t *testing.T, r *running) {
		subnets := []string{
			"10.0.0.0/24 eth0", "10.0.1.0/24 eth1", "10.200.0.1/32 loop0", "fd00::/64 eth0",
		}
		r.dp.state(func() {
			r.dp.foreign[key("10.9.0.0/24")], r.dp.foreign[key("10.8.0.0/24")] = true, true
			r.dp.by = map[route.Key]string{key("10.9.0.0/24"): "eth1", key("10.8.0.0/24"): "eth0"}
		})
		r.Learn(pfx("10.1.0.0/26"), via("10.9.0.5"))
		check(t, "a next hop in use", outgoing(r),
			append(subnets[:2:2], "10.9.0.5/32 eth1", subnets[2], subnets[3])...)
		signalled(r.Changed())
		r.FollowOutgoing([]netip.Addr{addr("10.8.0.5"), addr("10.7.0.5"), addr("10.0.0.9")})
		if !signalled(r.Changed()) {
			t.Error("no signal of what was asked for")
		}
		check(t, "asked for", outgoing(r),
			append(subnets[:2:2], "10.8.0.5/32 eth0", "10.9.0.5/32 eth1",
				subnets[2], subnets[3])...)
		r.dp.state(func() { r.dp.by[key("10.8.0.0/24")] = "eth1" })
		time.Sleep(time.Second)
		if !signalled(r.Changed()) {
			t.Error("no signal that the way is another")
		}
		check(t, "another way", outgoing(r)[2:4], "10.8.0.5/32 eth1", "10.9.0.5/32 eth1")

		r.Learn(pfx("10.1.0.64/26"), via("10.0.0.2"))
		peer := route.Route{Key: key("10.0.0.2/32"), Paths: via("10.0.1.9")}
		r.SetRoutes(route.Own, []route.Route{peer})
		check(t, "a route of our own", outgoing(r)[:2], "10.0.0.0/24 eth0", "10.0.0.2/32 eth1")
		signalled(r.Changed())
		peer.Paths = via("10.0.0.9")
		r.SetRoutes(route.Own, []route.Route{peer})
		time.Sleep(500 * time.Microsecond)
		if !signalled(r.Changed()) {
			t.Error("no signal of its other gateway")
		}
		check(t, "by another gateway", outgoing(r)[:2], "10.0.0.0/24 eth0", "10.0.0.2/32 eth0")
		r.SetRoutes(route.Own, nil)
		r.FollowOutgoing(nil)
		check(t, "not any more", outgoing(r),
			append(subnets[:2:2], "10.9.0.5/32 eth1", subnets[2], subnets[3])...)
		down := node("a")
		down.Interfaces[0].Up = false
		r.dp.tell(down)
		check(t, "down", outgoing(r)[:1], "10.0.1.0/24 eth1")
		r.dp.tell(route.Facts{})
		check(t, "the data plane is away", outgoing(r)[:1], "10.0.1.0/24 eth1")
	})
}

// TestOutgoingIsNotKnownAtFirst tells that from a data plane without interfaces.
func TestOutgoingIsNotKnownAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(newFake(route.Facts{}), "")
		if got := r.Outgoing(); got != nil {
			t.Errorf("%v", got)
		}
		r.dp.tell(route.Facts{Identity: "a"})
		synctest.Wait()
		if got := r.Outgoing(); got == nil || len(got) > 0 {
			t.Errorf("%v", got)
		}
		r.stop()
	})
}
