package netlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// RouteMonitor keeps what the kernel of a namespace itself says about its routes: the lines of
// `ip monitor route`. That program may be behind the kernel. A blackhole route to an address of
// RFC 2544 comes and goes, and everything before it is in the log when it is.
type RouteMonitor struct {
	ns      *Namespace
	process *Process
	marks   int // set so far
}

// WatchRoutes starts a monitor, and returns when it notes every change.
func (l *Lab) WatchRoutes(ctx context.Context, n *Namespace, name string) (*RouteMonitor, error) {
	p, err := l.Start(Spec{
		Name: name, Namespace: n, Path: "ip", Args: []string{"monitor", "route"},
	})
	if err != nil {
		return nil, err
	}
	m := &RouteMonitor{ns: n, process: p}
	return m, Await(ctx, 30*time.Second, name+" does not listen", func(ctx context.Context) error {
		mark, err := m.mark(ctx)
		if err == nil {
			_, err = m.read(mark)
		}
		return err
	})
}

// Changes returns the lines so far about routes of a protocol, with single spaces: "Deleted
// 10.1.1.0/26 via 10.0.0.9 dev eth0 proto bird metric 32". The protocol is named as ip does.
func (m *RouteMonitor) Changes(ctx context.Context, protocol string) (all []string, err error) {
	mark, err := m.mark(ctx)
	if err != nil {
		return nil, err
	}
	var log []string
	err = Await(ctx, 30*time.Second, m.process.Name()+" is behind",
		func(context.Context) (err error) {
			log, err = m.read(mark)
			return err
		})
	for _, line := range log {
		if strings.Contains(line+" ", " proto "+protocol+" ") {
			all = append(all, line)
		}
	}
	return all, err
}

// Stop ends the monitor and removes its log.
func (m *RouteMonitor) Stop() error {
	return errors.Join(m.process.Stop(), os.Remove(m.process.LogPath()))
}

// mark returns the line that ends the log of all that has happened so far.
func (m *RouteMonitor) mark(ctx context.Context) (line string, err error) {
	m.marks++
	address := fmt.Sprintf("198.18.%d.%d", m.marks>>8, m.marks&255)
	for _, verb := range []string{"add", "delete"} {
		if _, err := m.ns.Run(ctx, "ip", "route", verb, "blackhole", address); err != nil {
			return "", err
		}
	}
	return "Deleted blackhole " + address, nil
}

// read returns the lines of the log up to the mark. Without the mark it is an error.
func (m *RouteMonitor) read(mark string) (all []string, err error) {
	log, err := os.ReadFile(m.process.LogPath())
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(log)) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	end := slices.IndexFunc(all, func(line string) bool {
		return strings.HasPrefix(line+" ", mark+" ")
	})
	if end < 0 {
		return nil, fmt.Errorf("no %q in the log of %s", mark, m.process.Name())
	}
	return all[:end], nil
}
