// Package vpp is VPP as a data plane: it owns the connection to VPP's binary API, our FIB source there, and the translation of
// routes. It provides fib.Dataplane and fib.TableKeeper. It decides nothing about routes, keeps no copy of the FIB, and touches no
// route in VPP that does not carry its FIB source and no table that does not carry its name; ip_table_replace_* and ip_table_flush,
// which act on the API source that everybody shares, are never used. A VPP without FIB sources is refused.
//
// New makes a VPP, Run keeps it connected; the other methods may be called at any time from any goroutine and fail at once while
// there is no connection.
package vpp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/codec"

	"vpp-route-agent/internal/route"
)

// Config of a VPP. The zero value is usable: every field has a default.
type Config struct {
	// Socket is the path of VPP's API socket (startup.conf: socksvr { socket-name }); default /run/vpp/api.sock.
	Socket string
	// StatsSocket is where VPP hands out its statistics segment (statseg { socket-name }); default /run/vpp/stats.sock. Only Forwarded uses it.
	StatsSocket string
	// ClientName is how VPP shows the connection; default "vpp-route-agent".
	ClientName string
	// Source is the name of our FIB source, at most MaxSourceName bytes; default "vpp-route-agent". In VPP it is followed by "@" and a number
	// that tells one life of VPP from another. Tables that we make have the bare name.
	Source string
	// Priority of the source: of several sources that have one prefix the lowest forwards. Default 0x88: routes of the API (0x80) and
	// the CLI (0x81) win over ours, ours win over DHCP's (0xb0) and neighbours' (0xd0). It is fixed when the source is made.
	Priority uint8
	// Window is how many requests may be on the way, 1 to 4095; default 2048.
	Window int
	// ReplyTimeout is how long VPP may be silent before the connection is given up; default 10 s. A dump of a million routes
	// keeps VPP busy for some seconds, and what it keeps waiting must not look lost.
	ReplyTimeout time.Duration
	// Log; default: nothing is logged.
	Log *slog.Logger
}

const (
	defaultSocket      = "/run/vpp/api.sock"
	defaultStatsSocket = "/run/vpp/stats.sock"
	defaultName        = "vpp-route-agent"
	defaultPriority    = 0x88
	defaultWindow      = 2048
	defaultTimeout     = 10 * time.Second

	// pollInterval is how old our view of interface addresses may be: VPP has no event for them. The dumps hold no worker; what does is
	// bounded by tablesPerPoll.
	pollInterval = 5 * time.Second

	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Socket == "" {
		c.Socket = defaultSocket
	}
	if c.StatsSocket == "" {
		c.StatsSocket = defaultStatsSocket
	}
	if c.ClientName == "" {
		c.ClientName = defaultName
	}
	if c.Source == "" {
		c.Source = defaultName
	}
	if c.Priority == 0 {
		c.Priority = defaultPriority
	}
	if c.Window <= 0 {
		c.Window = defaultWindow
	}
	c.Window = min(c.Window, seqMask)
	if c.ReplyTimeout <= 0 {
		c.ReplyTimeout = defaultTimeout
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// VPP is one VPP, over all its lives.
type VPP struct {
	cfg   Config
	facts chan route.Facts // size 1: the newest facts that were not read

	counters counters

	mu      sync.Mutex
	life    *life  // nil while there is no usable connection
	problem string // why, then
}

// life is one connection, made ready. All but sources, links and tables is fixed.
type life struct {
	conn *conn
	name string // of our tables
	own  source
	// elevated is for keys that are: it goes before the API's.
	elevated source
	sources  atomic.Pointer[sources]
	facts    route.Facts // without Interfaces
	links    atomic.Pointer[links]
	changed  chan struct{} // size 1: an interface event came
	gone     deletions
	tables   map[tableID]bool // known to exist; of Apply and KeepTables, which never run at the same time
}

// New returns a VPP that is not connected yet.
func New(cfg Config) *VPP {
	return &VPP{cfg: cfg.withDefaults(), facts: make(chan route.Facts, 1), problem: "not connected yet"}
}

// Facts is fib.Dataplane's.
func (v *VPP) Facts() <-chan route.Facts { return v.facts }

// publish replaces facts that nobody has read. Only Run's goroutine calls it.
func (v *VPP) publish(f route.Facts) {
	select {
	case <-v.facts:
	default:
	}
	v.facts <- f
}

// current returns the life that calls go to.
func (v *VPP) current() (*life, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.life == nil {
		return nil, fmt.Errorf("vpp: not connected: %s", v.problem)
	}
	return v.life, nil
}

// Run keeps VPP connected until ctx ends, and publishes facts.
func (v *VPP) Run(ctx context.Context) error {
	retry := firstRetry
	said := ""
	for ctx.Err() == nil {
		connected, err := v.live(ctx)
		if ctx.Err() != nil {
			break
		}
		if connected {
			retry = firstRetry
		}
		if problem := v.explain(err); connected || problem != said {
			v.lose(problem, err)
			said = problem
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
		retry = min(2*retry, lastRetry)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.problem = "stopped"
	return nil
}

// explain turns the error of a connection into a sentence for people.
func (v *VPP) explain(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("there is no VPP API socket %s", v.cfg.Socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nobody serves VPP's API socket %s", v.cfg.Socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("no permission for VPP's API socket %s", v.cfg.Socket)
	}
	return err.Error()
}

// lose tells everybody that there is no VPP, and why.
func (v *VPP) lose(problem string, err error) {
	v.mu.Lock()
	v.life, v.problem = nil, problem
	v.mu.Unlock()
	v.cfg.Log.Warn("VPP is not usable", "err", problem)
	f := route.Facts{Problem: problem}
	if r := (refusal{}); errors.As(err, &r) {
		f.Version, f.Preflight = r.version, r.preflight
	}
	v.publish(f)
}

// live is one connection from dial to end. It reports whether the connection was usable for a while.
func (v *VPP) live(ctx context.Context) (connected bool, err error) {
	c, err := dial(ctx, v.cfg.Socket, v.cfg.ClientName, v.cfg.ReplyTimeout)
	if err != nil {
		return false, err
	}
	defer c.close()
	release(ctx, v.cfg.Socket, v.cfg.ClientName)
	l, err := v.prepare(ctx, c)
	if err != nil {
		return false, err
	}
	facts, err := l.readFacts(ctx, false)
	if err != nil {
		return false, err
	}
	v.counters.connected()
	v.mu.Lock()
	v.life = l
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		v.life, v.problem = nil, "the connection was lost"
		v.mu.Unlock()
	}()
	v.publish(facts)
	v.cfg.Log.Info("connected to VPP", "version", facts.Version, "identity", facts.Identity, "interfaces", len(facts.Interfaces))
	return true, v.watch(ctx, l, facts)
}

// watch publishes facts whenever they change, until the connection ends.
func (v *VPP) watch(ctx context.Context, l *life, last route.Facts) error {
	polls := time.NewTicker(pollInterval)
	defer polls.Stop()
	// Pings keep the reader from calling an idle VPP silent.
	ping := time.NewTicker(v.cfg.ReplyTimeout / 3)
	defer ping.Stop()
	for {
		poll := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.conn.ended:
			return l.conn.cause()
		case <-ping.C:
			if _, err := l.conn.ping(ctx); err != nil {
				return err
			}
			continue
		case <-l.changed:
		case <-polls.C:
			poll = true
		}
		facts, err := l.readFacts(ctx, poll)
		if err != nil {
			return err
		}
		if !sameInterfaces(facts.Interfaces, last.Interfaces) {
			v.publish(facts)
			last = facts
		}
	}
}

// readFacts reads the interfaces, for a poll or because something happened, and returns the facts with them.
func (l *life) readFacts(ctx context.Context, poll bool) (route.Facts, error) {
	lives := l.gone.counts() // before the list: an interface that goes meanwhile comes with an event of its own
	read, err := readLinks(ctx, l.conn, l.links.Load(), lives, poll)
	if err != nil {
		return route.Facts{}, fmt.Errorf("read interfaces: %w", err)
	}
	l.links.Store(read)
	f := l.facts
	f.Interfaces = read.list
	return f, nil
}

// prepare makes a new connection ready: VPP speaks our messages, has our FIB source, and tells us of interfaces.
func (v *VPP) prepare(ctx context.Context, c *conn) (*life, error) {
	version, err := readVersion(ctx, c)
	if err != nil {
		return nil, err
	}
	p := preflight(c)
	if p.Outcome == route.RefusedAPI {
		return nil, refusal{version, p}
	}
	pid, err := c.ping(ctx)
	if err != nil {
		return nil, fmt.Errorf("ping: %w", err)
	}
	l := &life{
		conn:    c,
		name:    v.cfg.Source,
		facts:   route.Facts{Version: version, Preflight: p},
		changed: make(chan struct{}, 1),
		tables:  map[tableID]bool{},
	}
	if err := l.useOwnSource(ctx, v.cfg.Source, v.cfg.Priority, pid); err != nil {
		return nil, err
	}
	if err := l.subscribe(ctx); err != nil {
		return nil, fmt.Errorf("subscribe to interface events: %w", err)
	}
	return l, nil
}

// subscribe has VPP tell us when an interface comes, goes or changes. That one went is kept: its index may have been handed out again
// before we look, and the list then shows nothing.
func (l *life) subscribe(ctx context.Context) error {
	l.conn.onEvent((*interfaces.SwInterfaceEvent)(nil), func(msg []byte) {
		var e interfaces.SwInterfaceEvent
		if err := codec.DecodeMsg(msg, &e); err == nil && e.Deleted {
			l.gone.add(uint32(e.SwIfIndex))
		}
		select {
		case l.changed <- struct{}{}:
		default:
		}
	})
	r, err := ask[interfaces.WantInterfaceEventsReply](ctx, l.conn, &interfaces.WantInterfaceEvents{EnableDisable: 1, PID: 1})
	if err != nil {
		return err
	}
	return vppError(r.Retval)
}

func sameInterfaces(a, b []route.Interface) bool {
	return slices.EqualFunc(a, b, func(x, y route.Interface) bool {
		return x.Name == y.Name && x.Index == y.Index && x.Life == y.Life && x.Up == y.Up && x.Table == y.Table && slices.Equal(x.Addresses, y.Addresses)
	})
}
