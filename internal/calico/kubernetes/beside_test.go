package kubernetes

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
	"vpp-route-agent/internal/testlog"
)

// runningBeside is a Beside under test; its other data come from in.
type runningBeside struct {
	*Beside
	in   chan *calico.Snapshot
	last *calico.Snapshot
}

func runBeside(t *testing.T, s *kubetest.Server, kept *calico.Snapshot) *runningBeside {
	t.Helper()
	client, err := kubernetes.NewClient(s.Kubeconfig())
	must(t, err)
	cfg := Config{Node: "edge-7"}
	if kept != nil {
		cfg.Versions = kept.Versions
	}
	log := new(testlog.Buffer)
	b := &runningBeside{in: make(chan *calico.Snapshot)}
	b.Beside = NewBeside(client, cfg, kept, b.in, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = b.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return b
}

// put hands over a snapshot of etcd.
func (b *runningBeside) put(revision int64, conf calico.BGPConfiguration) {
	b.in <- &calico.Snapshot{Revision: revision, Lists: 1,
		BGPConfigurations: map[string]calico.BGPConfiguration{"default": conf}}
}

func (b *runningBeside) until(t *testing.T, what string,
	ok func(*calico.Snapshot) bool) *calico.Snapshot {
	t.Helper()
	for timeout := time.After(30 * time.Second); b.last == nil || !ok(b.last); {
		select {
		case b.last = <-b.Snapshots():
		case <-timeout:
			t.Fatalf("not seen: %s; %q, last snapshot %+v", what, b.Error(), b.last)
		}
	}
	return b.last
}

func revision(n int64) func(*calico.Snapshot) bool {
	return func(s *calico.Snapshot) bool { return s.Revision == n }
}

// Services of the Kubernetes API beside data of etcd, while there is a range.
func TestServicesBesideEtcd(t *testing.T) {
	s := newServiceServer(t)
	b := runBeside(t, s, nil)
	b.put(1, calico.BGPConfiguration{})
	if x := b.until(t, "no range", revision(1)); !noService(x) || asked(s) != 0 {
		t.Errorf("%d requests, %+v", asked(s), x)
	}
	withRange := calico.BGPConfiguration{ServiceClusterIPs: []string{"10.96.0.0/12"}}
	b.put(2, withRange)
	if x := b.until(t, "a range", revision(2)); !hasService(x) || x.Lists != 1 {
		t.Errorf("published before its services: %+v", x)
	}
	putSlice(s, "web-1", "web", "edge-7", 0)
	if x := b.until(t, "an endpoint here", isHere); x.Revision != 2 || x.Received.IsZero() {
		t.Errorf("%+v", x)
	}
	b.put(3, withRange)
	if x := b.until(t, "etcd's change", revision(3)); !isHere(x) {
		t.Errorf("%+v", x)
	}

	// What is ready counts for all services now.
	putService(s, "plain", "")
	withRange.ServiceLoadBalancerAggregation = "Disabled"
	b.put(4, withRange)
	b.until(t, "two services", func(x *calico.Snapshot) bool {
		return x.Revision == 4 && len(x.Services) == 2
	})
	putSlice(s, "plain-1", "plain", "edge-10", 0)
	b.until(t, "an endpoint anywhere", func(x *calico.Snapshot) bool {
		return x.Endpoints["shop/plain"].Ready4
	})

	b.put(5, calico.BGPConfiguration{})
	b.until(t, "no range", func(x *calico.Snapshot) bool {
		return x.Revision == 5 && noService(x)
	})
	before := asked(s)
	s.EndWatches()
	b.SetClusterIPs(true)
	b.until(t, "a range of the environment", func(x *calico.Snapshot) bool {
		return len(x.Services) == 2
	})
	if n := asked(s) - before; n > 4 {
		t.Errorf("%d requests", n)
	}
	if b.Error() != "" || s.Asked("list", "nodes") != 0 {
		t.Errorf("%q, %d lists of nodes", b.Error(), s.Asked("list", "nodes"))
	}
}

// Where the rights are missing all else goes on, and the reason is said.
func TestServicesBesideEtcdForbidden(t *testing.T) {
	s := newServiceServer(t)
	s.Deny("list services", true)
	b := runBeside(t, s, nil)
	withRange := calico.BGPConfiguration{ServiceClusterIPs: []string{"10.96.0.0/12"}}
	b.put(1, withRange)
	x := b.until(t, "no services", revision(1))
	if !noService(x) || len(x.Problems) != 1 || !x.Problems[0].Harmless ||
		!strings.HasPrefix(x.Problems[0].String(), "the Kubernetes API: list services: 403") {
		t.Errorf("%+v", x)
	}
	if b.Error() != "" {
		t.Errorf("out of date: %s", b.Error())
	}
	s.Deny("list services", false)
	if x := b.until(t, "services", hasService); len(x.Problems) != 0 {
		t.Errorf("%v", x.Problems)
	}
	s.Deny("list services", true)
	s.Deny("watch services", true)
	s.EndWatches()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(b.Error(), "403"); {
		if time.Now().After(end) {
			t.Fatalf("not said: %q", b.Error())
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.put(2, withRange)
	if x := b.until(t, "etcd's change", revision(2)); !hasService(x) {
		t.Errorf("%+v", x)
	}
}

// Without an API the Services of the last good snapshot count, if there were any.
func TestServicesBesideEtcdAfterARestart(t *testing.T) {
	s := newServiceServer(t)
	s.Refuse(503)
	kept := &calico.Snapshot{
		Services:  map[string]calico.Service{"shop/web": {Namespace: "shop", Name: "web"}},
		Endpoints: map[string]calico.Endpoints{"shop/web": {Ready4: true}},
		Versions:  map[string]calico.Version{"services": {Version: 1, Objects: true}},
	}
	withRange := calico.BGPConfiguration{ServiceClusterIPs: []string{"10.96.0.0/12"}}
	with, without := runBeside(t, s, kept), runBeside(t, s, nil)
	with.put(1, withRange)
	without.put(1, withRange)
	if x := without.until(t, "no services", revision(1)); !noService(x) || len(x.Problems) != 1 {
		t.Errorf("%+v", x)
	}
	if x := with.until(t, "what was kept", revision(1)); !x.Endpoints["shop/web"].Ready4 ||
		x.Services["shop/web"].IsLocal() || !strings.Contains(with.Error(), "503") {
		t.Errorf("%+v, %q", x, with.Error())
	}
	s.Refuse(0)
	with.until(t, "what there is", func(x *calico.Snapshot) bool {
		return x.Services["shop/web"].IsLocal()
	})
	without.until(t, "what there is", hasService)
}
