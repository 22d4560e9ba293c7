// Package reflectors is how agents and the controller of route reflectors talk to each other
// through etcd or the Kubernetes API, and what the controller writes there. bgp/reflector has what
// they say, and decides.
package reflectors

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/etcd"
)

// leaseTime is how long what an agent says outlives an agent that was killed.
const leaseTime = 30 * time.Second

// PublisherConfig says who publishes.
type PublisherConfig struct {
	Etcd etcd.Config
	// Datastore is the Kubernetes datastore; nil: it is etcd.
	Datastore *KubernetesConfig
	Node      string
	// NodeRef is what Kubernetes calls the node.
	NodeRef string
	// Answer finds the answer to a question. It may block until ctx ends.
	Answer func(context.Context, reflector.Question) (reflector.Answer, error)
	Log    *slog.Logger
}

// exchange keeps keys equal to what is wanted, and hands over questions.
type exchange interface {
	Want(keys map[string]string)
	Status() etcd.ExchangeStatus
	Run(context.Context) error
}

// Publisher keeps in the datastore what the agent of a node says: its status, and an answer to each
// question. Run does the work.
type Publisher struct {
	exchange exchange
	place    string // of the status
	node     string
	find     func(context.Context, reflector.Question) (reflector.Answer, error)
	log      *slog.Logger
	asked    chan struct{} // of size 1: questions was changed

	mu        sync.Mutex        // guards what follows
	keys      map[string]string // that are wanted in etcd
	questions []etcd.Request
	answered  map[string]int64 // by the key of a question: its revision
}

// NewPublisher checks c. It does not connect.
func NewPublisher(c PublisherConfig) (*Publisher, error) {
	p := &Publisher{
		node: c.Node, find: c.Answer, log: c.Log.With("component", "report"),
		asked: make(chan struct{}, 1), keys: map[string]string{}, answered: map[string]int64{},
	}
	if c.Datastore != nil {
		x, err := newKubeExchange(*c.Datastore, c.Node, c.NodeRef, p.take, p.log)
		if err != nil {
			return nil, err
		}
		p.exchange = x
		p.place = fmt.Sprintf("Lease(%s/%s)", c.Datastore.Namespace, x.lease().Name)
		return p, nil
	}
	own := reflector.OwnPrefix(c.Node)
	client, err := etcd.NewClient(c.Etcd, "to write under "+own+" and to read under "+
		reflector.QuestionsPrefix)
	if err != nil {
		return nil, err
	}
	p.place = p.key()
	p.exchange = etcd.NewExchange(client, etcd.ExchangeConfig{
		Own: own, TTL: leaseTime, Requests: reflector.QuestionsPrefix, MaxRequests: mostQuestions,
		Take: p.take, Log: p.log,
	})
	return p, nil
}

// Report makes s what is said. It returns at once.
func (p *Publisher) Report(s reflector.Status) {
	p.change(func() { p.keys[p.key()] = string(s.Encode()) })
}

// change changes what is wanted there. Until a status is known nothing there is touched.
func (p *Publisher) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	if _, known := p.keys[p.key()]; known {
		p.exchange.Want(p.keys)
	}
}

func (p *Publisher) key() string { return reflector.StatusKey(p.node) }

// Place is where the status is.
func (p *Publisher) Place() string { return p.place }

// Status says how the keys stand in the datastore.
func (p *Publisher) Status() etcd.ExchangeStatus { return p.exchange.Status() }

// Run publishes and answers until ctx ends. Then nothing is said any more.
func (p *Publisher) Run(ctx context.Context) error {
	var answering sync.WaitGroup
	defer answering.Wait()
	answering.Go(func() { p.answer(ctx) })
	return p.exchange.Run(ctx)
}
