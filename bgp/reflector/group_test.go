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

// grouped is a cluster of eight nodes without a mesh, with four reflectors of ours.
type grouped struct {
	t       *testing.T
	objects map[calico.Key]Object
	goal    Goal
	answer  Change // of every agent to every question
}

func newGrouped(t *testing.T) *grouped {
	c := &grouped{t: t, objects: map[calico.Key]Object{}, goal: Goal{Mode: Reflectors,
		Since: start, Config: Config{Topology: Quorum, Min: 4, Max: 4}},
		answer: Change{Prefixes: 7, FewestCopies: 2}}
	r, err := c.goal.Config.parse()
	must(t, err)
	peer, err := newPeer(peerName, outside(nil), labelled(r.Label), nil, start)
	must(t, err)
	off, err := meshOff([]byte(`{"spec":{"nodeToNodeMeshEnabled":true}}`), start)
	must(t, err)
	c.put(Write{peerKey, peer})
	c.put(Write{confKey, off})
	for i := range 8 {
		n := numbered(i)
		value := n.object().Value
		if i < 4 {
			value, err = setReflector(value, r, i+1)
			must(t, err)
		}
		c.put(Write{nodeKey(n.name), value})
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *grouped) put(w Write) {
	if delete(c.objects, w.Key); w.Value != nil {
		c.objects[w.Key] = Object{w.Key, w.Value, int64(len(c.objects) + 1)}
	}
}

// next is what is decided when each agent has answered twice.
func (c *grouped) next() Decision {
	var asked []Answer
	for {
		w := Read(slices.Collect(maps.Values(c.objects)))
		w.Version, w.Now = "v1", start
		for i := range 8 {
			name := numbered(i).name
			a := Agent{Status: Status{
				Format: StatusFormat, Version: "v1", Digest: w.digest(name),
			}}
			for _, answer := range asked {
				answer.Digest = a.Status.Digest
				a.Answers = append(a.Answers, answer, answer)
			}
			w.Agents[name] = a
		}
		d := Next(w, c.goal)
		if d.Wait == nil || d.Wait.Ask == nil || len(asked) > 0 && asked[len(asked)-1].Question ==
			*d.Wait.Ask {
			return d
		}
		asked = append(asked, Answer{Question: *d.Wait.Ask, IPv4: c.answer})
	}
}

// step takes the next step, and returns the names of what it writes.
func (c *grouped) step() string {
	c.t.Helper()
	d := c.next()
	if d.Step == nil {
		c.t.Fatalf("no step: %+v, %q", d.Wait, d.Done)
	}
	var names []string
	for _, w := range d.Step.Writes {
		names = append(names, strings.TrimPrefix(w.Key.Name, peerName))
		c.put(w)
	}
	c.goal = d.Step.Goal
	return strings.Join(names, " ")
}

// A node may see what a transaction writes one object after the other. Sessions come before others
// go: the group's BGPPeer before ours leaves the group out, and the other way round.
func TestOrderOfWritesOfGroups(t *testing.T) {
	c := newGrouped(t)
	if got := c.step(); got != "-1 -2 -3 -4 " {
		t.Errorf("groups come in the order %q", got)
	}
	c.goal.Mode = Mesh
	if got := c.step(); got != "default" {
		t.Errorf("the mesh comes with %q", got)
	}
	if got := c.step(); got != " -1 -2 -3 -4" {
		t.Errorf("groups go in the order %q", got)
	}
}

// Nothing happens to clients of groups while a node would lose a route by it, or a second copy.
func TestGroupsWaitForAnswers(t *testing.T) {
	waits := func(c *grouped, what string) {
		t.Helper()
		good := c.answer
		for _, bad := range []Change{
			{Prefixes: 7, FewestCopies: 2, Missing: 1}, {Prefixes: 7, FewestCopies: 1},
			{Prefixes: 7, FewestCopies: 2, Changed: 1},
		} {
			c.answer = bad
			if d := c.next(); d.Wait == nil || !strings.Contains(d.Wait.What, what) {
				t.Errorf("with %+v it does not wait %q: %+v, %+v", bad, what, d, d.Wait)
			}
		}
		c.answer = good
	}
	c := newGrouped(t)
	c.step()
	waits(c, "with n0004 in group 1")
	for range 4 { // each client joins another group
		c.step()
	}
	if d := c.next(); d.Step == nil || !strings.HasPrefix(d.Step.Does, "verify") {
		t.Fatalf("clients have no groups yet: %+v", d)
	}
	c.goal.Since = start
	if err := c.cordon("n0000"); err != nil {
		t.Fatal(err)
	}
	if got := c.step(); got != "n0004" {
		t.Fatalf("written is %q, which does not leave its group", got)
	}
	waits(c, "with the new reflector n0004")
	for strings.HasPrefix(c.step(), "n0004") {
	}
	waits(c, "at the reflectors ")
}

func (c *grouped) cordon(node string) error {
	e := edit{value: c.objects[nodeKey(node)].Value}
	e.set("a reason", "metadata", "annotations", cordonNote)
	c.put(Write{nodeKey(node), e.value})
	return e.err
}
