package calico

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const resources = "/calico/resources/v3/projectcalico.org/"

func nodeJSON(address string) []byte {
	return fmt.Appendf(nil, `{"spec":{"bgp":{"ipv4Address":%q}}}`, address)
}

func TestStoreKeepsWhatIsOurs(t *testing.T) {
	s := NewStore("edge-1")
	cidr := pfx("10.0.0.0/26")
	affinity := func(o Owner) string {
		return Key{Kind: KindBlockAffinity, Owner: o, CIDR: cidr}.String()
	}
	s.Put(affinity(Owner{Host: "edge-10"}), nil)
	s.Put(affinity(Owner{Virtual: "edge-1"}), nil)
	s.Put(resources+"workloadendpoints/shop/theirs", []byte(`{"spec":{"node":"edge-9"}}`))
	s.Put(resources+"workloadendpoints/shop/theirs-too", []byte(`{"spec":{"node":"edge-10"}}`))
	s.Put(resources+"workloadendpoints/shop/broken-but-theirs", []byte(`{"spec":{"node":"edge-9"`))
	s.Put(resources+"bgpconfigurations/whatever", []byte(`{`))
	s.Put(resources+"clusterinformations/whatever", []byte(`{"spec":{"datastoreReady":false}}`))
	s.Put("/calico/ipam/v2/handle/x", []byte(`{`))
	if got := s.Snapshot(1); len(got.Affinities)+len(got.WorkloadEndpoints)+
		len(got.BGPConfigurations)+len(got.Problems) != 0 || got.DatastoreNotReady {
		t.Errorf("kept %+v", got)
	}
	s.Put(affinity(Owner{Host: "edge-1"}), nil)
	s.Put(resources+"workloadendpoints/shop/ours", []byte(`{"spec":{"node":"edge-1"}}`))
	s.Put(resources+"bgpconfigurations/node.edge-9", []byte(`{"spec":{"listenPort":1790}}`))
	s.Put(resources+"clusterinformations/default", []byte(`{"spec":{"datastoreReady":false}}`))
	got := s.Snapshot(2)
	if got.Affinities[cidr] != AffinityConfirmed ||
		got.WorkloadEndpoints["shop/ours"].Node != "edge-1" ||
		got.BGPConfigurations["node.edge-9"].ListenPort != 1790 || !got.DatastoreNotReady {
		t.Errorf("got %+v", got)
	}
	// The endpoint goes to another node.
	s.Put(resources+"workloadendpoints/shop/ours", []byte(`{"spec":{"node":"edge-9"}}`))
	if got := s.Snapshot(3); len(got.WorkloadEndpoints) != 0 {
		t.Errorf("still %+v", got.WorkloadEndpoints)
	}
}

// A source that has no etcd hands over what it has decoded itself.
func TestItemsOfAnySource(t *testing.T) {
	s := NewStore("edge-1")
	cidr := pfx("10.0.0.0/26")
	node := Key{Kind: KindNode, Name: "edge-9"}
	own := Key{Kind: KindBlockAffinity, Owner: Owner{Host: "edge-1"}, CIDR: cidr}
	other := Key{Kind: KindBlockAffinity, Owner: Owner{Host: "edge-2"}, CIDR: cidr}
	s.Set("nodes/edge-9", Item{Key: node, Value: Node{Name: "edge-9", ASNumber: 7}})
	s.Set("affinities/a", Item{Key: own, Value: AffinityPending})
	s.Set("affinities/b", Item{Key: other, Value: AffinityConfirmed})
	s.Set("affinities/c", Item{Key: other, Err: errors.New("bad")})
	s.Set("pools/x", Item{Err: errors.New("has no name")})
	got := s.Snapshot(1)
	if got.Nodes["edge-9"].ASNumber != 7 || got.Affinities[cidr] != AffinityPending {
		t.Errorf("got %+v", got)
	}
	s.Set("nodes/edge-9", Item{Key: node, Err: errors.New("spec: unreadable")})
	got = s.Snapshot(2)
	want := []Problem{
		{Resource: "Node(edge-9)", Key: "nodes/edge-9",
			Err: "spec: unreadable (what it said before stays in use)"},
		{Key: "pools/x", Err: "has no name"},
	}
	if diff := cmp.Diff(want, got.Problems); diff != "" || got.Nodes["edge-9"].ASNumber != 7 {
		t.Errorf("%+v\n%s", got.Nodes, diff)
	}
	s.BeginList()
	s.EndList("affinities/", "pools/")
	got = s.Snapshot(3)
	if len(got.Affinities) != 0 || len(got.Nodes) != 1 || len(got.Problems) != 1 {
		t.Errorf("after a list: %+v", got)
	}
	s.Set("nodes/edge-9", Item{Key: node})
	if got := s.Snapshot(4); len(got.Nodes)+len(got.Problems) != 0 {
		t.Errorf("an item that stands for nothing: %+v", got)
	}
}

func TestProblemsNameResources(t *testing.T) {
	s := NewStoreFor("edge-1", Needs{Hosts: DefaultHosts})
	const ipam = "/calico/ipam/v2/"
	for key, resource := range map[string]string{
		resources + "nodes/edge-9":                      "Node(edge-9)",
		resources + "workloadendpoints/shop/w":          "WorkloadEndpoint(shop/w)",
		ipam + "assignment/ipv4/block/10.0.0.0-26":      "Block(10.0.0.0/26)",
		ipam + "host/edge-1/ipv4/block/10.0.0.0-26":     "BlockAffinity(edge-1 10.0.0.0/26)",
		ipam + "handle/ipip-tunnel-addr-edge-1":         "IPAMHandle(ipip-tunnel-addr-edge-1)",
		DefaultHosts + "edge-7/peerip/ipv6/1":           "peerip(edge-7)",
		ipam + "assignment/ipv4/block/10.0.0.0-99":      "",
		resources + "bgppeers/a/b":                      "",
		ipam + "host/edge-1/ipv4/block/nonsense-at-all": "",
	} {
		s.Put(key, []byte(`{"edge-1`))
		got := s.Snapshot(1).Problems
		if len(got) != 1 || got[0].Resource != resource || got[0].Key != key {
			t.Errorf("%s: %+v, want %s", key, got, resource)
		}
		s.Delete(key)
	}
}

func TestABadUpdateLeavesTheItemAsItWas(t *testing.T) {
	s := NewStore("edge-1")
	key := resources + "nodes/edge-9"
	s.Put(key, nodeJSON("172.20.8.9/24"))
	good := s.Snapshot(1)
	s.Put(key, nodeJSON("172.20.8"))
	if !s.Changed() {
		t.Error("the problem is no news")
	}
	bad := s.Snapshot(2)
	if bad.Nodes["edge-9"].IPv4 != pfx("172.20.8.9/24") || len(good.Problems) != 0 {
		t.Errorf("node %+v, problems before %v", bad.Nodes["edge-9"], good.Problems)
	}
	if len(bad.Problems) != 1 || bad.Problems[0].Key != key ||
		!strings.Contains(bad.Problems[0].Err, "spec.bgp.ipv4Address") ||
		!strings.Contains(bad.Problems[0].Err, "stays in use") {
		t.Errorf("problems %v", bad.Problems)
	}
	s.Put(key, nodeJSON("172.20.8"))
	if s.Changed() {
		t.Error("the same problem again is news")
	}
	// Also over a list.
	s.BeginList()
	s.Put(key, nodeJSON("172.20.8"))
	s.EndList(resources + "nodes/")
	if got := s.Snapshot(3); len(got.Nodes) != 1 || len(got.Problems) != 1 {
		t.Errorf("after a list: %+v", got)
	}
	s.Put(key, nodeJSON("172.20.8.10/24"))
	if got := s.Snapshot(4); got.Nodes["edge-9"].IPv4 != pfx("172.20.8.10/24") ||
		len(got.Problems) != 0 {
		t.Errorf("after the repair: %+v", got)
	}
	s.Put(key, nodeJSON("172.20.8"))
	s.Delete(key)
	if got := s.Snapshot(5); len(got.Nodes)+len(got.Problems) != 0 {
		t.Errorf("after the deletion: %+v", got)
	}
}

// BGP does not depend on a tunnel's address: confd does not read it.
func TestABadTunnelAddressLeavesTheNodeInUse(t *testing.T) {
	s := NewStore("edge-1")
	key := resources + "nodes/edge-9"
	put := func(bgp, ipip, vxlan6 string) *Snapshot {
		s.Put(key, fmt.Appendf(nil, `{"spec":{"bgp":{"ipv4Address":%q,"ipv4IPIPTunnelAddr":%q},
			"ipv6VXLANTunnelAddr":%q}}`, bgp, ipip, vxlan6))
		return s.Snapshot(1)
	}
	for _, tc := range []struct {
		bgp, ipip, vxlan6, want, problem string
	}{
		{"172.20.8.9/24", "10.0.0", "fd00::9", "172.20.8.9/24 invalid IP fd00::9",
			`spec.bgp.ipv4IPIPTunnelAddr: "10.0.0" is not an address`},
		{"172.20.8.9/24", "10.0.0.1", "fd00::9", "172.20.8.9/24 10.0.0.1 fd00::9", ""},
		{"172.20.8.10/24", "10.0.0", "fd00::a", "172.20.8.10/24 10.0.0.1 fd00::a",
			`spec.bgp.ipv4IPIPTunnelAddr: "10.0.0" is not an address, 10.0.0.1 counts`},
		{"172.20.8.10/24", "", "10.0.0.1", "172.20.8.10/24 invalid IP fd00::a",
			`"10.0.0.1" is of the other address family, fd00::a counts`},
		{"172.20.8", "10.0.0.3", "x", "172.20.8.10/24 invalid IP fd00::a",
			`"x" is not an address, fd00::a counts (what it said before stays in use)`},
	} {
		got := put(tc.bgp, tc.ipip, tc.vxlan6)
		n, problem := got.Nodes["edge-9"], ""
		if len(got.Problems) == 1 {
			problem = got.Problems[0].Err
		}
		said := fmt.Sprintf("%v %v %v", n.IPv4, n.IPv4IPIPTunnelAddr, n.IPv6VXLANTunnelAddr)
		if said != tc.want ||
			!strings.HasSuffix(problem, tc.problem) || tc.problem == "" && problem != "" {
			t.Errorf("%+v: %s, problem %q", tc, said, problem)
		}
	}
}

func TestABadItemIsLeftOutAndTheRestGoesOn(t *testing.T) {
	s := NewStore("edge-1")
	s.Put(resources+"nodes/b", []byte(`{`))
	s.Put(resources+"nodes/a", nodeJSON("172.20.8.9/24"))
	s.Put(resources+"ippools/p", []byte(``))
	s.Put("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-99", []byte(`{}`))
	got := s.Snapshot(1)
	var keys []string
	for _, p := range got.Problems {
		keys = append(keys, p.Key)
	}
	if len(got.Nodes) != 1 || len(keys) != 3 || !slices.IsSorted(keys) {
		t.Errorf("nodes %v, problems %v", got.Nodes, got.Problems)
	}
}

// A ClusterInformation that cannot be read is none that is gone: the datastore is not locked.
func TestABadClusterInformationIsThere(t *testing.T) {
	const key = resources + "clusterinformations/default"
	s := NewStore("edge-7")
	for _, tc := range []struct {
		value string
		there bool
	}{{"", false}, {"{", true}, {`{"spec":7}`, true}, {"", false},
		{`{"spec":{"datastoreReady":true}}`, true}, {"{", true}} {
		if tc.value == "" {
			s.Delete(key)
		} else {
			s.Put(key, []byte(tc.value))
		}
		snap := s.Snapshot(1)
		if snap.ClusterInformation != tc.there || snap.Locked() != "" {
			t.Errorf("%q: there %t, %q", tc.value, snap.ClusterInformation, snap.Locked())
		}
		again := NewStoreOver(snap, "edge-7").Snapshot(2)
		if again.ClusterInformation != tc.there {
			t.Errorf("%q, a store over it: there %t", tc.value, again.ClusterInformation)
		}
	}
	s.Put(key, []byte(`{"spec":{"datastoreReady":false}}`))
	s.Put(key, []byte(`{`))
	if s.Snapshot(1).Locked() == "" {
		t.Error("a bad value ends the lock")
	}
}

// A store that begins with a snapshot has its problems, too.
func TestStoreOverASnapshotWithProblems(t *testing.T) {
	bad := NewStore("edge-1")
	bad.Put("/calico/resources/v3/projectcalico.org/ippools/pods", []byte("{"))
	want := bad.Snapshot(1)
	if got := NewStoreOver(want, "edge-1").Snapshot(1); len(want.Problems) != 1 ||
		!slices.Equal(got.Problems, want.Problems) {
		t.Errorf("problems %v, want %v", got.Problems, want.Problems)
	}
}

func TestTwoSpellingsOfABlock(t *testing.T) {
	s := NewStore("edge-1")
	first, second := "/calico/ipam/v2/assignment/ipv6/block/fd00::40-122",
		"/calico/ipam/v2/assignment/ipv6/block/fd00:0:0:0::40-122"
	s.Put(first, []byte(`{"affinity":"host:a"}`))
	s.Put(second, []byte(`{"affinity":"host:b"}`))
	got := s.Snapshot(1)
	if got.Blocks[pfx("fd00::40/122")].Owner.Host != "a" || len(got.Problems) != 1 ||
		got.Problems[0].Key != second {
		t.Errorf("blocks %v, problems %v", got.Blocks, got.Problems)
	}
	s.Delete(second)
	if got := s.Snapshot(2); len(got.Blocks) != 1 || len(got.Problems) != 0 {
		t.Errorf("blocks %v, problems %v", got.Blocks, got.Problems)
	}
}

func TestListDeletesWhatItLacksAndOnlyWhenItEnds(t *testing.T) {
	s := NewStore("edge-1")
	for _, name := range []string{"a", "b", "c"} {
		s.Put(resources+"nodes/"+name, nodeJSON("172.20.8.9/24"))
	}
	s.Put(resources+"ippools/p", []byte(`{"spec":{"cidr":"10.0.0.0/16"}}`))
	s.Put(resources+"nodes/bad", []byte(`{`))
	s.BeginList()
	s.Put(resources+"nodes/a", nodeJSON("172.20.8.9/24"))
	if got := s.Snapshot(1); len(got.Nodes) != 3 || len(got.Problems) != 1 {
		t.Errorf("before the end: %+v", got)
	}
	s.BeginList() // that one failed
	s.Put(resources+"nodes/b", nodeJSON("172.20.8.9/24"))
	s.EndList(resources + "nodes/")
	got := s.Snapshot(2)
	if names := slices.Sorted(maps.Keys(got.Nodes)); !slices.Equal(names, []string{"b"}) ||
		len(got.Problems) != 0 || len(got.IPPools) != 1 {
		t.Errorf("after the end: %+v", got)
	}
}

func TestUnchangedPartsAreShared(t *testing.T) {
	s := NewStore("edge-1")
	s.Put(resources+"nodes/a", nodeJSON("172.20.8.9/24"))
	s.Put(resources+"ippools/p", []byte(`{"spec":{"cidr":"10.0.0.0/16"}}`))
	one := s.Snapshot(1)
	s.Put(resources+"nodes/a", []byte(
		`{"spec":{"bgp":{"ipv4Address":"172.20.8.9/24"},"ignored":1}}`))
	if s.Changed() {
		t.Error("a change that says nothing is news")
	}
	s.Put(resources+"nodes/b", nodeJSON("172.20.8.10/24"))
	two := s.Snapshot(2)
	same := func(a, b any) bool {
		return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
	}
	if !same(one.IPPools, two.IPPools) || same(one.Nodes, two.Nodes) {
		t.Errorf("pools shared %v, nodes shared %v", same(one.IPPools, two.IPPools),
			same(one.Nodes, two.Nodes))
	}
	if len(one.Nodes) != 1 || len(two.Nodes) != 2 {
		t.Errorf("nodes before %v, after %v", one.Nodes, two.Nodes)
	}
}

// TestStoreEqualsOneMadeFromScratch takes random puts, deletes and lists, and compares with a new
// store that sees only what is there in the end. Every snapshot on the way must stay what it was.
func TestStoreEqualsOneMadeFromScratch(t *testing.T) {
	keys := []string{
		resources + "nodes/a", resources + "nodes/b", resources + "ippools/p",
		resources + "bgppeers/x", resources + "bgpfilters/f",
		resources + "bgpconfigurations/default", resources + "clusterinformations/default",
		resources + "workloadendpoints/ns/w",
		"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30",
		"/calico/ipam/v2/assignment/ipv4/block/10.0.0.4-30",
		"/calico/ipam/v2/host/edge-1/ipv4/block/10.0.0.0-30",
	}
	// each decodes as any kind but a pool, which then has no CIDR: a problem, and with nothing
	// known before it
	values := []string{
		`{"spec":{"node":"edge-1","cidr":"10.0.0.0/16"}}`,
		`{"spec":{"node":"edge-9","cidr":"10.1.0.0/16","datastoreReady":false,"asNumber":7}}`,
		`{"affinity":"host:edge-1","state":"pending","spec":{"cidr":"fd00::/64"}}`,
		`{"deleted":true,"spec":{"cidr":"fd00::/64"}}`,
	}
	rapid.Check(t, func(t *rapid.T) {
		s := NewStore("edge-1")
		there := map[string]string{}
		type kept struct{ snap, copy *Snapshot }
		var history []kept
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2:
				there[key] = rapid.SampledFrom(values).Draw(t, "value")
				s.Put(key, []byte(there[key]))
			case 3:
				delete(there, key)
				s.Delete(key)
			case 4: // some events were missed, then all is listed
				delete(there, key)
				s.BeginList()
				for k, v := range there {
					s.Put(k, []byte(v))
				}
				s.EndList("/calico/")
			case 5:
				snap := s.Snapshot(int64(len(history)))
				history = append(history, kept{snap, deepCopy(snap)})
			}
		}
		scratch := NewStore("edge-1")
		for k, v := range there {
			scratch.Put(k, []byte(v))
		}
		got, want := s.Snapshot(9), scratch.Snapshot(9)
		if diff := cmp.Diff(want, got, byValue); diff != "" {
			t.Fatal(diff)
		}
		for _, h := range history {
			if diff := cmp.Diff(h.copy, h.snap, byValue); diff != "" {
				t.Fatalf("a published snapshot changed:\n%s", diff)
			}
		}
	})
}

// deepCopy copies the maps; their values are never edited in place.
func deepCopy(s *Snapshot) *Snapshot {
	c := *s
	c.Nodes, c.IPPools, c.Blocks, c.Affinities = maps.Clone(s.Nodes), maps.Clone(s.IPPools),
		maps.Clone(s.Blocks), maps.Clone(s.Affinities)
	c.BGPConfigurations, c.BGPPeers, c.BGPFilters = maps.Clone(s.BGPConfigurations),
		maps.Clone(s.BGPPeers), maps.Clone(s.BGPFilters)
	c.LiveMigrations, c.Felix = maps.Clone(s.LiveMigrations), maps.Clone(s.Felix)
	c.WorkloadEndpoints, c.Problems = maps.Clone(s.WorkloadEndpoints), slices.Clone(s.Problems)
	return &c
}

// BenchmarkOneBlockOfTenThousand is a change of one block in a large cluster, up to the new
// snapshot.
func BenchmarkOneBlockOfTenThousand(b *testing.B) {
	s := NewStore("edge-1")
	value := func(cidr netip.Prefix, n int) []byte {
		var v strings.Builder
		fmt.Fprintf(&v, `{"cidr":%q,"affinity":"host:node-%d","allocations":[`, cidr, n)
		for i := range 64 {
			fmt.Fprintf(&v, "%s%d", strings.Repeat(",", min(i, 1)), i)
		}
		v.WriteString(`],"attributes":[`)
		for i := range 64 {
			fmt.Fprintf(&v,
				`%s{"handle_id":"k8s-pod-network.%064d","secondary":{"namespace":"ns",
					"node":"node-%d","pod":"pod-%d"}}`, strings.Repeat(",", min(i, 1)), i, n, i)
		}
		v.WriteString("]}")
		return []byte(v.String())
	}
	cidr := func(n int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 10), byte(n >> 2),
			byte(n << 6)}), 26)
	}
	for n := range 10_000 {
		s.Put(Key{Kind: KindBlock, CIDR: cidr(n)}.String(), value(cidr(n), n))
	}
	if got := len(s.Snapshot(0).Blocks); got != 10_000 {
		b.Fatal(got)
	}
	key := Key{Kind: KindBlock, CIDR: cidr(77)}.String()
	values := [][]byte{value(cidr(77), 1), value(cidr(77), 2)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Put(key, values[i%2])
		s.Snapshot(int64(i))
	}
}

// Where names do not follow from what is named, two objects may name the same.
func TestASecondPlaceWaitsForTheFirst(t *testing.T) {
	s := NewStore("a")
	key := Key{Kind: KindIPPool, Name: "pods"}
	pool := func(cidr string) Item {
		return Item{Key: key, Name: "IPPool(" + cidr + ")", Value: IPPool{Name: "pods",
			CIDR: netip.MustParsePrefix(cidr)}}
	}
	is := func(want string, problems int) {
		t.Helper()
		snap := s.Snapshot(1)
		if got := snap.IPPools["pods"].CIDR; got.IsValid() != (want != "") ||
			want != "" && got != netip.MustParsePrefix(want) {
			t.Errorf("got %v, want %q", got, want)
		}
		if len(snap.Problems) != problems {
			t.Errorf("problems %v", snap.Problems)
		}
	}
	s.Set("one", pool("10.1.0.0/16"))
	s.Set("two", pool("10.2.0.0/16"))
	s.Set("three", pool("10.3.0.0/16"))
	is("10.1.0.0/16", 2)
	if p := s.Snapshot(1).Problems[0]; p.Resource != "IPPool(10.3.0.0/16)" ||
		p.Err != "key: names the same as one, which counts" {
		t.Errorf("%+v", p)
	}
	s.Delete("three")
	s.Delete("one")
	is("10.2.0.0/16", 0)
	s.Set("one", pool("10.1.0.0/16"))
	is("10.2.0.0/16", 1)
	// A list that has neither: the one that waited is not taken for a new one.
	s.BeginList()
	s.EndList("")
	is("", 0)
	if s.waiting != 0 {
		t.Errorf("%d wait", s.waiting)
	}

	s.Set("one", pool("10.1.0.0/16"))
	s.Set("one", Item{Name: "IPPool(pods)", Err: errors.New("it says not what it names")})
	is("10.1.0.0/16", 1)
	other := pool("10.4.0.0/16")
	other.Key.Name = "other"
	s.Set("one", other) // it names another now
	is("", 0)
	if got := s.Value(other.Key); !reflect.DeepEqual(got, other.Value) {
		t.Errorf("%v", got)
	}
	if s.Value(key) != nil || s.Value(Key{Kind: "Pod"}) != nil {
		t.Error("there is nothing")
	}
}

// A problem quotes what is wrong, and is short although that is long.
func TestAProblemIsBounded(t *testing.T) {
	long := strings.Repeat("é", 300_000)
	for key, value := range map[string]string{
		resources + "ippools/a":  `{"kind":"IPPool","spec":{"cidr":"` + long + `"}}`,
		resources + "bgppeers/a": `{"kind":"BGPPeer","spec":{"asNumber":"` + long + `"}}`,
		resources + "nodes/a":    `{"kind":"` + long + `"}`,
		blockPath + "ipv4/block/10.1.0.0-26": `{"cidr":"10.1.0.0/26","affinity":"` + long +
			`","allocations":[],"attributes":[]}`,
	} {
		s := NewStoreFor("edge-7", Needs{NoBGP: true})
		s.Put(key, []byte(value))
		all := s.Snapshot(1).Problems
		if len(all) != 1 || len(all[0].Err) > 1100 || !utf8.ValidString(all[0].Err) ||
			!strings.HasSuffix(all[0].Err, "é…") {
			t.Errorf("%s: %d problems, %.1200v", key, len(all), all)
		}
	}
}
