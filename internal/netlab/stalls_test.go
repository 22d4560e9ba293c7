package netlab

import (
	"errors"
	"os"
	"strconv"
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
	goFirst(t)
	start := func(name, script string) *Process {
		p := must[*Process](t)(l.Start(Spec{Name: name, Namespace: ns, Path: "/bin/sh",
			Args: []string{"-c", script}}))
		check(t, unix.Setpriority(unix.PRIO_PROCESS, p.PID(), first))
		return p
	}
	const busy = "while :; do :; done"
	// The first processor that this process may use is shared by one that has 1024 parts of it and
	// one that has three (sched(7), SCHED_IDLE).
	processor := firstProcessor(t)
	starved, hog := start("starved", busy), start("hog", busy)
	check(t, errors.Join(unix.SchedSetaffinity(starved.PID(), &processor),
		unix.SchedSetaffinity(hog.PID(), &processor)))
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
	rest := map[string][]Stall{"one that runs": ofHog.Stop(), "one that waits": ofWaiting.Stop(),
		"one that is held": ofHeld.Stop()}
	stalls := ofStarved.Stop()
	for len(stalls) == 0 && time.Since(began) < 30*time.Second { // the watch was late itself
		ofStarved = starved.WatchStalls(atLeast)
		time.Sleep(time.Second)
		stalls = ofStarved.Stop()
	}
	if len(stalls) == 0 {
		t.Error("it was not run for long, and nothing was noted")
	}
	for _, s := range stalls {
		if d := s.To.Sub(s.From); d < atLeast || s.From.Before(began) || s.To.After(time.Now()) {
			t.Errorf("a stall of %s, from %s to %s", d, s.From, s.To)
		}
	}
	for name, stalls := range rest {
		if len(stalls) > 0 {
			t.Errorf("%s has not stalled, and is said to have: %v", name, stalls)
		}
	}
	check(t, hog.Kill())
	if stalls := hog.WatchStalls(time.Millisecond).Stop(); len(stalls) > 0 {
		t.Errorf("of one that has ended: %v", stalls)
	}
}

// first is the niceness of who goes before all else that the machine has to do. Otherwise the
// stalls of a busy machine would be real, and who watches would be late itself.
const first = -20

// goFirst gives all our threads that niceness for the time of the test.
func goFirst(t *testing.T) {
	t.Helper()
	set := func(niceness int) {
		threads, err := os.ReadDir("/proc/self/task")
		check(t, err)
		for _, thread := range threads {
			tid, err := strconv.Atoi(thread.Name())
			check(t, err)
			err = unix.Setpriority(unix.PRIO_PROCESS, tid, niceness)
			if !errors.Is(err, unix.ESRCH) { // it has ended
				check(t, err)
			}
		}
	}
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	check(t, err)
	set(first)
	t.Cleanup(func() { set(20 - before) }) // the system call returns 20 - niceness
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
	processor := firstProcessor(t)
	check(t, errors.Join(unix.SchedSetaffinity(hog.PID(), &processor),
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
