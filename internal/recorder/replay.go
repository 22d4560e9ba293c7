package recorder

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"vpp-route-agent/internal/calico"
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
	Version string    `json:"version"` // of the agent
	From    time.Time `json:"from"`    // of what was replayed
	To      time.Time `json:"to"`
	Inputs  int       `json:"inputs"`    // that were replayed
	Decided int       `json:"decisions"` // that were recorded
	Keys    int       `json:"keys"`      // that forward somewhere at the end
	// Compared is how many decisions were compared: those of each key that the agent decided about,
	// or the replay, whenever all was decided.
	Compared int `json:"compared"`
	// Plans is how many plans of the node were made again and compared.
	Plans int `json:"plans"`
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

// Difference is a key that was decided otherwise than the replay does, or a part of a plan.
type Difference struct {
	At       time.Time `json:"at"` // when all was decided
	Key      string    `json:"key"`
	Recorded string    `json:"recorded"`
	Replayed string    `json:"replayed"`
}

// maxDifferences bounds those that are named.
const maxDifferences = 100

// Replay selects and plans anew by all that was recorded, and compares with what was decided,
// whenever all was, and with what was planned. newPlanner returns one that knows nothing yet, for a
// node.
func Replay(dir string, newPlanner func(node string) Planner) (out Replayed, problems []error,
	err error) {
	r := replayer{newPlanner: newPlanner}
	problems, err = Reader{Segment: r.begins, Record: r.record, Missing: r.gap}.Read(dir)
	r.finish()
	return Replayed{Runs: r.runs}, problems, err
}

type replayer struct {
	runs   []Run
	replay *fib.Replay // nil: what is known is not whole
	facts  route.Facts // as last replayed, and around
	around fib.Surroundings
	// planner is of the replay. failed: what was recorded for it cannot be read.
	planner    Planner
	newPlanner func(node string) Planner
	planned    Planned // the digests of the last plan
	failed     error
	// isWhole: the checkpoint was complete. isSettled: all is decided by what was replayed.
	isWhole, isSettled bool
	// waiting came after all was decided, and is replayed when all is again.
	waiting []Record
	// settledAt is when all was decided.
	settledAt fib.Moment
	last      time.Time // when all was decided that was replayed
	heard     time.Time // when the last record was made
	segment   Segment
}

func (r *replayer) run() *Run { return &r.runs[len(r.runs)-1] }

func (r *replayer) begins(s Segment) error {
	r.segment = s
	if len(r.runs) == 0 || !r.run().Process.Equal(s.Process) {
		r.finish()
		r.runs = append(r.runs, Run{Process: s.Process, Version: s.Version,
			Differences: []Difference{}})
		r.replay = nil
	}
	if r.replay == nil || !r.isWhole {
		r.begin()
	}
	return nil
}

// begin begins with a checkpoint.
func (r *replayer) begin() {
	r.replay, r.facts, r.around = fib.NewReplay(), route.Facts{}, fib.Surroundings{}
	r.isWhole, r.isSettled = false, false
	r.waiting = nil
	r.planner, r.planned, r.failed = r.newPlanner(r.segment.Node), Planned{}, nil
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
	if x.State && r.isWhole {
		return nil // a checkpoint that left something out is none, but nothing is missing
	}
	if _, missing := x.What.(Dropped); missing {
		r.gap()
		return nil
	}
	if r.replay == nil {
		return nil
	}
	r.heard = x.At
	switch w := x.What.(type) {
	case Settled:
		if r.settledAt, r.isSettled = x.Moment, true; r.isWhole {
			r.compare(x.At)
		}
	case Complete:
		if r.isWhole || w.Segment != r.segment.Number {
			break
		}
		if r.isWhole = true; r.isSettled {
			r.compare(x.At)
		}
	case *calico.RecordedChanges:
		r.failed = errors.Join(r.failed, r.planner.Datastore(*w))
	case *PlanInputs:
		r.failed = errors.Join(r.failed, r.planner.Inputs(*w))
	case *Planned:
		if maps.Copy(r.planned, *w); !x.State {
			r.comparePlan(x.At)
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
		replayed := decisionText(&Decision{Decision: m.Is, Reason: m.Is.Reason.String()})
		if m.TooLong {
			replayed = "nothing: it was covered for long"
		}
		run.differs(at, m.Was.Key.String(), decisionText(&Decision{Decision: m.Was}), replayed)
	}
}

func (r *Run) differs(at time.Time, key, recorded, replayed string) {
	if len(r.Differences) < maxDifferences {
		r.Differences = append(r.Differences, Difference{at, key, recorded, replayed})
	}
}

// comparePlan plans anew, and compares with what was planned.
func (r *replayer) comparePlan(at time.Time) {
	run := r.run()
	if run.Plans++; r.failed != nil {
		run.differs(at, "plan", "what it is made of", r.failed.Error())
		r.failed = nil
		return
	}
	left := maps.Clone(r.planned)
	for _, part := range r.planner.Plan() {
		digest := digestText(part.Value)
		if was := left[part.Name]; was != digest {
			run.differs(at, "plan: "+part.Name, cmp.Or(was, "nothing"), digest)
		}
		delete(left, part.Name)
	}
	for name, was := range left {
		run.differs(at, "plan: "+name, was, "nothing")
	}
}

func isInput(x Record) bool {
	switch x.What.(type) {
	case *fib.CandidateChange, *FactsChange, *Resolved, *Forgotten, *SurroundingsChange:
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
	case *SurroundingsChange:
		if x.State {
			r.around = fib.Surroundings{}
		}
		around, err := w.After(r.around)
		r.failed = errors.Join(r.failed, err)
		r.around = around
		r.replay.Surroundings(x.Moment, around)
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
