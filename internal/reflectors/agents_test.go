package reflectors

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/gobgp"
	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	calicoetcd "vpp-route-agent/internal/calico/etcd"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/testlog"
	"vpp-route-agent/vpp"
	"vpp-route-agent/vpp/vpptest"
)

// agents are real agents in one process, with real sessions, a FIB in memory each, and an etcd.
type agents struct {
	t       *testing.T
	etcd    *calicotest.Etcd
	dir     string // of etcd's data
	nodes   []string
	port    int
	engines []*fib.Engine                 // by node
	ends    map[string]context.CancelFunc // of each agent

	mu     sync.Mutex // guards what follows
	routes map[string]map[netip.Prefix][]netip.Addr
	lost   []string // routes that were gone or changed since this was last emptied
}

// sink notes what a node learns, on the way to its FIB.
type sink struct {
	*agents
	node string
	fib  *fib.Engine
}

func (s sink) Learned(prefix netip.Prefix, paths []bgp.Path) {
	agent.Learner{FIB: s.fib}.Learned(prefix, paths)
	s.mu.Lock()
	defer s.mu.Unlock()
	var hops []netip.Addr
	for _, p := range paths {
		hops = append(hops, p.NextHop)
	}
	hops = slices.Compact(hops) // they are sorted
	if was := s.routes[s.node][prefix]; was != nil && !slices.Equal(was, hops) {
		s.lost = append(s.lost, fmt.Sprintf("%s: %s by %v, was by %v", s.node, prefix, hops, was))
	}
	s.routes[s.node][prefix] = hops
	if hops == nil {
		delete(s.routes[s.node], prefix)
	}
}

// datastore is Calico's data as an agent takes them.
type datastore struct{ *calicoetcd.Source }

func (s datastore) Status() agent.DatastoreStatus { return agent.DatastoreStatus{Synced: true} }

// starting is held while agents start, one after the other: the first GoBGP of a process writes
// variables that all read. Later ones find them as they want them.
var starting sync.Mutex

// lastPort counts, so that agents of several tests do not meet.
var lastPort atomic.Int64

// freePort is below those that the kernel takes for dials, of which agents make many: one of them
// may take the port before an agent listens on it.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 20000 + (100*os.Getpid()+int(lastPort.Add(1)))%10000
		if l, err := net.Listen("tcp4", fmt.Sprintf("127.0.7.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// newAgents runs an agent on each node.
func newAgents(t *testing.T, nodes ...string) *agents {
	t.Attr("part", "GoBGP 3.37.0 peers on loopback")
	t.Attr("part", "etcd 3.6.16, embedded server")
	dir := t.TempDir()
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{Dir: dir})
	must(t, err)
	a := &agents{t: t, etcd: e, dir: dir, nodes: nodes, port: freePort(t),
		routes: map[string]map[netip.Prefix][]netip.Addr{},
		ends:   map[string]context.CancelFunc{}}
	t.Cleanup(func() { a.etcd.Close() })
	a.mesh(false)
	for i, node := range nodes {
		a.routes[node] = map[netip.Prefix][]netip.Addr{}
		must(t, e.Cluster().AddNode(t.Context(), node,
			netip.MustParsePrefix(fmt.Sprintf("127.0.7.%d/24", i+1))))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	starting.Lock()
	defer starting.Unlock()
	for _, node := range nodes {
		ctx, stop := context.WithCancel(ctx)
		a.ends[node] = stop
		a.run(ctx, &running, node)
		await(t, "a status of "+node, func() bool {
			return a.said(reflector.StatusKey(node)).Status != nil
		})
	}
	a.apply(`
kind: IPPool
apiVersion: projectcalico.org/v3
metadata: {name: pods}
spec: {cidr: 10.1.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never}
`)
	a.applied("no sessions", 0)
	return a
}

func (a *agents) run(ctx context.Context, running *sync.WaitGroup, node string) {
	log := slog.New(slog.NewTextHandler(testlog.Writer(a.t), &slog.HandlerOptions{
		Level: slog.LevelWarn})).With("node", node)
	cfg := etcd.Config{Endpoints: []string{a.etcd.Endpoint()}}
	source, err := calicoetcd.New(cfg, node, calico.Needs{}, log)
	must(a.t, err)
	server, err := vpptest.New()
	must(a.t, err)
	a.t.Cleanup(server.Close)
	server.AddInterface("eth0", netip.PrefixFrom(a.nextHop(node), 24))
	dataplane := vpp.New(vpp.Config{Socket: server.Socket(), Log: log})
	engine := fib.New(fib.Config{
		Dataplane: dataplane, Journal: filepath.Join(a.t.TempDir(), "fib.journal"), Log: log,
		Tuning: fib.Tuning{RepairDrift: true},
	})
	a.engines = append(a.engines, engine)
	speaker, err := gobgp.New(gobgp.Config{Log: log, Sink: sink{a, node, engine}})
	must(a.t, err)
	var it *agent.Agent
	publisher, err := NewPublisher(PublisherConfig{Etcd: cfg, Node: node, Log: log,
		Answer: func(ctx context.Context, q reflector.Question) (reflector.Answer, error) {
			return it.Answer(ctx, q)
		}})
	must(a.t, err)
	it = agent.New(agent.Config{
		Node: node, Version: "v1", Dataplane: "vpp", Datastore: datastore{source}, Speaker: speaker,
		FIB: engine, Resolver: engine, Forwarded: dataplane.Forwarded, Resolve: dataplane.Resolve,
		Settings: agent.Settings{
			Deferral: time.Second, BGP: bgp.Options{NextHop4: a.nextHop(node)},
		},
		Report: publisher.Report, Log: log,
	})
	ended, stop := context.WithCancel(context.Background())
	running.Go(func() { speaker.Run(ended) })
	var others sync.WaitGroup
	for _, run := range []func(context.Context) error{dataplane.Run, engine.Run, source.Run, it.Run,
		publisher.Run} {
		others.Go(func() { run(ctx) })
	}
	running.Go(func() {
		others.Wait()
		end, cancel := context.WithTimeout(ended, 20*time.Second)
		defer cancel()
		speaker.Stop(end)
		stop()
	})
}

// nextHop is the address that a node announces: no FIB forwards to a loopback address.
func (a *agents) nextHop(node string) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, 7, byte(slices.Index(a.nodes, node) + 1)})
}

func (a *agents) apply(yaml string) {
	a.t.Helper()
	_, err := a.etcd.Cluster().Apply(a.t.Context(), []byte(yaml))
	must(a.t, err)
}

func (a *agents) mesh(on bool) {
	a.t.Helper()
	a.apply(fmt.Sprintf(`
kind: BGPConfiguration
apiVersion: projectcalico.org/v3
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: %t, listenPort: %d, bindMode: NodeIP}
`, on, a.port))
}

// role makes a node a reflector, or takes that from it.
func (a *agents) role(node, spec, labels string) {
	a.t.Helper()
	a.apply(fmt.Sprintf(`
kind: Node
apiVersion: projectcalico.org/v3
metadata: {name: %s, labels: {%s}}
spec: {bgp: {ipv4Address: 127.0.7.%d/24%s}}
`, node, labels, slices.Index(a.nodes, node)+1, spec))
}

// applied waits until each agent says that it has applied what is in etcd, by the digest that a
// controller computes, and that so many sessions are up, all that are wanted.
func (a *agents) applied(what string, up ...int) {
	a.t.Helper()
	for i, node := range a.nodes {
		want := up[min(i, len(up)-1)]
		await(a.t, what+" at "+node, func() bool {
			s := a.said(reflector.StatusKey(node)).Status
			snapshot, err := a.etcd.Cluster().Snapshot(a.t.Context(), node)
			must(a.t, err)
			return s != nil && s.Digest == reflector.Digest(node, snapshot) && s.Wanted == want &&
				s.Up == want && !slices.ContainsFunc(s.Reflectors, func(r reflector.Session) bool {
				return !r.Up || !r.EndOfRIB
			})
		})
	}
}

func (a *agents) said(key string) reflector.Said {
	a.t.Helper()
	resp, err := a.etcd.Client().Get(a.t.Context(), key)
	must(a.t, err)
	if len(resp.Kvs) == 0 {
		return reflector.Said{}
	}
	said, problem := reflector.Hear(key, resp.Kvs[0].Value, "v1")
	if problem != nil {
		a.t.Fatalf("%+v", problem)
	}
	return said
}

// answers asks all agents until each answer is as wanted.
func (a *agents) answers(q reflector.Question, want map[string]reflector.Change) {
	a.t.Helper()
	var got map[string]reflector.Change
	await(a.t, fmt.Sprintf("%v of %v", want, q), func() bool {
		put, err := a.etcd.Client().Put(a.t.Context(), reflector.QuestionKey("q"),
			string(q.Encode()))
		must(a.t, err)
		got = map[string]reflector.Change{}
		for _, node := range a.nodes {
			await(a.t, "an answer of "+node, func() bool {
				s := a.said(reflector.AnswerKey(node, "q"))
				if s.Answer == nil || s.Answer.Revision < put.Header.Revision {
					return false
				}
				s.Answer.IPv4.Examples = nil
				got[node] = s.Answer.IPv4
				return true
			})
		}
		return maps.EqualFunc(got, want, func(a, b reflector.Change) bool {
			return fmt.Sprint(a) == fmt.Sprint(b)
		})
	})
	must(a.t, a.etcd.Cluster().DeleteRaw(a.t.Context(), reflector.QuestionKey("q")))
}

// counts are how many routes each node has, and what was lost since they were last asked for.
func (a *agents) counts() (all []int, lost []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, node := range a.nodes {
		all = append(all, len(a.routes[node]))
	}
	lost, a.lost = a.lost, nil
	return all, lost
}

func (a *agents) knows(what string, want ...int) {
	a.t.Helper()
	await(a.t, what, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		for i, node := range a.nodes {
			if len(a.routes[node]) != want[i] {
				return false
			}
		}
		return true
	})
}

// From the mesh to a reflector and without it again: what the agents say about each step before it
// is taken is what happens then.
func TestAnswersOfAgentsAreWhatThenHappens(t *testing.T) {
	t.Parallel()
	a := newAgents(t, "edge-1", "edge-2", "rr-1")
	for i, node := range a.nodes {
		must(t, a.etcd.Cluster().ClaimBlock(t.Context(), node,
			netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/26", i))))
	}
	a.mesh(true)
	a.applied("the mesh", 2)
	a.knows("all routes", 2, 2, 2)
	same := func(missing, prefixes, copies int) reflector.Change {
		return reflector.Change{Missing: missing, Prefixes: prefixes, FewestCopies: copies}
	}
	all := func(c reflector.Change) map[string]reflector.Change {
		return map[string]reflector.Change{"edge-1": c, "edge-2": c, "rr-1": c}
	}
	a.answers(reflector.Question{Mesh: true}, all(same(2, 0, 0)))

	a.apply(`
kind: BGPPeer
apiVersion: projectcalico.org/v3
metadata: {name: reflectors}
spec: {peerSelector: has(reflector)}
`)
	a.applied("a BGPPeer without a session", 2)
	a.role("rr-1", ", routeReflectorClusterID: 10.0.0.1", "reflector: 'true'")
	a.applied("the reflector", 2)
	a.answers(reflector.Question{Cover: "rr-1"}, all(same(0, 2, 1)))
	a.answers(reflector.Question{Mesh: true}, all(same(0, 2, 1)))
	if _, lost := a.counts(); len(lost) > 0 {
		t.Errorf("lost on the way to a reflector: %v", lost)
	}
	a.mesh(false)
	a.applied("no mesh any more", 1, 1, 2)
	if counts, lost := a.counts(); len(lost) > 0 || !slices.Equal(counts, []int{2, 2, 2}) {
		t.Errorf("without the mesh there are %v routes, lost %v", counts, lost)
	}

	a.answers(reflector.Question{Leave: "rr-1", Label: "reflector"}, all(same(2, 0, 0)))
	a.role("rr-1", "", "")
	a.applied("no reflector any more", 0)
	a.knows("no routes", 0, 0, 0)
}
