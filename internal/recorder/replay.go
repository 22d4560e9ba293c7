package recorder

import (
	"slices"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Replayed is what a replay has found. Its JSON only grows.
type Replayed struct {
	Runs []Run `json:"runs"` // one for each process that recorded
}

// Run is what one process has recorded, from the first checkpoint on that is there.
type Run struct {
	Process time.Time `json:"process"` // when it began
	From    time.Time `json:"from"`    // of what was replayed
	To      time.Time `json:"to"`
	Inputs  int       `json:"inputs"`    // that were replayed
	Decided int       `json:"decisions"` // that were recorded
	Keys    int       `json:"keys"`      // that forward somewhere at the end
	// Undecided are keys about which something was heard so shortly before the end that the
	// decision may be missing, and those that differ so shortly after something was heard that keys
	// may follow which it does not name. They are no differences.
	Undecided int `json:"undecided"`
	// Gaps are how often records were missing, also for damage; the replay began anew with the next
	// checkpoint.
	Gaps        int          `json:"gaps"`
	Problem     string       `json:"problem,omitempty"` // why nothing was compared
	Differences []Difference `json:"differences"`
}

// OK reports whether all runs could be compared, and nothing differs.
func (r Replayed) OK() bool {
	return len(r.Runs) > 0 && !slices.ContainsFunc(r.Runs, func(run Run) bool {
		return run.Problem != "" || len(run.Differences) > 0
	})
}

// Difference is a key that was decided otherwise than the replay does.
type Difference struct {
	At       time.Time `json:"at"` // when they were compared
	Key      string    `json:"key"`
	Recorded string    `json:"recorded"`
	Replayed string    `json:"replayed"`
}

const (
	// undecidedFor is within which time of the end a decision may be missing.
	undecidedFor = fib.Moment(time.Second)
	// maxDifferences bounds those that are named.
	maxDifferences = 100
)

// Replay selects anew by all that was recorded, and compares with what was decided, at the end of
// each process, and before each gap.
func Replay(dir string) (out Replayed, problems []error, err error) {
	r := replayer{}
	problems, err = Reader{Segment: r.segment, Record: r.record, Missing: r.gap}.Read(dir)
	r.finish()
	return Replayed{Runs: r.runs}, problems, err
}

type replayer struct {
	runs   []Run
	replay *fib.Replay // nil: what is known is not whole
	// isWhole: the checkpoint was complete.
	isWhole bool
	stands  []fib.Decision // of the checkpoint
	decided map[route.Key]fib.Decision
	heard   map[route.Key]fib.Moment // since it was decided about
	// around is when something was heard that keys may follow which it does not name.
	around fib.Moment
	last   Record
	number uint64 // of the segment
}

func (r *replayer) run() *Run { return &r.runs[len(r.runs)-1] }

func (r *replayer) segment(s Segment) error {
	r.number = s.Number
	if len(r.runs) == 0 || !r.run().Process.Equal(s.Process) {
		r.finish()
		r.runs = append(r.runs, Run{Process: s.Process, Differences: []Difference{}})
		r.replay = nil
	}
	if r.replay == nil || !r.isWhole {
		r.begin()
	}
	return nil
}

// begin begins with a checkpoint.
func (r *replayer) begin() {
	r.replay, r.isWhole, r.stands = fib.NewReplay(), false, nil
	r.decided, r.heard = map[route.Key]fib.Decision{}, map[route.Key]fib.Moment{}
	r.around = 0
}

// finish compares what was replayed.
func (r *replayer) finish() {
	if r.replay == nil {
		return
	}
	if r.isWhole {
		r.run().Problem = ""
		r.compare()
	} else if r.run().From.IsZero() {
		r.run().Problem = "there is no segment with a whole checkpoint"
	}
	r.replay = nil
}

func (r *replayer) compare() {
	run, end := r.run(), r.last.Moment
	keys := r.replay.Keys()
	run.To, run.Keys, run.Undecided = r.last.At, len(keys), 0
	sorted := keys
	for k := range r.decided {
		if _, there := slices.BinarySearchFunc(sorted, k, route.CompareKeys); !there {
			keys = append(keys, k) // behind those that are sorted
		}
	}
	for _, k := range keys {
		was, is := r.decided[k], r.replay.Desired(end, k)
		at, heard := r.heard[k]
		switch {
		case heard && end-at < undecidedFor:
			run.Undecided++
		case isAlike(was, is):
		case end-r.around < undecidedFor:
			run.Undecided++
		case len(run.Differences) < maxDifferences:
			run.Differences = append(run.Differences, Difference{At: r.last.At,
				Key: k.String(), Recorded: decisionText(&Decision{Decision: was}),
				Replayed: decisionText(&Decision{Decision: is, Reason: is.Reason.String()})})
		}
	}
}

func isAlike(a, b fib.Decision) bool {
	return a.Digest == b.Digest && a.Programs == b.Programs && a.Waiting == b.Waiting
}

func (r *replayer) record(x Record) error {
	if _, missing := x.What.(Dropped); missing {
		r.gap()
		return nil
	}
	if r.replay == nil || x.State && r.isWhole {
		return nil
	}
	r.last = x
	switch w := x.What.(type) {
	case WantedStands:
		if !r.isWhole {
			r.replay.Candidate(*w.CandidateChange)
		}
	case DecidedStands:
		if !r.isWhole {
			r.decided[w.Key] = w.Decision.Decision
			r.stands = append(r.stands, w.Decision.Decision)
		}
	case Complete:
		if w.Segment == r.number {
			r.complete(x)
		}
	case *fib.CandidateChange:
		r.run().Inputs++
		r.replay.Candidate(*w)
		if r.heard[w.Key] = x.Moment; !w.Key.Prefix.IsSingleIP() { // it may cover others
			r.around = x.Moment
		}
	case *Decision:
		r.run().Decided++
		r.decided[w.Key] = w.Decision
		delete(r.heard, w.Key)
		delete(r.heard, w.Key.Counterpart())
	case *route.Facts:
		r.run().Inputs++
		r.around = x.Moment
		r.replay.Facts(x.Moment, *w)
	case *Resolved:
		r.run().Inputs++
		r.around = x.Moment
		r.replay.Resolved(x.Moment, w.NextHop, w.Resolution)
	case *fib.Surroundings:
		r.run().Inputs++
		r.around = x.Moment
		r.replay.Surroundings(x.Moment, *w)
	}
	return nil
}

func (r *replayer) complete(x Record) {
	if r.isWhole {
		return
	}
	r.isWhole = true
	r.around = x.Moment // it was taken while decisions were due
	if r.run().From.IsZero() {
		r.run().From = x.At
	}
	for _, d := range r.stands {
		r.replay.HeldAs(d)
	}
	r.stands = nil
}

// gap: what was replayed so far is compared, and the next segment begins anew.
func (r *replayer) gap() {
	if len(r.runs) == 0 {
		return
	}
	r.run().Gaps++
	r.finish()
}
