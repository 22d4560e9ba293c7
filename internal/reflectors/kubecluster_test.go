package reflectors

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kube"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
	"vpp-route-agent/internal/yamldoc"
)

const (
	testGroup     = "crd.projectcalico.org/v1"
	testNamespace = "vpp-route-agent"
	leaseKind     = "leases.coordination.k8s.io"
	// agentTTL is how long agents live that are killed.
	agentTTL = 3 * time.Second
)

// kubeKinds are Calico's kinds, as calicoctl names them.
var kubeKinds = map[string]string{"BGPPeer": "bgppeers", "BGPConfiguration": "bgpconfigurations",
	"ClusterInformation": "clusterinformations", "Node": "nodes"}

func kubeKind(plural string) string {
	if plural == "nodes" {
		return plural
	}
	return plural + ".crd.projectcalico.org"
}

// apiObjects writes and reads as administrators do.
type apiObjects interface {
	Install(groupVersion string, plurals ...string)
	PutObject(kind string, object []byte)
	DeleteObject(kind, key string)
	Object(kind, key string) json.RawMessage
	Objects(kind string) []json.RawMessage
}

// kubeCluster is Calico's data in a stand-in for the API server, or in a real one behind it.
type kubeCluster struct {
	*kubetest.Server // that clients reach
	t                *testing.T
	objects          apiObjects
	real             *kubetest.Real // nil: the stand-in is all there is

	mu   sync.Mutex // guards what follows
	told map[string]string
	at   map[string]time.Time // when an agent renewed its Lease
}

func (k *kubeCluster) PutObject(kind string, object []byte) { k.objects.PutObject(kind, object) }

func (k *kubeCluster) DeleteObject(kind, key string) { k.objects.DeleteObject(kind, key) }

func (k *kubeCluster) Object(kind, key string) json.RawMessage {
	return k.objects.Object(kind, key)
}

func (k *kubeCluster) Objects(kind string) []json.RawMessage { return k.objects.Objects(kind) }

func newKubeCluster(t *testing.T, nodes ...string) *cluster {
	t.Helper()
	t.Attr("part", "Kubernetes API, a stand-in")
	s := kubetest.NewServer(t)
	return clusterOn(t, &kubeCluster{Server: s, objects: s}, nodes...)
}

func clusterOn(t *testing.T, k *kubeCluster, nodes ...string) *cluster {
	t.Helper()
	k.t, k.told, k.at = t, map[string]string{}, map[string]time.Time{}
	k.objects.Install(testGroup, calicoPlurals...)
	c := &cluster{t: t, kube: k, nodes: nodes, said: map[string]string{}, away: map[string]bool{}}
	c.addNodes()
	return c
}

var calicoPlurals = []string{"bgppeers", "bgpconfigurations", "clusterinformations",
	"caliconodestatuses"}

// config is that of a person.
func (k *kubeCluster) config() *KubernetesConfig { return k.configFor(kubetest.AdminToken) }

// controllerConfig is that of a controller.
func (k *kubeCluster) controllerConfig() *KubernetesConfig {
	return k.configFor(kubetest.ControllerToken)
}

// agentConfig is that of an agent.
func (k *kubeCluster) agentConfig() *KubernetesConfig { return k.configFor(kubetest.Token) }

func (k *kubeCluster) configFor(token string) *KubernetesConfig {
	k.t.Helper()
	if k.real == nil {
		token = kubetest.Token
	}
	client, err := kubernetes.NewClientFor(kubernetes.ClientConfig{Server: k.URL(), Token: token,
		Insecure: true})
	must(k.t, err)
	k.t.Cleanup(client.Close)
	return &KubernetesConfig{Client: client, Namespace: testNamespace}
}

func (k *kubeCluster) addNode(name, address string) {
	k.PutObject("nodes", []byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":
	 {"name":%q,"creationTimestamp":"2026-11-01T10:00:00Z","annotations":
	 {"projectcalico.org/IPv4Address":%q}}}`, name, netip.MustParsePrefix(address))))
}

func (k *kubeCluster) apply(text string) {
	k.t.Helper()
	object, err := yamldoc.One([]byte(text))
	must(k.t, err)
	var head struct{ Kind string }
	must(k.t, json.Unmarshal(object, &head))
	k.PutObject(kubeKind(kubeKinds[head.Kind]), object)
}

// snapshot is what an agent has read.
func (k *kubeCluster) snapshot(node string) *calico.Snapshot {
	store := calico.NewStore(node)
	for _, plural := range kubeKinds {
		for _, object := range k.Objects(kubeKind(plural)) {
			o, err := kube.Read(plural, object)
			must(k.t, err)
			o.Put(store, kube.Options{})
		}
	}
	return store.Snapshot(0)
}

func (k *kubeCluster) asked() map[string]etcd.Request {
	var m struct{ Data map[string]string }
	var q kubeQuestion
	_ = json.Unmarshal(k.Object("configmaps", testNamespace+"/"+questionName), &m)
	if json.Unmarshal([]byte(m.Data[questionField]), &q) != nil {
		return nil
	}
	return map[string]etcd.Request{q.ID: {Value: q.Question, Revision: q.Revision}}
}

// say has agents keep their Leases with what they say.
func (k *kubeCluster) say(now map[string]string) {
	notes := map[string]map[string]string{}
	for key, value := range now {
		node, name, _ := strings.Cut(strings.TrimPrefix(key, reflector.NodesPrefix), "/")
		if notes[node] == nil {
			notes[node] = map[string]string{}
		}
		if id, ok := strings.CutPrefix(name, "answers/"); ok {
			name = "answer." + id
		}
		notes[node]["vpp-route-agent/"+name] = value
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for node, all := range notes {
		text, _ := json.Marshal(all)
		if k.told[node] == string(text) && time.Since(k.at[node]) < agentTTL/6 {
			continue
		}
		k.told[node], k.at[node] = string(text), time.Now()
		object, _ := json.Marshal(map[string]any{
			"metadata": map[string]any{"namespace": testNamespace, "name": agentPrefix + node,
				"annotations": all},
			"spec": kubernetes.HeldBy(node, agentTTL, time.Now()),
		})
		k.PutObject(leaseKind, object)
	}
}

func (k *kubeCluster) putGoal(text string) {
	object, _ := json.Marshal(map[string]any{
		"metadata": map[string]any{"namespace": testNamespace, "name": goalName},
		"data":     map[string]string{goalField: text}})
	k.PutObject("configmaps", object)
}

// takeLead is what another controller does after a time in which the one that leads stood still. It
// ends a second later.
func (k *kubeCluster) takeLead() {
	object, _ := json.Marshal(map[string]any{
		"metadata": map[string]any{"namespace": testNamespace, "name": leaderName},
		"spec":     kubernetes.HeldBy("x_1", time.Second, time.Now())})
	k.PutObject(leaseKind, object)
	// by its own clock it may lead a while longer
	before := k.Asked("get", leaseKind)
	await(k.t, "it to look who leads", func() bool { return k.Asked("get", leaseKind) > before })
}

// done are the writes to Calico's resources.
func (k *kubeCluster) done() (all []string) {
	for _, w := range k.Wrote() {
		verb, rest, _ := strings.Cut(w, " ")
		kind, name, _ := strings.Cut(rest, " ")
		did := "PUT"
		if verb == "delete" {
			did = "DELETE"
		}
		for title, plural := range kubeKinds {
			if kubeKind(plural) == kind {
				all = append(all, fmt.Sprintf("%s %s(%s)", did, title, name))
			}
		}
	}
	return all
}

func (k *kubeCluster) mark() int64 { return int64(len(k.done())) }

func (k *kubeCluster) writes(since int64) []string { return k.done()[since:] }
