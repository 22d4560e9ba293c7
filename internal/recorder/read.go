package recorder

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"vpp-route-agent/internal/durable"
)

// Reader is called for what is in the segments of a recorder, in the order in which it was written.
// An error of one of them ends reading.
type Reader struct {
	// Segment begins, of a process that began at Process; nil: nobody asks.
	Segment func(Segment) error
	Record  func(Record) error
	// Missing: what came next is damaged, or the segment that had it is gone. It is called before
	// the next segment begins. nil: nobody asks.
	Missing func()
}

// Segment is what the head of a segment says.
type Segment struct {
	Number         uint64
	Node, Version  string
	Process, Began time.Time
}

// Read reads all segments of a directory, also while they are written. What is damaged is left out,
// and segments may be gone: problems has a sentence for each. An end that is torn is none. A
// directory without segments is fs.ErrNotExist, too.
func (r Reader) Read(dir string) (problems []error, err error) {
	all, err := listSegments(dir, suffix)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errNothing(dir)
	}
	var before segment
	for _, s := range all {
		path := s.path(dir, suffix)
		if gone := s.goneSince(before); gone != nil {
			problems = append(problems, gone)
			r.missing()
		}
		damage, err := r.readSegment(s, path)
		if errors.Is(damage, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		before = s
		if damage != nil {
			problems = append(problems, fmt.Errorf("%s: %w", path, damage))
			r.missing()
		}
		if err != nil {
			return problems, err
		}
	}
	return problems, nil
}

// errNothing says that a directory has no segments of the kind that is read.
func errNothing(dir string) error {
	return fmt.Errorf("nothing is recorded in %s: %w", dir, fs.ErrNotExist)
}

func (r Reader) missing() {
	if r.Missing != nil {
		r.Missing()
	}
}

// stop is an error of Reader's functions.
type stop struct{ error }

func (r Reader) readSegment(s segment, path string) (damage, err error) {
	f, err := os.Open(path)
	if err != nil {
		return err, nil
	}
	defer f.Close()
	damage = r.readBlocks(s, durable.NewBlockReader(bufio.NewReaderSize(f, 1<<18), 0))
	if end := (stop{}); errors.As(damage, &end) {
		return nil, end.error
	}
	return damage, nil
}

func (r Reader) readBlocks(s segment, blocks *durable.BlockReader) error {
	for first := true; ; first = false {
		kind, body, err := blocks.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case first:
			h, err := checkHeader(kind, body)
			if err != nil {
				return err
			}
			if r.Segment == nil {
				break
			}
			err = r.Segment(Segment{s.number, h.Node, h.Agent, h.Process, h.Began})
			if err != nil {
				return stop{err}
			}
		case kind == blockRecords || kind == blockState:
			err := records(body, kind == blockState, func(x Record) error {
				if err := r.Record(x); err != nil {
					return stop{err}
				}
				return nil
			})
			if err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: block of unknown kind %d", durable.ErrDamaged, kind)
		}
	}
}
