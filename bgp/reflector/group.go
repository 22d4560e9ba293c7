package reflector

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"vpp-route-agent/internal/calico"
)

// group is a set of reflectors with which some clients peer, by a BGPPeer of its own. All other
// nodes peer with every reflector, by the BGPPeer peerName: new ones, and the reflectors. It leaves
// out the groups that it names, and is written after theirs, so that a node that sees writes late
// always has sessions by one of the two (docs/decisions/0022-quorum-groups.md).
type group struct {
	Name       string `json:"name"`           // a number, from 1
	Zone       string `json:"zone,omitempty"` // of its clients; with Quorum they are of any
	Reflectors string `json:"reflectors"`     // their numbers, sorted, separated by commas
}

func (g group) numbers() (all []int) {
	for _, text := range strings.Split(g.Reflectors, ",") {
		if n, err := strconv.Atoi(text); err == nil {
			all = append(all, n)
		}
	}
	return all
}

func numbersText(numbers []int) string {
	slices.Sort(numbers)
	var all []string
	for _, n := range slices.Compact(numbers) {
		all = append(all, strconv.Itoa(n))
	}
	return strings.Join(all, ",")
}

// groupPeer is the name of the BGPPeer of a group.
func groupPeer(name string) string { return peerName + "-" + name }

func (g group) key() calico.Key {
	return calico.Key{Kind: calico.KindBGPPeer, Name: groupPeer(g.Name)}
}

func (g group) members() string { return fmt.Sprintf("%s == '%s'", groupLabel, g.Name) }

// groups are those that there are, by number.
func (w *World) groups() (all []group) {
	for k, m := range w.metadata {
		note := m.Annotations[groupNote]
		var g group
		if k.Kind != calico.KindBGPPeer || note == "" || json.Unmarshal([]byte(note), &g) != nil ||
			k != g.key() {
			continue // groupEdits says so
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b group) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// madeWith is the topology with which most of our reflectors were made, whatever a person has
// changed at the others; "": one or none may be of any.
func (d *decider) madeWith() Topology {
	all := d.ours()
	numbered, most, ids := 0, 0, map[string]int{}
	for _, name := range all {
		n := d.snapshot.Nodes[name]
		if n.Labels[numberLabel] != "" {
			numbered++
		}
		ids[n.RouteReflectorClusterID]++
		most = max(most, ids[n.RouteReflectorClusterID])
	}
	switch {
	case 2*numbered < len(all), numbered == 0 && len(all) > 0:
		return Single
	case len(all) < 2:
		return ""
	case 2*most > len(all):
		return Quorum
	}
	return Multi
}

// groupOf is the group of a node; "": it has none.
func (w *World) groupOf(node string) string { return w.snapshot.Nodes[node].Labels[groupLabel] }

// misgrouped says what a person did to the group of a client, by node. Without the label the client
// peers with every reflector, and joins a group again.
func (w *World) misgrouped() map[string]string {
	all, known := map[string]string{}, map[string]bool{}
	for _, g := range w.groups() {
		known[g.Name] = true
	}
	for name, n := range w.snapshot.Nodes {
		label, grouped := n.Labels[groupLabel]
		wrote := w.annotation(nodeKey(name), groupNote)
		switch {
		case !grouped:
		case wrote == "":
			all[name] = fmt.Sprintf("Node(%s): a person gave it the label %s", name, groupLabel)
		case label != wrote:
			all[name] = fmt.Sprintf("Node(%s): its label %s is %q, the controller wrote %q", name,
				groupLabel, label, wrote)
		case !known[label]:
			all[name] = fmt.Sprintf("Node(%s): there is no BGPPeer(%s) of its group", name,
				groupPeer(label))
		}
	}
	return all
}

// groupEdits say what a person did to groups. In operation a client in a group that is not ours is
// no edit: toGroups takes it out of that.
func (d *decider) groupEdits() (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	known := map[string]bool{}
	for _, g := range d.groups() {
		known[g.Name] = true
		value, err := newPeer(groupPeer(g.Name), g.members(), ofNumbers(g.Reflectors),
			d.objects[confKey].Value, d.Now)
		want := Read([]Object{{Key: g.key(), Value: value}}).snapshot.BGPPeers[groupPeer(g.Name)]
		switch {
		case err != nil:
			add("%s: %s", g.key().Resource(), err)
		case d.annotation(g.key(), roleNote) == "" ||
			!reflect.DeepEqual(want, d.snapshot.BGPPeers[groupPeer(g.Name)]):
			add("%s: a person changed it, or the password or restart time of the mesh",
				g.key().Resource())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.snapshot.BGPPeers)) {
		number, ok := strings.CutPrefix(name, peerName+"-")
		if ok && !known[number] && d.annotation(calico.Key{Kind: calico.KindBGPPeer, Name: name},
			groupNote) != "" {
			add("BGPPeer(%s): metadata.annotations[%s] is not what the controller wrote", name,
				groupNote)
		}
	}
	misgrouped := d.misgrouped()
	for _, name := range slices.Sorted(maps.Keys(d.snapshot.Nodes)) {
		labels := d.snapshot.Nodes[name].Labels
		number, numbered := labels[numberLabel]
		turn := ""
		if d.Topology != Single && d.isOurs(name) {
			turn = strconv.Itoa(d.turn(name))
		}
		if number != turn || numbered != (turn != "") {
			add("Node(%s): its label %s is not what the controller wrote", name, numberLabel)
		}
		if misgrouped[name] != "" && (d.goal.From != "" || d.Topology == Single) {
			add("%s", misgrouped[name])
		}
	}
	return all
}

// foreignRoles are the reflectors of persons: where not every client peers with every reflector
// nothing is known of whom they serve.
func (d *decider) foreignRoles() (all []string) {
	if d.Topology == Single {
		return nil
	}
	for _, n := range d.reflectors() {
		if !d.isOurs(n) {
			all = append(all, fmt.Sprintf("Node(%s): a person made it a reflector, beside which "+
				"there is no topology %s", n, d.Topology))
		}
	}
	return all
}

// grouping finds out which groups there shall be.
type grouping struct {
	topology Topology
	size     int            // reflectors of a group
	numbers  []int          // of the reflectors that stay, sorted
	zoneOf   map[int]string // of a reflector
	load     map[int]int    // clients of a reflector
	taken    map[int]bool   // numbers of groups whose BGPPeer would be another's
}

// newGrouping is that of the reflectors that were chosen and have the role.
func (d *decider) newGrouping(c Choice) *grouping {
	f := &grouping{topology: d.Topology, zoneOf: map[int]string{}, load: map[int]int{},
		taken: map[int]bool{}}
	for name := range d.snapshot.BGPPeers {
		text, _ := strings.CutPrefix(name, groupPeer(""))
		if n, err := strconv.Atoi(text); err == nil {
			f.taken[n] = true
		}
	}
	for _, r := range c.Reflectors {
		if d.isOurs(r.Node) {
			n := d.turn(r.Node)
			f.numbers = append(f.numbers, n)
			f.zoneOf[n] = r.Zone
		}
	}
	slices.Sort(f.numbers)
	f.size = d.perNode(len(f.numbers))
	return f
}

// wanted are the groups that shall be: those that are there, with what they lack or have too much,
// and new ones. clients is how many of them there are by group, zones are those of all nodes.
func (f *grouping) wanted(now []group, clients map[string]int, zones []string) []group {
	// One client more, so that groups without any spread over the reflectors, too.
	add := func(g group, weight int) {
		for _, n := range g.numbers() {
			f.load[n] += weight
		}
	}
	for _, g := range now {
		add(g, clients[g.Name]+1)
	}
	last := 0
	out := slices.Clone(now)
	for i, g := range out {
		add(g, -clients[g.Name]-1)
		out[i].Reflectors = numbersText(f.choose(g))
		add(out[i], clients[g.Name]+1)
		n, _ := strconv.Atoi(g.Name)
		last = max(last, n)
	}
	if f.size >= len(f.numbers) { // every client peers with every reflector
		return out
	}
	for _, zone := range zones {
		have, want := 0, len(f.numbers)
		for _, g := range out {
			if g.Zone == zone {
				have++
			}
		}
		if f.topology == Multi {
			want = max(1, len(f.in(f.numbers, zone, true)))
		}
		for ; have < want; have++ {
			for last++; f.taken[last]; last++ {
			}
			g := group{Name: strconv.Itoa(last), Zone: zone}
			g.Reflectors = numbersText(f.choose(g))
			add(g, 1)
			out = append(out, g)
		}
	}
	return out
}

// choose returns the reflectors that a group shall have. Those that it has stay, as far as the
// topology lets them.
func (f *grouping) choose(g group) []int {
	has := slices.DeleteFunc(g.numbers(), func(n int) bool {
		return !slices.Contains(f.numbers, n)
	})
	var chosen []int
	pick := func(from []int) {
		from = slices.DeleteFunc(slices.Clone(from), func(n int) bool {
			return slices.Contains(chosen, n)
		})
		if len(from) == 0 || len(chosen) >= f.size {
			return
		}
		chosen = append(chosen, slices.MinFunc(from, func(a, b int) int {
			return cmp.Or(
				first(slices.Contains(has, a), slices.Contains(has, b)),
				cmp.Compare(f.load[a], f.load[b]),
				cmp.Compare(f.of(chosen, f.zoneOf[a]), f.of(chosen, f.zoneOf[b])),
				cmp.Compare(a, b),
			)
		}))
	}
	if f.topology == Multi {
		pick(f.in(f.numbers, g.Zone, true))
		pick(f.in(f.numbers, g.Zone, false))
	}
	for range f.size {
		pick(f.numbers)
	}
	return chosen
}

// in are the reflectors of a zone, or those of all others.
func (f *grouping) in(numbers []int, zone string, inside bool) (all []int) {
	for _, n := range numbers {
		if (f.zoneOf[n] == zone) == inside {
			all = append(all, n)
		}
	}
	return all
}

// of is how many of some reflectors are of a zone.
func (f *grouping) of(numbers []int, zone string) int { return len(f.in(numbers, zone, true)) }

// join returns the group that a client of a zone shall join: the one whose reflectors have the
// fewest clients.
func (f *grouping) join(all []group, zone string) (group, bool) {
	fits := slices.DeleteFunc(slices.Clone(all), func(g group) bool {
		return g.Zone != zone || len(g.numbers()) == 0
	})
	if len(fits) == 0 {
		return group{}, false
	}
	load := func(g group) (sum int) {
		for _, n := range g.numbers() {
			sum += f.load[n]
		}
		return sum
	}
	g := slices.MinFunc(fits, func(a, b group) int { return cmp.Compare(load(a), load(b)) })
	for _, n := range g.numbers() {
		f.load[n]++
	}
	return g, true
}
