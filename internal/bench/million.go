package main

import (
	"fmt"
	"path/filepath"
	"time"
)

// million fills an agent on VPP with a million routes and asks what they cost: memory, a change of
// 1 %, a restart.
func million(l *lab) error {
	b, p := l.b, l.plane
	r, err := startRelay(filepath.Join(l.Dir(), "relay.sock"), p.socket)
	if err != nil {
		return err
	}
	defer r.close()
	n, err := l.startAgent("state", "--vpp-socket", r.path())
	if err != nil {
		return err
	}
	if _, err := l.session(); err != nil {
		return err
	}
	if err := n.awaitProgrammed(0); err != nil {
		return err
	}
	empty, err := n.heapBytes()
	if err != nil {
		return err
	}
	count := b.pick(1_000_000, 200_000)
	prefixes := hostPrefixes(count)
	updates := announce(hops[0], prefixes)
	fill, _, err := l.deliver(updates, nil, func() error { return n.awaitProgrammed(count) })
	if err != nil {
		return err
	}
	on := fmt.Sprintf("%d routes, GOGC=%s", count, gogc())
	b.single("fill an agent on "+p.name, "route/s", rate(count, fill.Seconds()), noBudget,
		on+", through a relay")
	if err := l.memory(n, count, empty, on); err != nil {
		return err
	}
	if err := l.onePercent(n, r, count, fill); err != nil {
		return err
	}
	return l.restart(n, r, count)
}

// memory is what the agent holds for each route.
func (l *lab) memory(n *node, count int, empty float64, on string) error {
	heap, err := n.heapBytes()
	if err != nil {
		return err
	}
	resident, err := n.mebibytes("VmRSS")
	if err != nil {
		return err
	}
	l.b.single("heap of the agent after a collection", "B/route", heap/float64(count), atMost(700),
		fmt.Sprintf("%s; %.0f MiB, of which %.0f without routes", on, heap/(1<<20), empty/(1<<20)))
	l.b.single("resident size of the agent", "MiB", resident, noBudget, on)
	return nil
}

// writes counts requests that change the FIB.
func (r *relay) writes() int { return r.count("ip_route_add_del_v2") + r.count("ip_route_add_del") }

// dumps counts requests that read it as a whole.
func (r *relay) dumps() int { return r.count("ip_route_v2_dump") + r.count("ip_route_dump") }

// onePercent changes the next hop of one route in a hundred, spread over all.
func (l *lab) onePercent(n *node, r *relay, count int, fill time.Duration) error {
	changed := hostPrefixes(count)
	for i := range count / 100 {
		changed[i] = changed[i*100]
	}
	changed = changed[:count/100]
	var each series                 // time of one changed route
	for i := range l.b.pick(6, 4) { // an even number: the first next hop is back in the end
		written := r.writes()
		began := time.Now()
		if err := l.first.send(announce(hops[(i+1)%2], changed)); err != nil {
			return err
		}
		err := await(l.b.ctx, time.Minute, time.Millisecond, func() error {
			if got := r.count(routeReply); got < written+len(changed) {
				return fmt.Errorf("%d of %d acknowledged", got-written, len(changed))
			}
			return nil
		})
		if err != nil {
			return err
		}
		each = append(each, time.Since(began).Seconds()/float64(len(changed))*1e6)
		if err := n.awaitProgrammed(count); err != nil {
			return err
		}
		if got := r.writes() - written; got != len(changed) {
			return fmt.Errorf("%d routes changed, %d writes", len(changed), got)
		}
	}
	whole := make(series, len(each))
	for i := range whole {
		whole[i] = fill.Seconds() / float64(count) * 1e6
	}
	l.b.compare("change 1 % of the routes",
		"µs/route", each, "the fill", whole, l.b.quiet(atMost(2)),
		fmt.Sprintf("%d of %d; exactly one write each", len(changed), count))
	return nil
}

// restart kills the agent and starts it again over the FIB that it left, with a peer that announces
// the same again.
func (l *lab) restart(n *node, r *relay, count int) error {
	writes, dumps := r.writes(), r.dumps()
	if err := n.Kill(); err != nil {
		return err
	}
	began := time.Now()
	if err := n.Start(l.b.ctx); err != nil {
		return err
	}
	updates := announce(hops[0], hostPrefixes(count))
	_, _, err := l.deliver(updates, nil, func() error {
		if err := n.awaitEndOfRIB(); err != nil {
			return err
		}
		return n.awaitProgrammed(count)
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	s, err := n.Admin.Status(n.lab.b.ctx)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%d routes, adopted by %s, done after %.1f s",
		count, s.FIB.Adopted, took.Seconds())
	l.b.single("restart over an unchanged FIB, writes", "writes",
		float64(r.writes()-writes), atMost(0), note)
	l.b.single("restart over an unchanged FIB, dumps", "dumps",
		float64(r.dumps()-dumps), atMost(0), "")
	return nil
}
