package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/kernel"
	"vpp-route-agent/internal/plot"
	"vpp-route-agent/internal/route"
)

// filler fills an empty FIB with routes and returns how long that took; empty empties it.
type filler interface {
	fill(prefixes []netip.Prefix) (time.Duration, error)
	empty(prefixes []netip.Prefix) error
}

// scale is program with few and with many routes, on VPP and on Linux: what a start of everything
// costs is more of the time where there are few.
func scale(l *lab) error {
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

	sizes := []int{1000, 10_000, 100_000}
	if b.short {
		sizes = sizes[:2]
	}
	prefixes := hostPrefixes(sizes[len(sizes)-1])
	if _, err := w.program(prefixes, w.put); err != nil { // VPP's pools grow
		return err
	}
	if _, err := w.program(prefixes, w.del); err != nil {
		return err
	}
	ways := []struct {
		name string
		filler
	}{
		{"the agent's engine, on " + p.name, &engineFiller{l: l, name: p.name,
			start: func(journal string) (*engine, error) {
				return c.engine(b.ctx, journal), nil
			}}},
		{"control: raw writer, on " + p.name, rawFiller{w}},
		{"the agent's engine, on Linux", &engineFiller{l: l, name: "linux", start: l.kernelEngine}},
		{"control: ip -batch, on Linux", batchFiller{l}},
	}
	lines := make([]plot.Series, len(ways))
	n := b.pick(9, 3)
	for _, size := range sizes {
		rates := make([]series, len(ways))
		var each []func() error
		for i, way := range ways {
			lines[i].Name = way.name
			each = append(each, func() error {
				took, err := way.fill(prefixes[:size])
				if err == nil {
					rates[i] = append(rates[i], rate(size, took.Seconds()))
					err = way.empty(prefixes[:size])
				}
				if err != nil {
					err = fmt.Errorf("%s, %d routes: %w", way.name, size, err)
				}
				return err
			})
		}
		if err := rounds(n, each...); err != nil {
			return err
		}
		for i := range ways {
			lines[i].Points = append(lines[i].Points,
				plot.Point{X: float64(size), Y: rates[i].median()})
		}
		note := fmt.Sprintf("%d rounds", n)
		name := fmt.Sprintf("fill of %d routes: engine with journal, on ", size)
		b.compare(name+p.name, "add/s", rates[0], "raw writer", rates[1], noBudget, note)
		b.compare(name+"Linux", "add/s", rates[2], "ip -batch", rates[3], noBudget, note)
	}
	b.draw("fib-rate", plot.Chart{
		Title: "How fast an empty FIB is filled",
		Note: fmt.Sprintf("/32s, all acknowledged; medians of %d rounds in turn; journal on disk; "+
			"%d CPUs", n, runtime.NumCPU()),
		Description: described(lines, func(p plot.Point) string {
			return fmt.Sprintf("%.0f routes %s a second", p.X, figure(p.Y))
		}),
		X:      plot.Axis{Label: "routes", Log: true},
		Y:      plot.Axis{Label: "routes a second", Log: true},
		Series: lines,
	})
	return nil
}

// described says what lines show, point by point, for who cannot see them.
func described(lines []plot.Series, point func(plot.Point) string) string {
	var all []string
	for _, s := range lines {
		var points []string
		for _, p := range s.Points {
			points = append(points, point(p))
		}
		all = append(all, s.Name+": "+strings.Join(points, ", "))
	}
	return strings.Join(all, ". ") + "."
}

// kernelEngine runs the FIB engine over the node's kernel, with a journal, until stop.
func (l *lab) kernelEngine(journal string) (*engine, error) {
	k, err := kernel.NewNamespaces(kernel.Config{Namespace: l.node.Path(), Log: discard}, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(l.b.ctx)
	var wait sync.WaitGroup
	wait.Go(func() { k.Run(ctx) })
	e := runEngine(ctx, k, journal)
	stop := e.stop
	e.stop = func() { stop(); cancel(); wait.Wait(); k.Close() }
	return e, nil
}

// engineFiller is the agent's engine, each time a new one with an empty journal.
type engineFiller struct {
	l     *lab
	name  string
	start func(journal string) (*engine, error)
	runs  int
	now   *engine
}

func (f *engineFiller) fill(prefixes []netip.Prefix) (_ time.Duration, err error) {
	f.runs++
	journal := fmt.Sprintf("journal-%s-%d", f.name, f.runs)
	if f.now, err = f.start(filepath.Join(f.l.Dir(), journal)); err != nil {
		return 0, err
	}
	// The first route shows that the engine has found its data plane.
	if _, err := f.learn(blockPrefixes(1), true); err != nil {
		return 0, err
	}
	return f.learn(prefixes, true)
}

func (f *engineFiller) empty(prefixes []netip.Prefix) error {
	defer func() { f.now.stop() }()
	if _, err := f.learn(prefixes, false); err != nil {
		return err
	}
	_, err := f.learn(blockPrefixes(1), false)
	return err
}

func (f *engineFiller) learn(prefixes []netip.Prefix, add bool) (time.Duration, error) {
	var paths []route.Path
	if add {
		paths = []route.Path{{NextHop: hops[0]}}
	}
	return f.now.learn(f.l.b.ctx, prefixes, paths)
}

type rawFiller struct{ w *raw }

func (f rawFiller) fill(prefixes []netip.Prefix) (time.Duration, error) {
	return f.w.program(prefixes, f.w.put)
}

func (f rawFiller) empty(prefixes []netip.Prefix) error {
	_, err := f.w.program(prefixes, f.w.del)
	return err
}

// batchFiller is iproute2, which writes one request after the other in one process.
type batchFiller struct{ l *lab }

func (f batchFiller) fill(prefixes []netip.Prefix) (time.Duration, error) {
	return f.run("route add %s via "+hops[0].String()+"\n", prefixes)
}

func (f batchFiller) empty(prefixes []netip.Prefix) error {
	_, err := f.run("route del %s\n", prefixes)
	return err
}

func (f batchFiller) run(line string, prefixes []netip.Prefix) (time.Duration, error) {
	var b strings.Builder
	for _, p := range prefixes {
		fmt.Fprintf(&b, line, p)
	}
	file := filepath.Join(f.l.Dir(), "batch")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		return 0, err
	}
	began := time.Now()
	out, err := f.l.node.Run(f.l.b.ctx, "ip", "-batch", file)
	if err != nil {
		err = fmt.Errorf("ip -batch: %w: %s", err, out)
	}
	return time.Since(began), err
}
