// Package vpptest is a VPP for tests: it serves VPP's binary API on a real unix socket, byte for
// byte, with a FIB in memory that behaves as VPP 25.10's does: sources with priorities, one of
// which forwards; deletes that never fail; refusals with VPP's return values; strict order; silence
// where VPP is silent. It forwards no packets. What it does not know it drops, as VPP does.
//
// Its rules come from VPP's sources and from what a real VPP was seen to do; the conformance suite
// (internal/dataplanetest) runs on both. Faults are made on demand. It needs no testing package, so
// a demo may run it too.
package vpptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/teib"

	"vpp-route-agent/internal/route"
)

// Version is what show_version returns.
const Version = "25.10-vpptest"

// Server is a VPP. All methods may be called from any goroutine.
type Server struct {
	path string
	wg   sync.WaitGroup // all goroutines

	mu       sync.Mutex // VPP's main thread: one message at a time, of whatever client
	closed   bool
	listener net.Listener
	stats    net.Listener // of the statistics segment; nil: nobody serves it
	clients  map[*client]bool
	nextPID  uint32
	requests map[string]int
	delayed  time.Duration
	faults   faults

	hostLinks map[string]bool // the kernel's interfaces, by name
	workers   int             // threads besides the main one

	// One generation of VPP: all that a restart makes anew.
	pid      uint32
	ids      map[string]uint16 // name_crc → message id
	messages map[uint16]api.Message
	sources  []source // by id
	tables   fibs
	imports  map[imported]tableKey // where from
	links    map[uint32]*link
	crossed  crossConnects
	proxies  proxyARP
	orphans  map[uint32]map[netip.Addr]neighbour // of interfaces that were deleted
	teib     []teib.TeibEntry                    // some of them of interfaces that were deleted
	nextLink uint32
	freed    []uint32 // indexes of links that were deleted, the next one last

	memifSockets map[uint32]*memifSocket

	counts
}

// Start serves a VPP with an empty FIB on the socket path, which must not exist.
func Start(path string) (*Server, error) {
	s := booted(path)
	if err := s.OpenSocket(); err != nil {
		return nil, err
	}
	return s, nil
}

// SetWorkers has VPP say that it has so many.
func (s *Server) SetWorkers(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = n
}

// Unserved is a VPP without a socket, to which Dial connects.
func Unserved() *Server { return booted("") }

// Dial connects a client in memory, for vpp.Config: so a test can have a clock of its own
// (testing/synctest).
func (s *Server) Dial(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	s.admit(far)
	return near, nil
}

// booted is a VPP that has started, and serves nobody yet.
func booted(path string) *Server {
	s := &Server{path: path, clients: map[*client]bool{}, requests: map[string]int{},
		hostLinks: map[string]bool{},
		nextPID:   100 + rand.Uint32N(1000)}
	s.boot()
	return s
}

// New serves a VPP on a socket in a new temporary folder, which Close removes.
func New() (*Server, error) {
	dir, err := os.MkdirTemp("", "vpptest")
	if err != nil {
		return nil, err
	}
	s, err := Start(filepath.Join(dir, "api.sock"))
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// Socket returns the path of the API socket.
func (s *Server) Socket() string { return s.path }

// Close ends the server and removes the socket, and the folder if New made it.
func (s *Server) Close() {
	s.CloseSocket()
	s.mu.Lock()
	s.closed = true
	s.faults.wake()
	if s.stats != nil {
		s.stats.Close() // removes the file as well
	}
	s.mu.Unlock()
	s.wg.Wait()
	if filepath.Base(filepath.Dir(s.path)) != "." {
		os.Remove(filepath.Dir(s.path)) // fails where other files are: then it is not ours
	}
}

// boot begins a generation: new pid, shuffled message ids, an empty FIB, no interfaces but local0.
func (s *Server) boot() {
	s.nextPID++
	s.pid = s.nextPID
	s.numberMessages()
	s.sources = builtinSources()
	s.tables, s.imports = fibs{}, map[imported]tableKey{}
	s.addTable(0)
	for _, l := range s.links {
		s.endKernelSide(l)
	}
	s.links = map[uint32]*link{0: {name: "local0"}}
	s.crossed = newCrossConnects()
	s.proxies = newProxyARP()
	s.orphans, s.teib = map[uint32]map[netip.Addr]neighbour{}, nil
	s.nextLink, s.freed = 1, nil
	s.memifSockets = newMemifSockets()
	s.counts = counts{}
}

// Restart is a VPP that dies and comes back: connections end, the FIB, interfaces, tables and
// sources are gone, message ids and pid are others. setup, if not nil, is called before the socket
// opens again, to make interfaces as a start-up script would.
func (s *Server) Restart(setup func(*Server)) error {
	s.CloseSocket()
	s.mu.Lock()
	s.boot()
	s.mu.Unlock()
	if setup != nil {
		setup(s)
	}
	return s.OpenSocket()
}

// CloseSocket removes the socket and ends all connections. The FIB stays.
func (s *Server) CloseSocket() {
	s.mu.Lock()
	if s.listener != nil {
		s.listener.Close() // removes the file as well
		s.listener = nil
	}
	s.mu.Unlock()
	s.DropConnections()
}

// OpenSocket listens again after CloseSocket.
func (s *Server) OpenSocket() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path == "" {
		return nil
	}
	if s.closed || s.listener != nil {
		return fmt.Errorf("vpptest: %s is closed or open already", s.path)
	}
	l, err := net.Listen("unix", s.path)
	if err != nil {
		return fmt.Errorf("vpptest: %w", err)
	}
	s.listener = l
	s.wg.Go(func() { s.accept(l) })
	return nil
}

func (s *Server) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.listener == l {
			s.admit(nc)
		} else {
			nc.Close()
		}
		s.mu.Unlock()
	}
}

// admit serves a client.
func (s *Server) admit(nc net.Conn) {
	c := newClient(s, nc)
	s.clients[c] = true
	s.wg.Go(c.read)
	s.wg.Go(c.write)
}

// DropConnections ends all connections and keeps everything else.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		c.end()
	}
	clear(s.clients)
}

// Requests returns how many messages of that name ("ip_route_add_del_v2") were carried out, in all
// generations.
func (s *Server) Requests(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[name]
}

// AddTable makes a table in both families.
func (s *Server) AddTable(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addTable(id)
}

// Routes lists the routes of the FIB source of that name, also those that another source hides; a
// name that ends with "@" and a number, or with "@elevated", is found without them. Interfaces are
// named.
func (s *Server) Routes(source string) []route.Route {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []route.Route
	for k, t := range s.tables {
		for p, e := range t.entries {
			for id, paths := range e.bySource {
				if s.sources[id].is(source) {
					r := s.route(k.id, p, paths)
					r.Elevated = strings.HasSuffix(s.sources[id].name, "@elevated")
					out = append(out, r)
				}
			}
		}
	}
	sortRoutes(out)
	return out
}

// InjectForeignRoute puts a route under another source, "API" or "CLI" for instance, as another
// client would; it panics on what VPP would refuse.
func (s *Server) InjectForeignRoute(source string, r route.Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables[keyOf(r.Key)].put(r.Prefix, s.sourceNamed(source), s.paths(r))
}

// RemoveTable takes a table away in both families, with all that is in it, as another client that
// flushes it first.
func (s *Server) RemoveTable(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tables, tableKey{id, false})
	delete(s.tables, tableKey{id, true})
}

// Tables lists the tables that exist in one family or both, sorted.
func (s *Server) Tables() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []uint32
	for k := range s.tables {
		ids = append(ids, k.id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// RemoveForeignRoute takes it away again.
func (s *Server) RemoveForeignRoute(source string, k route.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables[keyOf(k)].remove(k.Prefix, s.sourceNamed(source))
}

// Dump lists everything that forwards, of all sources, in words.
func (s *Server) Dump() map[route.Key]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[route.Key]string{}
	for k, t := range s.tables {
		for p, e := range t.entries {
			id, paths := e.best(s.sources)
			out[route.Key{Table: k.id, Prefix: p}] = fmt.Sprintf("%s: %s", s.sources[id].name,
				s.route(k.id, p, paths))
		}
	}
	return out
}

// faults are what a test asked to go wrong.
type faults struct {
	refuse  func(api.Message) int32
	swallow func(api.Message) bool
	delay   time.Duration
	lack    map[string]bool
	cutAt   func(api.Message) bool
	cutting bool
	cutIn   int // replies until the connection is cut, in the middle of one
	stalled chan struct{}
}

func (f *faults) wake() {
	if f.stalled != nil {
		close(f.stalled)
		f.stalled = nil
	}
}

// Refuse has every message for which f is not 0 answered with that return value and not carried
// out; nil ends it.
func (s *Server) Refuse(f func(api.Message) int32) { s.fault(func(a *faults) { a.refuse = f }) }

// Swallow has every message for which f holds dropped without a reply, as VPP does with what it
// cannot read; nil ends it.
func (s *Server) Swallow(f func(api.Message) bool) { s.fault(func(a *faults) { a.swallow = f }) }

// Delay has every message take d, or longer on a machine with much to do.
func (s *Server) Delay(d time.Duration) { s.fault(func(a *faults) { a.delay = d }) }

// Delayed returns how long messages have taken because of Delay, in all.
func (s *Server) Delayed() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delayed
}

// Lack has the messages of those names missing, for connections made from now on.
func (s *Server) Lack(names ...string) {
	s.fault(func(a *faults) {
		a.lack = map[string]bool{}
		for _, n := range names {
			a.lack[n] = true
		}
	})
}

// CutAfter has the connection that gets it drop in the middle of the reply that follows n more.
func (s *Server) CutAfter(n int) { s.fault(func(a *faults) { a.cutting, a.cutIn = true, n }) }

// CutAt has the connection that gets it drop in the middle of the reply to the first message for
// which f holds, which is carried out.
func (s *Server) CutAt(f func(api.Message) bool) { s.fault(func(a *faults) { a.cutAt = f }) }

// Stall stops the main thread until Continue: sockets stay open and nothing is answered, as with
// SIGSTOP.
func (s *Server) Stall() {
	s.fault(func(a *faults) {
		if a.stalled == nil {
			a.stalled = make(chan struct{})
		}
	})
}

// Continue ends Stall.
func (s *Server) Continue() { s.fault((*faults).wake) }

func (s *Server) fault(change func(*faults)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.faults)
}
