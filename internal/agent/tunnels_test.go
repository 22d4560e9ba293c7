package agent

import (
	"net/netip"
	"path/filepath"
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

// encapsulated is a cluster of nodes a and b with a pool that has a mode.
func encapsulated(mode calico.EncapMode) *calico.Snapshot {
	c := withRemote()
	for name, n := range c.Nodes {
		n.IPv4IPIPTunnelAddr = addr("10.9.0.1")
		c.Nodes[name] = n
	}
	c.IPPools = map[string]calico.IPPool{
		"pods": {Name: "pods", CIDR: pfx("10.1.0.0/16"), IPIPMode: mode},
	}
	return c
}

func TestPlanEncapsulates(t *testing.T) {
	vpp := bgp.Options{Tunnels: []route.Encap{route.IPIP}}
	c := encapsulated(calico.EncapAlways)
	held := route.Nodes{{Address: c.Nodes["b"].IPv4.Addr(), Name: "as it was"},
		{Address: addr("192.168.4.99"), Name: "gone"}}
	facts := Facts{InterfacesRead: true, NodeMTUs: ipam.MTUs{IPv4: 1500}, HeldNodes: held}
	for name, p := range map[string]Plan{
		"with BGP": PlanFor("a", c, vpp, facts), "without": PlanWithoutBGP("a", c, vpp, facts),
	} {
		if p.Encapsulation == nil || len(p.Encapsulation.Nodes) != len(c.Nodes) {
			t.Errorf("%s: encapsulation %+v", name, p.Encapsulation)
		}
		if n := p.Encapsulation.Nodes[0]; n.Name != "b" {
			t.Errorf("%s: the node that is there is %s", name, n.Name)
		}
		if last := p.Tunnels[len(p.Tunnels)-1]; len(p.Tunnels) != 3+len(c.Nodes) ||
			last.Key().String() != "tunnel to 192.168.4.99 by tunl0" {
			t.Errorf("%s: tunnels %v", name, p.Tunnels)
		}
	}
	c.Felix = map[string]calico.FelixConfiguration{"default": {IPIPMTU: 1500}}
	for name, p := range map[string]Plan{
		"with BGP": PlanFor("a", c, vpp, facts), "without": PlanWithoutBGP("a", c, vpp, facts),
	} {
		if !slices.ContainsFunc(p.BGP.Problems, func(p calico.Problem) bool {
			return strings.Contains(p.Err, "ipipMTU 1500: ") && p.Harmless
		}) {
			t.Errorf("%s: an MTU too large: %v", name, p.BGP.Problems)
		}
	}
	for name, p := range map[string]Plan{
		"a data plane without tunnels": PlanFor("a", c, bgp.Options{}, facts),
		"no mode":                      PlanFor("a", encapsulated(calico.EncapNever), vpp, facts),
	} {
		if p.Encapsulation != nil || p.Tunnels != nil {
			t.Errorf("%s: %+v %v", name, p.Encapsulation, p.Tunnels)
		}
	}
}

// VPP cannot read what others encrypt, and says that nothing of its own is encrypted.
func TestPlanWithWireguard(t *testing.T) {
	c := encapsulated(calico.EncapNever)
	c.Felix = map[string]calico.FelixConfiguration{"default": {WireguardEnabled: new(true)}}
	n := c.Nodes["a"]
	n.WireguardKey = true
	c.Nodes["a"] = n
	for _, onVPP := range []bool{true, false} {
		o := bgp.Options{NoWireguard: onVPP}
		for name, p := range map[string]Plan{
			"with BGP": PlanFor("a", c, o, Facts{}), "without": PlanWithoutBGP("a", c, o, Facts{}),
		} {
			said := slices.ContainsFunc(p.BGP.Problems, func(p calico.Problem) bool {
				return p.Resource == "FelixConfiguration(default)" && p.Harmless &&
					strings.Contains(p.Err, "wireguardEnabled: VPP has no WireGuard")
			})
			s := state{noBGP: name == "without", plan: p}
			if r := s.nodeCondition().Reason; said != onVPP ||
				(p.CannotRead != "") != onVPP || (r == "wireguard_key") != onVPP {
				t.Errorf("%s, VPP %v: %v, %q, reason %q", name, onVPP, p.BGP.Problems,
					p.CannotRead, r)
			}
		}
	}
}

// Tunnels are made once the MTU is known, also when Calico's data come first, and the next run
// finds them as they are to be. While the node's address is away they stay.
func TestTunnelsAreMadeOnce(t *testing.T) {
	onVPP := func(c *Config) {
		c.Speaker = nil
		c.BGP = bgp.Options{Tunnels: []route.Encap{route.IPIP}}
	}
	eth0 := live.Interfaces[0]
	eth0.MTU = 1500
	facts := route.Facts{Identity: "one", Interfaces: []route.Interface{eth0}}
	journal := filepath.Join(t.TempDir(), "journal")
	inBubble(t, func(t *testing.T, n *node) {
		for _, want := range []int{3, 0} { // the interface, up, and the other node; not the address
			n.stop()
			n.start(t, journal, onVPP)
			n.snapshots <- encapsulated(calico.EncapAlways)
			time.Sleep(2 * time.Minute)
			n.dataplane.facts <- facts
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			var objects []string
			for _, op := range n.take() {
				if !strings.Contains(op, " 10.") {
					objects = append(objects, op)
				}
			}
			if len(objects) != want {
				t.Errorf("%d instead of %d: %q", len(objects), want, objects)
			}
		}
		made := n.dataplane.objects[route.LinkKey("tunl0")]
		if made.(route.Link).MTU != 1480 {
			t.Errorf("%+v", made)
		}
		eth0.Addresses = nil
		n.dataplane.facts <- route.Facts{Identity: "one", Interfaces: []route.Interface{eth0}}
		n.expect(t, time.Minute)
		if why := n.agent.Status().FIB.Tunnels.Problem; !strings.Contains(why, "do not arrive") {
			t.Errorf("status says %q", why)
		}
	}, onVPP)
}

func TestCountTunnels(t *testing.T) {
	all := []TunnelStatus{{Node: "b", State: "programmed"}, {Node: "c", State: "failed",
		Reason: "why"}, {State: "held"}}
	for i := range all {
		all[i].Encapsulation = route.IPIP
	}
	if c := tunnelCounts(all, ""); *c != (TunnelCounts{"IPIP", 2, 1, "why"}) {
		t.Errorf("%+v", c)
	}
	if c := tunnelCounts(all[:1], "none comes"); *c != (TunnelCounts{"IPIP", 1, 1, "none comes"}) {
		t.Errorf("%+v", c)
	}
	if c := tunnelCounts(nil, ""); c != nil {
		t.Errorf("%+v", c)
	}
}

// The problem is that of a node whose address is the kernel's, behind VPP.
func TestTunnelProblem(t *testing.T) {
	p := PlanFor("a", encapsulated(calico.EncapAlways),
		bgp.Options{Tunnels: []route.Encap{route.IPIP}}, Facts{InterfacesRead: true})
	own := p.Encapsulation.Own4
	n := calico.Node{IPv4: own}
	links := []route.Interface{{Name: "uplink", MTU: 1500, Addresses: []netip.Prefix{own}}}
	if mtusOf(n, links) != (ipam.MTUs{IPv4: 1500}) ||
		mtusOf(calico.Node{IPv4: pfx("192.0.2.1/24")}, links) != (ipam.MTUs{}) {
		t.Error("the uplink is not found")
	}
	for name, x := range map[string]struct {
		facts route.Facts
		want  bool
	}{
		"the address is the kernel's": {route.Facts{Identity: "one"}, true},
		"it is the data plane's":      {route.Facts{Identity: "one", Interfaces: links}, false},
		"there is no data plane":      {route.Facts{}, false},
	} {
		if s := (&state{plan: p}); (s.tunnelProblem(x.facts) != "") != x.want {
			t.Errorf("%s: %q", name, s.tunnelProblem(x.facts))
		}
	}
	if s := (&state{}); s.tunnelProblem(route.Facts{Identity: "one"}) != "" {
		t.Error("there is a problem without tunnels")
	}
}

// Tunnels outlive what the Node says: its IPv4 address, or all of it. Packets still come in.
func TestNodeWithoutAddressHasNoTunnelProblem(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.stop()
		n.start(t, filepath.Join(t.TempDir(), "journal"), func(c *Config) {
			c.BGP = bgp.Options{Tunnels: []route.Encap{route.IPIP}}
		})
		c := encapsulated(calico.EncapAlways)
		own := c.Nodes["a"].IPv4
		n.dataplane.facts <- route.Facts{Identity: "one", Interfaces: []route.Interface{{
			Name: "eth0", Index: 1, Up: true, MTU: 1500, Addresses: []netip.Prefix{own}}}}
		n.snapshots <- c
		time.Sleep(10 * time.Second)
		for name, change := range map[string]func(map[string]calico.Node){
			"no Node": func(all map[string]calico.Node) { delete(all, "a") },
			"IPv6 alone": func(all map[string]calico.Node) {
				me := all["a"]
				me.IPv4, me.IPv6 = netip.Prefix{}, pfx("fd00::1/64")
				all["a"] = me
			},
		} {
			c := encapsulated(calico.EncapAlways)
			change(c.Nodes)
			n.snapshots <- c
			time.Sleep(5 * time.Second)
			count := n.agent.Status().FIB.Tunnels
			if count == nil || count.Problem != "" {
				t.Errorf("%s: %+v", name, count)
			}
			n.snapshots <- encapsulated(calico.EncapAlways)
			time.Sleep(5 * time.Second)
		}
	})
}
