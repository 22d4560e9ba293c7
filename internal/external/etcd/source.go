// Package etcd is the source of external configuration that clients write to etcd: one key for each
// item, in Ligato's form. It reads the keys of one node, keeps a copy of them on disk for a start
// without etcd, and writes back how each item stands. What the items mean is internal/external's.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
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

	store *store // of the follower's goroutine

	mu     sync.Mutex // guards what follows
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
		store: newStore(base),
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
func (s *Source) Answer(a external.Answer) { s.answers.set(a) }

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
	kept, asOf, err := s.copy.read()
	if err != nil {
		s.log.Warn("the copy of external configuration on disk cannot be used", "err", err)
	}
	if kept != nil {
		s.store.restore(kept)
		late := time.AfterFunc(patience, func() { s.useCopy(s.store.kept, asOf) })
		defer late.Stop()
	}
	return s.follower.Run(ctx)
}

// useCopy publishes what is on disk, unless etcd has answered.
func (s *Source) useCopy(kept external.Snapshot, asOf time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.follower.Status().Synced {
		return
	}
	s.status.Stale, s.status.AsOf = true, asOf
	s.log.Warn("starting from the copy on disk, since etcd does not answer", "written", asOf,
		"items", len(kept.Sources[0].Items))
	s.put(kept)
}

// publish passes on what the follower has read.
func (s *Source) publish(p etcd.Published) {
	state := s.store.state(p.Revision, p.Lists)
	s.copy.keep(p.Revision, s.store.values)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Stale, s.status.AsOf = false, time.Time{}
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

// store is what was read, as a Follower fills it.
type store struct {
	base    string
	values  map[string]value         // by key without base
	items   map[string]external.Item // the same
	changed bool
	touched map[string]bool   // since the last state: their values changed
	listed  map[string]bool   // since BeginList; nil: no list is under way
	kept    external.Snapshot // from disk

	groups map[string]*group
	staged bool // groups are to be looked at

	resync   string // the newest request
	resynced string // the newest that is done
	relist   func()
}

// value is the text of a key, and the last that was accepted, if that is another one.
type value struct {
	Text string `json:"text"`
	Good string `json:"good,omitempty"`
	// Group is where the item comes from; "": it has a key of its own.
	Group string `json:"group,omitempty"`
}

func newStore(base string) *store {
	return &store{base: base, values: map[string]value{}, items: map[string]external.Item{},
		touched: map[string]bool{}, groups: map[string]*group{}}
}

// restore takes what was kept on disk, which the first list replaces.
func (s *store) restore(k *kept) {
	for key, v := range k.Items {
		item := external.DecodeJSON(key, []byte(v.Good), external.Item{})
		if v.Good == "" {
			item = external.Item{}
		}
		item = external.DecodeJSON(key, []byte(v.Text), item)
		item.Revision = k.Revision
		s.values[key], s.items[key] = v, item
		if v.Group != "" {
			g := s.group(v.Group)
			if g.active == nil {
				g.active = map[string]string{}
			}
			g.active[key] = v.Text
		}
	}
	s.kept = external.Snapshot{Sources: sources(maps.Clone(s.items)), Revision: k.Revision}
}

// Ranges implements etcd.Data.
func (s *store) Ranges() (all []etcd.Range) {
	for _, p := range append(external.KeyPrefixes(), stagingDir) {
		all = append(all, etcd.Range{Prefix: s.base + p})
	}
	return append(all, etcd.Range{Prefix: s.base + resyncName, Exact: true})
}

// Put implements etcd.Data.
func (s *store) Put(key string, text []byte) {
	key = strings.TrimPrefix(key, s.base)
	if key == resyncName {
		if s.listed == nil && s.resync != string(text) {
			s.relist()
		}
		s.resync = string(text)
		return
	}
	s.changed = true
	if s.listed != nil {
		s.listed[key] = true
	}
	if name, item, ok := stagingKey(key); ok {
		s.stage(name, item, string(text))
		return
	}
	s.set(key, string(text), "")
}

// set takes the text of an item.
func (s *store) set(key, text, group string) {
	before, known := s.values[key]
	if known && before.Text == text && before.Group == group {
		return
	}
	item := external.DecodeJSON(key, []byte(text), s.items[key])
	now := value{Text: text, Group: group}
	if item.Problem != (external.Problem{}) && item.Message != nil {
		if now.Good = before.Good; now.Good == "" {
			now.Good = before.Text
		}
	}
	s.values[key], s.items[key], s.touched[key] = now, item, true
}

// Delete implements etcd.Data.
func (s *store) Delete(key string) {
	key = strings.TrimPrefix(key, s.base)
	if key == resyncName {
		s.resync = ""
		return
	}
	s.changed = true
	if name, item, ok := stagingKey(key); ok {
		s.stage(name, item, "")
		return
	}
	s.forget(key)
	s.staged = s.staged || len(s.groups) > 0 // which may have it, too
}

func (s *store) forget(key string) {
	delete(s.values, key)
	delete(s.items, key)
	delete(s.touched, key)
}

// BeginList implements etcd.Data.
func (s *store) BeginList() { s.listed = map[string]bool{} }

// EndList implements etcd.Data.
func (s *store) EndList(prefixes ...string) {
	for key, v := range s.values {
		for _, p := range prefixes {
			if strings.HasPrefix(s.base+key, p) && !s.listed[key] && v.Group == "" {
				s.Delete(key)
			}
		}
	}
	if slices.Contains(prefixes, s.base+stagingDir) {
		s.dropUnlisted()
	}
	s.listed, s.resynced = nil, s.resync
}

// Changed implements etcd.Data. A change that sets what was there counts too: its client waits for
// an answer with its revision.
func (s *store) Changed() bool { return s.changed }

// state is all that the node's clients want.
func (s *store) state(revision int64, lists int) external.Snapshot {
	if s.staged {
		s.applyGroups()
	}
	for key := range s.touched {
		item := s.items[key]
		item.Revision = revision
		s.items[key] = item
	}
	clear(s.touched)
	s.changed = false
	items := maps.Clone(s.items)
	s.badCommits(items, revision)
	return external.Snapshot{
		Sources: sources(items), List: lists, Complete: true, Revision: revision,
		Resync: s.resynced,
	}
}

func sources(items map[string]external.Item) []external.Source {
	return []external.Source{{Name: Name, Items: items}}
}

// CheckPrefix refuses a prefix of keys that is none.
func CheckPrefix(prefix string) error {
	if !strings.HasPrefix(prefix, "/") || !strings.HasSuffix(prefix, "/") || len(prefix) < 2 {
		return fmt.Errorf("%q is no prefix of keys: it must begin and end with a slash", prefix)
	}
	return nil
}
