package agent

import (
	"slices"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Several sources feed the FIB side by side, none waits for another. BGP is one: its routes go to
// the engine directly (Learner). Own routes and those from Calico's blocks follow from snapshots.
// Every other is named in Config.Sources and calls Want.

// Want replaces all that a source wants, and needs no data of Calico's. It may be called at any
// time, also before Run. What an earlier run left of the source stays until it says that it is
// Complete, and what has no known owner until all sources have said so. The revision is what
// fib.Settled speaks of; 0: there is no FIB.
func (a *Agent) Want(source route.Origin, all fib.Source) (revision uint64) {
	if a.cfg.FIB == nil {
		return 0
	}
	return a.setWanted(func(w *fib.Wanted) { setSource(w, source, all) })
}

// HasPlan is closed when the FIB has been handed this node's own routes.
func (a *Agent) HasPlan() <-chan struct{} { return a.hasPlan }

func setSource(w *fib.Wanted, source route.Origin, all fib.Source) {
	all.Complete = all.Complete || w.Sources[source].Complete
	w.Sources[source] = all
}

// complete: these sources have set all they want.
func (a *Agent) complete(sources ...route.Origin) {
	a.setWanted(func(w *fib.Wanted) {
		for _, s := range sources {
			w.Sources[s].Complete = true
		}
	})
}

// setWanted hands over everything that is wanted of the FIB, with one change.
func (a *Agent) setWanted(change func(w *fib.Wanted)) (revision uint64) {
	a.wanting.Lock()
	defer a.wanting.Unlock()
	w := &a.wanted
	change(w)
	w.Complete = w.Sources[route.BGP].Complete &&
		!slices.ContainsFunc(a.cfg.Sources, func(s route.Origin) bool {
			return !w.Sources[s].Complete
		})
	revision = a.cfg.Resolver.Set(*w) // the FIB's engine, if there is a FIB
	w.Received = time.Time{}
	return revision
}
