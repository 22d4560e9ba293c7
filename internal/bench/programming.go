package main

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"

	"vpp-route-agent/internal/route"
)

func rate(n int, seconds float64) float64 { return float64(n) / seconds }

// program fills and empties VPP's FIB: by the agent's engine (selection, journal, pipeline), by its pipeline alone, by the raw writer and
// by one call per route.
func program(b *bench) (err error) {
	l, err := b.newLab("program", 2)
	if err != nil {
		return err
	}
	defer l.close(&err)
	p, err := l.startPlane("1G")
	if err != nil {
		return err
	}
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

	var engineAdd, engineDel, applyAdd, applyDel, rawAdd, rawDel, callAdd, callDel series
	journals := 0
	byEngine := func() error {
		journals++
		e := c.engine(b.ctx, filepath.Join(l.Dir(), fmt.Sprintf("journal-%d", journals)))
		defer e.stop()
		add, err := e.learn(b.ctx, prefixes, paths)
		if err != nil {
			return err
		}
		del, err := e.learn(b.ctx, prefixes, nil)
		engineAdd, engineDel = append(engineAdd, rate(len(prefixes), add.Seconds())), append(engineDel, rate(len(prefixes), del.Seconds()))
		return err
	}
	byApply := func() error {
		add, err := c.apply(b.ctx, ops)
		if err != nil {
			return err
		}
		del, err := c.apply(b.ctx, gone)
		applyAdd, applyDel = append(applyAdd, rate(len(ops), add.Seconds())), append(applyDel, rate(len(ops), del.Seconds()))
		return err
	}
	byRaw := func() error {
		add, err := w.program(prefixes, w.put)
		if err != nil {
			return err
		}
		del, err := w.program(prefixes, w.del)
		rawAdd, rawDel = append(rawAdd, rate(len(prefixes), add.Seconds())), append(rawDel, rate(len(prefixes), del.Seconds()))
		return err
	}
	byCalls := func() error {
		add, err := one.program(b.ctx, few, true)
		if err != nil {
			return err
		}
		del, err := one.program(b.ctx, few, false)
		callAdd, callDel = append(callAdd, rate(len(few), add.Seconds())), append(callDel, rate(len(few), del.Seconds()))
		return err
	}
	if err := byRaw(); err != nil { // VPP's pools grow before the first round that counts
		return err
	}
	rawAdd, rawDel = nil, nil
	if err := rounds(b.pick(9, 5), byEngine, byRaw, byApply, byCalls); err != nil {
		return err
	}
	on := fmt.Sprintf("%d /32s on %s, %d rounds", len(prefixes), p.name, len(rawAdd))
	b.compare("program: engine with journal", "add/s", engineAdd, "raw writer", rawAdd, b.quiet(p.limit(atLeast(0.9))), on)
	b.compare("program: engine with journal", "add/s", engineAdd, "one call per route", callAdd, atLeast(4), "")
	b.compare("program: pipeline alone", "add/s", applyAdd, "raw writer", rawAdd, noBudget, "")
	b.compare("delete: engine with journal", "del/s", engineDel, "raw writer", rawDel, noBudget, "")
	b.compare("delete: pipeline alone", "del/s", applyDel, "raw writer", rawDel, noBudget, "")
	b.compare("delete: engine with journal", "del/s", engineDel, "one call per route", callDel, noBudget, "")
	return nil
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

// replaceNextHop changes the next hop of every route: the loss of a node whose blocks another takes.
func replaceNextHop(b *bench) (err error) {
	l, err := b.newLab("replace", 2)
	if err != nil {
		return err
	}
	defer l.close(&err)
	p, err := l.startPlane("1G")
	if err != nil {
		return err
	}
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
	b.compare("replace the next hop", "route/s", replace, "add", add, noBudget, fmt.Sprintf("%d /32s on %s", len(prefixes), p.name))
	return nil
}

var cliRate = regexp.MustCompile(`(\d(?:\.\d+)?e[+-]?\d+|\d+(?:\.\d+)?) routes/sec`)

// vppCommandLine has VPP add and delete routes by itself, without an API: no agent can be faster.
func vppCommandLine(b *bench) (err error) {
	if b.vpp == nil {
		return fmt.Errorf("%w: no VPP found", errNotHere)
	}
	l, err := b.newLab("cli", 2)
	if err != nil {
		return err
	}
	defer l.close(&err)
	p, err := l.startPlane("1G")
	if err != nil {
		return err
	}
	count := b.pick(200_000, 50_000)
	var add, del series
	for i := range b.pick(6, 4) {
		for _, x := range []struct {
			verb string
			to   *series
		}{{"add", &add}, {"del", &del}} {
			said, err := p.real.Command(b.ctx, fmt.Sprintf("ip route %s count %d 20.0.0.0/32 via %s %s", x.verb, count, hops[0], planeLink))
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
	b.single("VPP's own CLI, ip route add count", "add/s", add.median(), noBudget, fmt.Sprintf("%d /32s, no API", count))
	b.single("VPP's own CLI, ip route del count", "del/s", del.median(), noBudget, "")
	return nil
}
