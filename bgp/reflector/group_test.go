package reflector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vpp-route-agent/internal/calico"
)

// TestGroups: whichever reflectors and groups there are, each group gets what its topology says,
// nothing changes after that, and clients spread.
func TestGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &grouping{zoneOf: map[int]string{}, load: map[int]int{}}
		f.topology = rapid.SampledFrom([]Topology{Quorum, Multi}).Draw(t, "topology")
		zones := []string{""}
		if f.topology == Multi {
			zones = []string{"east", "north", "west"}
		}
		f.numbers = rapid.SliceOfNDistinct(rapid.IntRange(1, 12), 1, 9, rapid.ID).Draw(t, "numbers")
		slices.Sort(f.numbers)
		zone := rapid.SampledFrom([]string{"east", "north", "west"})
		for _, n := range f.numbers {
			f.zoneOf[n] = zone.Draw(t, "zone")
		}
		f.size = rules{Config: Config{Topology: f.topology}}.perNode(len(f.numbers))
		var now []group
		clients := map[string]int{}
		for i := range rapid.IntRange(0, 4).Draw(t, "groups") {
			g := group{Name: fmt.Sprint(i + 1), Zone: rapid.SampledFrom(zones).Draw(t, "its zone")}
			g.Reflectors = numbersText(rapid.SliceOfNDistinct(rapid.IntRange(1, 14), 1, 6,
				rapid.ID).Draw(t, "its reflectors"))
			clients[g.Name] = rapid.IntRange(0, 9).Draw(t, "its clients")
			now = append(now, g)
		}
		wanted := f.wanted(now, clients, zones)
		for i, g := range wanted {
			if err := f.fits(g); err != "" {
				t.Fatalf("%+v: %s", g, err)
			}
			for _, o := range wanted[:i] {
				common := 0
				for _, n := range g.numbers() {
					if slices.Contains(o.numbers(), n) {
						common++
					}
				}
				if f.topology == Quorum && common < min(2, len(f.numbers)) {
					t.Fatalf("%+v and %+v have %d reflectors in common", g, o, common)
				}
			}
		}
		f.load = map[int]int{}
		if again := f.wanted(wanted, clients, zones); !slices.Equal(again, wanted) {
			t.Fatalf("%+v became %+v", wanted, again)
		}
		if f.size == len(f.numbers) || len(now) > 0 {
			return
		}
		for range 60 {
			for _, z := range zones {
				if _, ok := f.join(wanted, z); !ok {
					t.Fatalf("a client of zone %q has no group in %+v", z, wanted)
				}
			}
		}
		if f.topology == Quorum { // 60 clients, and one that each of the groups counts for
			least, most := f.load[f.numbers[0]], 0
			for _, n := range f.numbers {
				least, most = min(least, f.load[n]), max(most, f.load[n])
			}
			if most-least > len(f.numbers) {
				t.Fatalf("reflectors have %v clients, by number", f.load)
			}
		}
	})
}

// fits says what is wrong with a group.
func (f *grouping) fits(g group) string {
	all := g.numbers()
	of := f.of(all, g.Zone)
	switch {
	case len(all) != f.size:
		return fmt.Sprintf("it has %d reflectors instead of %d", len(all), f.size)
	case slices.ContainsFunc(all, func(n int) bool { return !slices.Contains(f.numbers, n) }):
		return "one is no reflector"
	case f.topology == Quorum:
		return ""
	case of == 0 && f.of(f.numbers, g.Zone) > 0:
		return "none is of its zone"
	case of == len(all) && f.size > 1 && f.of(f.numbers, g.Zone) < len(f.numbers):
		return "none is of another zone"
	}
	return ""
}

// A node may see what a transaction writes one object after the other. Sessions come before others
// go: the group's BGPPeer before ours leaves the group out, and the other way round.
func TestOrderOfWritesOfGroups(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	goal := Goal{Mode: Reflectors, Config: Config{Topology: Quorum, Min: 4, Max: 4}}
	r, err := goal.Config.parse()
	must(err)
	peer, err := newPeer(peerName, outside(nil), labelled(r.Label), nil, start)
	must(err)
	off, err := meshOff([]byte(`{"spec":{"nodeToNodeMeshEnabled":true}}`), start)
	must(err)
	objects := map[calico.Key]Object{peerKey: {peerKey, peer, 1}, confKey: {confKey, off, 1}}
	for i := range 8 {
		o := numbered(i).object()
		if i < 4 {
			o.Value, err = setReflector(o.Value, r, i+1)
			must(err)
		}
		objects[o.Key] = o
	}
	for _, step := range []struct {
		mode   Mode
		writes string
	}{
		{Reflectors, "-1 -2 -3 -4 "}, {Mesh, "default"}, {Mesh, " -1 -2 -3 -4"},
	} {
		w := worldOf(slices.Collect(maps.Values(objects)), nil)
		w.Now, w.preview, goal.Mode = start, true, step.mode
		d := Next(w, goal)
		if d.Step == nil {
			t.Fatalf("no step: %+v", d.Wait)
		}
		var names []string
		for _, write := range d.Step.Writes {
			names = append(names, strings.TrimPrefix(write.Key.Name, peerName))
			if delete(objects, write.Key); write.Value != nil {
				objects[write.Key] = Object{write.Key, write.Value, 2}
			}
		}
		if got := strings.Join(names, " "); got != step.writes {
			t.Errorf("%s: written are %q, in this order", d.Step.Does, got)
		}
	}
}

// Of which topology the reflectors are, cannot change while there are some.
func TestTopologyStaysWhileThereAreReflectors(t *testing.T) {
	objects := func(c Config) (all []Object) {
		r, err := c.parse()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			o := numbered(i).object()
			if o.Value, err = setReflector(o.Value, r, i+1); err != nil {
				t.Fatal(err)
			}
			all = append(all, o)
		}
		return all
	}
	for _, was := range []Topology{Single, Quorum, Multi} {
		for _, now := range []Topology{Single, Quorum, Multi} {
			w := worldOf(objects(Config{Topology: was}), nil)
			said := decided(Next(w, Goal{Mode: Reflectors, Config: Config{Topology: now}}))
			want := fmt.Sprintf("made with %q, not with %q", was, now)
			if strings.Contains(said, want) != (was != now) {
				t.Errorf("%s instead of %s: %s", now, was, said)
			}
		}
	}
}
