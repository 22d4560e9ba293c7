package netlab

import (
	"syscall"
	"testing"
	"time"
)

// A process that is not run for a while has stalled; one that is held by a signal, or runs all the time, has not.
func TestStallsOfAProcess(t *testing.T) {
	l := newLab(t)
	ns := must[*Namespace](t)(l.Namespace("node"))
	start := func(name, script string) *Process {
		return must[*Process](t)(l.Start(Spec{Name: name, Namespace: ns, Path: "/bin/sh", Args: []string{"-c", script}}))
	}
	// The shell has nothing to do while sleep does it, as if it were not run.
	idle, busy, held := start("idle", "sleep 0.6; sleep 0.6; while :; do :; done"), start("busy", "while :; do :; done"), start("held", "while :; do sleep 0.01; done")
	var watches []*StallWatch
	for _, p := range []*Process{idle, busy, held} {
		watches = append(watches, p.WatchStalls(400*time.Millisecond))
	}
	time.Sleep(200 * time.Millisecond)
	check(t, held.Signal(syscall.SIGSTOP))
	time.Sleep(600 * time.Millisecond)
	check(t, held.Signal(syscall.SIGCONT))
	time.Sleep(700 * time.Millisecond)
	if stalls := watches[0].Stop(); len(stalls) != 2 {
		t.Errorf("of one that was not run twice: %v", stalls)
	} else {
		for _, s := range stalls {
			if d := s.To.Sub(s.From); d > time.Second {
				t.Errorf("0.6 s are taken for %s", d)
			}
		}
	}
	if stalls := watches[1].Stop(); len(stalls) > 0 {
		t.Errorf("of one that runs all the time: %v", stalls)
	}
	if stalls := watches[2].Stop(); len(stalls) > 0 {
		t.Errorf("of one that was held: %v", stalls)
	}
	check(t, busy.Kill())
	ended := busy.WatchStalls(time.Millisecond)
	if stalls := ended.Stop(); len(stalls) > 0 {
		t.Errorf("of one that has ended: %v", stalls)
	}
}
