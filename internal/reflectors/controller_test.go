package reflectors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/testlog"
)

// cluster is a datastore with Calico's data, and what agents say that are in order: this is about
// the controller. agents_test.go has real ones.
type cluster struct {
	t      *testing.T
	nodes  []string
	etcd   *calicotest.Etcd
	client *clientv3.Client // of the tests and the agents
	kube   *kubeCluster     // nil: it is in etcd

	mu   sync.Mutex        // guards what follows
	said map[string]string // by agents, by key
	away map[string]bool   // these say nothing
	// what they answer; nil: that nothing would change
	knows    func(node string, q reflector.Question) reflector.Change
	late     bool   // answers have the revision of the write before
	restless string // the status of this node changes all the time
	turns    int
}

// startCluster is newCluster, newKubeCluster, or the same on a real API server.
type startCluster func(t *testing.T, nodes ...string) *cluster

// onBoth runs a test in etcd, and in the Kubernetes datastore.
func onBoth(t *testing.T, test func(*testing.T, startCluster)) {
	t.Parallel()
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		test(t, newCluster)
	})
	t.Run("Kubernetes", func(t *testing.T) {
		t.Parallel()
		test(t, newKubeCluster)
	})
}

func newCluster(t *testing.T, nodes ...string) *cluster {
	t.Helper()
	return newClusterIn(t, "", nodes...)
}

// newClusterIn keeps etcd's data in a directory.
func newClusterIn(t *testing.T, dir string, nodes ...string) *cluster {
	t.Helper()
	t.Attr("part", "etcd 3.6.16, embedded server")
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{Dir: dir})
	must(t, err)
	c := &cluster{t: t, etcd: e, client: e.Client(), nodes: nodes, said: map[string]string{},
		away: map[string]bool{}}
	t.Cleanup(func() { c.etcd.Close() })
	c.addNodes()
	return c
}

// addNodes adds the nodes and their agents.
func (c *cluster) addNodes() {
	for i, node := range c.nodes {
		c.addNode(node, fmt.Sprintf("10.0.7.%d/24", i+1))
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		for ctx.Err() == nil {
			c.speak(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

func (c *cluster) addNode(name, address string) {
	c.t.Helper()
	if c.kube != nil {
		c.kube.addNode(name, address)
		return
	}
	must(c.t, c.etcd.Cluster().AddNode(c.t.Context(), name, netip.MustParsePrefix(address)))
}

// apply writes a resource of Calico's.
func (c *cluster) apply(yaml string) {
	c.t.Helper()
	if c.kube != nil {
		c.kube.apply(yaml)
		return
	}
	_, err := c.etcd.Cluster().Apply(c.t.Context(), []byte(yaml))
	must(c.t, err)
}

func (c *cluster) deleteNode(name string) {
	c.t.Helper()
	if c.kube != nil {
		c.kube.DeleteObject("nodes", name)
		return
	}
	must(c.t, c.etcd.Cluster().Delete(c.t.Context(), "Node", name))
}

func (c *cluster) putGoal(text string) {
	c.t.Helper()
	if c.kube != nil {
		c.kube.putGoal(text)
		return
	}
	must(c.t, c.etcd.Cluster().PutRaw(c.t.Context(), reflector.GoalKey, text))
}

// takeLead takes the lead away from whoever has it.
func (c *cluster) takeLead() {
	c.t.Helper()
	if c.kube != nil {
		c.kube.takeLead()
		return
	}
	_, err := c.client.Delete(c.t.Context(), reflector.LeaderPrefix, clientv3.WithPrefix())
	must(c.t, err)
}

// asked are the questions, by ID, and the revisions that answers repeat.
func (c *cluster) asked(ctx context.Context) (map[string]etcd.Request, error) {
	if c.kube != nil {
		return c.kube.asked(), nil
	}
	questions, err := c.client.Get(ctx, reflector.QuestionsPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	all := map[string]etcd.Request{}
	for _, kv := range questions.Kvs {
		r := etcd.Request{Value: kv.Value, Revision: kv.ModRevision}
		if c.late {
			r.Revision = kv.CreateRevision - 1
		}
		all[reflector.QuestionID(string(kv.Key))] = r
	}
	return all, nil
}

func (c *cluster) snapshot(ctx context.Context, node string) (*calico.Snapshot, error) {
	if c.kube != nil {
		return c.kube.snapshot(node), nil
	}
	return calicotest.NewCluster(c.client).Snapshot(ctx, node)
}

// speak writes what agents would say now, as far as it differs from what they said.
func (c *cluster) speak(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	client, said := c.client, c.said
	now := map[string]string{}
	questions, err := c.asked(ctx)
	snapshot, err2 := c.snapshot(ctx, c.nodes[0])
	if errors.Join(err, err2) != nil {
		return
	}
	for _, node := range c.nodes {
		if c.away[node] {
			continue
		}
		s := reflector.Status{
			Format: reflector.StatusFormat, Version: "v1", Dataplane: "vpp",
			Digest: reflector.Digest(node, snapshot), Wanted: 2, Up: 2,
		}
		if node == c.restless {
			c.turns++
			s.Wanted, s.Up = c.turns, c.turns
		}
		now[reflector.StatusKey(node)] = string(s.Encode())
		for id, asked := range questions {
			q, err := reflector.DecodeQuestion(asked.Value)
			if err != nil {
				c.t.Errorf("question %s: %v", asked.Value, err)
				continue
			}
			a := reflector.Answer{
				Format: reflector.StatusFormat, Version: "v1", Question: q,
				Revision: asked.Revision, Digest: s.Digest,
				IPv4: reflector.Change{Prefixes: 3, FewestCopies: 2},
			}
			if c.knows != nil {
				a.IPv4 = c.knows(node, q)
			}
			if c.late && c.kube != nil {
				a.Revision--
			}
			now[reflector.AnswerKey(node, id)] = string(a.Encode())
		}
	}
	if c.kube != nil {
		c.kube.say(now)
		return
	}
	for key, value := range now {
		if said[key] != value {
			_, err := client.Put(ctx, key, value)
			if err == nil {
				said[key] = value
			}
		}
	}
	for key := range said {
		if _, is := now[key]; !is {
			if _, err := client.Delete(ctx, key); err == nil {
				delete(said, key)
			}
		}
	}
}

func (c *cluster) change(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// start starts a controller, and returns what stops it.
func (c *cluster) start(name string, change ...func(*Controller)) (it *Controller, stop func()) {
	c.t.Helper()
	if c.kube != nil {
		return runController(c.t, ControllerConfig{Datastore: c.kube.controllerConfig()}, name,
			change...)
	}
	return startController(c.t, c.etcd, name, change...)
}

func startController(t *testing.T, e *calicotest.Etcd, name string,
	change ...func(*Controller)) (it *Controller, stop func()) {
	t.Helper()
	return runController(t, ControllerConfig{
		Etcd: etcd.Config{Endpoints: []string{e.Endpoint()}}}, name, change...)
}

func runController(t *testing.T, where ControllerConfig, name string,
	change ...func(*Controller)) (it *Controller, stop func()) {
	t.Helper()
	where.Name, where.Version = name, "v1"
	where.Log = testlog.New(t).With("controller", name)
	it, err := NewController(where)
	must(t, err)
	for _, do := range change {
		do(it)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := it.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return it, stop
}

// aim sets the goal. A decision needs a grace time of one second after the start.
func (c *cluster) aim(change func(*reflector.Goal)) {
	c.t.Helper()
	if c.kube == nil {
		aim(c.t, c.client, change)
		return
	}
	must(c.t, NewKubernetesDesk(*c.kube.config(), "v1").Change(c.t.Context(),
		func(v View) (Changes, error) {
			g := v.Goal
			g.Config.GraceSeconds, g.Since, g.Undo = 1, time.Now(), ""
			change(&g)
			return Changes{Goal: &g}, nil
		}))
}

func aim(t *testing.T, client *clientv3.Client, change func(*reflector.Goal)) {
	t.Helper()
	for {
		resp, err := client.Get(t.Context(), reflector.GoalKey)
		must(t, err)
		g, revision := reflector.Goal{}, int64(0)
		for _, kv := range resp.Kvs {
			g, err = reflector.DecodeGoal(kv.Value)
			must(t, err)
			revision = kv.ModRevision
		}
		g.Config.GraceSeconds, g.Since, g.Undo = 1, time.Now(), ""
		change(&g)
		txn, err := client.Txn(t.Context()).If(clientv3.Compare(
			clientv3.ModRevision(reflector.GoalKey), "=", revision)).Then(
			clientv3.OpPut(reflector.GoalKey, string(g.Encode()))).Commit()
		must(t, err)
		if txn.Succeeded {
			return
		}
	}
}

func to(mode reflector.Mode) func(*reflector.Goal) {
	return func(g *reflector.Goal) { g.Mode = mode }
}

// look reads all as a controller does.
func (c *cluster) look() *reading {
	c.t.Helper()
	r, err := c.read()
	must(c.t, err)
	return r
}

func (c *cluster) read() (*reading, error) {
	if c.kube != nil {
		return newKubeStore(*c.kube.config(), testlog.New(c.t)).look(c.t.Context(), "v1")
	}
	return read(c.t.Context(), c.client, "v1")
}

// awaits waits until the leader says so.
func (c *cluster) awaits(what string, ok func(State) bool) {
	c.t.Helper()
	awaitStateOf(c.t, c.read, 20*time.Millisecond, what, ok)
}

func awaitState(t *testing.T, client *clientv3.Client, what string, ok func(State) bool) {
	t.Helper()
	awaitStateOf(t, func() (*reading, error) { return read(t.Context(), client, "v1") },
		20*time.Millisecond, what, ok)
}

func awaitStateOf(t *testing.T, read func() (*reading, error), every time.Duration, what string,
	ok func(State) bool) {
	t.Helper()
	var last State
	defer func() {
		if t.Failed() {
			t.Logf("the leader: %+v", last)
		}
	}()
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(every) { // all tests run beside it
		r, err := read()
		if err == nil && len(r.states) > 0 {
			last = r.states[0]
			if last.Leads && ok(last) {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
	}
}

// reaches waits until the leader is done with the present goal.
func (c *cluster) reaches(mode string) {
	c.t.Helper()
	reachesOf(c.t, c.read, mode)
}

func reaches(t *testing.T, client *clientv3.Client, mode string) {
	t.Helper()
	reachesOf(t, func() (*reading, error) { return read(t.Context(), client, "v1") }, mode)
}

// reachesOf looks rarely: goals take seconds, and a look costs as much as what the controller does.
func reachesOf(t *testing.T, read func() (*reading, error), mode string) {
	t.Helper()
	awaitStateOf(t, read, 500*time.Millisecond, "the goal "+mode, func(s State) bool {
		if !strings.HasPrefix(s.Done, mode) {
			return false
		}
		r, err := read()
		must(t, err)
		return s.Goal == r.goalRevision
	})
}

// resources are Calico's, by key. The order of fields does not matter.
func (c *cluster) resources() map[string]string {
	all := map[string]string{}
	for _, o := range c.look().objects {
		var fields any
		must(c.t, json.Unmarshal(o.Value, &fields))
		all[o.Key.Resource()] = fmt.Sprint(fields)
	}
	return all
}

// inRole are the nodes that are reflectors.
func (c *cluster) inRole() (names []string) {
	for _, o := range c.look().objects {
		if o.Key.Kind == calico.KindNode &&
			strings.Contains(string(o.Value), `"routeReflectorClusterID":"224.0.0.1"`) {
			names = append(names, o.Key.Name)
		}
	}
	return names
}

// mark is where writes begin to count.
func (c *cluster) mark() int64 {
	if c.kube != nil {
		return c.kube.mark()
	}
	return c.look().revision
}

// writes are the resources that were written since a mark, in order.
func (c *cluster) writes(since int64) (all []string) {
	if c.kube != nil {
		return c.kube.writes(since)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	last := c.look().revision
	for resp := range c.client.Watch(ctx, "/calico/", clientv3.WithPrefix(),
		clientv3.WithRev(since+1), clientv3.WithProgressNotify()) {
		must(c.t, resp.Err())
		for _, ev := range resp.Events {
			if k, err := calico.ParseKey(string(ev.Kv.Key)); err == nil {
				all = append(all, fmt.Sprintf("%s %s", ev.Type, k.Resource()))
			}
		}
		if resp.Header.Revision >= last {
			break
		}
	}
	return all
}

// thereAndBack are the writes to Calico's resources with three reflectors.
var thereAndBack = []string{
	"PUT BGPPeer(vpp-route-agent-reflectors)", "PUT Node(n1)", "PUT Node(n2)", "PUT Node(n3)",
	"PUT BGPConfiguration(default)",
	"PUT BGPConfiguration(default)", "PUT Node(n3)", "PUT Node(n2)", "PUT Node(n1)",
	"DELETE BGPPeer(vpp-route-agent-reflectors)",
}

func TestThereAndBack(t *testing.T) { onBoth(t, thereAndBackAgain) }

func thereAndBackAgain(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2", "n3", "n4", "n5")
	before := c.resources()
	c.start("a")
	c.awaits("that it observes", func(s State) bool {
		return s.Done == "observing: nothing is written"
	})
	if r := c.look(); r.agents != nil || !maps.Equal(c.resources(), before) {
		t.Errorf("while it observes it has written: %v, %v", r.agents, c.resources())
	}
	begun := c.mark()
	c.aim(to(reflector.Reflectors))
	c.reaches("reflectors n1, n2, n3")
	if got := c.inRole(); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("reflectors are %v", got)
	}
	if r := c.look(); !r.goal.Since.IsZero() || !slices.Equal(r.agents, c.nodes) {
		t.Errorf("goal %+v, agents %v", r.goal, r.agents)
	}
	c.aim(to(reflector.Mesh))
	c.reaches("mesh")
	after := c.resources()
	delete(before, "BGPConfiguration(default)") // the controller had to create it, so it stays
	delete(after, "BGPConfiguration(default)")
	if !maps.Equal(after, before) {
		t.Errorf("there and back resources are\n%v\nand were\n%v", after, before)
	}
	if got := c.writes(begun); !slices.Equal(got, thereAndBack) {
		t.Errorf("writes are\n%v\nwant\n%v", got, thereAndBack)
	}
	if questions, err := c.asked(t.Context()); err != nil || len(questions) > 0 {
		t.Errorf("questions stay: %v, %v", questions, err)
	}
}

// tap is called around each transaction of a controller.
type tap struct {
	clientv3.KV
	before func(ops []clientv3.Op) error // an error: it is not sent
	after  func(ops []clientv3.Op) error // an error: its outcome is not heard of
}

func (k tap) Txn(ctx context.Context) clientv3.Txn { return &tappedTxn{Txn: k.KV.Txn(ctx), tap: k} }

type tappedTxn struct {
	clientv3.Txn
	tap
	ops []clientv3.Op
}

func (x *tappedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	x.Txn = x.Txn.If(cs...)
	return x
}

func (x *tappedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	x.ops, x.Txn = ops, x.Txn.Then(ops...)
	return x
}

func (x *tappedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	x.Txn = x.Txn.Else(ops...)
	return x
}

func (x *tappedTxn) Commit() (*clientv3.TxnResponse, error) {
	if x.before != nil {
		if err := x.before(x.ops); err != nil {
			return nil, err
		}
	}
	resp, err := x.Txn.Commit()
	if err == nil && x.after != nil {
		err = x.after(x.ops)
	}
	return resp, err
}

func tapped(k tap) func(*Controller) {
	return func(c *Controller) {
		c.store.(*etcdStore).watched = func(kv clientv3.KV) clientv3.KV {
			k.KV = kv
			return k
		}
	}
}

// isStep reports whether a transaction writes a step.
func isStep(ops []clientv3.Op) bool {
	return slices.ContainsFunc(ops, func(op clientv3.Op) bool {
		return op.IsPut() && string(op.KeyBytes()) == reflector.GoalKey
	})
}

var errKilled = errors.New("killed")

// stepTap is called around each step of a controller.
type stepTap struct {
	term
	before func() error // an error: it is not sent
	after  func() error // an error: its outcome is not heard of
	lost   func()       // it has failed
}

func (k stepTap) take(ctx context.Context, r *reading, s *reflector.Step) (bool, error) {
	if k.before != nil {
		if err := k.before(); err != nil {
			return false, err
		}
	}
	taken, err := k.term.take(ctx, r, s)
	switch {
	case err == nil && k.after != nil:
		err = k.after()
	case err != nil && k.lost != nil:
		k.lost()
	}
	return taken, err
}

func aroundSteps(k stepTap) func(*Controller) {
	return func(c *Controller) {
		c.watched = func(t term) term {
			k.term = t
			return k
		}
	}
}

// killing runs one controller after the other until the goal is reached. The first ends before its
// first step is written, the second after it, before it hears of that, and so on.
func killing(start func(name string, change ...func(*Controller)) (*Controller, func()),
	mode string) (kills int) {
	for done := false; !done; kills++ {
		ended := make(chan struct{}, 1)
		kill := func() error {
			select {
			case ended <- struct{}{}:
			default:
			}
			return errKilled
		}
		tap := stepTap{before: kill}
		if kills%2 == 1 {
			tap.before, tap.after = nil, kill
		}
		it, stop := start(fmt.Sprint(kills), aroundSteps(tap))
		for !done && len(ended) == 0 {
			time.Sleep(10 * time.Millisecond)
			s := it.Status()
			done = s.Leads && strings.HasPrefix(s.State.Done, mode)
		}
		stop()
	}
	return kills - 1
}

func TestKilledAroundEachStep(t *testing.T) { onBoth(t, killedAroundEachStep) }

func killedAroundEachStep(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2", "n3", "n4", "n5")
	begun := c.mark()
	c.aim(to(reflector.Reflectors))
	kills := killing(c.start, "reflectors")
	c.aim(to(reflector.Mesh))
	kills += killing(c.start, "mesh")
	// twelve steps, two of which verify and write the goal alone
	if got := c.writes(begun); !slices.Equal(got, thereAndBack) || kills != 24 {
		t.Errorf("with %d kills the writes are\n%v\nwant\n%v", kills, got, thereAndBack)
	}
}

// A step is not taken once another controller leads, or a person has changed what it depends on;
// between reading and writing, too.
func TestAStepIsNotTaken(t *testing.T) { onBoth(t, aStepIsNotTaken) }

func aStepIsNotTaken(t *testing.T, start startCluster) {
	for what, interfere := range map[string]func(c *cluster){
		"leads no more": func(c *cluster) { c.takeLead() },
		"another goal":  func(c *cluster) { c.aim(func(g *reflector.Goal) { g.Paused = true }) },
		"an edit": func(c *cluster) {
			c.apply(`
kind: BGPPeer
apiVersion: projectcalico.org/v3
metadata: {name: vpp-route-agent-reflectors}
spec: {nodeSelector: all(), peerSelector: has(theirs)}
`)
		},
		"a lock": func(c *cluster) {
			c.apply(`
kind: ClusterInformation
apiVersion: projectcalico.org/v3
metadata: {name: default}
spec: {datastoreReady: false}
`)
		},
		"a person's BGPPeer": func(c *cluster) {
			c.apply(`
kind: BGPPeer
apiVersion: projectcalico.org/v3
metadata: {name: theirs}
spec: {nodeSelector: all(), peerSelector: has(theirs)}
`)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := start(t, "n1", "n2")
			begun := c.mark()
			var once, done sync.Once
			var left, after map[string]string
			c.start("a", aroundSteps(stepTap{
				before: func() error {
					once.Do(func() { interfere(c); left = c.resources() })
					return nil
				},
				after: func() error {
					done.Do(func() { after = c.resources() })
					return nil
				},
				lost: func() { done.Do(func() { after = c.resources() }) },
			}))
			c.aim(to(reflector.Reflectors))
			switch what {
			case "leads no more": // and then again
				c.reaches("reflectors n1, n2")
				if n := len(c.writes(begun)); n != 1+2+1 {
					t.Errorf("%d writes, want each once: %v", n, c.writes(begun))
				}
			case "another goal":
				c.awaits("the pause", func(s State) bool { return s.Person && s.Waits == "paused" })
			case "a lock":
				c.awaits("the lock", func(s State) bool {
					return s.Waits == "ClusterInformation(default): datastoreReady is false"
				})
			case "a person's BGPPeer": // it is in no step's way: with it read, they are taken
				c.reaches("reflectors n1, n2")
			case "an edit":
				c.awaits("that a person is to look", func(s State) bool {
					return s.Person && s.Waits == "BGPPeer(vpp-route-agent-reflectors): "+
						"it belongs to a person"
				})
			}
			if left == nil || !maps.Equal(after, left) {
				t.Errorf("it has written: %v, was %v", after, left)
			}
		})
	}
}

// Where others write all the time, so that no step is taken, the controller says so.
func TestAStepIsNeverTaken(t *testing.T) { onBoth(t, aStepIsNeverTaken) }

func aStepIsNeverTaken(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2")
	var quiet atomic.Bool
	times := 0
	c.start("a", aroundSteps(stepTap{before: func() error {
		if times++; !quiet.Load() {
			c.apply(fmt.Sprintf(`
kind: BGPPeer
apiVersion: projectcalico.org/v3
metadata: {name: theirs}
spec: {nodeSelector: all(), peerSelector: has(theirs), peerIP: "", keepOriginalNextHop: %t}
`, times%2 == 0))
		}
		return nil
	}}))
	c.aim(to(reflector.Reflectors))
	c.awaits("why nothing goes on", func(s State) bool {
		return !s.Person && strings.HasPrefix(s.Waits, "Nodes, BGPPeers, ") &&
			strings.HasSuffix(s.Waits, " create BGPPeer(vpp-route-agent-reflectors)")
	})
	quiet.Store(true)
	c.reaches("reflectors n1, n2")
}

func TestOfTwoControllersOneLeads(t *testing.T) { onBoth(t, ofTwoControllersOneLeads) }

func ofTwoControllersOneLeads(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2", "n3", "n4")
	begun := c.mark()
	a, stopA := c.start("a")
	await(t, "a to lead", func() bool { return a.Status().Leads })
	b, stopB := c.start("b")
	await(t, "b to wait", func() bool { return b.Status().Connected })
	c.aim(to(reflector.Reflectors))
	await(t, "two steps", func() bool { return a.Status().Steps >= 2 })
	stopA() // and begins to wait at the end of the queue
	await(t, "b to lead", func() bool { return b.Status().Leads })
	a, stopA = c.start("a")
	defer stopA()
	c.reaches("reflectors n1, n2, n3")
	if b := b.Status(); !b.Leads || b.Steps != 6-2 || a.Status().Leads || a.Status().Steps != 0 {
		t.Errorf("b: %+v, a: %+v", b, a.Status())
	}
	c.aim(to(reflector.Mesh))
	await(t, "a step back", func() bool { return len(c.writes(begun)) > 5 })
	stopB()
	c.reaches("mesh")
	if got := c.writes(begun); !slices.Equal(got, thereAndBack) {
		t.Errorf("writes are %v", got)
	}
}

// A controller whose key a person deletes leads no more, also where nothing else happens that would
// have it read: then it campaigns again.
func TestTheKeyOfAnIdleLeaderIsDeleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2")
	c.start("a")
	c.aim(to(reflector.Reflectors))
	c.reaches("reflectors n1, n2")
	c.rests(func() string { return fmt.Sprintf("revision %d", c.look().revision) })
	_, err := c.client.Delete(t.Context(), reflector.LeaderPrefix+"/", clientv3.WithPrefix())
	must(t, err)
	await(t, "a to lead again", func() bool {
		states := c.look().states
		return len(states) == 1 && states[0].Leads
	})
}

// A controller that stands still between reading and writing, for longer than its lease, takes no
// step after it: another has gone on meanwhile.
func TestALeaseEndsBetweenReadingAndWriting(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2", "n3", "n4")
	stands, goes := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a, _ := c.start("a", tapped(tap{before: func(ops []clientv3.Op) error {
		if isStep(ops) {
			once.Do(func() { close(stands); <-goes })
		}
		return nil
	}}))
	await(t, "a to lead", func() bool { return a.Status().Leads })
	b, _ := c.start("b")
	await(t, "b to wait", func() bool { return len(c.look().states) == 2 })
	c.aim(to(reflector.Reflectors))
	<-stands
	leases, err := c.client.Get(t.Context(), c.look().states[0].key)
	must(t, err)
	_, err = c.client.Revoke(t.Context(), clientv3.LeaseID(leases.Kvs[0].Lease)) // as if it ended
	must(t, err)
	await(t, "b to take all steps but the last", func() bool { return b.Status().Steps == 5 })
	close(goes)
	c.reaches("reflectors n1, n2, n3")
	if got := c.writes(0)[len(c.nodes):]; !slices.Equal(got, thereAndBack[:5]) {
		t.Errorf("writes are %v", got)
	}
	if a := a.Status(); a.Steps != 0 {
		t.Errorf("a: %+v", a)
	}
}

// What an agent has answered before its status changed does not count: a session may be down since.
func TestAnAnswerFromBeforeTheStatusDoesNotCount(t *testing.T) {
	onBoth(t, anAnswerFromBeforeTheStatusDoesNotCount)
}

func anAnswerFromBeforeTheStatusDoesNotCount(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2", "n3")
	c.change(func() { c.restless = "n3" })
	c.start("a")
	c.aim(to(reflector.Reflectors))
	c.awaits("the first gate with a question", func(s State) bool {
		return s.Waits == "not all routes from reflector n1 at n3"
	})
	time.Sleep(3 * time.Second) // long enough for two answers
	if got := c.inRole(); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("reflectors are %v", got)
	}
	c.change(func() { c.restless = "" })
	c.reaches("reflectors n1, n2, n3")
}

// An answer that is not to the last writes of a question opens no gate.
func TestAnswersFromBeforeTheQuestion(t *testing.T) { onBoth(t, answersFromBeforeTheQuestion) }

func answersFromBeforeTheQuestion(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2", "n3")
	c.change(func() { c.late = true })
	c.start("a")
	c.aim(to(reflector.Reflectors))
	c.awaits("the first gate with a question", func(s State) bool {
		return strings.HasPrefix(s.Waits, "not all routes from reflector n1 at n1, n2, n3")
	})
	time.Sleep(3 * time.Second) // long enough for two true answers
	if got := c.inRole(); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("reflectors are %v", got)
	}
	c.change(func() { c.late = false })
	c.reaches("reflectors n1, n2, n3")
}

// A gate that stays shut has the steps undone, without a person.
func TestUndo(t *testing.T) { onBoth(t, undo) }

func undo(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2", "n3", "n4")
	before := c.resources()
	c.change(func() {
		c.knows = func(node string, q reflector.Question) reflector.Change {
			if node == "n4" && q.Cover == "n2" {
				return reflector.Change{Missing: 1, Examples: []string{"10.1.0.0/26"}}
			}
			return reflector.Change{Prefixes: 3, FewestCopies: 2}
		}
	})
	it, _ := c.start("a")
	// The limit is longer than the other gates need on a busy machine.
	c.aim(func(g *reflector.Goal) { g.Mode, g.Config.LimitSeconds = reflector.Reflectors, 20 })
	c.awaits("the end of the undo", func(s State) bool {
		return strings.HasPrefix(s.Done, "mesh; undone: not all routes from reflector n2 at n4")
	})
	if now := c.resources(); !maps.Equal(now, before) {
		t.Errorf("after the undo resources are\n%v\nand were\n%v", now, before)
	}
	undone := func() bool {
		w := httptest.NewRecorder()
		it.HealthHandler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return strings.Contains(w.Body.String(), "\nvpp_route_agent_reflector_controller_undone 1")
	}
	if !undone() {
		t.Error("no metric says so")
	}
	c.aim(func(g *reflector.Goal) { g.Undo = reflector.Aborted })
	await(t, "that nothing is undone but by a person", func() bool { return !undone() })
}

// An agent that is cut off from etcd is not taken for a BIRD, by no controller that starts then
// either, and not accepted unseen.
func TestAnAgentWithoutAStatusIsNoBIRD(t *testing.T) { onBoth(t, anAgentWithoutAStatusIsNoBIRD) }

func anAgentWithoutAStatusIsNoBIRD(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2", "n3", "n4")
	_, stop := c.start("a")
	c.aim(func(g *reflector.Goal) {
		g.Mode, g.Paused, g.AcceptUnseen = reflector.Reflectors, true, true
	})
	await(t, "all agents noted", func() bool { return slices.Equal(c.look().agents, c.nodes) })
	stop()
	c.change(func() { c.away["n4"] = true })
	await(t, "n4 away", func() bool { return len(c.look().statuses) == 3 })
	c.start("b")
	c.aim(func(g *reflector.Goal) { g.Paused = false })
	c.awaits("that it waits for n4", func(s State) bool {
		return s.Waits == "no agent of this version answers for n4"
	})
	c.change(func() { c.away["n4"] = false })
	c.reaches("reflectors n1, n2, n3")
	c.deleteNode("n4")
	await(t, "n4 forgotten", func() bool { return len(c.look().agents) == 3 })
}

// A goal of a later version is not followed by half.
func TestAGoalThatCannotBeRead(t *testing.T) { onBoth(t, aGoalThatCannotBeRead) }

func aGoalThatCannotBeRead(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2")
	c.start("a")
	before := c.resources()
	c.putGoal(`{"mode":"reflectors","config":{},"onlyAtNight":true}`)
	c.awaits("that it refuses", func(s State) bool {
		return s.Person && strings.Contains(s.Waits, `unknown field "onlyAtNight"`)
	})
	if now := c.resources(); !maps.Equal(now, before) {
		t.Errorf("it has written: %v", now)
	}
}

// In a cluster where nothing happens a controller writes nothing, and asks for nothing.
func TestIdle(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2")
	requests := make(chan int, 1000)
	c.start("a", tapped(tap{before: func(ops []clientv3.Op) error {
		requests <- len(ops)
		return nil
	}}))
	c.aim(to(reflector.Reflectors))
	c.reaches("reflectors n1, n2")
	c.rests(func() string {
		return fmt.Sprintf("revision %d, %d requests", c.look().revision, len(requests))
	})
}

// rests waits for two seconds in which nothing is counted, since agents delete their answers, and
// then wants four more of them.
func (c *cluster) rests(counts func() string) {
	c.t.Helper()
	before, now := "", counts()
	for deadline := time.Now().Add(time.Minute); before != now; before, now = now, counts() {
		if time.Now().After(deadline) {
			c.t.Fatalf("%s, two seconds ago %s", now, before)
		}
		time.Sleep(2 * time.Second)
	}
	time.Sleep(4 * time.Second)
	if after := counts(); after != now {
		c.t.Errorf("%s, four seconds ago %s", after, now)
	}
}

// The rights that docs/security.md asks for are enough.
func TestLeastRightsOfAController(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1", "n2")
	must(t, c.etcd.Cluster().AddNode(t.Context(), "bird-1", netip.MustParsePrefix("10.0.8.1/24")))
	must(t, c.etcd.EnableAuth(t.Context(), "secret", map[string]string{"controller": "pw"}))
	root, err := clientv3.New(clientv3.Config{
		Endpoints: []string{c.etcd.Endpoint()}, Username: "root", Password: "secret",
	})
	must(t, err)
	defer root.Close()
	c.change(func() { c.client = root })
	_, err = root.RoleRevokePermission(t.Context(), "reader", "/calico/",
		clientv3.GetPrefixRangeEnd("/calico/"))
	must(t, err)
	for prefix, kind := range controllerRights {
		_, err := root.RoleGrantPermission(t.Context(), "reader", prefix,
			clientv3.GetPrefixRangeEnd(prefix), kind)
		must(t, err)
	}
	it, err := NewController(ControllerConfig{
		Etcd: etcd.Config{Endpoints: []string{c.etcd.Endpoint()}, Username: "controller",
			Password: "pw"},
		Name: "a", Version: "v1", Log: testlog.New(t),
	})
	must(t, err)
	it.birdPatience = time.Second
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- it.Run(ctx) }()
	unseen := func(mode reflector.Mode) func(*reflector.Goal) {
		return func(g *reflector.Goal) { g.Mode, g.AcceptLoss, g.AcceptUnseen = mode, true, true }
	}
	c.aim(unseen(reflector.Reflectors))
	c.reaches("reflectors n1, n2")
	c.aim(unseen(reflector.Mesh))
	c.reaches("mesh")
	cancel()
	must(t, <-ended)
	c.change(func() { c.client = c.etcd.Client() })
}

// controllerRights are those of docs/security.md.
var controllerRights = map[string]clientv3.PermissionType{
	"/calico/resources/v3/projectcalico.org/nodes/":               readWrite,
	"/calico/resources/v3/projectcalico.org/bgppeers/":            readWrite,
	"/calico/resources/v3/projectcalico.org/bgpconfigurations/":   readWrite,
	"/calico/resources/v3/projectcalico.org/clusterinformations/": readOnly,
	reflector.BirdQuestionPrefix:                                  readWrite,
	reflector.NodesPrefix:                                         readOnly,
	reflector.QuestionsPrefix:                                     readWrite,
	"/vpp-route-agent/reflectors/":                                readWrite,
}

const (
	readWrite = clientv3.PermissionType(clientv3.PermReadWrite)
	readOnly  = clientv3.PermissionType(clientv3.PermRead)
)

// What was undone is not reached, nor is what the leader says of an earlier goal.
func TestReached(t *testing.T) {
	done := State{Leads: true, Done: "mesh", Goal: 5}
	for what, tc := range map[string]struct {
		view View
		want bool
	}{
		"done":            {View{GoalRevision: 5, Controllers: []State{done}}, true},
		"an earlier goal": {View{GoalRevision: 6, Controllers: []State{done}}, false},
		"nobody leads":    {View{GoalRevision: 5}, false},
		"undone": {View{GoalRevision: 5, Controllers: []State{done},
			Goal: reflector.Goal{Undo: "a reason"}}, false},
	} {
		if got := tc.view.Reached(); got != tc.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}
