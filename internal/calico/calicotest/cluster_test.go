package calicotest

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"vpp-route-agent/internal/calico"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// newCluster returns a cluster on an etcd of its own, with two nodes and a pool of eight blocks of
// four addresses.
func newCluster(t *testing.T) *Cluster {
	t.Helper()
	e, err := StartEtcd(EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	c := e.Cluster()
	must(t, c.AddNode(t.Context(), "edge-7", pfx("172.30.8.7/24"), pfx("fd77::7/64")))
	must(t, c.AddNode(t.Context(), "edge-9", pfx("172.30.8.9/24")))
	must(t, c.AddPool(t.Context(), "small", pfx("10.77.4.0/27"), 30))
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do unwraps a verb's result.
func do[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

func snapshot(t *testing.T, c *Cluster, node string) *calico.Snapshot {
	t.Helper()
	s := do[*calico.Snapshot](t)(c.Snapshot(t.Context(), node))
	if len(s.Problems) > 0 {
		t.Fatalf("problems: %v", s.Problems)
	}
	return s
}

func TestAttachClaimsABlockAndThenFillsIt(t *testing.T) {
	c := newCluster(t)
	for i, want := range []string{"10.77.4.0", "10.77.4.1", "10.77.4.2", "10.77.4.3", "10.77.4.4"} {
		w := do[Workload](t)(c.Attach(t.Context(), "edge-7", "shop/cart-"+string(rune('0'+i)),
			"small"))
		if w.Address != addr(want) || w.Borrowed || w.Block != netip.PrefixFrom(w.Address,
			30).Masked() {
			t.Fatalf("attached %+v, want %s from an own block", w, want)
		}
	}
	s := snapshot(t, c, "edge-7")
	want := map[netip.Prefix]calico.AffinityState{pfx("10.77.4.0/30"): "confirmed",
		pfx("10.77.4.4/30"): "confirmed"}
	if diff := cmp.Diff(want, s.Affinities, cmpAddrs); diff != "" {
		t.Error(diff)
	}
	wep := s.WorkloadEndpoints["shop/edge--7-k8s-cart--4-eth0"]
	if wep.Node != "edge-7" || !slices.Equal(wep.IPNetworks, []netip.Prefix{pfx("10.77.4.4/32")}) ||
		!strings.HasPrefix(wep.InterfaceName, "cali") {
		t.Errorf("endpoint %+v", wep)
	}
}

var cmpAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestAttachBorrowsWhenThePoolHasNoBlockLeft(t *testing.T) {
	c := newCluster(t)
	for i := range 8 {
		must(t, c.ClaimBlock(t.Context(), "edge-9", advancePrefix(pfx("10.77.4.0/30"), i)))
	}
	w := do[Workload](t)(c.Attach(t.Context(), "edge-7", "cart", ""))
	if !w.Borrowed || w.Name != "default/cart" {
		t.Errorf("attached %+v, want a borrowed address", w)
	}
}

func advancePrefix(p netip.Prefix, n int) netip.Prefix {
	return netip.PrefixFrom(advance(p.Addr(), uint64(n)<<(p.Addr().BitLen()-p.Bits())), p.Bits())
}

func TestAttachExplicitAddress(t *testing.T) {
	c := newCluster(t)
	w := do[Workload](t)(c.Attach(t.Context(), "edge-7", "a", "10.77.4.13"))
	if w.Address != addr("10.77.4.13") || w.Block != pfx("10.77.4.12/30") || w.Borrowed {
		t.Errorf("attached %+v", w)
	}
	w = do[Workload](t)(c.Attach(t.Context(), "edge-9", "b", "10.77.4.14"))
	if !w.Borrowed {
		t.Errorf("attached %+v, want borrowed from edge-7", w)
	}
	for from, want := range map[string]string{
		"10.77.4.14": "in use", "10.99.0.1": "is in no IPPool",
		"nowhere": "neither an address nor the name of an IPPool",
	} {
		if _, err := c.Attach(t.Context(), "edge-7", "c", from); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("attach from %s: %v, want %q", from, err, want)
		}
	}
	if _, err := c.Attach(t.Context(), "edge-8", "c", ""); err == nil ||
		!strings.Contains(err.Error(), "no Node(edge-8)") {
		t.Errorf("attach on an unknown node: %v", err)
	}
	if _, err := c.Attach(t.Context(), "edge-7", "a", ""); err == nil ||
		!strings.Contains(err.Error(), "there already") {
		t.Errorf("attach twice: %v", err)
	}
	if left := handles(t, c); left != 2 {
		t.Errorf("%d handles are left of 2 workloads and failed attempts", left)
	}
}

func handles(t *testing.T, c *Cluster) int {
	return len(do[map[string][]byte](t)(keysUnder(t.Context(), c, "/calico/ipam/v2/handle/")))
}

func TestNobodyBorrowsFromANodeThatIsNotThere(t *testing.T) {
	c := newCluster(t)
	if w, err := c.Borrow(t.Context(), "edge-7", "guest", "egde-9"); err == nil ||
		!strings.Contains(err.Error(), "there is no Node(egde-9)") {
		t.Errorf("borrowed %+v, %v", w, err)
	}
	if s := snapshot(t, c, "edge-7"); len(s.Blocks) != 0 || handles(t, c) != 0 {
		t.Errorf("left behind: %d blocks, %d handles", len(s.Blocks), handles(t, c))
	}
}

func TestBorrowMoveRelease(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	w := do[Workload](t)(c.Borrow(ctx, "edge-9", "shop/guest", "edge-7"))
	if !w.Borrowed || w.Node != "edge-9" {
		t.Fatalf("borrowed %+v", w)
	}
	b := snapshot(t, c, "edge-9").Blocks[w.Block]
	if b.Owner.Host != "edge-7" || len(b.Allocations) != 1 || b.Allocations[0].Node != "edge-9" {
		t.Errorf("block %+v", b)
	}
	var stored block
	if _, err := c.read(ctx, blockKey(w.Block), &stored); err != nil ||
		stored.Attributes[0].Handle == "" {
		t.Errorf("block %+v, %v", stored, err)
	}
	moved := do[Workload](t)(c.Move(ctx, "shop/guest", "edge-7"))
	if moved.Address != w.Address || moved.Borrowed || moved.Node != "edge-7" {
		t.Errorf("moved %+v", moved)
	}
	if n := len(snapshot(t, c, "edge-9").WorkloadEndpoints); n != 0 {
		t.Errorf("edge-9 still has %d endpoints", n)
	}
	if n := len(snapshot(t, c, "edge-7").WorkloadEndpoints); n != 1 {
		t.Errorf("edge-7 has %d endpoints", n)
	}
	do[Workload](t)(c.Release(ctx, "shop/guest"))
	if b := snapshot(t, c, "edge-7").Blocks[w.Block]; len(b.Allocations) != 0 {
		t.Errorf("still allocated: %+v", b)
	}
	if n := handles(t, c); n != 0 {
		t.Errorf("%d handles are left", n)
	}
	if _, err := c.Release(ctx, "shop/guest"); err == nil ||
		!strings.Contains(err.Error(), "no workload shop/guest") {
		t.Errorf("released twice: %v", err)
	}
}

func TestReleaseBlockGoesThroughCalicosSteps(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	empty, used := pfx("10.77.4.16/30"), pfx("10.77.4.20/30")
	before := snapshot(t, c, "").Revision
	must(t, c.ClaimBlock(ctx, "edge-7", empty))
	must(t, c.ClaimBlock(ctx, "edge-7", used))
	do[Workload](t)(c.Attach(ctx, "edge-7", "a", "10.77.4.21"))
	if got := do[[]netip.Prefix](t)(c.ReleaseBlocks(ctx, "edge-7")); !slices.Equal(got,
		[]netip.Prefix{empty, used}) {
		t.Errorf("released %v", got)
	}
	s := snapshot(t, c, "edge-7")
	if b, ok := s.Blocks[used]; !ok || b.Owner != (calico.Owner{}) || len(b.Allocations) != 1 {
		t.Errorf("the block in use became %+v, want it owned by nobody", b)
	}
	if _, ok := s.Blocks[empty]; ok || len(s.Affinities) != 0 {
		t.Errorf("left: blocks %v affinities %v", s.Blocks, s.Affinities)
	}
	got := history(t, c, before, affinityKey("edge-7", empty), blockKey(empty))
	want := []string{"affinity pending", "block host:edge-7", "affinity confirmed",
		"affinity pendingDeletion", "block gone", "affinity gone"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	do[Workload](t)(c.Release(ctx, "a"))
	if _, ok := snapshot(t, c, "").Blocks[used]; ok {
		t.Error("a block that is nobody's and empty is still there")
	}
}

// history replays what happened to the two keys of a block after a revision.
func history(t *testing.T, c *Cluster, after int64, affinityKey,
	blockKey calico.Key) (steps []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	events := watchFrom(ctx, c, after+1)
	for ctx.Err() == nil {
		for _, ev := range (<-events).Events {
			var v struct {
				State    string
				Affinity string
			}
			what := "affinity "
			if string(ev.Kv.Key) == blockKey.String() {
				what = "block "
			} else if string(ev.Kv.Key) != affinityKey.String() {
				continue
			}
			if len(ev.Kv.Value) == 0 {
				v.State = "gone"
			} else if err := json.Unmarshal(ev.Kv.Value, &v); err != nil {
				t.Fatal(err)
			}
			steps = append(steps, what+v.State+v.Affinity)
			if what+v.State == "affinity gone" {
				return steps
			}
		}
	}
	t.Fatalf("no end in %v", steps)
	return nil
}

// watchFrom returns everything that happened to Calico's keys from a revision on.
func watchFrom(ctx context.Context, c *Cluster, revision int64) clientv3.WatchChan {
	return c.client.Watch(ctx, "/calico/", clientv3.WithPrefix(), clientv3.WithRev(revision))
}

func TestClaimOfAnothersBlockIsUndone(t *testing.T) {
	c := newCluster(t)
	block := pfx("10.77.4.8/30")
	must(t, c.ClaimBlock(t.Context(), "edge-7", block))
	must(t, c.ClaimBlock(t.Context(), "edge-7", block))
	err := c.ClaimBlock(t.Context(), "edge-9", block)
	if err == nil || !strings.Contains(err.Error(), "owner is host:edge-7") {
		t.Errorf("claimed: %v", err)
	}
	if s := snapshot(t, c, "edge-9"); len(s.Affinities) != 0 {
		t.Errorf("left %v", s.Affinities)
	}
}

// TestVerbsKeepTheDataConsistent takes random steps, several of them at once, and looks at the
// result with the agent's decoder and at the raw blocks: every workload has exactly one endpoint
// and one allocation, on the same node, and blocks add up.
func TestVerbsKeepTheDataConsistent(t *testing.T) {
	c := newCluster(t)
	nodes := []string{"edge-7", "edge-9"}
	pods := []string{"a", "b", "c", "d", "e", "f"}
	rapid.Check(t, func(rt *rapid.T) {
		ctx := context.Background()
		present := map[string]Workload{}
		note := func(w Workload, err error) {
			if err == nil {
				present[w.Name] = w
			}
		}
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			pod := "x/" + rapid.SampledFrom(pods).Draw(rt, "pod")
			node := rapid.SampledFrom(nodes).Draw(rt, "node")
			_, there := present[pod]
			switch rapid.IntRange(0, 4).Draw(rt, "verb") {
			case 0:
				w, err := c.Attach(ctx, node, pod, "")
				if (err == nil) == there {
					rt.Fatalf("attach %s, there %v: %v", pod, there, err)
				}
				note(w, err)
			case 1:
				note(c.Borrow(ctx, node, pod, nodes[0]))
			case 2:
				w, err := c.Move(ctx, pod, node)
				if err == nil && w.Address != present[pod].Address {
					rt.Fatalf("moved %s from %s to %s", pod, present[pod].Address, w.Address)
				}
				note(w, err)
			case 3:
				if _, err := c.Release(ctx, pod); (err == nil) != there {
					rt.Fatalf("release %s, there %v: %v", pod, there, err)
				}
				delete(present, pod)
			case 4:
				c.ReleaseBlocks(ctx, node)
			}
			checkConsistent(rt, c, nodes, present)
		}
		for pod := range present {
			c.Release(ctx, pod)
		}
		for _, node := range nodes {
			c.ReleaseBlocks(ctx, node)
		}
		left, err := keysUnder(ctx, c, "/calico/ipam/")
		if err != nil || len(left) != 0 {
			rt.Fatalf("%v; left over %v", err, left)
		}
	})
}

func checkConsistent(rt *rapid.T, c *Cluster, nodes []string, present map[string]Workload) {
	ctx := context.Background()
	endpoints := 0
	for _, node := range nodes {
		s, err := c.Snapshot(ctx, node)
		if err != nil || len(s.Problems) > 0 {
			rt.Fatalf("%v %v", err, s.Problems)
		}
		allocated := map[netip.Addr]string{}
		for _, b := range s.Blocks {
			for _, a := range b.Allocations {
				allocated[a.Address] = a.Node
			}
			if b.Owner.Host == node && s.Affinities[b.CIDR] != calico.AffinityConfirmed {
				rt.Fatalf("%s has block %s and affinity %q", node, b.CIDR, s.Affinities[b.CIDR])
			}
		}
		if len(allocated) != len(present) {
			rt.Fatalf("%d allocations for %d workloads", len(allocated), len(present))
		}
		for _, e := range s.WorkloadEndpoints {
			endpoints++
			if allocated[e.IPNetworks[0].Addr()] != node {
				rt.Fatalf("%s is on %s, its address is allocated to %q", e.Name, node,
					allocated[e.IPNetworks[0].Addr()])
			}
		}
	}
	if endpoints != len(present) {
		rt.Fatalf("%d endpoints for %d workloads", endpoints, len(present))
	}
	all, err := keysUnder(ctx, c, "/calico/ipam/v2/assignment/")
	if err != nil {
		rt.Fatal(err)
	}
	for key, value := range all {
		var b block
		if err := json.Unmarshal(value, &b); err != nil {
			rt.Fatal(err)
		}
		used := map[int]bool{}
		for ordinal, i := range b.Allocations {
			if i != nil {
				used[*i] = true
			}
			if (i == nil) != slices.Contains(b.Unallocated, ordinal) {
				rt.Fatalf("%s: ordinal %d is both free and not: %s", key, ordinal, value)
			}
		}
		if len(used) != len(b.Attributes) ||
			len(b.SequenceOfAddr) != len(b.Allocations)-len(b.Unallocated) {
			rt.Fatalf("%s does not add up: %s", key, value)
		}
	}
}

// keysUnder lists keys and values.
func keysUnder(ctx context.Context, c *Cluster, prefix string) (map[string][]byte, error) {
	resp, err := c.client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, kv := range resp.Kvs {
		all[string(kv.Key)] = kv.Value
	}
	return all, nil
}
