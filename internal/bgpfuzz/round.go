package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

const (
	inspectEvery = 20 * time.Second // how often attacks stop for the tables to be compared
	lately       = 5 * time.Second  // what ended before has nothing to do with an agent's end
	calm         = 30 * time.Second // until the honest tables are right again, at most
)

// round is one cluster that scenarios are played on, up to the first finding.
type round struct {
	settings
	*cluster
	measured

	mu       sync.Mutex // guards the following
	played   []*playing // since the tables were compared
	suspects []scenario // of the finding

	survived []string // panics that the reflector recovered from, each once
}

// playing is a scenario in play, or one that was.
type playing struct {
	scenario
	ended time.Time
}

// source hands out scenarios by their number, until there are none.
type source func(i int) (s scenario, ok bool)

func list(all []scenario) source {
	return func(i int) (scenario, bool) {
		if i >= len(all) {
			return scenario{}, false
		}
		return all[i], true
	}
}

// play plays what one source after the other has, and returns the first finding. Sources are not
// mixed: claims of the corpus hold only where no other scenario has the same prefixes.
func (r *round) play(outer context.Context, sources ...source) (err error) {
	if r.cluster, err = newCluster(outer, r.settings.programs, r.log); err != nil {
		return err
	}
	defer func() {
		r.survived = r.reflector.panics()
		if err != nil && outer.Err() == nil {
			err = errors.Join(err, r.keepLogs())
		}
		err = errors.Join(err, r.cluster.Close())
	}()
	ctx, stop := context.WithCancelCause(outer)
	defer stop(nil)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop(nil)
	watcher.Go(func() {
		if err := r.watch(ctx, &r.measured); err != nil {
			r.accuse(func(p *playing) bool {
				return p.ended.IsZero() || time.Since(p.ended) < lately
			})
			stop(err)
		}
	})
	for _, from := range sources {
		for i, more := 0, true; more && ctx.Err() == nil; {
			more = r.stretch(ctx, stop, &i, from)
			if ctx.Err() != nil {
				break
			}
			if err := r.inspect(ctx, !more); err != nil && ctx.Err() == nil && !r.died() {
				r.accuse(func(*playing) bool { return true })
				stop(err)
			}
		}
	}
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// accuse keeps scenarios for a finding, the first one only.
func (r *round) accuse(guilty func(*playing) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.suspects != nil {
		return
	}
	for _, p := range r.played {
		if guilty(p) {
			r.suspects = append(r.suspects, p.scenario)
		}
	}
}

// stretch plays scenarios beside each other, from number i on, until it is time to compare the
// tables or there are no more.
func (r *round) stretch(
	ctx context.Context, stop context.CancelCauseFunc, i *int, from source,
) (more bool) {
	r.mu.Lock()
	r.played = nil
	r.mu.Unlock()
	var wg sync.WaitGroup
	defer wg.Wait()
	for start := time.Now(); ctx.Err() == nil; *i++ {
		if time.Since(start) > inspectEvery {
			return true
		}
		s, ok := from(*i)
		if !ok {
			return false
		}
		cast := r.hire(ctx, s)
		if cast == nil {
			return false
		}
		p := &playing{scenario: s}
		r.mu.Lock()
		r.played = append(r.played, p)
		r.mu.Unlock()
		wg.Go(func() {
			err := r.cluster.play(ctx, s, cast)
			r.dismiss(cast)
			r.mu.Lock()
			p.ended = time.Now()
			r.mu.Unlock()
			r.measured.mu.Lock()
			r.measured.scenarios++
			r.measured.mu.Unlock()
			if err != nil && ctx.Err() == nil && !r.died() {
				r.accuse(func(q *playing) bool { return q == p })
				stop(err)
			}
		})
	}
	return false
}

// hire waits for attackers of the kinds that a scenario wants; nil when ctx ends.
func (r *round) hire(ctx context.Context, s scenario) map[string]netip.Addr {
	cast := map[string]netip.Addr{}
	for _, name := range s.attackers() {
		select {
		case cast[name] = <-r.free[name[:2]]:
		case <-ctx.Done():
			return nil
		}
	}
	return cast
}

func (r *round) dismiss(cast map[string]netip.Addr) {
	for name, address := range cast {
		r.free[name[:2]] <- address
	}
}

// inspect sees that the honest speakers have the routes of the honest. At the end they must have no
// others: what is kept for a graceful restart goes with a session without one (RFC 4724 §4.2).
func (r *round) inspect(ctx context.Context, clean bool) error {
	if clean {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	right := func(ctx context.Context) error { return r.compare(ctx, clean) }
	err := netlab.Await(ctx, calm, "the honest speakers have the right routes", right)
	s, statusErr := r.reflector.Admin.Status(ctx)
	if statusErr == nil {
		r.measured.mu.Lock()
		r.panics, r.malformed = s.BGP.DecoderPanics, s.BGP.MessagesMalformed
		r.measured.mu.Unlock()
	}
	return errors.Join(err, statusErr)
}

// flush has every attacker come up without graceful restart and go.
func (r *round) flush(ctx context.Context) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, kind := range kinds {
		w := &writer{}
		w.to("a", dial, kind+".1")
		w.handshake("a", w.openOf(session{external: kind[0] == 'e', six: kind[1] == '6'}))
		w.wait("a", 50*time.Millisecond)
		w.does("a", closing)
		for range perKind {
			wg.Go(func() {
				s := scenario{name: "the last session of an attacker " + kind, steps: w.steps}
				cast := r.hire(ctx, s)
				if cast == nil {
					return
				}
				err := r.cluster.play(ctx, s, cast)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
				defer r.dismiss(cast)
			})
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// shrunk leaves out scenarios, and then steps of each, as long as there is a finding without them.
func (s settings) shrunk(ctx context.Context, suspects []scenario) []scenario {
	fails := func(some []scenario) bool {
		r := &round{settings: s}
		err := r.play(ctx, list(some))
		fmt.Fprintf(s.out, "bgpfuzz: %d scenarios, %d steps in the first: %.200v\n",
			len(some), len(some[0].steps), err)
		return err != nil && len(r.suspects) > 0 && ctx.Err() == nil
	}
	suspects = shrink(suspects, fails)
	for i := range suspects {
		if !suspects[i].generated {
			continue // what it claims fails without the steps before, whatever was wrong
		}
		suspects[i].steps = shrink(suspects[i].steps, func(steps []step) bool {
			with := slices.Clone(suspects)
			with[i].steps = steps
			return fails(with)
		})
	}
	return suspects
}

// shrink leaves out parts of a list, first large and then small ones, as long as it still fails. A
// list that does not fail at all is returned as it is.
func shrink[E any](list []E, fails func([]E) bool) []E {
	for size := (len(list) + 1) / 2; size > 0; size /= 2 {
		for start := 0; start < len(list) && len(list) > 1; {
			without := slices.Delete(slices.Clone(list), start, min(len(list), start+size))
			if len(without) > 0 && fails(without) {
				list = without
			} else {
				start += size
			}
		}
	}
	return list
}

// keepLogs saves what all programs of a cluster have written.
func (r *round) keepLogs() error {
	folder := filepath.Join(r.found, fmt.Sprintf("%d-logs", os.Getpid()))
	return testcluster.SaveLogs(r.cluster.Lab, folder)
}
