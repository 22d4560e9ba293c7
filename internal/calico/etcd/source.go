// Package etcd reads Calico's data from etcd v3 and publishes snapshots. It lists every kind at one
// revision, then watches from the next one. It owns the connection, the retries and the cache. It
// leaves decoding to internal/calico and never writes Calico's keys. A Publisher writes a node's
// own addresses outside of them.
package etcd

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"vpp-route-agent/internal/calico"
)

// Source delivers snapshots of the Calico data that one node needs. Run does the work; Snapshots
// and Status are safe for concurrent use, before and during Run.
type Source struct {
	cfg    Config
	client clientv3.Config
	node   string
	needs  calico.Needs
	log    *slog.Logger

	out chan *calico.Snapshot

	probeEvery, returnTime time.Duration

	// Owned by Run's goroutine:
	named    map[string]string // problems that were logged, by key
	lastCode codes.Code        // of the last error while not connected

	mu     sync.Mutex
	status Status
}

// Status is the state of the source, for people and metrics.
type Status struct {
	Endpoints []string
	// Connected: the last exchange with etcd succeeded, and the watches run.
	Connected bool
	// Synced: a snapshot has been published. It stays true while etcd is down.
	Synced bool
	// Revision is etcd's revision of the newest snapshot.
	Revision int64
	// LastContact is when etcd last answered, zero if never. While Connected, the data is not
	// older.
	LastContact time.Time
	// Error says why Connected is false; empty when it is true.
	Error string
	// Lists counts complete lists: 1 after the start, more after a compaction or a restored etcd.
	Lists int
	// Failures counts attempts (connection, list, watch) that failed.
	Failures int
	// Events counts changes received by watches.
	Events int64
	// Problems is the number of items in the newest snapshot that could not be used.
	Problems int
}

// New checks cfg and returns the source of a node. It does not connect. An error is one sentence
// about cfg.
func New(cfg Config, node string, log *slog.Logger) (*Source, error) {
	return NewFor(cfg, node, calico.Needs{}, log)
}

// NewFor is New for a node that does not read the keys of a BGP node.
func NewFor(cfg Config, node string, needs calico.Needs, log *slog.Logger) (*Source, error) {
	if node == "" {
		return nil, errors.New("no node name is given")
	}
	if err := needs.Check(node); err != nil {
		return nil, err
	}
	client, err := cfg.client()
	if err != nil {
		return nil, err
	}
	return &Source{
		cfg:    cfg,
		client: client,
		node:   node,
		needs:  needs,
		log:    log.With("component", "etcd"),
		out:    make(chan *calico.Snapshot, 1),

		probeEvery: probeInterval, returnTime: returnTime,

		status: Status{Endpoints: slices.Clone(cfg.Endpoints), Error: "not tried yet"},
	}, nil
}

// Snapshots delivers the newest snapshot: the first after every kind was listed, then one after
// each burst of changes. A slow reader gets only the newest. There is one reader. The channel is
// never closed.
func (s *Source) Snapshots() <-chan *calico.Snapshot { return s.out }

// Status returns the current status.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// update changes the status under its lock.
func (s *Source) update(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}
