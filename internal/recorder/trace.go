package recorder

import (
	"cmp"
	"fmt"
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
// problems also says whether changes are left out since records are missing.
func Trace(dir string, n int, since time.Time) (slowest []Change, problems []error, err error) {
	t := tracer{n: n, since: since}
	problems, err = Reader{Segment: t.segment, Record: t.record, Missing: t.missing}.Read(dir)
	t.trim()
	if t.gaps > 0 {
		problems = append(problems, fmt.Errorf("changes that were under way when records were "+
			"missing, which was so %d times", t.gaps))
	}
	return t.slowest, problems, err
}

type tracer struct {
	n       int
	since   time.Time
	process time.Time
	open    map[route.Key]*open // not done yet
	sent    map[uint64][]fib.BatchOp
	slowest []Change // the slowest n, and some more
	gaps    int
}

// open is a change under way.
type open struct {
	received, decided, sent fib.Moment
	waiting                 bool
	tries                   int
	refused                 string
	flying                  uint64 // the batch that the data plane has not answered yet; 0: none
	next                    *open  // was decided meanwhile
}

func (t *tracer) segment(s Segment) error {
	if !s.Process.Equal(t.process) {
		t.process = s.Process
		t.forget()
	}
	return nil
}

// forget forgets what is under way: nobody knows what became of it.
func (t *tracer) forget() {
	t.open, t.sent = map[route.Key]*open{}, map[uint64][]fib.BatchOp{}
}

func (t *tracer) missing() {
	t.forget()
	t.gaps++
}

func (t *tracer) record(r Record) error {
	switch w := r.What.(type) {
	case Dropped:
		if !r.State { // else of a checkpoint, and not of what happened
			t.missing()
		}
	case *Decision:
		t.decision(r, w)
	case *Batch:
		t.sent[w.Number] = w.Ops
		for _, op := range w.Ops {
			if op.Object != nil {
				continue
			}
			o := t.open[op.Key]
			switch {
			case o == nil: // put again without a decision
				o = &open{decided: op.Queued}
			case o.next != nil: // what flew was never answered
				o = o.next
			}
			t.open[op.Key] = o
			o.sent, o.tries, o.flying = r.Moment, o.tries+1, w.Number
		}
	case *fib.BatchResult:
		t.result(r, w)
	}
	return nil
}

// decision begins a change, after the one that the data plane is asked for at the moment.
func (t *tracer) decision(r Record, d *Decision) {
	o := t.open[d.Key]
	if o != nil && o.flying != 0 {
		o.next = o.next.decide(r, d)
	} else {
		t.open[d.Key] = o.decide(r, d)
	}
}

// decide returns the change that a decision begins: what waited for a look-up goes on, anything
// else is no longer wanted.
func (o *open) decide(r Record, d *Decision) *open {
	if o == nil || o.tries > 0 || !o.waiting {
		return &open{received: d.Received, decided: r.Moment, waiting: d.Waiting}
	}
	o.decided, o.waiting = r.Moment, d.Waiting
	return o
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
		if op.Object != nil || o == nil || o.flying != b.Number {
			continue
		}
		o.flying = 0
		text, isFailed := failed[i]
		switch {
		case o.next != nil:
			t.open[op.Key] = o.next
		case isFailed:
			o.refused = text
		default:
			delete(t.open, op.Key)
		}
		if !isFailed && !r.At.Before(t.since) {
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
