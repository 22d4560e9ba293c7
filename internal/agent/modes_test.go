package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// TestModeChanges steps the machine through times, in seconds, with the form of a pool that Calico
// says, and has the one in force and the tunnels that stay without being needed.
func TestModeChanges(t *testing.T) {
	pool := func(form string) (p route.Pool) {
		p = route.Pool{Name: "p", Prefix: pfx("10.1.0.0/16")}
		kind, rest, _ := strings.Cut(form, " ")
		switch kind {
		case "ipip":
			p.Encap = route.IPIP
		case "vxlan":
			p.Encap = route.VXLAN
		}
		p.CrossSubnet = rest == "cross"
		if rest == "waits" {
			p.Waits = "no address"
		}
		return p
	}
	type at struct {
		second       float64
		says         string
		inForce      string
		unusable     bool
		stay         string
		withoutPools bool
	}
	for name, steps := range map[string][]at{
		"to plain": {{second: 0, says: "ipip", inForce: "ipip"},
			{second: 10, says: "plain", inForce: "ipip", stay: "tunl0"},
			{second: 11.9, says: "plain", inForce: "ipip", stay: "tunl0"},
			{second: 12, says: "plain", inForce: "plain", stay: "tunl0"},
			{second: 71.8, says: "plain", inForce: "plain", stay: "tunl0"},
			{second: 72, says: "plain", inForce: "plain"}},
		"from plain": {{second: 0, says: "plain", inForce: "plain"},
			{second: 1, says: "ipip", inForce: "plain"},
			{second: 3, says: "ipip", inForce: "ipip"}},
		"to another kind that cannot be used yet": {{second: 0, says: "ipip", inForce: "ipip"},
			{second: 1, says: "vxlan waits", inForce: "ipip", unusable: true, stay: "tunl0"},
			{second: 50, says: "vxlan", inForce: "ipip", unusable: true, stay: "tunl0"},
			{second: 51, says: "vxlan", inForce: "vxlan", stay: "tunl0"},
			{second: 109, says: "vxlan", inForce: "vxlan", stay: "tunl0"},
			{second: 111, says: "vxlan", inForce: "vxlan"}},
		"to one that never can": {{second: 0, says: "ipip", inForce: "ipip"},
			{second: 1, says: "vxlan waits", inForce: "ipip", unusable: true, stay: "tunl0"},
			{second: 60, says: "vxlan waits", inForce: "ipip", unusable: true, stay: "tunl0"},
			{second: 61, says: "vxlan waits", inForce: "vxlan", unusable: true, stay: "tunl0"}},
		"across subnets": {{second: 0, says: "ipip", inForce: "ipip"},
			{second: 1, says: "ipip cross", inForce: "ipip"},
			{second: 3, says: "ipip cross", inForce: "ipip cross"}},
		"back within the pause": {{second: 0, says: "ipip", inForce: "ipip"},
			{second: 1, says: "plain", inForce: "ipip", stay: "tunl0"},
			{second: 2, says: "ipip", inForce: "ipip"},
			{second: 9, says: "plain", inForce: "ipip", stay: "tunl0"}},
		"twice within the pause": {{second: 0, says: "ipip", inForce: "ipip"},
			{second: 1, says: "plain", inForce: "ipip", stay: "tunl0"},
			{second: 2, says: "ipip cross", inForce: "ipip"},
			{second: 3.5, says: "ipip cross", inForce: "ipip"},
			{second: 4, says: "ipip cross", inForce: "ipip cross"}},
		"from what never worked": {{second: 0, says: "ipip waits", inForce: "ipip"},
			{second: 1, says: "plain", inForce: "plain", stay: "tunl0"}},
		"a pool that goes": {{second: 0, says: "ipip", inForce: "ipip"},
			{second: 1, withoutPools: true, stay: "tunl0"}, {second: 61, withoutPools: true}},
	} {
		var m modes
		start := time.Unix(0, 0)
		last := Plan{Encapsulation: &route.Encapsulation{}}
		for _, s := range steps {
			now := start.Add(time.Duration(s.second * float64(time.Second)))
			var pools []route.Pool
			if !s.withoutPools {
				pools = []route.Pool{pool(s.says)}
			}
			e := &route.Encapsulation{Pools: pools}
			f := m.step(now, 2*time.Second, pools, last, nil, func(route.Pool, bool) bool {
				return !s.unusable
			})
			used := f.into(e)
			var stay []string
			for _, o := range f.Tunnels {
				stay = append(stay, o.Key().Interface)
			}
			if got := strings.Join(stay, " "); got != s.stay ||
				len(pools) > 0 && !sameForm(used.Pools[0], pool(s.inForce)) {
				t.Errorf("%s: after %v s %+v, tunnels %q", name, s.second, used.Pools, got)
			}
			if last = (Plan{Encapsulation: used, Tunnels: f.Tunnels}); len(pools) > 0 {
				if i := interfaceOf(pools[0]); i != "" {
					last.Tunnels = append(last.Tunnels, route.Link{Name: i})
				}
			}
		}
	}
}

// calico-node allocates a VTEP's address after the mode has changed: the node as it is counts.
func TestFormerNodesGiveWay(t *testing.T) {
	now := route.Nodes{{Address: addr("192.168.4.3"), Name: "b", VXLAN: &route.VTEP{MAC: "m"}}}
	f := Former{Pools: map[netip.Prefix]route.Pool{}, Nodes: route.Nodes{
		{Address: addr("192.168.4.3"), Name: "b", VXLAN: &route.VTEP{Problem: "no address"}},
		{Address: addr("192.168.4.4"), Name: "c"}}}
	got := f.into(&route.Encapsulation{Nodes: now}).Nodes
	if want := append(now, f.Nodes[1]); !slices.EqualFunc(got, want, route.Node.Equal) {
		t.Errorf("%+v instead of %+v", got, want)
	}
}

// TestModeChangesUnderWay has pools change, and calico-node take the addresses of tunnels away and
// allocate others. Routes are replaced, each by one put.
func TestModeChangesUnderWay(t *testing.T) {
	vxlan := func(mode calico.EncapMode, addresses bool) *calico.Snapshot {
		c := encapsulated(calico.EncapNever)
		c.IPPools["pods"] = calico.IPPool{Name: "pods", CIDR: pfx("10.1.0.0/16"), VXLANMode: mode}
		for name, n := range c.Nodes {
			if n.IPv4IPIPTunnelAddr = (netip.Addr{}); addresses {
				n.IPv4VXLANTunnelAddr = addr("10.9.0.9") // nobody compares them
			}
			c.Nodes[name] = n
		}
		return c
	}
	routes := func(n *node) (all []string) {
		for _, op := range n.take() {
			if strings.Contains(op, "10.1.0.64/26") || strings.Contains(op, "tunnel to") ||
				strings.Contains(op, "delete new interface") {
				all = append(all, op)
			}
		}
		return all
	}
	inBubble(t, func(t *testing.T, n *node) {
		facts := route.Facts{Identity: "one", Interfaces: slices.Clone(live.Interfaces)}
		n.dataplane.facts <- facts
		n.snapshots <- encapsulated(calico.EncapAlways)
		time.Sleep(10 * time.Second)
		facts.Interfaces = append(facts.Interfaces,
			route.Interface{Name: "tunl0", Index: 8, Up: true})
		n.dataplane.facts <- facts
		expect := func(what string, after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := routes(n); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		expect("IPIP", 10*time.Second, "put tunnel to 192.168.4.3 by tunl0",
			"put 10.1.0.64/26 via fe80::5efe:c0a8:403 tunl0")
		n.snapshots <- vxlan(calico.EncapAlways, false)
		expect("VXLAN without addresses", 20*time.Second)
		n.snapshots <- vxlan(calico.EncapAlways, true)
		expect("with addresses, the interface is on its way", 5*time.Second,
			"put tunnel to 192.168.4.3 by vxlan.calico")
		facts.Interfaces = append(slices.Clone(facts.Interfaces),
			route.Interface{Name: "vxlan.calico", Index: 9, Up: true})
		n.dataplane.facts <- facts
		expect("VXLAN", 3*time.Second, "put 10.1.0.64/26 via 192.168.4.3 vxlan.calico")
		expect("late nodes send IPIP", 55*time.Second)
		expect("none does any more", 10*time.Second, "delete tunnel to 192.168.4.3 by tunl0",
			"delete new interface tunl0")
		n.snapshots <- vxlan(calico.EncapNever, true)
		expect("plain, not yet", 1900*time.Millisecond)
		expect("plain", 3*time.Second, "put 10.1.0.64/26 via 192.168.4.3 eth0")
		expect("late nodes send VXLAN", 54*time.Second)
		if all := n.agent.Tunnels(); len(all) != 1 || all[0].Node != "b" {
			t.Errorf("tunnels %+v", all)
		}
		expect("no more", 10*time.Second, "delete tunnel to 192.168.4.3 by vxlan.calico",
			"delete new interface vxlan.calico")
		if e := n.agent.plan.Encapsulation; e != nil {
			t.Errorf("the plan is left with %+v", e)
		}
	}, func(c *Config) {
		c.EncapPause = 2 * time.Second
		c.EtcdRoutes = []ipam.AddressSource{ipam.NodeObject}
		c.BGP = bgp.Options{Tunnels: []route.Encap{route.IPIP, route.VXLAN}}
		c.Sources = []route.Origin{route.BGP, route.Etcd, route.Overlay, route.Own}
	})
}

// TestModeChangesWithOneAddress: the interface of the new form gets the address that the one of the
// former form has, and cannot be made before that is gone. Neither waits for the other: the former
// goes when the other nodes are ready, without the minute for late ones.
func TestModeChangesWithOneAddress(t *testing.T) {
	form := func(ipip, vxlan calico.EncapMode, vteps ...string) *calico.Snapshot {
		c := encapsulated(ipip)
		p := c.IPPools["pods"]
		p.VXLANMode = vxlan
		c.IPPools["pods"] = p
		for name, n := range c.Nodes {
			if vxlan != calico.EncapNever {
				n.IPv4IPIPTunnelAddr = netip.Addr{}
			}
			if slices.Contains(vteps, name) {
				n.IPv4VXLANTunnelAddr = addr("10.9.0.1")
			}
			c.Nodes[name] = n
		}
		return c
	}
	inBubble(t, func(t *testing.T, n *node) {
		has := func(interfaces ...route.Interface) {
			n.dataplane.facts <- route.Facts{Identity: "one",
				Interfaces: append(slices.Clone(live.Interfaces), interfaces...)}
		}
		expect := func(what string, after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			var got []string
			for _, op := range n.take() {
				if strings.Contains(op, "10.1.0.64/26") || strings.Contains(op, "new interface") {
					got = append(got, op)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		ipip := route.Interface{Name: "tunl0", Index: 8, Up: true}
		vxlan := route.Interface{Name: "vxlan.calico", Index: 9, Up: true}
		has()
		n.snapshots <- form(calico.EncapAlways, calico.EncapNever)
		time.Sleep(10 * time.Second)
		has(ipip)
		expect("IPIP", 10*time.Second, "put new interface tunl0",
			"put 10.1.0.64/26 via fe80::5efe:c0a8:403 tunl0")
		n.snapshots <- form(calico.EncapNever, calico.EncapAlways, "a")
		expect("the other node has no VTEP", 20*time.Second, "put new interface vxlan.calico")
		n.snapshots <- form(calico.EncapNever, calico.EncapAlways, "a", "b")
		expect("VXLAN", time.Second, "delete 10.1.0.64/26", "delete new interface tunl0")
		has(vxlan)
		expect("the interface is there", time.Second,
			"put 10.1.0.64/26 via 192.168.4.3 vxlan.calico")
		n.snapshots <- form(calico.EncapAlways, calico.EncapNever, "a", "b")
		expect("back to IPIP", 5*time.Second, "put new interface tunl0", "delete 10.1.0.64/26",
			"delete new interface vxlan.calico")
		has(ipip)
		expect("IPIP again", time.Second, "put 10.1.0.64/26 via fe80::5efe:c0a8:403 tunl0")

		// Of two pools the second changes later. Until its pause is over it holds the interface.
		two := func(c *calico.Snapshot, ipip, vxlan calico.EncapMode) *calico.Snapshot {
			c.IPPools["more"] = calico.IPPool{Name: "more", CIDR: pfx("10.2.0.0/16"),
				IPIPMode: ipip, VXLANMode: vxlan}
			return c
		}
		n.snapshots <- two(form(calico.EncapAlways, calico.EncapNever),
			calico.EncapAlways, calico.EncapNever)
		time.Sleep(10 * time.Second)
		apart := form(calico.EncapNever, calico.EncapAlways)
		for name, node := range apart.Nodes {
			node.IPv4IPIPTunnelAddr = addr("10.9.0.1") // there is a pool that needs it
			apart.Nodes[name] = node
		}
		n.snapshots <- two(apart, calico.EncapAlways, calico.EncapNever)
		expect("the first changes", time.Second)
		n.snapshots <- two(form(calico.EncapNever, calico.EncapAlways, "a", "b"),
			calico.EncapNever, calico.EncapAlways)
		expect("the second changes", 1500*time.Millisecond, "put new interface vxlan.calico")
		expect("both", 2*time.Second, "delete 10.1.0.64/26", "delete new interface tunl0")
	}, func(c *Config) {
		c.EncapPause = 2 * time.Second
		c.EtcdRoutes = []ipam.AddressSource{ipam.NodeObject}
		c.BGP = bgp.Options{Tunnels: []route.Encap{route.IPIP, route.VXLAN}}
		c.Sources = []route.Origin{route.BGP, route.Etcd, route.Overlay, route.Own}
	})
}
