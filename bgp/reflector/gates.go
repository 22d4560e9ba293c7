package reflector

import (
	"fmt"
	"maps"
	"strings"
)

// gate is a condition for the next step. It returns nil when it is open.
type gate func() *Wait

// seen: an agent answers for each node, or calico-node for its BIRD, or the node is dead. Nodes
// with a mute calico-node, or an agent of another version, may be accepted unseen. An agent that is
// cut off from etcd may not: it goes on with what it has read, and would lose the sessions that
// others end.
func (d *decider) seen() *Wait {
	var agents, mute, asked []string
	for _, n := range d.names {
		a, hasAgent := d.Agents[n]
		switch {
		case d.dead[n] || d.seenNode(n):
		case hasAgent && !(d.goal.AcceptUnseen && a.Lost.IsZero()):
			agents = append(agents, n)
		case !hasAgent && !d.isMute(n):
			asked = append(asked, n)
		case !hasAgent && !d.goal.AcceptUnseen:
			mute = append(mute, n)
		}
	}
	for _, w := range []Wait{
		{What: "no agent of this version answers for ", Nodes: agents},
		{What: "neither an agent nor calico-node answers for ", Nodes: mute},
		{What: "no answer yet from calico-node of ", Nodes: asked},
	} {
		if len(w.Nodes) > 0 {
			w.What += some(w.Nodes, ", ")
			return &w
		}
	}
	return nil
}

// applied: every agent has applied what is in etcd, and every BIRD, as far as its sessions show
// that. Without this gate a node that sees writes late, or those to one range of keys before those
// to another, would lack sessions that the next step relies on.
func (d *decider) applied() *Wait {
	nodes := d.only(func(n string) bool {
		if d.bird(n) {
			return d.seenNode(n) && !d.birdApplied(n)
		}
		return d.known(n) && d.Agents[n].Status.Digest != d.digest(n)
	})
	if len(nodes) == 0 {
		return nil
	}
	return &Wait{What: "the last change is not applied at " + some(nodes, ", "), Nodes: nodes}
}

// meshIsSeen: the mesh has been on for the grace time. It is turned on without a gate, so a node
// may not have seen yet that it went and came back, and nothing that the node says shows that.
func (d *decider) meshIsSeen() *Wait {
	if d.Now.Sub(d.goal.MeshOn) >= d.grace {
		return nil
	}
	return &Wait{What: fmt.Sprintf("the mesh has been on for less than %s", d.grace)}
}

// sessionsUp: all sessions between nodes that gates look at are up, but those of reflectors that
// are to go.
func (d *decider) sessionsUp() *Wait {
	counts := func(a, b string) bool { return d.seenNode(b) && !d.outgoing[a] && !d.outgoing[b] }
	uncounted := maps.Clone(d.dead)
	maps.Copy(uncounted, d.outgoing)
	for _, n := range d.only(d.bird) {
		if other := d.birdDown(n); other != "" && counts(n, other) {
			return sessionDown(n, other)
		}
	}
	for _, n := range d.only(d.known) {
		s := d.Agents[n].Status
		for _, down := range s.Down {
			if counts(n, down.Node) {
				return sessionDown(n, down.Node)
			}
		}
		more := s.Wanted - s.Up - len(s.Down)
		if more <= 0 || d.outgoing[n] {
			continue
		}
		if d.hasDownBits(n) {
			for other, isDown := range d.downBits(n) {
				if isDown && counts(n, other) {
					return sessionDown(n, other)
				}
			}
			continue
		}
		if more > d.unlisted(n, uncounted) {
			return &Wait{
				What:  fmt.Sprintf("%d sessions of %s are down", s.Wanted-s.Up, n),
				Nodes: []string{n},
			}
		}
	}
	return nil
}

// unlisted is how many sessions a node has with some others that it does not list as down.
func (w *World) unlisted(node string, others map[string]bool) (n int) {
	for _, p := range w.peersOf(node) {
		if others[p.CalicoNode] {
			n++
		}
	}
	for _, down := range w.Agents[node].Status.Down {
		if others[down.Node] {
			n--
		}
	}
	return n
}

func sessionDown(a, b string) *Wait {
	return &Wait{
		What:  fmt.Sprintf("the session between %s and %s is down", a, b),
		Nodes: []string{a, b},
	}
}

// answers is the gate that the answers of some nodes to a question open. Each node must keep a
// number of copies of every prefix.
func (d *decider) answers(q Question, nodes []string, copies func(node string) int) *Wait {
	shut, example := d.shut(q, nodes, copies)
	if len(shut) == 0 {
		return nil
	}
	what := fmt.Sprintf("not all routes %s at %s", q, some(shut, ", "))
	if example != "" {
		what += ", such as " + example
	}
	return &Wait{What: what, Nodes: shut, Ask: &q}
}

func (q Question) String() string {
	switch {
	case q.Cover != "":
		return "from reflector " + q.Cover
	case q.Mesh:
		return "without the mesh"
	case q.Enter != "":
		return "with the new reflector " + q.Enter
	case q.Members != "":
		return fmt.Sprintf("with %s in group %s", some(strings.Split(q.Members, ","), ", "),
			q.Group)
	case q.Group != "":
		return fmt.Sprintf("with group %s at the reflectors %s", q.Group, q.Reflectors)
	}
	return "without reflector " + q.Leave
}

// newestCovers: every client has all routes from the chosen reflector that came last, and that
// reflector has them itself: a client may still hold what was withdrawn from the reflector. BIRD
// resets its session with the next reflector, so these routes must already be there. Other
// reflectors are not asked: reflectors send each other the routes of their clients alone.
func (d *decider) newestCovers(c Choice) gate {
	return func() *Wait {
		newest := d.newest(c)
		if newest == "" || d.isGrouped() { // then no reflector has all clients
			return nil
		}
		nodes := d.only(func(n string) bool {
			return d.seenNode(n) && (n == newest || !d.isReflector(n))
		})
		return d.answers(Question{Cover: newest}, nodes, func(string) int { return 1 })
	}
}

// withoutMesh: no node needs the mesh, and each client has every route twice.
func (d *decider) withoutMesh() *Wait {
	return d.answers(Question{Mesh: true}, d.only(d.seenNode), d.copies(len(d.reflectors())))
}

// withoutReflector: no node needs this reflector. Where the mesh is off each client keeps every
// route twice, or once where there are only two reflectors.
func (d *decider) withoutReflector(r string) gate {
	return func() *Wait {
		copies := func(string) int { return 1 }
		if !d.meshIsOn() {
			copies = d.copies(len(d.reflectors()) - 1)
		}
		q := Question{Leave: r, Label: d.Label, Resets: d.resets()}
		return d.answers(q, d.only(d.seenNode), copies)
	}
}

// resets reports whether sessions are reset when a reflector of ours leaves, while another can
// carry their routes: its own where it runs BIRD, else those with nodes that do.
func (d *decider) resets() bool {
	return len(d.only(d.bird)) > 0 && len(d.ours()) > 1
}

// copies is how many a client must have of each route while a number of reflectors are left. A
// reflector has routes from their nodes alone.
func (d *decider) copies(left int) func(node string) int {
	return func(node string) int {
		if d.isReflector(node) {
			return 1
		}
		return min(2, left)
	}
}
