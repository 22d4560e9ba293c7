package netlab

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	stallInterval = 5 * time.Millisecond
	// A process that runs without a pause is not switched to; it gets this much time or more of each interval in which somebody looks.
	leastRun = time.Millisecond
)

// Stall is a time in which the machine did not let a process run.
type Stall struct{ From, To time.Time }

// StallWatch notes stalls until it is stopped.
type StallWatch struct {
	done   chan struct{}
	wg     sync.WaitGroup
	stalls []Stall
}

// WatchStalls notes for how long a process, which must be one that wakes up all the time, as VPP's main thread does, was not run by the
// machine, where that was at least so long. Times in which a signal holds it (SIGSTOP) are none; it ends by itself with the process.
func (p *Process) WatchStalls(atLeast time.Duration) *StallWatch {
	w := &StallWatch{done: make(chan struct{})}
	pid := p.PID()
	w.wg.Go(func() { w.note(pid, atLeast) })
	return w
}

func (w *StallWatch) note(pid int, atLeast time.Duration) {
	last, err := readRun(pid)
	for ticker := time.NewTicker(stallInterval); err == nil; {
		select {
		case <-w.done:
			return
		case <-ticker.C:
		}
		var now run
		if now, err = readRun(pid); err != nil || now.same(last) && !now.held {
			continue
		}
		if now.at.Sub(last.at) >= atLeast && !now.held && !last.held {
			w.stalls = append(w.stalls, Stall{last.at, now.at})
		}
		last = now
	}
}

// Stop ends the watch and returns what it saw.
func (w *StallWatch) Stop() []Stall {
	close(w.done)
	w.wg.Wait()
	return w.stalls
}

// run is how much a process's main thread had run at some time.
type run struct {
	at       time.Time
	cpu      time.Duration
	switches uint64 // to it
	held     bool   // by a signal
}

func (r run) same(last run) bool { return r.switches == last.switches && r.cpu-last.cpu < leastRun }

// readRun reads what the kernel counts of a thread (Documentation/scheduler/sched-stats.rst).
func readRun(pid int) (r run, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return run{}, err
	}
	// "PID (NAME) STATE …", where NAME may contain anything.
	if i := bytes.LastIndexByte(stat, ')'); i >= 0 && len(stat) > i+2 {
		r.held = stat[i+2] == 'T' || stat[i+2] == 't'
	}
	counts, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return run{}, err
	}
	r.at = time.Now()
	fields := bytes.Fields(counts) // time on a processor and waiting for one, in ns, and times switched to
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
