package fib

import (
	"context"
	"maps"
	"slices"
	"time"
)

// tablesJob gives the data plane the tables that are in use.
type tablesJob struct {
	keep       []uint32
	generation int
	err        error
}

// tablesToKeep returns the job of having unused tables removed, nil when there is none to do now. A
// table is in use as long as a source wants a route in it, one of ours may be left in it, or next
// hops are looked up in it.
func (s *syncer) tablesToKeep(lookedUp func() []uint32) *tablesJob {
	if !s.unusedDue || !s.present || !s.sweep || s.now.Before(s.unusedAt) {
		return nil
	}
	s.unusedDue = false
	keep := slices.Concat([]uint32{}, slices.Collect(maps.Keys(s.used)), lookedUp())
	slices.Sort(keep)
	return &tablesJob{keep: slices.Compact(keep), generation: s.generation}
}

func (s *syncer) tablesKept(j *tablesJob) {
	if j.err != nil && j.generation == s.generation {
		s.unusedDue, s.unusedAt = true, s.now.Add(jitter(lastRetry))
	}
}

func (e *Engine) keepTables(ctx context.Context, j *tablesJob) {
	keeper, ok := e.dataplane.(TableKeeper)
	if !ok {
		return
	}
	c, cancel := context.WithTimeout(ctx, tablesTimeout)
	defer cancel()
	if j.err = keeper.KeepTables(c, j.keep); j.err != nil && ctx.Err() == nil {
		e.log.Warn("unused tables stay", "err", j.err)
	}
}

// tablesTimeout bounds the removal of tables on a data plane that hangs.
const tablesTimeout = 10 * time.Second
