package reflector

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// The model: etcd, nodes that see each range of its keys late, sessions, routes and controllers.
// Next, bgp.Peers and the reflection rule are the real ones. Each event changes one thing, and
// after each every node must have the prefix of every other, by no next hop but that other.

// A range of keys; a node sees the writes of one in order, and of two in any.
const (
	rangeNodes  = 0
	rangeBGP    = 1 // BGPPeers and BGPConfigurations
	rangesInAll = 2
)

// set is a set of nodes. It is never changed, so that states can share it.
type set []uint64

func newSet(n int) set         { return make(set, (n+63)/64) }
func (s set) has(i int) bool   { return s != nil && s[i/64]>>(i%64)&1 != 0 }
func (s set) equal(o set) bool { return slices.Equal(s, o) }

func (s set) with(i int) set {
	s = slices.Clone(s)
	s[i/64] |= 1 << (i % 64)
	return s
}

func (s set) without(i int) set {
	s = slices.Clone(s)
	s[i/64] &^= 1 << (i % 64)
	return s
}

// version is etcd after a write. Versions are interned: the same writes give the same pointer.
type version struct {
	id      int
	prev    *version
	objects map[calico.Key]Object
	goal    Goal
	goalRev int64
	at      [rangesInAll]*version // which changed the range last
	now     time.Time
	edited  string // what a person wrote; no step may undo it
	// of a step that was decided on for another goal than it was taken for
	stale bool
	wrong string
}

func (v *version) revision() int64 { return int64(v.id) + 100 }

// view is what a node has seen.
type view [rangesInAll]*version

type planKey struct {
	node int
	seen view
}

// plan is what a node makes of a view.
type plan struct {
	peers    []*bgp.Peer // by node; nil: no session
	digest   string
	snapshot *calico.Snapshot
	policies bgp.Policies
}

// model is what does not change in a run, and what is remembered of computations.
type model struct {
	names      []string
	addresses  []netip.Addr
	index      map[string]int
	dataplanes []string // "vpp", "none", "bird"
	lie        string   // the gate that is left out: agents say what opens it
	faults     []string
	adopts     bool // the first write is an adoption

	first     *version
	versions  map[any]*version
	plans     map[planKey]*plan
	snapshots map[view]*calico.Snapshot
	worlds    map[*version]*World
	decisions map[string]Decision
	ended     map[change]set
	supposed  map[question]*supposed
	left      map[hypothesis][]peerKept
}

// change is one of a node's plan; question is one about a snapshot, hypothesis one put to a node.
type (
	question struct {
		Question
		about *calico.Snapshot
	}
	change struct {
		node          int
		before, after *plan
	}
	hypothesis struct {
		q    Question
		plan *plan
	}
)

func newModel(nodes []testNode, dataplanes map[string]string, goal Goal, more ...Object) *model {
	m := &model{
		index: map[string]int{}, versions: map[any]*version{}, plans: map[planKey]*plan{},
		snapshots: map[view]*calico.Snapshot{}, worlds: map[*version]*World{},
		decisions: map[string]Decision{}, ended: map[change]set{},
		supposed: map[question]*supposed{}, left: map[hypothesis][]peerKept{},
	}
	objects := map[calico.Key]Object{}
	for i, n := range nodes {
		m.names = append(m.names, n.name)
		m.addresses = append(m.addresses, netip.MustParsePrefix(n.v4).Addr())
		m.index[n.name] = i
		if kind := dataplanes[n.name]; kind != "" {
			m.dataplanes = append(m.dataplanes, kind)
		} else {
			m.dataplanes = append(m.dataplanes, "vpp")
		}
		objects[nodeKey(n.name)] = n.object()
	}
	for _, o := range more {
		objects[o.Key] = o
	}
	v := &version{objects: objects, goal: goal, goalRev: 1, now: start}
	v.at = [rangesInAll]*version{v, v}
	m.first = v
	return m
}

// wrote returns the version after some writes; key names what was done. Nodes notice only what they
// decode: no annotation.
func (m *model) wrote(prev *version, key string, writes []Write, change func(*version)) *version {
	id := [2]any{prev, key}
	if v := m.versions[id]; v != nil {
		return v
	}
	v := *prev
	v.id, v.prev = len(m.versions)+1, prev
	v.now = prev.now.Add(time.Second)
	v.objects = maps.Clone(prev.objects)
	for _, w := range writes {
		if w.Value == nil {
			delete(v.objects, w.Key)
		} else {
			v.objects[w.Key] = Object{w.Key, w.Value, v.revision()}
		}
	}
	if change != nil {
		change(&v)
	}
	before, after := m.world(prev).snapshot, m.world(&v).snapshot
	if !reflect.DeepEqual(before.Nodes, after.Nodes) {
		v.at[rangeNodes] = &v
	}
	if !reflect.DeepEqual(before.BGPPeers, after.BGPPeers) ||
		!reflect.DeepEqual(before.BGPConfigurations, after.BGPConfigurations) {
		v.at[rangeBGP] = &v
	}
	v.wrong = v.wronged()
	m.versions[id] = &v
	return &v
}

// world is what a controller reads at a version, but for the agents.
func (m *model) world(v *version) *World {
	if w := m.worlds[v]; w != nil {
		return w
	}
	w := Read(slices.Collect(maps.Values(v.objects)))
	w.Now, w.Connected, w.Version = v.now, start.Add(-time.Hour), "v1"
	if v.prev != nil && reflect.DeepEqual(w.snapshot, m.world(v.prev).snapshot) {
		w.peers, w.digests = m.world(v.prev).peers, m.world(v.prev).digests
	}
	m.worlds[v] = w
	return w
}

// peers are those that a node has by a view: computed for its world, if a version looks so.
func (m *model) peers(node int, seen view) []bgp.Peer {
	v := seen[0]
	if seen[1].id > v.id {
		v = seen[1]
	}
	if v.at == seen {
		return m.world(v).peersOf(m.names[node])
	}
	peers, _ := bgp.Peers(m.names[node], m.snapshot(seen))
	return peers
}

func (m *model) snapshot(seen view) *calico.Snapshot {
	s := m.snapshots[seen]
	if s == nil {
		both := *m.world(seen[rangeBGP]).snapshot
		both.Nodes = m.world(seen[rangeNodes]).snapshot.Nodes
		s = &both
		m.snapshots[seen] = s
	}
	return s
}

func (m *model) plan(node int, seen view) *plan {
	id := planKey{node, seen}
	if p := m.plans[id]; p != nil {
		return p
	}
	s := m.snapshot(seen)
	p := &plan{peers: make([]*bgp.Peer, len(m.names)), snapshot: s}
	peers := m.peers(node, seen)
	for _, peer := range peers {
		if i, ok := m.index[peer.CalicoNode]; ok {
			p.peers[i] = &peer
		}
	}
	self := s.Nodes[m.names[node]]
	p.policies.Reflects = self.RouteReflectorClusterID != ""
	p.digest = digest(peers, self, resources(s))
	m.plans[id] = p
	return p
}

// ends reports whether a node whose peer changes so ends the session.
func (m *model) ends(node int, before, after *bgp.Peer) bool {
	if m.dataplanes[node] != "bird" {
		return Resets(*before, *after)
	}
	protocol := func(p *bgp.Peer) string { // confd's names; another one is another session
		switch p.Scope {
		case bgp.ScopeMesh, bgp.ScopeGlobal:
			return string(p.Scope)
		}
		return "node"
	}
	return protocol(before) != protocol(after) || before.Client != after.Client ||
		Resets(*before, *after)
}

// pending is a step that a controller has decided on and not yet taken.
type pending struct {
	step *Step
	read *version
}

// state is all that changes.
type state struct {
	latest *version
	seen   []view
	up     []set // sessions, by node; symmetric
	direct []set // by node: whose prefix it has from that node itself
	passed []set // which prefixes a node has from a reflector, see at; nil: none
	// again has those that this reflector had from another one, with another cluster ID
	again []set
	// turned has those of both whose next hop is another node than theirs; nil: none has one
	turned []set
	step   [2]pending
	faults int // still to come
	dead   int // the node that has died; -1: none
	back   bool
	// nodes that may have lost a route since this was last looked at
	touched []int
}

// at is the place in passed of what node a has from b.
func (s *state) at(a, b int) int { return a*len(s.up) + b }

// begin is a quiet cluster, a mesh unless the first version says otherwise.
func (m *model) begin() *state {
	n := len(m.names)
	s := &state{latest: m.first, faults: 1, dead: -1}
	s.passed, s.again = make([]set, n*n), make([]set, n*n)
	for a := range n {
		s.seen = append(s.seen, view{m.first, m.first})
		up, direct := newSet(n), newSet(n)
		for b := range n {
			if a != b {
				up[b/64] |= 1 << (b % 64)
				if m.prefix(b) {
					direct[b/64] |= 1 << (b % 64)
				}
			}
		}
		s.up, s.direct = append(s.up, up), append(s.direct, direct)
	}
	for a := range n {
		for b := range n {
			if a != b && !m.wanted(s, a, b) {
				s.end(a, b)
			}
		}
	}
	for moved := true; moved; {
		moved = false
		for a := range n {
			for b := range n {
				moved = a != b && m.deliver(s, a, b) || moved
			}
		}
	}
	if wrong := m.wrong(s); wrong != "" {
		panic("model: it begins with a gap: " + wrong)
	}
	if m.adopts {
		a, err := NewAdoption(m.world(m.first), Goal{Config: m.first.goal.Config})
		if err != nil || len(a.Obstacles) > 0 {
			panic(fmt.Sprintf("model: %v, %q", err, a.Obstacles))
		}
		s.latest = m.wrote(m.first, "adopt", a.Writes, func(v *version) {
			v.goal = a.Goal.Migrate(a.After(m.world(m.first)), Reflectors)
			v.goalRev = v.revision()
		})
	}
	return s
}

func (s *state) clone() *state {
	c := *s
	c.seen, c.up = slices.Clone(s.seen), slices.Clone(s.up)
	c.direct, c.passed = slices.Clone(s.direct), slices.Clone(s.passed)
	c.again, c.turned = slices.Clone(s.again), slices.Clone(s.turned)
	c.touched = nil
	return &c
}

// key tells states apart: two hashes, of what b ends up with.
func (s *state) key(b []byte) [2]uint64 {
	b = binary.AppendUvarint(b, uint64(s.latest.id))
	for a := range s.seen {
		for _, v := range s.seen[a] {
			b = binary.AppendUvarint(b, uint64(v.id))
		}
	}
	for _, sets := range [][]set{s.up, s.direct, s.passed, s.again, s.turned} {
		for _, x := range sets {
			b = append(b, byte(len(x)))
			for _, w := range x {
				b = binary.AppendUvarint(b, w)
			}
		}
	}
	for _, p := range s.step {
		if p.step != nil {
			b = append(b, p.step.Does...)
			b = binary.AppendUvarint(b, uint64(p.read.id))
		}
		b = append(b, 0)
	}
	back := 0
	if s.back {
		back = 1
	}
	b = append(b, byte(s.faults), byte(s.dead), byte(back))
	return [2]uint64{maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b)}
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// prefix reports whether a node has one: without workloads it has none.
func (m *model) prefix(node int) bool { return m.dataplanes[node] != "none" }

func (m *model) planOf(s *state, node int) *plan { return m.plan(node, s.seen[node]) }

// wanted reports whether both ends want a session.
func (m *model) wanted(s *state, a, b int) bool {
	return a != b && a != s.dead && b != s.dead &&
		m.planOf(s, a).peers[b] != nil && m.planOf(s, b).peers[a] != nil
}

// end takes a session down, with what each end has from the other.
func (s *state) end(a, b int) {
	for range 2 {
		s.up[a] = s.up[a].without(b)
		s.direct[a] = s.direct[a].without(b)
		s.take(s.at(a, b), sent{})
		s.touched = append(s.touched, a)
		a, b = b, a
	}
}

// see has a node see the next write to a range; false: there is none.
func (m *model) see(s *state, node, r int) bool {
	next := s.latest.at[r]
	if next == s.seen[node][r] || node == s.dead {
		return false
	}
	for v := next; v != s.seen[node][r]; v = v.prev.at[r] {
		next = v
	}
	before := m.planOf(s, node)
	s.seen[node][r] = next
	c := change{node, before, m.planOf(s, node)}
	ended, ok := m.ended[c]
	if !ok {
		ended = newSet(len(s.up))
		for b, p := range before.peers {
			if p != nil && (c.after.peers[b] == nil || m.ends(node, p, c.after.peers[b])) {
				ended = ended.with(b)
			}
		}
		m.ended[c] = ended
	}
	for b := range s.up {
		if s.up[node].has(b) && ended.has(b) {
			s.end(node, b)
		}
	}
	return true
}

// connect brings a session up; nothing has come over it yet.
func (m *model) connect(s *state, a, b int) bool {
	if s.up[a].has(b) || !m.wanted(s, a, b) {
		return false
	}
	s.up[a], s.up[b] = s.up[a].with(b), s.up[b].with(a)
	return true
}

// sent is what a reflector has passed on: what others sent it, what reflectors with another cluster
// ID passed on to it, and what of both has another next hop than the node that it is of.
type sent struct{ once, again, turned set }

// has is what came at a place in passed, take replaces it.
func (s *state) has(at int) sent {
	return sent{s.passed[at], s.again[at], s.turnedAt(at)}
}

func (s *state) take(at int, x sent) {
	s.passed[at], s.again[at] = x.once, x.again
	if x.turned != nil && s.turned == nil {
		s.turned = make([]set, len(s.passed))
	}
	if s.turned != nil {
		s.turned[at] = x.turned
	}
}

func (s *state) turnedAt(at int) set {
	if s.turned == nil {
		return nil
	}
	return s.turned[at]
}

func (x sent) equal(o sent) bool {
	return x.once.equal(o.once) && x.again.equal(o.again) && x.turned.equal(o.turned)
}

// exported is what a node passes on to another. What reflectors with its own cluster ID passed on
// to it, it does not reflect again (RFC 4456 §8). Next hops it leaves alone, unless its peer has a
// nextHopMode.
func (m *model) exported(s *state, from, to int) (out sent) {
	p := m.planOf(s, from)
	if !p.policies.Reflects {
		return out
	}
	self := p.peers[to].NextHop == bgp.NextHopSelf || m.lie == "next hop"
	add := func(to *set, owner int) {
		if *to == nil {
			*to = newSet(len(s.up))
		}
		(*to)[owner/64] |= 1 << (owner % 64)
	}
	for owner := range s.up {
		if owner != to && s.direct[from].has(owner) &&
			!p.policies.Forbids(p.peers[owner], p.peers[to]) {
			add(&out.once, owner)
			if self {
				add(&out.turned, owner)
			}
		}
	}
	own := p.snapshot.Nodes[m.names[from]].RouteReflectorClusterID
	for b, peer := range p.peers {
		at := s.at(from, b)
		passed := s.passed[at]
		if passed == nil || peer == nil || p.policies.Forbids(peer, p.peers[to]) ||
			p.snapshot.Nodes[m.names[b]].RouteReflectorClusterID == own {
			continue
		}
		for owner := range s.up {
			if owner != to && passed.has(owner) && !out.once.has(owner) {
				add(&out.again, owner)
				if self || s.turnedAt(at).has(owner) {
					add(&out.turned, owner)
				}
			}
		}
	}
	return out
}

// deliver has all that a node would send reach the other end.
func (m *model) deliver(s *state, from, to int) bool {
	if !s.up[from].has(to) || m.planOf(s, from).peers[to] == nil {
		return false
	}
	x, at := m.exported(s, from, to), s.at(to, from)
	if s.direct[to].has(from) == m.prefix(from) && s.has(at).equal(x) {
		return false
	}
	if m.prefix(from) {
		s.direct[to] = s.direct[to].with(from)
	}
	s.take(at, x)
	s.touched = append(s.touched, to)
	return true
}

// missing is the first prefix that a node lacks that forwards; -1: none.
func (m *model) missing(s *state, node int) int {
	if node == s.dead || m.dataplanes[node] == "none" {
		return -1
	}
	has := slices.Clone(s.direct[node])
	for _, all := range [][]set{s.passed, s.again} {
		for _, passed := range all[s.at(node, 0):s.at(node+1, 0)] {
			for i, word := range passed {
				has[i] |= word
			}
		}
	}
	for p := range s.up {
		if p != node && p != s.dead && m.prefix(p) && !has.has(p) {
			return p
		}
	}
	return -1
}

// misled finds a path that a node forwards by, or may, as it is as good as the others, and that
// leads to another node than the one whose prefix it is of; nobody: there is none.
func (m *model) misled(s *state, node int) (prefix, by int) {
	if node == s.dead || m.dataplanes[node] == "none" {
		return nobody, nobody
	}
	for b := range s.up {
		for p := range s.up {
			if p != s.dead && s.turnedAt(s.at(node, b)).has(p) {
				return p, b
			}
		}
	}
	return nobody, nobody
}

const nobody = -1

// wrong says which property does not hold; "": all do.
func (m *model) wrong(s *state) string {
	for _, n := range s.touched {
		if p := m.missing(s, n); p >= 0 {
			return fmt.Sprintf("%s has no route to %s", m.names[n], m.names[p])
		}
		if s.turned == nil {
			continue
		}
		if p, by := m.misled(s, n); p != nobody {
			return fmt.Sprintf("%s has a route to %s by another next hop, of %s", m.names[n],
				m.names[p], m.names[by])
		}
	}
	s.touched = nil
	return s.latest.wrong
}

// wronged says what is wrong with a version by itself.
func (v *version) wronged() string {
	if v.stale {
		return "a step was taken for a goal that is another one now"
	}
	for _, o := range v.objects {
		if strings.Contains(string(o.Value), v.edited) {
			return ""
		}
	}
	return "what a person wrote is lost: " + v.edited
}
