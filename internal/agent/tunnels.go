package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// mtusOf are those of the interfaces with a node's addresses; 0: there is none.
func mtusOf(n calico.Node, all []route.Interface) ipam.MTUs {
	four, _ := interfaceWith(n.IPv4.Addr(), all)
	six, _ := interfaceWith(n.IPv6.Addr(), all)
	return ipam.MTUs{IPv4: four.MTU, IPv6: six.MTU}
}

// interfaceWith returns the interface that has an address.
func interfaceWith(a netip.Addr, all []route.Interface) (route.Interface, bool) {
	for _, i := range all {
		if slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return i, true
		}
	}
	return route.Interface{}, false
}

// heldNodes are those that the datastore's list lacks, and that keep their tunnels for a while.
func (a *Agent) heldNodes(now time.Time) (held route.Nodes) {
	a.mu.Lock()
	if a.believe {
		a.lost.release()
	}
	a.believe = false
	a.mu.Unlock()
	if a.plan.Encapsulation == nil {
		return nil
	}
	for addr, name := range a.lost.step(now, a.cfg.Node, a.snapshot, a.cfg.FIB.Suspicious) {
		n, known := a.plan.Encapsulation.Nodes.Find(addr) // as it was
		if !known {
			n = route.Node{Address: addr, Name: name}
		}
		held = append(held, n)
	}
	route.SortNodes(held)
	was := a.lostNodes
	if a.lostNodes = a.lost.guard(); was == nil && a.lostNodes != nil {
		a.cfg.Log.Warn("the datastore's list lacks so many nodes that it may be broken; tunnels "+
			"to them stay for a while", "nodes", len(held))
	}
	return held
}

// tunnelProblem says why no tunnelled packets arrive. The data plane takes those alone that come
// for an address of its own, whatever the Node says meanwhile.
func (s *state) tunnelProblem(facts route.Facts) string {
	if facts.Identity == "" {
		return ""
	}
	for _, o := range s.plan.Tunnels {
		l, isLink := o.(route.Link)
		if !isLink {
			continue
		}
		if _, there := interfaceWith(l.Source, facts.Interfaces); there {
			continue
		}
		return fmt.Sprintf("no interface of the data plane has %s, this node's address: packets "+
			"that other nodes encapsulate do not arrive", l.Source)
	}
	return ""
}

// TunnelStatus is the tunnel to one node: what `tunnels -o json` prints.
type TunnelStatus struct {
	Node          string      `json:"node,omitempty"` // absent for one that has left
	Encapsulation route.Encap `json:"encapsulation"`
	OuterSource   *netip.Addr `json:"outerSource,omitempty"` // absent while nothing encapsulates
	// OuterDestination is the node's address.
	OuterDestination netip.Addr `json:"outerDestination"`
	Interface        string     `json:"interface"`
	MTU              uint16     `json:"mtu,omitempty"` // in bytes; absent: the data plane's choice
	State            string     `json:"state"`
	Since            time.Time  `json:"since"` // in this state
	Reason           string     `json:"reason,omitempty"`
	// What went through it, by `tunnels` alone; absent where NotCounted says why.
	PacketsIn  *uint64 `json:"packetsIn,omitempty"`
	BytesIn    *uint64 `json:"bytesIn,omitempty"`
	PacketsOut *uint64 `json:"packetsOut,omitempty"`
	BytesOut   *uint64 `json:"bytesOut,omitempty"`
	NotCounted string  `json:"notCounted,omitempty"`
}

// Tunnels lists the tunnels that are wanted, held or being deleted, by the nodes' addresses.
func (a *Agent) Tunnels() []TunnelStatus {
	out := []TunnelStatus{}
	if a.cfg.FIB == nil {
		return out
	}
	a.mu.Lock()
	plan := a.shown.plan
	a.mu.Unlock()
	links, why := map[string]route.Link{}, map[string]string{}
	for _, o := range plan.Tunnels {
		if l, ok := o.(route.Link); ok {
			links[l.Name] = l
			if e := a.cfg.FIB.FindObject(l.Key()); !e.State.IsAcknowledged() {
				why[l.Name] = e.Error
			}
		}
	}
	for _, e := range a.cfg.FIB.Endpoints() {
		end, err := route.EndpointOf(e.Object)
		if err != nil {
			continue
		}
		t := TunnelStatus{
			Encapsulation: route.EncapBy(end.Interface), OuterDestination: end.Outer,
			Interface: end.Interface, State: e.State.String(), Since: e.Since, Reason: e.Error,
		}
		if e.State == fib.Pending && why[end.Interface] != "" {
			t.Reason = why[end.Interface] // it waits for the interface
		}
		if l, ok := links[end.Interface]; ok {
			node, _ := plan.Encapsulation.Nodes.Find(end.Outer)
			t.Node, t.OuterSource = node.Name, &l.Source
			t.MTU = l.MTU
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b TunnelStatus) int {
		return cmp.Or(a.OuterDestination.Compare(b.OuterDestination),
			cmp.Compare(a.Encapsulation, b.Encapsulation))
	})
	return out
}

// TunnelCounts are the numbers of tunnels to other nodes.
type TunnelCounts struct {
	// Encapsulation has the kinds of tunnels, with a comma between them.
	Encapsulation string `json:"encapsulation"`
	Desired       int    `json:"desired"`
	Programmed    int    `json:"programmed"`
	// Problem is why the first of the others is not programmed, or no packets come.
	Problem string `json:"problem,omitempty"`
}

// tunnelCounts returns nil if there are none. problem is one of all.
func tunnelCounts(all []TunnelStatus, problem string) *TunnelCounts {
	if len(all) == 0 {
		return nil
	}
	c := &TunnelCounts{Problem: problem}
	var kinds []string
	for _, t := range all {
		if kind := t.Encapsulation.String(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
		switch {
		case t.Node == "":
		case t.State == fib.Programmed.String():
			c.Desired, c.Programmed = c.Desired+1, c.Programmed+1
		default:
			c.Desired++
			c.Problem = cmp.Or(c.Problem, t.Reason)
		}
	}
	slices.Sort(kinds)
	c.Encapsulation = strings.Join(kinds, ", ")
	return c
}
