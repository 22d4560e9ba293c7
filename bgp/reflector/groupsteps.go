package reflector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxMembersAtOnce bounds the clients that join or leave a group in one step.
const maxMembersAtOnce = 50

// zoneOf is the zone of the groups that a client may join.
func (d *decider) zoneOf(node string) string {
	if d.Topology == Quorum {
		return ""
	}
	return d.snapshot.Nodes[node].Labels[d.ZoneLabel]
}

// toGroups takes clients from every reflector to the groups, once the mesh is off. A group gets new
// reflectors before it loses others. A step that only adds sessions waits for no answer; one that
// ends sessions first asks whether any route would be missing.
func (d *decider) toGroups(c Choice) (Decision, bool) {
	if d.Topology == Single {
		return Decision{}, false
	}
	if gone := d.empty(); len(gone) > 0 {
		return d.deleteGroups(gone), true
	}
	zones, clients := []string{}, map[string]int{}
	for _, n := range d.names {
		if !d.isReflector(n) {
			zones = append(zones, d.zoneOf(n))
		}
		if g := d.groupOf(n); g != "" {
			clients[g]++
		}
	}
	slices.Sort(zones)
	now, f := d.groups(), d.newGrouping(c)
	if len(f.numbers) == 0 {
		return byPerson("no reflector may stay, and no other node can be one; " +
			some(c.Problems, "; ")), true
	}
	wanted := f.wanted(now, clients, slices.Compact(zones))
	if decision, ok := d.addToGroups(now, wanted); ok {
		return decision, true
	}
	if strays := d.strays(wanted); len(strays) > 0 {
		return d.disband(strays), true
	}
	for i, g := range now {
		if g.Reflectors != wanted[i].Reflectors {
			q := Question{Group: g.Name, Reflectors: wanted[i].Reflectors}
			return d.when(d.applied, d.sessionsUp, d.keeping(q, f)).then(
				fmt.Sprintf("BGPPeer(%s): the reflectors %s, instead of %s", groupPeer(g.Name),
					d.nodesOf(wanted[i]), d.nodesOf(g)),
				d.writeGroups([]group{wanted[i]})), true
		}
	}
	return d.gather(f, wanted)
}

// empty are the groups of zones that have no node any more, once no client is in them. A zone with
// a reflector alone has clients when the role moves.
func (d *decider) empty() []group {
	zones, members := map[string]bool{}, map[string]bool{}
	for _, n := range d.names {
		zones[d.zoneOf(n)] = true
	}
	for n := range d.snapshot.Nodes { // also such as have lost their address
		members[d.groupOf(n)] = true
	}
	return slices.DeleteFunc(d.groups(), func(g group) bool {
		return zones[g.Zone] || members[g.Name]
	})
}

// addToGroups writes the groups that are new, and adds reflectors to those that lack some.
func (d *decider) addToGroups(now, wanted []group) (Decision, bool) {
	var more []group
	var names []string
	for i, g := range wanted {
		if i < len(now) {
			g.Reflectors = numbersText(append(now[i].numbers(), g.numbers()...))
			if g.Reflectors == now[i].Reflectors {
				continue
			}
		}
		if len(more) < d.room() {
			more = append(more, g)
			names = append(names, fmt.Sprintf("BGPPeer(%s)", groupPeer(g.Name)))
		}
	}
	if len(more) == 0 {
		return Decision{}, false
	}
	return d.when(d.applied).then("write "+some(names, ", ")+", which end no session",
		d.writeGroups(more)), true
}

// strays are the clients in a group of another zone than theirs, and the nodes that a person put
// into a group.
func (d *decider) strays(wanted []group) []string {
	zones, misgrouped := map[string]string{}, d.misgrouped()
	for _, g := range wanted {
		zones[g.Name] = g.Zone
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.snapshot.Nodes)), func(n string) bool {
		g := d.groupOf(n)
		return misgrouped[n] == "" && (g == "" || zones[g] == d.zoneOf(n))
	})
}

// gather has clients without a group join one.
func (d *decider) gather(f *grouping, wanted []group) (Decision, bool) {
	if f.size >= len(f.numbers) {
		return Decision{}, false
	}
	var into group
	var members []string
	bytes := 0
	for _, n := range d.names {
		if d.groupOf(n) != "" || d.isReflector(n) || d.dead[n] || !d.seenNode(n) && !d.preview {
			continue
		}
		g, ok := f.join(wanted, d.zoneOf(n))
		if !ok || into.Name != "" && g.Name != into.Name {
			continue
		}
		if bytes += len(n) + 1; len(members) == min(maxMembersAtOnce, d.room()) ||
			bytes > maxMembers {
			break
		}
		into, members = g, append(members, n)
	}
	if len(members) == 0 {
		return Decision{}, false
	}
	q := Question{Group: into.Name, Members: strings.Join(members, ",")}
	return d.when(d.applied, d.sessionsUp, d.keeping(q, f)).then(fmt.Sprintf(
		"%s: to the reflectors %s alone, group %s", named(members), d.nodesOf(into), into.Name),
		d.regroup(members, into.Name)), true
}

// keeping: no node needs the sessions that a change of groups ends, and every client keeps each
// route twice.
func (d *decider) keeping(q Question, f *grouping) gate {
	return func() *Wait { return d.answers(q, d.only(d.seenNode), d.copies(len(f.numbers))) }
}

// disband takes clients out of their groups: they get a session with every reflector.
func (d *decider) disband(members []string) Decision {
	members = members[:min(len(members), maxMembersAtOnce, d.room())]
	return d.when(d.applied).then(named(members)+": to every reflector, out of the group",
		d.regroup(members, ""))
}

// withoutGroups ends all groups; false: there are none.
func (d *decider) withoutGroups() (Decision, bool) {
	var members []string // also such as have lost their address meanwhile
	for _, n := range slices.Sorted(maps.Keys(d.snapshot.Nodes)) {
		if d.groupOf(n) != "" {
			members = append(members, n)
		}
	}
	if len(members) > 0 {
		return d.disband(members), true
	}
	all := d.groups()
	if len(all) == 0 {
		return Decision{}, false
	}
	return d.deleteGroups(all), true
}

// deleteGroups ends some groups, in which no client is.
func (d *decider) deleteGroups(gone []group) Decision {
	gone = gone[:min(len(gone), d.room())]
	var names []string
	for _, g := range gone {
		names = append(names, g.key().Resource())
	}
	return d.when(d.applied).then("delete "+some(names, ", "), func() ([]Write, error) {
		writes, err := d.leaveOut(slices.DeleteFunc(d.groups(), func(g group) bool {
			return slices.Contains(gone, g)
		}))
		for _, g := range gone {
			writes = append(writes, Write{Key: g.key()})
		}
		return writes, err
	})
}

// leaveOut has our BGPPeer leave out some groups.
func (d *decider) leaveOut(groups []group) ([]Write, error) {
	value, err := setNodes(d.objects[peerKey].Value, outside(groups))
	return put(peerKey, value, err)
}

// room is how many objects a step may write: it compares them, and the reflectors. One is too many
// where step says that there are too many reflectors.
func (d *decider) room() int { return max(1, maxCompared-2-len(d.reflectors())) }

// nodesOf names the reflectors of a group, for people.
func (d *decider) nodesOf(g group) string {
	var names []string
	for _, r := range d.ours() {
		if slices.Contains(g.numbers(), d.turn(r)) {
			names = append(names, r)
		}
	}
	return some(names, ", ")
}

// named names some Nodes.
func named(names []string) string {
	var all []string
	for _, n := range names {
		all = append(all, "Node("+n+")")
	}
	return some(all, ", ")
}

func (d *decider) regroup(members []string, group string) func() ([]Write, error) {
	return func() (all []Write, err error) {
		for _, n := range members {
			k := nodeKey(n)
			value, err := setGroup(d.objects[k].Value, group)
			w, err := put(k, value, err)
			if err != nil {
				return nil, err
			}
			all = append(all, w...)
		}
		return all, nil
	}
}

func (d *decider) writeGroups(groups []group) func() ([]Write, error) {
	return func() (all []Write, err error) {
		for _, g := range groups {
			value := d.objects[g.key()].Value
			if value == nil {
				value, err = newPeer(groupPeer(g.Name), g.members(), ofNumbers(g.Reflectors),
					d.objects[confKey].Value, d.Now)
			}
			if err == nil {
				value, err = setNumbers(value, g)
			}
			w, err := put(g.key(), value, err)
			if err != nil {
				return nil, err
			}
			all = append(all, w...)
		}
		there := d.groups()
		for _, g := range groups {
			if !slices.ContainsFunc(there, func(o group) bool { return o.Name == g.Name }) {
				there = append(there, g)
			}
		}
		if len(there) == len(d.groups()) {
			return all, nil
		}
		w, err := d.leaveOut(there)
		return append(all, w...), err
	}
}

// whole: no session is down. What a node has never heard, no answer of it counts as missing.
func (d *decider) whole() *Wait {
	if d.Topology == Single {
		return nil
	}
	return d.sessionsUp()
}

// isGrouped reports that clients may peer with some reflectors alone.
func (d *decider) isGrouped() bool { return len(d.groups()) > 0 }

// enters: nothing is missing once a node that has a session with every reflector becomes one, with
// the mesh off. Reflectors do not pass its routes on to each other any more.
func (d *decider) enters(node string) gate {
	return func() *Wait {
		if d.meshIsOn() || d.Topology == Single {
			return nil
		}
		if down := d.sessionsUp(); down != nil {
			return down
		}
		q := Question{Enter: node, Label: d.Label, ClusterID: d.clusterIDOf(d.nextTurn())}
		// While a reflector is dead, some clients have a single copy of what it passed on.
		copies := d.copies(len(d.reflectors()))
		oneIsDead := slices.ContainsFunc(d.reflectors(), func(r string) bool { return d.dead[r] })
		return d.answers(q, d.only(d.seenNode), func(n string) int {
			if n == node || oneIsDead {
				return 1 // as a reflector it has each route from the route's own node alone
			}
			return copies(n)
		})
	}
}
