// Package reflectors is how agents and the controller of route reflectors talk to each other
// through etcd, and what the controller writes there. bgp/reflector has what they say, and decides.
package reflectors

import (
	"context"
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
	Node string
	// Answer finds the answer to a question. It may block until ctx ends.
	Answer func(context.Context, reflector.Question) (reflector.Answer, error)
	Log    *slog.Logger
}

// Publisher keeps in etcd what the agent of a node says: its status, and an answer to each
// question. Run does the work.
type Publisher struct {
	exchange *etcd.Exchange
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
	own := reflector.OwnPrefix(c.Node)
	client, err := etcd.NewClient(c.Etcd, "to write under "+own+" and to read under "+
		reflector.QuestionsPrefix)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		node: c.Node, find: c.Answer, log: c.Log.With("component", "report"),
		asked: make(chan struct{}, 1), keys: map[string]string{}, answered: map[string]int64{},
	}
	p.exchange = etcd.NewExchange(client, etcd.ExchangeConfig{
		Own: own, TTL: leaseTime, Requests: reflector.QuestionsPrefix, MaxRequests: mostQuestions,
		Take: p.take, Log: p.log,
	})
	return p, nil
}

// Report makes s what is said. It returns at once.
func (p *Publisher) Report(s reflector.Status) {
	p.change(func() { p.keys[p.Key()] = string(s.Encode()) })
}

// change changes what is wanted in etcd. Until a status is known nothing there is touched.
func (p *Publisher) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	if _, known := p.keys[p.Key()]; known {
		p.exchange.Want(p.keys)
	}
}

// Key is where the status is.
func (p *Publisher) Key() string { return reflector.StatusKey(p.node) }

// Status says how the keys stand in etcd.
func (p *Publisher) Status() etcd.ExchangeStatus { return p.exchange.Status() }

// Run publishes and answers until ctx ends. Then nothing is left in etcd.
func (p *Publisher) Run(ctx context.Context) error {
	var answering sync.WaitGroup
	defer answering.Wait()
	answering.Go(func() { p.answer(ctx) })
	return p.exchange.Run(ctx)
}
