package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// mtuOf is that of the interface with a node's IPv4 address; 0: there is none.
func mtuOf(n calico.Node, all []route.Interface) uint16 {
	i, _ := interfaceWith(n.IPv4.Addr(), all)
	return i.MTU
}

func interfaceWith(a netip.Addr, all []route.Interface) (route.Interface, bool) {
	for _, i := range all {
		if slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return i, true
		}
	}
	return route.Interface{}, false
}

// heldNodes are those that the datastore's list lacks, and that keep their tunnels for a while.
func (a *Agent) heldNodes(now time.Time) map[netip.Addr]string {
	a.mu.Lock()
	if a.believe {
		a.lost.release()
	}
	a.believe = false
	a.mu.Unlock()
	if a.plan.Encapsulation == nil {
		return nil
	}
	held := a.lost.step(now, a.cfg.Node, a.snapshot, a.cfg.FIB.Suspicious)
	was := a.lostNodes
	if a.lostNodes = a.lost.guard(); was == nil && a.lostNodes != nil {
		a.cfg.Log.Warn("the datastore's list lacks so many nodes that it may be broken; tunnels "+
			"to them stay for a while", "nodes", len(held))
	}
	return held
}

// tunnelProblem says why no tunnelled packets arrive. The data plane takes those alone that come
// for an address of its own.
func (s *state) tunnelProblem() string {
	if s.plan.Encapsulation == nil || s.nodeMTU > 0 {
		return ""
	}
	return fmt.Sprintf("no interface of the data plane has %s, this node's address: packets that "+
		"other nodes encapsulate do not arrive", s.plan.Encapsulation.Own4.Addr())
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
	var link route.Link
	for _, o := range plan.Tunnels {
		if l, ok := o.(route.Link); ok {
			link = l
		}
	}
	why := ""
	if e := a.cfg.FIB.FindObject(link.Key()); link.Name != "" && !e.State.IsAcknowledged() {
		why = e.Error
	}
	for _, e := range a.cfg.FIB.Endpoints() {
		end, err := route.EndpointOf(e.Object)
		if err != nil {
			continue
		}
		t := TunnelStatus{
			Encapsulation: route.IPIP, OuterDestination: end.Outer, Interface: end.Interface,
			MTU: link.MTU, State: e.State.String(), Since: e.Since, Reason: e.Error,
		}
		if e.State == fib.Pending && why != "" {
			t.Reason = why // it waits for the interface
		}
		if plan.Encapsulation != nil {
			own := plan.Encapsulation.Own4.Addr()
			t.Node, t.OuterSource = plan.Encapsulation.Nodes[end.Outer], &own
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b TunnelStatus) int {
		return a.OuterDestination.Compare(b.OuterDestination)
	})
	return out
}

// TunnelCounts are the numbers of tunnels to other nodes.
type TunnelCounts struct {
	Desired    int `json:"desired"`
	Programmed int `json:"programmed"`
	// Problem is why the first of the others is not programmed, or no packets come.
	Problem string `json:"problem,omitempty"`
}

// countTunnels returns nil if there are none. problem is one of all.
func countTunnels(all []TunnelStatus, problem string) *TunnelCounts {
	if len(all) == 0 {
		return nil
	}
	c := &TunnelCounts{Problem: problem}
	for _, t := range all {
		switch {
		case t.Node == "":
		case t.State == fib.Programmed.String():
			c.Desired, c.Programmed = c.Desired+1, c.Programmed+1
		default:
			c.Desired++
			c.Problem = cmp.Or(c.Problem, t.Reason)
		}
	}
	return c
}
