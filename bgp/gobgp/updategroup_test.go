package gobgp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
)

// One change of policy moves a peer into a group that is there already, and changes routes of that
// group: its other members receive it, too.
func TestGroupThatGrowsIsSentConcurrentChanges(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	for i, as := range []uint32{65001, 65002, 65002} {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 150+i), as)
	}
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	add := []bgp.Operation{{Add: &addedC}}
	n.plan.Policies.Filters = map[string]bgp.Filter{
		"none": {Export4: []bgp.Rule{{Name: "none"}}},
		"add":  {Import4: []bgp.Rule{{Name: "add", Accept: true, Operations: add}}},
	}
	n.plan.Peers[1].Filters = []string{"none"}
	set(t, n)
	source := dialFar(t, n, "127.0.0.150", 65001, 90, true, gracefulCap(false))
	moves := dialFar(t, n, "127.0.0.151", 65002, 90, true, gracefulCap(false))
	stays := dialFar(t, n, "127.0.0.152", 65002, 90, true, gracefulCap(false))
	source.announce("10.1.0.0/26", "127.0.0.150", 65001)
	heard := func(f *far) func() string {
		return func() string { return f.routes()[pfx("10.1.0.0/26")] }
	}
	plain := fmt.Sprintf("path [64512 65001] pref - med - hop %s communities []", n.addr)
	eventually(t, "who stays", plain, heard(stays))
	eventually(t, "who moves", "", heard(moves))

	n.plan.Peers = slices.Clone(n.plan.Peers)
	n.plan.Peers[0].Filters, n.plan.Peers[1].Filters = []string{"add"}, nil
	set(t, n)
	added := fmt.Sprintf("path [64512 65001] pref - med - hop %s communities [9:9:9]", n.addr)
	eventually(t, "who moved", added, heard(moves))
	eventually(t, "who stayed", added, heard(stays))
}

// crowd is a node with peers of which several are in one update group, and what they announced.
type crowd struct {
	t       *testing.T
	n       *node
	as      []uint32
	addPath bool             // all peers have it
	fars    []*far           // nil: its session is down
	stories map[string]story // by peer and prefix
	dead    map[netip.Addr]bool
}

func (c *crowd) local(i int) string { return c.n.plan.Peers[i].Address.String() }

func (c *crowd) external(i int) bool { return c.as[i] != c.n.as }

// dial brings up a peer, with all that it has to announce.
func (c *crowd) dial(i int) {
	caps := []packet.ParameterCapabilityInterface{gracefulCap(false), packet.NewCapRouteRefresh()}
	if c.addPath {
		caps = append(caps, packet.NewCapAddPath([]*packet.CapAddPathTuple{
			packet.NewCapAddPathTuple(packet.RF_IPv4_UC, packet.BGP_ADD_PATH_BOTH),
		}))
	}
	c.fars[i] = dialFar(c.t, c.n, c.local(i), c.as[i], 90, true, caps...)
	for _, s := range c.stories {
		if s.from == i {
			s.send(c.fars[i], c.local(i), c.external(i))
		}
	}
	c.fars[i].endOfRIB()
}

// want is what a peer is to have of each prefix.
func (c *crowd) want(i int) map[netip.Prefix]string {
	nobody := map[netip.Prefix]bool{}
	plan := c.n.plan
	stories := slices.DeleteFunc(slices.Collect(maps.Values(c.stories)), func(s story) bool {
		return c.dead[addr(c.local(s.from))]
	})
	if !c.addPath || !plan.Policies.Reflects {
		return expected(plan, i, stories, nobody)
	}
	all := map[netip.Prefix][]string{}
	add := func(plan bgp.Plan, stories ...story) {
		for p, text := range expected(plan, i, stories, nobody) {
			all[p] = append(all[p], text)
		}
	}
	add(plan)
	plan.Announcements = nil
	for _, s := range stories {
		add(plan, s)
	}
	return joined(all)
}

// got is what a peer has.
func (c *crowd) got(f *far) map[netip.Prefix]string {
	all := map[netip.Prefix][]string{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, paths := range f.paths {
		if len(paths) > 0 {
			all[p] = slices.Collect(maps.Values(paths))
		}
	}
	return joined(all)
}

func joined(all map[netip.Prefix][]string) map[netip.Prefix]string {
	out := map[netip.Prefix]string{}
	for p, texts := range all {
		slices.Sort(texts)
		out[p] = strings.Join(texts, "; ")
	}
	return out
}

// Whatever came in whatever order, peers end with what the evaluator says about what holds by then.
func TestPeersHaveTheRIBAfterRandomChanges(t *testing.T) {
	for name, addPath := range map[string]bool{"best paths": false, "ADD-PATH": true} {
		t.Run(name, func(t *testing.T) {
			n := newLab(t).node(64512)
			as := []uint32{64512, 64512, 64512, 65001, 65001, 65001, 65002}
			c := &crowd{t: t, n: n, as: as, addPath: addPath,
				fars: make([]*far, len(as)), stories: map[string]story{},
				dead: map[netip.Addr]bool{}}
			prefixes := []netip.Prefix{}
			for i := range 6 {
				prefixes = append(prefixes, pfx(fmt.Sprintf("10.%d.0.0/24", 100+i)))
			}
			for i, as := range c.as {
				n.farPeer(fmt.Sprintf("127.0.0.%d", 160+i), as)
				n.plan.Peers[i].Client = !c.external(i)
			}
			rule := func(prefix netip.Prefix, ops ...bgp.Operation) []bgp.Rule {
				m := bgp.Match{Prefix: prefix, Min: 24, Max: 24}
				return []bgp.Rule{{Name: "rule", Match: m, Accept: len(ops) > 0, Operations: ops}}
			}
			n.plan.Policies = bgp.Policies{
				Reflects: true, ExportPools: []netip.Prefix{pfx("10.0.0.0/8")}, Normal4: 2147482623,
				Filters: map[string]bgp.Filter{
					"none":  {Export4: rule(prefixes[0])},
					"mark":  {Export4: rule(netip.Prefix{}, bgp.Operation{Add: &largeC})},
					"block": {Import4: rule(prefixes[1])},
					"add":   {Import4: rule(netip.Prefix{}, bgp.Operation{Add: &addedC})},
				},
			}
			set(t, n)
			for i := range c.as {
				c.dial(i)
			}
			rapid.Check(t, func(rt *rapid.T) {
				for range rapid.IntRange(1, 12).Draw(rt, "steps") {
					c.step(rt, prefixes)
				}
				for i, f := range c.fars {
					if f == nil {
						c.dial(i)
					}
				}
				for i, f := range c.fars {
					what := fmt.Sprintf("%+v of %+v\ngets", n.plan.Peers[i], n.plan.Policies)
					agree(rt, what, c.want(i), func() map[netip.Prefix]string { return c.got(f) })
				}
			})
			for i, f := range c.fars {
				f.mu.Lock()
				if f.strayWithdrawals > 0 {
					t.Errorf("%d withdrawals of what peer %d did not have", f.strayWithdrawals, i)
				}
				f.mu.Unlock()
			}
		})
	}
}

// step has one peer, or the configuration, do something.
func (c *crowd) step(rt *rapid.T, prefixes []netip.Prefix) {
	i := rapid.IntRange(0, len(c.as)-1).Draw(rt, "peer")
	f := c.fars[i]
	prefix := rapid.SampledFrom(prefixes).Draw(rt, "prefix")
	key := fmt.Sprint(i, prefix)
	kind := rapid.IntRange(0, 19).Draw(rt, "step")
	switch {
	case kind >= 15:
		c.reconfigure(rt)
	case kind == 14:
		if hop := addr(c.local(i)); c.dead[hop] {
			delete(c.dead, hop)
		} else {
			c.dead[hop] = true
		}
		if err := c.n.SetUsable(c.t.Context(),
			usableBut(slices.Collect(maps.Keys(c.dead))...)); err != nil {
			rt.Fatal(err)
		}
	case f == nil:
	case kind < 8:
		s := story{prefix: prefix, from: i, pref: 100}
		// No two peers have paths of one length, so who is best is clear.
		length := 1 + i + len(c.as)*rapid.IntRange(0, 2).Draw(rt, "length")
		s.path = slices.Repeat([]uint32{65100}, length)
		if c.external(i) {
			s.path[0] = c.as[i]
		}
		some := [][]bgp.Community{nil, {plainC}, {largeC}}
		s.communities = rapid.SampledFrom(some).Draw(rt, "communities")
		c.stories[key] = s
		s.send(f, c.local(i), c.external(i))
	case kind < 11:
		delete(c.stories, key)
		f.withdraw(prefix.String())
	case kind < 13:
		f.refresh()
	default: // it comes back, perhaps with less
		f.close()
		c.fars[i] = nil
		delete(c.stories, key)
	}
}

// reconfigure changes a little, so that most groups stay.
func (c *crowd) reconfigure(rt *rapid.T) {
	plan := &c.n.plan
	plan.Peers = slices.Clone(plan.Peers)
	some := [][]string{nil, nil, {"none"}, {"add"}, {"mark"}, {"block"}, {"none", "add"}}
	for range rapid.IntRange(1, 3).Draw(rt, "changes") {
		k := rapid.IntRange(0, len(c.as)-1).Draw(rt, "whose")
		plan.Peers[k].Filters = rapid.SampledFrom(some).Draw(rt, "filters")
	}
	switch rapid.IntRange(0, 9).Draw(rt, "more") {
	case 0:
		k := rapid.IntRange(0, 2).Draw(rt, "client")
		plan.Peers[k].Client = !plan.Peers[k].Client
	case 1:
		plan.Policies.Reflects = !plan.Policies.Reflects
	case 2, 3:
		if len(plan.Announcements) > 0 {
			c.n.withdraw("10.105.0.0/24")
		} else {
			c.n.announce("10.105.0.0/24", c.n.addr.String())
		}
	}
	if err := c.n.Set(c.t.Context(), *plan); err != nil {
		rt.Fatal(err)
	}
}

// A peer that does not read for a while hears what holds by then, whatever changed meanwhile:
// routes, whose they are, and the policy for it.
func TestLaggingPeerChangesItsGroup(t *testing.T) {
	n := newLab(t).node(64512)
	for i := range 3 {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 153+i), 64512)
		n.plan.Peers[i].Client = true
	}
	lag := []bgp.Rule{{Name: "lag", Accept: true, Operations: []bgp.Operation{{Add: &addedC}}}}
	n.plan.Policies = bgp.Policies{
		Reflects: true, ExportPools: []netip.Prefix{pfx("10.0.0.0/8")},
		Filters: map[string]bgp.Filter{"lag": {Export4: lag}},
	}
	set(t, n)
	var fars []*far
	for _, p := range n.plan.Peers {
		fars = append(fars, dialFar(t, n, p.Address.String(), 64512, 90, true, gracefulCap(false)))
	}
	source, reader, other := fars[0], fars[1], fars[2]
	for i := range 9 {
		source.announce(fmt.Sprintf("10.70.%d.0/24", i), "192.0.2.1")
	}
	eventually(t, "routes", 9, func() int { return len(reader.received()) })

	reader.mu.Lock() // its receiver takes one UPDATE more
	read := sync.OnceFunc(reader.mu.Unlock)
	defer read()
	if rest := source.write(changes(t, 5_000, 100, ballast), patience); len(rest) > 0 {
		t.Fatalf("%d bytes were not taken", len(rest))
	}
	source.withdraw("10.70.0.0/24")
	source.withdraw("10.70.1.0/24")
	source.announce("10.70.1.0/24", "192.0.2.2")
	other.announcePref("10.70.2.0/24", "192.0.2.3", 200)
	source.withdraw("10.70.3.0/24")
	other.announce("10.70.3.0/24", "192.0.2.3")
	reader.announcePref("10.70.5.0/24", "192.0.2.5", 300)
	for i := range 100 {
		source.withdraw(fmt.Sprintf("10.80.%d.0/26", i))
	}
	source.announce("10.71.0.0/24", "192.0.2.4")
	n.wantHops("10.71.0.0/24", "192.0.2.4")
	n.plan.Peers = slices.Clone(n.plan.Peers)
	n.plan.Peers[1].Filters = []string{"lag"}
	set(t, n)
	source.withdraw("10.70.4.0/24")
	source.announce("10.72.0.0/24", "192.0.2.4")
	n.wantHops("10.72.0.0/24", "192.0.2.4")
	n.plan.Peers = slices.Clone(n.plan.Peers)
	n.plan.Peers[2].Filters = []string{"lag"}
	set(t, n)
	read()

	text := func(pref, hop int) string {
		return fmt.Sprintf("path [] pref %d med - hop 192.0.2.%d communities [9:9:9]", pref, hop)
	}
	want := map[netip.Prefix]string{
		pfx("10.70.1.0/24"): text(100, 2),
		pfx("10.70.2.0/24"): text(200, 3),
		pfx("10.70.3.0/24"): text(100, 3),
		pfx("10.71.0.0/24"): text(100, 4),
		pfx("10.72.0.0/24"): text(100, 4),
	}
	for i := 6; i < 9; i++ {
		want[pfx(fmt.Sprintf("10.70.%d.0/24", i))] = text(100, 1)
	}
	eventually(t, "who did not read", want, reader.routes)
	delete(want, pfx("10.70.2.0/24")) // its own
	delete(want, pfx("10.70.3.0/24"))
	want[pfx("10.70.5.0/24")] = text(300, 5)
	eventually(t, "who did", want, other.routes)
	if c := reader.count(); c > 15_000 {
		t.Errorf("%d UPDATEs had waited", c)
	}
}

// Many peers that move into a group cost about what one does.
func TestManyPeersJoinAGroup(t *testing.T) {
	const peers, routes = 50, 10_000
	n := newLabAlone(t).node(64512)
	n.farPeer("127.0.0.156", 65001)
	for i := range peers {
		n.farPeer(fmt.Sprintf("127.0.1.%d", i), 65002)
	}
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	mark := []bgp.Rule{{Name: "mark", Accept: true, Operations: []bgp.Operation{{Add: &largeC}}}}
	n.plan.Policies.Filters = map[string]bgp.Filter{"mark": {Export4: mark}}
	for i := range peers - 1 {
		n.plan.Peers[2+i].Filters = []string{"mark"}
	}
	set(t, n)
	source := dialFar(t, n, "127.0.0.156", 65001, 90, true)
	var fars []*far
	for i := range peers {
		fars = append(fars, dialFar(t, n, fmt.Sprintf("127.0.1.%d", i), 65002, 90, true))
	}
	var nlri []*packet.IPAddrPrefix
	path := packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{65001})
	for i := range routes {
		nlri = append(nlri, ipv4(0, fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255)))
		if len(nlri) == 500 {
			attrs := pathAttributes("127.0.0.156", 100)[:3]
			attrs[1] = packet.NewPathAttributeAsPath([]packet.AsPathParamInterface{path})
			source.send(packet.NewBGPUpdateMessage(nil, attrs, nlri))
			nlri = nil
		}
	}
	last := pfx(fmt.Sprintf("10.%d.%d.0/24", (routes-1)>>8, (routes-1)&255))
	await := func(fars []*far, communities string) {
		for _, f := range fars {
			eventually(t, "communities", true, func() bool {
				return strings.HasSuffix(f.routes()[last], communities)
			})
		}
	}
	await(fars[:1], "communities []")
	await(fars[1:], "communities [1:2:3]")
	n.plan.Peers = slices.Clone(n.plan.Peers)
	for i := range n.plan.Peers {
		n.plan.Peers[i].Filters = nil
	}
	start := time.Now()
	set(t, n)
	took := time.Since(start)
	t.Logf("%d peers of %d routes were moved in %s", peers-1, routes, took)
	if most := 3 * sessionBudget(); took > most {
		t.Errorf("%s, most %s", took, most)
	}
	await(fars, "communities []")
}
