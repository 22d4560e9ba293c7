package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// history is what happened in both sinks, in order, one line each.
type history struct {
	mu    sync.Mutex
	lines []string
}

func (h *history) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last call.
func (h *history) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.lines
	h.lines = nil
	return out
}

// speaker keeps the plan that it was handed; it can refuse.
type speaker struct {
	history *history
	changed chan struct{}

	mu     sync.Mutex
	plan   bgp.Plan
	states []bgp.PeerState
	refuse error
	delay  time.Duration // until Set takes what it is handed
	sets   int
	hops   []netip.Addr // see NextHops

	usable func(netip.Prefix, netip.Addr) bool // as last set; nil: never
	asked  int                                 // how often it was set
}

// allows asks what BGP asks about a path.
func (s *speaker) allows(p, hop string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usable == nil || s.usable(pfx(p), addr(hop))
}

func (s *speaker) timesAsked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *speaker) Set(_ context.Context, p bgp.Plan) error {
	time.Sleep(s.delayed())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets++
	if s.refuse != nil {
		return s.refuse
	}
	for _, peer := range p.Peers {
		if !slices.ContainsFunc(s.states, func(st bgp.PeerState) bool {
			return st.ID == peer.ID()
		}) {
			s.states = append(s.states, bgp.PeerState{ID: peer.ID()})
		}
	}
	slices.SortFunc(s.states, func(a, b bgp.PeerState) int { return a.ID.Compare(b.ID) })
	for _, a := range s.plan.Announcements {
		if !slices.Contains(p.Announcements, a) {
			s.history.add("withdraw %s", a.Prefix)
		}
	}
	for _, a := range p.Announcements {
		if !slices.Contains(s.plan.Announcements, a) {
			s.history.add("announce %s", a.Prefix)
		}
	}
	s.plan = p
	return nil
}

func (s *speaker) setStates(states ...bgp.PeerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = states
}

func (s *speaker) setRefusal(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

func (s *speaker) setDelay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

func (s *speaker) delayed() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delay
}

func (s *speaker) current() bgp.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plan
}

func (s *speaker) handed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sets
}

func (s *speaker) SetUsable(_ context.Context, usable func(netip.Prefix, netip.Addr) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usable, s.asked = usable, s.asked+1
	return nil
}

func (s *speaker) NextHops() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hops
}

func (s *speaker) Peers() []bgp.PeerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states
}

func (s *speaker) Counters() bgp.Counters {
	return bgp.Counters{Dropped: 1, Foreign: 2, Strangers: 3}
}

func (s *speaker) PathsOf(context.Context, []netip.Prefix) ([]bgp.PrefixPaths, error) {
	return nil, nil
}

func (s *speaker) Announced() []bgp.Announcement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plan.Announcements
}

// Without has one prefix missing for each peer whose paths do not stay, of IPv4 those of its own,
// of IPv6 those that it has reflected.
func (s *speaker) Without(_ context.Context, keeps reflector.Keeps) (
	ipv4, ipv6 reflector.Change, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return ipv4, ipv6, s.refuse
	}
	for _, p := range s.plan.Peers {
		switch {
		case !keeps(p.ID(), netip.Addr{}, p.Address):
			ipv4.Missing++
		case !keeps(p.ID(), netip.MustParseAddr("192.0.2.99"), netip.Addr{}):
			ipv6.Missing++
		}
	}
	return ipv4, ipv6, nil
}

func (s *speaker) Stop(ctx context.Context) error {
	s.history.add("stop")
	select {
	case <-time.After(s.delayed()):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *speaker) Changed() <-chan struct{} { return s.changed }

// dataplane holds routes and answers after delay.
type dataplane struct {
	history *history
	facts   chan route.Facts
	delay   time.Duration

	mu      sync.Mutex
	routes  map[route.Key]route.Route
	objects map[route.ObjectKey]route.Object
}

func (d *dataplane) Routes(context.Context) ([]route.Route, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []route.Route
	for _, r := range d.routes {
		all = append(all, r)
	}
	return all, nil
}

func (d *dataplane) Lookup(_ context.Context, k route.Key) (route.Route, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.routes[k]
	return r, ok, nil
}

// Resolve knows one way out, for 203.0.113.0/24.
func (d *dataplane) Resolve(_ context.Context, _ uint32, addr netip.Addr) (
	route.Resolution, error) {
	if p := pfx("203.0.113.0/24"); p.Contains(addr) {
		return route.Resolution{Prefix: p, Usable: true, Interface: "eth1"}, nil
	}
	return route.Resolution{}, nil
}

func (d *dataplane) Apply(ctx context.Context, ops []route.Op, done func(int, error)) error {
	select {
	case <-time.After(d.delay):
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, op := range ops {
		if op.Delete {
			delete(d.routes, op.Route.Key)
			d.history.add("delete %s", op.Route.Key)
		} else {
			d.routes[op.Route.Key] = op.Route
			d.history.add("put %s", op.Route)
		}
		done(i, nil)
	}
	return nil
}

func (d *dataplane) Facts() <-chan route.Facts { return d.facts }

func (d *dataplane) Object(_ context.Context, k route.ObjectKey) (route.Object, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.objects[k], nil
}

func (d *dataplane) PutObject(_ context.Context, o route.Object) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects[o.Key()] = o
	d.history.add("put %s", o.Key())
	return nil
}

func (d *dataplane) DeleteObject(_ context.Context, k route.ObjectKey) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.objects, k)
	d.history.add("delete %s", k)
	return nil
}

type datastoreStub chan *calico.Snapshot

func (d datastoreStub) Snapshots() <-chan *calico.Snapshot { return d }
func (d datastoreStub) Status() DatastoreStatus {
	return DatastoreStatus{Connected: true, Synced: true, Kept: "ok"}
}

// node is an agent with its sinks, running in a bubble.
type node struct {
	*history
	agent     *Agent
	snapshots datastoreStub
	speaker   *speaker
	dataplane *dataplane
	engine    *fib.Engine
	ended     chan error // what Run returned
	stop      func()
}

// live is a data plane with the underlay of cluster().
var live = route.Facts{Identity: "one", Version: "test", Interfaces: []route.Interface{
	{Name: "eth0", Index: 1, Up: true, Addresses: []netip.Prefix{pfx("192.168.4.2/24")}},
}}

func inBubble(t *testing.T, f func(t *testing.T, n *node), options ...func(*Config)) {
	synctest.Test(t, func(t *testing.T) {
		h := &history{}
		n := &node{
			history: h, snapshots: make(datastoreStub, 1),
			speaker: &speaker{history: h, changed: make(chan struct{}, 1)},
			dataplane: &dataplane{history: h, facts: make(chan route.Facts, 1),
				delay: 10 * time.Millisecond, routes: map[route.Key]route.Route{},
				objects: map[route.ObjectKey]route.Object{}},
		}
		n.start(t, "", options...)
		f(t, n)
		n.stop()
	})
}

// start starts the node's agent, with a journal or without ("").
func (n *node) start(t *testing.T, journal string, options ...func(*Config)) {
	log := slog.New(slog.DiscardHandler)
	n.engine = fib.New(fib.Config{Dataplane: n.dataplane, Journal: journal, Log: log})
	cfg := Config{
		Node: "a", Version: "test", Dataplane: "vpp",
		Settings: Settings{Deferral: 30 * time.Second}, Datastore: n.snapshots,
		Speaker: n.speaker, FIB: n.engine, Log: log,
	}
	for _, o := range options {
		o(&cfg)
	}
	n.agent = New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { n.engine.Run(ctx) })
	n.ended = make(chan error, 1)
	wait.Go(func() { n.ended <- n.agent.Run(ctx) })
	n.stop = func() {
		cancel()
		wait.Wait()
	}
}

func (n *node) expect(t *testing.T, after time.Duration, want ...string) {
	t.Helper()
	time.Sleep(after) // the bubble's clock
	synctest.Wait()
	if got := n.take(); !slices.Equal(got, want) {
		t.Fatalf("happened:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "),
			strings.Join(want, "\n  "))
	}
}

func TestDropRouteBeforeAnnouncementAndAfterWithdrawal(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		n.expect(t, time.Second, "put 10.1.0.0/26 drop", "announce 10.1.0.0/26",
			"announce 10.1.0.77/32", "announce 10.1.9.9/32")
		c := cluster()
		delete(c.Affinities, pfx("10.1.0.0/26"))
		n.snapshots <- c
		n.expect(t, time.Second, "withdraw 10.1.0.0/26", "delete 10.1.0.0/26")
	})
}

func TestAbsentDataplaneIsNotWaitedForLong(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.snapshots <- cluster()
		n.expect(t, 4*time.Second)
		n.expect(t, 3*time.Second, "announce 10.1.0.0/26", "announce 10.1.0.77/32",
			"announce 10.1.9.9/32")
		n.dataplane.facts <- live
		n.expect(t, time.Second, "put 10.1.0.0/26 drop") // and no withdrawal meanwhile
	})
}

func TestWithdrawalWhileDataplaneIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		n.take()
		n.dataplane.facts <- route.Facts{Problem: "gone"}
		n.expect(t, 4*time.Second) // it may be back in a moment
		n.expect(t, 3*time.Second, "withdraw 10.1.0.0/26", "withdraw 10.1.0.77/32",
			"withdraw 10.1.9.9/32")
		again := live
		again.Identity = "two"
		clear(n.dataplane.routes)
		n.dataplane.facts <- again
		n.expect(t, time.Second, "put 10.1.0.0/26 drop", "announce 10.1.0.0/26",
			"announce 10.1.0.77/32", "announce 10.1.9.9/32")
	}, func(c *Config) { c.WithdrawWithoutDataplane = true })
}

// A node whose data plane is back and has not got all routes yet would attract packets for which it
// has none. One that does not take them is announced in the end.
func TestNothingIsAnnouncedToADataplaneThatIsBeingFilled(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		Learner{FIB: n.engine}.Learned(pfx("10.1.5.0/26"),
			[]bgp.Path{{NextHop: addr("203.0.113.7")}})
		again := live
		for _, delay := range []time.Duration{2 * time.Second, time.Hour} {
			n.dataplane.facts <- again
			n.snapshots <- cluster()
			time.Sleep(10 * time.Second)
			n.dataplane.facts <- route.Facts{Problem: "gone"}
			time.Sleep(10 * time.Second)
			n.take()
			n.dataplane.delay, again.Identity = delay, delay.String()
			clear(n.dataplane.routes)
			n.dataplane.facts <- again
			n.expect(t, time.Second)
			if delay == time.Hour {
				n.expect(t, 28*time.Second)
				n.expect(t, 2*time.Second, "announce 10.1.0.77/32", "announce 10.1.9.9/32")
				break
			}
			n.expect(t, 5*time.Second, "put 10.1.0.0/26 drop", "put 10.1.5.0/26 via 203.0.113.7",
				"announce 10.1.0.0/26", "announce 10.1.0.77/32", "announce 10.1.9.9/32")
		}
	}, func(c *Config) { c.WithdrawWithoutDataplane = true })
}

func TestNothingHappensWithoutAChange(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		n.take()
		sets := n.speaker.handed()
		n.snapshots <- cluster() // the same data again, as after a compaction
		n.expect(t, time.Minute)
		if again := n.speaker.handed() - sets; again != 0 {
			t.Errorf("the speaker was handed the same plan %d times more", again)
		}
	})
}

// lockedDatastore has nothing but its lock.
func lockedDatastore() *calico.Snapshot {
	return &calico.Snapshot{ClusterInformation: true, DatastoreNotReady: true}
}

func TestHandsOffWhileDatastoreIsNotReady(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		n.take()
		migrating := cluster()
		migrating.DatastoreNotReady = true
		clear(migrating.Affinities)
		n.snapshots <- migrating
		n.expect(t, time.Minute)
		if s := n.agent.Status(); !strings.Contains(s.Conditions[1].Message, "datastoreReady") ||
			!s.Ready {
			t.Errorf("conditions %+v", s.Conditions)
		}
		migrating = cluster()
		clear(migrating.Affinities)
		n.snapshots <- migrating
		// 10.1.9.9 still lives here
		n.expect(t, time.Second, "withdraw 10.1.0.0/26", "delete 10.1.0.0/26")
	})
}

// The copy on disk comes first, and right behind it what etcd says of a locked datastore, from
// which the data may be gone.
func TestLockedDatastoreDoesNotHoldUpAStart(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		n.snapshots <- lockedDatastore()
		n.expect(t, time.Hour, "put 10.1.0.0/26 drop", "announce 10.1.0.0/26",
			"announce 10.1.0.77/32", "announce 10.1.9.9/32")
		if s := n.agent.Status(); !strings.Contains(s.Conditions[1].Message, "datastoreReady") ||
			!s.Ready {
			t.Errorf("conditions %+v", s.Conditions)
		}
	})
}

func TestNothingIsMadeOfALockedDatastoreAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		migrating := cluster()
		migrating.DatastoreNotReady = true
		n.snapshots <- migrating
		n.expect(t, time.Hour)
		if s := n.agent.Status(); !strings.Contains(s.Conditions[1].Message, "datastoreReady") ||
			s.Ready || n.speaker.handed() > 0 {
			t.Errorf("the speaker was handed %d plans, conditions %+v", n.speaker.handed(),
				s.Conditions)
		}
	})
}

func TestRefusedPlanIsHandedOverAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.speaker.setRefusal(errors.New("no"))
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		n.expect(t, 3*time.Second, "put 10.1.0.0/26 drop")
		if s := n.agent.Status(); s.Ready {
			t.Error("ready with a speaker that refuses")
		}
		n.speaker.setRefusal(nil)
		n.expect(t, 2*time.Second, "announce 10.1.0.0/26", "announce 10.1.0.77/32",
			"announce 10.1.9.9/32")
	})
}

// A speaker that does not take the plan is not handed it again for each session that comes up.
func TestRefusedPlanIsHandedOverOnceASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.speaker.setRefusal(errors.New("no"))
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(1500 * time.Millisecond)
		before := n.speaker.handed()
		for range 100 {
			n.speaker.changed <- struct{}{}
			time.Sleep(20 * time.Millisecond)
		}
		if again := n.speaker.handed() - before; again < 2 || again > 4 {
			t.Errorf("handed over %d times in 2 s", again)
		}
	})
}

// A route to an address of a service goes after its announcement. Without such routes nothing is
// planned again because services were announced.
func TestRoutesOfServicesFollowTheirAnnouncements(t *testing.T) {
	via := ServicesVia{Interface: "eth0", NextHops: []netip.Addr{addr("192.168.4.3")}}
	with := cluster()
	with.BGPConfigurations = map[string]calico.BGPConfiguration{
		"default": {ServiceClusterIPs: []string{"10.96.0.0/12"}},
	}
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- with
		time.Sleep(time.Second)
		n.take()
		n.speaker.setDelay(100 * time.Millisecond) // much more than it takes to delete the route
		n.snapshots <- cluster()
		n.expect(t, time.Second, "withdraw 10.96.0.0/12", "delete 10.96.0.0/12")
	}, func(c *Config) { c.ServicesVia = via })

	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- with
		time.Sleep(time.Second)
		n.stop()
		if f := n.agent.plannedWith; len(f.Announced) == 0 || len(n.speaker.Announced()) !=
			len(f.Announced)+1 {
			t.Errorf("planned with %v, announced %v", f.Announced, n.speaker.Announced())
		}
	})
}

// leaves has the data plane keep a route of an earlier run.
func (n *node) leaves(prefix string) {
	r := route.Route{Key: key(prefix), Paths: route.CanonicalPaths([]route.Path{
		{NextHop: addr("192.168.4.3"), Interface: "eth0"}})}
	n.dataplane.routes[r.Key] = r
}

func TestStaleRouteWaitsForEndOfRIB(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.leaves("10.1.5.0/26")
		n.speaker.setStates(bgp.PeerState{ID: bgp.PeerID{Address: addr("192.168.4.3")},
			Established: true, GR: true})
		n.dataplane.facts <- live
		time.Sleep(time.Hour) // however long: without Calico's data nothing is known
		n.expect(t, 0)
		n.snapshots <- cluster()
		time.Sleep(10 * time.Second)
		n.take()
		if !n.speaker.current().Restarting {
			t.Error("the speaker does not know that the data plane kept forwarding")
		}
		if s := n.agent.Status(); s.Ready || !strings.Contains(s.FIB.Sweep, "192.168.4.3") {
			t.Errorf("ready %v, sweep %q", s.Ready, s.FIB.Sweep)
		}
		n.speaker.setStates(bgp.PeerState{ID: bgp.PeerID{Address: addr("192.168.4.3")},
			Established: true, GR: true, EndOfRIB: true})
		n.expect(t, 2*time.Second, "delete 10.1.5.0/26")
		if s := n.agent.Status(); !s.Ready || s.FIB.Sweep != "done" {
			t.Errorf("ready %v, sweep %q, conditions %+v", s.Ready, s.FIB.Sweep, s.Conditions)
		}
	})
}

func TestSpeakerThatCannotStartDeletesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.leaves("10.1.5.0/26")
		n.speaker.setRefusal(errors.New("port 179 is taken"))
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		n.expect(t, time.Hour, "put 10.1.0.0/26 drop")
	})
}

func TestNewProcessDoesNotWaitForPeersThatWereDown(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.speaker.setStates(bgp.PeerState{ID: bgp.PeerID{Address: addr("192.168.4.3")}})
		n.asksForANewProcess(3 * time.Second)
		n.expect(t, 2*time.Second)
		n.handsOver(t, false)
	})
}

// asksForANewProcess has the node run for a while, and then its listen port change, which the
// speaker leaves to a new process.
func (n *node) asksForANewProcess(after time.Duration) {
	n.dataplane.facts <- live
	n.snapshots <- cluster()
	time.Sleep(after)
	n.take()
	n.speaker.setRefusal(bgp.ErrSpeakerChanged)
	c := cluster()
	c.BGPConfigurations = map[string]calico.BGPConfiguration{"node.a": {ListenPort: 1179}}
	n.snapshots <- c
}

// handsOver sees that the agent has ended for a new process to take over; anew: peers keep nothing
// of this one.
func (n *node) handsOver(t *testing.T, anew bool) {
	t.Helper()
	select {
	case err := <-n.ended:
		if !errors.Is(err, ErrNewProcess) || errors.Is(err, ErrNothingKept) != anew {
			t.Errorf("ended with %v", err)
		}
	default:
		t.Error("no new process takes over")
	}
}

// Peers keep the routes of a node that restarts, but not under another AS, nor where they lead to
// an address of before.
func TestNewProcessKnowsThatPeersKeepNothing(t *testing.T) {
	for name, change := range map[string]func(*calico.Node){
		"address": func(n *calico.Node) { n.IPv4 = pfx("192.168.4.8/24") },
		"AS":      func(n *calico.Node) { n.ASNumber = 65123 },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *node) {
				n.dataplane.facts <- live
				n.snapshots <- cluster()
				time.Sleep(3 * time.Second)
				n.speaker.setRefusal(bgp.ErrSpeakerChanged)
				c := cluster()
				me := c.Nodes["a"]
				change(&me)
				c.Nodes["a"] = me
				n.snapshots <- c
				time.Sleep(2 * time.Second)
				n.handsOver(t, true)
			})
		})
	}
}

// A peer that sees the same session as before keeps our routes, and drops them if our next OPEN
// does not claim that we went on to forward by them (RFC 4724 §4.2).
func TestNewProcessKnowsWhatPeersKeep(t *testing.T) {
	for name, change := range map[string]func(*calico.Node){
		"IPv4 address": func(n *calico.Node) { n.IPv4 = pfx("192.168.4.8/24") },
		"IPv6 address": func(n *calico.Node) { n.IPv6 = pfx("fd00::8/64") },
		"AS":           func(n *calico.Node) { n.ASNumber = 65123 }, // which tor does not see
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *node) {
				with := func(change func(*calico.Node)) *calico.Snapshot {
					c := cluster()
					c.BGPConfigurations = map[string]calico.BGPConfiguration{
						"default": {Name: "default", BindMode: "NodeIP"}}
					c.BGPPeers = map[string]calico.BGPPeer{"tor": {Name: "tor",
						PeerIP: "192.168.4.1", ASNumber: 65001, LocalASNumber: 65002}}
					b := c.Nodes["b"]
					b.IPv6 = pfx("fd00::3/64")
					c.Nodes["b"] = b
					me := c.Nodes["a"]
					me.IPv6 = pfx("fd00::2/64")
					change(&me)
					c.Nodes["a"] = me
					return c
				}
				n.dataplane.facts <- live
				n.snapshots <- with(func(*calico.Node) {})
				time.Sleep(3 * time.Second)
				n.speaker.setRefusal(bgp.ErrSpeakerChanged)
				n.snapshots <- with(change)
				time.Sleep(2 * time.Second)
				n.handsOver(t, false)
			})
		})
	}
}

func TestNothingKeptIsNoRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.leaves("10.1.5.0/26")
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(10 * time.Second)
		if n.speaker.current().Restarting {
			t.Error("the speaker has peers wait for one another")
		}
	}, func(c *Config) { c.NothingKept = true })
}

func TestNewProcessWaitsForAPeerThatWasUp(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.speaker.setStates(bgp.PeerState{ID: bgp.PeerID{Address: addr("192.168.4.3")},
			Established: true, GR: true})
		n.asksForANewProcess(3 * time.Second)
		n.expect(t, 3*time.Second)
		// it has gone since
		n.speaker.setStates(bgp.PeerState{ID: bgp.PeerID{Address: addr("192.168.4.3")}})
		n.expect(t, 3*time.Second)
		if len(n.ended) > 0 {
			t.Error("a new process takes over while a peer is in the middle of a restart")
		}
		n.expect(t, time.Minute) // no longer than the deferral
		if len(n.ended) == 0 {
			t.Error("no new process takes over")
		}
	})
}

func TestChangedSpeakerIsLeftToANewProcessOncePeersHaveTold(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		// the peer is still sending
		n.speaker.setStates(bgp.PeerState{ID: bgp.PeerID{Address: addr("192.168.4.3")},
			Established: true, GR: true})
		n.asksForANewProcess(10 * time.Second)
		n.expect(t, 10*time.Second)
		if s := n.agent.Status(); !strings.Contains(
			s.Conditions[2].Message, "a new process takes over") || len(n.ended) > 0 {
			t.Errorf("ended %d, conditions %+v", len(n.ended), s.Conditions)
		}
		n.speaker.setStates(bgp.PeerState{ID: bgp.PeerID{Address: addr("192.168.4.3")},
			Established: true, GR: true, EndOfRIB: true})
		n.expect(t, 2*time.Second)
		n.handsOver(t, false)
	})
}

func TestBlockThatMovesHereWaitsForItsDropRoute(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		c := cluster()
		delete(c.Affinities, pfx("10.1.0.0/26"))
		n.dataplane.facts <- live
		n.snapshots <- c
		Learner{FIB: n.engine}.Learned(pfx("10.1.0.0/26"),
			[]bgp.Path{{NextHop: addr("192.168.4.3")}})
		time.Sleep(time.Second)
		n.take()
		n.snapshots <- cluster() // while the other node still announces it
		n.expect(t, time.Second, "put 10.1.0.0/26 drop", "announce 10.1.0.0/26")
	})
}

func TestNodeThatVanishesKeepsItsSessions(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		n.take()
		c := cluster()
		delete(c.Nodes, "a")
		n.snapshots <- c
		n.expect(t, time.Minute)
		c = cluster()
		delete(c.Nodes, "a")
		delete(c.Affinities, pfx("10.1.0.0/26"))
		n.snapshots <- c
		n.expect(t, time.Minute, "withdraw 10.1.0.0/26", "delete 10.1.0.0/26")
		s := n.agent.Status()
		if s.Ready || len(s.BGP.Peers) != 1 ||
			!strings.Contains(s.Conditions[1].Message, "its last known address") {
			t.Errorf("ready %v, peers %v, node condition %+v", s.Ready, s.BGP.Peers,
				s.Conditions[1])
		}
	})
}

func TestUnusableNextHopIsRejected(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		n.take()
		learner := Learner{FIB: n.engine}
		learner.Learned(pfx("10.1.7.0/26"), []bgp.Path{{NextHop: addr("198.51.100.1")}})
		learner.Learned(pfx("10.1.8.0/26"), []bgp.Path{{NextHop: addr("203.0.113.1")}})
		learner.Learned(pfx("10.1.6.0/26"), []bgp.Path{{NextHop: addr("192.168.4.3")}})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		got := n.take()
		slices.Sort(got)
		if want := []string{"put 10.1.6.0/26 via 192.168.4.3 eth0", "put 10.1.8.0/26 via " +
			"203.0.113.1"}; !slices.Equal(got, want) {
			t.Fatalf("happened %q, want %q", got, want)
		}
		if n.speaker.allows("10.1.7.0/26", "198.51.100.1") ||
			!n.speaker.allows("10.1.8.0/26", "203.0.113.1") || n.speaker.timesAsked() != 1 {
			t.Errorf("usable, or asked %d times", n.speaker.timesAsked())
		}
	})
}

// TestInterfacesOfNextHopsReachThePlan: those of connected subnets, of peers and other nodes, and
// of what peers have sent, while an import rule asks for them.
func TestInterfacesOfNextHopsReachThePlan(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		asking := cluster()
		asking.Nodes["c"] = calico.Node{Name: "c", IPv4: pfx("203.0.113.3/24")}
		asking.BGPFilters = map[string]calico.BGPFilter{"f": {Name: "f",
			ImportV4: []calico.BGPFilterRule{
				{Interface: "eth1", Action: "Accept"}, {Interface: "eth*", Action: "Reject"},
			}}}
		asking.BGPPeers = map[string]calico.BGPPeer{
			"x": {PeerIP: "203.0.113.9", ASNumber: 64900, Filters: []string{"f"}},
		}
		behind := func(what string, one, all string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			got := n.speaker.current().Policies.Behind
			if fmt.Sprint(got["eth1"]) != one || fmt.Sprint(got["eth*"]) != all {
				t.Errorf("%s: %v, want %s and %s", what, got, one, all)
			}
		}
		n.dataplane.facts <- live
		n.snapshots <- asking
		behind("peers and nodes", "[203.0.113.3/32 203.0.113.9/32]",
			"[192.168.4.0/24 203.0.113.3/32 203.0.113.9/32]")
		n.speaker.mu.Lock()
		n.speaker.hops = []netip.Addr{addr("203.0.113.77"), addr("198.51.100.7")}
		n.speaker.mu.Unlock()
		behind("what was sent", "[203.0.113.3/32 203.0.113.9/32 203.0.113.77/32]",
			"[192.168.4.0/24 203.0.113.3/32 203.0.113.9/32 203.0.113.77/32]")
		n.snapshots <- cluster()
		time.Sleep(2 * time.Second)
		if got := n.speaker.current().Policies.Behind; len(got) > 0 {
			t.Errorf("nobody asks any more: %v", got)
		}
		if got := len(n.engine.Outgoing()); got != 1 {
			t.Errorf("%d ways are still followed", got-1)
		}
	})
}
