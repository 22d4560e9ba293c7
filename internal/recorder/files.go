package recorder

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// parts is in how many segments a ring is cut: so much of it goes at once.
	parts = 8
	// longest is how long a segment may become: support takes no more of a file.
	longest = 64 << 20
	// leastSegments bounds the files that an agent leaves which is started again and again.
	leastSegments = 64
)

// files are the segments of a directory: the newest is written, the oldest are deleted. One
// goroutine uses them, the only one that waits for the disk.
type files struct {
	dir, suffix string
	size        int64 // of all segments at most
	open        func(path string) (*os.File, error)
	// head writes what a segment begins with.
	head func(now time.Time, write func(block []byte) error) error
	// isOver reports whether a segment of so many bytes is to be followed by another.
	isOver func(bytes int64, now time.Time) bool

	segments []segment // the oldest first
	bytes    int64     // of all
	file     *os.File  // of the last segment; nil: the next write makes one
	problem  error     // of the last write
	retry    time.Time // not before, after a problem
}

// segment is a file of the ring.
type segment struct {
	number uint64
	bytes  int64
}

func (s segment) path(dir, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%010d%s", s.number, suffix))
}

// goneSince is an error if there were segments between before and s.
func (s segment) goneSince(before segment) error {
	switch {
	case before.number == 0 || s.number == before.number+1:
		return nil
	case s.number == before.number+2:
		return fmt.Errorf("segment %d is gone", before.number+1)
	}
	return fmt.Errorf("segments %d to %d are gone", before.number+1, s.number-1)
}

// listSegments lists the segments of a directory, the oldest first.
func listSegments(dir, suffix string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it is made with the first
	}
	if err != nil {
		return nil, err
	}
	var all []segment
	for _, f := range entries {
		name, ok := strings.CutSuffix(f.Name(), suffix)
		number, err := strconv.ParseUint(name, 10, 64)
		if !ok || err != nil {
			continue
		}
		info, err := f.Info()
		if err != nil {
			continue // deleted meanwhile
		}
		all = append(all, segment{number, info.Size()})
	}
	slices.SortFunc(all, func(a, b segment) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}

// create makes a segment that nobody else has: two agents may write to one directory where a
// lock is not to be had.
func create(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// usual is how long a segment becomes as a rule.
func (w *files) usual() int64 { return min(w.size/parts, longest/2) }

// write appends a block to the last segment, or begins one. After an error nothing is written for a
// while, and then to a new segment: nobody knows what the disk has of the old one. On a full disk
// the oldest segment goes each time: others need the room more.
func (w *files) write(block []byte, now time.Time) error {
	if w.problem != nil && now.Before(w.retry) {
		return w.problem
	}
	if w.problem = w.tryWrite(block, now); w.problem != nil {
		w.retry = now.Add(retryAfter)
		w.close()
		if isFull(w.problem) {
			w.problem = errors.Join(w.problem, w.deleteOldest())
		}
	}
	return w.problem
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

func (w *files) tryWrite(block []byte, now time.Time) error {
	if w.file != nil && w.isOver(w.last().bytes+int64(len(block)), now) {
		w.close()
	}
	if w.file == nil {
		if err := w.begin(now); err != nil {
			return err
		}
	}
	return w.append(block)
}

func (w *files) last() *segment { return &w.segments[len(w.segments)-1] }

// begin makes the next segment, and room for it.
func (w *files) begin(now time.Time) error {
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	all, err := listSegments(w.dir, w.suffix)
	if err != nil {
		return err
	}
	w.segments, w.bytes = all, 0
	for _, s := range all {
		w.bytes += s.bytes
	}
	next := segment{number: 1}
	if len(w.segments) > 0 {
		next.number = w.last().number + 1
	}
	if err := w.makeRoom(0); err != nil {
		return err
	}
	w.file, err = w.open(next.path(w.dir, w.suffix))
	if err != nil {
		return err
	}
	w.segments = append(w.segments, next)
	if err := w.head(now, w.append); err != nil {
		// what tells nobody anything would push out what does
		return errors.Join(err, w.deleteLast())
	}
	return nil
}

func (w *files) deleteLast() error {
	w.close()
	path := w.last().path(w.dir, w.suffix)
	w.bytes -= w.last().bytes
	w.segments = w.segments[:len(w.segments)-1]
	return os.Remove(path)
}

// makeRoom deletes the oldest segments until the ring can take so many bytes, and the disk besides.
func (w *files) makeRoom(bytes int64) error {
	isTooMuch := func() bool {
		most := leastSegments + int(w.size/max(w.usual(), 1))
		return w.bytes+bytes > w.size || len(w.segments) > most
	}
	for len(w.segments) > 1 && isTooMuch() {
		if err := w.deleteOldest(); err != nil {
			return err
		}
	}
	for {
		err := w.lacksRoom(bytes)
		if err == nil || w.isLastOpen() || len(w.segments) == 0 {
			return err
		}
		if err := w.deleteOldest(); err != nil {
			return err
		}
	}
}

// isLastOpen reports whether no segment is left but that which is written.
func (w *files) isLastOpen() bool { return w.file != nil && len(w.segments) == 1 }

// lacksRoom is an error if the disk has no room for so many bytes and for what others may need
// soon, such as the journal of routes: as much as a segment, or a twentieth of a small disk.
func (w *files) lacksRoom(bytes int64) error {
	var s unix.Statfs_t
	if err := unix.Statfs(w.dir, &s); err != nil {
		return err
	}
	free, all := int64(s.Bavail)*s.Bsize, int64(s.Blocks)*s.Bsize
	if leave := min(w.usual(), all/20); free < bytes+leave {
		return fmt.Errorf("%w: %d bytes are free, of which the last %d are left to others",
			unix.ENOSPC, free, leave)
	}
	return nil
}

// deleteOldest deletes the oldest segment, if there is one.
func (w *files) deleteOldest() error {
	if len(w.segments) == 0 {
		return nil
	}
	if err := os.Remove(w.segments[0].path(w.dir, w.suffix)); err != nil && !os.IsNotExist(err) {
		return err
	}
	w.bytes -= w.segments[0].bytes
	w.segments = w.segments[1:]
	return nil
}

// append writes a block as a whole, or what is there of it is cut off.
func (w *files) append(block []byte) error {
	if err := w.makeRoom(int64(len(block))); err != nil {
		return err
	}
	_, err := w.file.Write(block)
	if err != nil {
		_ = w.file.Truncate(w.last().bytes) // if not, the end is torn, which readers know
		return err
	}
	w.last().bytes += int64(len(block))
	w.bytes += int64(len(block))
	return nil
}

func (w *files) close() {
	if w.file != nil {
		w.file.Close()
		w.file = nil
	}
}
