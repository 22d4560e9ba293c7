package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"vpp-route-agent/internal/netlab"
)

// endToEnd sends packed UPDATEs to a bare GoBGP, to the agent without a data plane and to the agent
// on VPP, each time in a fresh process, and takes the time until the last route has arrived where
// it is to be.
func endToEnd(l *lab) error {
	b, p := l.b, l.plane
	// fewer say nothing about processor time: the kernel counts it in steps of 10 ms
	prefixes := hostPrefixes(200_000)
	updates := announce(hops[0], prefixes)

	var bareRate, watchedRate, noneRate, planeRate, withdrawRate series
	var bareCPU, watchedCPU, noneCPU, agentCPU, planeCPU series
	run := 0
	byGoBGP := func(watch watching, rates, cpus *series) error {
		g, err := l.startBare(watch)
		if err != nil {
			return err
		}
		took, cpu, err := l.deliver(updates, []*netlab.Process{g.Process}, func() error {
			return g.awaitEndOfRIB(len(prefixes))
		})
		if err == nil {
			*rates = append(*rates, rate(len(prefixes), took.Seconds()))
			*cpus = append(*cpus, cpu[0])
		}
		return errors.Join(err, g.kill())
	}
	byBare := func() error { return byGoBGP(unwatched, &bareRate, &bareCPU) }
	byWatched := func() error { return byGoBGP(watched, &watchedRate, &watchedCPU) }
	byAgentAlone := func() error {
		n, err := l.startAgent("none", "--dataplane", "none")
		if err != nil {
			return err
		}
		took, cpu, err := l.deliver(updates, []*netlab.Process{n.Process}, func() error {
			// Asking takes GoBGP's time. Before a bare GoBGP could be through, there is no need to.
			time.Sleep(
				time.Duration(
					0.9 * float64(len(prefixes)) / bareRate.best() * float64(time.Second)))
			return n.profiled("none", n.awaitEndOfRIB)
		})
		if err == nil {
			noneRate = append(noneRate, rate(len(prefixes), took.Seconds()))
			noneCPU = append(noneCPU, cpu[0])
		}
		return errors.Join(err, n.Kill())
	}
	byAgent := func() error {
		run++
		n, err := l.startAgent(fmt.Sprintf("state-%d", run), "--vpp-socket", p.socket)
		if err != nil {
			return err
		}
		took, cpu, err := l.deliver(updates, []*netlab.Process{n.Process, p.process}, func() error {
			return n.profiled(p.name, func() error { return n.awaitProgrammed(len(prefixes)) })
		})
		if err == nil {
			planeRate = append(planeRate, rate(len(prefixes), took.Seconds()))
			agentCPU, planeCPU = append(agentCPU, cpu[0]), append(planeCPU, cpu[1])
			took, err = l.emptyAgain(n, prefixes)
			withdrawRate = append(withdrawRate, rate(len(prefixes), took.Seconds()))
		}
		return errors.Join(err, n.Kill(), p.calm(b.ctx))
	}
	if err := byAgent(); err != nil { // VPP's pools grow before the first round that counts
		return err
	}
	planeRate, withdrawRate, agentCPU, planeCPU = nil, nil, nil, nil
	if err := rounds(b.pick(7, 5), byBare, byAgentAlone, byWatched, byAgent); err != nil {
		return err
	}
	on := fmt.Sprintf("%d /32s, %d rounds, GOGC=%s", len(prefixes), len(bareRate), gogc())
	b.compare("end to end, --dataplane none", "route/s", noneRate, "bare GoBGP", bareRate,
		b.quiet(atLeast(0.9)), on)
	b.compare("end to end, "+p.name+" on the same CPUs", "route/s", planeRate, "bare GoBGP",
		bareRate, noBudget, on)
	b.compare("end to end, "+p.name+" on the same CPUs", "route/s", planeRate,
		"GoBGP, best paths watched over its API", watchedRate, b.quiet(p.limit(atLeast(1))), "")
	b.compare("GoBGP, best paths watched over its API and thrown away", "route/s", watchedRate,
		"bare GoBGP", bareRate, noBudget, "what an agent on an unchanged GoBGP could reach")
	b.compare("end to end, CPU of GoBGP, best paths watched over its API", "s", watchedCPU,
		"bare GoBGP", bareCPU, noBudget, "")
	b.compare("end to end, CPU of the agent without data plane", "s", noneCPU, "bare GoBGP",
		bareCPU, atMost(1.25), "")
	b.compare("end to end, CPU of the agent with "+p.name, "s", agentCPU, "bare GoBGP",
		bareCPU, noBudget, "")
	b.compare("end to end, CPU of the agent with "+p.name, "s", agentCPU,
		"GoBGP, best paths watched over its API", watchedCPU, atMost(1.4), "")
	b.single("end to end, CPU of "+p.name, "s", planeCPU.median(), noBudget, "")
	b.single("end to end, all withdrawn, with "+p.name, "route/s",
		withdrawRate.median(), noBudget, "")
	return nil
}

// deliver brings the first peer's session up and returns how long it took from the first byte of
// updates until arrived returns, and the processor time that the processes took meanwhile. The
// session is left as it is; the speaker goes with l.session.
func (l *lab) deliver(
	updates []byte, processes []*netlab.Process, arrived func() error,
) (took time.Duration, cpu []float64, err error) {
	s, err := l.session()
	if err != nil {
		return 0, nil, err
	}
	for _, p := range processes {
		used, err := p.CPUSeconds()
		if err != nil {
			return 0, nil, err
		}
		cpu = append(cpu, -used)
	}
	began := time.Now()
	if err := s.send(append(updates[:len(updates):len(updates)], endOfRIB...)); err != nil {
		return 0, nil, err
	}
	if err := arrived(); err != nil {
		return 0, nil, err
	}
	took = time.Since(began)
	for i, p := range processes {
		used, err := p.CPUSeconds()
		if err != nil {
			return 0, nil, err
		}
		cpu[i] += used
	}
	return took, cpu, nil
}

// session is the first peer's, made anew: the one before ends.
func (l *lab) session() (*speaker, error) {
	if l.first != nil {
		l.first.close()
		l.first = nil
	}
	s, err := l.peer(l.b.ctx, 0)
	l.first = s
	return s, err
}

// emptyAgain withdraws everything.
func (l *lab) emptyAgain(n *node, prefixes []netip.Prefix) (time.Duration, error) {
	began := time.Now()
	if err := l.first.send(withdraw(prefixes)); err != nil {
		return 0, err
	}
	err := n.awaitProgrammed(0)
	return time.Since(began), err
}
