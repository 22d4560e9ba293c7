package recorder

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"vpp-route-agent/internal/durable"
)

const (
	format = "vpp-route-agent recorder"
	// version changes with the form of any record: a segment of another version is not read.
	version = 4

	suffix = ".rec"
	// mostParts: one whose checkpoint is large, or not complete yet, may be longer than usual, but
	// not than a part of these.
	mostParts = 3
	// manyKeys make a checkpoint that is taken hourly.
	manyKeys = 100_000
	// afterGap is how long a segment with a gap goes on at least: checkpoints would make more gaps.
	afterGap = time.Minute
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

// ring writes the segments of records.
type ring struct {
	files
	header header
	// preamble is called to write what a segment begins with.
	preamble   func(write func(block []byte) error) error
	base       int64     // bytes that the last segment has of what it begins with
	isComplete bool      // the last segment has a checkpoint
	hasGap     bool      // records of it are missing
	tooLarge   time.Time // when a checkpoint did not fit into a segment
	keys       int       // of it
}

func newRing(c Config, process time.Time, open func(string) (*os.File, error)) *ring {
	w := &ring{header: header{Format: format,
		Version: version, Node: c.Node, Agent: c.Version, Process: process}}
	w.files = files{dir: c.Dir, suffix: suffix, size: c.Size, open: open, head: w.beginWith,
		isOver: w.isSegmentOver}
	return w
}

// errTooLong is about a block, not about the disk.
var errTooLong = errors.New("a record is too long to be read again")

func isTooLong(block []byte) bool { return len(block) > durable.BlockHeader+durable.MaxBlock }

// write writes a block. One that is too long is left out alone.
func (w *ring) write(block []byte, now time.Time) error {
	if isTooLong(block) {
		return errTooLong
	}
	return w.files.write(block, now)
}

// most is how long a segment may become.
func (w *ring) most() int64 { return min(w.size/mostParts, longest) }

func (w *ring) isSegmentOver(bytes int64, now time.Time) bool {
	if bytes > w.most() {
		if !w.isComplete {
			w.tooLarge = now
		}
		return true
	}
	// Half of what is written, at least, is what happens.
	isLong := bytes > max(w.usual(), 2*w.base)
	if !w.hasRoom() {
		return isLong
	}
	if w.hasGap && now.Sub(w.header.Began) > afterGap {
		return true // what happened before is known again
	}
	young := w.keys > manyKeys && now.Sub(w.header.Began) < time.Hour
	return isLong && w.isComplete && !young
}

// complete: a segment has its checkpoint, of so many keys. One that leaves no room is not taken
// again soon.
func (w *ring) complete(segment uint64, keys int, now time.Time) {
	if w.file == nil || w.last().number != segment {
		return
	}
	w.isComplete, w.keys, w.base = true, keys, w.last().bytes
	if w.base > w.most()/4*3 {
		w.tooLarge = now
	}
}

// hasRoom reports whether a checkpoint may be taken: the last one was not too large for a segment,
// or that was long ago.
func (w *ring) hasRoom() bool { return !w.header.Began.Before(w.tooLarge.Add(time.Hour)) }

func (w *ring) beginWith(now time.Time, write func(block []byte) error) error {
	w.isComplete, w.hasGap, w.header.Began = false, false, now
	text, err := json.Marshal(w.header)
	if err != nil {
		return err
	}
	err = write(durable.EndBlock(append(durable.StartBlock(nil, blockHeader), text...)))
	if err == nil && w.preamble != nil {
		err = w.preamble(write)
	}
	w.base = w.last().bytes
	return err
}
