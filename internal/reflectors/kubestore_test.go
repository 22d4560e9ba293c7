package reflectors

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/testlog"
)

// apart are two nodes without a session and without a reflector that both have one with, if there
// are such: no route goes from one to the other.
func apart(s *calico.Snapshot) string {
	with := map[string]map[string]bool{}
	for node := range s.Nodes {
		with[node] = map[string]bool{}
		peers, _ := bgp.Peers(node, s)
		for _, p := range peers {
			with[node][p.CalicoNode] = true
		}
	}
	for a := range with {
		for b := range with {
			common := func(r string) bool {
				return with[b][r] && s.Nodes[r].RouteReflectorClusterID != ""
			}
			if a != b && !with[a][b] &&
				!slices.ContainsFunc(slices.Collect(maps.Keys(with[a])), common) {
				return fmt.Sprintf("%s and %s", a, b)
			}
		}
	}
	return ""
}

// Controllers are killed at every few of their writes, also in the middle of a step that writes
// several objects: the next one does the rest. In between, every node has its routes to every
// other. The end is as if nobody had been killed.
func TestKilledInTheMiddleOfSteps(t *testing.T) {
	t.Parallel()
	killedInTheMiddleOfSteps(t, newKubeCluster)
}

func killedInTheMiddleOfSteps(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2", "n3", "n4", "n5", "n6", "n7")
	every := int64(3)
	if c.kube.real != nil { // where each one takes longer
		every = 10
	}
	before := c.resources()
	killed := make(chan struct{}, 1)
	var kills, killsInSteps atomic.Int64
	var attempts int64
	var mu sync.Mutex
	kill := func(verb, kind, name string) int {
		if kind == leaseKind || name == questionName {
			return 0
		}
		if who := apart(c.kube.snapshot("n1")); who != "" {
			t.Errorf("before %s %s %s: apart are %s", verb, kind, name, who)
		}
		mu.Lock()
		defer mu.Unlock()
		if attempts++; attempts%every != 0 {
			return 0
		}
		kills.Add(1)
		if kind != "configmaps" {
			killsInSteps.Add(1)
		}
		select {
		case killed <- struct{}{}:
		default:
		}
		return http.StatusInternalServerError
	}
	until := func(mode string) {
		c.kube.OnWrite(kill)
		defer c.kube.OnWrite(nil)
		for done := false; !done; {
			it, stop := c.start("a")
			for !done && len(killed) == 0 {
				time.Sleep(10 * time.Millisecond)
				s := it.Status()
				done = s.Leads && strings.HasPrefix(s.State.Done, mode)
			}
			stop()
			select {
			case <-killed:
			default:
			}
		}
	}
	c.aim(func(g *reflector.Goal) {
		g.Mode, g.Config.Topology, g.Config.Min = reflector.Reflectors, reflector.Quorum, 4
	})
	until("reflectors n1, n2, n3, n4")
	s := c.kube.snapshot("n1")
	for _, client := range []string{"n5", "n6", "n7"} {
		if peers, _ := bgp.Peers(client, s); len(peers) != 3 {
			t.Errorf("%s has %d sessions, want 3 of 4", client, len(peers))
		}
	}
	c.aim(to(reflector.Mesh))
	until("mesh")
	after := c.resources()
	delete(before, "BGPConfiguration(default)")
	delete(after, "BGPConfiguration(default)")
	if !maps.Equal(after, before) {
		t.Errorf("there and back resources are\n%v\nand were\n%v", after, before)
	}
	if k, in := kills.Load(), killsInSteps.Load(); k < 45/every || in < 18/every {
		t.Errorf("%d kills, %d in the middle of a step", k, in)
	}
}

// A write that a controller has sent before it was killed comes late, after another has done the
// step and has gone back. It changes nothing any more.
func TestAWriteComesLate(t *testing.T) {
	t.Parallel()
	aWriteComesLate(t, newKubeCluster)
}

func aWriteComesLate(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2", "n3", "n4")
	_, stop := c.start("a")
	sent, goes := make(chan struct{}), make(chan struct{})
	var late atomic.Bool
	c.kube.OnWrite(func(verb, kind, name string) int {
		if kind == "nodes" && name == "n2" && late.CompareAndSwap(false, true) {
			close(sent)
			<-goes
		}
		return 0
	})
	c.aim(to(reflector.Reflectors))
	<-sent
	stop()
	c.start("b")
	c.reaches("reflectors n1, n2, n3")
	c.aim(to(reflector.Mesh))
	c.reaches("mesh")
	close(goes)
	time.Sleep(time.Second) // long enough for it
	if got := c.writes(0); len(c.inRole()) > 0 || !slices.Equal(got, thereAndBack) {
		t.Errorf("reflectors are %v, writes %v", c.inRole(), got)
	}
}

// Who stands still in the middle of a step writes nothing once another has done the step and has
// gone back, so that the object is as it was when the step began. It stands still with what it has
// read, or just before it reads that.
func TestStandingStillInTheMiddleOfAStep(t *testing.T) {
	t.Parallel()
	standingStillInTheMiddleOfAStep(t, newKubeCluster)
}

func standingStillInTheMiddleOfAStep(t *testing.T, start startCluster) {
	for where, stall := range map[string]func(c *cluster, stand func()){
		"before it writes": func(c *cluster, stand func()) {
			c.kube.OnWrite(func(_, kind, _ string) int {
				if kind == "nodes" {
					stand()
				}
				return 0
			})
		},
		"before it reads": func(c *cluster, stand func()) {
			c.kube.OnGet(func(kind, _ string) {
				if kind == "nodes" {
					stand()
				}
			})
		},
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			standStill(t, start, stall)
		})
	}
}

func standStill(t *testing.T, start startCluster,
	stall func(c *cluster, stand func())) {
	c := start(t, "n1", "n2")
	cordoned := func(r *reading, reason string) []reflector.Write {
		i := slices.IndexFunc(r.objects, func(o reflector.Object) bool {
			return o.Key.Name == "n1"
		})
		value, err := reflector.SetCordon(r.objects[i].Value, reason)
		must(t, err)
		return []reflector.Write{{Key: r.objects[i].Key, Value: value}}
	}
	a := newKubeStore(*c.kube.config(), testlog.New(t))
	r, err := a.look(t.Context(), "v1")
	must(t, err)
	step, same, err := a.newStep(t.Context(), r, cordoned(r, "x"))
	must(t, err)
	done, _, err := a.commit(t.Context(), r, &r.goal, nil, step)
	if err != nil || !done || !same {
		t.Fatalf("%v, %t, %t", err, done, same)
	}
	stands, goes, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	var late atomic.Bool
	stall(c, func() {
		if late.CompareAndSwap(false, true) {
			close(stands)
			<-goes
		}
	})
	go func() {
		_, err := a.finish(t.Context(), step)
		ended <- err
	}()
	<-stands
	b := newKubeStore(*c.kube.config(), testlog.New(t))
	for _, reason := range []string{"x", ""} { // the step, and back
		now, err := b.look(t.Context(), "v1")
		must(t, err)
		if now.pending != nil {
			_, err = b.finish(t.Context(), now.pending)
		} else {
			_, _, err = b.take(t.Context(), now, &now.goal, cordoned(now, reason))
		}
		must(t, err)
	}
	close(goes)
	must(t, <-ended)
	if got := c.writes(0); len(got) != 2 {
		t.Errorf("writes are %v", got)
	}
}

// Another client writes the object of a step at the moment when the step is written: it is read
// again, and what the other one wants stays.
func TestTwoWritersOfOneObject(t *testing.T) {
	t.Parallel()
	twoWritersOfOneObject(t, newKubeCluster)
}

func twoWritersOfOneObject(t *testing.T, start startCluster) {
	for what, tc := range map[string]struct {
		annotations string
		reflectors  string
	}{
		// a kubelet, or somebody's annotation: the step is written nonetheless
		"what does not matter": {`"projectcalico.org/IPv4Address":"10.0.7.1/24","x":"y"`, "n1, n2"},
		// the address is another: the node is no reflector by this step, but by the next
		"what matters": {`"projectcalico.org/IPv4Address":"10.0.7.9/24"`, "n1, n2"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := start(t, "n1", "n2")
			var once sync.Once
			c.kube.OnWrite(func(verb, kind, name string) int {
				if kind == "nodes" && name == "n1" {
					once.Do(func() {
						c.kube.PutObject("nodes", []byte(`{"metadata":{"name":"n1",
						 "creationTimestamp":"2026-11-01T10:00:00Z",
						 "annotations":{`+tc.annotations+`}}}`))
					})
				}
				return 0
			})
			c.start("a")
			c.aim(to(reflector.Reflectors))
			c.reaches("reflectors " + tc.reflectors)
			now := string(c.kube.Object("nodes", "n1"))
			for _, note := range strings.Split(tc.annotations, ",") {
				if !strings.Contains(now, note) {
					t.Errorf("%s is lost: %s", note, now)
				}
			}
		})
	}
}

// Two people steer at once: one of them reads anew.
func TestTwoPeopleSteer(t *testing.T) {
	t.Parallel()
	twoPeopleSteer(t, newKubeCluster)
}

func twoPeopleSteer(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2")
	var once sync.Once
	rounds := 0
	err := NewKubernetesDesk(*c.kube.config(), "v1").Change(t.Context(),
		func(v View) (Changes, error) {
			rounds++
			once.Do(func() { c.aim(func(g *reflector.Goal) { g.AcceptLoss = true }) })
			g := v.Goal
			g.Paused = true
			return Changes{Goal: &g}, nil
		})
	g := c.look().goal
	if err != nil || rounds != 2 || !g.AcceptLoss || !g.Paused {
		t.Errorf("%v, %d rounds, goal %+v", err, rounds, g)
	}
}

// The API server is away for longer than a lead lasts: nobody leads, and nothing is decided by what
// was read before. When it is back, agents have their grace time.
func TestKubernetesIsAwayForLong(t *testing.T) {
	t.Parallel()
	for what, away := range map[string]func(c *cluster, on bool){
		"frozen": func(c *cluster, on bool) { c.kube.Freeze(on) },
		"refuses": func(c *cluster, on bool) {
			if on {
				c.kube.Refuse(http.StatusServiceUnavailable)
			} else {
				c.kube.Refuse(0)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newKubeCluster(t, "n1", "n2", "n3", "n4")
			it, _ := c.start("a")
			c.aim(to(reflector.Reflectors))
			await(t, "two steps", func() bool { return it.Status().Steps >= 2 })
			away(c, true)
			await(t, "it to lead no more", func() bool {
				s := it.Status()
				return !s.Leads && !s.Connected && s.Problem != ""
			})
			away(c, false)
			c.reaches("reflectors n1, n2, n3")
			if got := c.writes(0); !slices.Equal(got, thereAndBack[:5]) {
				t.Errorf("writes are %v", got)
			}
		})
	}
}

// A right that is missing is named. What is begun is done once the right is there.
func TestNoRightToWrite(t *testing.T) {
	t.Parallel()
	for _, right := range []string{"patch nodes", "create " + kubeKind("bgppeers"),
		"create " + kubeKind("bgpconfigurations"), "patch configmaps", "get " + leaseKind,
		"list " + kubeKind("bgppeers")} {
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			c := newKubeCluster(t, "n1", "n2", "n3", "n4")
			c.aim(to(reflector.Reflectors))
			c.kube.Deny(right, true)
			it, _ := c.start("a")
			verb, kind, _ := strings.Cut(right, " ")
			await(t, "the right to be named", func() bool {
				p := it.Status().Problem
				return strings.Contains(p, verb+" "+kind) && strings.Contains(p, "403 Forbidden")
			})
			c.kube.Deny(right, false)
			c.reaches("reflectors n1, n2, n3")
			if got := c.writes(0); !slices.Equal(got, thereAndBack[:5]) {
				t.Errorf("writes are %v", got)
			}
		})
	}
}

// A person does in one command what a controller does in steps; it is done by the next command, or
// by the controller, where the first one ended in the middle.
func TestAdoptInTheMiddle(t *testing.T) {
	t.Parallel()
	adoptInTheMiddle(t, newKubeCluster)
}

func adoptInTheMiddle(t *testing.T, start startCluster) {
	c := start(t, "n1", "n2", "n3")
	c.apply(`
kind: BGPPeer
apiVersion: projectcalico.org/v3
metadata: {name: theirs}
spec: {nodeSelector: all(), peerSelector: has(x)}
`)
	desk := NewKubernetesDesk(*c.kube.config(), "v1")
	writes := 0
	c.kube.OnWrite(func(verb, kind, name string) int {
		if kind == "nodes" || strings.HasPrefix(kind, "bgp") {
			if writes++; writes == 2 {
				return http.StatusInternalServerError
			}
		}
		return 0
	})
	labelled := func(v View, name string) reflector.Write {
		o, _ := v.World.Node(name)
		value, err := reflector.SetCordon(o.Value, "x")
		must(t, err)
		return reflector.Write{Key: o.Key, Value: value}
	}
	change := func(v View) (Changes, error) {
		g := v.Goal
		g.AcceptUnseen = true
		return Changes{Goal: &g, Adopted: []reflector.Write{labelled(v, "n1"), labelled(v, "n2")}},
			nil
	}
	if err := desk.Change(t.Context(), change); err == nil {
		t.Fatal("it did not end in the middle")
	}
	cordoned := func() (n int) {
		for _, o := range c.kube.Objects("nodes") {
			n += strings.Count(string(o), `"vpp-route-agent/reflector-cordon":"x"`)
		}
		return n
	}
	if n := cordoned(); n != 1 {
		t.Fatalf("%d are written", n)
	}
	must(t, desk.Change(t.Context(), func(v View) (Changes, error) {
		g := v.Goal
		g.Paused = true
		return Changes{Goal: &g}, nil
	}))
	r := c.look()
	if cordoned() != 2 || r.pending != nil || !r.goal.AcceptUnseen || !r.goal.Paused {
		t.Errorf("%d are written, %+v", cordoned(), r.goal)
	}
}

// A Lease that nobody renews says nothing, and one whose holder has another clock not before it was
// renewed once.
func TestWhoLives(t *testing.T) {
	now := time.Now()
	lease := func(renewed time.Time) []byte {
		return []byte(fmt.Sprintf(`{"metadata":{"name":"node.n1","annotations":
		 {"vpp-route-agent/status":"{}"}},"spec":{"holderIdentity":"n1","leaseDurationSeconds":30,
		 "renewTime":%q}}`, renewed.UTC().Format("2006-01-02T15:04:05.000000Z07:00")))
	}
	for what, tc := range map[string]struct {
		first, then time.Duration // by how much its clock is off
		renewed     bool
		want        bool
	}{
		"just renewed":                      {first: -time.Second, want: true},
		"renewed some time ago":             {first: -29 * time.Second, want: true},
		"not renewed":                       {first: -31 * time.Second},
		"a clock that is ahead":             {first: time.Hour},
		"a clock that is ahead, renewed":    {time.Hour, time.Hour + time.Second, true, true},
		"a clock that is behind, renewed":   {-time.Hour, -time.Hour + time.Second, true, true},
		"a clock that is a little bit fast": {first: time.Second, want: true},
	} {
		o := newKubeObjects()
		o.put("leases", lease(now.Add(tc.first)), 1, now)
		if tc.renewed {
			o.put("leases", lease(now.Add(tc.then)), 2, now)
		}
		if got := len(o.alive(now)) == 1; got != tc.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}

// etcd behind the API server is restored from a backup of the middle of a migration: what was read
// is worth nothing, and the controller goes on from what is there now.
func TestKubernetesIsRestored(t *testing.T) {
	t.Parallel()
	c := newKubeCluster(t, "n1", "n2", "n3", "n4")
	it, stop := c.start("a")
	c.aim(to(reflector.Reflectors))
	await(t, "two steps", func() bool { return it.Status().Steps >= 2 })
	saved := c.kube.Save()
	c.reaches("reflectors n1, n2, n3")
	stop()
	c.kube.Restore(saved)
	c.start("b")
	c.reaches("reflectors n1, n2, n3")
	if got := c.inRole(); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("reflectors are %v", got)
	}
}

// Where nothing happens a controller writes its Lease and nothing else, and lists nothing.
func TestIdleInKubernetes(t *testing.T) {
	t.Parallel()
	c := newKubeCluster(t, "n1", "n2")
	c.start("a")
	c.aim(to(reflector.Reflectors))
	c.reaches("reflectors n1, n2")
	c.rests(func() string {
		return fmt.Sprintf("lists of %d, %d and %d, %d writes", c.kube.ListsOf("nodes"),
			c.kube.ListsOf(kubeKind("bgppeers")), c.kube.ListsOf(leaseKind),
			len(c.kube.Wrote())-c.leases())
	})
}

// leases is how often a Lease was written.
func (c *cluster) leases() (n int) {
	for _, w := range c.kube.Wrote() {
		if strings.HasPrefix(w, "patch "+leaseKind) {
			n++
		}
	}
	return n
}

// Where others have written the goal and no watch has told of it yet, the agents are not noted
// again and again without a pause.
func TestNotingAgentsInVain(t *testing.T) {
	t.Parallel()
	c := newKubeCluster(t, "n1", "n2")
	var attempts atomic.Int64
	c.kube.OnWrite(func(verb, kind, name string) int {
		if verb != "patch" || kind != "configmaps" || name != goalName {
			return 0
		}
		attempts.Add(1)
		return http.StatusConflict
	})
	c.start("a")
	c.putGoal(`{"mode":"reflectors","config":{}}`)
	await(t, "an attempt", func() bool { return attempts.Load() > 0 })
	before := attempts.Load()
	time.Sleep(5 * leastPause)
	if n := attempts.Load() - before; n > 6 {
		t.Errorf("%d attempts within %s", n, 5*leastPause)
	}
	c.kube.OnWrite(nil)
	await(t, "the agents to be noted", func() bool { return len(c.look().agents) == 2 })
}
