package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// Encapsulation says how packets of node self leave: by the pool of their destination, and by the
// Node that they go to. Pools of a kind that is not in tunnels, those of this node's data plane,
// leave packets as they are. felix: these tunnels are Felix', who has routes of its own.
func Encapsulation(self string, tunnels []route.Encap, felix bool,
	s *calico.Snapshot) (*route.Encapsulation, []calico.Problem) {
	me := s.Nodes[self]
	e := &route.Encapsulation{Own4: me.IPv4, Own6: me.IPv6}
	pools, problems := poolForms(self, tunnels, felix, s)
	e.Pools = pools
	if !e.Encapsulates() {
		return e, problems
	}
	e.Published = published(s)
	return e, append(problems, setNodes(e, self, s)...)
}

// setNodes sets the other nodes of e. Of several with one address the first by name has it. Where a
// pool has VXLAN it is the first with a VTEP: a Node that is left over from a rename may have none.
func setNodes(e *route.Encapsulation, self string, s *calico.Snapshot) (problems []calico.Problem) {
	problem := func(name, why string) {
		problems = append(problems, calico.Problem{Resource: "Node(" + name + ")",
			Err: why + ": it has no tunnel of its own"})
	}
	all := make(route.Nodes, 0, len(s.Nodes))
	add := func(name string, its, mine netip.Prefix) {
		switch {
		case !its.IsValid():
		case its.Addr() == mine.Addr():
			problem(name, fmt.Sprintf("%s is the address of this node, too", its.Addr()))
		default:
			all = append(all, route.Node{Address: its.Addr(), Name: name})
		}
	}
	for name, n := range s.Nodes {
		if name != self {
			add(name, n.IPv4, e.Own4)
			add(name, n.IPv6, e.Own6)
		}
	}
	route.SortNodes(all)
	e.Nodes = all[:0] // it is filtered in place
	with4, with6 := hasVXLAN(e, false), hasVXLAN(e, true)
	for _, n := range all {
		if n.Address.Is4() && with4 || n.Address.Is6() && with6 {
			n.VXLAN = vtep(s.Nodes[n.Name], n.Address.Is6())
		}
		if n.NoVTEP() != "" {
			problem(n.Name, n.NoVTEP())
		}
		last := len(e.Nodes) - 1
		if last < 0 || e.Nodes[last].Address != n.Address {
			e.Nodes = append(e.Nodes, n)
			continue
		}
		first := &e.Nodes[last]
		if first.NoVTEP() != "" && n.NoVTEP() == "" {
			*first, n = n, *first
		}
		problem(n.Name, fmt.Sprintf("%s is the address of Node(%s), too", n.Address, first.Name))
	}
	slices.SortFunc(problems, func(a, b calico.Problem) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Err, b.Err))
	})
	return problems
}

// PoolForms are the Pools of Encapsulation.
func PoolForms(self string, tunnels []route.Encap, felix bool, s *calico.Snapshot) []route.Pool {
	pools, _ := poolForms(self, tunnels, felix, s)
	return pools
}

func poolForms(self string, tunnels []route.Encap, felix bool,
	s *calico.Snapshot) (pools []route.Pool, problems []calico.Problem) {
	me, settings, routesIPIP := s.Nodes[self], s.FelixOn(self), s.FelixRoutesIPIP(self)
	me.Name = self // in reasons, also where there is no such Node
	for _, p := range Pools(s) {
		pool, more := encapPool(p, me, settings, tunnels)
		if felix && (pool.Encap == route.VXLAN || pool.Encap == route.IPIP && routesIPIP) {
			pool.Felix, pool.Waits = true, ""
			more = []calico.Problem{{Resource: "IPPool(" + p.Name + ")", Harmless: true,
				Err: "on Linux Felix programs its routes, and this agent none"}}
		}
		pools = append(pools, pool)
		problems = append(problems, more...)
	}
	return pools, append(problems, unused(s)...)
}

// unused names the IPPools with the CIDR of one that counts instead.
func unused(s *calico.Snapshot) (problems []calico.Problem) {
	first := map[netip.Prefix]string{}
	for _, name := range slices.Sorted(maps.Keys(s.IPPools)) {
		cidr := s.IPPools[name].CIDR
		if counts, taken := first[cidr]; taken {
			problems = append(problems, calico.Problem{Resource: "IPPool(" + name + ")",
				Err: fmt.Sprintf("%s is the CIDR of IPPool(%s), too, which alone counts",
					cidr, counts)})
		} else {
			first[cidr] = name
		}
	}
	return problems
}

// hasVXLAN reports whether a pool of a family has VXLAN, by tunnels of ours.
func hasVXLAN(e *route.Encapsulation, v6 bool) bool {
	return slices.ContainsFunc(e.Pools, func(p route.Pool) bool {
		return isOverlay(p) && p.Prefix.Addr().Is6() == v6
	})
}

// vtep is the VXLAN device of a Node. Felix makes none without an address for it
// (felix/calc/vxlan_resolver.go).
func vtep(n calico.Node, v6 bool) *route.VTEP {
	own, field := vxlanAddress(n, v6)
	if !own.IsValid() {
		return &route.VTEP{Problem: fmt.Sprintf("%s of Node(%s) is missing", field, n.Name)}
	}
	mac, err := n.VTEPMAC(v6)
	if err != nil {
		return &route.VTEP{Address: own, Problem: fmt.Sprintf("Node(%s): %v", n.Name, err)}
	}
	return &route.VTEP{MAC: mac, Address: own}
}

func vxlanAddress(n calico.Node, v6 bool) (a netip.Addr, field string) {
	if v6 {
		return n.IPv6VXLANTunnelAddr, "spec.ipv6VXLANTunnelAddr"
	}
	return n.IPv4VXLANTunnelAddr, "spec.ipv4VXLANTunnelAddr"
}

// published are the addresses of hosts that no Node has. Of several with one address the first by
// name has it.
func published(s *calico.Snapshot) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for p, a := range s.PeerIPs {
		if host, taken := out[a]; !taken || p.Host < host {
			out[a] = p.Host
		}
	}
	if len(out) == 0 {
		return out
	}
	for _, n := range s.Nodes {
		delete(out, n.IPv4.Addr())
		delete(out, n.IPv6.Addr())
	}
	return out
}

// encapPool is what a pool says. VXLAN goes before IPIP, as in Felix; Calico takes no pool that has
// both.
func encapPool(p calico.IPPool, me calico.Node, felix calico.FelixConfiguration,
	tunnels []route.Encap) (route.Pool, []calico.Problem) {
	pool := route.Pool{Name: p.Name, Prefix: p.CIDR}
	field, mode, kind := "vxlanMode", p.VXLANMode, route.VXLAN
	if !mode.Encapsulates() {
		field, mode, kind = "ipipMode", p.IPIPMode, route.IPIP
	}
	if !mode.Encapsulates() {
		return pool, nil
	}
	switch {
	case kind == route.IPIP && p.CIDR.Addr().Is6():
		pool.Note = fmt.Sprintf("ipipMode %s is for IPv4 alone", mode)
	case !slices.Contains(tunnels, kind):
		pool.Note = fmt.Sprintf("%s %s is not supported yet", field, mode)
	default:
		pool.Encap, pool.CrossSubnet = kind, mode == calico.EncapCrossSubnet
		pool.Waits = cmp.Or(turnedOff(pool, felix), cannotEncapsulate(pool, me))
		return pool, nil
	}
	return pool, []calico.Problem{{
		Resource: "IPPool(" + p.Name + ")", Harmless: true,
		Err: pool.Note + ": its routes are programmed without encapsulation",
	}}
}

// turnedOff says what forbids a kind of tunnel, or "": Felix makes no device for it then
// (felix/calc/encapsulation_calculator.go). IPv6 pools have no such setting.
func turnedOff(pool route.Pool, felix calico.FelixConfiguration) string {
	set, field := felix.VXLANEnabled, "vxlanEnabled"
	if pool.Encap == route.IPIP {
		set, field = felix.IPIPEnabled, "ipipEnabled"
	}
	if set == nil || *set || pool.Prefix.Addr().Is6() {
		return ""
	}
	return field + " of the FelixConfiguration is false"
}

// cannotEncapsulate says what this Node lacks for a pool, or "". Its addresses are calico-node's to
// allocate.
func cannotEncapsulate(pool route.Pool, me calico.Node) string {
	own, ownField := me.IPv4, "spec.bgp.ipv4Address"
	if pool.Prefix.Addr().Is6() {
		own, ownField = me.IPv6, "spec.bgp.ipv6Address"
	}
	tunnel, tunnelField := vxlanAddress(me, pool.Prefix.Addr().Is6())
	if pool.Encap == route.IPIP {
		tunnel, tunnelField = me.IPv4IPIPTunnelAddr, "spec.bgp.ipv4IPIPTunnelAddr"
	}
	missing := ""
	switch {
	case !own.IsValid():
		missing = ownField
	case !tunnel.IsValid():
		missing = tunnelField
	case pool.Encap == route.VXLAN:
		if _, err := me.VTEPMAC(pool.Prefix.Addr().Is6()); err != nil {
			return fmt.Sprintf("Node(%s): %v", me.Name, err)
		}
		return ""
	default:
		return ""
	}
	return fmt.Sprintf("%s of Node(%s) is missing", missing, me.Name)
}
