package reflectors

import (
	"errors"
	"testing"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/testlog"
)

// A Node that a list lacks is gone, though an object of another kind with its name changes during
// the list.
func TestAListLacksANodeWhoseNameAPeerHas(t *testing.T) {
	d := &kubeData{changed: make(chan struct{}, 1), now: newKubeObjects()}
	nodes := kubernetes.Resource{Version: "v1", Plural: "nodes"}
	peers := kubernetes.Resource{Group: "crd.projectcalico.org", Version: "v1", Plural: "bgppeers"}
	for _, name := range []string{"edge-1", "edge-2"} {
		d.Put(nodes, []byte(`{"metadata":{"name":"`+name+`","resourceVersion":"5","annotations":{`+
			`"projectcalico.org/IPv4Address":"10.0.0.1/24"}}}`))
	}
	d.BeginList()
	d.Put(nodes, []byte(`{"metadata":{"name":"edge-2","resourceVersion":"6"}}`))
	d.Put(peers, []byte(`{"metadata":{"name":"edge-1","resourceVersion":"9"},"spec":{}}`))
	d.EndList(nodes)
	if got := d.now.names("nodes"); len(got) != 1 || got[0] != "edge-2" {
		t.Errorf("nodes after the list: %v", got)
	}
	if got := d.now.names("bgppeers"); len(got) != 1 {
		t.Errorf("peers after the list: %v", got)
	}
}

// A kubelet writes its Node a moment after a step has: that the step was written is not known
// before the Node is known as the step has it.
func TestAWriteIsKnownWithItsContent(t *testing.T) {
	d := &kubeData{changed: make(chan struct{}, 1), now: newKubeObjects()}
	nodes := kubernetes.Resource{Version: "v1", Plural: "nodes"}
	put := func(version, address string) {
		d.Put(nodes, []byte(`{"metadata":{"name":"edge-1","resourceVersion":"`+version+`",`+
			`"annotations":{"projectcalico.org/IPv4Address":"`+address+`"}}}`))
	}
	place := kubePlace("nodes", "edge-1")
	put("5", "10.0.0.1/24")
	d.publish(kubernetes.Published{Version: 5})
	put("6", "10.0.0.1/24")
	if got := d.known.versions[place]; got != 6 {
		t.Errorf("version %d is known of a Node that has not changed, want 6", got)
	}
	put("7", "10.0.0.2/24")
	put("8", "10.0.0.2/24")
	if got := d.known.versions[place]; got != 6 {
		t.Errorf("version %d is known, and what it has is not", got)
	}
	d.publish(kubernetes.Published{Version: 8})
	if got := d.known.versions[place]; got != 8 {
		t.Errorf("version %d is published, want 8", got)
	}
}

// A controller that has stood still, and leads no more, leaves the question of the next one alone.
func TestTheQuestionOfAnother(t *testing.T) {
	t.Parallel()
	c := newKubeCluster(t, "n1")
	s := newKubeStore(*c.kube.controllerConfig(), testlog.New(t))
	e := kubernetes.NewElection(s.Client, s.lease(leaderName), "a_1", s.leadTime)
	question := encode(kubeQuestion{"2", 1, reflector.Question{Mesh: true}.Encode()})
	c.kube.PutObject("configmaps", encode(map[string]any{
		"metadata": map[string]string{"namespace": testNamespace, "name": questionName},
		"data":     map[string]string{questionField: string(question)}}))
	err := newKubeTerm(s, "1", e, s.log).endQuestion(t.Context())
	if _, asked := c.kube.asked()["2"]; !asked || !errors.Is(err, errLeadLost) {
		t.Errorf("%v, questions are %v", err, c.kube.asked())
	}
}
