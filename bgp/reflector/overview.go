package reflector

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Overview is how a cluster stands, for people.
type Overview struct {
	MeshOn bool `json:"meshOn"`
	Nodes  int  `json:"nodes"` // with a BGP address
	// Agents is how many of them have an agent that the controller understands, Unseen are those
	// without one.
	Agents     int      `json:"agents"`
	Unseen     []string `json:"unseen"`
	Reflectors []Role   `json:"reflectors"`
	// Cordoned are the nodes that are kept from being reflectors, with the reason.
	Cordoned []Cordon `json:"cordoned"`
	// Problems are what is not as wanted: sessions, changes that agents have not applied, and
	// clients in a group that a person chose.
	Problems []string `json:"problems"`
}

// Role is a reflector, and how many of the agents that have a session with it have all its routes.
type Role struct {
	Node     string `json:"node"`
	Zone     string `json:"zone"`
	Person   bool   `json:"person"` // a person made it a reflector
	Sessions int    `json:"sessions"`
	Complete int    `json:"complete"` // of these sessions are up, with all routes
	Unfit    string `json:"unfit,omitempty"`
}

// Cordon is a node that is kept from the role.
type Cordon struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// NewOverview says how a cluster stands. The error says which fields of Config cannot be followed.
func NewOverview(w *World, c Config) (Overview, error) {
	r, err := c.parse()
	if err != nil {
		return Overview{}, err
	}
	seen := w.only(w.known)
	o := Overview{
		MeshOn: w.meshIsOn(), Nodes: len(w.names), Agents: len(seen), Reflectors: []Role{},
		Unseen:   w.only(func(n string) bool { return !w.known(n) }),
		Cordoned: []Cordon{}, Problems: w.problems(seen),
	}
	misgrouped := w.misgrouped()
	for _, n := range slices.Sorted(maps.Keys(misgrouped)) {
		o.Problems = append(o.Problems, misgrouped[n])
	}
	roles, dead := map[string]*Role{}, w.deadNodes(r)
	choice := choose(w, r, dead)
	for _, n := range w.reflectors() {
		role := &Role{
			Node: n, Zone: w.snapshot.Nodes[n].Labels[r.ZoneLabel], Person: !w.isOurs(n),
			Unfit: w.unfit(n, r, dead),
		}
		if role.Unfit != "" && !role.Person && choice.Has(n) {
			role.Unfit += "; " + keptText
		}
		roles[n] = role
	}
	for _, n := range seen {
		for _, s := range w.reflectorSessions(n) {
			if role := roles[s.Node]; role != nil {
				role.Sessions++
				if s.complete() {
					role.Complete++
				}
			}
		}
	}
	for _, n := range w.reflectors() {
		o.Reflectors = append(o.Reflectors, *roles[n])
	}
	slices.SortStableFunc(o.Reflectors, func(a, b Role) int {
		return cmp.Compare(w.turn(a.Node), w.turn(b.Node))
	})
	for _, n := range w.names {
		if note := w.annotation(nodeKey(n), cordonNote); note != "" {
			o.Cordoned = append(o.Cordoned, Cordon{n, note})
		}
	}
	return o, nil
}

// reflectorSessions are those that a node has with reflectors: what its status lists, and the rest
// as planned. That is complete if the last one listed is, and if the node has applied the plan.
func (w *World) reflectorSessions(node string) []Session {
	s := w.Agents[node].Status
	if s.ReflectorsMore == 0 {
		return s.Reflectors
	}
	type session struct {
		node string
		ipv6 bool
	}
	listed := map[session]bool{}
	for _, r := range s.Reflectors {
		listed[session{r.Node, r.IPv6}] = true
	}
	last := len(s.Reflectors) - 1
	complete := last >= 0 && s.Reflectors[last].complete() && s.Digest == w.digest(node)
	all := slices.Clone(s.Reflectors)
	for _, p := range w.peersOf(node) {
		if ipv6 := p.Address.Is6(); p.Reflector && !listed[session{p.CalicoNode, ipv6}] {
			all = append(all, Session{p.CalicoNode, ipv6, complete, complete})
		}
	}
	return all
}

// problems are those of agents that the controller understands.
func (w *World) problems(seen []string) []string {
	all := []string{}
	named := map[[2]string]bool{}
	for _, n := range seen {
		s := w.Agents[n].Status
		if s.Digest != w.digest(n) {
			all = append(all, fmt.Sprintf("%s has not applied the last change", n))
		}
		for _, d := range s.Down {
			pair := [2]string{min(n, d.Node), max(n, d.Node)}
			if !named[pair] {
				all = append(all, fmt.Sprintf("the session between %s and %s has been down "+
					"since %s", pair[0], pair[1], d.Since.UTC().Format(time.RFC3339)))
			}
			named[pair] = true
		}
		if more := s.Wanted - s.Up - len(s.Down); more > 0 {
			all = append(all, fmt.Sprintf("%d more sessions of %s are down", more, n))
		}
	}
	return all
}

// Begun reports whether a migration has changed something that the way back must undo.
func (w *World) Begun() bool {
	return w.objects[peerKey].Revision != 0 || len(w.ours()) > 0
}

// Locked reports whether Calico's data may not be changed now.
func (w *World) Locked() bool { return w.snapshot.DatastoreNotReady }

// Node returns the stored Node of a name; false: there is none.
func (w *World) Node(name string) (Object, bool) {
	o, ok := w.objects[nodeKey(name)]
	return o, ok
}

// SetCordon keeps a node from being a reflector, for a reason; with none it ends that. It returns
// the Node to be stored.
func SetCordon(node []byte, reason string) ([]byte, error) {
	e := edit{value: node}
	if reason == "" {
		e.remove("metadata", "annotations", cordonNote)
	} else {
		e.set(reason, "metadata", "annotations", cordonNote)
	}
	return e.value, e.err
}

// Check says which fields cannot be followed.
func (c Config) Check() error {
	_, err := c.parse()
	return err
}

// SameRoles reports whether reflectors made by c are those of o, too.
func (c Config) SameRoles(o Config) bool {
	a, _ := c.parse()
	b, _ := o.parse()
	return a.Topology == b.Topology && a.Label == b.Label && a.ClusterID == b.ClusterID
}
