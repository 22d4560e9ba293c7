package interop

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// mixedLab is a mesh of agents and nodes with BIRD, whose confd and calico-node are stand-ins, and
// a reflector controller. Each node but rr has a workload.
type mixedLab struct {
	*lab
	controller *netlab.Namespace
	agents     map[string]*agentNode
	birds      map[string]*testcluster.Bird
	pods       map[string]*netlab.Namespace // by node
}

// mixedNodes are the nodes of a mixedLab and their zones. c and d have BIRD.
var mixedNodes = []struct{ name, zone string }{
	{"rr", "east"}, {"a", "east"}, {"b", "east"}, {"c", "west"}, {"d", "east"},
}

var twoBirds = flag.Bool("two-birds", false, "TestMigrationBesideBIRD lets both nodes with BIRD "+
	"reflect, too, and shows what that loses. It takes 2 minutes more")

func newMixedLab(t *testing.T, name string) *mixedLab {
	t.Helper()
	l := &mixedLab{
		lab: newLab(t, name), agents: map[string]*agentNode{},
		birds: map[string]*testcluster.Bird{}, pods: map[string]*netlab.Namespace{},
	}
	for i, n := range mixedNodes {
		address := fmt.Sprintf("10.0.0.%d/24", i+2)
		var h *host
		if n.name == "c" || n.name == "d" {
			b := l.birdNode(t, n.name, address)
			h, l.birds[n.name] = b.host, l.NewBird(n.name, b.NS, b.config)
		} else {
			a := l.agentNode(t, n.name, address)
			h, l.agents[n.name] = a.host, a
			a.agent.Flags = append(a.agent.Flags, "--publish-status")
		}
		l.apply(t, fmt.Sprintf(`
---
kind: Node
apiVersion: projectcalico.org/v3
metadata: {name: %s, labels: {zone: %s, name: %s}}
spec: {bgp: {ipv4Address: %s}}
`, n.name, n.zone, n.name, address))
		if n.name == "rr" {
			l.agents["rr"].agent.Dataplane = []string{"--dataplane", "none"}
			continue
		}
		check(t, l.Data.ClaimBlock(t.Context(), n.name, pfx(fmt.Sprintf("10.1.%d.0/26", i))))
		l.pods[n.name] = h.workload(t, "pod"+n.name, pod(i))
		l.attach(t, n.name, "pod"+n.name, pod(i))
	}
	for _, a := range l.agents {
		a.start(t)
	}
	l.followCalico(t)
	l.startController(t)
	return l
}

func pod(node int) string { return fmt.Sprintf("10.1.%d.1", node) }

// followCalico runs BIRD, and the stand-ins for confd and calico-node beside it.
func (l *mixedLab) followCalico(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	run := func(what string, do func(context.Context) error) {
		running.Go(func() {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	for name, b := range l.birds {
		check(t, b.Start(t.Context()))
		run("confd of "+name, func(ctx context.Context) error {
			return b.Follow(ctx, 100*time.Millisecond)
		})
		n := calicotest.CalicoNode{Node: name, Client: l.Data.Client(), Tables: b.Tables}
		run("calico-node of "+name, n.Run)
	}
}

func (l *mixedLab) startController(t *testing.T) {
	t.Helper()
	var err error
	l.controller, err = l.Machine("ctl", pfx("10.0.0.251/24"))
	check(t, err)
	_, err = l.Start(netlab.Spec{Name: "controller", Namespace: l.controller, Path: programs.Agent,
		Args: []string{"reflector-controller", "--node-name", "ctl", "--metrics-listen", "off",
			"--etcd-endpoints", strings.Join(l.Endpoints, ",")}})
	check(t, err)
}

// reflectors runs a command that steers the controller.
func (l *mixedLab) reflectors(ctx context.Context, args ...string) ([]byte, error) {
	return l.controller.Run(ctx, programs.Agent, append(append([]string{"reflectors"}, args...),
		"--etcd-endpoints", strings.Join(l.Endpoints, ","))...)
}

func (l *mixedLab) rules(t *testing.T, yaml string) {
	t.Helper()
	file := filepath.Join(l.Dir(), "rules.yaml")
	check(t, os.WriteFile(file, []byte(yaml), 0o600))
	_, err := l.reflectors(t.Context(), "set", "-f", file)
	check(t, err)
}

// told is what `reflectors status` says.
type told struct {
	Reached     bool
	Controllers []struct{ Done, Waits, Last string }
	Reflectors  []struct{ Node string }
}

func (l *mixedLab) told(ctx context.Context) (s told, err error) {
	out, err := l.reflectors(ctx, "status", "-o", "json")
	if len(out) == 0 {
		return s, err
	}
	if err := json.Unmarshal(out, &s); err != nil || len(s.Controllers) == 0 {
		return s, fmt.Errorf("no controller: %v, %s", err, out)
	}
	return s, nil // exit status 1: the goal is not reached
}

// waits waits until the controller says that it waits for something.
func (l *mixedLab) waits(t *testing.T, what string) {
	t.Helper()
	await(t, "the controller waits: "+what, func(ctx context.Context) error {
		s, err := l.told(ctx)
		if err == nil && !strings.HasPrefix(s.Controllers[0].Waits, what) {
			err = fmt.Errorf("it says %+v", s.Controllers[0])
		}
		return err
	})
}

// reached waits until the goal is, with these reflectors.
func (l *mixedLab) reached(t *testing.T, mode string, want ...string) {
	t.Helper()
	start, last := time.Now(), ""
	// On a busy machine two BIRDs reset each other's connection, once in two minutes.
	holds := func(ctx context.Context) error {
		s, err := l.told(ctx)
		if err != nil {
			return err
		}
		if c := s.Controllers[0]; c.Last+c.Waits != last {
			last = c.Last + c.Waits
			t.Logf("%5.1f s: %s; waits: %s", time.Since(start).Seconds(), c.Last, c.Waits)
		}
		var got []string
		for _, r := range s.Reflectors {
			got = append(got, r.Node)
		}
		if !s.Reached || !slices.Equal(got, want) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}
	// it takes tens of seconds, and each question starts a process beside what is measured
	check(t, netlab.AwaitEvery(t.Context(), 10*time.Minute, 500*time.Millisecond, mode, holds))
}

// inMesh waits until every workload reaches every other.
func (l *mixedLab) inMesh(t *testing.T) {
	t.Helper()
	for _, a := range l.agents {
		var others []string
		for i, n := range mixedNodes {
			if n.name != a.name {
				others = append(others, fmt.Sprintf("10.0.0.%d", i+2))
			}
		}
		a.awaitPeers(t, others...)
	}
	for _, p := range l.pairs() {
		ping(t, l.pods[p.from], p.to)
	}
}

// pair is a flow from the workload of a node to that of another.
type pair struct{ name, from, to string }

func (l *mixedLab) pairs() (all []pair) {
	for i, n := range mixedNodes {
		for _, from := range mixedNodes[1:] {
			if from.name < n.name && n.name != "rr" {
				all = append(all, pair{from.name + "-" + n.name, from.name, pod(i)})
			}
		}
	}
	return all
}

// losing runs a flow between each two nodes while do does something, and shows what each has lost.
// Between agents that must be nothing; beside BIRD, no more than its kernel loses when it changes a
// route, but between some.
func (l *mixedLab) losing(t *testing.T, do func(), but ...string) {
	t.Helper()
	control := flow(t, l.agents["a"].NS, "10.0.0.4")
	flows := map[string]*netlab.Flow{}
	for _, p := range l.pairs() {
		flows[p.name] = flow(t, l.pods[p.from], p.to)
	}
	do()
	c := control.Stop()
	t.Logf("control: %s", c)
	for _, name := range slices.Sorted(maps.Keys(flows)) {
		r := flows[name].Stop()
		t.Logf("%s: %s", name, r)
		if name == "a-b" && r.Lost > c.Lost {
			t.Errorf("between agents %d packets are lost", r.Lost)
		}
		for _, o := range r.Outages {
			lasted := o.Last.Sub(o.First).Round(time.Millisecond)
			t.Logf("    %d lost in %s", o.Lost, lasted)
			if lasted > kernelGap && !slices.Contains(but, name) {
				t.Errorf("%s loses packets for %s", name, lasted)
			}
		}
	}
}

// kernelGap is well below what a session takes to come back, 2 s, and above what BIRD leaves its
// kernel without a route for.
const kernelGap = 300 * time.Millisecond

// From the mesh to reflectors and back beside nodes with BIRD, which the controller asks through
// calico-node. Then BIRD reflects, too.
func TestMigrationBesideBIRD(t *testing.T) {
	t.Parallel()
	l := newMixedLab(t, "mixed")
	l.inMesh(t)
	const rules = "graceSeconds: 1\nzoneLabel: zone\n"
	thereAndBack := func(t *testing.T, reflectors []string, but ...string) {
		t.Helper()
		l.losing(t, func() {
			l.migrate(t, "reflectors")
			l.reached(t, "reflectors", reflectors...)
			l.migrate(t, "mesh")
			l.reached(t, "mesh")
		}, but...)
		l.inMesh(t)
	}
	t.Run("a session of BIRD that is down is waited for", func(t *testing.T) {
		l.rules(t, rules)
		_, err := l.birds["c"].Command(t.Context(), "disable "+mesh("10.0.0.6"))
		check(t, err)
		l.migrate(t, "reflectors")
		l.waits(t, "the session between c and d is down")
		_, err = l.birds["c"].Command(t.Context(), "enable "+mesh("10.0.0.6"))
		check(t, err)
		l.migrate(t, "mesh")
		l.reached(t, "mesh")
		l.inMesh(t)
	})
	t.Run("agents reflect", func(t *testing.T) {
		thereAndBack(t, []string{"rr", "a", "b"})
	})
	t.Run("BIRD reflects", func(t *testing.T) {
		l.rules(t, rules+"bird: true\n")
		thereAndBack(t, []string{"rr", "a", "c"})
	})
	t.Run("two BIRDs reflect", func(t *testing.T) {
		l.rules(t, rules+"bird: true\nmin: 4\navoid: name == 'b'\n")
		_, err := l.reflectors(t.Context(), "migrate", "--to", "reflectors")
		const loss = "Node(d) has workloads: their flows with the reflectors c, which run BIRD, are"
		if err == nil || !strings.Contains(err.Error(), loss) {
			t.Errorf("it is not refused: %v", err)
		}
		if *twoBirds {
			thereAndBack(t, []string{"rr", "a", "c", "d"}, "c-d")
		}
	})
}

// migrate gives the controller a goal. It may lose something where a test looks at what it loses.
func (l *mixedLab) migrate(t *testing.T, to string) {
	t.Helper()
	args := []string{"migrate", "--to", to}
	if *twoBirds {
		args = append(args, "--accept-loss")
	}
	_, err := l.reflectors(t.Context(), args...)
	check(t, err)
}
