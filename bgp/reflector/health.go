package reflector

import (
	"cmp"
	"fmt"
	"iter"
	"strings"
	"time"
)

// unfit says why a node cannot become a reflector, or remain one; "" if it can. dead are those of
// deadNodes.
func (w *World) unfit(node string, r rules, dead map[string]bool) string {
	return cmp.Or(w.unfitHere(node, r, dead), w.unfitInKubernetes(node, r))
}

// unfitHere is unfit without Kubernetes.
func (w *World) unfitHere(node string, r rules, dead map[string]bool) string {
	n := w.snapshot.Nodes[node]
	note := w.annotation(nodeKey(node), cordonNote)
	switch {
	case !n.IPv4.IsValid() && !n.IPv6.IsValid():
		return "it has no BGP address"
	case r.Pool != "" && !r.pool.Matches(n.Labels):
		return "it is not in the pool " + r.Pool
	case r.Avoid != "" && r.avoid.Matches(n.Labels):
		return "avoid selects it: " + r.Avoid
	case note != "":
		return "it is cordoned: " + note
	case w.known(node) && w.Agents[node].Status.Draining:
		return "it is draining"
	case w.isReflector(node) && w.bird(node) && r.Topology != Single:
		return fmt.Sprintf("it runs BIRD, which topology %s allows for no reflector", r.Topology)
	case w.isReflector(node):
		if dead[node] {
			return fmt.Sprintf("it is dead: it publishes no status, and most of its sessions have "+
				"been down for %s", r.grace)
		}
	case w.bird(node) && !r.Bird:
		return "it runs BIRD, which the rules allow for no reflector"
	case !w.bird(node) && !w.known(node):
		return "its agent is away or of another version"
	}
	return ""
}

// tally is what the agents say of one node that is silent.
type tally struct {
	peers, down int // with a session with it; that have lost all of them
}

func (t tally) isDead() bool { return 2*t.down > t.peers }

// deadNodes are those without a status, or an answer of BIRD, with which most of their peers with
// an agent have lost all sessions. A node that only lacks the status may be cut off from etcd, and
// still work. Peers that are cut off count as having one: the smaller part of a split network
// declares none dead.
func (w *World) deadNodes(r rules) map[string]bool {
	silent := map[string]*tally{}
	for _, n := range w.names {
		a, ok := w.Agents[n]
		b := w.Birds[n]
		if !ok && (len(b.Answers) == 0 || b.Silent) || ok && !a.Lost.IsZero() {
			silent[n] = &tally{}
		}
	}
	dead := map[string]bool{}
	if len(silent) == 0 {
		return dead
	}
	for peer := range w.Agents {
		w.count(peer, silent, r)
	}
	for n, t := range silent {
		if w.isReflector(n) && t.isDead() {
			dead[n] = true
		}
	}
	// A client has its sessions with reflectors alone: those that are dead say nothing of it.
	for reflector := range dead {
		for n := range w.sessionsOf(reflector, silent) {
			if _, ok := w.Agents[reflector]; ok && !w.isReflector(n) {
				silent[n].peers--
			}
		}
	}
	for n, t := range silent {
		if !w.isReflector(n) && t.isDead() {
			dead[n] = true
		}
	}
	return dead
}

// ends are the sessions of one agent with one other node.
type ends struct {
	all, listed, bits int  // listed, and by DownBits: those that are down
	lately            bool // one of those was up within the grace time
}

// sessionsOf are those of a node with some others, by these.
func (w *World) sessionsOf(node string, others map[string]*tally) map[string]ends {
	s, i, out := w.Agents[node].Status, 0, map[string]ends{}
	for _, p := range w.peersOf(node) {
		if p.CalicoNode == "" {
			continue
		}
		if others[p.CalicoNode] != nil {
			e := out[p.CalicoNode]
			e.all++
			if s.isDown(i) {
				e.bits++
			}
			out[p.CalicoNode] = e
		}
		i++
	}
	return out
}

// count adds what a peer says of silent nodes. Of those for which its status had no room it says
// nothing.
func (w *World) count(peer string, silent map[string]*tally, r rules) {
	sessions := w.sessionsOf(peer, silent)
	if !w.known(peer) {
		for n := range sessions {
			silent[n].peers++
		}
		return
	}
	s := w.Agents[peer].Status
	for _, d := range s.Down {
		if e, ok := sessions[d.Node]; ok {
			e.listed++
			e.lately = e.lately || w.Now.Sub(d.Since) < r.grace
			sessions[d.Node] = e
		}
	}
	// Reflectors come first: all of them are listed where another node is.
	last := len(s.Down) - 1
	listsReflectors := last >= 0 && !w.isReflector(s.Down[last].Node)
	hasBits := w.hasDownBits(peer)
	for n, e := range sessions {
		down := false
		switch {
		case e.lately:
		case e.listed >= e.all:
			down = true
		case s.DownMore == 0:
		case hasBits:
			down = e.bits == e.all && w.Now.Sub(s.DownMoreSince) >= r.grace
		case w.isReflector(n) && listsReflectors:
		default:
			continue
		}
		silent[n].peers++
		if down {
			silent[n].down++
		}
	}
}

// hasDownBits reports whether the DownBits of a node are there, and of its present sessions.
func (w *World) hasDownBits(node string) bool {
	s := w.Agents[node].Status
	if len(s.DownBits) == 0 || s.Digest != w.digest(node) {
		return false
	}
	sessions := 0
	for range w.downBits(node) {
		sessions++
	}
	return sessions == s.Wanted
}

// downBits are the other ends of a node's sessions, and whether they are down by its DownBits.
func (w *World) downBits(node string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		s, i := w.Agents[node].Status, 0
		for _, p := range w.peersOf(node) {
			if p.CalicoNode == "" {
				continue
			}
			if !yield(p.CalicoNode, s.isDown(i)) {
				return
			}
			i++
		}
	}
}

// storm says why nothing may be decided now: the controller was cut off from etcd, a third of all
// agents are, and they have not had the time to return, or more than half are.
func (w *World) storm(r rules) string {
	if back := w.Now.Sub(w.Connected); back < r.grace {
		return fmt.Sprintf("the datastore has been reachable for only %s of the %s that agents "+
			"have to return", back.Round(time.Second), r.grace)
	}
	all, lost, lately := 0, 0, 0
	for _, n := range w.names {
		a, ok := w.Agents[n]
		if !ok {
			continue
		}
		all++
		if a.Lost.IsZero() {
			continue
		}
		lost++
		if w.Now.Sub(a.Lost) < r.grace {
			lately++
		}
	}
	switch {
	case lately > 0 && 3*lately >= all:
		return fmt.Sprintf("%d of %d agents were lost within %s", lately, all, r.grace)
	case 2*lost > all:
		return fmt.Sprintf("only %d of %d agents publish a status", all-lost, all)
	}
	return ""
}

// some lists the first few of many.
func some(all []string, separator string) string {
	const few = 5
	if len(all) <= few {
		return strings.Join(all, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:few], separator), len(all)-few)
}
