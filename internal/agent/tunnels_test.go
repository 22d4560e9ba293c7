package agent

import (
	"net/netip"
	"testing"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
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
	held := map[netip.Addr]string{addr("192.168.4.99"): "gone"}
	facts := Facts{NodeMTU: 1500, HeldNodes: held}
	for name, p := range map[string]Plan{
		"with BGP": PlanFor("a", c, vpp, facts), "without": PlanWithoutBGP("a", c, vpp, facts),
	} {
		if p.Encapsulation == nil || len(p.Encapsulation.Nodes) != len(c.Nodes) {
			t.Errorf("%s: encapsulation %+v", name, p.Encapsulation)
		}
		if last := p.Tunnels[len(p.Tunnels)-1]; len(p.Tunnels) != 3+len(c.Nodes) ||
			last.Key().String() != "tunnel to 192.168.4.99 by tunl0" {
			t.Errorf("%s: tunnels %v", name, p.Tunnels)
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

func TestCountTunnels(t *testing.T) {
	all := []TunnelStatus{{Node: "b", State: "programmed"}, {Node: "c", State: "failed",
		Reason: "why"}, {State: "held"}}
	if c := countTunnels(all, ""); *c != (TunnelCounts{2, 1, "why"}) {
		t.Errorf("%+v", c)
	}
	if c := countTunnels(all[:1], "none comes"); *c != (TunnelCounts{1, 1, "none comes"}) {
		t.Errorf("%+v", c)
	}
	if c := countTunnels(nil, ""); c != nil {
		t.Errorf("%+v", c)
	}
}

// The problem is that of a node whose address is the kernel's, behind VPP.
func TestTunnelProblem(t *testing.T) {
	p := PlanFor("a", encapsulated(calico.EncapAlways),
		bgp.Options{Tunnels: []route.Encap{route.IPIP}}, Facts{})
	own := p.Encapsulation.Own4
	n := calico.Node{IPv4: own}
	links := []route.Interface{{Name: "uplink", MTU: 1500, Addresses: []netip.Prefix{own}}}
	if mtuOf(n, links) != 1500 || mtuOf(calico.Node{IPv4: pfx("192.0.2.1/24")}, links) != 0 {
		t.Error("the uplink is not found")
	}
	for mtu, want := range map[uint16]bool{0: true, 1500: false} {
		if s := (&state{plan: p, nodeMTU: mtu}); (s.tunnelProblem() != "") != want {
			t.Errorf("MTU %d: %q", mtu, s.tunnelProblem())
		}
	}
	if s := (&state{}); s.tunnelProblem() != "" {
		t.Error("there is a problem without tunnels")
	}
}
