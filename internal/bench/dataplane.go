package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
	"vpp-route-agent/vpp/vpptest"
)

// plane is a VPP for one benchmark: a real one, or vpptest in a process of its own. It has one
// interface in the subnet where all next hops are. Nothing is forwarded, so that nobody need answer
// there.
type plane struct {
	name    string // for the table
	socket  string // of the API
	stats   string // the socket of the statistics segment
	process *netlab.Process
	real    *netlab.VPP // nil: vpptest
}

const (
	planeLink    = "loop0"
	planeAddress = "10.0.255.254/16" // of no peer
)

// vpptestRole is the argument that makes this program a vpptest.
const vpptestRole = "vpptest"

// startPlane starts a VPP with so much main heap, and more sections of its configuration.
func (l *lab) startPlane(heap, more string) (*plane, error) {
	if l.VPP == nil {
		return l.startVPPTest()
	}
	v, err := l.StartVPP(l.b.ctx, *l.VPP, l.node, "vpp", netlab.VPPConfig{
		Heap: heap, Args: more,
	})
	if err != nil {
		return nil, err
	}
	said, err := v.Command(l.b.ctx, "create loopback interface")
	if err != nil || strings.TrimSpace(said) != planeLink { // it prints the name of what it made
		return nil, errors.Join(err, fmt.Errorf("create loopback interface: %s", said))
	}
	return &plane{name: "VPP", socket: v.APISocket(), stats: v.StatsSocket(),
			process: v.Process, real: v}, v.Configure(l.b.ctx,
			"set interface state "+planeLink+" up",
			"set interface ip address "+planeLink+" "+planeAddress)
}

func (l *lab) startVPPTest() (*plane, error) {
	socket := filepath.Join(l.Dir(), "vpptest.sock")
	p, err := l.Start(netlab.Spec{
		Name: "vpptest", Path: l.b.self, Args: []string{vpptestRole, socket},
	})
	if err != nil {
		return nil, err
	}
	stats := filepath.Join(l.Dir(), "stats.sock")
	up := func() error {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err
	}
	return &plane{name: "vpptest", socket: socket, stats: stats, process: p},
		await(l.b.ctx, 10*time.Second, time.Millisecond, up)
}

// serveVPPTest is the process.
func serveVPPTest(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: bench %s SOCKET", vpptestRole)
	}
	s, err := vpptest.Start(args[0])
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.ServeStats(); err != nil {
		return err
	}
	s.AddInterface(planeLink, netip.MustParsePrefix(planeAddress))
	<-ctx.Done()
	return nil
}

// limit is the budget on a real VPP. vpptest, which keeps a map and forwards nothing, answers
// sooner than any VPP: ratios to its rate mean nothing.
func (p *plane) limit(b budget) budget {
	if p.real == nil {
		return noBudget
	}
	return b
}

// await asks every interval until holds has no objection, and returns the last one when patience is
// over.
func await(ctx context.Context, patience, interval time.Duration, holds func() error) error {
	return netlab.AwaitEvery(ctx, patience, interval, "awaited", func(context.Context) error {
		return holds()
	})
}

// connected is the agent's own connection to a VPP, in this process.
type connected struct {
	*vpp.VPP
	facts route.Facts // the first with an identity
	index uint32      // of planeLink
	stop  func()
}

// connect runs the connection until stop. The facts are read by whoever is named: the caller or,
// with an engine, the engine.
func (p *plane) connect(ctx context.Context) (*connected, error) {
	c := &connected{
		VPP: vpp.New(vpp.Config{Socket: p.socket, StatsSocket: p.stats, ClientName: "bench",
			Source: "bench"}),
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	c.stop = func() { cancel(); <-done }
	timeout := time.After(10 * time.Second)
	for c.facts.Identity == "" {
		select {
		case c.facts = <-c.Facts():
		case <-timeout:
			c.stop()
			return nil, fmt.Errorf("no connection to %s: %s", p.name, c.facts.Problem)
		}
	}
	link, ok := c.facts.Interface(planeLink)
	if !ok {
		c.stop()
		return nil, fmt.Errorf("%s has no interface %s", p.name, planeLink)
	}
	c.index = link.Index
	return c, nil
}

// calm ends what a client that was killed may have left VPP doing (see vpp/close.go): the next
// measurement needs that CPU.
func (p *plane) calm(ctx context.Context) error {
	c, err := p.connect(ctx)
	if err == nil {
		c.stop()
	}
	return err
}

// known hands the facts that were read already to an engine, and then those that come. It notes
// when routes were acknowledged last: the engine has that before it shows them as programmed.
type known struct {
	*connected
	facts chan route.Facts
	acked *time.Time
}

func (k known) Facts() <-chan route.Facts { return k.facts }

func (k known) Apply(ctx context.Context, ops []route.Op, done func(i int, err error)) error {
	err := k.connected.Apply(ctx, ops, done)
	*k.acked = time.Now()
	return err
}

func (k known) Start(ops []route.Op, done func(i int, err error), ended func(error)) bool {
	return k.connected.Start(ops, done, func(err error) {
		*k.acked = time.Now()
		ended(err)
	})
}

// engine runs the FIB engine over the connection, with a journal, until stop.
func (c *connected) engine(ctx context.Context, journal string) *engine {
	ctx, cancel := context.WithCancel(ctx)
	acked := new(time.Time)
	k := known{c, make(chan route.Facts), acked}
	var wait sync.WaitGroup
	wait.Go(func() { k.pass(ctx) })
	e := runEngine(ctx, k, journal)
	stop := e.stop
	e.stop = func() { cancel(); stop(); wait.Wait() }
	e.acked = acked
	return e
}

func (k known) pass(ctx context.Context) {
	for next := k.connected.facts; ; {
		select {
		case k.facts <- next:
		case <-ctx.Done():
			return
		}
		select {
		case next = <-k.VPP.Facts():
		case <-ctx.Done():
			return
		}
	}
}

// engine is the agent's FIB engine in this process.
type engine struct {
	*fib.Engine
	stop  func()
	acked *time.Time // see known; nil without VPP
}

func runEngine(ctx context.Context, d fib.Dataplane, journal string) *engine {
	e := &engine{Engine: fib.New(fib.Config{Dataplane: d, Journal: journal, Log: discard})}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	e.stop = func() { cancel(); <-done }
	return e
}

// learnPoll is coarse: looking takes the engine's lock and wakes a thread, which at 5000 times a
// second showed as a twentieth of what a route costs. What it adds is a thousandth of what is
// measured. For few routes it is finer: a fifteenth of what they take, at the fastest.
func learnPoll(routes int) time.Duration {
	return min(time.Duration(routes)*200*time.Nanosecond, 2*time.Millisecond)
}

// learn hands over one path set for all prefixes, nil to withdraw them, and returns how long it
// took until all of it was acknowledged.
func (e *engine) learn(
	ctx context.Context, prefixes []netip.Prefix, paths []route.Path,
) (time.Duration, error) {
	before := e.Stats()
	began := time.Now()
	for _, p := range prefixes {
		e.Learn(fib.BestPaths{Prefix: p, Paths: paths})
	}
	err := e.written(ctx, before, len(prefixes))
	return time.Since(began), err
}

// written waits until n operations more than before are acknowledged.
func (e *engine) written(ctx context.Context, before fib.Stats, n int) error {
	return await(ctx, 5*time.Minute, learnPoll(n), func() error {
		s := e.Stats()
		done := s.Put - before.Put + s.Deleted - before.Deleted
		if s.Errors > before.Errors {
			return fmt.Errorf("%d refused", s.Errors-before.Errors)
		}
		if done < uint64(n) {
			return fmt.Errorf("%d of %d acknowledged", done, n)
		}
		return nil
	})
}

// apply carries ops out and returns how long it took until the last was answered.
func (c *connected) apply(ctx context.Context, ops []route.Op) (time.Duration, error) {
	var refused error
	began := time.Now()
	err := c.Apply(ctx, ops, func(_ int, err error) {
		if err != nil {
			refused = err
		}
	})
	return time.Since(began), errors.Join(err, refused)
}
