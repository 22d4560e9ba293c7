package main

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"vpp-route-agent/internal/route"
)

func rate(n int, seconds float64) float64 { return float64(n) / seconds }

// program fills and empties VPP's FIB: by the agent's engine (selection, journal, pipeline), by its
// pipeline alone, by the raw writer and by one call per route.
func program(l *lab) error {
	b, p := l.b, l.plane
	c, err := p.connect(b.ctx)
	if err != nil {
		return err
	}
	defer c.stop()
	w, err := connectRaw(p.socket, c.index, hops[0])
	if err != nil {
		return err
	}
	defer w.close()
	one, err := connectCalls(p.socket, c.index, hops[0])
	if err != nil {
		return err
	}
	defer one.close()

	prefixes := hostPrefixes(b.pick(200_000, 50_000))
	few := prefixes[:len(prefixes)/10]
	paths := []route.Path{{NextHop: hops[0]}}
	ops := attachedOps(prefixes, hops[0])
	gone := deletions(ops)

	var engine, apply, raw, calls programmed
	journals := 0
	byEngine := func() error {
		journals++
		e := c.engine(b.ctx, filepath.Join(l.Dir(), fmt.Sprintf("journal-%d", journals)))
		defer e.stop()
		return engine.round(p, len(prefixes),
			func() (time.Duration, error) { return e.learn(b.ctx, prefixes, paths) },
			func() (time.Duration, error) { return e.learn(b.ctx, prefixes, nil) })
	}
	byApply := func() error {
		return apply.round(p, len(ops),
			func() (time.Duration, error) { return c.apply(b.ctx, ops) },
			func() (time.Duration, error) { return c.apply(b.ctx, gone) })
	}
	byRaw := func() error {
		return raw.round(p, len(prefixes),
			func() (time.Duration, error) { return w.program(prefixes, w.put) },
			func() (time.Duration, error) { return w.program(prefixes, w.del) })
	}
	byCalls := func() error {
		return calls.round(p, len(few),
			func() (time.Duration, error) { return one.program(b.ctx, few, true) },
			func() (time.Duration, error) { return one.program(b.ctx, few, false) })
	}
	if err := byRaw(); err != nil { // VPP's pools grow before the first round that counts
		return err
	}
	raw = programmed{}
	if err := rounds(b.pick(9, 5), byEngine, byRaw, byApply, byCalls); err != nil {
		return err
	}
	on := fmt.Sprintf("%d /32s on %s, %d rounds", len(prefixes), p.name, len(raw.add.rate))
	b.compare("program: engine with journal", "add/s", engine.add.rate, "raw writer", raw.add.rate,
		b.quiet(p.limit(atLeast(0.9))), on)
	b.compare("program: engine with journal", "add/s", engine.add.rate, "one call per route",
		calls.add.rate, atLeast(4), "")
	b.compare("program: pipeline alone", "add/s", apply.add.rate, "raw writer",
		raw.add.rate, noBudget, "")
	b.processorTime("program", p, engine.add, apply.add, raw.add)
	b.compare("delete: engine with journal", "del/s", engine.del.rate, "raw writer",
		raw.del.rate, noBudget, "")
	b.compare("delete: pipeline alone", "del/s", apply.del.rate, "raw writer",
		raw.del.rate, noBudget, "")
	b.compare("delete: engine with journal", "del/s", engine.del.rate, "one call per route",
		calls.del.rate, noBudget, "")
	b.processorTime("delete", p, engine.del, apply.del, raw.del)
	return nil
}

// programmed is what one way to fill and to empty the FIB took.
type programmed struct{ add, del taken }

// taken has one figure for each round: routes per second, and microseconds of processor time per
// route, ours and the data plane's.
type taken struct{ rate, ours, plane series }

// round fills and empties p with n routes.
func (w *programmed) round(p *plane, n int, add, del func() (time.Duration, error)) error {
	if err := w.add.round(p, n, add); err != nil {
		return err
	}
	return w.del.round(p, n, del)
}

func (t *taken) round(p *plane, n int, f func() (time.Duration, error)) error {
	before, err := p.process.CPUSeconds()
	if err != nil {
		return err
	}
	ours := ownCPUSeconds()
	took, err := f()
	if err != nil {
		return err
	}
	ours = ownCPUSeconds() - ours
	after, err := p.process.CPUSeconds()
	if err != nil {
		return err
	}
	perRoute := 1e6 / float64(n)
	t.rate = append(t.rate, rate(n, took.Seconds()))
	t.ours, t.plane = append(t.ours, ours*perRoute), append(t.plane, (after-before)*perRoute)
	return nil
}

// ownCPUSeconds is the processor time that this process has used so far: here the agent's side is
// part of it.
func ownCPUSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it fails for wrong arguments alone
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// processorTime adds what the ways cost both sides for each route. Unlike rates that says something
// on a busy machine, too.
func (b *bench) processorTime(verb string, p *plane, engine, pipeline, raw taken) {
	const unit, reference = "µs/route", "raw writer"
	b.compare(verb+": CPU of the engine", unit, engine.ours, reference, raw.ours, noBudget, "")
	b.compare(verb+": CPU of the pipeline", unit, pipeline.ours, reference, raw.ours, noBudget, "")
	b.compare(verb+": CPU of "+p.name+" meanwhile, by the engine", unit, engine.plane, reference,
		raw.plane, noBudget, "")
	b.compare(verb+": CPU of "+p.name+" meanwhile, by the pipeline", unit, pipeline.plane,
		reference, raw.plane, noBudget, "")
}

// attachedOps puts prefixes through a neighbour on the plane's interface.
func attachedOps(prefixes []netip.Prefix, next netip.Addr) []route.Op {
	paths := []route.Path{{NextHop: next, Interface: planeLink, Weight: 1}}
	ops := make([]route.Op, len(prefixes))
	for i, p := range prefixes {
		ops[i].Route = route.Route{Key: route.Key{Prefix: p}, Paths: paths}
	}
	return ops
}

func deletions(puts []route.Op) []route.Op {
	out := make([]route.Op, len(puts))
	for i, op := range puts {
		out[i] = route.Op{Delete: true, Route: route.Route{Key: op.Route.Key}}
	}
	return out
}

// replaceNextHop changes the next hop of every route: the loss of a node whose blocks another
// takes.
func replaceNextHop(l *lab) error {
	b, p := l.b, l.plane
	c, err := p.connect(b.ctx)
	if err != nil {
		return err
	}
	defer c.stop()
	e := c.engine(b.ctx, filepath.Join(l.Dir(), "journal"))
	defer e.stop()
	prefixes := hostPrefixes(b.pick(200_000, 50_000))
	var add, replace series
	for i := range b.pick(5, 3) {
		for _, hop := range []netip.Addr{hops[0], hops[1]} {
			took, err := e.learn(b.ctx, prefixes, []route.Path{{NextHop: hop}})
			if err != nil {
				return err
			}
			if hop == hops[0] {
				add = append(add, rate(len(prefixes), took.Seconds()))
			} else {
				replace = append(replace, rate(len(prefixes), took.Seconds()))
			}
		}
		if _, err := e.learn(b.ctx, prefixes, nil); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	b.compare("replace the next hop", "route/s", replace, "add", add, noBudget,
		fmt.Sprintf("%d /32s on %s", len(prefixes), p.name))
	return nil
}

var cliRate = regexp.MustCompile(`(\d(?:\.\d+)?e[+-]?\d+|\d+(?:\.\d+)?) routes/sec`)

// vppCommandLine has VPP add and delete routes by itself, without an API: no agent can be faster.
func vppCommandLine(l *lab) error {
	b, p := l.b, l.plane
	if b.programs.VPP == nil {
		return fmt.Errorf("%w: no VPP found", errNotHere)
	}
	count := b.pick(200_000, 50_000)
	var add, del series
	for i := range b.pick(6, 4) {
		for _, x := range []struct {
			verb string
			to   *series
		}{{"add", &add}, {"del", &del}} {
			said, err := p.real.Command(b.ctx,
				fmt.Sprintf("ip route %s count %d 20.0.0.0/32 via %s %s",
					x.verb, count, hops[0], planeLink))
			if err != nil {
				return err
			}
			m := cliRate.FindStringSubmatch(said)
			if m == nil {
				return fmt.Errorf("ip route %s: %s", x.verb, said)
			}
			figure, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return err
			}
			if i > 0 { // pools grow in the first
				*x.to = append(*x.to, figure)
			}
		}
	}
	b.single("VPP's own CLI, ip route add count", "add/s", add.median(), noBudget,
		fmt.Sprintf("%d /32s, no API", count))
	b.single("VPP's own CLI, ip route del count", "del/s", del.median(), noBudget, "")
	return nil
}
