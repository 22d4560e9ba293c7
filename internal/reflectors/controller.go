package reflectors

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/kubernetes"
)

// leadTime is how long a controller that was killed still leads.
const leadTime = 15 * time.Second

// ControllerConfig says who controls.
type ControllerConfig struct {
	Etcd etcd.Config
	// Datastore is the Kubernetes datastore; nil: it is etcd.
	Datastore *KubernetesConfig
	Name      string // of this controller, for people
	Version   string // that agents must have
	// Kubernetes are the Nodes that count, which somebody else runs; nil: none do.
	Kubernetes *kubernetes.Nodes
	Log        *slog.Logger
}

// Controller moves a cluster to route reflectors or back, as the goal in the datastore says. Of
// several controllers one leads; the others wait. Run does the work.
type Controller struct {
	store         store
	name, version string
	log           *slog.Logger
	kubernetes    *kubernetes.Nodes // nil: not consulted
	birdPatience  time.Duration
	// watched is called with a term and may replace it.
	watched func(term) term

	mu     sync.Mutex // guards status
	status ControllerStatus
}

// ControllerStatus is how a Controller stands.
type ControllerStatus struct {
	Connected bool // to the datastore
	Leads     bool
	Problem   string // why it is not connected
	State     State  // what it last told, if it leads
	Steps     int    // that it has taken
	Undone    bool   // the goal is given up, since a gate stayed shut
	// Waiting is since when it has waited before its next step; zero: it has none to take.
	Waiting time.Time
}

// State is what a controller tells people, in etcd as the value of its key in the election.
type State struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Leads   bool   `json:"leads"`
	// Goal is the revision of the goal that the rest is about.
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
	log := c.Log.With("component", "controller")
	var store store
	if c.Datastore != nil {
		store = newKubeStore(*c.Datastore, c.Log)
	} else {
		s, err := newEtcdStore(c.Etcd, "to read and write what a reflector controller does; "+
			"docs/security.md lists it")
		if err != nil {
			return nil, err
		}
		store = s
	}
	return &Controller{
		store: store, name: c.Name, version: c.Version,
		kubernetes: c.Kubernetes, birdPatience: birdPatience,
		log: log,
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

// Run controls until ctx ends, and returns nil. It waits for an absent datastore. At the end it
// hands over to another controller at once.
func (c *Controller) Run(ctx context.Context) error {
	c.store.compete(ctx, c)
	return nil
}

// failed notes why this controller neither leads nor waits for that.
func (c *Controller) failed(why string) {
	if was := c.Status(); was.Problem != why || was.Connected {
		c.log.Warn("not connected to "+c.store.String()+", trying again", "err", why)
	}
	c.update(func(s *ControllerStatus) {
		*s = ControllerStatus{Problem: why, Steps: s.Steps}
	})
}

// waits notes that this controller is connected, and waits to lead.
func (c *Controller) waits() {
	c.update(func(s *ControllerStatus) { s.Connected, s.Problem = true, "" })
	c.log.Info("waiting to lead")
}

// leads works while this controller leads, until an error.
func (c *Controller) leads(ctx context.Context, t term) error {
	c.log.Info("leading")
	l := &leader{
		Controller: c, term: t, began: time.Now(), state: c.state(),
		lost: map[string]time.Time{}, birds: birds{patience: c.birdPatience},
	}
	if c.watched != nil {
		l.term = c.watched(t)
	}
	l.state.Leads = true
	defer c.update(func(s *ControllerStatus) { s.Leads = false })
	return fmt.Errorf("leading: %w", l.lead(ctx))
}

// state is what a controller tells that waits to lead.
func (c *Controller) state() State { return State{Name: c.name, Version: c.version} }
