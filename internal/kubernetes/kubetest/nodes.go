package kubetest

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const nodes = "nodes"

// NodeChange is what Put does to a Node.
type NodeChange = func(*corev1.Node)

// Put adds a Node that is ready, or changes one.
func (s *Server) Put(name string, change ...NodeChange) {
	s.locked(func() {
		n := s.node(name)
		if n == nil {
			n = readyNode(name)
		}
		for _, do := range change {
			do(n)
		}
		s.putNode(n)
	})
}

func readyNode(name string) *corev1.Node {
	n := &corev1.Node{}
	n.Name = name
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
	}}
	return n
}

// node needs s.mu.
func (s *Server) node(name string) *corev1.Node {
	raw := s.state.objects[nodes][name]
	if raw == nil {
		return nil
	}
	n := &corev1.Node{}
	if err := json.Unmarshal(raw, n); err != nil {
		panic(fmt.Sprintf("kubetest: Node(%s): %v", name, err))
	}
	return n
}

// putNode needs s.mu.
func (s *Server) putNode(n *corev1.Node) {
	n.APIVersion, n.Kind = "v1", "Node"
	raw, err := json.Marshal(n)
	if err != nil {
		panic(fmt.Sprintf("kubetest: Node(%s): %v", n.Name, err))
	}
	s.put(nodes, n.Name, raw)
}

// NotReady is a change for Put, as those that follow.
func NotReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }

// Ready undoes NotReady.
func Ready(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }

// Cordon is what kubectl does.
func Cordon(n *corev1.Node) { n.Spec.Unschedulable = true }

// Deleting marks a Node that waits for its finalizers.
func Deleting(n *corev1.Node) {
	now := metav1.Now()
	n.DeletionTimestamp = &now
}

// Taint adds a taint.
func Taint(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

// Delete removes a Node.
func (s *Server) Delete(name string) { s.DeleteObject(nodes, name) }

// Node returns one; nil: there is none.
func (s *Server) Node(name string) (n *corev1.Node) {
	s.locked(func() { n = s.node(name) })
	return n
}

// Lists is how often Nodes were listed.
func (s *Server) Lists() int { return s.ListsOf(nodes) }

// Patches are the bodies of all patches.
func (s *Server) Patches() (all []string) {
	s.locked(func() { all = slices.Clone(s.patches) })
	return all
}
