package agent

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// In a pool with IPIP only nodes are next hops, for BGP too. It asks again when that changes for
// a next hop that it has been refused, or that may not be one any more; not when a node joins.
func TestNextHopsInAPoolWithIPIP(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.stop()
		n.start(t, "", func(c *Config) {
			c.BGP.Tunnels = []route.Encap{route.IPIP}
		})
		c := encapsulated(calico.EncapAlways)
		join := func(name, address string) {
			d := *c
			c = &d
			c.Nodes = maps.Clone(c.Nodes)
			if delete(c.Nodes, name); address != "" {
				c.Nodes[name] = calico.Node{Name: name, IPv4: pfx(address)}
			}
			n.snapshots <- c
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		pool := pfx("10.1.0.0/16")
		check := func(what string, asked int, isNode bool, left ...NextHopStatus) {
			t.Helper()
			for _, x := range []struct {
				prefix, hop string
				want        bool
			}{
				{"10.1.7.0/26", "192.168.4.3", true}, {"10.1.7.0/26", "203.0.113.9", isNode},
				{"10.1.0.0/15", "203.0.113.9", true}, {"10.3.0.0/24", "203.0.113.9", true},
			} {
				if n.speaker.allows(x.prefix, x.hop) != x.want {
					t.Errorf("%s: %s by %s: %v", what, x.prefix, x.hop, !x.want)
				}
			}
			got := n.agent.Status().FIB.UnusableNextHops
			same := func(a, b NextHopStatus) bool {
				return a.Address == b.Address && a.Reason == b.Reason && *a.Pool == *b.Pool
			}
			if !slices.EqualFunc(got, left, same) || n.speaker.timesAsked() != asked {
				t.Errorf("%s: asked %d times, status %+v", what, n.speaker.timesAsked(), got)
			}
		}
		n.dataplane.facts <- live
		join("b", "192.168.4.3/24")
		isNone := NextHopStatus{addr("203.0.113.9"), "IPPool(pods) has IPIP: next hop " +
			"203.0.113.9 is not the address of a Node", &pool}
		check("no node", 1, false, isNone)
		join("c", "198.51.100.3/24")
		check("another node joins", 1, false, isNone)
		join("d", "203.0.113.9/24")
		check("it is a node now", 2, true)
		join("e", "203.0.113.10/24")
		check("another node joins", 2, true)
		join("d", "")
		check("it has left", 3, false, isNone)
		d := *c
		c = &d
		c.IPPools = map[string]calico.IPPool{"pods": {Name: "pods", CIDR: pool}}
		join("e", "203.0.113.10/24")
		check("no mode", 4, true)
	})
}

// What BGP asks while rules change is answered by old or new ones, and remembered in bounds.
func TestUsableHops(t *testing.T) {
	e := &route.Encapsulation{Own4: pfx("192.168.4.2/24"),
		Nodes: route.Nodes{{Address: addr("192.168.4.3"), Name: "b"}},
		Pools: []route.Pool{{Name: "p", Prefix: pfx("10.1.0.0/16"), Encap: route.IPIP}}}
	var u usableHops
	if !u.take(&hopRules{tunnels: e}) {
		t.Error("BGP need not ask although there are tunnels")
	}
	refused := map[netip.Addr]string{addr("192.168.4.3"): "no"}
	if !u.usable(pfx("10.1.1.0/26"), addr("192.168.4.3")) ||
		!u.take(&hopRules{tunnels: e, noTunnel: refused}) ||
		u.usable(pfx("10.1.1.0/26"), addr("192.168.4.3")) ||
		!u.usable(pfx("10.2.1.0/26"), addr("192.168.4.3")) {
		t.Error("its tunnel is refused: not taken in")
	}
	if all := u.list(); len(all) != 1 || all[0].Reason != "its tunnel is refused: no" {
		t.Errorf("%+v", all)
	}
	hop := addr("203.0.113.0")
	for range 3 * maxUnusable {
		hop = hop.Next()
		if u.usable(pfx("10.1.1.0/26"), hop) {
			t.Fatalf("%s can be used", hop)
		}
	}
	if n := len(u.list()); n != maxUnusable {
		t.Errorf("%d are remembered", n)
	}
	later := *e
	later.Nodes = e.Nodes.With(route.Nodes{{Address: hop, Name: "c"}}, nil)
	if !u.take(&hopRules{tunnels: &later, noTunnel: refused}) ||
		!u.usable(pfx("10.1.1.0/26"), hop) {
		t.Error("the last of many is a node, and BGP does not ask")
	}
	u.forget()
	host := addr("10.8.0.1")
	published := later
	published.Published = map[netip.Addr]string{host: "h"}
	if u.usable(pfx("10.1.1.0/26"), host) ||
		!u.take(&hopRules{tunnels: &published, noTunnel: refused}) ||
		!u.usable(pfx("10.1.1.0/26"), host) {
		t.Error("a host publishes its address: not taken in")
	}
	if !u.take(&hopRules{tunnels: &later, noTunnel: refused}) ||
		u.usable(pfx("10.1.1.0/26"), host) {
		t.Error("the host does so no longer, and BGP does not ask")
	}
}
