// Package grpc is the source of external configuration whose clients call the agent, with the
// services of Ligato and Contiv. Each client is a source of its own. A call is one transaction: it
// is on disk before it is applied, and the call returns when the data plane has answered for its
// items. What the items mean is internal/external's.
package grpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"vpp-route-agent/internal/external"
)

// Name is what --external calls the source, and that of the client that names none.
const Name = "grpc"

// Config says where things are.
type Config struct {
	// StateDir has the journal of what clients want.
	StateDir string
	// Linux: the data plane is the kernel.
	Linux bool
	Log   *slog.Logger
}

// Source implements external.Adapter for all clients.
type Source struct {
	log     *slog.Logger
	out     chan external.Snapshot
	running context.Context // ends with Run
	end     context.CancelFunc

	writing sync.Mutex // guards journal; held while writing to disk, and locked before mu
	journal journal

	notifications *notifications
	limits        use // of a client

	mu       sync.Mutex // guards what follows
	store    *store     // who changes it holds writing, too
	answer   *answer
	answered chan struct{} // closed when answer is replaced
	problem  string        // with the journal; "": there is none
}

// Status is how the source itself stands.
type Status struct {
	Txn int64 // the last transaction
	// Observed is the last for which clients have been answered.
	Observed int64
	Synced   bool   // what the clients want is known
	Problem  string // why what clients want is not kept on disk, or was not found there
}

// answer is how the items of all clients stand.
type answer struct {
	external.Answer
	byItem func() map[itemID]*external.Verdict
}

type itemID struct{ source, key string }

// New reads what clients wanted when the last agent ended. A journal that cannot be used is set
// aside: nothing is deleted then until a client says all that it wants.
func New(c Config) *Source {
	s := &Source{
		log: c.Log.With("component", "external", "source", Name), store: newStore(),
		out: make(chan external.Snapshot, 1), answered: make(chan struct{}),
		notifications: newNotifications(c.Linux), limits: defaultLimits,
		journal: journal{path: filepath.Join(c.StateDir, "external-grpc.journal")},
	}
	s.running, s.end = context.WithCancel(context.Background())
	records, err := readJournal(s.journal.path)
	if err != nil {
		s.setAside(err)
	} else if s.store.replay(records); !s.store.spoken {
		s.report(s.journal.path + " was lost: " + untilResync)
	}
	if err := s.rewrite(); err != nil {
		s.journal.err = err
		s.report(fmt.Sprintf("%s: %v", s.journal.path, err))
	}
	for id := range s.store.unread {
		if item := s.store.sources[id.source][id.key]; item.Key != "" && item.Message == nil {
			s.log.Warn("an item that an earlier run has kept cannot be read", "of", id.source,
				"key", id.key, "err", item.Problem.Detail)
		}
	}
	s.publish()
	return s
}

// setAside keeps a journal that cannot be used, for people.
func (s *Source) setAside(why error) {
	s.store = newStore()
	s.store.spoken = false
	aside := s.journal.path + ".damaged"
	if err := os.Rename(s.journal.path, aside); err != nil {
		why = errors.Join(why, err)
	}
	s.report(fmt.Sprintf("%v; it is kept as %s: %s", why, filepath.Base(aside), untilResync))
}

const untilResync = "nothing is deleted until a client says all that it wants"

// report says a new problem with the journal; "": there is none any more.
func (s *Source) report(problem string) {
	s.mu.Lock()
	was := s.problem
	s.problem = problem
	s.mu.Unlock()
	if problem != "" && problem != was {
		s.log.Error("what clients want is not kept on disk", "err", problem)
	}
}

// Status returns the current status.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{Txn: s.store.txn, Synced: s.store.spoken, Problem: s.problem}
	if s.answer != nil {
		out.Observed = s.answer.Revision
	}
	return out
}

// Name implements external.Adapter.
func (s *Source) Name() string { return Name }

// Snapshots implements external.Adapter.
func (s *Source) Snapshots() <-chan external.Snapshot { return s.out }

// Answer implements external.Adapter.
func (s *Source) Answer(a external.Answer) {
	if a.Away == "" {
		s.notifications.take(a.Interfaces)
	}
	next := &answer{Answer: a, byItem: sync.OnceValue(func() map[itemID]*external.Verdict {
		all := make(map[itemID]*external.Verdict, len(a.Verdicts))
		for i := range a.Verdicts {
			v := &a.Verdicts[i]
			all[itemID{v.Source, v.Key}] = v
		}
		return all
	})}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.answered)
	s.answer, s.answered = next, make(chan struct{})
}

// Run works until ctx ends and returns nil. It does not wait for a disk that stalls.
func (s *Source) Run(ctx context.Context) error {
	<-ctx.Done()
	s.end()
	return nil
}

// Items returns what a source wants, by key; the map is not to be changed.
func (s *Source) Items(source string) map[string]external.Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.sources[source]
}

// rewrite shortens the journal to what the store has. The caller holds writing, or nobody else
// has s.
func (s *Source) rewrite() error {
	records, err := s.store.records()
	if err == nil {
		err = s.journal.rewrite(records)
	}
	return err
}

// write keeps a record on disk and applies it.
func (s *Source) write(r record, items []external.Item) error {
	if err := s.keep(r); err != nil {
		s.report(err.Error())
		return err
	}
	s.mu.Lock()
	s.store.apply(r, items)
	spoken := s.store.spoken
	s.mu.Unlock()
	if spoken {
		s.report("")
	}
	return nil
}

func (s *Source) keep(r record) error {
	if s.journal.file == nil {
		if err := s.rewrite(); err != nil {
			return err
		}
	}
	return s.journal.append(r)
}

// shorten rewrites a journal that has become long. That is done when a change has been answered, so
// that neither the data plane nor its client waits for the disk. Without success the journal stays
// as it is.
func (s *Source) shorten() {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.journal.isLong() && len(s.store.open) == 0 {
		_ = s.rewrite()
	}
}

// publish passes on what all clients want, in place of what was not read yet. The caller holds
// writing.
func (s *Source) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.out:
	default:
	}
	s.out <- s.store.snapshot()
}
