package kubernetes

import (
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

var load = flag.Bool("load", false, "measure what agents cost build/kube-apiserver")

// TestLoadOfAnAPIServer measures what docs/performance.md says of a real API server: 20 agents with
// BGP among 1000 nodes start, and the API server starts anew.
func TestLoadOfAnAPIServer(t *testing.T) {
	program := kubetest.FindReal()
	if !*load || program == "" {
		t.Skip("it measures for docs/performance.md: -load, and make kube-apiserver before")
	}
	const nodes, agents = 1000, 20
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{})
	must(t, err)
	t.Cleanup(e.Close)
	s := kubetest.NewReal(t, program, e.Endpoint())
	s.Install(GroupV1, kinds...)
	s.Allow(rights(t))
	var filling sync.WaitGroup
	for worker := range 8 {
		filling.Go(func() {
			for i := worker; i < nodes; i += 8 {
				name := fmt.Sprintf("node-%04d", i)
				s.PutObject("nodes", fmt.Appendf(nil, `{"metadata":{"name":%q,"annotations":{`+
					`"projectcalico.org/IPv4Address":"172.30.%d.%d/16","noise":%q}}}`, name,
					i/250, i%250+1, strings.Repeat("x", 600)))
				claim(s, name, fmt.Sprintf("10.%d.%d.0/26", 64+i/200, i%200))
				claim(s, name, fmt.Sprintf("10.%d.%d.64/26", 64+i/200, i%200))
			}
		})
	}
	filling.Wait()
	front := kubetest.NewFront(t, s)
	all := []string{"nodes", "pods"}
	for _, plural := range kinds {
		all = append(all, v1(plural))
	}
	var sent int64
	var lists, watches int
	var cpu time.Duration
	note := func(what string) {
		is, memory := s.Usage()
		var l, w int
		for _, kind := range all {
			l, w = l+front.Asked("list", kind), w+front.Asked("watch", kind)
		}
		t.Logf("%s, for each of %d agents: %.0f kB, %.1f lists, %.1f watches, %.0f ms of the API "+
			"server's processor; it has %d MiB", what, agents,
			float64(front.Sent()-sent)/1000/agents, float64(l-lists)/agents,
			float64(w-watches)/agents, (is-cpu).Seconds()*1000/agents, memory>>20)
		sent, lists, watches, cpu = front.Sent(), l, w, is
	}
	note("before")
	time.Sleep(10 * time.Second)
	note("10 s without agents")
	var running []*Source
	for i := range agents {
		client, err := kubernetes.NewClientFor(kubernetes.ClientConfig{Server: front.URL(),
			Token: kubetest.Token, Insecure: true})
		must(t, err)
		t.Cleanup(client.Close)
		source, err := New(client, Config{Node: fmt.Sprintf("node-%04d", i*nodes/agents),
			Needs: calico.Needs{}}, slog.New(slog.DiscardHandler))
		must(t, err)
		ctx, done := t.Context(), make(chan struct{})
		go func() { defer close(done); _ = source.Run(ctx) }()
		t.Cleanup(func() { <-done })
		running = append(running, source)
	}
	for _, source := range running {
		if x := <-source.Snapshots(); len(x.Nodes) != nodes || len(x.Blocks) != 2 {
			t.Errorf("%d nodes, %d blocks", len(x.Nodes), len(x.Blocks))
		}
	}
	note("start")
	time.Sleep(10 * time.Second)
	note("10 s with agents")
	s.Compact()
	cpu = 0 // it is a new process
	for _, source := range running {
		for end := time.Now().Add(time.Minute); !source.Status().Connected ||
			source.Status().Lists < 2; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not connected: %+v", source.Status())
			}
		}
	}
	note("a restart, with its own start")
}
