package netlab

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that has work and is not run has stalled. One that waits, is held by a signal, or runs all the time has not.
func TestStallsOfAProcess(t *testing.T) {
	l := newLab(t)
	ns := must[*Namespace](t)(l.Namespace("node"))
	start := func(name, script string) *Process {
		return must[*Process](t)(l.Start(Spec{Name: name, Namespace: ns, Path: "/bin/sh", Args: []string{"-c", script}}))
	}
	const busy = "while :; do :; done"
	pinned := func(name string) *Process {
		p := start(name, busy)
		var first unix.CPUSet
		first.Set(0)
		check(t, unix.SchedSetaffinity(p.PID(), &first))
		return p
	}
	starved, hog := pinned("starved"), pinned("hog")
	check(t, hog.Signal(syscall.SIGSTOP))
	// Real time: nothing else runs there until it stops, or for 0.95 s of each second.
	attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 10}
	if err := unix.SchedSetAttr(hog.PID(), attr, 0); errors.Is(err, unix.EPERM) {
		t.Skip("the kernel does not allow real-time scheduling here: nothing can starve a process at will")
	} else {
		check(t, err)
	}
	waiting, held := start("waiting", "while :; do sleep 0.6; done"), start("held", busy)
	alone := start("alone", busy)

	processes := []*Process{starved, waiting, held, alone}
	var watches []*StallWatch
	for _, p := range processes {
		watches = append(watches, p.WatchStalls(150*time.Millisecond))
	}
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	check(t, errors.Join(held.Signal(syscall.SIGSTOP), hog.Signal(syscall.SIGCONT)))
	time.Sleep(400 * time.Millisecond)
	check(t, errors.Join(hog.Signal(syscall.SIGSTOP), held.Signal(syscall.SIGCONT)))
	took := time.Since(began)
	time.Sleep(700 * time.Millisecond)
	for i, p := range processes {
		stalls := watches[i].Stop()
		if p != starved {
			if len(stalls) > 0 && p != alone || len(stalls) > 0 && runtime.NumCPU() > 1 {
				t.Errorf("%s has not stalled, and is said to have: %v", p.Name(), stalls)
			}
			continue
		}
		if len(stalls) != 1 || stalls[0].From.Before(began.Add(-50*time.Millisecond)) || stalls[0].To.Sub(stalls[0].From) > took+50*time.Millisecond {
			t.Errorf("it was not run for %s from %s on: %v", took, began, stalls)
		}
	}
	check(t, errors.Join(hog.Kill(), alone.Kill()))
	if stalls := alone.WatchStalls(time.Millisecond).Stop(); len(stalls) > 0 {
		t.Errorf("of one that has ended: %v", stalls)
	}
}
