package reflector

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// edited says what a person has changed, or left undone, so that no step may follow.
func (d *decider) edited() []string {
	if was := d.madeWith(); was != "" && was != d.Topology {
		return []string{fmt.Sprintf("topology: the reflectors were made with %q, not with %q: "+
			"set it back, and change it once the cluster is a mesh", was, d.Topology)}
	}
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if d.Locked() {
		add("ClusterInformation(default): datastoreReady is false")
	}
	// A Node that cannot be decoded is in no gate: no migration goes past it. It does not keep a
	// reflector that has died from being replaced.
	if d.meshIsOn() || d.goal.target() == Mesh {
		for _, p := range d.snapshot.Problems {
			add("%s", p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.snapshot.Nodes)) {
		n := d.snapshot.Nodes[name]
		label, labelled := n.Labels[d.Label]
		switch {
		case !d.isOurs(name) && labelled:
			add("Node(%s): a person gave it the label %s", name, d.Label)
		case d.isOurs(name) && (label != "true" ||
			n.RouteReflectorClusterID != d.clusterIDOf(d.turn(name)) && d.oldID(name) == ""):
			add("Node(%s): its label or cluster ID is not the configured one", name)
		case d.isOurs(name) && d.turn(name) < 1:
			add("Node(%s): metadata.annotations[%s] is no positive number", name, roleNote)
		}
	}
	switch off := d.annotation(confKey, meshNote) != ""; {
	case off && d.meshIsOn():
		add("BGPConfiguration(default): a person turned the mesh on")
	case !off && !d.meshIsOn():
		add("BGPConfiguration(default): a person turned the mesh off")
	}
	if d.objects[peerKey].Revision != 0 {
		if reason := d.peerEdited(); reason != "" {
			add("BGPPeer(%s): %s", peerName, reason)
		}
	}
	if d.goal.target() == Reflectors {
		all = append(all, d.foreignRoles()...)
	}
	return slices.Concat(all, d.groupEdits(), d.adoptedEdits())
}

// peerEdited says what a person did to our BGPPeer.
func (d *decider) peerEdited() string {
	if d.annotation(peerKey, roleNote) == "" {
		return "it belongs to a person"
	}
	ours, err := d.ourPeer()
	if err != nil {
		return err.Error()
	}
	if !reflect.DeepEqual(ours, d.snapshot.BGPPeers[peerName]) {
		return "a person changed it, or the password or restart time of the mesh"
	}
	return ""
}

// ourPeer is our BGPPeer as it would be created now.
func (d *decider) ourPeer() (calico.BGPPeer, error) {
	writes, err := d.createPeer()
	if err != nil {
		return calico.BGPPeer{}, err
	}
	w := Read([]Object{{Key: peerKey, Value: writes[0].Value}})
	return w.snapshot.BGPPeers[peerName], nil
}

// preflight says what keeps a migration to reflectors from ending well.
func (d *decider) preflight(c Choice) []string {
	if len(c.Problems) > 0 {
		return c.Problems
	}
	if reason := d.lossThere(c); reason != "" && !d.goal.AcceptLoss {
		return []string{reason}
	}
	var chosen strings.Builder
	for _, r := range c.Reflectors {
		chosen.WriteString(r.Node + "\n")
	}
	found, ok := d.obstacles[chosen.String()]
	if !ok {
		found = d.obstaclesTo(c)
		d.obstacles[chosen.String()] = found
	}
	return found
}

// lossThere says what is lost when the chosen become reflectors.
func (w *World) lossThere(c Choice) string {
	var all []string
	before := w.reflectors()
	for _, r := range c.Reflectors {
		if w.isReflector(r.Node) {
			continue
		}
		if reason := w.loss(r.Node, before); reason != "" {
			all = append(all, reason)
		}
		before = append(before, r.Node)
	}
	return some(all, "; ")
}

// lossBack says what is lost when the reflectors leave in this order.
func (w *World) lossBack(leaving []string) string {
	var all []string
	for i, node := range leaving {
		if reason := w.loss(node, leaving[i+1:]); reason != "" {
			all = append(all, reason)
		}
	}
	return some(all, "; ")
}

// loss says what is lost when a node becomes a reflector beside others, or stops being one. An
// agent changes roles without resetting a session, BIRD does not. Reflectors do not pass on each
// other's routes to a third; what is lost between others another reflector carries.
func (w *World) loss(node string, others []string) string {
	birds := w.only(w.bird)
	beside := slices.DeleteFunc(slices.Clone(others), func(n string) bool { return !w.bird(n) })
	switch {
	case w.idle(node):
		return ""
	case len(beside) > 0:
		return fmt.Sprintf("Node(%s) has workloads: their flows with the reflectors %s, which run "+
			"BIRD, are lost for 2 to 5 s when it becomes a reflector beside them or stops being "+
			"one", node, some(beside, ", "))
	case len(others) > 0 || len(birds) == 0:
		return ""
	case w.bird(node):
		return fmt.Sprintf("Node(%s) runs BIRD: its flows with all nodes are lost for up to 20 s "+
			"when it becomes the first reflector or stops being the last", node)
	}
	return fmt.Sprintf("Node(%s) has workloads: their flows with %s are lost for about 2 s, until "+
		"BIRD has its session again, when it becomes the first reflector or stops being the last",
		node, some(birds, ", "))
}

// obstaclesTo evaluates every step to come. After each, every reflector must have a session with
// every node, from our BGPPeer; in the end, every node with each reflector. A session follows from
// its two ends: a step changes those of the new reflector alone.
func (d *decider) obstaclesTo(c Choice) []string {
	ours, err := d.ourPeer()
	if err != nil {
		return []string{err.Error()}
	}
	s := *d.snapshot
	s.BGPPeers = maps.Clone(s.BGPPeers)
	s.BGPPeers[peerName] = ours
	after := &s
	found := map[string]bool{}
	// A person says with whom a person's reflector peers.
	nodes := d.only(func(n string) bool { return !d.isReflector(n) || d.isOurs(n) })
	var on []string
	for _, r := range c.Reflectors {
		if !slices.Contains(nodes, r.Node) {
			continue
		}
		after = with(after, r.Node, func(n *calico.Node) {
			n.RouteReflectorClusterID = d.clusterIDOf(len(on) + 1)
			n.Labels[d.Label] = "true"
		})
		on = append(on, r.Node)
		inTheWay([]string{r.Node}, after, nodes, found)
	}
	slices.Sort(on)
	inTheWay(nodes, Question{Mesh: true}.after(after), on, found)
	return slices.Sorted(maps.Keys(found))
}

// inTheWay finds what is wrong with the sessions of some nodes with others, which are sorted.
func inTheWay(nodes []string, s *calico.Snapshot, others []string, found map[string]bool) {
	planner := bgp.NewPlanner(s)
	for _, n := range nodes {
		peers, _ := planner.Peers(n)
		inTheWayOf(n, peers, s, others, found)
	}
}

func inTheWayOf(node string, peers []bgp.Peer, s *calico.Snapshot, others []string,
	found map[string]bool) {
	add := func(format string, args ...any) { found[fmt.Sprintf(format, args...)] = true }
	const ours = "BGPPeer(" + peerName + ")"
	has := map[string]bool{}
	for _, p := range peers {
		if _, meant := slices.BinarySearch(others, p.CalicoNode); !meant {
			continue
		}
		has[p.CalicoNode] = true
		switch {
		case p.External():
			add("Node(%s) is in AS %d and Node(%s) in AS %d: reflectors need one AS", node,
				p.LocalAS, p.CalicoNode, p.RemoteAS)
		case p.Source != ours:
			add("Node(%s) has its session with Node(%s) from %s instead of %s", node,
				p.CalicoNode, p.Source, ours)
		}
	}
	self := s.Nodes[node]
	for _, name := range others {
		n := s.Nodes[name]
		shared := self.IPv4.IsValid() && n.IPv4.IsValid() ||
			self.IPv6.IsValid() && n.IPv6.IsValid()
		if name != node && shared && !has[name] {
			add("Node(%s) would have no session with Node(%s)", node, name)
		}
	}
}
