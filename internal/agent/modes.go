package agent

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// formerHold is how long packets in a form that no pool has any more are still received, and how
// long the new form of a pool is waited for that cannot be used yet: calico-node allocates tunnel
// addresses after the mode was changed.
const formerHold = time.Minute

// modes has a pool's change of mode cost no packet: its routes are replaced when all nodes have had
// time to make the tunnels that the new mode needs, and tunnels that none needs any more stay for
// late nodes. What it knows is lost with the process: then changes are made at once.
type modes struct {
	pools   map[netip.Prefix]route.Pool // in the form that is in force
	changes map[netip.Prefix]modeChange // that have been seen and are not in force
	leaving map[string]time.Time        // when the tunnels of an interface go that no pool needs
}

type modeChange struct {
	to    route.Pool
	since time.Time
}

// Former is what remains of pools as they were before their modes changed.
type Former struct {
	// Pools are the forms in force of pools that have another one.
	Pools map[netip.Prefix]route.Pool
	// Nodes and Tunnels are as in the plan before.
	Nodes   route.Nodes
	Tunnels []route.Object
}

// step returns what stays beside what pools say now. usable reports whether packets to a pool can
// leave in its new form; succeeds: its interface can be made once another one goes. last is the
// plan in force. successors maps an interface of it to the one that will take its address; step
// removes those that have to wait.
func (m *modes) step(now time.Time, pause time.Duration, pools []route.Pool, last Plan,
	successors map[string]string, usable func(p route.Pool, succeeds bool) bool) (f Former) {
	was := m.pools
	m.pools = make(map[netip.Prefix]route.Pool, len(pools))
	needed, held := map[string]bool{}, map[string]bool{} // interfaces
	for _, p := range pools {
		needed[interfaceOf(p)] = true
		old, known := was[p.Prefix]
		if known && old.Waits == "" && (sameForm(old, p) || !m.leaves(now, pause, p)) {
			delete(successors, interfaceOf(old))
		}
	}
	maps.DeleteFunc(successors, func(_, next string) bool { return !needed[next] })
	succeeds := map[string]bool{}
	for _, next := range successors {
		succeeds[next] = true
	}
	for _, p := range pools {
		old, known := was[p.Prefix]
		if !known || sameForm(old, p) || old.Waits != "" ||
			m.due(now, pause, p, func() bool { return usable(p, succeeds[interfaceOf(p)]) }) {
			delete(m.changes, p.Prefix)
			m.pools[p.Prefix] = p
			continue
		}
		m.pools[p.Prefix] = old
		if f.Pools == nil {
			f.Pools = map[netip.Prefix]route.Pool{}
		}
		f.Pools[p.Prefix] = old
		held[interfaceOf(old)] = true
	}
	maps.DeleteFunc(m.changes, func(p netip.Prefix, _ modeChange) bool {
		_, there := m.pools[p]
		return !there
	})
	maps.DeleteFunc(successors, func(on, _ string) bool { return held[on] })
	f.Tunnels = m.stillThere(now, last.Tunnels, needed, held, successors)
	if last.Encapsulation != nil && (f.Pools != nil || f.Tunnels != nil) {
		f.Nodes = last.Encapsulation.Nodes
	}
	return f
}

// due reports whether the routes to a pool are to leave in its new form, which another one is in
// force of.
func (m *modes) due(now time.Time, pause time.Duration, p route.Pool, usable func() bool) bool {
	waited := m.waited(now, p)
	return waited >= pause && (usable() || waited >= formerHold)
}

// leaves reports whether a pool whose form changes no longer needs the interface of the one in
// force, if all else is ready.
func (m *modes) leaves(now time.Time, pause time.Duration, p route.Pool) bool {
	return m.due(now, pause, p, func() bool { return p.Waits == "" })
}

// waited is how long a pool's form has been another one than that in force.
func (m *modes) waited(now time.Time, p route.Pool) time.Duration {
	c, seen := m.changes[p.Prefix]
	if !seen || !sameForm(c.to, p) {
		if m.changes == nil {
			m.changes = map[netip.Prefix]modeChange{}
		}
		c = modeChange{p, now}
		m.changes[p.Prefix] = c
	}
	return now.Sub(c.since)
}

// stillThere are the tunnels that no pool needs, but late nodes may, unless a successor waits.
func (m *modes) stillThere(now time.Time, tunnels []route.Object,
	needed, held map[string]bool, successors map[string]string) (stay []route.Object) {
	leaving := map[string]time.Time{}
	last := "" // that is needed
	for _, o := range tunnels {
		on := interfaceOn(o)
		if on == last || needed[on] || successors[on] != "" {
			last = on
			continue
		}
		until, known := m.leaving[on]
		if !known || held[on] {
			until = now.Add(formerHold)
		}
		if leaving[on] = until; now.Before(until) {
			stay = append(stay, o)
		}
	}
	m.leaving = leaving
	return stay
}

// interfaceOn is o.Key().Interface, but for endpoints, of which there are many, without their keys.
func interfaceOn(o route.Object) string {
	if e, ok := o.(route.Endpoint); ok {
		return e.Interface
	}
	return o.Key().Interface
}

func sameForm(a, b route.Pool) bool {
	return a.Encap == b.Encap && a.CrossSubnet == b.CrossSubnet && a.Felix == b.Felix
}

// interfaceOf is what packets to a pool leave by, "" for none of ours.
func interfaceOf(p route.Pool) string {
	if p.Felix {
		return ""
	}
	return p.Encap.Interface(p.Prefix.Addr())
}

// into is e with the former pools, and the nodes as they were besides.
func (f Former) into(e *route.Encapsulation) *route.Encapsulation {
	if f.Pools == nil && f.Tunnels == nil {
		return e
	}
	out := *e
	out.Pools = slices.Clone(e.Pools)
	for i, p := range out.Pools {
		if was, there := f.Pools[p.Prefix]; there {
			out.Pools[i] = was
		}
	}
	out.Nodes = f.Nodes.With(e.Nodes, nil)
	return &out
}

// successorsOf maps interfaces of tunnels to those that will take their addresses. calico-node
// frees the address of a kind before it takes one for the next kind, and in a full block gets the
// same. VPP accepts an address once, so the next interface cannot be made before the other is gone.
func successorsOf(tunnels []route.Object, me calico.Node) map[string]string {
	successors := map[string]string{}
	for _, o := range tunnels {
		switch o := o.(type) {
		case route.Address: // of IPIP
			if o.Address.Addr() == me.IPv4VXLANTunnelAddr {
				successors[o.Interface] = route.VXLAN.Interface(o.Address.Addr())
			}
		case route.Link:
			if own := o.VXLAN.Address; own.IsValid() && own == me.IPv4IPIPTunnelAddr {
				successors[o.Name] = route.IPIP.Interface(own)
			}
		}
	}
	return successors
}

// formerForms steps modes.
func (a *Agent) formerForms(now time.Time) Former {
	self, o := a.cfg.Node, a.cfg.BGP
	pools := ipam.PoolForms(self, o.Tunnels, o.FelixTunnels, a.snapshot)
	var successors map[string]string
	if !o.LinuxTunnels {
		successors = successorsOf(a.plan.Tunnels, a.snapshot.Nodes[self])
	}
	usable := func(p route.Pool, succeeds bool) bool {
		if p.Encap == route.Plain || p.Felix {
			return true
		}
		i, there := a.cfg.FIB.Facts().Interface(interfaceOf(p))
		if p.Waits != "" || (!there || !i.Up) && !succeeds {
			return false
		}
		e, _ := ipam.Encapsulation(self, o.Tunnels, o.FelixTunnels, a.snapshot)
		return p.Encap != route.VXLAN || !slices.ContainsFunc(e.Nodes, func(n route.Node) bool {
			return n.NoVTEP() != "" && n.Address.Is6() == p.Prefix.Addr().Is6()
		})
	}
	return a.modes.step(now, a.cfg.EncapPause, pools, a.plan, successors, usable)
}
