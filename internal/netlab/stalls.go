package netlab

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stallInterval = 5 * time.Millisecond
	// The minimum time for which a thread that runs without a pause keeps the processor.
	leastRun = time.Millisecond
	// lateLook is the longest interval between two samples that is still evaluated.
	lateLook = 50 * time.Millisecond
)

// Stall is a time in which a runnable process did not get a processor, or a processor ran nothing.
type Stall struct{ From, To time.Time }

// StallWatch records stalls until it is stopped.
type StallWatch struct {
	done   chan struct{}
	wg     sync.WaitGroup
	mu     sync.Mutex
	stalls []Stall
}

// WatchStalls records when a process's main thread was runnable but did not run for at least so
// long. A waiting or stopped thread is not runnable. It samples every 5 ms, and records nothing
// while late itself. It ends with the process.
func (p *Process) WatchStalls(atLeast time.Duration) *StallWatch {
	w := &StallWatch{done: make(chan struct{})}
	pid := p.PID()
	w.wg.Go(func() { w.note(pid, atLeast) })
	return w
}

// WatchProcessors records when one of the processors did not run, for at least so long, a thread
// that was to wake up on it every 5 ms: the virtual machine did not get it, or the kernel kept it.
// Who sleeps on such a processor is not even runnable.
func WatchProcessors(atLeast time.Duration) *StallWatch {
	w := &StallWatch{done: make(chan struct{})}
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return w
	}
	var starting sync.WaitGroup
	for cpu := range len(allowed) * 64 {
		if allowed.IsSet(cpu) {
			starting.Add(1)
			w.wg.Go(func() { w.noteProcessor(cpu, atLeast, starting.Done) })
		}
	}
	starting.Wait()
	return w
}

func (w *StallWatch) noteProcessor(cpu int, atLeast time.Duration, started func()) {
	runtime.LockOSThread() // the thread ends with the goroutine
	var one unix.CPUSet
	one.Set(cpu)
	err := unix.SchedSetaffinity(0, &one)
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20) // of this thread, where that is allowed
	last := time.Now()
	started()
	for err == nil {
		select {
		case <-w.done:
			return
		default:
		}
		// the timers of the runtime run on whatever thread
		_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(stallInterval)}, nil)
		now := time.Now()
		w.end(last, now, atLeast)
		last = now
	}
}

func (w *StallWatch) note(pid int, atLeast time.Duration) {
	ticker := time.NewTicker(stallInterval)
	defer ticker.Stop()
	since, err := readRun(pid) // what it had run when it was seen to run last
	for until := since.at; err == nil; {
		select {
		case <-w.done:
			w.end(since.at, until, atLeast)
			return
		case <-ticker.C:
		}
		var now run
		if now, err = readRun(pid); err != nil {
			return
		}
		seen := now.at.Sub(until) <= lateLook
		if seen && now.runnable && now.same(since) {
			until = now.at
			continue
		}
		w.end(since.at, until, atLeast)
		since, until = now, now.at
	}
}

// end records a stall from the last sample with progress to the last one without.
func (w *StallWatch) end(from, to time.Time, atLeast time.Duration) {
	if to.Sub(from) >= atLeast {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stalls = append(w.stalls, Stall{from, to})
	}
}

// Stop ends the watch and returns the stalls.
func (w *StallWatch) Stop() []Stall {
	close(w.done)
	w.wg.Wait()
	return w.stalls
}

// run is the accumulated processor time of a process's main thread.
type run struct {
	at       time.Time
	cpu      time.Duration
	switches uint64 // to it
	runnable bool
}

func (r run) same(last run) bool { return r.switches == last.switches && r.cpu-last.cpu < leastRun }

// readRun reads a thread's scheduling statistics (proc_pid_stat(5),
// Documentation/scheduler/sched-stats.rst).
func readRun(pid int) (r run, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return run{}, err
	}
	i := bytes.LastIndexByte(stat, ')') // "PID (NAME) STATE …", where NAME may contain anything
	if i < 0 || len(stat) < i+3 {
		return run{}, fmt.Errorf("netlab: /proc/%d/stat: %q", pid, stat)
	}
	r.runnable = stat[i+2] == 'R'
	counts, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return run{}, err
	}
	r.at = time.Now()
	// time on a processor and waiting for one in ns, number of times scheduled
	fields := bytes.Fields(counts)
	if len(fields) != 3 {
		return run{}, fmt.Errorf("netlab: /proc/%d/schedstat: %q", pid, counts)
	}
	ns, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return run{}, err
	}
	r.cpu = time.Duration(ns)
	r.switches, err = strconv.ParseUint(string(fields[2]), 10, 64)
	return r, err
}
