package recorder

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/mrt"
)

const updatesSuffix = ".mrt"

// updates keeps what peers sent, in a ring of its own, so that a peer that floods pushes out
// nothing but messages. Its segments are files of MRT. It implements bgp.Tap for each session.
type updates struct {
	owner *Recorder
	files files
	wake  chan struct{}
	full  chan struct{}

	mu      sync.Mutex // guards what follows; never held across a call to the disk
	queue   []byte
	records int
	changes map[*session]bool // that came up, or went (false), since the queue was taken
	stats   Stats
}

// session is the bgp.Tap of a session.
type session struct {
	to   *updates
	peer netip.Addr
	mrt  *mrt.Writer
}

func newUpdates(r *Recorder, size int64) *updates {
	u := &updates{owner: r, wake: make(chan struct{}, 1), full: make(chan struct{}, 1),
		changes: map[*session]bool{}}
	u.files = files{dir: updatesDir(r.cfg.Dir), suffix: updatesSuffix, size: size,
		open: func(path string) (*os.File, error) { return r.open(path) },
		isOver: func(bytes int64, _ time.Time) bool {
			return bytes > u.files.usual()
		}}
	return u
}

func updatesDir(dir string) string { return filepath.Join(dir, "updates") }

// Tap returns what takes the messages of a session that has come up.
func (r *Recorder) Tap(s bgp.Session) bgp.Tap {
	t := &session{to: r.updates, peer: s.Peer, mrt: mrt.NewWriter(s)}
	t.change(time.Now(), true)
	return t
}

// Message implements bgp.Tap.
func (s *session) Message(at time.Time, header, body []byte) {
	s.to.add(func(b []byte) []byte { return s.mrt.Message(b, at, header, body) })
}

// End implements bgp.Tap.
func (s *session) End(at time.Time) { s.change(at, false) }

func (s *session) change(at time.Time, up bool) {
	from, to := mrt.OpenConfirm, mrt.Established
	if !up {
		from, to = mrt.Established, mrt.Idle
	}
	u := s.to
	u.mu.Lock() // the change is taken with its record
	defer u.mu.Unlock()
	u.note(s, up)
	u.queueUp(func(b []byte) []byte { return s.mrt.StateChange(b, at, from, to) })
}

// note notes a change, also one for whose record there is no room. The caller holds mu.
func (u *updates) note(s *session, up bool) {
	if u.changes[s] && !up {
		delete(u.changes, s) // nobody has heard of it
	} else {
		u.changes[s] = up
	}
}

// add queues a record.
func (u *updates) add(write func(b []byte) []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.queueUp(write)
}

// queueUp queues a record, or counts it if too many wait. The caller holds mu.
func (u *updates) queueUp(write func(b []byte) []byte) {
	if len(u.queue) >= maxQueued {
		u.stats.Dropped++
		return
	}
	u.queue = write(u.queue)
	if u.records++; u.records == 1 {
		signal(u.wake)
	}
	if len(u.queue) >= enough {
		signal(u.full)
	}
}

// run writes until ctx ends.
func (u *updates) run(ctx context.Context) {
	up := map[*session]bool{} // as of what was written last
	u.files.head = func(now time.Time, write func([]byte) error) error {
		return write(standing(up, now))
	}
	defer u.files.close()
	timer := time.NewTimer(u.owner.gather)
	defer timer.Stop()
	var spare []byte
	for last := false; !last; {
		wait(ctx, u.wake, u.full, timer, u.owner.gather)
		last = ctx.Err() != nil
		u.mu.Lock()
		block, records, changes := u.queue, u.records, u.changes
		u.queue, u.records, u.changes = spare[:0], 0, map[*session]bool{}
		u.mu.Unlock()
		if records > 0 {
			u.took(records, u.files.write(block, time.Now()))
		}
		for s, isUp := range changes {
			if up[s] = true; !isUp {
				delete(up, s)
			}
		}
		if spare = block; cap(spare) > maxSpare {
			spare = nil
		}
	}
}

// standing says of each session that it is up: a change from Established to Established.
func standing(up map[*session]bool, now time.Time) (b []byte) {
	all := make([]*session, 0, len(up))
	for s := range up {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *session) int { return a.peer.Compare(b.peer) })
	for _, s := range all {
		b = s.mrt.StateChange(b, now, mrt.Established, mrt.Established)
	}
	return b
}

// took notes how the disk has taken so many records.
func (u *updates) took(records int, err error) {
	u.mu.Lock()
	before := u.stats.Problem
	u.stats.took(records, err, time.Now(), &u.files)
	after := u.stats.Problem
	u.mu.Unlock()
	u.owner.sayProblem(before, after, "what peers send")
}

// UpdatesSelection is which messages and changes of sessions are asked for.
type UpdatesSelection struct {
	Since time.Time
	Peer  netip.Addr // not valid: all
	// WholeSeconds: without microseconds, for readers that know no others.
	WholeSeconds bool
}

// Updates writes what peers sent, as one file of MRT, the oldest first. What is damaged is left out
// up to the end of its segment, and segments may be gone: problems has a sentence for each. The
// error of a directory without segments is fs.ErrNotExist, too.
func Updates(dir string, s UpdatesSelection, w io.Writer) (problems []error, err error) {
	dir = updatesDir(dir)
	all, err := listSegments(dir, updatesSuffix)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errNothing(dir)
	}
	var before segment
	for _, segment := range all {
		if gone := segment.goneSince(before); gone != nil {
			problems = append(problems, gone)
		}
		err := s.write(segment.path(dir, updatesSuffix), before.number == 0, w)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		before = segment
		if end := (stop{}); errors.As(err, &end) {
			return problems, end.error
		}
		if err != nil {
			problems = append(problems, err)
		}
	}
	return problems, nil
}

// write writes what a segment has. That a session is up already is said by the first one.
func (s UpdatesSelection) write(path string, isFirst bool, w io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = mrt.Read(bufio.NewReaderSize(f, 1<<18), func(r mrt.Record) error {
		if r.At.Before(s.Since) || s.Peer.IsValid() && r.Peer != s.Peer ||
			!isFirst && r.From != 0 && r.From == r.To {
			return nil
		}
		record := r.Bytes
		if s.WholeSeconds {
			record = mrt.WithoutMicroseconds(record)
		}
		if _, err := w.Write(record); err != nil {
			return stop{err}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return err
}
