package recorder

import (
	"fmt"
	"net/netip"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Dumped is one object of a dump. docs/recorder.md lists what Data has; the JSON only grows, but
// for that of facts, resolved, surroundings and datastore, which is the agent's own.
type Dumped struct {
	At     time.Time `json:"at,omitzero"`     // zero of missing
	Moment int64     `json:"moment,omitzero"` // nanoseconds since the process began, on its clock
	Record string    `json:"record"`
	// State: it was so when the segment began, and had happened before.
	State bool `json:"state,omitzero"`
	Data  any  `json:"data,omitzero"`
}

// Selection is what a dump has of all that is recorded.
type Selection struct {
	Since time.Time
	// About: nil: all, else what is about these keys, and what says where records are missing.
	About func(route.Key) bool
}

// Dump calls each for all records that are selected, in the order in which they were written. It
// holds one block at a time. An error of each ends it.
func Dump(dir string, s Selection, each func(Dumped) error) (problems []error, err error) {
	d := dumper{Selection: s, each: each}
	problems, err = Reader{Segment: d.segment, Record: d.record, Missing: d.missing}.Read(dir)
	if err == nil && d.gap {
		err = each(Dumped{Record: "missing"})
	}
	return problems, err
}

type dumper struct {
	Selection
	each    func(Dumped) error
	process time.Time
	sent    map[uint64]bool // batches of which something was dumped, in flight
	// head and gap are dumped before the next record that is selected.
	head *Dumped
	gap  bool
}

func (d *dumper) segment(s Segment) error {
	if !s.Process.Equal(d.process) {
		d.process, d.sent = s.Process, map[uint64]bool{}
	}
	d.head = &Dumped{At: s.Began, Record: "segment", Data: dumpedSegment(s)}
	return nil
}

func (d *dumper) missing() { d.gap = true }

func (d *dumper) record(r Record) error {
	name, data := d.form(r)
	if data == nil || r.At.Before(d.Since) {
		return nil
	}
	if d.gap {
		if err := d.each(Dumped{Record: "missing"}); err != nil {
			return err
		}
		d.gap = false
	}
	if d.head != nil {
		if err := d.each(*d.head); err != nil {
			return err
		}
		d.head = nil
	}
	return d.each(Dumped{At: r.At, Moment: int64(r.Moment), Record: name, State: r.State,
		Data: data})
}

// form returns what a record is called and has; no data: it is not selected.
func (d *dumper) form(r Record) (name string, data any) {
	all := d.About == nil
	of := func(k route.Key) bool { return all || d.About(k) }
	switch w := r.What.(type) {
	case Dropped:
		return "dropped", struct {
			Records uint64 `json:"records"`
		}{uint64(w)}
	case *fib.CandidateChange:
		if of(w.Key) {
			return "wanted", dumpedWanted(w)
		}
	case WantedStands:
		if of(w.Key) {
			return "wantedStands", dumpedWanted(w.CandidateChange)
		}
	case *Decision:
		if of(w.Key) {
			return "decided", dumpedDecision(w)
		}
	case DecidedStands:
		if of(w.Key) {
			return "decidedStands", dumpedDecision(w.Decision)
		}
	case *Batch:
		return "sent", d.batch(w, of)
	case *fib.BatchResult:
		if d.sent[w.Number] || all {
			delete(d.sent, w.Number)
			return "answered", dumpedResult(w)
		}
	case *FactsChange:
		return "facts", ifAll(all, w)
	case *Resolved:
		return "resolved", ifAll(all, dumpedResolved{dumpedHop{w.Table, w.Address}, w.Resolution})
	case *Forgotten:
		return "forgotten", ifAll(all, dumpedHop{w.Table, w.Address})
	case *SurroundingsChange:
		return "surroundings", ifAll(all, w)
	case Settled:
		return "settled", ifAll(all, struct{}{})
	case *PlanInputs:
		return "planInputs", ifAll(all, w)
	case *Planned:
		return "planned", ifAll(all, w)
	case *calico.RecordedChanges:
		return "datastore", ifAll(all, w)
	case Complete:
		return "complete", ifAll(all, struct {
			Segment uint64 `json:"segment"`
			Keys    uint64 `json:"keys"`
		}(w))
	}
	return "", nil
}

func ifAll(all bool, data any) any {
	if all {
		return data
	}
	return nil
}

func (d *dumper) batch(b *Batch, of func(route.Key) bool) any {
	out := dumpedBatch{Batch: b.Number}
	for i, op := range b.Ops {
		o := dumpedOp{Index: i, Deletes: op.Digest == 0, Queued: int64(op.Queued)}
		switch {
		case op.Object != nil && d.About == nil:
			o.Object = op.Object.String()
		case op.Object == nil && of(op.Key):
			o.dumpedKey = keyOf(op.Key)
		default:
			continue
		}
		if !o.Deletes {
			o.Digest = fmt.Sprintf("%016x", op.Digest)
		}
		out.Operations = append(out.Operations, o)
	}
	if len(out.Operations) == 0 {
		return nil
	}
	if d.About != nil {
		d.sent[b.Number] = true
	}
	return out
}

type (
	dumpedSegment struct {
		Number  uint64    `json:"number"`
		Node    string    `json:"node"`
		Version string    `json:"version"`
		Process time.Time `json:"process"`
		Began   time.Time `json:"began"`
	}
	dumpedKey struct {
		Prefix   netip.Prefix `json:"prefix,omitzero"`
		Table    uint32       `json:"table,omitzero"`
		Elevated bool         `json:"elevated,omitzero"`
	}
	dumpedPath struct {
		NextHop    netip.Addr `json:"nextHop,omitzero"`
		Interface  string     `json:"interface,omitzero"`
		Table      uint32     `json:"table,omitzero"`
		Preference uint8      `json:"preference,omitzero"`
		Weight     uint8      `json:"weight"`
	}
	dumpedWant struct {
		dumpedKey
		Received   int64        `json:"received,omitzero"`
		Origin     string       `json:"origin"`
		Kind       string       `json:"kind"`
		Paths      []dumpedPath `json:"paths"`
		Preference uint32       `json:"localPreference,omitzero"`
	}
	dumpedDecided struct {
		dumpedKey
		Received int64        `json:"received,omitzero"`
		Programs bool         `json:"programs"`
		Waiting  bool         `json:"waiting,omitzero"`
		Held     bool         `json:"held,omitzero"`
		Origin   string       `json:"origin"`
		Reason   string       `json:"reason,omitzero"`
		Kind     string       `json:"kind,omitzero"`
		Paths    []dumpedPath `json:"paths,omitzero"`
		Digest   string       `json:"digest,omitzero"`
	}
	dumpedBatch struct {
		Batch      uint64     `json:"batch"`
		Operations []dumpedOp `json:"operations"`
	}
	dumpedOp struct {
		Index int `json:"index"`
		dumpedKey
		Object  string `json:"object,omitzero"`
		Deletes bool   `json:"deletes,omitzero"`
		Digest  string `json:"digest,omitzero"`
		Queued  int64  `json:"queued,omitzero"`
	}
	dumpedAnswer struct {
		Batch  uint64         `json:"batch"`
		Failed []dumpedFailed `json:"failed"`
	}
	dumpedFailed struct {
		Index int    `json:"index"`
		Error string `json:"error"`
	}
	dumpedHop struct {
		Table   uint32     `json:"table,omitzero"`
		Address netip.Addr `json:"address"`
	}
	dumpedResolved struct {
		dumpedHop
		route.Resolution
	}
)

func keyOf(k route.Key) dumpedKey { return dumpedKey{k.Prefix, k.Table, k.Elevated} }

func pathsOf(paths []route.Path) []dumpedPath {
	out := make([]dumpedPath, 0, len(paths))
	for _, p := range paths {
		out = append(out, dumpedPath(p))
	}
	return out
}

func dumpedWanted(c *fib.CandidateChange) any {
	return dumpedWant{keyOf(c.Key), int64(c.Received), c.Origin.String(), c.Kind.String(),
		pathsOf(c.Paths), c.Preference}
}

func dumpedDecision(d *Decision) any {
	out := dumpedDecided{dumpedKey: keyOf(d.Key), Received: int64(d.Received),
		Programs: d.Programs, Waiting: d.Waiting, Held: d.Held, Origin: d.Origin.String(),
		Reason: d.Reason}
	if d.Programs {
		out.Kind, out.Paths = d.Kind.String(), pathsOf(d.Paths)
		out.Digest = fmt.Sprintf("%016x", d.Digest)
	}
	return out
}

func dumpedResult(b *fib.BatchResult) any {
	out := dumpedAnswer{b.Number, []dumpedFailed{}}
	for _, f := range b.Failed {
		out.Failed = append(out.Failed, dumpedFailed(f))
	}
	return out
}
