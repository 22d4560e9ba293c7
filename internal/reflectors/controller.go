package reflectors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/kubernetes"
)

const (
	// leadTime is how long a controller that was killed still leads.
	leadTime = 15 * time.Second
	// requestTimeout is for a request of a few keys.
	requestTimeout = 5 * time.Second
	// endTimeout is what the end of a process may wait for an etcd that is away.
	endTimeout = time.Second
)

var (
	errLeaseLost = errors.New("the lease of this controller has ended")
	errLeadLost  = errors.New("this controller leads no more: its key is gone")
)

// ControllerConfig says who controls.
type ControllerConfig struct {
	Etcd    etcd.Config
	Name    string // of this controller, for people
	Version string // that agents must have
	// Kubernetes are the Nodes that count, which somebody else runs; nil: none do.
	Kubernetes *kubernetes.Nodes
	Log        *slog.Logger
}

// Controller moves a cluster to route reflectors or back, as the goal in etcd says. Of several
// controllers one leads; the others wait. Run does the work.
type Controller struct {
	client        *etcd.Client
	name, version string
	log           *slog.Logger
	leadTime      time.Duration
	kubernetes    *kubernetes.Nodes // nil: not consulted
	birdPatience  time.Duration
	// watched is called with a connection and may replace what writes and reads through it.
	watched func(clientv3.KV) clientv3.KV

	lease clientv3.LeaseID // of the last attempt; owned by Run's goroutine

	mu     sync.Mutex // guards status
	status ControllerStatus
}

// ControllerStatus is how a Controller stands.
type ControllerStatus struct {
	Connected bool // to etcd
	Leads     bool
	Problem   string // why it is not connected
	State     State  // what it last told, if it leads
	Steps     int    // that it has taken
	Undone    bool   // the goal is given up, since a gate stayed shut
	// Waiting is since when it has waited before its next step; zero: it has none to take.
	Waiting time.Time
}

// State is what a controller tells in etcd, as the value of its key in the election.
type State struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Leads   bool   `json:"leads"`
	// Goal is etcd's revision of the goal that the rest is about.
	Goal int64 `json:"goal,omitempty"`
	// One of these is set if it leads: what is reached, or what is waited for.
	Done  string `json:"done,omitempty"`
	Waits string `json:"waits,omitempty"`
	// Person: only a person can change what is waited for.
	Person bool `json:"person,omitempty"`
	// Last is the last step that it took, at LastAt.
	Last    string    `json:"last,omitempty"`
	LastAt  time.Time `json:"lastAt,omitzero"`
	Problem string    `json:"problem,omitempty"`
	// Kubernetes says why its Nodes do not count; empty: they do, or none is consulted.
	Kubernetes string `json:"kubernetes,omitempty"`

	key     string
	created int64 // etcd's revision
	leased  bool  // as all keys of controllers are
}

// NewController checks c. It does not connect.
func NewController(c ControllerConfig) (*Controller, error) {
	client, err := etcd.NewClient(c.Etcd, "to read and write what a reflector controller does; "+
		"docs/security.md lists it")
	if err != nil {
		return nil, err
	}
	return &Controller{
		client: client, name: c.Name, version: c.Version, leadTime: leadTime,
		kubernetes: c.Kubernetes, birdPatience: birdPatience,
		log: c.Log.With("component", "controller"),
	}, nil
}

// Status returns the current status.
func (c *Controller) Status() ControllerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *Controller) update(change func(*ControllerStatus)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.status)
}

// Run controls until ctx ends, and returns nil. It waits for an absent etcd. At the end it hands
// over to another controller at once.
func (c *Controller) Run(ctx context.Context) error {
	c.client.Run(ctx, etcd.LastRetry, c.attempt, c.failed)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if c.lease != clientv3.NoLease {
		if err := c.client.Once(end, c.revoke); err != nil {
			c.log.Warn("no other controller leads until our lease ends", "ttl", c.leadTime,
				"err", c.client.Explain(err))
		}
	}
	return nil
}

// revoke ends the lease of the last attempt, and with it what that has put.
func (c *Controller) revoke(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := client.Revoke(ctx, c.lease)
	return err
}

func (c *Controller) failed(err error) {
	why := c.client.Explain(err)
	if was := c.Status(); was.Problem != why || was.Connected {
		c.log.Warn("not connected to etcd, trying again", "err", why)
	}
	c.update(func(s *ControllerStatus) {
		*s = ControllerStatus{Problem: why, Steps: s.Steps}
	})
}

// attempt waits to lead, and leads, until an error.
func (c *Controller) attempt(ctx context.Context, client *clientv3.Client) error {
	if c.lease != clientv3.NoLease {
		_ = c.revoke(ctx, client) // or it ends by itself
		c.lease = clientv3.NoLease
	}
	granted, err := func() (*clientv3.LeaseGrantResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return client.Grant(ctx, int64(c.leadTime/time.Second))
	}()
	if err != nil {
		return err
	}
	c.lease = granted.ID
	inHistory, end := context.WithCancelCause(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer end(nil)
	seen := newHistory(granted.ResponseHeader)
	following.Go(func() {
		if seen.ends(inHistory, client, c.lease) {
			end(errNoSuchHistory)
		}
	})
	session, err := concurrency.NewSession(client, concurrency.WithLease(c.lease),
		concurrency.WithContext(inHistory))
	if err != nil {
		return err
	}
	defer session.Orphan()
	c.update(func(s *ControllerStatus) { s.Connected, s.Problem = true, "" })
	err = c.leadInTurn(session, client, seen)
	switch {
	case errors.Is(context.Cause(inHistory), errNoSuchHistory):
		return errNoSuchHistory
	case session.Ctx().Err() != nil && ctx.Err() == nil:
		return errLeaseLost
	}
	return err
}

// leadInTurn waits until all older controllers have gone, and then leads.
func (c *Controller) leadInTurn(session *concurrency.Session, client *clientv3.Client,
	seen *history) error {
	ctx := session.Ctx() // it ends with the lease
	election := concurrency.NewElection(session, reflector.LeaderPrefix)
	c.log.Info("waiting to lead")
	state := State{Name: c.name, Version: c.version}
	if err := election.Campaign(ctx, state.encode()); err != nil {
		return err
	}
	c.log.Info("leading")
	l := &leader{
		Controller: c, client: client, kv: client.KV, lease: session.Lease(),
		key: election.Key(), created: election.Rev(), began: time.Now(), state: state, seen: seen,
		lost: map[string]time.Time{}, birds: birds{patience: c.birdPatience},
	}
	if c.watched != nil {
		l.kv = c.watched(l.kv)
	}
	l.state.Leads = true
	defer c.update(func(s *ControllerStatus) { s.Leads = false })
	return fmt.Errorf("leading: %w", l.lead(ctx))
}
