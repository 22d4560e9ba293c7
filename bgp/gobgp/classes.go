package gobgp

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"vpp-route-agent/bgp"
)

// class is a set of peers that export treats alike. Number 0 is the plain class of peers without export filters: its verdicts are the common marks.
// Each other class has marks of its own, and its number: firstClass or more, never used twice.
type class struct {
	number  uint32
	peer    bgp.Peer // any one of them
	members []netip.Addr
	// nonClient: of what is reflected they get only what came from clients. It is said by marks of the class, see (*classes).assign.
	nonClient bool
}

// classes remembers which peer is in which class.
type classes struct {
	last uint32
	of   map[netip.Addr]member
	// settled: every path in GoBGP has the marks of all classes as they were assigned last.
	settled bool
}

type member struct {
	number uint32
	kind   string
	served bool
}

// kindOf says what export to a peer depends on, pools aside: of two peers of one kind the same filters say the same.
func kindOf(p bgp.Peer, pass bgp.Policies) string {
	rules := pass.Rules(p, false)
	if len(rules) == 0 {
		return ""
	}
	text := fmt.Sprintf("v4 %v external %v local %d served %v", p.Address.Is4(), p.External(), p.LocalAS, p.Served())
	for _, name := range p.Filters {
		text += " " + name
	}
	return text
}

// assign puts each peer into a class. live are the peers that GoBGP has: what was sent to them is known only by the marks of the class that they
// are in. So live peers never join marks that were made before they did:
//
//   - those of one class that change together keep its number, whatever they become;
//   - those that part from a class, or leave the plain one, get a new number;
//   - those that stop being clients while we reflect leave the plain class: its verdict would be read off the marks of the source.
//
// The plain class and peers that are new cost nothing. A class lives as long as it has a member, or until it is merged: see spare.
func (c *classes) assign(peers []bgp.Peer, pass bgp.Policies, live func(netip.Addr) bool, reflected bool) []class {
	groups := map[string]map[uint32][]bgp.Peer{} // by kind, then the number of before
	fresh := map[string][]bgp.Peer{}             // by kind
	kinds := map[netip.Addr]string{}
	for _, p := range peers {
		kinds[p.Address] = c.kind(p, pass, live, reflected)
	}
	spare := c.spare(kinds)
	for _, p := range peers {
		kind := kinds[p.Address]
		before, known := c.of[p.Address]
		if !known || !live(p.Address) {
			fresh[kind] = append(fresh[kind], p)
			continue
		}
		if number, ok := spare[before.number]; ok {
			before.number = number
		}
		if groups[kind] == nil {
			groups[kind] = map[uint32][]bgp.Peer{}
		}
		groups[kind][before.number] = append(groups[kind][before.number], p)
	}
	var out []class
	add := func(number uint32, members []bgp.Peer) {
		slices.SortFunc(members, func(a, b bgp.Peer) int { return a.Address.Compare(b.Address) })
		k := class{number: number, peer: members[0]}
		for _, p := range members {
			k.members = append(k.members, p.Address)
		}
		if number != 0 {
			k.nonClient = !members[0].External() && !members[0].Served() // its kind is of one role
		}
		out = append(out, k)
	}
	keeps := c.keepers(groups)
	for _, kind := range slices.Sorted(maps.Keys(groups)) {
		joined := false
		for _, number := range slices.Sorted(maps.Keys(groups[kind])) {
			members := groups[kind][number]
			switch {
			case number == 0 && kind == "":
			case number == 0 || keeps[number] != kind:
				number = c.next()
			}
			if !joined { // the first is as good as any
				members = append(members, fresh[kind]...)
				delete(fresh, kind)
				joined = true
			}
			add(number, members)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(fresh)) {
		number := uint32(0)
		if kind != "" {
			number = c.vacant(kind, keeps)
		}
		add(number, fresh[kind])
	}
	slices.SortFunc(out, func(a, b class) int { return cmp.Compare(a.number, b.number) })
	c.remember(out, peers, kinds)
	return out
}

// kind is kindOf, except for live peers that would belong to the plain class and cannot be read off its marks: those with marks of their own.
func (c *classes) kind(p bgp.Peer, pass bgp.Policies, live func(netip.Addr) bool, reflected bool) string {
	kind := kindOf(p, pass)
	before, known := c.of[p.Address]
	if kind != "" || !known || !live(p.Address) {
		return kind
	}
	if before.number != 0 || reflected && pass.Reflects && before.served && !p.Served() {
		return fmt.Sprintf("none v4 %v external %v served %v", p.Address.Is4(), p.External(), p.Served())
	}
	return ""
}

// spare returns which classes others can do without: those of one kind have had the same verdicts since they became so, on every path when all of
// it is settled, and go on as the oldest of them. Without it, peers that move from one filter to another one by one would end in a class each. It
// waits until there is something to change anyway, since our own routes are sent again for it.
func (c *classes) spare(kinds map[netip.Addr]string) map[uint32]uint32 {
	changed := len(kinds) != len(c.of)
	for addr, kind := range kinds {
		before, known := c.of[addr]
		changed = changed || !known || before.kind != kind
	}
	if !changed || !c.settled {
		return nil
	}
	oldest := map[string]uint32{}
	for _, m := range c.of {
		if n, ok := oldest[m.kind]; m.number != 0 && (!ok || m.number < n) {
			oldest[m.kind] = m.number
		}
	}
	out := map[uint32]uint32{}
	for _, m := range c.of {
		if n := oldest[m.kind]; m.number != 0 && n != m.number {
			out[m.number] = n
		}
	}
	return out
}

func (c *classes) next() uint32 {
	c.last = max(c.last+1, firstClass)
	return c.last
}

// vacant returns a number for peers that GoBGP does not have: the one that their kind had, of which nobody is live, or a new one.
func (c *classes) vacant(kind string, keeps map[uint32]string) uint32 {
	had := uint32(0)
	for _, m := range c.of {
		if _, taken := keeps[m.number]; m.kind == kind && m.number != 0 && !taken && (had == 0 || m.number < had) {
			had = m.number
		}
	}
	if had != 0 {
		return had
	}
	return c.next()
}

// keepers returns which kind each number goes on with: the one it had if there is any left of it, else the first.
func (c *classes) keepers(groups map[string]map[uint32][]bgp.Peer) map[uint32]string {
	had := map[uint32]string{}
	for _, m := range c.of {
		had[m.number] = m.kind
	}
	out := map[uint32]string{}
	for _, kind := range slices.Sorted(maps.Keys(groups)) {
		for number := range groups[kind] {
			if now, ok := out[number]; !ok || kind == had[number] && now != kind {
				out[number] = kind
			}
		}
	}
	return out
}

func (c *classes) remember(all []class, peers []bgp.Peer, kinds map[netip.Addr]string) {
	c.of = map[netip.Addr]member{}
	numbers := map[netip.Addr]uint32{}
	for _, k := range all {
		for _, a := range k.members {
			numbers[a] = k.number
		}
	}
	for _, p := range peers {
		c.of[p.Address] = member{number: numbers[p.Address], kind: kinds[p.Address], served: p.Served()}
	}
}
