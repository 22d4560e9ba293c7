// Package lastgood keeps the last good snapshot of Calico's data on disk, so that an agent which starts while etcd is away, or locked for a
// migration, comes up with it: otherwise the node would be lost to the others once their restart time is over. It stands between the
// datastore and the agent and hands every snapshot on. It does not know where snapshots come from, and what they mean is internal/calico's.
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
)

const (
	// patience is how long the datastore may take before the file is used instead.
	patience = 5 * time.Second
	// writeDelay is how long a snapshot waits for others that make it needless to write it.
	writeDelay = time.Second
	// writeCost bounds the share of its time that the disk is kept busy, since files of large clusters are long: the pause is so many times what the
	// last write took, up to maxPause.
	writeCost = 50
	maxPause  = time.Minute
	// retryAfter is how long what could not be written, or is newer, waits at least.
	retryAfter = 10 * time.Second
)

// Keeper hands snapshots on and keeps the newest on disk. Run does the work; the other methods may be called from any goroutine.
type Keeper struct {
	path   string
	reader reader
	in     <-chan *calico.Snapshot
	log    *slog.Logger
	out    chan *calico.Snapshot

	mu     sync.Mutex
	status Status
	newest *calico.Snapshot // that is to be written
}

// Status is how the Keeper stands.
type Status struct {
	// Stale: what was handed out last comes from the file.
	Stale bool
	// AsOf is when the snapshot in use was current: the file's time while Stale, else zero.
	AsOf time.Time
	// Problem says why there was no usable file at the start, or why it cannot be written now.
	Problem string
	// Behind: the newest snapshot that is fit to be kept is not on disk yet.
	Behind bool
}

// New returns the Keeper of a node for the snapshots that come from in, which have what needs says. Its file is in dir, which exists.
func New(dir, node string, needs calico.Needs, in <-chan *calico.Snapshot, log *slog.Logger) *Keeper {
	return &Keeper{
		path: filepath.Join(dir, "snapshot.json"), reader: reader{node, needs}, in: in, log: log.With("component", "last good snapshot"),
		out: make(chan *calico.Snapshot, 1),
	}
}

// Snapshots delivers the newest snapshot; only that is kept for a slow reader, but a locked datastore's comes after what the reader is to go on
// with meanwhile. There is one reader. The channel is never closed.
func (k *Keeper) Snapshots() <-chan *calico.Snapshot { return k.out }

// Status returns how the Keeper stands now.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// Run hands on until ctx ends, and then returns nil. It is called once.
func (k *Keeper) Run(ctx context.Context) error {
	newest := make(chan *calico.Snapshot, 1)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer close(newest)
	writing.Go(func() { k.keep(newest) })

	late := time.NewTimer(patience)
	defer late.Stop()
	var locked *calico.Snapshot        // what a locked datastore had last (datastoreReady: false)
	var behind chan<- *calico.Snapshot // out, while that waits for the reader to take what came before
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
			if s.DatastoreNotReady {
				if first {
					k.useFile("it is locked (datastoreReady: false)")
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
			put(k.out, s)
		}
	}
}

// put makes s the newest of a channel of size one that has no other sender.
func put(c chan *calico.Snapshot, s *calico.Snapshot) {
	select {
	case <-c:
	default:
	}
	c <- s
}

// useFile hands out what the file holds, since the datastore has nothing to start from, and why.
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
	k.log.Warn("starting from the last good snapshot, not from the datastore: "+why, "written", written, "revision", s.Revision)
	k.note(func(st *Status) { st.Stale, st.AsOf = true, written })
	put(k.out, s)
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

// save writes s and reports whether it could. Without a file the agent works as well: it is a problem to be shown, not an error.
func (k *Keeper) save(s *calico.Snapshot) bool {
	content, err := encode(k.reader, s, time.Now())
	if err == nil {
		err = write(k.path, content)
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
