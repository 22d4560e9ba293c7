package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vpp-route-agent/internal/netlab"
)

// observed is an agent with some of what records or shows what it does.
type observed struct {
	name           string
	size, peerSize string // of the recorder, in MiB
	watch          func(context.Context, *node) error
	cpu            series // of the agent, in µs for a route
}

// flightRecorder takes in routes with the recorder, with a page open, and so on, and without any of
// it, in turn, each time in a fresh process, and asks what processor time of the agent a route
// takes. Two rounds, on a machine that does something else besides, do not show 3 %.
func flightRecorder(l *lab) error {
	b, p := l.b, l.plane
	prefixes := hostPrefixes(200_000) // as in endToEnd
	updates := announce(hops[0], prefixes)
	run := 0
	in := func(o *observed) func() error {
		return func() error {
			run++
			n, err := l.startAgent(fmt.Sprintf("state-%d", run), "--vpp-socket", p.socket,
				"--recorder-size", o.size, "--recorder-updates-size", o.peerSize)
			if err != nil {
				return err
			}
			err = await(b.ctx, time.Minute, pollInterval, func() error {
				_, err := n.Fetch(b.ctx, "/healthz")
				return errors.Join(err, n.Alive())
			})
			if err != nil {
				return errors.Join(err, n.Kill())
			}
			err = n.watched(o.watch, func() error {
				_, cpu, err := l.deliver(updates, []*netlab.Process{n.Process}, func() error {
					return n.awaitProgrammed(len(prefixes))
				})
				if err == nil {
					o.cpu = append(o.cpu, cpu[0]/float64(len(prefixes))*1e6)
				}
				return err
			})
			if err == nil {
				_, err = l.emptyAgain(n, prefixes)
			}
			return errors.Join(err, n.Kill(), p.calm(b.ctx))
		}
	}
	off := &observed{name: "without", size: "0", peerSize: "0"}
	on := &observed{name: "with recorder and histograms", size: "256", peerSize: "0"}
	peers := &observed{name: "that keeps what peers send besides", size: "256", peerSize: "64"}
	read := &observed{name: "whose metrics are read each second besides", size: "256",
		peerSize: "0", watch: readMetrics}
	page := &observed{name: "with a status page open besides", size: "256", peerSize: "0",
		watch: openPage}
	// VPP's pools grow before the first that counts.
	if err := in(&observed{size: "0", peerSize: "0"})(); err != nil {
		return err
	}
	err := rounds(b.pick(9, 2), in(off), in(on), in(peers), in(read), in(page))
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%d /32s, %d rounds on %s", len(prefixes), len(off.cpu), p.name)
	line := func(o, reference *observed, limit budget) {
		b.compare("end to end, CPU of the agent "+o.name, "µs/route", o.cpu, reference.name,
			reference.cpu, limit, note)
	}
	line(on, off, b.quiet(atMost(1.03)))
	line(peers, off, b.quiet(atMost(1.03))) // as it is unless told otherwise
	line(read, on, noBudget)
	line(page, on, noBudget)
	return nil
}

// watched runs f while watch, if there is one, looks at the agent.
func (n *node) watched(watch func(context.Context, *node) error, f func() error) error {
	if watch == nil {
		return f()
	}
	ctx, cancel := context.WithCancel(n.lab.b.ctx)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- watch(ctx, n) }()
	err := f()
	cancel()
	return errors.Join(err, <-result)
}

// readMetrics reads the metrics each second until ctx ends.
func readMetrics(ctx context.Context, n *node) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if _, err := n.Fetch(ctx, "/metrics"); err != nil && ctx.Err() == nil {
			return fmt.Errorf("read metrics: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// openPage takes the events of a status page until ctx ends. While the agent starts there is none.
func openPage(ctx context.Context, n *node) error {
	for {
		events, err := n.Fetch(ctx, "/page/events")
		switch {
		case len(events) > 0 && ctx.Err() != nil:
			return nil
		case len(events) > 0 || err == nil:
			return fmt.Errorf("the status page sends no more events: %v", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the status page sent no event: %w", err)
		case <-time.After(pollInterval):
		}
	}
}
