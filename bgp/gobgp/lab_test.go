package gobgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/testlog"
)

func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }
func first(s string) bgp.PeerID { return bgp.PeerID{Address: addr(s)} }

// named is GoBGP's name of the first peer at an address.
func named(s string) netip.AddrPort { return netip.AddrPortFrom(addr(s), 0) }

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// recorder is a Sink that keeps the current set of every prefix, and how often each was seen.
type recorder struct {
	mu   sync.Mutex
	sets map[netip.Prefix][]bgp.Path
	seen map[netip.Prefix]int
	all  [][]bgp.Path
}

func newRecorder() *recorder {
	return &recorder{sets: map[netip.Prefix][]bgp.Path{}, seen: map[netip.Prefix]int{}}
}

func (r *recorder) Learned(p netip.Prefix, paths []bgp.Path) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[p]++
	r.all = append(r.all, paths)
	if len(paths) == 0 {
		delete(r.sets, p)
		return
	}
	r.sets[p] = paths
}

// hops returns the next hops of a prefix in order.
func (r *recorder) hops(p string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, path := range r.sets[pfx(p)] {
		out = append(out, path.NextHop.String())
	}
	return out
}

func (r *recorder) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sets)
}

// prefixes returns the learned prefixes in order.
func (r *recorder) prefixes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(slices.SortedFunc(maps.Keys(r.sets), netip.Prefix.Compare))
}

// node is a Speaker that runs, with its sink.
type node struct {
	*Speaker
	*recorder
	t      *testing.T
	addr   netip.Addr
	as     uint32
	port   uint16
	plan   bgp.Plan
	ended  chan error
	cancel context.CancelFunc
}

// lab hands out loopback addresses and one port, so that tests do not meet.
type lab struct {
	t    *testing.T
	port uint16
	next byte
}

// newLab lets tests run beside each other.
func newLab(t *testing.T) *lab {
	t.Helper()
	t.Parallel()
	return newLabAlone(t)
}

// newLabAlone is for tests that measure the process, or how soon something happens: no other test
// of the package runs beside them.
func newLabAlone(t *testing.T) *lab {
	t.Helper()
	t.Attr("part", "GoBGP 3.37.0 peers on loopback")
	return &lab{t: t, port: freePort(t), next: 10}
}

// Ports are below those that the kernel takes for dials: one of these would be in a listener's way.
var nextPort atomic.Uint32

func init() { nextPort.Store(rand.Uint32N(10000)) }

func freePort(t *testing.T) uint16 {
	for range 1000 {
		port := uint16(20000 + nextPort.Add(1)%10000)
		if l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// node runs a speaker, without peers yet.
func (l *lab) node(as uint32, change ...func(*Config)) *node {
	l.t.Helper()
	n := l.unset(as, change...)
	set(l.t, n)
	return n
}

// unset runs a speaker that had no plan yet.
func (l *lab) unset(as uint32, change ...func(*Config)) *node {
	l.t.Helper()
	l.next++
	n := &node{
		recorder: newRecorder(), t: l.t, as: as, port: l.port,
		addr:  netip.AddrFrom4([4]byte{127, 0, 0, l.next}),
		ended: make(chan error, 1),
	}
	n.plan.Speaker = bgp.Speaker{
		AS: as, RouterID: n.addr, ListenPort: l.port, ListenAddresses: []netip.Addr{n.addr},
	}
	cfg := Config{
		Log: testlog.New(l.t).With("node", n.addr), Sink: n.recorder,
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if n.Speaker, err = New(cfg); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() { n.ended <- n.Run(ctx) }()
	l.t.Cleanup(func() {
		stop, done := context.WithTimeout(context.Background(), 30*time.Second)
		defer done()
		if err := n.Stop(stop); err != nil && err != errEnded {
			l.t.Errorf("stop %s: %v", n.addr, err)
		}
		cancel()
		<-n.ended
	})
	return n
}

// peer adds a peer to the plan of n; of the two ends the one with the lower address dials.
func (n *node) peer(o *node, change ...func(*bgp.Peer)) {
	p := bgp.Peer{
		Address: o.addr, Port: o.port, RemoteAS: o.as, LocalAS: n.as, LocalAddress: n.addr,
		Passive: o.addr.Less(n.addr), RestartTime: 120 * time.Second, Multihop: n.as != o.as,
	}
	for _, c := range change {
		c(&p)
	}
	n.plan.Peers = slices.DeleteFunc(n.plan.Peers, func(q bgp.Peer) bool {
		return q.ID() == p.ID()
	})
	n.plan.Peers = append(n.plan.Peers, p)
}

// connect makes two nodes peers of each other, in their plans.
func connect(a, b *node, change ...func(*bgp.Peer)) {
	a.peer(b, change...)
	b.peer(a, change...)
}

// announce puts a prefix into the plan, as a block of the node's own.
func (n *node) announce(prefix, hop string, change ...func(*bgp.Announcement)) {
	a := bgp.Announcement{Prefix: pfx(prefix), NextHop: addr(hop), LocalPref: 2147482623}
	for _, c := range change {
		c(&a)
	}
	n.withdraw(prefix)
	n.plan.Announcements = append(n.plan.Announcements, a)
	if !slices.Contains(n.plan.Policies.OwnBlocks, a.Prefix) {
		n.plan.Policies.OwnBlocks = append(slices.Clone(n.plan.Policies.OwnBlocks), a.Prefix)
	}
}

func (n *node) withdraw(prefix string) {
	pass := &n.plan.Policies
	pass.OwnBlocks = slices.DeleteFunc(slices.Clone(pass.OwnBlocks), func(p netip.Prefix) bool {
		return p == pfx(prefix)
	})
	n.plan.Announcements = slices.DeleteFunc(n.plan.Announcements, func(a bgp.Announcement) bool {
		return a.Prefix == pfx(prefix)
	})
}

// Set gives a plan the cluster ID that bgp.PlanFor would.
func (n *node) Set(ctx context.Context, p bgp.Plan) error {
	p.Policies.ClusterID = cmp.Or(p.Policies.ClusterID, p.Speaker.RouterID)
	return n.Speaker.Set(ctx, p)
}

// set applies the plans of the nodes.
func set(t *testing.T, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Set(t.Context(), n.plan); err != nil {
			t.Fatalf("set %s: %v", n.addr, err)
		}
	}
}

func (n *node) state(o *node) bgp.PeerState {
	for _, p := range n.Peers() {
		if p.ID.Address == o.addr {
			return p
		}
	}
	return bgp.PeerState{}
}

// patience is long for a machine with much to do; nothing is measured.
const patience = 3 * time.Minute

// eventually waits until got returns want.
func eventually[T any](t *testing.T, what string, want T, got func() T) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		g := got()
		if reflect.DeepEqual(g, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %v, want %v", what, g, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func up(t *testing.T, a, b *node) {
	t.Helper()
	for _, s := range [][2]*node{{a, b}, {b, a}} {
		eventually(t, fmt.Sprintf("session %s-%s", s[0].addr, s[1].addr), "Established",
			func() string { return s[0].state(s[1]).State })
	}
}

// wantHops waits until n knows the prefix by these next hops, in order; none: does not know it.
func (n *node) wantHops(prefix string, hops ...string) {
	n.t.Helper()
	eventually(n.t, n.addr.String()+" "+prefix, hops, func() []string { return n.hops(prefix) })
}

func passwords(m map[string]string) Passwords {
	return func(r calico.SecretKeyRef) (string, error) {
		if pw, ok := m[r.Name+"/"+r.Key]; ok {
			return pw, nil
		}
		return "", errors.New("it is not in the map")
	}
}

// knownWhen has the one password "s3cret" while known.
func knownWhen(known *atomic.Bool) Passwords {
	return func(calico.SecretKeyRef) (string, error) {
		if !known.Load() {
			return "", errors.New("not yet")
		}
		return "s3cret", nil
	}
}

// locked runs f while nothing is recorded.
func (r *recorder) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// logTo has a speaker log to w.
func logTo(w io.Writer) func(*Config) {
	return func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(w, nil))
	}
}
