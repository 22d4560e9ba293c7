// Package etcd is the source of external configuration that clients write to etcd: one key for each
// item, in Ligato's form. It reads the keys of one node, keeps a copy of them on disk for a start
// without etcd, and writes back how each item stands. What the items mean is internal/external's.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/external"
)

const (
	// Name is what --external calls the source.
	Name = "etcd"
	// DefaultPrefix begins the keys of all nodes in Ligato and Contiv.
	DefaultPrefix = "/vnf-agent/"
	// resyncName is the key by which a client asks to read everything again; its value is an ID.
	resyncName = "resync"
	// patience is how long to wait for etcd before the copy on disk is used.
	patience = 5 * time.Second
)

// Config says where the configuration is.
type Config struct {
	Etcd   etcd.Config
	Prefix string // of the keys of all nodes, with a slash at its end
	Node   string
	// StateDir has the copy of the last good configuration.
	StateDir string
	Log      *slog.Logger
}

// Source implements external.Adapter. Run does the work.
type Source struct {
	follower *etcd.Follower
	answers  *answers
	copy     *copyOnDisk
	log      *slog.Logger
	out      chan external.Snapshot

	store *store
	heard chan external.Answer // of size one

	mu     sync.Mutex // guards what follows
	listed bool       // what etcd has was published
	status Status
}

// Status is how the source itself stands.
type Status struct {
	etcd.Status
	// Stale: what is in use is the copy on disk, written at AsOf.
	Stale bool
	AsOf  time.Time
	// CopyProblem says why the copy on disk was not usable at the start, or is not written.
	CopyProblem string
	// AnswerProblem says why the state of items is not written to etcd now.
	AnswerProblem string
	// Observed is the revision up to which clients have been answered.
	Observed int64
}

// New checks c. It does not connect. An error is one sentence about c.
func New(c Config) (*Source, error) {
	if c.Node == "" {
		return nil, errors.New("no node name is given")
	}
	base := c.Prefix + c.Node + "/"
	client, err := etcd.NewClient(c.Etcd, "to read and write under "+base)
	if err != nil {
		return nil, err
	}
	log := c.Log.With("component", "external", "source", Name)
	s := &Source{
		answers: newAnswers(client, base, log), log: log, out: make(chan external.Snapshot, 1),
		copy:  newCopy(filepath.Join(c.StateDir, "external-etcd.json"), base, log),
		store: newStore(base), heard: make(chan external.Answer, 1),
	}
	s.follower = etcd.NewFollower(client, s.store, s.publish, log)
	s.store.relist = s.follower.Relist
	return s, nil
}

// Name implements external.Adapter.
func (s *Source) Name() string { return Name }

// Snapshots implements external.Adapter.
func (s *Source) Snapshots() <-chan external.Snapshot { return s.out }

// Answer implements external.Adapter.
func (s *Source) Answer(a external.Answer) {
	select {
	case <-s.heard:
	default:
	}
	s.heard <- a
}

// Status returns the current status.
func (s *Source) Status() Status {
	s.mu.Lock()
	out := s.status
	s.mu.Unlock()
	out.Status = s.follower.Status()
	out.CopyProblem = s.copy.problem()
	out.Observed, out.AnswerProblem = s.answers.state()
	return out
}

// Run reads and answers until ctx ends and returns nil. Call it once.
func (s *Source) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() { s.copy.run(ctx) })
	wait.Go(func() { s.answers.run(ctx) })
	wait.Go(func() { s.listen(ctx) })
	kept, asOf, err := s.copy.read()
	if err != nil {
		s.log.Warn("the copy of external configuration on disk cannot be used", "err", err)
	}
	if kept != nil {
		s.store.restore(kept)
		late := time.AfterFunc(patience, func() { s.useCopy(s.store.restored, asOf) })
		defer late.Stop()
	}
	return s.follower.Run(ctx)
}

// useCopy publishes what is on disk, unless what etcd has was published.
func (s *Source) useCopy(kept external.Snapshot, asOf time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed {
		return
	}
	s.status.Stale, s.status.AsOf = true, asOf
	s.log.Warn("starting from the copy on disk, since etcd does not answer", "written", asOf,
		"items", len(kept.Sources[0].Items))
	s.put(kept)
}

// publish passes on what the follower has read. A transaction is on disk before it is applied: the
// next run is to know what was before.
func (s *Source) publish(p etcd.Published) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.store.lists > 0 && p.Lists > s.store.lists {
		s.answers.readAgain() // etcd may be a restored one
	}
	state := s.store.state(p.Revision, p.Lists)
	s.copy.keep(s.store.kept())
	if s.store.hasOpened() && !s.copy.write() {
		s.store.rollBackAll("it cannot be kept on disk")
		state = s.store.state(p.Revision, p.Lists)
		s.copy.keep(s.store.kept())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed, s.status.Stale, s.status.AsOf = true, false, time.Time{}
	s.put(state)
}

// listen takes answers until ctx ends.
func (s *Source) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-s.heard:
			s.decide(a)
			s.answers.set(unfinished(a))
		}
	}
}

// decide ends transactions for which the data plane has answered. While more is being read, which
// may be half a revision, they wait for the answer to that.
func (s *Source) decide(a external.Answer) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.store.changed || s.store.listed != nil || !s.store.decide(a) {
		return
	}
	state := s.store.state(s.store.revision, s.store.lists)
	s.copy.keep(s.store.kept())
	s.copy.write() // before a client is told; it is tried again if that fails
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(state)
}

// put replaces an unread state. The caller holds mu.
func (s *Source) put(state external.Snapshot) {
	select {
	case <-s.out:
	default:
	}
	s.out <- state
}

// CheckPrefix refuses a prefix of keys that is none.
func CheckPrefix(prefix string) error {
	if !strings.HasPrefix(prefix, "/") || !strings.HasSuffix(prefix, "/") || len(prefix) < 2 {
		return fmt.Errorf("%q is no prefix of keys: it must begin and end with a slash", prefix)
	}
	return nil
}
