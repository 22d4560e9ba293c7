package reflectors

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
	"vpp-route-agent/internal/testlog"
)

// apiServer is a stand-in for the Kubernetes API, or a real API server.
type apiServer interface {
	Kubeconfig() string
	Put(name string, change ...kubetest.NodeChange)
	Delete(name string)
}

// refuse has a stand-in answer 503, and an API server 403, or not any more.
func refuse(s apiServer, on bool) {
	switch s := s.(type) {
	case *kubetest.Server:
		status := 0
		if on {
			status = http.StatusServiceUnavailable
		}
		s.Refuse(status)
	case *kubetest.Real:
		s.Deny("watch nodes", on)
	}
}

// withKubernetes has a controller consult Kubernetes.
func withKubernetes(t *testing.T, s apiServer) func(*Controller) {
	t.Helper()
	if _, standIn := s.(*kubetest.Server); standIn {
		t.Attr("part", "Kubernetes API, a stand-in")
	}
	client, err := kubernetes.NewClient(s.Kubeconfig())
	must(t, err)
	nodes := kubernetes.NewNodes(client, testlog.New(t))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { must(t, nodes.Run(ctx)) })
	t.Cleanup(func() { cancel(); running.Wait(); client.Close() })
	return func(c *Controller) { c.kubernetes = nodes }
}

// A Node that is cordoned in Kubernetes gives its role to another, which takes it first; while
// Kubernetes is away longer than the grace time it does not count, and no role moves for that.
func TestKubernetesMovesARole(t *testing.T) {
	t.Parallel()
	kubernetesMovesARole(t, kubetest.NewServer(t))
}

func kubernetesMovesARole(t *testing.T, s apiServer) {
	c := newCluster(t, "n1", "n2", "n3", "n4")
	for _, n := range c.nodes {
		s.Put(n)
	}
	s.Put("n1", kubetest.NotReady)
	it, _ := c.start("a", withKubernetes(t, s))
	c.aim(func(g *reflector.Goal) {
		g.Mode, g.Config.Min, g.Config.Max = reflector.Reflectors, 2, 2
	})
	c.reaches("reflectors n2, n3") // not n1, the oldest by name
	begun := c.look().revision
	s.Put("n3", kubetest.Cordon)
	s.Put("n1", kubetest.Ready)
	c.awaits("the reason", func(s State) bool {
		return s.Last == "Node(n3) stops being a reflector: its Kubernetes Node is cordoned"
	})
	c.reaches("reflectors n1, n2")
	if got := c.writes(begun); !slices.Equal(got, []string{"PUT Node(n1)", "PUT Node(n3)"}) {
		t.Errorf("writes are %v: the new one comes first", got)
	}
	if it.Status().State.Kubernetes != "" {
		t.Errorf("Kubernetes: %s", it.Status().State.Kubernetes)
	}

	refuse(s, true)
	before := c.resources()
	s.Put("n2", kubetest.NotReady)
	c.awaits("that it is away", func(s State) bool {
		return strings.HasPrefix(s.Kubernetes, "away since ") &&
			strings.Contains(s.Kubernetes, ", its Nodes do not count: the Kubernetes API at http")
	})
	time.Sleep(2 * time.Second)
	if now := c.resources(); !maps.Equal(now, before) {
		t.Errorf("while it is away resources are %v, were %v", now, before)
	}
	refuse(s, false)
	c.awaits("that it is back", func(s State) bool {
		return s.Kubernetes == "" && s.Done != "" && !strings.Contains(s.Done, "n2")
	})
}

// An empty list of Nodes takes no role from anybody.
func TestKubernetesWithoutNodes(t *testing.T) {
	t.Parallel()
	kubernetesWithoutNodes(t, kubetest.NewServer(t))
}

func kubernetesWithoutNodes(t *testing.T, s apiServer) {
	c := newCluster(t, "n1", "n2", "n3", "n4")
	for _, o := range c.look().objects {
		value := strings.Replace(string(o.Value), `"spec":{`, `"spec":{"orchRefs":[{"nodeName":"`+
			o.Key.Name+`","orchestrator":"k8s"}],`, 1)
		_, err := c.client.Put(t.Context(), o.Key.String(), value)
		must(t, err)
	}
	for _, n := range c.nodes {
		s.Put(n)
	}
	it, _ := c.start("a", withKubernetes(t, s))
	c.aim(to(reflector.Reflectors))
	c.reaches("reflectors n1, n2, n3")
	says := func(want string) {
		t.Helper()
		w := httptest.NewRecorder()
		it.HealthHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		const name = "\nvpp_route_agent_reflector_controller_kubernetes_away "
		if !strings.Contains(w.Body.String(), name+want+"\n") {
			t.Errorf("metrics do not have%s%s", name, want)
		}
	}
	says("0")
	before := c.resources()
	for _, n := range c.nodes {
		s.Delete(n)
	}
	time.Sleep(3 * time.Second)
	if now := c.resources(); !maps.Equal(now, before) {
		t.Errorf("resources are %v, were %v", now, before)
	}
	refuse(s, true)
	await(t, "a refusal", func() bool { return !it.kubernetes.Known().Away.IsZero() })
	says("1")
}
