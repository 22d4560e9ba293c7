package statuspage

import (
	"math"
	"net/http"
	"sync"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/recorder"
)

const (
	sampleEvery = 10 * time.Second
	samples     = 360 // an hour
	// copyEvery is the number of samples from one copy of the histograms to the next.
	copyEvery = 30
	copies    = samples/copyEvery + 1
)

// hour keeps counters of the last hour, 90 KiB from the start on.
type hour struct {
	mu      sync.Mutex
	samples [samples]sample
	taken   int // samples in all; the next goes to samples[taken%samples]
	last    agent.Counters
	copies  [copies]copied // of every copyEvery-th sample
}

// sample is what happened in one interval, in events a second, and how things stood at its end.
type sample struct {
	at                                           time.Time
	put, deleted, refused, received, sent, lost  float64
	peers, established, desired, programmed, ops int
}

// copied are the histograms since the start, at one time.
type copied struct {
	at     time.Time
	delays fib.Histogram
	steps  recorder.Times
}

// take adds a sample. The first has nothing to be compared with.
func (h *hour) take(now time.Time, c agent.Counters) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taken%copyEvery == 0 {
		h.copies[h.taken/copyEvery%copies] = copied{now, c.Delays, c.Steps}
	}
	s := sample{at: now, peers: c.Peers, established: c.Established, desired: c.Desired,
		programmed: c.Programmed, ops: c.Queued}
	if h.taken > 0 {
		took := now.Sub(h.samples[(h.taken-1)%samples].at).Seconds()
		// A peer that is removed takes its part of a sum along.
		rate := func(now, before uint64) float64 {
			return math.Round(float64(now-min(now, before))/took*1000) / 1000
		}
		was := h.last
		s.put, s.deleted = rate(c.Put, was.Put), rate(c.Deleted, was.Deleted)
		s.refused = rate(c.Refused, was.Refused)
		s.received = rate(c.UpdatesReceived, was.UpdatesReceived)
		s.sent = rate(c.UpdatesSent, was.UpdatesSent)
		s.lost = rate(c.SessionsLost, was.SessionsLost)
	}
	h.samples[h.taken%samples] = s
	h.taken++
	h.last = c
}

// lastHour is the answer: one value a sample in each list, the oldest first. Rates are per second.
type lastHour struct {
	At              []int64      `json:"at"` // milliseconds since 1970
	Put             []float64    `json:"put"`
	Deleted         []float64    `json:"deleted"`
	Refused         []float64    `json:"refused"`
	UpdatesReceived []float64    `json:"updatesReceived"`
	UpdatesSent     []float64    `json:"updatesSent"`
	SessionsLost    []float64    `json:"sessionsLost"`
	Peers           []int        `json:"peers"`
	Established     []int        `json:"established"`
	Desired         []int        `json:"desired"`
	Programmed      []int        `json:"programmed"`
	OpsQueued       []int        `json:"opsQueued"`
	Since           int64        `json:"since"` // that histograms are of
	Delays          distribution `json:"delays"`
	Decide          distribution `json:"decide"`
	Wait            distribution `json:"wait"`
	Answer          distribution `json:"answer"`
}

// distribution is a histogram: Counts[i] took at most Bounds[i] seconds, and more than the bound
// before. A last count without a bound took longer.
type distribution struct {
	Bounds []float64 `json:"bounds"`
	Counts []uint64  `json:"counts"`
	Sum    float64   `json:"sumSeconds"`
}

func (p *Page) rates(*http.Request) (any, error) {
	return p.hour.read(time.Now(), p.cfg.Agent.Counters()), nil
}

// read tells of the last hour up to now. Histograms are of up to five minutes more.
func (h *hour) read(now time.Time, c agent.Counters) lastHour {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := lastHour{At: []int64{}}
	for i := max(0, h.taken-samples); i < h.taken; i++ {
		s := h.samples[i%samples]
		out.At = append(out.At, s.at.UnixMilli())
		out.Put, out.Deleted = append(out.Put, s.put), append(out.Deleted, s.deleted)
		out.Refused = append(out.Refused, s.refused)
		out.UpdatesReceived = append(out.UpdatesReceived, s.received)
		out.UpdatesSent = append(out.UpdatesSent, s.sent)
		out.SessionsLost = append(out.SessionsLost, s.lost)
		out.Peers, out.Established = append(out.Peers, s.peers),
			append(out.Established, s.established)
		out.Desired, out.Programmed = append(out.Desired, s.desired),
			append(out.Programmed, s.programmed)
		out.OpsQueued = append(out.OpsQueued, s.ops)
	}
	oldest := copied{at: now}
	if n := (h.taken + copyEvery - 1) / copyEvery; n > copies {
		oldest = h.copies[n%copies]
	} else if n > 0 {
		oldest = h.copies[0]
	}
	if oldest.at.After(now) { // c was read before the first sample
		oldest = copied{now, c.Delays, c.Steps}
	}
	out.Since = oldest.at.UnixMilli()
	out.Delays = delaysSince(c.Delays, oldest.delays)
	out.Decide = stepsSince(c.Steps.Decide, oldest.steps.Decide)
	out.Wait = stepsSince(c.Steps.Send, oldest.steps.Send)
	out.Answer = stepsSince(c.Steps.Answer, oldest.steps.Answer)
	return out
}

func delaysSince(now, before fib.Histogram) distribution {
	out := distribution{Sum: (now.Sum - before.Sum).Seconds()}
	for i, n := range now.Counts {
		out.Counts = append(out.Counts, n-before.Counts[i])
		if i < len(fib.HistogramBounds) {
			out.Bounds = append(out.Bounds, fib.HistogramBounds[i].Seconds())
		}
	}
	return out
}

// stepsSince leaves out empty buckets at both ends. Bounds differ by a factor of two.
func stepsSince(now, before recorder.Histogram) distribution {
	h := now.Since(before)
	out := distribution{Bounds: []float64{}, Counts: []uint64{}, Sum: h.Sum.Seconds()}
	byOctave, least, most := map[int]uint64{}, math.MaxInt, math.MinInt
	for i, n := range h.Buckets() {
		octave := int(math.Ceil(float64(i) / (1 << recorder.Schema)))
		byOctave[octave] += uint64(n)
		least, most = min(least, octave), max(most, octave)
	}
	for i := least; i <= most; i++ {
		out.Bounds = append(out.Bounds, math.Exp2(float64(i)))
		out.Counts = append(out.Counts, byOctave[i])
	}
	return out
}
