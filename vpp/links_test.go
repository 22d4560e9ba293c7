package vpp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
)

// asked returns the names of the interfaces of list that VPP is to be asked about, where old was
// read before.
func asked(old *links, list []route.Interface, poll bool) (names []string, turn string) {
	ask, turn := old.carryTables(list, poll)
	for _, i := range ask {
		names = append(names, i.Name)
	}
	return names, turn
}

func TestTablesAreAskedForWhereSomethingChanged(t *testing.T) {
	subnet := []netip.Prefix{netip.MustParsePrefix("10.0.3.1/24")}
	old := &links{list: []route.Interface{
		{Name: "anew", Index: 1, Table: 7, Addresses: subnet},
		{Name: "none", Index: 2},
		{Name: "renumbered", Index: 3, Table: 7,
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.4.1/24")}},
		{Name: "same", Index: 4, Generation: 1, Table: 7, Addresses: subnet},
	}}
	list := []route.Interface{
		{Name: "anew", Index: 1, Generation: 1, Addresses: subnet},
		{Name: "new", Index: 5, Addresses: subnet},
		{Name: "none", Index: 2},
		{Name: "renumbered", Index: 3, Addresses: subnet},
		{Name: "same", Index: 4, Generation: 1, Addresses: subnet},
	}
	if names, _ := asked(old, list, false); !slices.Equal(names,
		[]string{"anew", "new", "renumbered"}) {
		t.Errorf("asked for %q", names)
	}
	if got := list[4].Table; got != 7 {
		t.Errorf("what is the same is in table %d, was in 7", got)
	}
	if names, _ := asked(old, list, true); !slices.Equal(names,
		[]string{"anew", "new", "renumbered", "same"}) {
		t.Errorf("a poll asks for %q", names)
	}
	if names, _ := asked(&links{}, nil, true); len(names) != 0 {
		t.Errorf("of no interfaces %q", names)
	}
}

// TestDeletedInterfaceIsNotFound, also before the next reading: its index may be another's.
func TestDeletedInterfaceIsNotFound(t *testing.T) {
	l := &session{gone: &deletions{}}
	l.gone.add(7)
	of := l.indexIn(&links{list: []route.Interface{{Name: "eth0", Index: 7, Generation: 1}}})
	if i, ok := of("eth0"); i != 7 || !ok {
		t.Errorf("eth0 is %d, %t", i, ok)
	}
	l.gone.add(7)
	if _, ok := of("eth0"); ok {
		t.Error("eth0 is found after it was deleted")
	}
}

func TestNoNameHidesAnInterfaceInATable(t *testing.T) {
	const rest = ", fib_index:1, flow hash:[src dst ] epoch:0 flags:none locks:["
	for shown, want := range map[string]bool{
		"red" + rest + "API:1, ]\n0.0.0.0/0 fib:1":                     true,
		"red" + rest + "interface:2, API:1, ]\n0.0.0.0/0 fib:1":        false,
		"x locks:[]" + rest + "interface:2, API:1, ]\n0.0.0.0/0 fib:1": false,
		"interface:7" + rest + "API:1, ]\n0.0.0.0/0 fib:1":             true,
		"red" + rest: false,
		"":           false,
	} {
		if hasNoInterface(shown) != want {
			t.Errorf("%q: %t", shown, !want)
		}
	}
}

// TestRestIsShort: a link that goes down meanwhile waits for its end.
func TestRestIsShort(t *testing.T) {
	if rest := restAfter(10 * time.Millisecond); rest != 40*time.Millisecond {
		t.Errorf("after a reading of 10ms VPP rests for %s", rest)
	}
	if rest := restAfter(10 * time.Second); rest != time.Second {
		t.Errorf("after a reading that VPP stood still in it rests for %s", rest)
	}
}

func TestPollsAskForTablesInTurn(t *testing.T) {
	for _, n := range []int{1, tablesPerPoll, tablesPerPoll + 1, 3*tablesPerPoll - 1} {
		l := &links{}
		for i := range n {
			l.list = append(l.list, route.Interface{Name: fmt.Sprintf("tap%03d", i),
				Index: uint32(i), Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.3.1/24")}})
		}
		for range 3 { // wherever the turn is
			seen := map[string]bool{}
			for range (n + tablesPerPoll - 1) / tablesPerPoll {
				var names []string
				names, l.turn = asked(l, slices.Clone(l.list), true)
				if len(names) > tablesPerPoll {
					t.Errorf("%d interfaces: a poll asks for %d", n, len(names))
				}
				for _, name := range names {
					seen[name] = true
				}
			}
			if len(seen) != n {
				t.Errorf("%d of %d interfaces asked for", len(seen), n)
			}
		}
		if names, turn := asked(l, slices.Clone(l.list), false); len(names) != 0 || turn != l.turn {
			t.Errorf("an event asks for %q of what is the same", names)
		}
	}
}
