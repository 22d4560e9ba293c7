package reflector

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// Adoption is what it takes to make the reflectors of a person the controller's. Its Writes change
// no session: they mark what is there, and create our BGPPeer beside those that it replaces. The
// controller takes the steps that may, such as the deletion of these.
type Adoption struct {
	// Reflectors become the controller's, in the order of their turns; BGPPeers are replaced.
	Reflectors []string `json:"reflectors"`
	BGPPeers   []string `json:"bgpPeers"`
	ClusterID  string   `json:"clusterID"` // of all reflectors afterwards
	// Changes say what Writes do, each naming its object.
	Changes []string `json:"changes"`
	// Obstacles are what cannot be taken over, and why. With one there are no Writes.
	Obstacles []string `json:"obstacles"`
	// Cost says what is lost when the cluster ID changes, to which a person must agree; "": it
	// stays.
	Cost string `json:"cost,omitempty"`

	Goal   Goal    `json:"-"` // whose rules have the cluster ID of the reflectors
	Writes []Write `json:"-"`
}

// NewAdoption says what it takes to adopt the reflectors of a person. The error says which fields
// of the goal's Config cannot be followed.
func NewAdoption(w *World, g Goal) (Adoption, error) {
	r, err := g.Config.parse()
	if err != nil {
		return Adoption{}, err
	}
	a := &adopter{World: w, rules: r, Adoption: Adoption{
		Reflectors: []string{}, BGPPeers: []string{}, Changes: []string{}, Obstacles: []string{},
		Goal: g,
	}}
	for _, step := range []func(){
		a.checkGoal, a.findReflectors, a.findPeers, a.write, a.checkSessions,
	} {
		if step(); len(a.Obstacles) > 0 {
			a.Writes, a.Changes = nil, []string{}
			break
		}
	}
	return a.Adoption, nil
}

// After is the World once an adoption is written, for a preview of what follows.
func (a Adoption) After(w *World) *World {
	after := w.after(a.Writes)
	after.obstacles = map[string][]string{} // a person's BGPPeers were among these
	return after
}

// adopter is an Adoption in the making.
type adopter struct {
	*World
	rules
	Adoption
}

func (a *adopter) obstacle(format string, args ...any) {
	a.Obstacles = append(a.Obstacles, fmt.Sprintf(format, args...))
}

// checkGoal: nothing else is under way, and everything can be read.
func (a *adopter) checkGoal() {
	if a.Topology != Single {
		a.obstacle("topology: the rules say %q, and only with %q can reflectors be adopted",
			a.Topology, Single)
		return
	}
	if a.Locked() {
		a.obstacle("ClusterInformation(default): datastoreReady is false")
	}
	switch to := a.Goal.target(); {
	case to != Observe && !a.Goal.Since.IsZero():
		a.obstacle("the controller is on its way to the goal %s: adopt before, or once it is "+
			"reached", to)
	case to == Mesh: // what becomes the controller's would leave its role at once
		a.Goal = Goal{Mode: Observe, Config: a.Goal.Config}
		a.Changes = append(a.Changes, "goal: observe instead of mesh")
	case to == Reflectors:
		a.Goal.Since = a.Now
	}
	for _, p := range a.snapshot.Problems {
		a.obstacle("%s", p)
	}
	if a.objects[peerKey].Revision != 0 && a.annotation(peerKey, roleNote) == "" {
		a.obstacle("BGPPeer(%s): it belongs to a person", peerName)
	}
}

// findReflectors takes the reflectors of a person, the oldest first. All must have one cluster ID,
// and that of the controller's if there are such.
func (a *adopter) findReflectors() {
	var theirs []*candidate
	for _, n := range a.reflectors() {
		if !a.isOurs(n) {
			theirs = append(theirs, a.candidate(n, a.rules, nil))
		}
	}
	if len(theirs) == 0 {
		a.obstacle("there is no reflector of a person: no other Node with a BGP address has " +
			"routeReflectorClusterID")
		return
	}
	slices.SortFunc(theirs, older)
	first := theirs[0].name
	id := a.snapshot.Nodes[first].RouteReflectorClusterID
	for _, c := range theirs {
		a.Reflectors = append(a.Reflectors, c.name)
		if other := a.snapshot.Nodes[c.name].RouteReflectorClusterID; other != id {
			a.obstacle("Node(%s) has the cluster ID %s and Node(%s) %s: the topology %s has one",
				first, id, c.name, other, a.Topology)
		}
	}
	for _, n := range a.names {
		if _, has := a.snapshot.Nodes[n].Labels[a.Label]; has && !a.isReflector(n) {
			a.obstacle("Node(%s) has the label %s, which marks reflectors, and is none", n, a.Label)
		}
	}
	parsed, err := netip.ParseAddr(id)
	switch ours := a.ours(); {
	case err != nil || !parsed.Is4():
		a.obstacle("Node(%s): the cluster ID %.64q is not a dotted quad", first, id)
	case parsed.IsUnspecified():
		a.Cost = a.costOfID(id)
	case len(ours) > 0 && id != a.rules.ClusterID:
		a.obstacle("Node(%s) has the cluster ID %s and Node(%s), the controller's, %s", first, id,
			ours[0], a.rules.ClusterID)
	default:
		a.rules.ClusterID = id
		if id != a.Goal.Config.ClusterID {
			a.Goal.Config.ClusterID = id
			a.Changes = append(a.Changes, "rules: clusterID "+id)
		}
	}
	a.Adoption.ClusterID = a.rules.ClusterID
}

// costOfID says what it costs to replace an ID that stands for the router ID. It names an obstacle
// where that would cut off the cluster.
func (a *adopter) costOfID(id string) string {
	text := fmt.Sprintf("The cluster ID %s becomes %s, at one reflector after the other.", id,
		a.rules.ClusterID)
	birds := a.only(func(n string) bool { return a.bird(n) && slices.Contains(a.Reflectors, n) })
	switch {
	case len(birds) == 0:
		return text + " An agent changes it in sessions that are up: nothing is lost."
	case len(a.reflectors()) == 1 && !a.meshIsOn():
		a.obstacle("Node(%s) is the only reflector and runs BIRD, which starts all its sessions "+
			"anew when its cluster ID changes: the cluster would have no routes for about 2 s. "+
			"Set up another reflector first", birds[0])
	}
	text += fmt.Sprintf(" BIRD starts all its sessions anew when its own changes: for about 2 s "+
		"all flows of workloads are lost at %s, one after the other.", some(birds, ", "))
	if len(a.reflectors()) > 1 {
		text += " It also starts the session with another reflector anew when that one's " +
			"changes: for about 2 s the flows between workloads of these two."
	}
	return text
}

// findPeers takes the BGPPeers of a person that give a reflector its sessions with Calico nodes:
// also those whose sessions another one gives as well.
func (a *adopter) findPeers() {
	s := Question{Mesh: true}.after(a.snapshot) // reflectors are in no mesh
	s.BGPPeers = maps.Clone(s.BGPPeers)
	delete(s.BGPPeers, peerName)
	for found := true; found; {
		found = false
		for _, name := range a.namesOf(a.sourcesOf(s)) {
			if s.BGPPeers[name].PeerIP != "" {
				a.obstacle("BGPPeer(%s) names the address of a node: only BGPPeers with a "+
					"peerSelector can be taken over", name)
			} else {
				a.BGPPeers = append(a.BGPPeers, name)
			}
			delete(s.BGPPeers, name)
			found = true
		}
	}
	slices.Sort(a.BGPPeers)
	slices.Sort(a.Obstacles)
}

// sourcesOf are what gives reflectors and nodes their sessions with each other.
func (a *adopter) sourcesOf(s *calico.Snapshot) map[string]bool {
	sources, planner := map[string]bool{}, bgp.NewPlanner(s)
	for _, n := range a.names {
		peers, _ := planner.Peers(n)
		for _, p := range peers {
			if p.CalicoNode != "" && (a.isReflector(n) || a.isReflector(p.CalicoNode)) {
				sources[p.Source] = true
			}
		}
	}
	return sources
}

// namesOf returns the names of the BGPPeers among sources.
func (a *adopter) namesOf(sources map[string]bool) (names []string) {
	for _, source := range slices.Sorted(maps.Keys(sources)) {
		if name, ok := strings.CutPrefix(source, "BGPPeer("); ok {
			names = append(names, strings.TrimSuffix(name, ")"))
		}
	}
	return names
}

// write fills in Writes and Changes.
func (a *adopter) write() {
	change := func(k calico.Key, what string, value []byte, err error) {
		if err != nil {
			a.obstacle("%s: %s", k.Resource(), err)
		}
		a.Writes = append(a.Writes, Write{k, value})
		a.Changes = append(a.Changes, k.Resource()+": "+what)
	}
	turn := 0
	if ours := a.ours(); len(ours) > 0 {
		turn = a.turn(ours[len(ours)-1])
	}
	for i, n := range a.Reflectors {
		k := nodeKey(n)
		what := fmt.Sprintf("label %s, annotation %s", a.Label, roleNote)
		e := edit{value: a.objects[k].Value}
		e.set("true", "metadata", "labels", a.Label)
		e.set(fmt.Sprint(turn+i+1), "metadata", "annotations", roleNote)
		if id := a.snapshot.Nodes[n].RouteReflectorClusterID; id != a.rules.ClusterID {
			e.set(id, "metadata", "annotations", adoptedNote)
			what += ", annotation " + adoptedNote + "; the controller changes the cluster ID"
		}
		change(k, what, e.value, e.err)
	}
	conf := a.objects[confKey].Value
	if !a.meshIsOn() && a.annotation(confKey, meshNote) == "" {
		var first []byte
		if len(a.BGPPeers) > 0 {
			first = a.objects[calico.Key{Kind: calico.KindBGPPeer, Name: a.BGPPeers[0]}].Value
		}
		var err error
		conf, err = noteMesh(conf, first)
		change(confKey, "annotation "+meshNote+", what the mesh comes back with", conf, err)
	}
	if a.objects[peerKey].Revision == 0 {
		value, err := newPeer(peerName, outside(nil), labelled(a.Label), conf, a.Now)
		change(peerKey, "created", value, err)
	}
	for _, name := range a.BGPPeers {
		k := calico.Key{Kind: calico.KindBGPPeer, Name: name}
		e := edit{value: a.objects[k].Value}
		e.set(peerDigest(a.snapshot.BGPPeers[name]), "metadata", "annotations", adoptedNote)
		change(k, "annotation "+adoptedNote+"; the controller deletes it, as BGPPeer("+peerName+
			") replaces it", e.value, e.err)
	}
	if n := len(a.Writes); n >= maxCompared { // beside the goal; the limit is that of operations
		a.obstacle("%d objects would change, more than one transaction of etcd can write: merge "+
			"BGPPeers", n)
	}
}

// checkSessions: with our BGPPeer alone every node has the sessions with the same settings, and
// each with every reflector.
func (a *adopter) checkSessions() {
	writes := slices.Clone(a.Writes)
	for _, name := range a.BGPPeers {
		writes = append(writes, Write{Key: calico.Key{Kind: calico.KindBGPPeer, Name: name}})
	}
	// Without the mesh, which stays as it is, and has too many sessions to be computed.
	before := bgp.NewPlanner(Question{Mesh: true}.after(a.snapshot))
	after := bgp.NewPlanner(Question{Mesh: true}.after(a.after(writes).snapshot))
	found := map[string]string{} // by what a person would look at: the first example is enough
	add := func(key, format string, args ...any) {
		if _, known := found[key]; !known {
			found[key] = fmt.Sprintf(format, args...)
		}
	}
	for _, n := range a.names {
		then := map[bgp.PeerID]bgp.Peer{}
		peers, _ := after.Peers(n)
		for _, p := range peers {
			if p.CalicoNode != "" {
				then[p.ID()] = p
			}
		}
		peers, _ = before.Peers(n)
		for _, p := range peers {
			t, stays := then[p.ID()]
			delete(then, p.ID())
			switch {
			case p.CalicoNode == "":
			case !stays:
				add(p.Source, "%s gives Node(%s) a session with Node(%s), which topology %s does "+
					"not have", p.Source, n, p.CalicoNode, a.Topology)
			case Resets(p, t):
				add(p.Source, "%s gives Node(%s) its session with Node(%s) by other settings "+
					"than the controller would: %s", p.Source, n, p.CalicoNode, differ(p, t))
			case p.Scope == bgp.ScopeGlobal && t.Scope != p.Scope && a.bird(n):
				add(p.Source, "%s has neither node nor nodeSelector: BIRD at Node(%s) would "+
					"start its sessions anew without it", p.Source, n)
			}
		}
		for _, t := range slices.SortedFunc(maps.Values(then), func(p, q bgp.Peer) int {
			return p.ID().Compare(q.ID())
		}) {
			add("session", "Node(%s) has no session with Node(%s): in topology %s every node has "+
				"one with each reflector", n, t.CalicoNode, a.Topology)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		a.Obstacles = append(a.Obstacles, found[key])
	}
}

// differ names what is set differently in two sessions between the same two nodes.
func differ(p, q bgp.Peer) string {
	var all []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"password", (p.Password == nil) == (q.Password == nil) &&
			(p.Password == nil || *p.Password == *q.Password)},
		{"maxRestartTime", p.RestartTime == q.RestartTime},
		{"keepaliveTime", p.KeepaliveTime == q.KeepaliveTime},
		{"ttlSecurity", p.TTLSecurity == q.TTLSecurity},
		{"filters", slices.Equal(p.Filters, q.Filters)},
		{"sourceAddress", p.LocalAddress == q.LocalAddress},
		{"nextHopMode", p.NextHop == q.NextHop},
		{"reachableBy", p.ReachableBy == q.ReachableBy},
	} {
		if !f.same {
			all = append(all, f.name)
		}
	}
	if len(all) == 0 {
		return "port or AS number"
	}
	return strings.Join(all, ", ")
}

// peerDigest identifies what a BGPPeer says.
func peerDigest(p calico.BGPPeer) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic("reflector: " + err.Error()) // it was decoded from JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// noteMesh notes what the mesh comes back with, where a person has turned it off: Calico's default,
// with the password and the restart time that the sessions have from a BGPPeer.
func noteMesh(conf, peer []byte) ([]byte, error) {
	var before meshBefore
	p := edit{value: peer}
	p.get(&before.Password, "spec", "password")
	p.get(&before.RestartTime, "spec", "maxRestartTime")
	text, _ := json.Marshal(before) // it was decoded from JSON
	c := edit{value: conf, err: p.err}
	c.set(string(text), "metadata", "annotations", meshNote)
	return c.value, c.err
}
