package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// leastPause and mostPause bound the time between two lists.
	leastPause = time.Second
	mostPause  = 30 * time.Second
)

// Node is what is known of a Node.
type Node struct {
	// NotReady is since when this process has known that it is not ready; zero: it is ready.
	NotReady               time.Time
	Unschedulable, Deleted bool
	Taints                 []Taint
}

// Taint is one of a Node.
type Taint struct{ Key, Effect string }

// Known is what is known of all Nodes.
type Known struct {
	Nodes map[string]Node // by name, never changed; nil: they have not been listed yet
	// Version changes with Nodes.
	Version int
	// Away is since when the API server has not answered, and Problem why; zero: it answers.
	Away    time.Time
	Problem string
}

// Nodes follows all Nodes. What it knows stays while the API server is away. Safe for concurrent
// use.
type Nodes struct {
	client  *Client
	log     *slog.Logger
	changed chan struct{} // of size 1

	mu    sync.Mutex // guards what follows
	known Known
	read  bool // a reader has known.Nodes
	// late ends a watch that is to list all Nodes, and does not; stalled: one did not.
	late    *time.Timer
	stalled bool
}

// NewNodes returns Nodes of which nothing is known before Run.
func NewNodes(c *Client, log *slog.Logger) *Nodes {
	return &Nodes{
		client: c, log: log.With("component", "kubernetes"), changed: make(chan struct{}, 1),
		known: Known{Away: time.Now(), Problem: "it has not been asked yet"},
	}
}

// Changed is told when Known has changed.
func (n *Nodes) Changed() <-chan struct{} { return n.changed }

// Known returns what is known now.
func (n *Nodes) Known() Known {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.read = true
	return n.known
}

// Run follows the Nodes until ctx ends, and returns nil.
func (n *Nodes) Run(ctx context.Context) error {
	// client-go logs each attempt; heard logs what lasts, once
	quiet := logr.Discard()
	ctx = klog.NewContext(ctx, quiet)
	asked := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
			error) {
			all, err := n.client.list(ctx, o)
			n.heard(ctx, err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface,
			error) {
			lists := o.SendInitialEvents != nil
			if lists && n.hasStalled() {
				return nil, errStalled
			}
			w, err := n.client.watch(ctx, o)
			switch {
			case !lists:
				n.heard(ctx, err)
			case err == nil:
				n.awaitNodes(w)
			} // else a list follows
			return w, err
		},
	}
	reflector := cache.NewReflectorWithOptions(asked, &corev1.Node{}, (*nodeStore)(n),
		cache.ReflectorOptions{Logger: &quiet})
	for pause := leastPause; ; {
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if pause = min(2*pause, mostPause); err == nil {
			pause = leastPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// errStalled has a reflector list, instead of having a watch do so.
var errStalled = errors.New("a watch that was to list all Nodes did not")

func (n *Nodes) hasStalled() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stalled
}

// awaitNodes ends a watch that has not listed all Nodes in time.
func (n *Nodes) awaitNodes(w watch.Interface) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.late != nil {
		n.late.Stop()
	}
	n.late = time.AfterFunc(n.client.Timeout, func() {
		n.mu.Lock()
		n.stalled = true
		n.mu.Unlock()
		w.Stop()
	})
}

// heard notes whether the API server has answered a list or taken a watch.
func (n *Nodes) heard(ctx context.Context, err error) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return // we end
	}
	n.mu.Lock()
	was := n.known
	n.known.Problem = ""
	switch {
	case err == nil:
		n.known.Away = time.Time{}
	default:
		n.known.Problem = err.Error()
		if was.Away.IsZero() {
			n.known.Away = time.Now()
		}
	}
	is := n.known
	n.mu.Unlock()
	if was.Problem == is.Problem {
		return
	}
	n.tell()
	if err != nil {
		n.log.Warn("Nodes cannot be read, trying again", "err", err)
	} else {
		n.log.Info("Nodes are followed")
	}
}

func (n *Nodes) tell() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// publish notes that the Nodes are others now. It is called with n.mu, and unlocks it.
func (n *Nodes) publish() {
	n.known.Version++
	n.mu.Unlock()
	n.tell()
}

// own returns the Nodes to be changed: a copy where a reader has them. It needs n.mu.
func (n *Nodes) own() map[string]Node {
	if n.read || n.known.Nodes == nil {
		n.known.Nodes, n.read = maps.Clone(n.known.Nodes), false
	}
	if n.known.Nodes == nil {
		n.known.Nodes = map[string]Node{}
	}
	return n.known.Nodes
}

// nodeStore is what a reflector writes to. It keeps what is needed of a Node.
type nodeStore Nodes

func (s *nodeStore) Add(object any) error { return s.Update(object) }

func (s *nodeStore) Update(object any) error {
	n := (*Nodes)(s)
	node, ok := object.(*corev1.Node)
	if !ok {
		return nil
	}
	n.mu.Lock()
	was, ok := n.known.Nodes[node.Name]
	now := nodeOf(node, was, time.Now())
	if ok && reflect.DeepEqual(was, now) { // such as for each heartbeat
		n.mu.Unlock()
		return nil
	}
	n.own()[node.Name] = now
	n.publish()
	return nil
}

func (s *nodeStore) Delete(object any) error {
	n := (*Nodes)(s)
	node, ok := object.(*corev1.Node)
	if !ok {
		return nil
	}
	n.mu.Lock()
	if _, ok := n.known.Nodes[node.Name]; !ok {
		n.mu.Unlock()
		return nil
	}
	delete(n.own(), node.Name)
	n.publish()
	return nil
}

func (s *nodeStore) Replace(objects []any, _ string) error {
	n := (*Nodes)(s)
	n.heard(context.Background(), nil)
	n.mu.Lock()
	if n.late != nil {
		n.late.Stop()
	}
	before, after := n.known.Nodes, map[string]Node{}
	for _, o := range objects {
		if node, ok := o.(*corev1.Node); ok {
			after[node.Name] = nodeOf(node, before[node.Name], time.Now())
		}
	}
	if before != nil && reflect.DeepEqual(before, after) {
		n.mu.Unlock()
		return nil
	}
	n.known.Nodes, n.read = after, false
	n.publish()
	return nil
}

// Resync is of no use here: the reader keeps no state of its own.
func (s *nodeStore) Resync() error { return nil }

// nodeOf is what is kept of a Node. Since when it is not ready is by our own clock: the one of its
// kubelet may go otherwise.
func nodeOf(n *corev1.Node, before Node, now time.Time) Node {
	out := Node{Unschedulable: n.Spec.Unschedulable, Deleted: n.DeletionTimestamp != nil}
	for _, t := range n.Spec.Taints {
		out.Taints = append(out.Taints, Taint{t.Key, string(t.Effect)})
	}
	out.NotReady = before.NotReady
	if out.NotReady.IsZero() {
		out.NotReady = now
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			out.NotReady = time.Time{}
		}
	}
	return out
}
