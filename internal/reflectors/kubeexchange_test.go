package reflectors

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/testlog"
)

// publish runs the Publisher of a node, until stop.
func (k *kubeCluster) publish(node string, log *slog.Logger,
	answer func(context.Context, reflector.Question) (reflector.Answer, error)) (p *Publisher,
	stop func()) {
	k.t.Helper()
	p, err := NewPublisher(PublisherConfig{Datastore: k.agentConfig(), Node: node, NodeRef: node,
		Answer: answer, Log: log})
	must(k.t, err)
	p.exchange.(*kubeExchange).endTimeout = 30 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			k.t.Errorf("Run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	k.t.Cleanup(stop)
	return p, stop
}

// silence has the agents of a cluster in Kubernetes say nothing, also not what they have said: a
// Publisher does.
func (c *cluster) silence() {
	c.change(func() {
		for _, node := range c.nodes {
			c.away[node] = true
			c.kube.DeleteObject(leaseKind, testNamespace+"/"+agentPrefix+node)
		}
	})
}

// What a controller asks and agents say goes through their Leases, there and back. An agent that
// ends is not there any more at once.
func TestAgentsTalkThroughLeases(t *testing.T) {
	t.Parallel()
	agentsTalkThroughLeases(t, newKubeCluster)
}

func agentsTalkThroughLeases(t *testing.T, start startCluster) {
	nodes := []string{"n1", "n2", "n3"}
	c := start(t, nodes...)
	c.silence()
	c.kube.PutObject("nodes", []byte(`{"metadata":{"name":"n3","uid":"u-3","annotations":
	 {"projectcalico.org/IPv4Address":"10.0.7.3/24"}}}`))
	var n3 struct{ Metadata struct{ UID string } } // an API server gives its own
	must(t, json.Unmarshal(c.kube.Object("nodes", "n3"), &n3))
	digest := func(node string) string { return reflector.Digest(node, c.kube.snapshot(node)) }
	var stops []func()
	ctx, cancel := context.WithCancel(t.Context())
	var reporting sync.WaitGroup
	defer reporting.Wait()
	defer cancel()
	for _, node := range nodes {
		p, stop := c.kube.publish(node, testlog.New(t), func(_ context.Context,
			q reflector.Question) (reflector.Answer, error) {
			return reflector.Answer{Format: reflector.StatusFormat, Version: "v1", Question: q,
				Digest: digest(node), IPv4: reflector.Change{Prefixes: 2, FewestCopies: 2}}, nil
		})
		stops = append(stops, stop)
		reporting.Go(func() {
			for ctx.Err() == nil {
				p.Report(reflector.Status{Format: reflector.StatusFormat, Version: "v1",
					Dataplane: "vpp", Digest: digest(node), Wanted: 2, Up: 2})
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	c.start("a")
	c.aim(to(reflector.Reflectors))
	c.reaches("reflectors n1, n2, n3")
	c.aim(to(reflector.Mesh))
	c.reaches("mesh")
	var l struct {
		Metadata struct {
			Annotations     map[string]string
			OwnerReferences []struct{ Kind, Name, UID string }
		}
	}
	lease := func() {
		l.Metadata.Annotations = nil
		_ = json.Unmarshal(c.kube.Object(leaseKind, testNamespace+"/node.n3"), &l)
	}
	await(t, "no answer without a question", func() bool {
		lease()
		return len(l.Metadata.Annotations) == 1
	})
	if o := l.Metadata.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].UID == "" ||
		o[0].UID != n3.Metadata.UID {
		t.Errorf("it does not go with its Node: %+v", o)
	}
	stops[2]()
	lease()
	if r := c.look(); len(l.Metadata.Annotations) > 0 || len(r.statuses) != 2 {
		t.Errorf("after the end: %v, %d statuses", l.Metadata.Annotations, len(r.statuses))
	}
}

// Somebody deletes the Lease, or what is in it, and etcd is restored from before it: it is written
// again.
func TestALeaseIsWrittenAgain(t *testing.T) {
	t.Parallel()
	aLeaseIsWrittenAgain(t, newKubeCluster)
}

func aLeaseIsWrittenAgain(t *testing.T, start startCluster) {
	c := start(t, "n1")
	c.silence()
	p, _ := c.kube.publish("n1", testlog.New(t), nil)
	p.exchange.(*kubeExchange).ttl = 3 * time.Second
	p.Report(status(1))
	there := func() bool { return len(c.look().statuses) == 1 }
	await(t, "a status", there)
	await(t, "no problem", func() bool {
		return p.Status() == (etcd.ExchangeStatus{Written: true})
	})
	lease := testNamespace + "/node.n1"
	for what, harm := range map[string]func(){
		"it is deleted": func() { c.kube.DeleteObject(leaseKind, lease) },
		"it has no status": func() {
			c.kube.PutObject(leaseKind, []byte(`{"metadata":{"name":"node.n1",
			 "namespace":"`+testNamespace+`"}}`))
		},
	} {
		if c.kube.Object(leaseKind, lease) == nil {
			t.Errorf("%s: there is no Lease that could be harmed", what)
		}
		asked := c.kube.Asked("patch", leaseKind)
		harm() // it may be written again before anybody could look
		await(t, what, func() bool {
			return c.kube.Asked("patch", leaseKind) > asked && there()
		})
	}
}

// Without the right to a Lease of its own an agent says so once, and goes on to try. A controller
// knows nothing of its node.
func TestNoRightToALease(t *testing.T) {
	t.Parallel()
	c := newKubeCluster(t, "n1")
	c.silence()
	c.kube.Deny("patch "+leaseKind, true)
	var log testlog.Buffer
	p, _ := c.kube.publish("n1", slog.New(slog.NewTextHandler(&log, nil)), nil)
	p.Report(status(1))
	await(t, "several attempts", func() bool { return c.kube.Asked("patch", leaseKind) > 3 })
	want := "patch leases.coordination.k8s.io/node.n1: 403 Forbidden"
	said := strings.Count(log.String(), want)
	if s := p.Status(); s.Written || !strings.Contains(s.Problem, want) || said != 1 {
		t.Errorf("%+v, %d lines", s, said)
	}
	if r := c.look(); len(r.statuses) != 0 || !r.hasBird() {
		t.Errorf("a controller knows %+v", r.statuses)
	}
	c.kube.Deny("patch "+leaseKind, false)
	await(t, "the status", func() bool { return len(c.look().statuses) == 1 })
	await(t, "no problem", func() bool {
		return p.Status() == (etcd.ExchangeStatus{Written: true})
	})
}

// The name of a Lease has room for that of its node.
func TestALongName(t *testing.T) {
	c := newKubeCluster(t, "n1")
	for name, ok := range map[string]bool{strings.Repeat("n", maxNode): true,
		strings.Repeat("n", maxNode+1): false} {
		_, err := NewPublisher(PublisherConfig{Datastore: c.kube.config(), Node: name,
			Log: testlog.New(t)})
		if (err == nil) != ok {
			t.Errorf("%d bytes: %v", len(name), err)
		}
	}
}
