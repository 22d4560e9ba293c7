package fib

import (
	"context"
	"slices"
	"time"

	"vpp-route-agent/internal/route"
)

// tablesJob tells the data plane which tables are in use.
type tablesJob struct {
	keep []uint32
	life int
	err  error
}

// useTable counts an entry of k in or out. With the last entry of a table it may go.
func (t *table) useTable(k route.Key, n int) {
	if k.Table == 0 {
		return
	}
	if t.tables[k.Table] += n; t.tables[k.Table] == 0 {
		delete(t.tables, k.Table)
		t.tablesDue = true
	}
}

// tablesToKeep returns the job of having unused tables removed, nil when there is none to do now. A table is in use as long as a source
// wants a route in it, one of ours may be left in it, or next hops are looked up in it.
func (t *table) tablesToKeep() *tablesJob {
	if !t.tablesDue || !t.present || !t.sweep || t.now.Before(t.tablesAt) {
		return nil
	}
	keep := []uint32{}
	for id := range t.tables {
		keep = append(keep, id)
	}
	for _, hop := range t.hops.sorted {
		if hop.Table != 0 && len(hop.sets) > 0 {
			keep = append(keep, hop.Table)
		}
	}
	slices.Sort(keep)
	t.tablesDue = false
	return &tablesJob{keep: slices.Compact(keep), life: t.life}
}

func (t *table) tablesKept(j *tablesJob) {
	if j.err != nil && j.life == t.life {
		t.tablesDue, t.tablesAt = true, t.now.Add(jitter(lastRetry))
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
