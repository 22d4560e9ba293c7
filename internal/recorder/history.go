package recorder

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Step is one line of the history of a prefix. The JSON of `history` only grows.
type Step struct {
	At       time.Time    `json:"at"`
	Step     StepKind     `json:"step"`
	Prefix   netip.Prefix `json:"prefix,omitzero"`
	Table    uint32       `json:"table,omitzero"`
	Elevated bool         `json:"elevated,omitzero"`
	// Seconds since what it follows from, as far as that is known.
	Seconds float64 `json:"seconds"`
	Text    string  `json:"text"`
}

// StepKind says what happened.
type StepKind string

const (
	StepStart     StepKind = "start"     // of the agent's process
	StepMissing   StepKind = "missing"   // records that were dropped
	StepDatastore StepKind = "datastore" // a block or its affinity changed
	StepWanted    StepKind = "wanted"    // a source wants something else
	StepDecided   StepKind = "decided"
	StepSent      StepKind = "sent"
	StepAnswered  StepKind = "answered"
)

// History calls each for what was recorded about the keys that about holds for, and about blocks
// that contain the prefix, the oldest first. Nothing of it is kept: a prefix that flaps fills a
// ring. An error of each ends it.
func History(dir string, prefix netip.Prefix, about func(route.Key) bool,
	each func(Step) error) (problems []error, err error) {
	h := history{prefix: prefix, about: about, each: each}
	problems, err = Reader{Segment: h.segment, Record: h.record, Missing: h.missing}.Read(dir)
	if err == nil {
		err = h.sayMissing()
	}
	return problems, err
}

type history struct {
	prefix  netip.Prefix
	about   func(route.Key) bool
	each    func(Step) error
	process time.Time
	sent    map[uint64]sentOps // and not answered yet
	last    time.Time          // when the last record was made
	// lost is what is said of records that are missing, before anything else; nil: none are.
	lost *Step
}

// sentOps are what of a batch is asked about.
type sentOps struct {
	at   fib.Moment
	keys map[int]route.Key // by their index
}

func (h *history) segment(s Segment) error {
	if s.Process.Equal(h.process) {
		return nil
	}
	h.process = s.Process
	h.forget()
	return h.say(Step{At: s.Process, Step: StepStart,
		Text: fmt.Sprintf("vpp-route-agent %s starts on %s", s.Version, s.Node)})
}

// forget: what was sent is not answered any more, as far as is known.
func (h *history) forget() { h.sent = map[uint64]sentOps{} }

func (h *history) missing() {
	h.forget()
	h.lost = &Step{At: h.last, Step: StepMissing,
		Text: "records are missing here: they are damaged, or their segment is gone"}
}

func (h *history) sayMissing() error {
	lost := h.lost
	if h.lost = nil; lost == nil {
		return nil
	}
	return h.each(*lost)
}

func (h *history) say(s Step) error {
	if h.lost != nil && h.lost.At.IsZero() { // nothing was read before
		h.lost.At = s.At
	}
	if err := h.sayMissing(); err != nil {
		return err
	}
	return h.each(s)
}

func (h *history) add(r Record, kind StepKind, k route.Key, since fib.Moment, text string) error {
	s := Step{At: r.At, Step: kind, Prefix: k.Prefix, Table: k.Table, Elevated: k.Elevated,
		Text: text}
	if since != 0 {
		s.Seconds = max(time.Duration(r.Moment-since), 0).Seconds()
	}
	return h.say(s)
}

func (h *history) record(r Record) error {
	h.last = r.At
	switch w := r.What.(type) {
	case Dropped:
		if r.State {
			break // of a checkpoint; it happened, and is recorded before
		}
		return h.add(r, StepMissing, route.Key{}, 0,
			fmt.Sprintf("%d records were dropped here", w))
	case *calico.RecordedChanges:
		if !r.State {
			return h.datastore(r, w)
		}
	case *fib.CandidateChange:
		if h.about(w.Key) {
			return h.add(r, StepWanted, w.Key, w.Received, candidateText(w))
		}
	case *Decision:
		if h.about(w.Key) {
			return h.add(r, StepDecided, w.Key, w.Received, decisionText(w))
		}
	case *Batch:
		return h.batch(r, w)
	case *fib.BatchResult:
		return h.result(r, w)
	}
	return nil
}

func (h *history) batch(r Record, b *Batch) error {
	s := sentOps{at: r.Moment, keys: map[int]route.Key{}}
	for i, op := range b.Ops {
		if op.Object != nil || !h.about(op.Key) {
			continue
		}
		s.keys[i] = op.Key
		text := "put"
		if op.Digest == 0 {
			text = "delete"
		}
		if err := h.add(r, StepSent, op.Key, op.Queued, text); err != nil {
			return err
		}
	}
	if len(s.keys) > 0 {
		h.sent[b.Number] = s
	}
	return nil
}

func (h *history) result(r Record, b *fib.BatchResult) error {
	s, ok := h.sent[b.Number]
	if !ok {
		return nil
	}
	delete(h.sent, b.Number)
	failed := map[int]string{}
	for _, f := range b.Failed {
		failed[f.Index] = f.Error
	}
	for _, i := range slices.Sorted(maps.Keys(s.keys)) {
		err := h.add(r, StepAnswered, s.keys[i], s.at, cmp.Or(failed[i], "done"))
		if err != nil {
			return err
		}
	}
	return nil
}

// datastore adds what was changed of blocks that contain the prefix.
func (h *history) datastore(r Record, c *calico.RecordedChanges) error {
	var err error
	say := func(block netip.Prefix, text string) {
		if err == nil && h.isIn(block) {
			err = h.add(r, StepDatastore, route.Key{}, 0, text)
		}
	}
	for _, field := range []string{"Blocks", "Affinities"} {
		name := map[string]string{"Blocks": "block", "Affinities": "own affinity"}[field]
		var set map[netip.Prefix]json.RawMessage
		var gone []netip.Prefix
		_ = json.Unmarshal(c.Set[field], &set) // absent, nearly always
		_ = json.Unmarshal(c.Gone[field], &gone)
		for _, p := range slices.SortedFunc(maps.Keys(set), route.ComparePrefixes) {
			say(p, fmt.Sprintf("%s %v: %s", name, p, set[p]))
		}
		for _, p := range gone {
			say(p, fmt.Sprintf("%s %v is gone", name, p))
		}
	}
	return err
}

func (h *history) isIn(block netip.Prefix) bool {
	return block.Bits() <= h.prefix.Bits() && block.Contains(h.prefix.Addr())
}

func candidateText(c *fib.CandidateChange) string {
	if c.Kind == route.Via && len(c.Paths) == 0 {
		return fmt.Sprintf("%v: nothing", c.Origin)
	}
	text := fmt.Sprintf("%v: %s", c.Origin, actionText(c.Kind, c.Paths))
	if c.Preference != 0 {
		text += fmt.Sprintf(" local-pref %d", c.Preference)
	}
	return text
}

func decisionText(d *Decision) string {
	text := "nothing"
	switch {
	case d.Waiting:
		text = "stays as it is"
	case d.Programs:
		text = fmt.Sprintf("%s of %v", actionText(d.Kind, d.Paths), d.Origin)
		if d.Held {
			text += " for now"
		}
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text
}

func actionText(kind route.Kind, paths []route.Path) string {
	texts := []string{kind.String()}
	for _, p := range paths {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, " ")
}
