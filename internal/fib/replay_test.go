package fib

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/internal/route"
)

// replaying is a Recorder that replays at once, and compares.
type replaying struct {
	began time.Time

	mu      sync.Mutex // guards what follows
	replay  *Replay
	decided map[route.Key]Decision
}

func newReplaying() *replaying {
	return &replaying{began: time.Now().Add(-time.Second), replay: NewReplay(),
		decided: map[route.Key]Decision{}}
}

func (r *replaying) At(t time.Time) Moment { return Moment(t.Sub(r.began)) }

func (r *replaying) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *replaying) Candidate(c CandidateChange) { r.locked(func() { r.replay.Candidate(c) }) }
func (r *replaying) Decided(d Decision)          { r.locked(func() { r.decided[d.Key] = d }) }
func (r *replaying) Sent(Batch)                  {}
func (r *replaying) Answered(BatchResult)        {}

func (r *replaying) Facts(at Moment, f route.Facts) { r.locked(func() { r.replay.Facts(at, f) }) }

func (r *replaying) Resolved(at Moment, n NextHop, is route.Resolution) {
	r.locked(func() { r.replay.Resolved(at, n, is) })
}

func (r *replaying) Surroundings(at Moment, s Surroundings) {
	r.locked(func() { r.replay.Surroundings(at, s) })
}

func (r *replaying) Stands([]CandidateChange, Decision) {}

// differences says where the replay decides otherwise than the engine did.
func (r *replaying) differences() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.replay.Keys()
	for k := range r.decided {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		was, is := r.decided[k], r.replay.Desired(r.At(time.Now()), k)
		if was.Programs != is.Programs || was.Digest != is.Digest || was.Waiting != is.Waiting {
			all = append(all, fmt.Sprintf("%v: recorded %+v, replayed %+v", k, was, is))
		}
	}
	return all
}
