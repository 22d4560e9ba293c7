package reflectors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kube"
	"vpp-route-agent/internal/kubernetes"
)

// Objects of ours in the Kubernetes API, all in one namespace. Agents may write Leases, so goal and
// questions are in ConfigMaps, which they may not.
const (
	goalName     = "vpp-route-agent-reflectors"
	questionName = "vpp-route-agent-reflector-question"
	leaderName   = "vpp-route-agent-reflector-controller"
	// agentPrefix begins the names of the agents' Leases; the node's follows.
	agentPrefix = "node."
)

// Fields of the ConfigMap of the goal.
const (
	goalField     = "goal"
	revisionField = "revision" // of the goal: how often it was written
	agentsField   = "agents"
	stepField     = "step" // that is not done yet
)

// Annotations of Leases.
const (
	notePrefix   = "vpp-route-agent/"
	statusNote   = notePrefix + "status"
	answerPrefix = notePrefix + "answer." // the question's ID follows
	stateNote    = notePrefix + "state"
)

// clockSlack is by how much the clock of an agent may be ahead of ours where nothing but the time
// that it wrote says that it lives.
const clockSlack = 5 * time.Second

// kubeObjects are all objects that a controller decides by, and when that changed which it had.
type kubeObjects struct {
	resources map[calico.Key]reflector.Object
	config    kubeConfigMap
	leases    map[string]kubeLease // by name
	versions  map[string]uint64    // of all objects, by place
}

type kubeConfigMap struct {
	version string // "": there is none
	data    map[string]string
}

type kubeLease struct {
	notes   map[string]string // ours
	holder  string
	seconds int
	renewed string    // as its holder has it
	seen    time.Time // when it was renewed, by our clock; zero: nobody knows whether it is held
	changed int64     // when the status in notes was changed, as turns of our own clock
}

func newKubeObjects() *kubeObjects {
	return &kubeObjects{resources: map[calico.Key]reflector.Object{},
		leases: map[string]kubeLease{}, versions: map[string]uint64{}}
}

func (o *kubeObjects) clone() *kubeObjects {
	return &kubeObjects{maps.Clone(o.resources), o.config, maps.Clone(o.leases),
		maps.Clone(o.versions)}
}

// kubePlace is where an object is, for this package.
func kubePlace(plural, name string) string { return plural + "/" + name }

// kubeHead is what is read of every object.
type kubeHead struct {
	Metadata struct {
		Name            string            `json:"name"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Data map[string]string `json:"data"` // of a ConfigMap
}

// put takes an object in at a turn of our clock. It returns its name, and whether something that
// matters has changed; that a Lease was renewed does not.
func (o *kubeObjects) put(plural string, object []byte, turn int64, now time.Time) (name string,
	changed bool) {
	var head kubeHead
	if json.Unmarshal(object, &head) != nil || head.Metadata.Name == "" {
		return "", false
	}
	name = head.Metadata.Name
	version, _ := strconv.ParseUint(head.Metadata.ResourceVersion, 10, 64)
	o.versions[kubePlace(plural, name)] = version
	switch plural {
	case "configmaps":
		changed = o.config.version != head.Metadata.ResourceVersion
		o.config = kubeConfigMap{head.Metadata.ResourceVersion, head.Data}
	case "leases":
		changed = o.putLease(name, object, head.Metadata.Annotations, turn, now)
	default:
		changed = o.putResource(plural, object, int64(version))
	}
	return name, changed
}

// putResource: a resource without content that matters to sessions is no other one.
func (o *kubeObjects) putResource(plural string, object []byte, version int64) bool {
	key, value, err := kube.Resource(plural, object)
	if err != nil {
		value = object // a problem, which names it
	}
	was, is := o.resources[key]
	if is && bytes.Equal(was.Value, value) {
		return false
	}
	o.resources[key] = reflector.Object{Key: key, Value: value, Revision: max(version, 1)}
	return true
}

func (o *kubeObjects) putLease(name string, object []byte, notes map[string]string, turn int64,
	now time.Time) bool {
	var l kubernetes.Lease
	_ = json.Unmarshal(object, &l) // what cannot be read is held by nobody
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	is := kubeLease{notes: map[string]string{}, holder: text(l.Spec.Holder),
		renewed: text(l.Spec.Renewed), changed: turn}
	if l.Spec.Seconds != nil {
		is.seconds = *l.Spec.Seconds
	}
	for name, value := range notes {
		if strings.HasPrefix(name, notePrefix) {
			is.notes[name] = value
		}
	}
	was, known := o.leases[name]
	at := kubernetes.ParseRenewed(is.renewed)
	switch {
	case known && was.renewed == is.renewed:
		is.seen = was.seen
	case known:
		is.seen = now
	case !at.After(now.Add(clockSlack)): // at first its own clock must do, unless it is ahead
		is.seen = at
	}
	if known && was.notes[statusNote] == is.notes[statusNote] {
		is.changed = was.changed
	}
	o.leases[name] = is
	return !known || was.holder != is.holder || !maps.Equal(was.notes, is.notes)
}

// held reports whether a Lease is held now.
func (l kubeLease) held(now time.Time) bool {
	return l.holder != "" && now.Sub(l.seen) < time.Duration(l.seconds)*time.Second
}

// delete removes an object, and reports whether it was there.
func (o *kubeObjects) delete(plural, name string) bool {
	place := kubePlace(plural, name)
	_, was := o.versions[place]
	delete(o.versions, place)
	switch plural {
	case "configmaps":
		o.config = kubeConfigMap{}
	case "leases":
		delete(o.leases, name)
	default:
		for k := range o.resources {
			if k.Name == name && kube.Plural(k.Kind) == plural {
				delete(o.resources, k)
			}
		}
	}
	return was
}

// names are those of all objects of a kind.
func (o *kubeObjects) names(plural string) (all []string) {
	for place := range o.versions {
		if name, ok := strings.CutPrefix(place, plural+"/"); ok {
			all = append(all, name)
		}
	}
	return all
}

// alive are the nodes whose agents hold their Leases, sorted.
func (o *kubeObjects) alive(now time.Time) (nodes []string) {
	for name, l := range o.leases {
		if node, ok := strings.CutPrefix(name, agentPrefix); ok && l.held(now) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// reading is what a controller of a version understands of all, at a turn of our clock.
func (o *kubeObjects) reading(version string, turn int64, now time.Time) *reading {
	r := newReading(turn)
	for _, k := range slices.SortedFunc(maps.Keys(o.resources), func(a, b calico.Key) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	}) {
		r.add(o.resources[k])
	}
	o.config.read(r)
	for _, node := range o.alive(now) {
		l := o.leases[agentPrefix+node]
		for name, value := range l.notes {
			if id, ok := strings.CutPrefix(name, answerPrefix); ok {
				r.hear(reflector.AnswerKey(node, id), []byte(value), l.changed, version)
			} else if name == statusNote {
				r.hear(reflector.StatusKey(node), []byte(value), l.changed, version)
			}
		}
	}
	if l := o.leases[leaderName]; l.held(now) {
		s := decodeState([]byte(l.notes[stateNote]))
		if !strings.HasPrefix(l.holder, s.Name+"_") { // it is of the one that led before
			s = State{}
		}
		s.key, s.leased = leaderName, true
		r.states = append(r.states, s)
	}
	return r
}

// read: a goal that a person writes with kubectl has some revision, too.
func (c kubeConfigMap) read(r *reading) {
	r.config = c.version
	place := func(field string) string {
		return fmt.Sprintf("%s in ConfigMap(%s)", field, goalName)
	}
	if text := c.data[goalField]; text != "" {
		revision, _ := strconv.ParseInt(c.data[revisionField], 10, 64)
		r.takeGoal(place(goalField), []byte(text), max(revision, 1))
	}
	if text := c.data[agentsField]; text != "" {
		r.takeAgents(place(agentsField), []byte(text), 1)
	}
	if text := c.data[stepField]; text != "" {
		r.pending = &kubeStep{}
		if err := json.Unmarshal([]byte(text), r.pending); err != nil {
			r.pending, r.badGoal = nil, fmt.Errorf("%s cannot be read: %w", place(stepField), err)
		}
	}
}

// same reports whether there is now what a reading has of resources and goal.
func (o *kubeObjects) same(r *reading) bool {
	now := newReading(0)
	o.config.read(now)
	if now.goalRevision != r.goalRevision || !bytes.Equal(now.goal.Encode(), r.goal.Encode()) ||
		len(o.resources) != len(r.objects) {
		return false
	}
	return !slices.ContainsFunc(r.objects, func(was reflector.Object) bool {
		is, there := o.resources[was.Key]
		return !there || !bytes.Equal(is.Value, was.Value)
	})
}
