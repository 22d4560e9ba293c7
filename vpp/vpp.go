// Package vpp is VPP as a data plane: the connection to its binary API, our FIB source, and the
// conversion of routes. It provides fib.Dataplane, decides nothing about routes and keeps no copy
// of the FIB. A VPP without FIB sources is refused.
//
// It changes only routes with its FIB source, and never uses ip_table_replace_* and ip_table_flush,
// which act on the shared API source. Methods are safe for concurrent use.
package vpp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/codec"

	"vpp-route-agent/internal/route"
)

// Config configures a VPP. Every field has a default.
type Config struct {
	// Socket is the path of VPP's API socket (startup.conf: socksvr { socket-name }); default
	// /run/vpp/api.sock.
	Socket string
	// Dial connects to VPP's API; default: to Socket.
	Dial func(ctx context.Context) (net.Conn, error)
	// StatsSocket is where VPP hands out its statistics segment (statseg { socket-name }); default
	// /run/vpp/stats.sock. Only what counts packets uses it.
	StatsSocket string
	// ClientName is how VPP shows the connection; default "vpp-route-agent".
	ClientName string
	// Source is the name of our FIB source, at most MaxSourceName bytes; default "vpp-route-agent".
	// In VPP "@" and a number follow it, which identify the generation of VPP.
	Source string
	// Priority of the source: the lowest of a prefix forwards. With the default 0x88, routes of the
	// API (0x80) and the CLI (0x81) win over ours, and ours win over DHCP's (0xb0) and neighbours'
	// (0xd0). It is fixed when the source is made.
	Priority uint8
	// Window is the number of outstanding requests, 1 to 4095; default 2048.
	Window int
	// ReplyTimeout is how long VPP may be silent before we disconnect; default 10 s. A dump of a
	// million routes keeps VPP busy for seconds.
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

	// pollInterval bounds the age of interface addresses, for which VPP has no event. The dumps
	// stop no worker; tablesPerPoll bounds what does.
	pollInterval = 5 * time.Second
	// After a reading of the interfaces VPP has a rest, restFactor times as long; only a poll comes
	// sooner. VPP answers in order, and each of our own changes asks for a reading.
	restFactor = 4
	// longestRest: a reading that VPP was slow to answer says nothing about the next.
	longestRest = time.Second

	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Socket == "" {
		c.Socket = defaultSocket
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.Socket)
		}
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

// VPP is the VPP on one socket, across its restarts.
type VPP struct {
	cfg   Config
	facts chan route.Facts // size 1: the newest facts that were not read

	counters counters

	// deleted are the deletions of interfaces that connections to the VPP with this identity have
	// seen. Run's goroutine owns both.
	identity string
	deleted  *deletions

	mu      sync.Mutex
	session *session // nil while there is no usable connection
	problem string   // why, then
}

// session is a connection that is ready for use. Only sources and links change.
type session struct {
	conn *conn
	own  source
	// elevated takes precedence over the API's source
	elevated source
	sources  atomic.Pointer[sources]
	facts    route.Facts // without Interfaces
	links    atomic.Pointer[links]
	changed  chan struct{} // size 1: an interface event came
	gone     *deletions

	survivors survivors
	made      made
	vteps     vteps
	ipips     ipips
	shown     shownAdjacencies
	livePaths livePaths
}

// New returns a VPP that is not connected yet.
func New(cfg Config) *VPP {
	return &VPP{cfg: cfg.withDefaults(), facts: make(chan route.Facts, 1),
		problem: "not connected yet"}
}

// Facts implements fib.Dataplane.
func (v *VPP) Facts() <-chan route.Facts { return v.facts }

// publish replaces unread facts. Only Run's goroutine calls it.
func (v *VPP) publish(f route.Facts) {
	select {
	case <-v.facts:
	default:
	}
	v.facts <- f
}

// current returns the connection for calls.
func (v *VPP) current() (*session, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session == nil {
		return nil, fmt.Errorf("vpp: not connected: %s", v.problem)
	}
	return v.session, nil
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

// explain turns a connection's error into a sentence.
func (v *VPP) explain(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("there is no VPP API socket %s", v.cfg.Socket)
	case errors.Is(err, syscall.ECONNREFUSED) && isNoSocket(v.cfg.Socket):
		return fmt.Sprintf("%s is not a socket, and so not VPP's API socket", v.cfg.Socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nobody serves VPP's API socket %s", v.cfg.Socket)
	case errors.Is(err, syscall.EPROTOTYPE):
		return fmt.Sprintf("%s is not VPP's API socket: %v", v.cfg.Socket, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("no permission for VPP's API socket %s", v.cfg.Socket)
	}
	return err.Error()
}

func isNoSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() != fs.ModeSocket
}

// lose publishes that VPP is absent, and why.
func (v *VPP) lose(problem string, err error) {
	v.mu.Lock()
	v.session, v.problem = nil, problem
	v.mu.Unlock()
	v.cfg.Log.Warn("VPP is not usable", "err", problem)
	f := route.Facts{Problem: problem}
	if r := (refusal{}); errors.As(err, &r) {
		f.Version, f.Preflight = r.version, r.preflight
	}
	v.publish(f)
}

// live serves one connection until it ends. It reports whether the connection was usable.
func (v *VPP) live(ctx context.Context) (connected bool, err error) {
	c, err := dial(ctx, v.cfg)
	if err != nil {
		return false, err
	}
	defer c.close()
	release(ctx, v.cfg)
	l, err := v.prepare(ctx, c)
	if err != nil {
		return false, err
	}
	facts, err := l.readFacts(ctx, false)
	if err != nil {
		return false, err
	}
	v.counters.connected(c)
	v.mu.Lock()
	v.session = l
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		v.session, v.problem = nil, "the connection was lost"
		v.mu.Unlock()
	}()
	v.publish(facts)
	v.cfg.Log.Info("connected to VPP", "version", facts.Version, "identity", facts.Identity,
		"interfaces", len(facts.Interfaces))
	return true, v.watch(ctx, l, facts)
}

// watch publishes facts whenever they change, until the connection ends.
func (v *VPP) watch(ctx context.Context, l *session, last route.Facts) error {
	polls := time.NewTicker(pollInterval)
	defer polls.Stop()
	// Pings keep an idle VPP from looking silent, and find what it has dropped of a started batch.
	ping := time.NewTicker(v.cfg.ReplyTimeout / 3)
	defer ping.Stop()
	changed := l.changed // nil: VPP has a rest
	var rested <-chan time.Time
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
		case <-rested:
			changed = l.changed
			continue
		case <-changed:
		case <-polls.C:
			poll = true
		}
		began := time.Now()
		facts, err := l.readFacts(ctx, poll)
		if err != nil {
			return err
		}
		changed, rested = nil, time.After(restAfter(time.Since(began)))
		if !sameInterfaces(facts.Interfaces, last.Interfaces) {
			v.publish(facts)
			last = facts
		}
	}
}

func restAfter(reading time.Duration) time.Duration {
	return min(restFactor*reading, longestRest)
}

// readFacts reads the interfaces, for a poll or after an event, and returns the facts.
func (l *session) readFacts(ctx context.Context, poll bool) (route.Facts, error) {
	// before the list: a later deletion has an event of its own
	generations, began := l.gone.counts(), l.vteps.count()
	read, err := readLinks(ctx, l.conn, l.links.Load(), generations, poll)
	if err != nil {
		return route.Facts{}, fmt.Errorf("read interfaces: %w", err)
	}
	l.vteps.read(read.tunnels, began)
	l.links.Store(read)
	f := l.facts
	f.Interfaces = read.list
	return f, nil
}

// prepare checks VPP's messages, adopts or adds our FIB source, and subscribes to interface events.
func (v *VPP) prepare(ctx context.Context, c *conn) (*session, error) {
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
	l := &session{
		conn:    c,
		facts:   route.Facts{Version: version, Preflight: p},
		changed: make(chan struct{}, 1),
	}
	if err := l.useOwnSource(ctx, v.cfg.Source, v.cfg.Priority, pid); err != nil {
		return nil, err
	}
	if v.identity != l.facts.Identity {
		v.identity, v.deleted = l.facts.Identity, &deletions{}
	}
	l.gone = v.deleted
	if err := l.subscribe(ctx); err != nil {
		return nil, fmt.Errorf("subscribe to interface events: %w", err)
	}
	return l, nil
}

// subscribe subscribes to interface events. Deletions are counted: an index may be reused before we
// list, and the list then does not show the deletion.
func (l *session) subscribe(ctx context.Context) error {
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
	r, err := ask[interfaces.WantInterfaceEventsReply](ctx, l.conn,
		&interfaces.WantInterfaceEvents{EnableDisable: 1, PID: 1})
	if err != nil {
		return err
	}
	return vppError(r.Retval)
}

func sameInterfaces(a, b []route.Interface) bool {
	return slices.EqualFunc(a, b, func(x, y route.Interface) bool {
		return x.Name == y.Name && x.Index == y.Index && x.Generation == y.Generation &&
			x.Up == y.Up && x.Table == y.Table && x.MTU == y.MTU &&
			slices.Equal(x.Addresses, y.Addresses)
	})
}
