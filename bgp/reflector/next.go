package reflector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/calico"
)

// Mode is what the cluster shall become.
type Mode string

const (
	Observe    Mode = "observe" // nothing is written
	Reflectors Mode = "reflectors"
	Mesh       Mode = "mesh"
)

// Goal is the value of the goal key. Every step also writes it and compares its revision, so that
// of two controllers only one can take the step.
type Goal struct {
	Mode   Mode   `json:"mode,omitempty"` // empty: Observe
	Paused bool   `json:"paused,omitempty"`
	Config Config `json:"config"`
	// AcceptLoss: the first reflector may have workloads although some nodes run BIRD.
	// AcceptUnseen: gates do not wait for nodes with BIRD whose calico-node does not answer, or
	// with an agent of another version.
	AcceptLoss   bool `json:"acceptLoss,omitempty"`
	AcceptUnseen bool `json:"acceptUnseen,omitempty"`
	// Since is when the last step was taken, or Mode was set or resumed; zero once the goal is
	// reached. Only while it is set does a gate have a limit, and do agents have questions.
	Since time.Time `json:"since,omitzero"`
	// MeshOn is when a step on the way back turned the mesh on; zero once the goal is reached.
	MeshOn time.Time `json:"meshOn,omitzero"`
	// From is what the cluster was when the migration began; empty once it has ended.
	From Mode `json:"from,omitempty"`
	// Undo says why the steps are undone; empty: they are not.
	Undo string `json:"undo,omitempty"`
}

// Aborted is the Undo of a migration that a person has aborted.
const Aborted = "a person aborted it"

// Migrate is g with another mode, from what w is now.
func (g Goal) Migrate(w *World, mode Mode) Goal {
	from := g.From
	g.Mode, g.From, g.Undo, g.Paused, g.Since = mode, Mesh, "", false, w.Now
	// What was adopted has reflectors alone before the first migration.
	if w.Begun() && (mode == Mesh || !w.meshIsOn() && from != Mesh) {
		g.From = Reflectors
	}
	return g
}

// target is the mode to which steps lead.
func (g Goal) target() Mode {
	switch {
	case g.Undo == "" || g.Mode == Observe:
		return cmp.Or(g.Mode, Observe)
	case g.From != "":
		return g.From
	case g.Mode == Reflectors:
		return Mesh
	}
	return Reflectors
}

// Decision is what Next returns: a Step, a Wait, or that nothing is to be done.
type Decision struct {
	Step *Step
	Wait *Wait
	Done string // what is reached; "" with Step or Wait
}

// Step is one transaction of etcd. It fails if an object has another revision than in Compare, or
// the goal key another one than it was read with.
type Step struct {
	Does    string // for people
	Writes  []Write
	Compare []Object // by key, without values; Revision 0: does not exist
	Goal    Goal     // the new one
}

// Write puts a resource, or deletes it where Value is nil.
type Write struct {
	Key   calico.Key
	Value []byte
}

// Wait says what the next step waits for.
type Wait struct {
	What   string
	Nodes  []string  // that are waited for
	Ask    *Question // to be put to all agents
	Birds  []string  // nodes with BIRD, to be asked as well
	Person bool      // only a person can change it
}

// decider is one call of Next.
type decider struct {
	*World
	rules
	goal Goal
	dead map[string]bool
	// seenNodes is what seenNode has found.
	seenNodes map[string]bool
	// outgoing are reflectors that are to go. No gate waits for a session with one.
	outgoing map[string]bool
}

// Next returns the next step to the goal, or what it waits for. It remembers nothing: resources,
// our annotations and the goal say how far the migration has come.
func Next(w *World, g Goal) Decision {
	if g.target() == Observe {
		return Decision{Done: "observing: nothing is written"}
	}
	r, err := g.Config.parse()
	d := &decider{World: w, rules: r, goal: g}
	switch {
	case err != nil:
		return byPerson("configuration: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	case g.Paused:
		return byPerson("paused")
	}
	if reasons := d.edited(); len(reasons) > 0 {
		return byPerson(some(reasons, "; "))
	}
	// The mesh only adds sessions. As the way out of an emergency it waits for nobody.
	if g.target() == Mesh && !w.meshIsOn() {
		on := passage{d: d}.then("turn the mesh on", d.turnMeshOn)
		if on.Step != nil {
			on.Step.Goal.MeshOn = w.Now
		}
		return on
	}
	atRest := g.target() == Mesh && g.Since.IsZero() && !w.Begun() // there is nothing to decide
	if reason := w.storm(r); reason != "" && !atRest {
		return Decision{Wait: &Wait{What: reason}}
	}
	d.dead = w.deadNodes(r)
	if decision, ok := d.settleAdopted(); ok {
		return decision
	}
	if g.target() == Mesh {
		return d.toMesh()
	}
	return d.toReflectors()
}

func byPerson(what string) Decision { return Decision{Wait: &Wait{What: what, Person: true}} }

// toReflectors: our BGPPeer, the reflectors one by one, the mesh off. From then on it follows the
// choice; new reflectors come before old ones go.
func (d *decider) toReflectors() Decision {
	c := choose(d.World, d.rules, d.dead)
	if d.meshIsOn() {
		if decision, ok := d.withoutGroups(); ok { // of a way back that was given up
			return decision
		}
		if reasons := d.preflight(c); len(reasons) > 0 {
			return byPerson(some(reasons, "; "))
		}
	}
	d.outgoing = map[string]bool{}
	for _, r := range d.ours() {
		d.outgoing[r] = !d.meshIsOn() && !c.Has(r)
	}
	if d.objects[peerKey].Revision == 0 {
		return d.when(d.applied, d.sessionsUp).then("create BGPPeer("+peerName+")", d.createPeer)
	}
	for _, r := range c.Reflectors {
		if d.isReflector(r.Node) {
			continue
		}
		if d.groupOf(r.Node) != "" { // a reflector peers with every other
			return d.disband([]string{r.Node})
		}
		return d.when(d.applied, d.newestCovers(c), d.enters(r.Node)).then(
			fmt.Sprintf("make Node(%s) a reflector: %s", r.Node, r.Reason), d.enable(r.Node))
	}
	if d.meshIsOn() {
		return d.when(d.applied, d.withoutMesh).then("turn the mesh off", d.turnMeshOff)
	}
	if decision, ok := d.toGroups(c); ok {
		return decision
	}
	for _, r := range d.ours() {
		if !c.Has(r) {
			reason := cmp.Or(d.unfit(r, d.rules, d.dead), "there are enough without it")
			return d.when(d.applied, d.whole, d.newestCovers(c), d.withoutReflector(r)).then(
				fmt.Sprintf("Node(%s) stops being a reflector: %s", r, reason), d.disable(r, ""))
		}
	}
	return d.reached("reflectors "+some(d.reflectors(), ", "), d.applied, d.sessionsUp,
		d.newestCovers(c))
}

// toMesh: once the mesh is on, the reflectors out one by one in the reverse order, our BGPPeer
// deleted.
func (d *decider) toMesh() Decision {
	if decision, ok := d.withoutGroups(); ok {
		return decision
	}
	if leaving := d.leaving(); len(leaving) > 0 {
		leaves := leaving[0]
		if reason := d.loss(leaves, leaving[1:]); reason != "" && !d.goal.AcceptLoss {
			return byPerson(reason)
		}
		return d.when(d.applied, d.meshIsSeen, d.sessionsUp, d.withoutReflector(leaves)).then(
			fmt.Sprintf("Node(%s) stops being a reflector", leaves), d.disable(leaves, ""))
	}
	if d.objects[peerKey].Revision != 0 {
		return d.when(d.applied).then("delete BGPPeer("+peerName+")", d.deletePeer)
	}
	return d.reached("mesh", d.applied, d.sessionsUp)
}

// leaving returns our reflectors in the order in which they leave: the last in is the first out,
// but for agents without workloads, which stay until the others have gone.
func (w *World) leaving() []string {
	all := w.ours()
	slices.Reverse(all)
	slices.SortStableFunc(all, func(a, b string) int { return w.entry(b) - w.entry(a) })
	return all
}

// passage is what the gates before a step say: nil is open.
type passage struct {
	d    *decider
	wait *Wait
}

// when asks gates in order; the first that is shut counts.
func (d *decider) when(gates ...gate) passage {
	if d.preview {
		return passage{d: d}
	}
	for _, g := range append([]gate{d.seen}, gates...) {
		if wait := g(); wait != nil {
			return passage{d, d.asking(wait)}
		}
	}
	return passage{d: d}
}

// asking has nodes with BIRD asked while a gate is shut.
func (d *decider) asking(w *Wait) *Wait {
	w.Birds = d.only(func(n string) bool { return d.bird(n) && !d.dead[n] })
	return w
}

// then returns the step, or waits for its gates; an undo once they were shut for too long.
func (p passage) then(does string, writes func() ([]Write, error)) Decision {
	if p.wait != nil {
		return p.d.orUndo(does, p.wait)
	}
	w, err := writes()
	if err != nil {
		return byPerson(err.Error())
	}
	return p.d.step(does, w, func(g *Goal) { g.Since = p.d.Now })
}

// reached returns that the goal is reached. The gates of the last step are noted as open in the
// goal: from then on nobody is asked, and they have no limit.
func (d *decider) reached(what string, gates ...gate) Decision {
	if d.goal.Undo != "" {
		what += "; undone: " + d.goal.Undo
	}
	if d.goal.Since.IsZero() {
		return Decision{Done: what}
	}
	if p := d.when(gates...); p.wait != nil {
		return d.orUndo("done", p.wait)
	}
	return d.step("verify: "+what, nil, func(g *Goal) {
		g.Since, g.MeshOn, g.From = time.Time{}, time.Time{}, ""
	})
}

// maxCompared is below etcd's limit of 128 comparisons in a transaction.
const maxCompared = 120

func (d *decider) step(does string, writes []Write, change func(*Goal)) Decision {
	goal := d.goal
	change(&goal)
	compare := d.compare(writes)
	if len(compare) > maxCompared {
		return byPerson(fmt.Sprintf("there are %d reflectors, more than one transaction of etcd "+
			"can compare", len(d.reflectors())))
	}
	return Decision{Step: &Step{Does: does, Writes: writes, Compare: compare, Goal: goal}}
}

// orUndo waits for a gate up to its limit. After that a migration is undone; where the mesh is off,
// the newest reflector goes if it is the one that does not cover all nodes.
func (d *decider) orUndo(does string, wait *Wait) Decision {
	since := d.goal.Since
	if !d.GoalSeen.IsZero() {
		since = d.GoalSeen // by this host's clock; a person's may go otherwise
	}
	if d.Connected.After(since) {
		since = d.Connected
	}
	begun := d.objects[peerKey].Revision != 0
	if d.goal.Since.IsZero() || !begun || d.goal.Undo != "" || d.Now.Sub(since) < d.limit {
		return Decision{Wait: wait}
	}
	if d.meshIsOn() {
		reason := fmt.Sprintf("%s, for %s, before the step: %s", wait.What, d.limit, does)
		return d.step("undo: "+reason, nil, func(g *Goal) { g.Since, g.Undo = d.Now, reason })
	}
	// Another one takes the role, if it is this one alone that keeps the gate shut.
	if q := wait.Ask; q != nil && q.Enter != "" && slices.Equal(wait.Nodes, []string{q.Enter}) {
		reason := fmt.Sprintf("%s, for %s", wait.What, d.limit)
		return passage{d: d}.then(fmt.Sprintf("cordon Node(%s): %s", q.Enter, reason),
			d.disable(q.Enter, reason))
	}
	if wait.Ask == nil || wait.Ask.Cover == "" {
		return Decision{Wait: wait}
	}
	newest := wait.Ask.Cover
	if shut := d.withoutReflector(newest)(); shut != nil {
		return Decision{Wait: d.asking(shut)}
	}
	reason := fmt.Sprintf("it did not cover all nodes within %s", d.limit)
	return passage{d: d}.then(fmt.Sprintf("Node(%s) stops being a reflector: %s", newest, reason),
		d.disable(newest, reason))
}

// compare returns what a step depends on: the mesh, our BGPPeer, all reflectors, what it writes.
func (d *decider) compare(writes []Write) []Object {
	keys := []calico.Key{confKey, peerKey}
	for _, r := range d.reflectors() {
		keys = append(keys, nodeKey(r))
	}
	for _, w := range writes {
		if !slices.Contains(keys, w.Key) {
			keys = append(keys, w.Key)
		}
	}
	var all []Object
	for _, k := range keys {
		all = append(all, Object{Key: k, Revision: d.objects[k].Revision})
	}
	slices.SortFunc(all, func(a, b Object) int {
		return strings.Compare(a.Key.String(), b.Key.String())
	})
	return all
}

func put(k calico.Key, value []byte, err error) ([]Write, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.Resource(), err)
	}
	return []Write{{Key: k, Value: value}}, nil
}

func (d *decider) createPeer() ([]Write, error) {
	value, err := newPeer(peerName, outside(d.groups()), labelled(d.Label),
		d.objects[confKey].Value, d.Now)
	return put(peerKey, value, err)
}

func (d *decider) deletePeer() ([]Write, error) { return []Write{{Key: peerKey}}, nil }

func (d *decider) turnMeshOff() ([]Write, error) {
	value, err := meshOff(d.objects[confKey].Value, d.Now)
	return put(confKey, value, err)
}

func (d *decider) turnMeshOn() ([]Write, error) {
	value, err := meshOn(d.objects[confKey].Value)
	return put(confKey, value, err)
}

func (d *decider) enable(node string) func() ([]Write, error) {
	return func() ([]Write, error) {
		k := nodeKey(node)
		value, err := setReflector(d.objects[k].Value, d.rules, d.nextTurn())
		return put(k, value, err)
	}
}

func (d *decider) nextTurn() int {
	ours := d.ours()
	if len(ours) == 0 {
		return 1
	}
	return d.turn(ours[len(ours)-1]) + 1
}

func (d *decider) disable(node, reason string) func() ([]Write, error) {
	return func() ([]Write, error) {
		k := nodeKey(node)
		value, err := unsetReflector(d.objects[k].Value, d.Label, reason)
		return put(k, value, err)
	}
}

// newest is the chosen reflector that we made one last; "" without one.
func (d *decider) newest(c Choice) string {
	for _, r := range slices.Backward(d.ours()) {
		if c.Has(r) {
			return r
		}
	}
	return ""
}
