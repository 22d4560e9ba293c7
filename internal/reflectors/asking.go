package reflectors

import (
	"cmp"
	"slices"
	"time"

	"vpp-route-agent/bgp/reflector"
)

const (
	// maxAge is how long an answer counts, from when its question was written.
	maxAge = time.Minute
	// askAgain is the time between two writes of a question. After the first two, whose answers
	// open a gate, it is askLater.
	askAgain = time.Second
	askLater = 5 * time.Second
	// patience is how long answers are waited for before the question is written again, which
	// makes an agent begin anew.
	patience = 30 * time.Second
)

// asking is the one question that is put to all agents now, and the answers to it and to those
// before. It does no I/O. Whoever leads anew begins with an empty one.
type asking struct {
	question reflector.Question
	asked    bool // question is in the datastore
	rounds   []round
	count    int // of writes of this question since the last change
	answers  map[string][]heard
}

// round is a write of a question, with the revision that answers repeat.
type round struct {
	revision int64
	at       time.Time
}

type heard struct {
	round
	answer reflector.Answer
}

// put notes that q was written.
func (a *asking) put(q reflector.Question, r round) {
	if !a.asked || a.question != q {
		a.count = 0
	}
	a.question, a.asked = q, true
	a.count++
	a.rounds = append(slices.DeleteFunc(a.rounds, func(old round) bool {
		return r.at.Sub(old.at) > maxAge
	}), r)
	for node, all := range a.answers {
		a.answers[node] = slices.DeleteFunc(all, func(h heard) bool {
			return r.at.Sub(h.at) > maxAge
		})
	}
}

// end notes that no question is asked any more.
func (a *asking) end() { a.asked = false }

// changed notes that what the answers are about has changed: no earlier one counts.
func (a *asking) changed() {
	a.answers, a.count = nil, 0
}

// hear takes what a node has answered last. Only answers to what this controller has written count;
// the revision says which of its writes.
func (a *asking) hear(node string, answer reflector.Answer) {
	i := slices.IndexFunc(a.rounds, func(r round) bool { return r.revision == answer.Revision })
	known := slices.ContainsFunc(a.answers[node], func(h heard) bool {
		return h.revision == answer.Revision
	})
	if i < 0 || known {
		return
	}
	if a.answers == nil {
		a.answers = map[string][]heard{}
	}
	a.answers[node] = append(a.answers[node], heard{a.rounds[i], answer})
}

// of returns the answers of a node that count, oldest first: to questions that were written after a
// revision, and not too long ago. The age is that of the question, the earliest time at which the
// answer can have been found.
func (a *asking) of(node string, after int64, now time.Time) (all []reflector.Answer) {
	counting := slices.DeleteFunc(slices.Clone(a.answers[node]), func(h heard) bool {
		return h.revision <= after || now.Sub(h.at) > maxAge
	})
	slices.SortFunc(counting, func(a, b heard) int { return cmp.Compare(a.revision, b.revision) })
	for _, h := range counting {
		all = append(all, h.answer)
	}
	return all
}

// due says when q is to be written, given the nodes whose answers are waited for.
func (a *asking) due(q reflector.Question, nodes []string) time.Time {
	if !a.asked || a.question != q {
		return time.Time{}
	}
	last := a.rounds[len(a.rounds)-1]
	for _, n := range nodes {
		if !slices.ContainsFunc(a.answers[n], func(h heard) bool {
			return h.revision == last.revision
		}) && a.count > 0 {
			return last.at.Add(patience)
		}
	}
	if a.count > 2 {
		return last.at.Add(askLater)
	}
	return last.at.Add(askAgain)
}
