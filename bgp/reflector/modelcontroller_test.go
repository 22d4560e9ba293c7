package reflector

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/calico"
)

// answer is what an agent says to a question.
func (m *model) answer(s *state, node int, q Question) Answer {
	a := Answer{Question: q}
	lie := q.Cover != "" && m.lie == "cover" || q.Mesh && m.lie == "mesh" ||
		q.Leave != "" && m.lie == "leave" || q.Enter != "" && m.lie == "enter" ||
		q.Members != "" && m.lie == "members" || q.Reflectors != "" && m.lie == "reflectors"
	if lie {
		return a
	}
	kept := m.kept(node, hypothesis{q, m.planOf(s, node)})
	a.IPv4.FewestCopies = len(s.up)
	var relays []int // which pass on what they have
	for b := range s.up {
		at := s.at(node, b)
		if s.passed[at] != nil || s.again[at] != nil {
			relays = append(relays, b)
		}
	}
	for p := range s.up {
		if p == node || p == s.dead || !m.prefix(p) {
			continue
		}
		copies, before, after := 0, nextHops{}, nextHops{}
		if s.direct[node].has(p) {
			before.owner = true
			if !kept[p].ended {
				copies++
				after.owner = true
			}
		}
		for _, b := range relays {
			at := s.at(node, b)
			if !s.passed[at].has(p) && !s.again[at].has(p) {
				continue
			}
			turned := s.turnedAt(at).has(p)
			before.add(turned)
			if kept[b].reflected.has(p) {
				copies++
				after.add(turned)
			}
		}
		if copies == 0 {
			a.IPv4.Missing++
			a.IPv4.Examples = []string{m.names[p]}
			continue
		}
		if before != after {
			a.IPv4.Changed++
		}
		a.IPv4.Prefixes++
		if m.lie != "copies" {
			a.IPv4.FewestCopies = min(a.IPv4.FewestCopies, copies)
		}
	}
	return a
}

// nextHops are those of a prefix: the node that it is of, another one, or both.
type nextHops struct{ owner, other bool }

func (n *nextHops) add(turned bool) {
	n.owner, n.other = n.owner || !turned, n.other || turned
}

// peerKept says what a node keeps of a peer's paths.
type peerKept struct {
	ended     bool
	reflected set // the owners of what it has reflected; nil: none
}

func (m *model) kept(node int, h hypothesis) []peerKept {
	kept, ok := m.left[h]
	if ok {
		return kept
	}
	about := question{h.q, h.plan.snapshot}
	if m.supposed[about] == nil {
		m.supposed[about] = h.q.suppose(h.plan.snapshot)
	}
	left := m.supposed[about].left(m.names[node])
	kept = make([]peerKept, len(m.names))
	for b, p := range h.plan.peers {
		if p == nil {
			continue
		}
		kept[b].ended = !left.Keeps(p.ID(), netip.Addr{}, netip.Addr{})
		for owner := range m.names {
			if !kept[b].ended && p.Reflector &&
				left.Keeps(p.ID(), m.addressOf(owner), netip.Addr{}) {
				if kept[b].reflected == nil {
					kept[b].reflected = newSet(len(m.names))
				}
				kept[b].reflected[owner/64] |= 1 << (owner % 64)
			}
		}
	}
	m.left[h] = kept
	return kept
}

// decide is what a controller decides that reads etcd and asks all agents now; late: long after the
// last step.
func (m *model) decide(s *state, late bool) Decision {
	v := s.latest
	base := m.world(v)
	known := fmt.Appendf(nil, "%d %t %d %t ", v.id, late, s.dead, m.allSee(s))
	applied := make([]bool, len(m.names))
	for n, name := range m.names {
		p := m.planOf(s, n)
		if m.dataplanes[n] == "bird" {
			known = m.birdKey(known, s, n)
			continue
		}
		applied[n] = p.digest == base.digest(name) || m.lie == "applied"
		known = strconv.AppendBool(known, applied[n])
		for b := range p.peers {
			if p.peers[b] != nil && !s.up[n].has(b) {
				known = append(known, byte(b))
			}
		}
	}
	var asked []Question
	answers := make([][]Answer, len(m.names))
	for {
		d, ok := m.decisions[string(known)]
		if !ok {
			w := *base
			w.Agents, w.Birds = map[string]Agent{}, map[string]Bird{}
			for n, name := range m.names {
				if m.dataplanes[n] == "bird" {
					w.Birds[name] = m.bird(s, n)
				} else {
					w.Agents[name] = m.agent(s, n, applied[n], answers[n])
				}
			}
			if late {
				w.Now = w.Now.Add(time.Hour)
			}
			d = Next(&w, v.goal)
			if m.lie == "mesh is seen" || m.allSee(s) { // each node within the grace time
				if d.Wait != nil && strings.HasPrefix(d.Wait.What, "the mesh has been on") {
					w.Now = w.Now.Add(2 * time.Minute)
					d = Next(&w, v.goal)
				}
			}
			m.decisions[string(known)] = d
		}
		if d.Wait == nil || d.Wait.Ask == nil || slices.Contains(asked, *d.Wait.Ask) {
			return d
		}
		q := *d.Wait.Ask
		asked = append(asked, q)
		for n := range m.names {
			if n != s.dead && m.dataplanes[n] != "bird" {
				a := m.answer(s, n, q)
				a.Digest = base.digest(m.names[n]) // the gate before asks for it
				answers[n] = append(answers[n], a, a)
				known = append(known, byte(a.IPv4.Missing), byte(a.IPv4.Changed),
					byte(a.IPv4.FewestCopies))
			}
		}
	}
}

// allSee reports whether every node has seen all writes.
func (m *model) allSee(s *state) bool {
	for n, seen := range s.seen {
		if n != s.dead && seen != s.latest.at {
			return false
		}
	}
	return true
}

// agent is what a controller knows of one.
func (m *model) agent(s *state, n int, applied bool, answers []Answer) Agent {
	if n == s.dead {
		return Agent{Lost: s.latest.now.Add(-time.Hour)}
	}
	status := Status{Format: StatusFormat, Version: "v1", Dataplane: m.dataplanes[n]}
	if applied {
		status.Digest = m.world(s.latest).digest(m.names[n])
	}
	for b, p := range m.planOf(s, n).peers {
		if p == nil || s.up[n].has(b) {
			continue
		}
		since := s.latest.now
		if b == s.dead {
			since = since.Add(-time.Hour)
		}
		status.Down = append(status.Down, Down{m.names[b], since})
	}
	return Agent{Status: status, Answers: answers}
}

// read has a controller decide.
func (m *model) read(s *state, controller int, late bool) bool {
	if s.step[controller].step != nil {
		return false
	}
	d := m.decide(s, late)
	if d.Step == nil {
		return false
	}
	s.step[controller] = pending{d.Step, s.latest}
	return true
}

// write has it take its step, unless etcd refuses that.
func (m *model) write(s *state, controller int) bool {
	p := s.step[controller]
	if p.step == nil {
		return false
	}
	s.step[controller] = pending{}
	if m.lie != "goal" && s.latest.goalRev != p.read.goalRev {
		return true
	}
	for _, o := range p.step.Compare {
		if m.lie != "revisions" && s.latest.objects[o.Key].Revision != o.Revision {
			return true
		}
	}
	other := s.latest.goal.Mode != p.read.goal.Mode
	does := p.step.Does
	if p.step.Goal.Undo != p.read.goal.Undo {
		does = "go back" // whatever the reason
	}
	if other {
		does += ", for another goal"
	}
	for _, w := range p.step.Writes {
		does += string(w.Value)
	}
	s.latest = m.wrote(s.latest, does, p.step.Writes, func(v *version) {
		v.goal, v.goalRev = p.step.Goal, v.revision()
		v.stale = other
		if late := v.goal.Since; late.After(v.now) {
			v.now = late // time does not go back after what was decided late
		}
	})
	return true
}

// turnBack changes the goal once the first is reached.
func (m *model) turnBack(s *state) bool {
	if s.back || m.decide(s, false).Done == "" {
		return false
	}
	s.back = true
	m.setGoal(s, "back", func(g *Goal) { g.Mode = Mesh })
	return true
}

func (m *model) setGoal(s *state, key string, change func(*Goal)) {
	s.latest = m.wrote(s.latest, key, nil, func(v *version) {
		change(&v.goal)
		v.goal.Since, v.goal.Undo = v.now, ""
		v.goalRev = v.revision()
	})
}

// fault has something happen that must do no harm.
func (m *model) fault(s *state, what string) bool {
	if s.faults == 0 || !m.happens(s, what) {
		return false
	}
	s.faults--
	return true
}

func (m *model) happens(s *state, what string) bool {
	note := func(k calico.Key, name, value string) bool {
		o, ok := s.latest.objects[k]
		if !ok || strings.Contains(string(o.Value), value) {
			return false
		}
		e := edit{value: o.Value}
		e.set(value, "metadata", "annotations", name)
		s.latest = m.wrote(s.latest, what, []Write{{k, e.value}}, func(v *version) {
			v.edited = value
		})
		return true
	}
	switch what {
	case "kill":
		had := s.step[0].step != nil
		s.step[0] = pending{}
		return had
	case "second":
		return m.read(s, 1, false)
	case "late":
		return m.read(s, 0, true)
	case "annotate":
		return note(nodeKey(m.names[1]), "rack.example/row", "a person was here")
	case "cordon":
		return note(nodeKey(m.names[1]), cordonNote, "a person's reason")
	case "regroup": // a person moves a client to another group
		w := m.world(s.latest)
		all := w.groups()
		for _, name := range m.names {
			i := slices.IndexFunc(all, func(g group) bool { return g.Name == w.groupOf(name) })
			if i < 0 || len(all) < 2 || s.latest.goal.target() == Mesh {
				continue
			}
			k := nodeKey(name)
			e := edit{value: s.latest.objects[k].Value}
			e.set(all[(i+1)%len(all)].Name, "metadata", "labels", groupLabel)
			s.latest = m.wrote(s.latest, what, []Write{{k, e.value}}, nil)
			return true
		}
		return false
	case "abort":
		if s.back {
			return false
		}
		s.back = true
		m.setGoal(s, what, func(g *Goal) { g.Mode = Mesh })
		return true
	case "mesh on": // by hand
		if m.world(s.latest).meshIsOn() {
			return false
		}
		value, err := meshOn(s.latest.objects[confKey].Value)
		if err != nil {
			panic(err)
		}
		s.latest = m.wrote(s.latest, what, []Write{{confKey, value}}, nil)
		return true
	case "router":
		o := bgpPeer("tor", `{"peerIP":"192.0.2.1","asNumber":65000}`)
		s.latest = m.wrote(s.latest, what, []Write{{o.Key, o.Value}}, func(v *version) {
			v.edited = "192.0.2.1"
		})
		return true
	case "die": // where others have its role, too
		if !m.world(s.latest).isReflector(m.names[0]) || m.world(s.latest).meshIsOn() {
			return false
		}
		s.dead = 0
		for b := range s.up {
			s.end(0, b)
		}
		return true
	}
	panic("model: unknown fault " + what)
}
