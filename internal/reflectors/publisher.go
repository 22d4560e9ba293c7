// Package reflectors is how agents and the controller of route reflectors talk to each other
// through etcd. bgp/reflector has what they say, and decides.
package reflectors

import (
	"context"
	"log/slog"
	"maps"
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
	Log  *slog.Logger
}

// Publisher keeps in etcd what the agent of a node says. Run does the work.
type Publisher struct {
	exchange *etcd.Exchange
	node     string

	mu   sync.Mutex        // guards what follows
	keys map[string]string // that are wanted in etcd
}

// NewPublisher checks c. It does not connect.
func NewPublisher(c PublisherConfig) (*Publisher, error) {
	own := reflector.OwnPrefix(c.Node)
	client, err := etcd.NewClient(c.Etcd, "to write under "+own+" and to read under "+
		reflector.QuestionsPrefix)
	if err != nil {
		return nil, err
	}
	p := &Publisher{node: c.Node, keys: map[string]string{}}
	p.exchange = etcd.NewExchange(client, etcd.ExchangeConfig{
		Own: own, TTL: leaseTime, Requests: reflector.QuestionsPrefix,
		Take: func([]etcd.Request) {}, Log: c.Log.With("component", "report"),
	})
	return p, nil
}

// Report makes s what is said. It returns at once.
func (p *Publisher) Report(s reflector.Status) {
	p.want(func() { p.keys[reflector.StatusKey(p.node)] = string(s.Encode()) })
}

// want changes what is wanted in etcd, once the agent has reported something.
func (p *Publisher) want(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.exchange.Want(maps.Clone(p.keys))
}

// Key is where the status is.
func (p *Publisher) Key() string { return reflector.StatusKey(p.node) }

// Status says how the keys stand in etcd.
func (p *Publisher) Status() etcd.ExchangeStatus { return p.exchange.Status() }

// Run publishes until ctx ends. Then nothing is left in etcd.
func (p *Publisher) Run(ctx context.Context) error { return p.exchange.Run(ctx) }
