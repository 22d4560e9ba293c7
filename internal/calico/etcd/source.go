// Package etcd reads Calico's data from etcd v3 and publishes it as snapshots: it lists every kind once at one revision, then
// watches from the next one. It owns the connection, the retries and the cache behind the snapshots. It writes nothing of Calico's, and it
// does not know what the data mean: decoding is internal/calico's. A Publisher keeps what a node says about itself, outside of Calico's keys.
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

// Source delivers snapshots of Calico's data as one node needs it. Run does the work; Snapshots and Status may be used from
// any goroutine, before and during Run.
type Source struct {
	cfg    Config
	client clientv3.Config
	node   string
	needs  calico.Needs
	log    *slog.Logger

	out chan *calico.Snapshot

	probeEvery, returnTime time.Duration

	// Of Run's goroutine:
	named    map[string]string // problems that were logged, by key
	lastCode codes.Code        // of the last error while not connected

	mu     sync.Mutex
	status Status
}

// Status is how the source stands, for people and metrics.
type Status struct {
	Endpoints []string
	// Connected: the last exchange with etcd went well, and the watches run.
	Connected bool
	// Synced: a snapshot has been published; from then on there always is one, also while etcd is away.
	Synced bool
	// Revision is the newest revision of etcd that the newest snapshot takes into account.
	Revision int64
	// LastContact is when etcd last said anything; zero if never. What was published is at most that old while Connected.
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

// New checks cfg and returns the source for the node called node. It does not connect. Its errors are one sentence about cfg.
func New(cfg Config, node string, log *slog.Logger) (*Source, error) {
	return NewFor(cfg, node, calico.Needs{}, log)
}

// NewFor is New for a node that reads other keys than a node with BGP does.
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

// Snapshots delivers the newest snapshot: the first once every kind of data has been listed, then one after each burst of
// changes. Only the newest is kept for a slow reader. There is one reader. The channel is never closed.
func (s *Source) Snapshots() <-chan *calico.Snapshot { return s.out }

// Status returns how the source stands now.
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
