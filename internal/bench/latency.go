package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"vpp-route-agent/internal/plot"
)

// latency moves one route at a time between two next hops, on an idle agent, and takes the time
// from the UPDATE on the wire until VPP's acknowledgement, which a relay before VPP's socket sees.
// After each change the control is sent the same bytes.
func latency(l *lab) error {
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
	prefixes := hostPrefixes(100_000)
	half := len(prefixes) / 2
	announced := append(announce(hops[0], prefixes[:half]), announce(hops[1], prefixes[half:])...)
	_, _, err = l.deliver(announced, nil, func() error {
		return n.awaitProgrammed(len(prefixes))
	})
	if err != nil {
		return err
	}
	c, err := l.startControl()
	if err != nil {
		return err
	}
	defer c.close()
	samples := make([]time.Duration, b.pick(3000, 1000))
	passed := make([]time.Duration, b.pick(3000, 1000))
	for i := range samples {
		update := announce(hops[(i+1)%2], prefixes[i/2:i/2+1]) // there and back
		if samples[i], err = b.one(l.first.send, r, update); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
		if passed[i], err = b.one(c.send, c.relay, update); err != nil {
			return fmt.Errorf("control %d: %w", i, err)
		}
	}
	if err := n.Alive(); err != nil {
		return err
	}
	slices.Sort(samples)
	slices.Sort(passed)
	note := fmt.Sprintf("%d changes, %d routes on %s, no load", len(samples), len(prefixes), p.name)
	for _, share := range []float64{0.5, 0.99} {
		name := fmt.Sprintf("one change, UPDATE to acknowledgement, p%g", 100*share)
		b.compare(name, "ms", series{quantile(samples, share)}, "the same bytes passed on",
			series{quantile(passed, share)}, b.quiet(p.limit(atMost(2))), note)
	}
	b.single("one change, UPDATE to acknowledgement, most", "ms",
		quantile(samples, 1), noBudget, "")
	b.draw("latency", latencyChart(samples, passed, fmt.Sprintf(
		"%d changes, one at a time, beside %d routes on %s", len(samples), len(prefixes), p.name)))
	return nil
}

// latencyChart draws how many of sorted samples took at most how long.
func latencyChart(samples, passed []time.Duration, note string) plot.Chart {
	distribution := func(name string, sorted []time.Duration) plot.Series {
		s := plot.Series{Name: fmt.Sprintf("%s: p50 %.2f ms, p99 %.2f ms", name,
			quantile(sorted, 0.5), quantile(sorted, 0.99))}
		for i := range 200 {
			share := float64(i+1) / 200
			s.Points = append(s.Points, plot.Point{X: quantile(sorted, share), Y: 100 * share})
		}
		return s
	}
	lines := []plot.Series{
		distribution("the agent", samples),
		distribution("control, the same bytes passed on", passed),
	}
	return plot.Chart{
		Title: "One change: from the UPDATE on the wire to VPP's acknowledgement", Note: note,
		Description: lines[0].Name + ". " + lines[1].Name + ".",
		X:           plot.Axis{Label: "milliseconds", Log: true},
		Y:           plot.Axis{Label: "% of the changes took at most so long", Zero: true},
		Series:      lines,
	}
}

// quantile returns that share of sorted samples, in milliseconds.
func quantile(sorted []time.Duration, share float64) float64 {
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)].Seconds() * 1000
}

// changeInterval leaves the agent idle before each change.
const changeInterval = 5 * time.Millisecond

// one sends an UPDATE of one route and returns how long it took until the answer was at the relay.
func (b *bench) one(send func([]byte) error, r *relay, update []byte) (time.Duration, error) {
	time.Sleep(changeInterval)
	select {
	case <-r.written: // of before
	default:
	}
	began := time.Now()
	if err := send(update); err != nil {
		return 0, err
	}
	select {
	case at := <-r.written:
		return at.Sub(began), nil
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(10 * time.Second):
		return 0, fmt.Errorf("no acknowledgement")
	}
}
