package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// latency changes one route at a time on an idle agent and takes the time from the UPDATE on the wire until VPP's acknowledgement, which a
// relay before VPP's socket sees.
func latency(b *bench) (err error) {
	l, err := b.newLab("latency", 2)
	if err != nil {
		return err
	}
	defer l.close(&err)
	if err := l.startEtcd(1); err != nil {
		return err
	}
	p, err := l.startPlane("1G")
	if err != nil {
		return err
	}
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
	_, _, err = l.deliver(announce(hops[0], prefixes), nil, func() error { return n.awaitProgrammed(len(prefixes)) })
	if err != nil {
		return err
	}
	samples := make([]time.Duration, b.pick(3000, 1000))
	for i := range samples {
		update := announce(hops[(i+1)%2], prefixes[i/2:i/2+1]) // there and back
		if samples[i], err = l.one(r, update); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
	}
	if err := n.alive(); err != nil {
		return err
	}
	ms := func(share float64) float64 {
		return samples[min(int(share*float64(len(samples))), len(samples)-1)].Seconds() * 1000
	}
	slices.Sort(samples)
	note := fmt.Sprintf("%d changes, %d routes on %s, no load", len(samples), len(prefixes), p.name)
	b.single("one change, UPDATE to acknowledgement, p50", "ms", ms(0.5), noBudget, "")
	b.single("one change, UPDATE to acknowledgement, p99", "ms", ms(0.99), b.quiet(atMost(2)), note)
	b.single("one change, UPDATE to acknowledgement, most", "ms", ms(1), noBudget, "")
	return nil
}

// changeInterval leaves the agent idle before each change.
const changeInterval = 5 * time.Millisecond

// one sends an UPDATE of one route and returns when VPP has answered.
func (l *lab) one(r *relay, update []byte) (time.Duration, error) {
	time.Sleep(changeInterval)
	select {
	case <-r.written: // of before
	default:
	}
	began := time.Now()
	if err := l.first.send(update); err != nil {
		return 0, err
	}
	select {
	case at := <-r.written:
		return at.Sub(began), nil
	case <-l.b.ctx.Done():
		return 0, l.b.ctx.Err()
	case <-time.After(10 * time.Second):
		return 0, fmt.Errorf("no acknowledgement")
	}
}
