package reflectors

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/testlog"
)

// addBirds adds nodes with BIRD whose calico-nodes answer that all is in order, unless change says
// otherwise. This is about the controller; TestMigrationBesideBIRD (internal/interop) has real
// ones.
func (c *cluster) addBirds(change func(node string, peers []calicotest.NodePeer,
	routes []calicotest.NodeRoute) ([]calicotest.NodePeer, []calicotest.NodeRoute, error),
	nodes ...string) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	c.t.Cleanup(func() { cancel(); running.Wait() })
	for i, node := range nodes {
		must(c.t, c.etcd.Cluster().AddNode(c.t.Context(), node,
			netip.MustParsePrefix(fmt.Sprintf("10.0.8.%d/24", i+1))))
		n := calicotest.CalicoNode{Node: node, Client: c.client,
			Tables: func(ctx context.Context, ipv6 bool) ([]calicotest.NodePeer,
				[]calicotest.NodeRoute, error) {
				if ipv6 {
					return nil, nil, nil
				}
				s, err := calicotest.NewCluster(c.client).Snapshot(ctx, node)
				if err != nil {
					return nil, nil, err
				}
				peers, routes := inOrder(node, s)
				if change != nil {
					return change(node, peers, routes)
				}
				return peers, routes, nil
			}}
		running.Go(func() {
			if err := n.Run(ctx); err != nil && ctx.Err() == nil {
				c.t.Errorf("calico-node of %s: %v", node, err)
			}
		})
	}
}

// inOrder are the tables of a BIRD that has all its sessions, and from each the routes of all.
func inOrder(node string, s *calico.Snapshot) (all []calicotest.NodePeer,
	routes []calicotest.NodeRoute) {
	peers, _ := bgp.Peers(node, s)
	types := map[bgp.Scope]string{bgp.ScopeMesh: "NodeMesh", bgp.ScopeNode: "NodePeer"}
	for _, p := range peers {
		all = append(all, calicotest.NodePeer{
			PeerIP: p.Address.String(), Type: types[p.Scope], State: "Established",
		})
	}
	for i, owner := range slices.Sorted(maps.Keys(s.Nodes)) {
		for k, p := range peers {
			r := calicotest.NodeRoute{
				Type: "RIB", Destination: block(i).String(), Interface: "eth0",
				Gateway: s.Nodes[owner].IPv4.Addr().String(),
			}
			r.LearnedFrom.PeerIP = p.Address.String()
			if k == 0 {
				r.Type = "FIB"
			}
			if owner != node {
				routes = append(routes, r)
			}
		}
	}
	return all, routes
}

// asksOfBirds notes every CalicoNodeStatus that is created, and the most that there were at a time.
type asksOfBirds struct {
	mu      sync.Mutex // guards what follows
	nodes   []string
	there   map[string]bool
	most    int
	leased  bool // each had a lease when it was created
	invalid []string
}

func (c *cluster) watchBirds() *asksOfBirds {
	a := &asksOfBirds{there: map[string]bool{}, leased: true}
	ctx, cancel := context.WithCancel(context.Background())
	watch := c.client.Watch(ctx, calico.NodeStatusPrefix, clientv3.WithPrefix())
	var watching sync.WaitGroup
	c.t.Cleanup(func() { cancel(); watching.Wait() })
	watching.Go(func() {
		for resp := range watch {
			a.mu.Lock()
			for _, ev := range resp.Events {
				a.take(ev)
			}
			a.mu.Unlock()
		}
	})
	return a
}

func (a *asksOfBirds) take(ev *clientv3.Event) {
	key := string(ev.Kv.Key)
	if ev.Type != clientv3.EventTypePut {
		delete(a.there, key)
		return
	}
	a.there[key] = true
	a.most = max(a.most, len(a.there))
	if !ev.IsCreate() {
		return
	}
	var object struct {
		Spec struct {
			Node                string
			Classes             []string
			UpdatePeriodSeconds *int
		}
	}
	err := json.Unmarshal(ev.Kv.Value, &object)
	s := object.Spec
	if err != nil || s.UpdatePeriodSeconds == nil || *s.UpdatePeriodSeconds != 0 ||
		!slices.Equal(s.Classes, []string{"BGP", "Routes"}) ||
		!strings.HasPrefix(key, reflector.BirdQuestionPrefix) {
		a.invalid = append(a.invalid, string(ev.Kv.Value))
	}
	a.nodes = append(a.nodes, s.Node)
	a.leased = a.leased && ev.Kv.Lease != 0
}

func (a *asksOfBirds) of(node string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, asked := range a.nodes {
		if asked == node {
			n++
		}
	}
	return n
}

func acceptLoss(mode reflector.Mode) func(*reflector.Goal) {
	return func(g *reflector.Goal) { g.Mode, g.AcceptLoss = mode, true }
}

// There and back beside nodes with BIRD: each is asked twice before each step, at most nine at a
// time, by objects that are new, and nothing of them stays.
func TestNodesWithBIRDAreAsked(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3")
	var birds []string
	for i := range 12 {
		birds = append(birds, fmt.Sprintf("bird-%02d", i))
	}
	c.addBirds(nil, birds...)
	asks := c.watchBirds()
	person := calico.NodeStatusPrefix + "by-hand"
	left := reflector.BirdQuestionPrefix + "77-1" // by a controller that was killed
	for key, value := range map[string]string{
		person: `{"metadata":{"name":"by-hand"},"spec":{"node":"bird-00"}}`,
		left:   string(reflector.BirdQuestion("77-1", "bird-00", "it", time.Now())),
	} {
		must(t, c.etcd.Cluster().PutRaw(t.Context(), key, value))
	}
	c.start("a")
	c.awaits("that it observes", func(s State) bool { return s.Done != "" })
	c.aim(acceptLoss(reflector.Reflectors))
	c.reaches("reflectors n1, n2, n3")
	c.aim(acceptLoss(reflector.Mesh))
	c.reaches("mesh")
	idle := asks.of(birds[0])
	time.Sleep(2 * askAgain)
	if n := asks.of(birds[0]); n != idle {
		t.Errorf("%s is asked at rest", birds[0])
	}
	for _, b := range birds {
		if n := asks.of(b); n < 2*len(thereAndBack) {
			t.Errorf("%s was asked %d times", b, n)
		}
	}
	asks.mu.Lock()
	defer asks.mu.Unlock()
	if asks.most > mostBirds+2 || asks.most < mostBirds { // beside those above
		t.Errorf("%d at a time", asks.most)
	}
	if len(asks.invalid) > 2 {
		t.Errorf("objects: %v", asks.invalid)
	}
	resp, err := c.client.Get(t.Context(), calico.NodeStatusPrefix, clientv3.WithPrefix())
	must(t, err)
	if len(resp.Kvs) != 1 || string(resp.Kvs[0].Key) != person {
		t.Errorf("there are %v", resp.Kvs)
	}
}

// What BIRD says keeps gates shut: a session that is down, a route that is missing, a table of
// which calico-node has no socket.
func TestGatesWaitForBIRD(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3")
	var mu sync.Mutex
	var what string
	say := func(now string) {
		mu.Lock()
		defer mu.Unlock()
		what = now
	}
	c.addBirds(func(_ string, peers []calicotest.NodePeer, routes []calicotest.NodeRoute) (
		[]calicotest.NodePeer, []calicotest.NodeRoute, error) {
		mu.Lock()
		defer mu.Unlock()
		switch what {
		case "down":
			peers[0].State = "Active"
		case "missing": // what n1 has not sent, others have
			routes = slices.DeleteFunc(routes, func(r calicotest.NodeRoute) bool {
				return r.Type == "RIB"
			})
			for i := range routes {
				routes[i].LearnedFrom.PeerIP = "10.0.7.3"
			}
		case "away":
			return nil, nil, calicotest.ErrNoBird
		}
		return peers, routes, nil
	}, "bird-1")
	waits := func(what string) {
		t.Helper()
		c.awaits(what, func(s State) bool { return strings.HasPrefix(s.Waits, what) })
	}
	for _, tc := range []struct{ says, waits string }{
		{"away", "neither an agent nor calico-node answers for bird-1"},
		{"down", "the session between bird-1 and n1 is down"},
	} {
		say(tc.says)
		_, stop := c.start("a", func(it *Controller) { it.birdPatience = time.Second })
		c.aim(acceptLoss(reflector.Reflectors))
		waits(tc.waits)
		stop()
	}
	say("missing")
	c.start("b")
	waits("not all routes from reflector n1 at bird-1, such as 10.1.")
	say("")
	c.reaches("reflectors n1, n2, n3")
}

// Without --accept-unseen a node that does not answer is waited for, with it it is not.
func TestBIRDThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3")
	must(t, c.etcd.Cluster().AddNode(t.Context(), "bird-1", netip.MustParsePrefix("10.0.8.1/24")))
	c.start("a", func(it *Controller) { it.birdPatience = time.Second })
	c.aim(acceptLoss(reflector.Reflectors))
	c.awaits("that it is named", func(s State) bool {
		return s.Waits == "neither an agent nor calico-node answers for bird-1"
	})
	c.aim(func(g *reflector.Goal) { g.AcceptUnseen = true })
	c.reaches("reflectors n1, n2, n3")
}

// The order in which nodes are asked, and how many at a time.
func TestWhoIsAskedNext(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := birds{patience: 20 * time.Second}
	var nodes []string
	for i := range 11 {
		nodes = append(nodes, fmt.Sprint("b", i))
	}
	answer := calico.NodeStatus{Answered: true,
		Annotations: map[string]string{"vpp-route-agent/reflector-question": "a"}}
	ask := func(n ...string) {
		for _, node := range n {
			b.put("k/"+node, node, round{int64(len(b.open)) + 5, now})
		}
	}
	due := func(want ...string) {
		t.Helper()
		if got, _ := b.due(nodes, now); !slices.Equal(got, want) {
			t.Errorf("after %s: %v, want %v", now.Sub(time.Unix(1e9, 0)), got, want)
		}
	}
	due(nodes[:9]...)
	ask(nodes[:9]...)
	due()
	now = now.Add(time.Second)
	if b.hear("k/b3", calico.NodeStatus{}) || !b.hear("k/b3", answer) || !b.hear("k/b4", answer) {
		t.Error("what is answered stays, or what is not goes")
	}
	b.gone([]string{"k/b3", "k/b4"})
	due("b9", "b10") // never asked, so before b3
	ask("b9")
	due("b10")
	ask("b10")
	due()
	if b.hear("k/by-hand", calico.NodeStatus{Answered: true}) {
		t.Error("a person's object goes")
	}
	if !b.hear("k/left", answer) {
		t.Error("what another controller has left stays")
	}
	now = now.Add(19 * time.Second)
	gone := b.giveUp(now)
	b.gone(gone)
	if len(gone) != 7 { // not b9, b10
		t.Errorf("given up: %v", gone)
	}
	due("b3", "b4")
	known := b.of(0, now)
	if !known["b0"].Silent || known["b3"].Silent || len(known["b3"].Answers) != 1 {
		t.Errorf("%+v", known)
	}
	b.changed()
	if len(b.of(0, now)["b3"].Answers) != 0 {
		t.Error("an answer from before a change counts")
	}
	due("b3", "b4") // those without an answer are left for a minute
	now = now.Add(40 * time.Second)
	due("b3", "b4", "b0", "b1", "b2", "b5", "b6")
}

// A cluster so large that a round of questions takes minutes has two answers from each node before
// the migration is undone.
func TestAnswersOfManyBIRDsCountLongEnough(t *testing.T) {
	const nodes, latency = 1000, 1500 * time.Millisecond
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprint("b", i))
	}
	b := birds{patience: birdPatience}
	start := time.Unix(1e9, 0)
	limit := start.Add(time.Duration(reflector.Config{}.WithDefaults().LimitSeconds) * time.Second)
	serial := 0
	for now := start; now.Before(limit); now = now.Add(birdPause) {
		var answered []string
		for key, q := range b.open {
			if now.Sub(q.at) >= latency && b.hear(key, calico.NodeStatus{Answered: true}) {
				answered = append(answered, key)
			}
		}
		b.gone(answered)
		ask, _ := b.due(names, now)
		for _, n := range ask {
			serial++
			b.put(fmt.Sprint(serial), n, round{int64(serial), now})
		}
		if now.Sub(start)%(10*birdPause) != 0 {
			continue
		}
		twice := 0
		for _, n := range b.of(0, now) {
			if len(n.Answers) == 2 {
				twice++
			}
		}
		if twice == nodes {
			return
		}
	}
	t.Error("not all nodes have two answers that count")
}

// What calico-node cannot have written is named once by who leads, however often it is read.
func TestAnswersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	log := &testlog.Buffer{}
	c := newCluster(t, "n1", "n2", "n3")
	c.addBirds(nil, "bird-1")
	_, err := c.client.Put(t.Context(), reflector.BirdQuestionPrefix+"garbage", "{")
	must(t, err)
	c.start("a", func(it *Controller) { it.log = slog.New(slog.NewTextHandler(log, nil)) })
	c.aim(acceptLoss(reflector.Reflectors))
	c.reaches("reflectors n1, n2, n3")
	said := log.String() // on a busy machine a lease may end, and the lead begin anew
	n := strings.Count(said, "an answer of calico-node cannot be read")
	if leads := strings.Count(said, "msg=leading"); n == 0 || n > leads {
		t.Errorf("it is named %d times by %d that lead", n, leads)
	}
}
