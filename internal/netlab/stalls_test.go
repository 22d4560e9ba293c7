package netlab

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that has work and is not run has stalled. One that waits, is held by a signal, or runs
// all the time has not.
func TestStallsOfAProcess(t *testing.T) {
	l := newLab(t)
	ns := must[*Namespace](t)(l.Namespace("node"))
	start := func(name, script string) *Process {
		p := must[*Process](t)(l.Start(Spec{Name: name, Namespace: ns, Path: "/bin/sh",
			Args: []string{"-c", script}}))
		check(t, unix.Setpriority(unix.PRIO_PROCESS, p.PID(), 0)) // also where the tests are nice
		return p
	}
	const busy = "while :; do :; done"
	// The first processor that this process may use is shared by one that has 1024 parts of it and
	// one that has three (sched(7), SCHED_IDLE).
	first := firstProcessor(t)
	starved, hog := start("starved", busy), start("hog", busy)
	check(t, errors.Join(unix.SchedSetaffinity(starved.PID(), &first),
		unix.SchedSetaffinity(hog.PID(), &first)))
	check(t, unix.SchedSetAttr(starved.PID(), &unix.SchedAttr{Size: unix.SizeofSchedAttr,
		Policy: unix.SCHED_IDLE}, 0))
	waiting, held := start("waiting", "while :; do sleep 0.6; done"), start("held", busy)

	const atLeast = 150 * time.Millisecond
	began := time.Now()
	ofStarved, ofHog, ofWaiting, ofHeld := starved.WatchStalls(atLeast), hog.WatchStalls(atLeast),
		waiting.WatchStalls(atLeast), held.WatchStalls(atLeast)
	time.Sleep(100 * time.Millisecond)
	check(t, held.Signal(syscall.SIGSTOP))
	time.Sleep(time.Second)
	check(t, held.Signal(syscall.SIGCONT))
	time.Sleep(900 * time.Millisecond)
	stalls := ofStarved.Stop()
	if len(stalls) == 0 {
		t.Error("it was not run for long, and nothing was noted")
	}
	for _, s := range stalls {
		if d := s.To.Sub(s.From); d < atLeast || s.From.Before(began) || s.To.After(time.Now()) {
			t.Errorf("a stall of %s, from %s to %s", d, s.From, s.To)
		}
	}
	for name, w := range map[string]*StallWatch{"one that runs": ofHog, "one that waits": ofWaiting,
		"one that is held": ofHeld} {
		if stalls := w.Stop(); len(stalls) > 0 {
			t.Errorf("%s has not stalled, and is said to have: %v", name, stalls)
		}
	}
	check(t, hog.Kill())
	if stalls := hog.WatchStalls(time.Millisecond).Stop(); len(stalls) > 0 {
		t.Errorf("of one that has ended: %v", stalls)
	}
}

func firstProcessor(t *testing.T) (first unix.CPUSet) {
	var allowed unix.CPUSet
	check(t, unix.SchedGetaffinity(0, &allowed))
	for i := range len(allowed) * 64 {
		if allowed.IsSet(i) {
			first.Set(i)
			break
		}
	}
	return first
}

// A processor that does not run what wakes up on it has stalled.
func TestStallsOfAProcessor(t *testing.T) {
	l := newLab(t)
	ns := must[*Namespace](t)(l.Namespace("node"))
	const atLeast = 300 * time.Millisecond
	began := time.Now()
	watch, ofLong := WatchProcessors(atLeast), WatchProcessors(time.Minute)
	hog := must[*Process](t)(l.Start(Spec{Name: "hog", Namespace: ns, Path: "/bin/sh",
		Args: []string{"-c", "while :; do :; done"}}))
	first := firstProcessor(t)
	check(t, errors.Join(unix.SchedSetaffinity(hog.PID(), &first),
		unix.SchedSetAttr(hog.PID(), &unix.SchedAttr{Size: unix.SizeofSchedAttr,
			Policy: unix.SCHED_FIFO, Priority: 1}, 0)))
	time.Sleep(600 * time.Millisecond)
	check(t, hog.Kill())
	stalls := watch.Stop()
	if len(stalls) == 0 {
		t.Error("a thread with real-time priority kept a processor, and nothing was noted")
	}
	for _, s := range stalls {
		if d := s.To.Sub(s.From); d < atLeast || s.From.Before(began) || s.To.After(time.Now()) {
			t.Errorf("a stall of %s, from %s to %s", d, s.From, s.To)
		}
	}
	if stalls := ofLong.Stop(); len(stalls) > 0 {
		t.Errorf("no processor stalled for a minute, and is said to have: %v", stalls)
	}
}
