package vpp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"

	"vpp-route-agent/internal/route"
)

// The names of counters in VPP's statistics segment.
const (
	receivedByLink = "/if/rx"         // by the interface's index
	sentByLink     = "/if/tx"         // likewise
	byRoute        = "/net/route/to"  // by the stats_index of a route
	byAdjacency    = "/net/adjacency" // by the index of an adjacency; all 0 while VPP has them off
)

const (
	// A reading is in vain where VPP has moved counters meanwhile, which it does as routes come.
	segmentTries = 50
	segmentPause = 10 * time.Millisecond
)

// segment is a reading of counters by name: by thread, and in each by index.
type segment map[string]adapter.CombinedCounterStat

// of sums up what the threads have counted at an index.
func (s segment) of(name string, index uint32) (sum route.Counts) {
	for _, thread := range s[name] {
		if uint64(index) < uint64(len(thread)) {
			sum.Add(route.Counts{Packets: thread[index].Packets(), Bytes: thread[index].Bytes()})
		}
	}
	return sum
}

// readSegment reads counters in one reading, and one at a time: GoVPP's client has no timeout, and
// a frozen VPP must not gather callers. It maps the segment anew, as VPP may have restarted.
func (v *VPP) readSegment(ctx context.Context, names ...string) (segment, error) {
	select {
	case v.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%s does not answer: %w", v.cfg.StatsSocket, ctx.Err())
	}
	type answer struct {
		segment segment
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { <-v.reading }()
		s, err := readCounters(v.cfg.StatsSocket, names)
		done <- answer{s, err}
	}()
	select {
	case got := <-done:
		return got.segment, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s does not answer: %w", v.cfg.StatsSocket, ctx.Err())
	}
}

// readCounters maps the segment and copies counters out of it. VPP does not wait for readers: what
// it frees meanwhile may have any length, at which GoVPP's client takes it.
func readCounters(socket string, names []string) (out segment, err error) {
	if _, err := os.Stat(socket); err != nil {
		return nil, err
	}
	// it would also print the error that it returns
	statsclient.Log.SetLevel(1)
	c := statsclient.NewStatsClient(socket, statsclient.SetSocketRetryTimeout(time.Second))
	if err := c.Connect(); err != nil {
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	defer func() { err = errors.Join(err, c.Disconnect()) }()
	patterns := make([]string, len(names))
	for i, name := range names {
		patterns[i] = "^" + name + "$"
	}
	var entries []adapter.StatEntry
	for try := 1; ; try++ {
		entries, err = dumpStats(c, patterns)
		if err == nil || try == segmentTries {
			break
		}
		time.Sleep(segmentPause)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	out = segment{}
	for _, e := range entries {
		if counters, ok := e.Data.(adapter.CombinedCounterStat); ok {
			out[string(e.Name)] = counters
		}
	}
	for _, name := range names {
		if _, ok := out[name]; !ok {
			return nil, fmt.Errorf("%s has no %s", socket, name)
		}
	}
	return out, nil
}

// dumpStats is DumpStats, with an error where that reads what is no counters any more.
func dumpStats(c *statsclient.StatsClient, patterns []string) (all []adapter.StatEntry, err error) {
	before := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(before)
	defer func() {
		if is := recover(); is != nil {
			all, err = nil, fmt.Errorf("the statistics changed while they were read: %v", is)
		}
	}()
	return c.DumpStats(patterns...)
}
