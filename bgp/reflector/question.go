package reflector

import (
	"maps"
	"slices"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// Question asks agents what would change in their FIBs without some of their peers. It has one of
// three forms: Cover, Mesh or Leave.
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

// Without applies q to the peers of node self: ended are sessions that would end, unreflected are
// those whose peer would reflect nothing. The latter include every peer that is no reflector: one
// that has just stopped being one may not have withdrawn its reflected routes yet.
func (q Question) Without(self string, s *calico.Snapshot) (ended, unreflected []bgp.PeerID) {
	before, _ := bgp.Peers(self, s)
	if q.Cover != "" {
		for _, p := range before {
			switch {
			case p.CalicoNode == "":
			case q.Cover == self:
				unreflected = append(unreflected, p.ID())
			case p.CalicoNode != q.Cover:
				ended = append(ended, p.ID())
			}
		}
		return ended, unreflected
	}
	peers, _ := bgp.Peers(self, q.after(s))
	after := map[bgp.PeerID]bgp.Peer{}
	for _, p := range peers {
		after[p.ID()] = p
	}
	for _, p := range before {
		then, stays := after[p.ID()]
		switch {
		case !stays || Resets(p, then), q.Resets && p.Scope != then.Scope:
			ended = append(ended, p.ID())
		case p.CalicoNode != "" && !then.Reflector:
			unreflected = append(unreflected, p.ID())
		}
	}
	return ended, unreflected
}

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
