package main

import (
	"errors"
	"fmt"

	"vpp-route-agent/internal/netlab"
)

// flightRecorder takes in routes with the recorder and without, in turn, each time in a fresh
// process, and asks what processor time of the agent a route takes. Three pairs, on a machine that
// does something else besides, do not show 3 %.
func flightRecorder(l *lab) error {
	b, p := l.b, l.plane
	prefixes := hostPrefixes(200_000) // as in endToEnd
	updates := announce(hops[0], prefixes)
	run := 0
	with := func(size, peersSize string, cpus *series) func() error {
		return func() error {
			run++
			n, err := l.startAgent(fmt.Sprintf("state-%d", run), "--vpp-socket", p.socket,
				"--recorder-size", size, "--recorder-updates-size", peersSize)
			if err != nil {
				return err
			}
			_, cpu, err := l.deliver(updates, []*netlab.Process{n.Process}, func() error {
				return n.awaitProgrammed(len(prefixes))
			})
			if err == nil {
				*cpus = append(*cpus, cpu[0]/float64(len(prefixes))*1e6)
				_, err = l.emptyAgain(n, prefixes)
			}
			return errors.Join(err, n.Kill(), p.calm(b.ctx))
		}
	}
	var on, half, off, first series
	// VPP's pools grow before the first that counts.
	if err := with("0", "0", &first)(); err != nil {
		return err
	}
	err := rounds(b.pick(9, 3), with("256", "64", &on), with("256", "0", &half),
		with("0", "0", &off))
	if err != nil {
		return err
	}
	b.compare("end to end, CPU of the agent that keeps what peers send", "µs/route", on,
		"without that", half, b.quiet(atMost(1.03)),
		fmt.Sprintf("%d /32s, %d pairs on %s", len(prefixes), len(on), p.name))
	b.compare("end to end, CPU of the agent with the recorder", "µs/route", on, "without", off,
		b.quiet(atMost(1.03)),
		fmt.Sprintf("%d /32s, %d pairs on %s", len(prefixes), len(on), p.name))
	return nil
}
