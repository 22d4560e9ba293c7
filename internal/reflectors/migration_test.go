package reflectors

import (
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/fib"
)

// inMesh are agents in a mesh, each of which announces a block.
func inMesh(t *testing.T, nodes ...string) *agents {
	a := newAgents(t, nodes...)
	for i, node := range nodes {
		must(t, a.etcd.Cluster().ClaimBlock(t.Context(), node, block(i)))
	}
	a.mesh(true)
	others := len(nodes) - 1
	a.applied("the mesh", others)
	a.knows("all routes", slices.Repeat([]int{others}, len(nodes))...)
	a.inFIB()
	a.counts()
	return a
}

func block(node int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/26", node))
}

// inFIB waits until each FIB has a route to each other node, and the drop route of its own block.
func (a *agents) inFIB() {
	a.t.Helper()
	for i, e := range a.engines {
		await(a.t, "the FIB of "+a.nodes[i], func() bool {
			return programmed(e) == len(a.nodes)
		})
	}
}

// programmed is how many routes a FIB has, -1 if it does not have all that it is to have.
func programmed(e *fib.Engine) (n int) {
	for _, c := range e.Stats().Routes {
		if c.Programmed != c.Desired {
			return -1
		}
		n += c.Programmed
	}
	return n
}

// ops are what the FIBs were told to put and to delete.
func (a *agents) ops() (all []string) {
	for i, e := range a.engines {
		s := e.Stats()
		all = append(all, fmt.Sprintf("%s: put %d, deleted %d", a.nodes[i], s.Put, s.Deleted))
	}
	return all
}

// gone are the routes to the nodes' blocks that were lost or changed for a moment.
func (a *agents) gone() []string {
	_, lost := a.counts()
	return slices.DeleteFunc(lost, func(what string) bool {
		return !slices.ContainsFunc(a.nodes, func(n string) bool {
			return strings.Contains(what, block(slices.Index(a.nodes, n)).String())
		})
	})
}

func (a *agents) aim(change func(*reflector.Goal)) {
	a.t.Helper()
	aim(a.t, a.etcd.Client(), change)
}

var manyAgents = flag.Int("agents", 5, "how many agents TestNoRouteIsTouched has; with more than "+
	"10 no controller is killed. `make chaos` has 30 with the race detector, for 3 minutes, and "+
	"100 without it")

// From the mesh to reflectors and back while controllers are killed around each step: no route is
// lost, and no FIB is written.
func TestNoRouteIsTouched(t *testing.T) {
	t.Parallel()
	n := *manyAgents
	var nodes []string
	for i := range n {
		nodes = append(nodes, fmt.Sprintf("n%02d", i+1))
	}
	reflectors := 3
	if n >= 100 {
		reflectors += n / 100
	}
	up := append(slices.Repeat([]int{n - 1}, reflectors), reflectors) // sessions
	a := inMesh(t, nodes...)
	before := a.ops()
	for _, there := range []struct {
		mode reflector.Mode
		up   []int
	}{{reflector.Reflectors, up}, {reflector.Mesh, []int{n - 1}}} {
		a.aim(to(there.mode))
		kills := 12
		if n <= 10 {
			kills = killing(func(name string, change ...func(*Controller)) (*Controller, func()) {
				return startController(t, a.etcd, name, change...)
			}, string(there.mode))
		} else {
			_, stop := startController(t, a.etcd, "a")
			reaches(t, a.etcd.Client(), string(there.mode))
			stop()
		}
		a.applied(string(there.mode), there.up...)
		a.inFIB()
		if lost := a.gone(); kills < 12 || len(lost) > 0 {
			t.Errorf("%s, after %d kills: lost %v", there.mode, kills, lost)
		}
		if after := a.ops(); !slices.Equal(after, before) {
			t.Errorf("%s: FIBs have %v, had %v", there.mode, after, before)
		}
	}
}

// The same with two controllers, one of which ends halfway, an etcd that restarts, and blocks that
// come and go.
func TestNoRouteIsLostUnderChurn(t *testing.T) {
	t.Parallel()
	a := inMesh(t, "n1", "n2", "n3", "n4", "n5")
	var churning sync.WaitGroup
	stop := make(chan struct{})
	churn := func() {
		cluster := a.etcd.Cluster()
		churning.Go(func() {
			for i := 0; ; i++ {
				more := netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/26", 100+i%7))
				if i%2 == 0 {
					_ = cluster.ClaimBlock(t.Context(), a.nodes[i%len(a.nodes)], more)
				} else if i > 9 {
					_, _ = cluster.ReleaseBlock(t.Context(),
						netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/26", 100+(i-9)%7)))
				}
				select {
				case <-stop:
					return
				case <-time.After(700 * time.Millisecond):
				}
			}
		})
	}
	churn()
	first, stopFirst := startController(t, a.etcd, "first")
	await(t, "the first to lead", func() bool { return first.Status().Leads })
	second, _ := startController(t, a.etcd, "second")
	a.aim(to(reflector.Reflectors))
	await(t, "some steps", func() bool { return first.Status().Steps >= 2 })
	stopFirst()
	await(t, "the mesh off", func() bool { return second.Status().Steps >= 3 })
	close(stop)
	churning.Wait()
	address := strings.TrimPrefix(a.etcd.Endpoint(), "http://")
	a.etcd.Close()
	await(t, "the second to notice", func() bool { return !second.Status().Connected })
	time.Sleep(time.Second)
	restarted, err := calicotest.StartEtcd(calicotest.EtcdOptions{Dir: a.dir, Listen: address})
	must(t, err)
	a.etcd = restarted
	stop = make(chan struct{})
	churn()
	reaches(t, a.etcd.Client(), "reflectors n1, n2, n3")
	a.aim(to(reflector.Mesh))
	reaches(t, a.etcd.Client(), "mesh")
	close(stop)
	churning.Wait()
	a.applied("the mesh", 4)
	if lost := a.gone(); len(lost) > 0 {
		t.Errorf("lost %v", lost)
	}
	a.right()
}

// The same with the topology quorum, in which clients peer with three of four reflectors: to it,
// a reflector that is replaced, back to the mesh.
func TestQuorumTouchesNoRoute(t *testing.T) {
	t.Parallel()
	a := inMesh(t, "n1", "n2", "n3", "n4", "n5", "n6")
	before := a.ops()
	_, stop := startController(t, a.etcd, "a")
	defer stop()
	quorum := reflector.Config{Topology: reflector.Quorum, Min: 4, Max: 4, GraceSeconds: 1}
	a.aim(func(g *reflector.Goal) { g.Mode, g.Config = reflector.Reflectors, quorum })
	reaches(t, a.etcd.Client(), "reflectors n1, n2, n3, n4")
	a.applied("four reflectors", 5, 5, 4, 4, 3, 3)
	up := []int{5, 3, 4, 4, 5, 3} // n5 takes the place of n2
	a.cordon("n2")
	reaches(t, a.etcd.Client(), "reflectors n1, n3, n4, n5")
	a.applied("n5 instead of n2", up...)
	a.inFIB()
	if lost := a.gone(); len(lost) > 0 {
		t.Errorf("lost %v", lost)
	}
	a.aim(to(reflector.Mesh))
	reaches(t, a.etcd.Client(), "mesh")
	a.applied("the mesh", 5)
	a.inFIB()
	if lost := a.gone(); len(lost) > 0 {
		t.Errorf("on the way back: lost %v", lost)
	}
	if after := a.ops(); !slices.Equal(after, before) {
		t.Errorf("FIBs have %v, had %v", after, before)
	}
}

// With the topology multi a reflector dies. The clients, which peer with three of four, lose no
// route but those to its node; another takes its place.
func TestMultiReplacesADeadReflector(t *testing.T) {
	t.Parallel()
	a := inMesh(t, "n1", "n2", "n3", "n4", "n5", "n6", "n7")
	for i, node := range a.nodes {
		zone := []string{"east", "west"}[i%2]
		a.role(node, "", "topology.kubernetes.io/zone: "+zone)
	}
	_, stop := startController(t, a.etcd, "a")
	defer stop()
	multi := reflector.Config{Topology: reflector.Multi, Min: 4, Max: 4, GraceSeconds: 1}
	a.aim(func(g *reflector.Goal) { g.Mode, g.Config = reflector.Reflectors, multi })
	reaches(t, a.etcd.Client(), "reflectors n1, n2, n3, n4")
	for i, node := range a.nodes[4:] {
		if s := a.said(reflector.StatusKey(node)).Status; s == nil || s.Wanted != 3 {
			t.Errorf("%s has the sessions %+v", a.nodes[4+i], s)
		}
	}
	if lost := a.gone(); len(lost) > 0 {
		t.Errorf("lost %v", lost)
	}
	a.ends["n2"]()
	reaches(t, a.etcd.Client(), "reflectors n1, n3, n4, n6")
	a.aim(to(reflector.Mesh))
	reaches(t, a.etcd.Client(), "mesh")
	for _, what := range a.gone() {
		if !strings.HasPrefix(what, "n2:") && !strings.Contains(what, block(1).String()) {
			t.Errorf("lost %s", what)
		}
	}
}

// cordon does as the command of that name.
func (a *agents) cordon(node string) {
	a.t.Helper()
	desk, err := NewDesk(etcd.Config{Endpoints: []string{a.etcd.Endpoint()}}, "v1")
	must(a.t, err)
	must(a.t, desk.Change(a.t.Context(), func(v View) (Changes, error) {
		o, _ := v.World.Node(node)
		var err error
		o.Value, err = reflector.SetCordon(o.Value, "a test")
		return Changes{Node: &o}, err
	}))
}

// right waits until each node has the route to each block by its owner.
func (a *agents) right() {
	a.t.Helper()
	s, err := a.etcd.Cluster().Snapshot(a.t.Context(), a.nodes[0])
	must(a.t, err)
	for i, node := range a.nodes {
		want := map[netip.Prefix][]netip.Addr{}
		for cidr, b := range s.Blocks {
			if b.Owner.Host != node {
				want[cidr] = []netip.Addr{a.nextHop(b.Owner.Host)}
			}
		}
		await(a.t, "the routes of "+node, func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return maps.EqualFunc(a.routes[node], want, slices.Equal)
		})
		await(a.t, "the FIB of "+node, func() bool {
			return programmed(a.engines[i]) >= len(want)
		})
	}
}
