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
	// Undecided are inputs that came last, or before records were missing, after which the agent
	// has not decided all any more.
	Undecided int `json:"undecided"`
	// Gaps are how often records were missing, also for damage; the replay began anew with the next
	// checkpoint.
	Gaps int `json:"gaps"`
	// Last is when the last record was made, replayed or not.
	Last        time.Time     `json:"last"`
	Problem     string        `json:"problem,omitempty"` // why nothing was compared
	Reason      Reason        `json:"reason,omitempty"`  // of Problem
	NotCompared []NotCompared `json:"notCompared"`
	Differences []Difference  `json:"differences"`
	More        int           `json:"more"` // differences, which are only counted
}

// NotCompared is a time of which nothing could be compared.
type NotCompared struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Moments is how often all was decided, Inputs by how many.
	Moments int    `json:"moments"`
	Inputs  int    `json:"inputs"`
	Reason  Reason `json:"reason"`
}

// Reason is why nothing was compared.
type Reason string

const (
	// ReasonShort: there is all that the process has recorded, and it is too little.
	ReasonShort     Reason = "short"
	ReasonMissing   Reason = "missing"   // records are
	ReasonNoRoom    Reason = "noRoom"    // for a checkpoint
	ReasonNotWhole  Reason = "notWhole"  // no checkpoint is
	ReasonUndecided Reason = "undecided" // the checkpoint is whole
)

// String is the reason in words.
func (r Reason) String() string {
	switch r {
	case ReasonShort:
		return "the records of the process end before its first checkpoint is whole and all decided"
	case ReasonMissing:
		return "records are missing, up to a whole checkpoint"
	case ReasonNoRoom:
		return "the checkpoint had no room"
	case ReasonNotWhole:
		return "no checkpoint is whole"
	case ReasonUndecided:
		return "all was never decided after the checkpoint"
	}
	return string(r)
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
	r := replayer{newPlanner: newPlanner, runs: []Run{}}
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
	// settledAt is when all was decided.
	settledAt fib.Moment
	undecided int // inputs since then

	segment Segment
	hasAll  bool // of what the process has recorded so far
	// skipped is not compared yet, or will never be; so many checkpoints have begun in it. leftOut:
	// what had no room.
	skipped     NotCompared
	checkpoints int
	leftOut     bool
}

func (r *replayer) run() *Run { return &r.runs[len(r.runs)-1] }

func (r *replayer) begins(s Segment) error {
	before := r.segment
	r.segment = s
	if len(r.runs) == 0 || !r.run().Process.Equal(s.Process) {
		r.finish()
		r.runs = append(r.runs, Run{Process: s.Process, Version: s.Version, Last: s.Began,
			NotCompared: []NotCompared{}, Differences: []Difference{}})
		r.hasAll = s.Number == before.Number+1
		r.skip(s.Began)
	}
	if r.replay == nil || !r.isWhole {
		r.begin()
	}
	return nil
}

// begin begins with a checkpoint.
func (r *replayer) begin() {
	r.replay, r.facts, r.around = fib.NewReplay(), route.Facts{}, fib.Surroundings{}
	r.isWhole, r.isSettled, r.undecided = false, false, 0
	r.checkpoints++
	r.planner, r.planned, r.failed = r.newPlanner(r.segment.Node), Planned{}, nil
}

// skip begins a time of which nothing is compared yet.
func (r *replayer) skip(from time.Time) {
	r.skipped, r.checkpoints, r.leftOut = NotCompared{From: from}, 0, false
}

// isSkipping reports whether nothing has been compared since skip.
func (r *replayer) isSkipping() bool { return !r.skipped.From.IsZero() }

// finish ends what is replayed: the run is over, or records are missing.
func (r *replayer) finish() {
	if len(r.runs) == 0 {
		return
	}
	run, last := r.run(), r.replay
	r.replay = nil
	if r.failed != nil {
		r.sayFailed(run.Last)
	}
	switch {
	case !r.isSkipping():
		if last != nil { // else it was finished before
			run.Keys = last.Keys()
			run.Undecided += r.undecided
		}
		return
	case last != nil && r.isWhole && r.facts.Identity == "": // nothing is decided without
		if run.To = run.Last; run.From.IsZero() {
			run.From, run.Problem, run.Reason = run.Last, "", ""
		}
		r.skip(time.Time{})
		return
	}
	r.notCompared(run.Last, r.whyNot(last != nil && r.isWhole))
}

// whyNot says why nothing was compared up to the end of what is replayed.
func (r *replayer) whyNot(isWhole bool) Reason {
	switch {
	case r.hasAll && r.checkpoints == 1 && !r.leftOut:
		return ReasonShort
	case isWhole:
		return ReasonUndecided
	case r.leftOut:
		return ReasonNoRoom
	case !r.hasAll && r.run().Gaps > 0:
		return ReasonMissing
	}
	return ReasonNotWhole
}

// notCompared notes that nothing was compared up to a time.
func (r *replayer) notCompared(to time.Time, why Reason) {
	run := r.run()
	r.skipped.To, r.skipped.Reason = to, why
	run.NotCompared = append(run.NotCompared, r.skipped)
	if run.From.IsZero() {
		run.Problem, run.Reason = why.String(), why
	}
	r.skip(time.Time{})
}

func (r *replayer) record(x Record) error {
	if _, missing := x.What.(Dropped); missing {
		switch {
		case !x.State:
			r.gap()
		case !r.isWhole: // a checkpoint that left something out is none, but nothing is missing
			r.leftOut = true
			r.replay = nil
		}
		return nil
	}
	if x.State && r.isWhole {
		return nil
	}
	run := r.run()
	run.Last = x.At
	if r.isSkipping() {
		if isInput(x) && !x.State {
			r.skipped.Inputs++
		}
		if _, is := x.What.(Settled); is {
			r.skipped.Moments++
		}
	}
	if r.replay == nil {
		return nil
	}
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
		r.apply(x)
	}
	return nil
}

// compare compares with what was decided.
func (r *replayer) compare(at time.Time) {
	run := r.run()
	if r.isSkipping() {
		r.resume(at)
	}
	run.To, r.undecided = at, 0
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

// resume begins to compare. While a first checkpoint is taken nothing can be.
func (r *replayer) resume(at time.Time) {
	run := r.run()
	if run.Gaps > 0 || r.checkpoints > 1 {
		r.notCompared(at, r.whyNot(false))
	}
	if run.From.IsZero() {
		run.From, run.Problem, run.Reason = at, "", ""
	}
	r.skip(time.Time{})
}

func (r *Run) differs(at time.Time, key, recorded, replayed string) {
	if len(r.Differences) == maxDifferences {
		r.More++
		return
	}
	r.Differences = append(r.Differences, Difference{at, key, recorded, replayed})
}

// comparePlan plans anew, and compares with what was planned.
func (r *replayer) comparePlan(at time.Time) {
	run := r.run()
	if run.Plans++; r.failed != nil {
		r.sayFailed(at)
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

// sayFailed says that what was recorded cannot be read.
func (r *replayer) sayFailed(at time.Time) {
	r.run().differs(at, "plan", "what it is made of", r.failed.Error())
	r.failed = nil
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
		r.undecided++
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
	run := r.run()
	run.Gaps++
	r.hasAll = false
	if !r.isSkipping() {
		r.finish()
		r.skip(run.Last)
	}
	r.replay = nil
}
