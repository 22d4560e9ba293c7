package reflectors

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/testlog"
)

// etcd stops and starts again: the same controller goes on, after agents had time to return.
func TestEtcdGoesAndComes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e, err := calicotest.StartEtcd(calicotest.EtcdOptions{Dir: dir})
	must(t, err)
	address := strings.TrimPrefix(e.Endpoint(), "http://")
	it, _ := startController(t, e, "a")
	await(t, "it to lead", func() bool { return it.Status().Leads })
	e.Close()
	await(t, "it to notice", func() bool {
		s := it.Status()
		return !s.Connected && !s.Leads && s.Problem != ""
	})
	e, err = calicotest.StartEtcd(calicotest.EtcdOptions{Dir: dir, Listen: address})
	must(t, err)
	t.Cleanup(e.Close)
	await(t, "it to lead again", func() bool { return it.Status().Leads })
	awaitState(t, e.Client(), "that it observes", func(s State) bool { return s.Done != "" })
}

// An etcd that was restored from older data, or replaced, has another history: what a leader has
// read and heard is worth nothing, and it begins anew, with the grace time for agents to return.
func TestAnotherHistory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "n1")
	key := reflector.LeaderPrefix + "/1"
	put, err := c.client.Put(t.Context(), key, State{Name: "a"}.encode())
	must(t, err)
	it, err := NewController(ControllerConfig{
		Etcd: etcd.Config{Endpoints: []string{c.etcd.Endpoint()}}, Name: "a", Version: "v1",
		Log: testlog.New(t),
	})
	must(t, err)
	l := &leader{Controller: it, lost: map[string]time.Time{}, term: &etcdTerm{kv: c.client,
		key: key, created: put.Header.Revision, seen: newHistory(put.Header)}}
	must(t, l.look(t.Context()))
	must(t, l.look(t.Context()))
	for what, change := range map[string]func(*reading){
		"older data":   func(r *reading) { r.revision += 1000 },
		"another etcd": func(r *reading) { r.cluster++ },
	} {
		had := *l.last
		change(l.last)
		if err := l.look(t.Context()); !errors.Is(err, errNoSuchHistory) {
			t.Errorf("%s: %v", what, err)
		}
		l.last = &had
	}
}

// restart stops etcd, does something, and starts it with what a directory has.
func (c *cluster) restart(dir string, meanwhile func()) {
	c.t.Helper()
	c.change(func() {
		listen := strings.TrimPrefix(c.etcd.Endpoint(), "http://")
		c.etcd.Close()
		meanwhile()
		e, err := calicotest.StartEtcd(calicotest.EtcdOptions{Dir: dir, Listen: listen})
		must(c.t, err)
		c.etcd, c.client = e, e.Client()
		clear(c.said) // it may have an older value
	})
}

// goalWrites is how often the goal was written, which each step does once.
func (c *cluster) goalWrites() int64 {
	c.t.Helper()
	goal, err := c.client.Get(c.t.Context(), reflector.GoalKey)
	must(c.t, err)
	return goal.Kvs[0].Version
}

// Compaction takes no step away and repeats none: a controller reads the present alone. Here etcd
// forgets all history around each transaction of two controllers, of which one hands over to the
// other, and before a restart.
func TestEtcdIsCompacted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := newClusterIn(t, dir, "n1", "n2", "n3", "n4")
	before := c.resources()
	var compactions atomic.Int64
	compact := func([]clientv3.Op) error {
		c.mu.Lock()
		client := c.client
		c.mu.Unlock()
		head, err := client.Get(t.Context(), reflector.GoalKey)
		if err == nil {
			_, err = client.Compact(t.Context(), head.Header.Revision)
		}
		if err == nil {
			compactions.Add(1)
		}
		return nil // without etcd the transaction fails by itself
	}
	a, stopA := c.start("a", tapped(tap{before: compact, after: compact}))
	await(t, "a to lead", func() bool { return a.Status().Leads })
	_, stopB := c.start("b", tapped(tap{before: compact, after: compact}))
	await(t, "b to wait", func() bool { return len(c.look().states) == 2 })
	c.aim(to(reflector.Reflectors))
	await(t, "two steps", func() bool { return c.goalWrites() >= 1+2 })
	if a.Status().Leads { // on a busy machine its lease may have ended
		stopA()
	} else {
		stopB()
	}
	c.reaches("reflectors n1, n2, n3")
	if n := c.goalWrites(); n != 1+6 {
		t.Errorf("the goal was written %d times", n)
	}
	c.restart(dir, func() {})
	c.aim(to(reflector.Mesh))
	c.reaches("mesh")
	if n := c.goalWrites(); n != 1+6+1+6 {
		t.Errorf("the goal was written %d times", n)
	}
	after := c.resources()
	delete(after, "BGPConfiguration(default)") // the controller had to create it, so it stays
	if !maps.Equal(after, before) {
		t.Errorf("there and back resources are\n%v\nand were\n%v", after, before)
	}
	if n := compactions.Load(); n < 2*12 {
		t.Errorf("only %d compactions", n)
	}
}

// An etcd that is restored from a backup of the middle of a migration has older resources and an
// older goal, which fit together: the controller goes on from there to the same end. The backup has
// the leases of both controllers. Neither may wait for changes from where it left off: the one that
// leads would see none, nor the other that its turn has come.
func TestEtcdIsRestored(t *testing.T) {
	t.Parallel()
	dir, backup := t.TempDir(), t.TempDir()
	c := newClusterIn(t, dir, "n1", "n2", "n3", "n4")
	shut := func(_ string, q reflector.Question) (change reflector.Change) {
		if q.Cover == "n2" {
			change.Missing = 1
		}
		return change
	}
	c.change(func() { c.knows = shut })
	a, stopA := c.start("a")
	await(t, "a to lead", func() bool { return a.Status().Leads })
	b, stopB := c.start("b")
	await(t, "b to wait", func() bool { return len(c.look().states) == 2 })
	c.aim(to(reflector.Reflectors))
	inTheMiddle := func(s State) bool {
		return strings.HasPrefix(s.Waits, "not all routes from reflector n2 at ")
	}
	c.awaits("a gate in the middle", inTheMiddle)
	c.restart(dir, func() {
		must(t, os.CopyFS(backup, os.DirFS(dir)))
		c.knows = nil
	})
	c.reaches("reflectors n1, n2, n3")
	c.restart(backup, func() { c.knows = shut })
	if got := c.inRole(); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("the backup has the reflectors %v", got)
	}
	c.awaits("the gate in the backup", inTheMiddle)
	c.change(func() { c.knows = nil })
	c.reaches("reflectors n1, n2, n3")
	if n := c.goalWrites(); n != 1+6 || len(c.inRole()) != 3 {
		t.Errorf("the goal was written %d times, reflectors %v", n, c.inRole())
	}
	leads, waits, stop := a, b, stopA
	if b.Status().Leads {
		leads, waits, stop = b, a, stopB
	}
	if !leads.Status().Leads || waits.Status().Leads {
		t.Errorf("a: %+v, b: %+v", a.Status(), b.Status())
	}
	stop()
	await(t, "the other to lead", func() bool { return waits.Status().Leads })
}
