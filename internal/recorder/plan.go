package recorder

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/changes"
	"vpp-route-agent/internal/fib"
)

// PlanInputs are what the inputs of a plan have otherwise than those before, Calico's data aside.
type PlanInputs struct{ changes.Recorded }

// Planned are the digests of a plan that differ from those of the plan before, by the names of its
// parts.
type Planned map[string]string

// PlanPart is a part of a plan.
type PlanPart struct {
	Name  string
	Value any
}

// Planner plans anew by what was recorded.
type Planner interface {
	// Datastore and Inputs take changes.
	Datastore(calico.RecordedChanges) error
	Inputs(PlanInputs) error
	Plan() []PlanPart
}

// plan is what Planned was told.
type plan struct {
	inputs any
	parts  []PlanPart
}

// Plan records a plan that was made of the last snapshot that Datastore was told of, and of inputs,
// which points to a struct of the same type each time. Neither changes afterwards. Of plans
// that come within the time in which nothing is written the last is recorded.
func (r *Recorder) Plan(at time.Time, inputs any, parts []PlanPart) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = slices.DeleteFunc(r.taken, func(t taken) bool { return t.plan != nil })
	r.add(taken{at: r.At(at), plan: &plan{inputs, parts}})
}

// planWritten is the plan that was written last.
type planWritten struct {
	inputs  any
	parts   map[string]any
	digests Planned
}

// after returns p after another plan, and the digests that differ.
func (p planWritten) after(now plan) (after planWritten, differ Planned) {
	after = planWritten{now.inputs, map[string]any{}, maps.Clone(p.digests)}
	if after.digests == nil {
		after.digests = Planned{}
	}
	differ = Planned{}
	for _, part := range now.parts {
		after.parts[part.Name] = part.Value
		if isIdentical(p.parts[part.Name], part.Value) {
			continue
		}
		d := digestText(part.Value)
		if d != p.digests[part.Name] {
			after.digests[part.Name], differ[part.Name] = d, d
		}
	}
	return after, differ
}

func digestText(v any) string { return fmt.Sprintf("%016x", Digest(v)) }

// isIdentical reports whether two values that do not change are one: a plan has many in common with
// the one before.
func isIdentical(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if !x.IsValid() || !y.IsValid() || x.Type() != y.Type() {
		return false
	}
	switch x.Kind() {
	case reflect.Slice, reflect.Map:
		return x.Pointer() == y.Pointer() && x.Len() == y.Len() && x.Len() > 0
	case reflect.Pointer:
		return x.Pointer() == y.Pointer()
	}
	return false
}

// recordPlan has written what is new in a plan.
func (w *writer) recordPlan(write func(block []byte, records int), at fib.Moment, now plan) {
	before := w.plan.inputs
	after, differ := w.plan.after(now)
	w.plan = after
	w.writePlan(write, at, before, after.inputs, differ)
}

// writePlan has written what inputs have otherwise than before, and digests.
func (w *writer) writePlan(write func(block []byte, records int), at fib.Moment,
	before, inputs any, digests Planned) {
	b := w.blocks(write, at)
	for c := range changes.Of(before, inputs) {
		b.add(kindPlanInputs, c)
	}
	b.add(kindPlanned, digests)
	b.end()
}

// blocks writes records of JSON.
type blocks struct {
	*writer
	queue
	write func(block []byte, records int)
	at    fib.Moment
}

func (w *writer) blocks(write func(block []byte, records int), at fib.Moment) blocks {
	return blocks{writer: w, write: write, at: at}
}

func (b *blocks) add(kind recordKind, v any) {
	if b.records == 0 {
		b.start()
	}
	if text, err := json.Marshal(v); err == nil {
		b.kind(kind, b.at)
		b.text(string(text))
	} else {
		b.noJSON(err)
		b.kind(kindDropped, b.at)
		b.uint(1)
	}
	if b.records++; len(b.b) >= enough {
		b.end()
	}
}

func (b *blocks) end() {
	b.write(b.b, b.records)
	b.records = 0
}
