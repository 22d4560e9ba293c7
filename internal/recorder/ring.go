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
	version = 1

	suffix = ".rec"
	// parts is in how many segments a ring is cut: so much of it goes at once.
	parts = 8
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
	problem  error     // of the last write
	retry    time.Time // not before, after a problem
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

// write appends a block to the last segment, or begins one. After an error nothing is written for a
// while, and then to a new segment: nobody knows what the disk has of the old one.
func (w *ring) write(block []byte, now time.Time) error {
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
	if w.file != nil && w.last().bytes+int64(len(block)) > w.size/parts {
		w.close()
	}
	if w.file == nil {
		if err := w.begin(now); err != nil {
			return err
		}
	}
	return w.append(block)
}

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
	for len(w.segments) > 0 && w.bytes > w.size-w.size/parts {
		if err := os.Remove(w.segments[0].path(w.dir)); err != nil {
			return err
		}
		w.bytes -= w.segments[0].bytes
		w.segments = w.segments[1:]
	}
	next := segment{number: 1}
	if len(w.segments) > 0 {
		next.number = w.last().number + 1
	}
	w.file, err = w.open(next.path(w.dir))
	if err != nil {
		return err
	}
	w.segments = append(w.segments, next)
	w.header.Began = now
	text, err := json.Marshal(w.header)
	if err != nil {
		return err
	}
	err = w.append(durable.EndBlock(append(durable.StartBlock(nil, blockHeader), text...)))
	if err != nil { // an empty file tells nobody anything
		err = errors.Join(err, os.Remove(w.file.Name()))
	}
	return err
}

// append writes a block as a whole, or what is there of it is cut off.
func (w *ring) append(block []byte) error {
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
