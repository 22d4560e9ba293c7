package reflector

import (
	"maps"
	"slices"
	"strings"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// Question asks agents what would change in their FIBs with other sessions or roles. It has one of
// five forms: Cover, Mesh, Leave, Enter, or a Group with Members or Reflectors.
type Question struct {
	// Cover: what if this reflector were the only Calico node to peer with? The reflector itself is
	// asked: what if nobody reflected?
	Cover string `json:"cover,omitempty"`
	// Mesh: what if the mesh were off?
	Mesh bool `json:"mesh,omitempty"`
	// Leave: what if this node were no reflector, and had no Label?
	Leave string `json:"leave,omitempty"`
	Label string `json:"label,omitempty"`
	// Resets: BIRD is at one end or the other, and resets each session of the node that leaves
	// which turns from a BGPPeer's into one of the mesh.
	Resets bool `json:"resets,omitempty"`
	// Enter: what if this node were a reflector, with Label and ClusterID?
	Enter     string `json:"enter,omitempty"`
	ClusterID string `json:"clusterID,omitempty"`
	// Group: what if these Members (names of nodes) were in the group as well, or if it had these
	// Reflectors (numbers), both separated by commas?
	Group      string `json:"group,omitempty"`
	Members    string `json:"members,omitempty"`
	Reflectors string `json:"reflectors,omitempty"`
}

// Answer is what an agent found; Digest is that of what it had applied then.
type Answer struct {
	Format   int      `json:"format"`
	Version  string   `json:"version"`
	Question Question `json:"question"`
	// Revision is etcd's of the question's last change: who writes it again asks again.
	Revision int64  `json:"revision"`
	Digest   string `json:"digest"`
	IPv4     Change `json:"ipv4"`
	IPv6     Change `json:"ipv6"`
}

// Change counts prefixes of one family that other nodes announce.
type Change struct {
	Prefixes     int      `json:"prefixes"`     // would remain
	Missing      int      `json:"missing"`      // would be lost
	Changed      int      `json:"changed"`      // would have other next hops
	FewestCopies int      `json:"fewestCopies"` // of any prefix that would remain
	Examples     []string `json:"examples,omitempty"`
}

// ok reports that nothing would be lost or changed, and that so many copies would remain.
func (c Change) ok(copies int) bool {
	return c.Missing == 0 && c.Changed == 0 && (c.Prefixes == 0 || c.FewestCopies >= copies)
}

func (a Answer) ok(copies int) bool { return a.IPv4.ok(copies) && a.IPv6.ok(copies) }

// Resets reports whether an agent resets the session when its peer changes so. What changes with a
// role, it changes while the session is up.
func Resets(before, after bgp.Peer) bool {
	after.Scope, after.Source = before.Scope, before.Source
	after.Client, after.Reflector = before.Client, before.Reflector
	return !before.Equal(after)
}

// after returns the snapshot in which the case that q asks about has come true.
func (q Question) after(s *calico.Snapshot) *calico.Snapshot {
	if q.Mesh {
		after, conf, off := *s, s.BGPConfigurations["default"], false
		conf.NodeToNodeMeshEnabled, conf.NodeMeshPassword = &off, nil
		after.BGPConfigurations = map[string]calico.BGPConfiguration{}
		maps.Copy(after.BGPConfigurations, s.BGPConfigurations)
		after.BGPConfigurations["default"] = conf
		return &after
	}
	switch {
	case q.Reflectors != "":
		after, name := *s, groupPeer(q.Group)
		if p, ok := s.BGPPeers[name]; ok {
			after.BGPPeers = maps.Clone(s.BGPPeers)
			p.PeerSelector = ofNumbers(q.Reflectors)
			after.BGPPeers[name] = p
		}
		return &after
	case q.Group != "":
		after := s
		for _, name := range strings.Split(q.Members, ",") {
			after = with(after, name, func(n *calico.Node) { n.Labels[groupLabel] = q.Group })
		}
		return after
	case q.Enter != "":
		return with(s, q.Enter, func(n *calico.Node) {
			n.RouteReflectorClusterID = q.ClusterID
			n.Labels[q.Label] = "true"
			delete(n.Labels, groupLabel)
		})
	}
	return with(s, q.Leave, func(n *calico.Node) {
		n.RouteReflectorClusterID = ""
		delete(n.Labels, q.Label)
	})
}

// shut returns the nodes whose answers keep the gate of q shut, and an example. A node opens it
// with its last two answers, if it had applied the present resources and nothing would be lost. So
// does one with BIRD, by what its calico-node has answered.
func (w *World) shut(q Question, nodes []string, copies func(node string) int) (
	shut []string, example string) {
	var examples []string
	for _, n := range nodes {
		if w.bird(n) {
			for _, c := range w.birdAnswers(n, q) {
				if !c.ok(copies(n)) {
					shut = append(shut, n)
					examples = append(examples, c.Examples...)
					break
				}
			}
			continue
		}
		answers, open := 0, true
		for _, a := range slices.Backward(w.Agents[n].Answers) {
			if a.Question != q || answers == 2 {
				continue
			}
			answers++
			if a.Digest != w.digest(n) || !a.ok(copies(n)) {
				open = false
				examples = append(examples, slices.Concat(a.IPv4.Examples, a.IPv6.Examples)...)
			}
		}
		if !open || answers < 2 {
			shut = append(shut, n)
		}
	}
	if len(examples) > 0 {
		example = examples[0]
	}
	return shut, example
}
