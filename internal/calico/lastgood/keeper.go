// Package lastgood keeps the last good snapshot of Calico's data on disk. An agent that starts
// while etcd is down, locked or empty uses it; otherwise the other nodes would drop its routes
// after their restart time. It passes snapshots from the datastore to the agent, and knows of what
// they mean only whether they can be used.
package lastgood

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/durable"
)

const (
	// patience is how long to wait for the datastore before the file is used.
	patience = 5 * time.Second
	// writeDelay is how long a snapshot waits for newer ones before it is written.
	writeDelay = time.Second
	// writeCost bounds the load on the disk, since a large cluster's file is large: the pause is
	// this multiple of the last write's duration, at most maxPause.
	writeCost = 50
	maxPause  = time.Minute
	// retryAfter is the minimum pause after a failed write, or before a newer snapshot is written.
	retryAfter = 10 * time.Second
)

// Keeper passes snapshots on and keeps the newest on disk. Run does the work. All other methods are
// safe for concurrent use.
type Keeper struct {
	path   string
	reader reader
	in     <-chan *calico.Snapshot
	log    *slog.Logger
	out    chan *calico.Snapshot
	// informed: the datastore, or the file that is in use, had a ClusterInformation.
	informed bool

	mu     sync.Mutex
	status Status
	newest *calico.Snapshot // that is to be written
}

// Status is the state of the Keeper.
type Status struct {
	// Stale: the current snapshot comes from the file.
	Stale bool
	// AsOf is the file's time while Stale, else zero.
	AsOf time.Time
	// Problem says why the file was unusable at the start, or cannot be written.
	Problem string
	// Behind: the newest good snapshot is not on disk yet.
	Behind bool
}

// New returns a node's Keeper for the snapshots from in, which hold what needs says. The file is in
// the existing directory dir.
func New(dir, node string, needs calico.Needs, in <-chan *calico.Snapshot,
	log *slog.Logger) *Keeper {
	return &Keeper{
		path: pathIn(dir), reader: reader{node, needs}, in: in,
		log: log.With("component", "last good snapshot"),
		out: make(chan *calico.Snapshot, 1),
	}
}

func pathIn(dir string) string { return filepath.Join(dir, "snapshot.json") }

// Read returns the snapshot that a Keeper left in dir. fs.ErrNotExist: there is none.
func Read(dir, node string, needs calico.Needs) (*calico.Snapshot, error) {
	s, _, err := read(pathIn(dir), reader{node, needs})
	return s, err
}

// Snapshots delivers the newest snapshot, or that of a locked datastore after the one to use in the
// meantime. There is one reader. The channel is never closed.
func (k *Keeper) Snapshots() <-chan *calico.Snapshot { return k.out }

// Status returns the current status.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// Run passes snapshots on until ctx ends and returns nil. It waits for the disk to read the file,
// where the datastore cannot be used or has no ClusterInformation, and never to write it. Call it
// once.
func (k *Keeper) Run(ctx context.Context) error {
	newest := make(chan *calico.Snapshot, 1)
	var writing sync.WaitGroup
	defer func() { durable.AtTheEnd(writing.Wait) }()
	defer close(newest)
	writing.Go(func() { k.keep(newest) })

	late := time.NewTimer(patience)
	defer late.Stop()
	var locked *calico.Snapshot // what a locked datastore had last
	// out, while locked waits for the reader to take the previous snapshot
	var behind chan<- *calico.Snapshot
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-late.C:
			k.useFile("it does not answer")
		case behind <- locked:
			behind = nil
		case s := <-k.in:
			first := late.Stop()
			s = k.noticeLoss(s, first)
			if why := s.Locked(); why != "" {
				if first {
					k.useFile(why)
				}
				locked, behind = s, k.out
				continue
			}
			k.fresh()
			if k.reader.good(s) {
				k.expect(s)
				put(newest, s)
			}
			behind = nil
			calico.Deliver(k.out, s)
		}
	}
}

// noticeLoss returns s, as locked if it lacks the ClusterInformation that there was: etcd came back
// empty, for instance. Felix changes nothing then either (felix/calc/config_batcher.go).
func (k *Keeper) noticeLoss(s *calico.Snapshot, first bool) *calico.Snapshot {
	if s.ClusterInformation {
		k.informed = true
		return s
	}
	if first {
		file, _, err := read(k.path, k.reader)
		k.informed = err == nil && file.ClusterInformation
	}
	if !k.informed {
		return s
	}
	lost := *s
	lost.DatastoreNotReady = true
	return &lost
}

// put makes s the newest value of a channel of size one with no other sender.
func put(c chan *calico.Snapshot, s *calico.Snapshot) {
	select {
	case <-c:
	default:
	}
	c <- s
}

// useFile publishes the file's snapshot, since the datastore has none, and logs why.
func (k *Keeper) useFile(why string) {
	s, written, err := read(k.path, k.reader)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // the first start of a node
	case err != nil:
		k.log.Warn("there is no last good snapshot to start from", "err", err)
		k.note(func(st *Status) { st.Problem = err.Error() })
		return
	}
	k.log.Warn("starting from the last good snapshot, not from the datastore: "+why, "written",
		written, "revision", s.Revision)
	k.informed = k.informed || s.ClusterInformation
	k.note(func(st *Status) { st.Stale, st.AsOf = true, written })
	calico.Deliver(k.out, s)
}

// expect notes that s is to be written.
func (k *Keeper) expect(s *calico.Snapshot) {
	k.note(func(st *Status) { k.newest, st.Behind = s, true })
}

// fresh notes that the datastore has delivered what can be used.
func (k *Keeper) fresh() {
	was := false
	k.note(func(st *Status) {
		was = st.Stale
		st.Stale, st.AsOf = false, time.Time{}
	})
	if was {
		k.log.Info("the datastore's own data replace the last good snapshot")
	}
}

// keep writes what comes, at its own pace, and what is left when newest is closed.
func (k *Keeper) keep(newest <-chan *calico.Snapshot) {
	var pending *calico.Snapshot
	var earliest time.Time
	timer := time.NewTimer(0)
	timer.Stop()
	for {
		select {
		case s, open := <-newest:
			if !open {
				if pending != nil {
					k.save(pending)
				}
				return
			}
			if pending == nil {
				timer.Reset(max(writeDelay, time.Until(earliest)))
			}
			pending = s
		case <-timer.C:
			began := time.Now()
			written := k.save(pending)
			rest := pause(time.Since(began))
			if !written {
				timer.Reset(max(rest, retryAfter))
				continue
			}
			pending = nil
			earliest = time.Now().Add(rest)
		}
	}
}

// pause is how long nothing is written after a write that took so long.
func pause(took time.Duration) time.Duration { return min(writeCost*took, maxPause) }

// save writes s and reports whether it could. Without a file the agent works as well: it is a
// problem to be shown, not an error.
func (k *Keeper) save(s *calico.Snapshot) bool {
	content, err := encode(k.reader, s, time.Now())
	if err == nil {
		err = durable.WriteFile(k.path, content)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	was := ""
	k.note(func(st *Status) {
		was, st.Problem = st.Problem, text
		st.Behind = err != nil || k.newest != s
	})
	if err != nil && was != text {
		k.log.Warn("the last good snapshot cannot be kept", "err", err)
	}
	return err == nil
}

func (k *Keeper) note(change func(*Status)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.status)
}
