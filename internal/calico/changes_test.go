package calico

import (
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"vpp-route-agent/internal/changes"
)

// recorded writes changes and reads them again.
func recorded(t *testing.T, c changes.Changes) (r RecordedChanges) {
	t.Helper()
	text, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestChanges(t *testing.T) {
	p := netip.MustParsePrefix
	first := &Snapshot{Revision: 7, Lists: 1,
		Nodes: map[string]Node{"a": {Name: "a", ASNumber: 1}, "b": {Name: "b"},
			"c": {Name: "c"}},
		Blocks:   map[netip.Prefix]Block{p("10.1.0.0/26"): {}, p("10.1.0.64/26"): {}},
		PeerIPs:  map[PeerIP]netip.Addr{{Host: "a"}: netip.MustParseAddr("10.0.0.1")},
		Services: map[string]Service{"default/x": {}},
		Problems: []Problem{{Key: "x", Err: "bad"}},
	}
	second := *first
	second.Revision, second.DatastoreNotReady, second.Services = 8, true, nil
	second.Nodes = map[string]Node{"a": {Name: "a", ASNumber: 2}, "c": {Name: "c"},
		"d": {Name: "d"}}
	second.Blocks = map[netip.Prefix]Block{p("10.1.0.64/26"): {}}
	second.PeerIPs = map[PeerIP]netip.Addr{}
	second.Problems = nil

	var at Snapshot
	var before *Snapshot
	for i, s := range []*Snapshot{first, &second, first, {}} {
		was := at // its lists stay, unlike its maps
		for c := range ChangesOf(before, s) {
			if err := recorded(t, c).Apply(&at); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(&at, s) {
			t.Errorf("snapshot %d is\n%+v instead of\n%+v", i, at, s)
		}
		if before != nil && !reflect.DeepEqual(was.Problems, before.Problems) {
			t.Errorf("snapshot %d changed a list of the one before", i)
		}
		before = s
	}

	all := slices.Collect(ChangesOf(first, &second))
	if len(all) != 1 {
		t.Fatalf("%d pieces", len(all))
	}
	c := all[0]
	fields := slices.Sorted(maps.Keys(c.Set))
	want := []string{"DatastoreNotReady", "Nodes", "Problems", "Revision", "Services"}
	if !slices.Equal(fields, want) || len(c.Set["Nodes"].(map[string]Node)) != 2 ||
		!reflect.DeepEqual(c.Gone["Nodes"], []any{"b"}) {
		t.Errorf("changes %+v", c)
	}
	for c := range ChangesOf(first, first) {
		t.Errorf("nothing has changed but %+v", c)
	}
}

// What thousands of items have changed comes in pieces.
func TestManyChanges(t *testing.T) {
	large := &Snapshot{Revision: 9, Blocks: map[netip.Prefix]Block{}, Nodes: map[string]Node{}}
	for i := range 2 * changes.MaxItems {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i)})
		large.Blocks[netip.PrefixFrom(a, 32)] = Block{}
		large.Nodes[a.String()] = Node{Name: a.String()}
	}
	small := &Snapshot{Revision: 10, Blocks: map[netip.Prefix]Block{}, Nodes: map[string]Node{}}
	var at Snapshot
	var before *Snapshot
	for _, s := range []*Snapshot{large, small} {
		pieces := 0
		for c := range ChangesOf(before, s) {
			pieces++
			if err := recorded(t, c).Apply(&at); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(&at, s) || pieces < 4 || pieces > 5 {
			t.Errorf("%d pieces, %d blocks, %d nodes", pieces, len(at.Blocks), len(at.Nodes))
		}
		before = s
	}
}
