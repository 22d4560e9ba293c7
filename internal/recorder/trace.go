package recorder

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Change is one change of the data plane and how long each step to it took. The JSON of `trace`
// only grows.
type Change struct {
	At       time.Time    `json:"at"` // when the data plane had it
	Prefix   netip.Prefix `json:"prefix"`
	Table    uint32       `json:"table,omitzero"`
	Elevated bool         `json:"elevated,omitzero"`
	Deletes  bool         `json:"deletes"`
	// Seconds from what was received until the data plane had answered: the sum of the steps.
	Seconds float64 `json:"seconds"`
	// Decide is from what was received until that was decided, 0 if it is not known what that was;
	// Wait until the data plane was asked, for the last time; Answer until it had answered for all
	// that was asked at once.
	Decide float64 `json:"decideSeconds"`
	Wait   float64 `json:"waitSeconds"`
	Answer float64 `json:"answerSeconds"`
	Tries  int     `json:"tries"` // how often it was asked
	Refuse string  `json:"refused,omitempty"`
}

// Trace returns the n slowest changes that the data plane has had since a time, the slowest first.
func Trace(dir string, n int, since time.Time) (slowest []Change, problems []error, err error) {
	t := tracer{n: n, since: since}
	problems, err = Reader{Segment: t.segment, Record: t.record}.Read(dir)
	t.trim()
	return t.slowest, problems, err
}

type tracer struct {
	n       int
	since   time.Time
	process time.Time
	open    map[route.Key]*open // not done yet
	sent    map[uint64][]fib.BatchOp
	slowest []Change // the slowest n, and some more
}

// open is a change under way.
type open struct {
	received, decided, sent fib.Moment
	waiting                 bool
	tries                   int
	refused                 string
}

func (t *tracer) segment(s Segment) error {
	if !s.Process.Equal(t.process) {
		t.process = s.Process
		t.open, t.sent = map[route.Key]*open{}, map[uint64][]fib.BatchOp{}
	}
	return nil
}

func (t *tracer) record(r Record) error {
	switch w := r.What.(type) {
	case *Decision:
		t.decision(r, w)
	case *Batch:
		t.sent[w.Number] = w.Ops
		for _, op := range w.Ops {
			if op.Object != nil {
				continue
			}
			o := t.open[op.Key]
			if o == nil { // put again without a decision
				o = &open{decided: op.Queued}
				t.open[op.Key] = o
			}
			o.sent, o.tries = r.Moment, o.tries+1
		}
	case *fib.BatchResult:
		t.result(r, w)
	}
	return nil
}

// decision begins a change. It goes on with one that the data plane was asked for, or that waited
// for a look-up.
func (t *tracer) decision(r Record, d *Decision) {
	o := t.open[d.Key]
	switch {
	case o == nil || o.tries == 0 && !o.waiting:
		t.open[d.Key] = &open{received: d.Received, decided: r.Moment, waiting: d.Waiting}
	case o.tries == 0:
		o.decided, o.waiting = r.Moment, d.Waiting
	}
}

func (t *tracer) result(r Record, b *fib.BatchResult) {
	ops := t.sent[b.Number]
	delete(t.sent, b.Number)
	failed := map[int]string{}
	for _, f := range b.Failed {
		failed[f.Index] = f.Error
	}
	for i, op := range ops {
		o := t.open[op.Key]
		if op.Object != nil || o == nil {
			continue
		}
		if text, isFailed := failed[i]; isFailed {
			o.refused = text
			continue
		}
		delete(t.open, op.Key)
		if !r.At.Before(t.since) {
			t.add(o.change(r, op))
		}
	}
}

func (o *open) change(r Record, op fib.BatchOp) Change {
	seconds := func(from, to fib.Moment) float64 {
		if from == 0 {
			return 0
		}
		return max(time.Duration(to-from), 0).Seconds()
	}
	c := Change{At: r.At, Prefix: op.Key.Prefix, Table: op.Key.Table, Elevated: op.Key.Elevated,
		Deletes: op.Digest == 0, Tries: o.tries, Refuse: o.refused,
		Decide: seconds(o.received, o.decided), Wait: seconds(o.decided, o.sent),
		Answer: seconds(o.sent, r.Moment)}
	c.Seconds = c.Decide + c.Wait + c.Answer
	return c
}

func (t *tracer) add(c Change) {
	if t.slowest = append(t.slowest, c); len(t.slowest) >= 2*t.n+100 {
		t.trim()
	}
}

func (t *tracer) trim() {
	slices.SortStableFunc(t.slowest, func(a, b Change) int {
		return cmp.Compare(b.Seconds, a.Seconds)
	})
	t.slowest = t.slowest[:min(t.n, len(t.slowest))]
}
