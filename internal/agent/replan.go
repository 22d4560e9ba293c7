package agent

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/changes"
	"vpp-route-agent/internal/recorder"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// planInputs are what a plan, the routes from etcd and problems of hosts are made of besides
// Calico's data, in the form in which they go to disk.
type planInputs struct {
	// OwnNode is this node's object as it was last usable, instead of the snapshot's; nil: the
	// snapshot's.
	OwnNode *calico.Node
	NoBGP   bool
	Options bgp.Options
	// Sources are Config.EtcdRoutes.
	Sources []ipam.AddressSource

	// what follows is as in Facts; Programmed are all in the default table
	Programmed     map[netip.Prefix]bool
	Announced      map[netip.Prefix]bool
	NoDataplane    bool
	Withdraw       bool
	Drain          DrainPhase
	Arrived        []netip.Prefix
	PeerRoutes     []route.Route
	Outgoing       []route.Outgoing
	Adopted        bool
	Restarting     bool
	InterfacesRead bool
	NodeMTUs       ipam.MTUs
	HeldNodes      map[netip.Addr]route.Node
	FormerPools    map[netip.Prefix]route.Pool
	FormerNodes    map[netip.Addr]route.Node
	FormerTunnels  []tunnel
	ServicesVia    ServicesVia
	Returning      netip.Addr
}

// tunnel is a route.Object of Plan.Tunnels.
type tunnel struct {
	Link     *route.Link     `json:",omitempty"`
	Address  *route.Address  `json:",omitempty"`
	Up       *route.Up       `json:",omitempty"`
	Endpoint *route.Endpoint `json:",omitempty"`
}

func tunnelOf(o route.Object) tunnel {
	switch o := o.(type) {
	case route.Link:
		return tunnel{Link: &o}
	case route.Address:
		return tunnel{Address: &o}
	case route.Up:
		return tunnel{Up: &o}
	case route.Endpoint:
		return tunnel{Endpoint: &o}
	}
	return tunnel{}
}

func (t tunnel) object() route.Object {
	switch {
	case t.Link != nil:
		return *t.Link
	case t.Address != nil:
		return *t.Address
	case t.Up != nil:
		return *t.Up
	case t.Endpoint != nil:
		return *t.Endpoint
	}
	return nil
}

// inputsOf are facts as they go to disk.
func inputsOf(f Facts) planInputs {
	in := planInputs{
		Announced: f.Announced, NoDataplane: f.NoDataplane, Withdraw: f.Withdraw, Drain: f.Drain,
		Arrived: f.Arrived, PeerRoutes: f.PeerRoutes, Outgoing: f.Outgoing, Adopted: f.Adopted,
		Restarting: f.Restarting, InterfacesRead: f.InterfacesRead, NodeMTUs: f.NodeMTUs,
		HeldNodes: byAddress(f.HeldNodes), FormerPools: f.Former.Pools,
		FormerNodes: byAddress(f.Former.Nodes),
		ServicesVia: f.ServicesVia, Returning: f.Returning,
		Programmed: make(map[netip.Prefix]bool, len(f.Programmed)),
	}
	for k, is := range f.Programmed {
		in.Programmed[k.Prefix] = is
	}
	for _, o := range f.Former.Tunnels {
		in.FormerTunnels = append(in.FormerTunnels, tunnelOf(o))
	}
	return in
}

// byAddress has nodes such that of a change only those are recorded that come, go or differ.
func byAddress(nodes route.Nodes) map[netip.Addr]route.Node {
	if nodes == nil {
		return nil
	}
	all := make(map[netip.Addr]route.Node, len(nodes))
	for _, n := range nodes {
		all[n.Address] = n
	}
	return all
}

func nodesOf(all map[netip.Addr]route.Node) route.Nodes {
	nodes := slices.Collect(maps.Values(all))
	route.SortNodes(nodes)
	return nodes
}

func (in planInputs) facts() Facts {
	f := Facts{
		Announced: in.Announced, NoDataplane: in.NoDataplane, Withdraw: in.Withdraw,
		Drain: in.Drain, Arrived: in.Arrived, PeerRoutes: in.PeerRoutes, Outgoing: in.Outgoing,
		Adopted: in.Adopted, Restarting: in.Restarting, InterfacesRead: in.InterfacesRead,
		NodeMTUs: in.NodeMTUs, HeldNodes: nodesOf(in.HeldNodes),
		Former:      Former{Pools: in.FormerPools, Nodes: nodesOf(in.FormerNodes)},
		ServicesVia: in.ServicesVia, Returning: in.Returning,
		Programmed: make(map[route.Key]bool, len(in.Programmed)),
	}
	for p, is := range in.Programmed {
		f.Programmed[route.Key{Prefix: p}] = is
	}
	for _, t := range in.FormerTunnels {
		f.Former.Tunnels = append(f.Former.Tunnels, t.object())
	}
	return f
}

// notePlan notes what the plan in force is made of, for recordPlan; used is a.snapshot, or it with
// this node as it was.
func (a *Agent) notePlan(used *calico.Snapshot, f Facts) {
	if a.cfg.Recorder == nil {
		return
	}
	in := inputsOf(f)
	in.NoBGP, in.Options, in.Sources = a.noBGP, a.cfg.BGP, a.cfg.EtcdRoutes
	if used != a.snapshot {
		in.OwnNode = a.ownNode
	}
	a.unrecorded = &in
}

// recordPlan records the plan in force, and what else is planned, if it is new and all is planned.
func (a *Agent) recordPlan(now time.Time) {
	if a.unrecorded != nil && a.remotesPlanned == a.snapshot && a.sharedOf == a.snapshot {
		a.cfg.Recorder.Plan(now, a.unrecorded, planParts(a.plan, a.remotes, a.shared))
		a.unrecorded = nil
	}
}

// planParts are the fields of a plan, those of structs one by one, the routes from etcd, and the
// hosts that share an address.
func planParts(p Plan, remotes ipam.RemotePlan, shared []calico.Problem) []recorder.PlanPart {
	return append(partsOf(nil, "", reflect.ValueOf(p)),
		recorder.PlanPart{Name: "Remotes", Value: remotes},
		recorder.PlanPart{Name: "SharedAddresses", Value: shared})
}

func partsOf(to []recorder.PlanPart, prefix string, v reflect.Value) []recorder.PlanPart {
	for i := range v.NumField() {
		name := prefix + v.Type().Field(i).Name
		if field := v.Field(i); field.Kind() == reflect.Struct && !isAddress(field.Type()) {
			to = partsOf(to, name+".", field)
		} else {
			to = append(to, recorder.PlanPart{Name: name, Value: field.Interface()})
		}
	}
	return to
}

func isAddress(t reflect.Type) bool {
	return slices.Contains([]reflect.Type{reflect.TypeFor[netip.Addr](),
		reflect.TypeFor[netip.Prefix]()}, t)
}

// Replanner is a recorder.Planner: it plans as an agent does.
type Replanner struct {
	node     string
	snapshot *calico.Snapshot
	inputs   *planInputs
}

// NewReplanner returns one that knows nothing yet.
func NewReplanner(node string) recorder.Planner {
	return &Replanner{node: node, snapshot: &calico.Snapshot{}, inputs: &planInputs{}}
}

// Datastore implements recorder.Planner.
func (r *Replanner) Datastore(c calico.RecordedChanges) error { return c.Apply(r.snapshot) }

// Inputs implements recorder.Planner.
func (r *Replanner) Inputs(c recorder.PlanInputs) error {
	return changes.Apply(c.Recorded, r.inputs)
}

// Plan implements recorder.Planner.
func (r *Replanner) Plan() []recorder.PlanPart {
	in, s := r.inputs, r.snapshot
	if in.OwnNode != nil {
		s = withNode(s, *in.OwnNode)
	}
	var p Plan
	if in.NoBGP {
		p = PlanWithoutBGP(r.node, s, in.Options, in.facts())
	} else {
		p = PlanFor(r.node, s, in.Options, in.facts())
	}
	return planParts(p,
		remotesOf(r.node, in.Sources, p.Encapsulation, r.snapshot, nil),
		ipam.SharedAddresses(in.Sources, r.snapshot))
}

// remotesOf are the routes from etcd but those of Overlay.
func remotesOf(self string, sources []ipam.AddressSource, e *route.Encapsulation,
	s *calico.Snapshot, last []route.Route) ipam.RemotePlan {
	if sources == nil {
		return ipam.RemotePlan{}
	}
	return ipam.Remotes(self, sources, e, s, last)
}
