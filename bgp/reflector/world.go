package reflector

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/selector"
)

// Object is a resource as it is stored, and etcd's revision of its last change.
type Object struct {
	Key      calico.Key
	Value    []byte
	Revision int64
}

// World is everything that a decision is based on. Read takes the resources, as of one revision of
// etcd; the caller sets the exported fields. One goroutine at a time may use it.
type World struct {
	Now time.Time
	// Connected is when the present connection to etcd began.
	Connected time.Time
	// GoalSeen is when this controller first saw the goal as it is; zero: Goal.Since.
	GoalSeen time.Time
	// Version is the controller's own. It does not rely on an agent of another version.
	Version string
	Agents  map[string]Agent // by node; a node that runs BIRD has none
	Birds   map[string]Bird  // by node, of those without an agent that were asked
	// Kubernetes has the Nodes of Kubernetes, by name of the Calico node; nil: not consulted. See
	// SetKubernetes.
	Kubernetes map[string]KubernetesNode

	snapshot *calico.Snapshot
	objects  map[calico.Key]Object
	metadata map[calico.Key]metadata
	names    []string // of the Nodes with a BGP address, sorted
	preview  bool     // every gate counts as open, see Preview

	// computed on demand
	planner   *bgp.Planner
	addresses map[netip.Addr]string // of the Nodes
	peers     map[string][]bgp.Peer // by node
	digests   map[string]string     // by node
	resources []byte
	obstacles map[string][]string // by the names of the chosen
	// what questions suppose, and what nodes with BIRD would keep
	supposed map[Question]*supposed
	left     map[asksBird]Left
}

// metadata is the part of an object's metadata that decisions need.
type metadata struct {
	Created     string            `json:"creationTimestamp"`
	Annotations map[string]string `json:"annotations"`

	kubernetes string // the name of a Node in Kubernetes; "": it is not known as one of it
}

// StatusFormat is the version of Status that this package understands.
const StatusFormat = 1

// Agent is what the controller knows about a node's agent.
type Agent struct {
	// Status is the latest; Lost is when its lease ended, zero: it has not.
	Status Status
	Lost   time.Time
	// Answers are those of the last minute, oldest first. A gate needs two to the same question.
	Answers []Answer
}

// Status is what an agent publishes under a lease.
type Status struct {
	Format  int    `json:"format"`
	Version string `json:"version"`
	Digest  string `json:"digest"` // of what is applied, see Digest
	// Wanted and Up count the sessions with Calico nodes. Down lists those that are not up, those
	// with reflectors first. Lists without room are cut; the rest is counted.
	Wanted   int    `json:"wanted"`
	Up       int    `json:"up"`
	Down     []Down `json:"down,omitempty"`
	DownMore int    `json:"downMore,omitempty"`
	// DownBits has a bit for each session with a Calico node in the order of bgp.Peers, the lowest
	// of each byte first: it is not up. DownMoreSince is when the last of those that Down does not
	// list was lost. Both are only there where Down was cut.
	DownBits       []byte    `json:"downBits,omitempty"`
	DownMoreSince  time.Time `json:"downMoreSince,omitzero"`
	Reflectors     []Session `json:"reflectors,omitempty"`
	ReflectorsMore int       `json:"reflectorsMore,omitempty"`
	Draining       bool      `json:"draining,omitempty"`
	Dataplane      string    `json:"dataplane"` // "vpp", "kernel", or "none": no workloads
	// Drifted and Refused count the routes that the data plane does not have as it acknowledged
	// them, and that it refuses.
	Drifted int `json:"drifted,omitempty"`
	Refused int `json:"refused,omitempty"`
}

// Down is a session with a Calico node that is not up.
type Down struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
}

// SetDown notes in DownBits that session i is not up.
func (s *Status) SetDown(i int) {
	for len(s.DownBits) <= i/8 {
		s.DownBits = append(s.DownBits, 0)
	}
	s.DownBits[i/8] |= 1 << (i % 8)
}

func (s *Status) isDown(i int) bool {
	return i/8 < len(s.DownBits) && s.DownBits[i/8]>>(i%8)&1 != 0
}

// Session is one with a reflector, which has sent all that it has when its End-of-RIB has come.
type Session struct {
	Node     string `json:"node"`
	IPv6     bool   `json:"ipv6,omitempty"`
	Up       bool   `json:"up"`
	EndOfRIB bool   `json:"endOfRIB"`
}

func (s Session) complete() bool { return s.Up && s.EndOfRIB }

// Read returns the World of Calico's Nodes, BGPPeers, BGPConfigurations and ClusterInformation.
func Read(objects []Object) *World {
	w := &World{
		Agents: map[string]Agent{}, objects: map[calico.Key]Object{},
		metadata: map[calico.Key]metadata{}, peers: map[string][]bgp.Peer{},
		digests: map[string]string{}, obstacles: map[string][]string{},
		supposed: map[Question]*supposed{}, left: map[asksBird]Left{},
	}
	store := calico.NewStore("")
	for _, o := range objects {
		w.objects[o.Key] = o
		store.Put(o.Key.String(), o.Value)
		var stored struct {
			Metadata metadata `json:"metadata"`
			Spec     struct {
				OrchRefs []struct{ NodeName, Orchestrator string } `json:"orchRefs"`
			} `json:"spec"`
		}
		_ = json.Unmarshal(o.Value, &stored) // what cannot be read is a problem of the snapshot
		for _, ref := range stored.Spec.OrchRefs {
			if ref.Orchestrator == "k8s" {
				stored.Metadata.kubernetes = ref.NodeName
			}
		}
		w.metadata[o.Key] = stored.Metadata
	}
	w.snapshot = store.Snapshot(0)
	for name, n := range w.snapshot.Nodes {
		if n.IPv4.IsValid() || n.IPv6.IsValid() {
			w.names = append(w.names, name)
		}
	}
	slices.Sort(w.names)
	return w
}

func nodeKey(name string) calico.Key { return calico.Key{Kind: calico.KindNode, Name: name} }

// known reports whether the controller understands the node's agent. It understands none of another
// version, so that a rolling upgrade is no reason to act.
func (w *World) known(node string) bool {
	a, ok := w.Agents[node]
	return ok && a.Lost.IsZero() && w.understood(a)
}

func (w *World) understood(a Agent) bool {
	return a.Status.Format == StatusFormat && a.Status.Version == w.Version
}

// bird reports a node for which no agent has ever published a status.
func (w *World) bird(node string) bool {
	_, ok := w.Agents[node]
	return !ok
}

// idle reports a node whose agent forwards nothing, so that it has no flows to lose.
func (w *World) idle(node string) bool {
	return w.known(node) && w.Agents[node].Status.Dataplane == "none"
}

// isReflector reports a node with a cluster ID, whoever set it.
func (w *World) isReflector(node string) bool {
	return w.snapshot.Nodes[node].RouteReflectorClusterID != ""
}

// isOurs reports a node that the controller made a reflector.
func (w *World) isOurs(node string) bool { return w.annotation(nodeKey(node), roleNote) != "" }

func (w *World) annotation(k calico.Key, name string) string {
	return w.metadata[k].Annotations[name]
}

// reflectors returns all nodes with a BGP address that are reflectors, sorted.
func (w *World) reflectors() []string { return w.only(w.isReflector) }

// only returns the nodes with a BGP address that have a property, sorted.
func (w *World) only(has func(node string) bool) []string {
	all := append([]string{}, w.names...) // not nil: in JSON it is a list
	return slices.DeleteFunc(all, func(n string) bool { return !has(n) })
}

// ours returns the nodes that the controller made reflectors in the order in which it did, also
// those that have lost their BGP address since.
func (w *World) ours() []string {
	all := slices.DeleteFunc(slices.Sorted(maps.Keys(w.snapshot.Nodes)), func(n string) bool {
		return !w.isOurs(n)
	})
	slices.SortStableFunc(all, func(a, b string) int { return w.turn(a) - w.turn(b) })
	return all
}

// turn is the place of a node among those that the controller made reflectors, from 1. The
// annotation holds it rather than a time: clocks differ, and two steps may fall into one second.
func (w *World) turn(node string) int {
	n, _ := strconv.Atoi(w.annotation(nodeKey(node), roleNote)) // edited says when it is no number
	return n
}

func (w *World) meshIsOn() bool {
	on := w.snapshot.BGPConfigurations["default"].NodeToNodeMeshEnabled
	return on == nil || *on
}

// Digest identifies the peers and roles of node self and the resources that they follow from. The
// resources count because a BGPPeer that gives a node no session yet may do so once a Node changes;
// what BGPPeers select, because one may give a session that another one gives already.
func Digest(self string, s *calico.Snapshot) string {
	peers, _ := bgp.Peers(self, s)
	return digest(peers, s.Nodes[self], resources(s))
}

// Digests are those of all nodes of a snapshot.
func Digests(s *calico.Snapshot) map[string]string {
	planner, all, out := bgp.NewPlanner(s), resources(s), map[string]string{}
	var peers []bgp.Peer
	for name, n := range s.Nodes {
		peers, _ = planner.AppendPeers(peers[:0], name)
		out[name] = digest(peers, n, all)
	}
	return out
}

func digest(peers []bgp.Peer, self calico.Node, resources []byte) string {
	text := append(slices.Clone(resources), self.RouteReflectorClusterID...)
	for _, p := range peers {
		// A controller does not read workloads, and no session with one changes a step.
		if p.Scope == bgp.ScopeLocalWorkload {
			continue
		}
		text = append(p.Address.AppendTo(append(text, 0)), 0)
		text = binary.BigEndian.AppendUint16(text, p.Port)
		text = binary.BigEndian.AppendUint32(text, p.RemoteAS)
		text = append(append(append(text, p.Scope...), 0), p.Source...)
		for _, role := range []bool{p.Client, p.Reflector} {
			text = strconv.AppendBool(text, role)
		}
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// resources identifies what peers follow from, of Nodes the names of those that BGPPeers select.
func resources(s *calico.Snapshot) []byte {
	nodes := slices.Sorted(maps.Keys(s.Nodes))
	selected := map[string][]string{} // by selector
	for _, p := range s.BGPPeers {
		for _, text := range []string{p.NodeSelector, p.PeerSelector} {
			by, err := selector.Parse(text)
			if _, known := selected[text]; known || text == "" || err != nil {
				continue
			}
			selected[text] = slices.DeleteFunc(slices.Clone(nodes), func(n string) bool {
				return !by.Matches(s.Nodes[n].Labels)
			})
		}
	}
	text, err := json.Marshal([]any{s.BGPPeers, s.BGPConfigurations, selected})
	if err != nil {
		panic(fmt.Sprintf("reflector: resources cannot be marshalled: %v", err))
	}
	sum := sha256.Sum256(text)
	return sum[:]
}

// digest is what a node's agent publishes once it has applied the resources of this World.
func (w *World) digest(node string) string {
	if w.resources == nil {
		w.resources = resources(w.snapshot)
	}
	if w.digests[node] == "" {
		w.digests[node] = digest(w.peersOf(node), w.snapshot.Nodes[node], w.resources)
	}
	return w.digests[node]
}

func (w *World) peersOf(node string) []bgp.Peer {
	peers, ok := w.peers[node]
	if !ok {
		if w.planner == nil {
			w.planner = bgp.NewPlanner(w.snapshot)
		}
		peers, _ = w.planner.Peers(node)
		w.peers[node] = peers
	}
	return peers
}

// with returns a copy of the snapshot in which one Node is changed.
func with(s *calico.Snapshot, name string, change func(*calico.Node)) *calico.Snapshot {
	after := *s
	after.Nodes = maps.Clone(s.Nodes)
	n := s.Nodes[name]
	n.Labels = maps.Clone(n.Labels)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	change(&n)
	after.Nodes[name] = n
	return &after
}
