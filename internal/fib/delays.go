package fib

import (
	"slices"
	"time"
)

// HistogramBounds are the upper bounds of a Histogram's buckets; one without a bound follows.
var HistogramBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
}

// Histogram counts durations.
type Histogram struct {
	Counts [len(HistogramBounds) + 1]uint64 // of each bucket alone
	Sum    time.Duration
}

func (h *Histogram) add(d time.Duration) {
	i, _ := slices.BinarySearch(HistogramBounds[:], d)
	h.Counts[i]++
	h.Sum += d
}

// delays measures how long revisions take that follow from an event. A key that an earlier revision
// has left open counts with that one, so that a route that stays refused does not stop the rest.
type delays struct {
	begun     map[uint64]*begun // by revision, those with open keys
	histogram Histogram
}

type begun struct {
	at      time.Time
	open    int // keys, and one while the revision is being taken in
	changed bool
}

// begin has a revision measured, unless at is zero.
func (d *delays) begin(revision uint64, at time.Time) {
	if !at.IsZero() {
		d.begun[revision] = &begun{at: at, open: 1}
	}
}

// taken: no key follows. A revision that has changed nothing does not count.
func (d *delays) taken(revision uint64, now time.Time) {
	if b := d.begun[revision]; b != nil && !b.changed {
		delete(d.begun, revision)
	}
	d.closed(revision, now)
}

func (d *delays) opened(revision uint64) {
	if b := d.begun[revision]; b != nil {
		b.open, b.changed = b.open+1, true
	}
}

func (d *delays) closed(revision uint64, now time.Time) {
	b := d.begun[revision]
	if b == nil {
		return
	}
	if b.open--; b.open == 0 {
		delete(d.begun, revision)
		d.histogram.add(now.Sub(b.at))
	}
}
