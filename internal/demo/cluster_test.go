package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/testcluster"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }

// twoNodes is a cluster with a block each, and a workload of the first block on the second node.
func twoNodes() (d *demo, a, b *node) {
	a = &node{Node: &testcluster.Node{Name: "a"}, nextHop: addr("192.168.4.11")}
	b = &node{Node: &testcluster.Node{Name: "b"}, nextHop: addr("192.168.4.12")}
	at := func(name, address string) *testcluster.Workload {
		return &testcluster.Workload{Name: name, Address: addr(address)}
	}
	return &demo{
		nodes:  []*node{a, b},
		blocks: []block{{pfx("10.1.0.0/26"), a}, {pfx("10.1.0.64/26"), b}},
		workloads: []*workload{
			{Workload: at("w1", "10.1.0.1"), node: a},
			{Workload: at("w2", "10.1.0.2"), node: b},
		},
	}, a, b
}

func TestWantedRoutes(t *testing.T) {
	d, a, b := twoNodes()
	for _, c := range []struct {
		node *node
		want map[string]string
	}{
		{a, map[string]string{"10.1.0.0/26": "drop", "10.1.0.64/26": "192.168.4.12",
			"10.1.0.2/32": "192.168.4.12"}},
		{b, map[string]string{"10.1.0.0/26": "192.168.4.11", "10.1.0.64/26": "drop"}},
	} {
		got := d.wanted(c.node)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v", c.node.Name, got)
		}
		for p, via := range c.want {
			if testcluster.Hop(got[pfx(p)]) != via {
				t.Errorf("%s: %s via %s, want %s",
					c.node.Name, p, testcluster.Hop(got[pfx(p)]), via)
			}
		}
	}
}

func TestReportCountsWhatDidNotHold(t *testing.T) {
	for name, c := range map[string]struct {
		checks []bool
		ok     bool
		said   string
	}{
		"all held":      {[]bool{true, true}, true, "All 2 checks held"},
		"one did not":   {[]bool{true, false}, false, "1 of 2 checks did not hold"},
		"nothing shown": {nil, false, "0 of 0"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := &report{out: &out}
			r.chapter("first")
			for _, ok := range c.checks {
				r.check(ok, "something", "3 ms")
			}
			r.finish(time.Second)
			if r.result.OK != c.ok || !strings.Contains(out.String(), c.said) {
				t.Errorf("ok %v:\n%s", r.result.OK, &out)
			}
			if _, err := json.Marshal(r.result); err != nil {
				t.Error(err)
			}
			if strings.Contains(out.String(), "\x1b") {
				t.Error("colours that nobody asked for")
			}
		})
	}
}

func TestTableLinesUpCharactersNotBytes(t *testing.T) {
	var out strings.Builder
	r := &report{out: &out}
	r.table([][]string{{"A", "B"}, {"·", "x"}, {"→→", "y"}})
	want := "     A   B\n     ·   x\n     →→  y\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestDurationsForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		300 * time.Microsecond: "0.3 ms", 12 * time.Millisecond: "12 ms",
		2345 * time.Millisecond: "2.3 s",
	} {
		if got := inSeconds(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// freeAddress has a port below those that the kernel takes for dials, one of which may take the
// port before somebody listens on it.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		listen := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		if l, err := net.Listen("tcp", listen); err == nil {
			l.Close()
			return listen
		}
	}
	t.Fatal("no port is free")
	return ""
}

func TestEtcdIsReachedBySocket(t *testing.T) {
	listen := freeAddress(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "etcd.sock")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- ServeEtcd(ctx, Datastore{Listen: listen, Dir: filepath.Join(dir, "data"),
			Socket: socket})
	}()

	err := await(t.Context(), 20*time.Second, func(ctx context.Context) error {
		if _, err := os.Stat(socket); err != nil {
			return err
		}
		cluster, err := calicotest.Connect(ctx, "unix://"+socket, nil)
		if err != nil {
			return err
		}
		defer cluster.Close()
		return cluster.AddPool(ctx, "p", pfx("10.1.0.0/16"), 0)
	})
	if err != nil {
		t.Error(err)
	}
	cluster, err := calicotest.Connect(t.Context(), "http://"+listen, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	snapshot, err := cluster.Snapshot(t.Context(), "")
	if err != nil || len(snapshot.IPPools) != 1 {
		t.Errorf("what was written by the socket is not there: %v, %v", snapshot, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
