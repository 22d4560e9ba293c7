package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
)

var filtersFG = map[string]bgp.Filter{
	"f": {Export4: []bgp.Rule{{Name: "f"}}, Export6: []bgp.Rule{{Name: "f"}}}, "g": {Export4: []bgp.Rule{{Name: "g", Accept: true}}}, "empty": {},
}

func classPeer(i int, filters ...string) bgp.Peer {
	return bgp.Peer{Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), RemoteAS: 65001, LocalAS: 64512, Filters: filters}
}

// printClasses prints numbers, from 16 on as letters, and last bytes of members.
func printClasses(all []class) string {
	var out []string
	for _, c := range all {
		number := "0"
		if c.number > 0 {
			number = string(rune('a' + c.number - firstClass))
		}
		var members []string
		for _, m := range c.members {
			b := m.As16()
			members = append(members, fmt.Sprint(b[15]))
		}
		out = append(out, number+":"+strings.Join(members, ","))
	}
	return strings.Join(out, " ")
}

func TestClasses(t *testing.T) {
	var c classes
	live := map[netip.Addr]bool{}
	step := func(what, want string, peers ...bgp.Peer) {
		t.Helper()
		got := c.assign(peers, bgp.Policies{Filters: filtersFG}, func(a netip.Addr) bool { return live[a] }, false)
		if text := printClasses(got); text != want {
			t.Errorf("%s: %s, want %s", what, text, want)
		}
		if again := c.assign(peers, bgp.Policies{Filters: filtersFG}, func(a netip.Addr) bool { return live[a] }, false); printClasses(again) != printClasses(got) {
			t.Errorf("%s, again: %s", what, printClasses(again))
		}
		clear(live)
		for _, p := range peers {
			live[p.Address] = true
		}
	}
	step("plain", "0:1,2", classPeer(1), classPeer(2, "empty"))
	step("new peers with a filter", "0:1,2 a:3,4", classPeer(1), classPeer(2), classPeer(3, "f"), classPeer(4, "f"))
	step("one more joins", "0:1,2 a:3,4,5", classPeer(1), classPeer(2), classPeer(3, "f"), classPeer(4, "f"), classPeer(5, "f"))
	step("a live one cannot join", "0:1 a:3,4,5 b:2", classPeer(1), classPeer(2, "f"), classPeer(3, "f"), classPeer(4, "f"), classPeer(5, "f"))
	step("all of a class change together", "0:1 a:3,4,5 b:2", classPeer(1), classPeer(2, "f"), classPeer(3, "g"), classPeer(4, "g"), classPeer(5, "g"))
	step("one parts", "0:1 a:3,4 b:2 c:5", classPeer(1), classPeer(2, "f"), classPeer(3, "g"), classPeer(4, "g"), classPeer(5, "f"))
	step("one loses its filter", "0:1 a:3 b:2 c:5 d:4", classPeer(1), classPeer(2, "f"), classPeer(3, "g"), classPeer(4), classPeer(5, "f"))
	step("classes end", "0:1", classPeer(1))
	step("and numbers do not come back", "0:1 e:2", classPeer(1), classPeer(2, "f"))
	clear(live) // GoBGP has them no more, as after a reset
	step("who is not live goes where it belongs", "0:1,2 f:3", classPeer(1), classPeer(2), classPeer(3, "g"))
}

func TestClassesByRole(t *testing.T) {
	var c classes
	pass := bgp.Policies{Reflects: true}
	yes := func(netip.Addr) bool { return true }
	inner := func(i int, client, reflector bool) bgp.Peer {
		p := classPeer(i)
		p.RemoteAS, p.Client, p.Reflector = 64512, client, reflector
		return p
	}
	assign := func(before bool, peers ...bgp.Peer) string { return printClasses(c.assign(peers, pass, yes, before)) }
	if got := assign(false, inner(1, true, false), inner(2, true, true)); got != "0:1,2" {
		t.Errorf("new: %s", got)
	}
	if got := assign(true, inner(1, true, true), inner(2, true, false)); got != "0:2 a:1" {
		t.Errorf("a client becomes a reflector: %s", got)
	}
	pass.Reflects = false
	if got := assign(true, inner(1, false, true), inner(2, false, false)); got != "0:2 a:1" {
		t.Errorf("we reflect no more: %s", got)
	}
}

// Peers that left the plain class together, or lost their filters together, part when they are no longer of one role: a client gets what a
// non-client does not.
func TestClassesOfOneRole(t *testing.T) {
	inner := func(i int, reflector bool, filters ...string) bgp.Peer {
		p := classPeer(i, filters...)
		p.RemoteAS, p.Client, p.Reflector = 64512, true, reflector
		return p
	}
	yes := func(netip.Addr) bool { return true }
	for _, way := range [][][]bgp.Peer{
		{{inner(1, false), inner(2, false)}, {inner(1, true), inner(2, true)}, {inner(1, true), inner(2, false)}},
		{{inner(1, false, "f"), inner(2, false, "f")}, {inner(1, true), inner(2, false)}},
		{{inner(1, false, "f"), inner(2, false, "f")}, {inner(1, false), inner(2, false)}, {inner(1, true), inner(2, false)}},
	} {
		var c classes
		var all []class
		for _, peers := range way {
			all = c.assign(peers, bgp.Policies{Reflects: true, Filters: filtersFG}, yes, true)
		}
		for _, k := range all {
			for _, a := range k.members {
				if nonClient := a == classPeer(1).Address; k.nonClient != nonClient {
					t.Errorf("after %d steps: %s is in class %d, for which nonClient is %v", len(way), a, k.number, k.nonClient)
				}
			}
		}
	}
}

// Peers that go from one filter to another one by one do not keep a class each: those of before are merged when there is something to change.
func TestClassesAreMerged(t *testing.T) {
	var c classes
	yes := func(netip.Addr) bool { return true }
	var peers []bgp.Peer
	for i := range 20 {
		peers = append(peers, classPeer(i, "f"))
	}
	assign := func() string {
		got := printClasses(c.assign(peers, bgp.Policies{Filters: filtersFG}, yes, false))
		if again := printClasses(c.assign(peers, bgp.Policies{Filters: filtersFG}, yes, false)); again != got {
			t.Fatalf("the same again: %s, before %s", again, got)
		}
		return got
	}
	assign()
	c.settled = true
	for i := range peers {
		peers[i] = classPeer(i, "g")
		if got := assign(); strings.Count(got, " ") > 2 {
			t.Fatalf("%d peers have moved: %s", i+1, got)
		}
	}
	c.settled = false // what the marks of before say is not known
	before := assign()
	peers[0] = classPeer(0, "f")
	if got := assign(); strings.Count(got, " ") != strings.Count(before, " ")+1 {
		t.Errorf("merged while unsettled: %s, before %s", got, before)
	}
}

// Numbers are those of one class each: at any time, and of what its live members were in before.
func TestClassProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c classes
		live := map[netip.Addr]uint32{}
		gone := map[uint32]bool{}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			var peers []bgp.Peer
			for i := range 6 {
				if rapid.IntRange(0, 4).Draw(t, "there") > 0 {
					peers = append(peers, classPeer(i, rapid.SampledFrom([][]string{nil, {"f"}, {"g"}, {"empty"}, {"f", "g"}}).Draw(t, "filters")...))
				}
			}
			kinds := map[netip.Addr]string{}
			for a, m := range c.of {
				kinds[a] = m.kind
			}
			c.settled = rapid.Bool().Draw(t, "settled")
			all := c.assign(peers, bgp.Policies{Filters: filtersFG}, func(a netip.Addr) bool { _, ok := live[a]; return ok }, false)
			now := map[netip.Addr]uint32{}
			seen := map[uint32]bool{}
			for _, k := range all {
				if seen[k.number] || gone[k.number] || k.number > 0 && k.number < firstClass || !slices.Contains(k.members, k.peer.Address) {
					t.Fatalf("class %+v twice, again or wrong", k)
				}
				seen[k.number] = true
				kind := ""
				for i, a := range k.members {
					p := peers[slices.IndexFunc(peers, func(p bgp.Peer) bool { return p.Address == a })]
					if i > 0 && kindOf(p, bgp.Policies{Filters: filtersFG}) != kind {
						t.Fatalf("two kinds in %+v", k)
					}
					kind = kindOf(p, bgp.Policies{Filters: filtersFG})
					if was, ok := live[a]; ok && was != k.number && slices.ContainsFunc(k.members, func(o netip.Addr) bool {
						n, ok := live[o]
						return ok && n == k.number && !(c.settled && kinds[o] == kinds[a])
					}) {
						t.Fatalf("%s joins a class that others were in", a)
					}
					now[a] = k.number
				}
			}
			if len(now) != len(peers) {
				t.Fatalf("%d of %d peers have a class", len(now), len(peers))
			}
			for _, n := range live {
				if n != 0 && !seen[n] {
					gone[n] = true
				}
			}
			live = now
		}
	})
}

// What GoBGP walks through for each path must not grow with the peers.
func TestStatementsDoNotGrowWithPeers(t *testing.T) {
	count := func(peers int) (statements, sets int) {
		plan := bgp.Plan{Policies: bgp.Policies{ExportPools: []netip.Prefix{pfx("10.0.0.0/8")}, Filters: filtersFG, Reflects: true}}
		for i := range peers {
			p := bgp.Peer{Address: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), RemoteAS: 64512, LocalAS: 64512, Filters: []string{"f"}, Client: true}
			if i%2 == 0 {
				p.RemoteAS, p.Filters, p.Client = 65001, []string{"g", "f"}, false
			}
			plan.Peers = append(plan.Peers, p)
		}
		var c classes
		p := policyOf(plan, numbers{})
		p.classes = c.assign(p.peerList, p.pass, func(netip.Addr) bool { return false }, false)
		r := p.api()
		return len(r.Policies[0].Statements) + len(r.Policies[1].Statements), len(r.DefinedSets)
	}
	few, fewSets := count(4)
	many, manySets := count(1000)
	if few != many || fewSets != manySets {
		t.Errorf("4 peers: %d statements and %d sets, 1000 peers: %d and %d", few, fewSets, many, manySets)
	}
	t.Logf("1000 peers of two classes: %d statements, %d sets", many, manySets)
}
