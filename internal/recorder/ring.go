package recorder

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/durable"
)

const (
	format = "vpp-route-agent recorder"
	// version changes with the form of any record: a segment of another version is not read.
	version = 2

	suffix = ".rec"
	// parts is in how many segments a ring is cut: so much of it goes at once. One whose checkpoint
	// is large, or not complete yet, may be longer, but not than a part of mostParts.
	parts     = 8
	mostParts = 3
	// manyKeys make a checkpoint that is taken hourly.
	manyKeys = 100_000
	// afterGap is how long a segment with a gap goes on at least: checkpoints would make more gaps.
	afterGap = time.Minute
	// maxSegments bounds the files that an agent leaves which is started again and again.
	maxSegments = 64
)

// header is the first block of a segment.
type header struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Node    string    `json:"node"`
	Agent   string    `json:"agent"` // its version
	Process time.Time `json:"process"`
	Began   time.Time `json:"began"`
}

// ring writes the segments of a directory and deletes the oldest. One goroutine uses it, the only
// one that waits for the disk.
type ring struct {
	dir      string
	size     int64
	open     func(path string) (*os.File, error)
	header   header
	segments []segment // the oldest first
	bytes    int64     // of all
	file     *os.File  // of the last segment; nil: the next write makes one
	// preamble is called to write what a segment begins with.
	preamble   func(write func(block []byte) error) error
	isComplete bool      // the last segment has a checkpoint
	hasGap     bool      // records of it are missing
	tooLarge   time.Time // when a checkpoint did not fit into a segment
	keys       int       // of it
	problem    error     // of the last write
	retry      time.Time // not before, after a problem
}

// segment is a file of the ring.
type segment struct {
	number uint64
	bytes  int64
}

func (s segment) path(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("%010d%s", s.number, suffix))
}

// listSegments lists the segments of a directory, the oldest first.
func listSegments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
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

func newRing(c Config, process time.Time, open func(string) (*os.File, error)) *ring {
	return &ring{dir: c.Dir, size: c.Size, open: open, header: header{Format: format,
		Version: version, Node: c.Node, Agent: c.Version, Process: process}}
}

func create(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// errTooLong is about a block, not about the disk.
var errTooLong = errors.New("a record is too long to be read again")

func isTooLong(block []byte) bool { return len(block) > durable.BlockHeader+durable.MaxBlock }

// write appends a block to the last segment, or begins one. After an error nothing is written for a
// while, and then to a new segment: nobody knows what the disk has of the old one. A block that is
// too long is left out alone.
func (w *ring) write(block []byte, now time.Time) error {
	if isTooLong(block) {
		return errTooLong
	}
	if w.problem != nil && now.Before(w.retry) {
		return w.problem
	}
	if w.problem = w.tryWrite(block, now); w.problem != nil {
		w.retry = now.Add(retryAfter)
		w.close()
	}
	return w.problem
}

func (w *ring) tryWrite(block []byte, now time.Time) error {
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

// isOver reports whether a segment of so many bytes is to be followed by another.
func (w *ring) isOver(bytes int64, now time.Time) bool {
	if bytes > w.size/mostParts {
		if !w.isComplete {
			w.tooLarge = now
		}
		return true
	}
	if !w.hasRoom() {
		return bytes > w.size/parts
	}
	if w.hasGap && now.Sub(w.header.Began) > afterGap {
		return true // what happened before is known again
	}
	young := w.keys > manyKeys && now.Sub(w.header.Began) < time.Hour
	return bytes > w.size/parts && w.isComplete && !young
}

// complete: a segment has its checkpoint, of so many keys.
func (w *ring) complete(segment uint64, keys int) {
	if w.file != nil && w.last().number == segment {
		w.isComplete, w.keys = true, keys
	}
}

// hasRoom reports whether a checkpoint may be taken: the last one was not too large for a segment,
// or that was long ago.
func (w *ring) hasRoom() bool { return !w.header.Began.Before(w.tooLarge.Add(time.Hour)) }

func (w *ring) last() *segment { return &w.segments[len(w.segments)-1] }

// begin makes the next segment, and room for it.
func (w *ring) begin(now time.Time) error {
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	all, err := listSegments(w.dir)
	if err != nil {
		return err
	}
	w.segments, w.bytes = all, 0
	for _, s := range all {
		w.bytes += s.bytes
	}
	if err := w.makeRoom(0); err != nil {
		return err
	}
	next := segment{number: 1}
	if len(w.segments) > 0 {
		next.number = w.last().number + 1
	}
	w.file, err = w.open(next.path(w.dir))
	if err != nil {
		return err
	}
	w.segments, w.isComplete, w.hasGap = append(w.segments, next), false, false
	w.header.Began = now
	text, err := json.Marshal(w.header)
	if err != nil {
		return err
	}
	err = w.append(durable.EndBlock(append(durable.StartBlock(nil, blockHeader), text...)))
	if err == nil && w.preamble != nil {
		err = w.preamble(w.append)
	}
	if err != nil { // what tells nobody anything would push out what does
		return errors.Join(err, os.Remove(w.file.Name()))
	}
	return nil
}

// makeRoom deletes the oldest segments until the ring can take so many bytes. The last one stays.
func (w *ring) makeRoom(bytes int64) error {
	for len(w.segments) > 1 && (w.bytes+bytes > w.size || len(w.segments) > maxSegments) {
		if err := os.Remove(w.segments[0].path(w.dir)); err != nil {
			return err
		}
		w.bytes -= w.segments[0].bytes
		w.segments = w.segments[1:]
	}
	return nil
}

// append writes a block as a whole, or what is there of it is cut off.
func (w *ring) append(block []byte) error {
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

func (w *ring) close() {
	if w.file != nil {
		w.file.Close()
		w.file = nil
	}
}
