package reflectors

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

// TestAPIServer runs on build/kube-apiserver, with RBAC and the rights of the manifests, what of
// the tests here a real API server can be made to do. All are on one server, one after the other.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	program := kubetest.FindReal()
	if program == "" {
		t.Skip("there is no build/kube-apiserver: make kube-apiserver builds it")
	}
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{})
	must(t, err)
	t.Cleanup(e.Close)
	s := kubetest.NewReal(t, program, e.Endpoint())
	for _, c := range []struct {
		name string
		test func(*testing.T, apiServer)
	}{
		{"Kubernetes moves a role", kubernetesMovesARole},
		{"Kubernetes without Nodes", kubernetesWithoutNodes},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.Reset("nodes")
			s.Allow([]string{"list nodes", "watch nodes"})
			c.test(t, s)
		})
	}
	var one sync.Mutex
	start := func(t *testing.T, nodes ...string) *cluster {
		t.Helper()
		one.Lock()
		t.Cleanup(one.Unlock)
		return newRealCluster(t, s, nodes...)
	}
	for _, c := range []struct {
		name string
		test func(*testing.T, startCluster)
	}{
		{"there and back", thereAndBackAgain},
		{"a step is not taken", aStepIsNotTaken},
		{"of two controllers one leads", ofTwoControllersOneLeads},
		{"a goal that cannot be read", aGoalThatCannotBeRead},
		{"killed in the middle of steps", killedInTheMiddleOfSteps},
		{"a write comes late", aWriteComesLate},
		{"standing still in the middle of a step", standingStillInTheMiddleOfAStep},
		{"two writers of one object", twoWritersOfOneObject},
		{"two people steer", twoPeopleSteer},
		{"adopt in the middle", adoptInTheMiddle},
		{"agents talk through Leases", agentsTalkThroughLeases},
		{"a Lease is written again", aLeaseIsWrittenAgain},
		{"BIRD", birdInKubernetes},
		{"without one right", withoutOneRight},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, start) })
	}
}

// newRealCluster is a cluster without objects of earlier tests. Controllers and agents have the
// rights of the manifests.
func newRealCluster(t *testing.T, real *kubetest.Real, nodes ...string) *cluster {
	t.Helper()
	all := []string{"nodes", testNamespace + "/" + leaseKind, testNamespace + "/configmaps"}
	for _, plural := range calicoPlurals {
		all = append(all, kubeKind(plural))
	}
	real.Reset(all...)
	grant(t, real, "")
	front := kubetest.NewFront(t, real)
	return clusterOn(t, &kubeCluster{Server: front, objects: real, real: real}, nodes...)
}

// grant applies the RBAC of the manifests as it is, without one right of a controller's.
func grant(t *testing.T, real *kubetest.Real, without string) {
	t.Helper()
	for _, file := range []string{"kubernetes-datastore/rbac.yaml", controllerRBAC,
		"kubernetes/reflector-controller/rbac.yaml"} {
		text, err := os.ReadFile("../../deploy/" + file)
		must(t, err)
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			var o map[string]any
			must(t, yaml.Unmarshal([]byte(doc), &o))
			kind := strings.ToLower(o["kind"].(string)) + "s"
			if kind == "serviceaccounts" {
				continue // users are by their tokens
			}
			meta := o["metadata"].(map[string]any)
			if !strings.HasPrefix(kind, "cluster") {
				meta["namespace"] = testNamespace // as the kustomization says
			}
			if rules, ok := o["rules"]; ok && meta["name"] != "vpp-route-agent" &&
				meta["name"] != "vpp-route-agent-status" {
				o["rules"] = rulesWithout(t, rules, without)
			}
			object, err := json.Marshal(o)
			must(t, err)
			real.PutObject(kind+".rbac.authorization.k8s.io", object)
		}
	}
	for _, right := range controllerKubeRights(t) {
		real.AwaitRight(kubetest.Controller, testNamespace, right, right != without)
	}
}

// rulesWithout takes a right out of the rules that have it.
func rulesWithout(t *testing.T, rules any, without string) (all []rule) {
	t.Helper()
	text, err := json.Marshal(rules)
	must(t, err)
	var of []rule
	must(t, json.Unmarshal(text, &of))
	for _, r := range of {
		if !slices.Contains(r.rights(), without) {
			all = append(all, r)
			continue
		}
		for _, one := range r.apart() {
			if !slices.Contains(one.rights(), without) {
				all = append(all, one)
			}
		}
	}
	return all
}
