package reflectors

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/kubernetes"
)

const (
	// exchangePause is the shortest time between two writes of an agent.
	exchangePause = time.Second
	// rareProbe is how often an agent asks whether the API server's etcd is the one that it was:
	// the question comes again by itself.
	rareProbe = 5 * time.Minute
	// maxNode bounds a node's name, in bytes: that of its Lease has a prefix.
	maxNode = 253 - len(agentPrefix)
	// maxID bounds the ID of a question: it is in an annotation's name, of at most 63 bytes.
	maxID = 40
)

// kubeExchange keeps what an agent says in a Lease of its own, and reads the question from a
// ConfigMap. Keys are those of etcd, so that whoever says it does not know where it goes.
type kubeExchange struct {
	KubernetesConfig
	node, nodeRef string
	ttl           time.Duration
	endTimeout    time.Duration
	take          func([]etcd.Request)
	log           *slog.Logger
	wake          chan struct{} // of size 1: wanted was changed
	follower      *kubernetes.Follower

	// owned by Run's goroutine
	holder string
	has    map[string]*string // annotations of ours that the Lease has; nil: it is not known

	mu     sync.Mutex        // guards what follows
	wanted map[string]string // annotations; nil: nothing is known yet, and nothing is written
	status etcd.ExchangeStatus
}

// newKubeExchange returns one that does nothing until Run. nodeRef is what Kubernetes calls the
// node.
func newKubeExchange(c KubernetesConfig, node, nodeRef string, take func([]etcd.Request),
	log *slog.Logger) (*kubeExchange, error) {
	if len(node) > maxNode {
		return nil, fmt.Errorf("the name of this node has %d bytes, and the one of its Lease "+
			"would have more than 253", len(node))
	}
	x := &kubeExchange{KubernetesConfig: c, node: node, nodeRef: nodeRef, ttl: leaseTime,
		endTimeout: endTimeout, take: take, log: log, wake: make(chan struct{}, 1),
		holder: node + "_" + newID()}
	x.follower = kubernetes.NewFollower(c.Client, &questionData{x: x}, nil,
		func(kubernetes.Published) {}, slog.New(slog.DiscardHandler))
	x.follower.ProbeEvery = rareProbe
	return x, nil
}

func (x *kubeExchange) lease() kubernetes.Resource {
	return x.KubernetesConfig.lease(agentPrefix + x.node)
}

// Want makes these keys the wanted ones. It returns at once.
func (x *kubeExchange) Want(keys map[string]string) {
	notes := map[string]string{}
	for key, value := range keys {
		name := strings.TrimPrefix(key, reflector.OwnPrefix(x.node))
		if id := strings.TrimPrefix(key, reflector.AnswerKey(x.node, "")); id != key {
			notes[answerPrefix+id] = value
		} else {
			notes[notePrefix+name] = value
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.wanted != nil && maps.Equal(x.wanted, notes) {
		return
	}
	x.wanted = notes
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Status returns the current status.
func (x *kubeExchange) Status() etcd.ExchangeStatus {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.status
	if why := x.follower.Status(); s.Problem == "" && why.Failures > 0 {
		s.Problem = why.Error
	}
	return s
}

// Run works until ctx ends, and then gives the Lease back.
func (x *kubeExchange) Run(ctx context.Context) error {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { _ = x.follower.Run(ctx) })
	due := time.NewTimer(0)
	defer due.Stop()
	var paused time.Time // no write before
	for wait := firstRetry; ; {
		select {
		case <-ctx.Done():
			x.leave(ctx)
			return nil
		case <-x.wake:
			due.Reset(time.Until(paused))
			continue
		case <-due.C:
		}
		if x.isUnknown() {
			continue // Want wakes us
		}
		err := x.write(ctx)
		if ctx.Err() != nil {
			continue
		}
		x.note(err)
		paused = time.Now().Add(exchangePause)
		if err == nil {
			wait = firstRetry
			due.Reset(x.ttl/3 - rand.N(x.ttl/30)) // a thousand agents are not to come at once
			if !x.isWritten() {
				due.Reset(time.Until(paused))
			}
			continue
		}
		wait = min(2*wait, lastRetry)
		pause := wait/2 + rand.N(wait/2)
		paused = time.Now().Add(pause)
		due.Reset(pause)
	}
}

func (x *kubeExchange) isUnknown() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.wanted == nil
}

// isWritten reports whether the Lease has what is wanted: somebody may have changed it.
func (x *kubeExchange) isWritten() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.changes(x.wanted)) == 0
}

// changes are the annotations to be written.
func (x *kubeExchange) changes(wanted map[string]string) map[string]*string {
	all := map[string]*string{}
	for name, value := range wanted {
		if has, is := x.has[name]; !is || *has != value {
			all[name] = &value
		}
	}
	for name := range x.has {
		if _, is := wanted[name]; !is {
			all[name] = nil
		}
	}
	return all
}

// note notes how a write went. It is logged when that changes.
func (x *kubeExchange) note(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case err == nil && (!x.status.Written || x.status.Problem != ""):
		x.log.Info("our Lease is in Kubernetes", "lease", x.lease().Name, "ttl", x.ttl)
		x.status.Written, x.status.Problem = true, ""
	case err != nil && x.status.Problem != err.Error():
		x.log.Warn("our Lease is not kept in Kubernetes, trying again", "lease", x.lease().Name,
			"err", err)
		x.status.Problem = err.Error()
	}
}

// write renews the Lease, and writes what has changed.
func (x *kubeExchange) write(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	x.mu.Lock()
	wanted := x.wanted
	x.mu.Unlock()
	l := kubernetes.Lease{Spec: kubernetes.HeldBy(x.holder, x.ttl, time.Now())}
	l.Metadata.Annotations = x.changes(wanted)
	object, err := x.Client.Patch(ctx, x.lease(), encode(l))
	if kubernetes.IsNotFound(err) {
		object, err = x.create(ctx, l, wanted)
	}
	if err != nil {
		return err
	}
	var is struct {
		Metadata struct{ Annotations map[string]string } `json:"metadata"`
	}
	_ = json.Unmarshal(object, &is)
	x.has = map[string]*string{}
	for name, value := range is.Metadata.Annotations {
		if strings.HasPrefix(name, notePrefix) {
			x.has[name] = &value
		}
	}
	return nil
}

// create makes the Lease, which Kubernetes removes with the Node, where there is one.
func (x *kubeExchange) create(ctx context.Context, l kubernetes.Lease,
	wanted map[string]string) ([]byte, error) {
	l.APIVersion, l.Kind = "coordination.k8s.io/v1", "Lease"
	at := x.lease()
	l.Metadata.Name, l.Metadata.Namespace = at.Name, at.Namespace
	l.Metadata.Annotations = map[string]*string{}
	for name, value := range wanted {
		l.Metadata.Annotations[name] = &value
	}
	node, err := x.Client.Get(ctx, kubernetes.Resource{Version: "v1", Plural: "nodes",
		Name: x.nodeRef})
	if err == nil {
		var n struct{ Metadata struct{ UID string } }
		if json.Unmarshal(node, &n) == nil && n.Metadata.UID != "" {
			l.Metadata.OwnerReferences = []kubernetes.Owner{{APIVersion: "v1", Kind: "Node",
				Name: x.nodeRef, UID: n.Metadata.UID}}
		}
	}
	return x.Client.Create(ctx, at, encode(l))
}

// leave says that this agent ends: it holds the Lease no more.
func (x *kubeExchange) leave(ctx context.Context) {
	if x.has == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.endTimeout)
	defer cancel()
	gone := map[string]any{}
	for name := range x.has {
		gone[name] = nil
	}
	_, err := x.Client.Patch(ctx, x.lease(), encode(map[string]any{
		"metadata": map[string]any{"annotations": gone},
		"spec":     map[string]any{"holderIdentity": nil}}))
	if err != nil {
		x.log.Warn("our Lease stays until it ends", "lease", x.lease().Name, "ttl", x.ttl,
			"err", err)
	}
}

// questionData is the ConfigMap of the question as a Follower sees it.
type questionData struct {
	x      *kubeExchange
	listed bool
}

func (d *questionData) Resources() []kubernetes.Resource {
	return []kubernetes.Resource{d.x.configMap(questionName)}
}

func (d *questionData) Put(_ kubernetes.Resource, object []byte) {
	d.listed = true
	var head kubeHead
	var q kubeQuestion
	_ = json.Unmarshal(object, &head)
	_ = json.Unmarshal([]byte(head.Data[questionField]), &q)
	d.x.hear(q)
}

func (d *questionData) Delete(kubernetes.Resource, []byte) { d.x.hear(kubeQuestion{}) }

func (d *questionData) BeginList() { d.listed = false }

func (d *questionData) EndList(kubernetes.Resource) {
	if !d.listed {
		d.x.hear(kubeQuestion{})
	}
}

func (*questionData) Changed() bool { return false }

// hear hands over the question; one without an ID is none.
func (x *kubeExchange) hear(q kubeQuestion) {
	var all []etcd.Request
	if q.ID != "" && len(q.ID) <= maxID {
		all = []etcd.Request{{Key: reflector.QuestionKey(q.ID), Value: q.Question,
			Revision: q.Revision}}
	}
	x.take(all)
}
