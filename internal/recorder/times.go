package recorder

import (
	"math"
	"time"

	"vpp-route-agent/internal/fib"
)

// Times are how long the steps of changes took.
type Times struct {
	Decide Histogram // from what was received to the decision
	Send   Histogram // from the decision until the data plane was asked
	Answer Histogram // from there until it had answered for the batch
}

// Times returns those since the start.
func (r *Recorder) Times() Times {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.times
}

const (
	// Schema is the resolution of histograms as Prometheus counts: buckets end at 2^(i/4) seconds.
	Schema     = 2
	perDouble  = 1 << Schema
	lowest     = -20 * perDouble // a microsecond
	numBuckets = 32 * perDouble  // up to 4096 s
)

// halfToOne are the bounds of the buckets between 1/2 and 1.
var halfToOne = [perDouble]float64{
	0.5, math.Exp2(-0.75), math.Exp2(-0.5), math.Exp2(-0.25),
}

// Histogram counts durations in buckets that grow by a fifth.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	buckets [numBuckets]uint64
}

// add counts the time from one moment to the next, if the first is known.
func (h *Histogram) add(from, to fib.Moment) { h.addMany(from, to, 1) }

func (h *Histogram) addMany(from, to fib.Moment, n int) {
	if from == 0 || n <= 0 {
		return
	}
	d := time.Duration(max(to-from, 0))
	h.Count += uint64(n)
	h.Sum += d * time.Duration(n)
	h.buckets[bucketOf(d)] += uint64(n)
}

func bucketOf(d time.Duration) int {
	if d <= time.Microsecond {
		return 0
	}
	fraction, exponent := math.Frexp(d.Seconds())
	i := (exponent - 1) * perDouble
	for _, bound := range halfToOne {
		if fraction > bound {
			i++
		}
	}
	return min(max(i-lowest, 0), numBuckets-1)
}

// Cumulative returns how many were no longer than each of these: every eighth bound, so that they
// differ by a factor of four.
func (h *Histogram) Cumulative() map[float64]uint64 {
	out, sum := map[float64]uint64{}, uint64(0)
	for i, n := range h.buckets {
		if sum += n; (i+lowest)%(2*perDouble) == 0 {
			out[math.Exp2(float64(i+lowest)/perDouble)] = sum
		}
	}
	return out
}

// Buckets returns the counts by the number of their bucket, as Prometheus' native histograms number
// them; none that is empty.
func (h *Histogram) Buckets() map[int]int64 {
	out := map[int]int64{}
	for i, n := range h.buckets {
		if n > 0 {
			out[i+lowest] = int64(n)
		}
	}
	return out
}

// Since returns what h counts and an earlier state of it does not.
func (h Histogram) Since(earlier Histogram) Histogram {
	h.Count -= earlier.Count
	h.Sum -= earlier.Sum
	for i, n := range earlier.buckets {
		h.buckets[i] -= n
	}
	return h
}
