package kubetest

import (
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
)

// holdFinalizer keeps a Node that is being deleted.
const holdFinalizer = "vpp-route-agent/kubetest"

// Put adds a Node that is ready, or changes one.
func (r *Real) Put(name string, change ...NodeChange) {
	r.t.Helper()
	n := r.Node(name)
	if n == nil {
		n = readyNode(name)
	}
	was := n.DeletionTimestamp
	for _, do := range change {
		do(n)
	}
	begins := was == nil && n.DeletionTimestamp != nil
	if begins { // an API server sets the time itself, and keeps who has finalizers
		n.DeletionTimestamp, n.Finalizers = nil, []string{holdFinalizer}
	}
	r.putNode(n)
	if begins {
		r.DeleteObject(nodes, name)
	}
}

func (r *Real) putNode(n *corev1.Node, without ...string) {
	r.t.Helper()
	var o map[string]any
	raw, err := json.Marshal(n)
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	for _, field := range without {
		delete(o, field)
	}
	if err == nil {
		err = r.put(nodes, headOf(raw), o)
	}
	if err != nil {
		r.must(fmt.Errorf("Node(%s): %w", n.Name, err))
	}
}

// Node returns one; nil: there is none.
func (r *Real) Node(name string) *corev1.Node {
	r.t.Helper()
	answer, err := r.do(http.MethodGet, pathOf(nodes, "", name), nil)
	if isStatus(err, http.StatusNotFound) {
		return nil
	}
	raw, _ := json.Marshal(answer)
	n := &corev1.Node{}
	if err == nil {
		err = json.Unmarshal(raw, n)
	}
	r.must(err)
	return n
}

// Delete removes a Node.
func (r *Real) Delete(name string) {
	r.t.Helper()
	if n := r.Node(name); n != nil && len(n.Finalizers) > 0 {
		n.Finalizers = nil
		r.putNode(n, "status") // with the last one goes a Node that is being deleted
	}
	r.DeleteObject(nodes, name)
}
