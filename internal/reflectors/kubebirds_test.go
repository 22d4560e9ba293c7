package reflectors

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico/calicotest"
)

const nodeStatuses = "caliconodestatuses.crd.projectcalico.org"

// answerBirds is what the calico-nodes of nodes with BIRD do, that have all in order, until stop.
func (k *kubeCluster) answerBirds(nodes ...string) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
			}
			for _, object := range k.Objects(nodeStatuses) {
				k.answerBird(object, nodes)
			}
		}
	})
	return sync.OnceFunc(func() { close(done); running.Wait() })
}

func (k *kubeCluster) answerBird(object []byte, nodes []string) {
	var asked struct {
		Metadata struct{ Name string }
		Spec     struct{ Node string }
		Status   *struct{}
	}
	var fields map[string]any
	if json.Unmarshal(object, &asked) != nil || json.Unmarshal(object, &fields) != nil {
		k.t.Errorf("%s", object)
	}
	for _, node := range nodes {
		if node != asked.Spec.Node || asked.Status != nil {
			continue
		}
		peers, routes := inOrder(node, k.snapshot(node))
		fields["status"] = map[string]any{"lastUpdated": time.Now().UTC().Format(time.RFC3339),
			"bgp":    map[string][]calicotest.NodePeer{"peersV4": peers},
			"routes": map[string][]calicotest.NodeRoute{"routesV4": routes}}
		answered, _ := json.Marshal(fields)
		if k.Object(nodeStatuses, asked.Metadata.Name) != nil { // it may be taken back
			k.PutObject(nodeStatuses, answered)
		}
	}
}

// Nodes with BIRD are asked through CalicoNodeStatuses, of which nothing is left, also not of a
// controller that was killed.
func TestBIRDInKubernetes(t *testing.T) {
	t.Parallel()
	birdInKubernetes(t, newKubeCluster)
}

func birdInKubernetes(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2", "n3")
	c.addNode("bird-1", "10.0.8.1/24")
	left := reflector.BirdQuestion("of-before", "bird-1", "x", time.Now())
	c.kube.PutObject(nodeStatuses, left)
	theirs := []byte(`{"metadata":{"name":"theirs"},"spec":{"node":"n1"}}`)
	c.kube.PutObject(nodeStatuses, theirs)
	stop := c.kube.answerBirds("bird-1")
	defer stop()
	c.start("a")
	c.aim(func(g *reflector.Goal) { g.Mode, g.AcceptLoss = reflector.Reflectors, true })
	c.reaches("reflectors n1, n2, n3")
	c.aim(func(g *reflector.Goal) { g.Mode, g.AcceptLoss = reflector.Mesh, true })
	c.reaches("mesh")
	await(t, "no question", func() bool { return len(c.kube.Objects(nodeStatuses)) == 1 })
	if c.kube.Object(nodeStatuses, "theirs") == nil {
		t.Error("what is not a controller's is gone")
	}
}
