package reflectors

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/testlog"
)

// rule is one of a Role or ClusterRole.
type rule struct {
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames,omitempty"`
	Verbs         []string `json:"verbs"`
}

// apart are the same as rules of one group, resource, verb and name each.
func (r rule) apart() (all []rule) {
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				one := rule{APIGroups: []string{group}, Resources: []string{resource},
					Verbs: []string{verb}}
				if r.ResourceNames == nil {
					all = append(all, one)
				}
				for _, name := range r.ResourceNames {
					one.ResourceNames = []string{name}
					all = append(all, one)
				}
			}
		}
	}
	return all
}

// rights are what a rule allows, where Calico's group is v1: "list nodes", "get configmaps/name".
func (r rule) rights() (all []string) {
	for _, one := range r.apart() {
		group := one.APIGroups[0]
		if group == "projectcalico.org" {
			continue
		}
		right := strings.TrimSuffix(one.Verbs[0]+" "+one.Resources[0]+"."+group, ".")
		if one.ResourceNames != nil {
			right += "/" + one.ResourceNames[0]
		}
		all = append(all, right)
	}
	return all
}

// rightsOf are those of a Role or ClusterRole in a manifest.
func rightsOf(t *testing.T, file, kind, name string) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + file)
	must(t, err)
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var r struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []rule
		}
		must(t, yaml.Unmarshal([]byte(doc), &r))
		if r.Kind != kind || r.Metadata.Name != name {
			continue
		}
		for _, rule := range r.Rules {
			all = append(all, rule.rights()...)
		}
	}
	if all == nil {
		t.Fatalf("%s has no %s(%s)", file, kind, name)
	}
	return all
}

const controllerRBAC = "kubernetes-datastore/reflector-controller/rbac.yaml"

// controllerKubeRights are those of the controllers' account.
func controllerKubeRights(t *testing.T) []string {
	return slices.Concat(
		rightsOf(t, "kubernetes/reflector-controller/rbac.yaml", "ClusterRole",
			"vpp-route-agent-reflector-controller"),
		rightsOf(t, controllerRBAC, "ClusterRole", "vpp-route-agent-reflector-datastore"),
		rightsOf(t, controllerRBAC, "Role", "vpp-route-agent-reflector-controller"))
}

// areUsed reports a right that nobody has made use of.
func (k *kubeCluster) areUsed(rights []string) {
	k.t.Helper()
	for _, right := range rights {
		verb, kind, _ := strings.Cut(right, " ")
		kind, _, _ = strings.Cut(kind, "/")
		if k.Asked(verb, kind) == 0 {
			k.t.Errorf("nothing needs the right %s", right)
		}
	}
}

// The rights of the controller's manifest are enough, there and back, also beside BIRD, and none is
// too much.
func TestLeastRightsOfAControllerInKubernetes(t *testing.T) {
	t.Parallel()
	c := newKubeCluster(t, "n1", "n2", "n3", "n4", "n5")
	c.addNode("bird-1", "10.0.8.1/24")
	rights := controllerKubeRights(t)
	c.kube.Allow(rights)
	c.start("a", func(it *Controller) { it.birdPatience = time.Second })
	unseen := func(mode reflector.Mode) func(*reflector.Goal) {
		return func(g *reflector.Goal) {
			g.Mode, g.AcceptLoss, g.AcceptUnseen = mode, true, true
			g.Config.Topology, g.Config.Min = reflector.Quorum, 4 // groups are patched
		}
	}
	c.aim(unseen(reflector.Reflectors))
	c.reaches("reflectors n1, n2, n3, n4")
	c.aim(unseen(reflector.Mesh))
	c.reaches("mesh")
	c.kube.areUsed(rights)
}

// The right that the manifest gives agents is enough for a status and answers, and none is too
// much.
func TestLeastRightsOfAnAgentInKubernetes(t *testing.T) {
	t.Parallel()
	c := newKubeCluster(t, "n1")
	c.silence()
	status1 := rightsOf(t, controllerRBAC, "Role", "vpp-route-agent-status")
	c.kube.Allow(append(rightsOf(t, "kubernetes-datastore/rbac.yaml", "ClusterRole",
		"vpp-route-agent"), status1...))
	p, _ := c.kube.publish("n1", testlog.New(t), func(_ context.Context, q reflector.Question) (
		reflector.Answer, error) {
		return reflector.Answer{Format: reflector.StatusFormat, Version: "v1", Question: q}, nil
	})
	p.Report(status(1))
	question, _ := json.Marshal(kubeQuestion{"q", 7, reflector.Question{Mesh: true}.Encode()})
	object, _ := json.Marshal(map[string]any{
		"metadata": map[string]any{"namespace": testNamespace, "name": questionName},
		"data":     map[string]string{questionField: string(question)}})
	c.kube.PutObject("configmaps", object)
	await(t, "the answer", func() bool {
		lease := string(c.kube.Object(leaseKind, testNamespace+"/node.n1"))
		return strings.Contains(lease, "vpp-route-agent/answer.q") &&
			strings.Contains(lease, statusNote)
	})
	if s := p.Status(); !s.Written || s.Problem != "" {
		t.Errorf("%+v", s)
	}
	c.kube.areUsed(status1)
}

// Any one right that is missing is named, when it is needed.
func withoutOneRight(t *testing.T, start startCluster) {
	for _, right := range controllerKubeRights(t) {
		t.Run(right, func(t *testing.T) {
			nodes, rules := []string{"n1", "n2"}, reflector.Config{}
			if strings.HasPrefix(right, "patch bgppeers") { // groups are
				nodes = []string{"n1", "n2", "n3", "n4", "n5"}
				rules.Topology, rules.Min = reflector.Quorum, 4
			}
			c := start(t, nodes...)
			if strings.Contains(right, "caliconodestatuses") {
				c.addNode("bird-1", "10.0.8.1/24")
				defer c.kube.answerBirds("bird-1")()
			}
			grant(t, c.kube.real, right)
			it, stop := c.start("a", func(it *Controller) {
				it.store.(*kubeStore).readTime = time.Second
			})
			defer stop() // without rights nothing can be done any more
			defer func() {
				if t.Failed() {
					t.Logf("the controller: %+v", it.Status())
				}
			}()
			wanted, _, _ := strings.Cut(right, "/")
			named := func() bool {
				p := it.Status().Problem
				return strings.Contains(p, wanted) && strings.Contains(p, "403 Forbidden")
			}
			for _, mode := range []reflector.Mode{reflector.Reflectors, reflector.Mesh} {
				c.aim(func(g *reflector.Goal) {
					g.Mode, g.AcceptLoss = mode, true
					g.Config.Topology, g.Config.Min = rules.Topology, rules.Min
				})
				await(t, "the right to be named", func() bool {
					s := it.Status()
					return named() || mode == reflector.Reflectors && s.Leads &&
						strings.HasPrefix(s.State.Done, "reflectors ")
				})
				if named() {
					return
				}
			}
		})
	}
}
