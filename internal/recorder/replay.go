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
	// Compared is how many decisions were compared: those of each key that the agent decided about,
	// or the replay, whenever all was decided.
	Compared int `json:"compared"`
	// Undecided are inputs that came last, after which the agent has not decided all any more.
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
	At       time.Time `json:"at"` // when all was decided
	Key      string    `json:"key"`
	Recorded string    `json:"recorded"`
	Replayed string    `json:"replayed"`
}

// maxDifferences bounds those that are named.
const maxDifferences = 100

// Replay selects anew by all that was recorded, and compares with what was decided, whenever all
// was.
func Replay(dir string) (out Replayed, problems []error, err error) {
	r := replayer{}
	problems, err = Reader{Segment: r.segment, Record: r.record, Missing: r.gap}.Read(dir)
	r.finish()
	return Replayed{Runs: r.runs}, problems, err
}

type replayer struct {
	runs   []Run
	replay *fib.Replay // nil: what is known is not whole
	facts  route.Facts // as last replayed
	// isWhole: the checkpoint was complete. isSettled: all is decided by what was replayed.
	isWhole, isSettled bool
	// waiting came after all was decided, and is replayed when all is again.
	waiting []Record
	// settledAt is when all was decided.
	settledAt fib.Moment
	last      time.Time // when all was decided that was replayed
	heard     time.Time // when the last record was made
	number    uint64    // of the segment
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
	r.replay, r.facts, r.isWhole, r.isSettled = fib.NewReplay(), route.Facts{}, false, false
	r.waiting = nil
}

// finish ends what is replayed.
func (r *replayer) finish() {
	if r.replay == nil {
		return
	}
	run := r.run()
	switch {
	case r.isWhole && r.isSettled:
		run.Problem, run.To, run.Keys, run.Undecided = "", r.last, r.replay.Keys(), 0
		for _, x := range r.waiting {
			if isInput(x) {
				run.Undecided++
			}
		}
	case !run.From.IsZero():
	case r.isWhole && r.facts.Identity == "": // nothing is decided without a data plane
		run.Problem, run.From, run.To = "", r.heard, r.heard
	case r.isWhole:
		run.Problem = "all was never decided since the checkpoint"
	default:
		run.Problem = "there is no segment with a whole checkpoint"
	}
	r.replay = nil
}

func (r *replayer) record(x Record) error {
	if _, missing := x.What.(Dropped); missing {
		r.gap()
		return nil
	}
	if r.replay == nil || x.State && r.isWhole {
		return nil
	}
	r.heard = x.At
	switch w := x.What.(type) {
	case Settled:
		if r.settledAt, r.isSettled = x.Moment, true; r.isWhole {
			r.compare(x.At)
		}
	case Complete:
		if r.isWhole || w.Segment != r.number {
			break
		}
		if r.isWhole = true; r.isSettled {
			r.compare(x.At)
		}
	default:
		if r.isWhole {
			r.waiting = append(r.waiting, x)
		} else { // many, and nothing is compared yet
			r.apply(x)
		}
	}
	return nil
}

// compare replays what has come, and compares with what was decided.
func (r *replayer) compare(at time.Time) {
	for _, w := range r.waiting {
		r.apply(w)
	}
	r.waiting, r.isSettled, r.last = r.waiting[:0], true, at
	run := r.run()
	if run.From.IsZero() {
		run.From = at
	}
	compared, differ := r.replay.Settled(r.settledAt)
	run.Compared += compared
	for _, m := range differ {
		if len(run.Differences) == maxDifferences {
			break
		}
		replayed := decisionText(&Decision{Decision: m.Is, Reason: m.Is.Reason.String()})
		if m.TooLong {
			replayed = "nothing: it was covered for long"
		}
		run.Differences = append(run.Differences, Difference{At: at, Key: m.Was.Key.String(),
			Recorded: decisionText(&Decision{Decision: m.Was}), Replayed: replayed})
	}
}

func isInput(x Record) bool {
	switch x.What.(type) {
	case *fib.CandidateChange, *FactsChange, *Resolved, *Forgotten, *fib.Surroundings:
		return true
	}
	return false
}

// apply replays a record.
func (r *replayer) apply(x Record) {
	run := r.run()
	if isInput(x) && !x.State {
		run.Inputs++
		r.isSettled = false
	}
	switch w := x.What.(type) {
	case WantedStands:
		r.replay.Candidate(*w.CandidateChange)
	case DecidedStands:
		r.replay.Decided(w.Decision.Decision)
	case *fib.CandidateChange:
		r.replay.Candidate(*w)
	case *Decision:
		run.Decided++
		r.isSettled = false
		r.replay.Decided(w.Decision)
	case *FactsChange:
		if x.State {
			r.facts = route.Facts{}
		}
		r.facts = w.After(r.facts)
		r.replay.Facts(x.Moment, r.facts)
	case *Resolved:
		r.replay.Resolved(x.Moment, w.NextHop, w.Resolution)
	case *Forgotten:
		r.replay.Forgotten(x.Moment, w.NextHop)
	case *fib.Surroundings:
		r.replay.Surroundings(x.Moment, *w)
	}
}

// gap: what was replayed so far is compared, and the next segment begins anew.
func (r *replayer) gap() {
	if len(r.runs) == 0 {
		return
	}
	r.run().Gaps++
	r.finish()
}
