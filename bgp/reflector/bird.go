package reflector

import (
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// Bird is what the controller knows about a node that runs BIRD.
type Bird struct {
	// Answers are what its calico-node has answered, as far as that counts, oldest first. A gate
	// needs two.
	Answers []calico.NodeStatus
	// Silent: it has not answered in time, nor since.
	Silent bool
}

// birdQuestionNote is on each CalicoNodeStatus of ours, and says who asks.
const birdQuestionNote = "vpp-route-agent/reflector-question"

// BirdQuestionPrefix begins the keys of the questions to nodes with BIRD.
const BirdQuestionPrefix = calico.NodeStatusPrefix + "vpp-route-agent-reflectors-"

// BirdQuestion is a question to a node with BIRD: a CalicoNodeStatus to be stored at
// BirdQuestionPrefix and a name. Each is answered once. It is a new one every time, since
// calico-node in etcd does not notice that a spec has changed.
func BirdQuestion(name, node, asks string, now time.Time) []byte {
	key := BirdQuestionPrefix[len(calico.NodeStatusPrefix):] + name
	e := edit{value: created(calico.KindCalicoNodeStatus, key, now)}
	e.set(asks, "metadata", "annotations", birdQuestionNote)
	e.set(node, "spec", "node")
	e.set([]string{"BGP", "Routes"}, "spec", "classes")
	e.set(0, "spec", "updatePeriodSeconds")
	e.set(json.RawMessage("null"), "status", "lastUpdated")
	return e.value
}

// IsBirdQuestion reports whether a controller has written it.
func IsBirdQuestion(s calico.NodeStatus) bool { return s.Annotations[birdQuestionNote] != "" }

// heard returns the last two answers of a node with BIRD, if there are two, and neither lacks an
// address family: calico-node leaves out what it has no socket of BIRD for.
func (w *World) heard(node string) ([]calico.NodeStatus, bool) {
	all := w.Birds[node].Answers
	if len(all) < 2 {
		return nil, false
	}
	last := all[len(all)-2:]
	for _, s := range last {
		if !w.isWhole(node, s) {
			return nil, false
		}
	}
	return last, true
}

func (w *World) isWhole(node string, s calico.NodeStatus) bool {
	for _, p := range w.peersOf(node) {
		v4 := p.Address.Is4()
		if p.CalicoNode != "" && (!slices.ContainsFunc(s.Peers, func(o calico.NodeStatusPeer) bool {
			return o.Address.Is4() == v4
		}) || !slices.ContainsFunc(s.Routes, func(r calico.NodeStatusRoute) bool {
			return r.Prefix.Addr().Is4() == v4
		})) {
			return false
		}
	}
	return true
}

// isMute reports that a node with BIRD does not answer, or only in part.
func (w *World) isMute(node string) bool {
	b := w.Birds[node]
	return b.Silent || len(b.Answers) > 0 && !w.isWhole(node, b.Answers[len(b.Answers)-1])
}

// seenNode reports a node that gates look at: its agent is known, or its BIRD has been heard.
func (d *decider) seenNode(node string) bool {
	is, ok := d.seenNodes[node]
	if !ok {
		if is = d.known(node); d.bird(node) {
			_, is = d.heard(node)
		}
		if d.seenNodes == nil {
			d.seenNodes = map[string]bool{}
		}
		d.seenNodes[node] = is
	}
	return is
}

// birdApplied reports whether BIRD has the sessions with Calico nodes that a node shall have, and
// no other. The role of either end is not in them. Beside a BGPPeer's session BIRD may keep an idle
// one of the mesh.
func (w *World) birdApplied(node string) bool {
	wanted := map[netip.Addr]calico.PeerType{}
	for _, p := range w.peersOf(node) {
		if p.CalicoNode != "" {
			wanted[p.Address] = peerType(p.Scope)
		}
	}
	answers, _ := w.heard(node)
	for _, s := range answers {
		has := map[netip.Addr]bool{}
		for _, p := range s.Peers {
			t, isWanted := wanted[p.Address]
			switch {
			case t == p.Type:
				has[p.Address] = true
			case !w.isCalicoNode(p.Address):
			case p.Established || !isWanted:
				return false
			}
		}
		if len(has) < len(wanted) {
			return false
		}
	}
	return true
}

// peerType is what confd makes of a session's scope.
func peerType(s bgp.Scope) calico.PeerType {
	switch s {
	case bgp.ScopeMesh:
		return calico.PeerTypeMesh
	case bgp.ScopeGlobal:
		return calico.PeerTypeGlobal
	}
	return calico.PeerTypeNode
}

func (w *World) isCalicoNode(a netip.Addr) bool {
	if w.addresses == nil {
		w.addresses = map[netip.Addr]string{}
		for name, n := range w.snapshot.Nodes {
			for _, p := range []netip.Addr{n.IPv4.Addr(), n.IPv6.Addr()} {
				if p.IsValid() {
					w.addresses[p] = name
				}
			}
		}
	}
	_, ok := w.addresses[a]
	return ok
}

// birdDown is the first node with which a node's BIRD has a session that is down, of those that
// gates look at; "": there is none.
func (d *decider) birdDown(node string) string {
	answers, ok := d.heard(node)
	if !ok {
		return ""
	}
	up := map[netip.Addr]bool{}
	for _, p := range answers[1].Peers {
		up[p.Address] = up[p.Address] || p.Established
	}
	for _, p := range d.peersOf(node) {
		if p.CalicoNode != "" && d.seenNode(p.CalicoNode) && !up[p.Address] {
			return p.CalicoNode
		}
	}
	return ""
}

// birdAnswers are what a node with BIRD would answer to q, by what its calico-node has answered.
func (w *World) birdAnswers(node string, q Question) (all []Change) {
	about := asksBird{node, q}
	left, ok := w.left[about]
	if !ok {
		if w.supposed[q] == nil {
			w.supposed[q] = q.suppose(w.snapshot)
		}
		left = w.supposed[q].left(node)
		w.left[about] = left
	}
	answers, _ := w.heard(node)
	for _, s := range answers {
		all = append(all, w.birdChange(s, left))
	}
	return all
}

// asksBird is a question about a node with BIRD.
type asksBird struct {
	node string
	Question
}

// birdChange is what would become of the routes that have come from Calico nodes. The gateway says
// whether one was reflected, and for whom.
func (w *World) birdChange(s calico.NodeStatus, left Left) Change {
	type way struct{ gateway, device string }
	type prefix struct {
		now, then way
		stays     bool
		copies    map[netip.Addr]bool
	}
	all := map[netip.Prefix]*prefix{}
	var order []netip.Prefix
	for _, r := range s.Routes {
		if r.FIB && r.Peer.IsValid() && w.isCalicoNode(r.Peer) && all[r.Prefix] == nil {
			all[r.Prefix] = &prefix{
				now: way{r.Gateway, r.Interface}, copies: map[netip.Addr]bool{},
			}
			order = append(order, r.Prefix)
		}
	}
	c := Change{}
	for _, r := range s.Routes {
		p := all[r.Prefix]
		if p == nil || !w.isCalicoNode(r.Peer) ||
			!left.Keeps(bgp.PeerID{Address: r.Peer}, w.originator(r), netip.Addr{}) {
			continue
		}
		p.copies[r.Peer] = true
		if here := (way{r.Gateway, r.Interface}); !p.stays || here == p.now {
			p.stays, p.then = true, here
		}
	}
	for _, k := range order {
		switch p := all[k]; {
		case !p.stays:
			c.Missing++
			c.Examples = append(c.Examples, k.String())
			continue
		case p.then != p.now:
			c.Changed++
			c.Examples = append(c.Examples, k.String())
			fallthrough
		default:
			if c.Prefixes++; c.Prefixes == 1 || len(p.copies) < c.FewestCopies {
				c.FewestCopies = len(p.copies)
			}
		}
	}
	return c
}

// originator is the gateway of a route that another Calico node announces than the one who has sent
// it, else zero. One by a gateway that is no Calico node may be the sender's own.
func (w *World) originator(r calico.NodeStatusRoute) netip.Addr {
	gateway, err := netip.ParseAddr(r.Gateway)
	if err != nil || !w.isCalicoNode(gateway) || w.addresses[gateway] == w.addresses[r.Peer] {
		return netip.Addr{}
	}
	return gateway
}
