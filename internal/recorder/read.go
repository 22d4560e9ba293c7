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
}

// Segment is what the head of a segment says.
type Segment struct {
	Number         uint64
	Node, Version  string
	Process, Began time.Time
}

// Read reads all segments of a directory, also while they are written. What is damaged is left out:
// problems has a sentence for each. An end that is torn is none.
func (r Reader) Read(dir string) (problems []error, err error) {
	all, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		damage, err := r.readSegment(s, s.path(dir))
		if damage != nil {
			problems = append(problems, fmt.Errorf("%s: %w", s.path(dir), damage))
		}
		if err != nil {
			return problems, err
		}
	}
	return problems, nil
}

// stop is an error of Reader's functions.
type stop struct{ error }

func (r Reader) readSegment(s segment, path string) (damage, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // deleted meanwhile
	}
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
			if r.Segment != nil {
				err = r.Segment(Segment{s.number, h.Node, h.Agent, h.Process, h.Began})
			}
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
