package gobgp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// story is a route that a far speaker announces, with what the wire has of it.
type story struct {
	prefix      netip.Prefix
	from        int // which far speaker
	path        []uint32
	pref        uint32 // iBGP
	med         uint32 // 0: none
	communities []bgp.Community
}

func (s story) send(f *far, hop string, external bool) {
	attrs := []packet.PathAttributeInterface{
		packet.NewPathAttributeOrigin(0), packet.NewPathAttributeAsPath(nil),
		packet.NewPathAttributeNextHop(hop),
	}
	if len(s.path) > 0 {
		attrs[1] = packet.NewPathAttributeAsPath([]packet.AsPathParamInterface{
			packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, s.path),
		})
	}
	if s.med != 0 {
		attrs = append(attrs, packet.NewPathAttributeMultiExitDisc(s.med))
	}
	if !external {
		attrs = append(attrs, packet.NewPathAttributeLocalPref(s.pref))
	}
	var standard []uint32
	var large []*packet.LargeCommunity
	for _, c := range s.communities {
		if c.Large {
			large = append(large, packet.NewLargeCommunity(c.Global, c.Data1, c.Data2))
		} else {
			standard = append(standard, c.Global<<16|c.Data1)
		}
	}
	if standard != nil {
		attrs = append(attrs, packet.NewPathAttributeCommunities(standard))
	}
	if large != nil {
		attrs = append(attrs, packet.NewPathAttributeLargeCommunities(large))
	}
	f.send(packet.NewBGPUpdateMessage(nil, attrs, []*packet.IPAddrPrefix{
		ipv4(0, s.prefix.String()),
	}))
}

var (
	plainC = bgp.Community{Global: 64512, Data1: 1}
	otherC = bgp.Community{Global: 65001, Data1: 2}
	largeC = bgp.Community{Large: true, Global: 1, Data1: 2, Data2: 3}
	addedC = bgp.Community{Large: true, Global: 9, Data1: 9, Data2: 9}
)

// anyMatch draws the conditions of a rule that GoBGP can carry out for every peer.
func anyMatch(t *rapid.T, prefixes []netip.Prefix) bgp.Match {
	var m bgp.Match
	for range rapid.IntRange(0, 2).Draw(t, "conditions") {
		switch rapid.IntRange(0, 6).Draw(t, "condition") {
		case 0, 1, 2:
			m.Prefix = rapid.SampledFrom(prefixes).Draw(t, "prefix")
			m.Not = rapid.Bool().Draw(t, "not")
			m.Min = m.Prefix.Bits()
			m.Max = rapid.SampledFrom([]int{m.Prefix.Bits(), 32, 26, 1}).Draw(t, "max")
		case 3:
			m.Community = rapid.SampledFrom([]*bgp.Community{&plainC, &otherC, &largeC,
				&addedC}).Draw(t, "community")
		case 4:
			m.ASPath = rapid.SampledFrom([][]uint32{{64512}, {65001}, {65002, 65003},
				{64512, 65002}, {65001, 65003}}).Draw(t, "path")
		case 5:
			m.PeerType = rapid.SampledFrom([]string{"iBGP", "eBGP"}).Draw(t, "type")
		default:
			m.LocalPref = rapid.SampledFrom([]uint32{100, 2147482623, 2147483135}).Draw(t, "pref")
		}
	}
	m.FromPeer = rapid.Bool().Draw(t, "remote")
	return m
}

func anyRules(t *rapid.T, name string, prefixes []netip.Prefix) []bgp.Rule {
	var rules []bgp.Rule
	for i := range rapid.IntRange(0, 3).Draw(t, name) {
		r := bgp.Rule{
			Name: fmt.Sprintf("%s[%d]", name, i), Match: anyMatch(t, prefixes),
			Accept: rapid.Bool().Draw(t, "accept"),
		}
		if rapid.IntRange(0, 5).Draw(t, "interface") == 0 {
			r.Match.Interface = rapid.SampledFrom([]string{"cali*", "eth0", "vxlan*"}).Draw(t,
				"pattern")
		}
		if r.Accept {
			r.Operations = rapid.SliceOfN(rapid.SampledFrom([]bgp.Operation{
				{Add: &plainC}, {Add: &addedC}, {Prepend: []uint32{65007, 65008}},
				{Prepend: []uint32{65009}}, {LocalPref: 2147483135},
			}), 0, 3).Draw(t, "operations")
		}
		rules = append(rules, r)
	}
	return rules
}

// GoBGP says what bgp.Policies say, of every route, to every peer, attribute for attribute,
// whatever was before; no session is touched.
func TestAgreesWithTheEvaluator(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	as := []uint32{64512, 64512, 64512, 65001, 65002, 64999, 64512, 65003}
	local := []uint32{64512, 64512, 64512, 64512, 64512, 64999, 64999, 64999} // localASNumber
	external := func(i int) bool { return as[i] != local[i] }
	var fars []*far
	for i := range as {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 70+i), as[i])
		n.plan.Peers[i].LocalAS = local[i]
	}
	n.plan.Announcements = []bgp.Announcement{
		{Prefix: pfx("10.9.0.0/26"), NextHop: n.addr, LocalPref: 2147482623},
		{Prefix: pfx("10.9.0.1/32"), NextHop: n.addr, LocalPref: 2147482623, Interface: "cali1"},
		{Prefix: pfx("10.50.2.0/24"), NextHop: n.addr, LocalPref: 2147482623},
		{
			Prefix: pfx("10.9.1.1/32"), NextHop: n.addr, LocalPref: 2147482623,
			Interface: "vxlan.calico",
		},
	}
	mine := n.plan.Announcements
	set(t, n)
	stories := []story{}
	for i := range as {
		fars = append(fars,
			dialFar(t, n, fmt.Sprintf("127.0.0.%d", 70+i), as[i], 90, true, gracefulCap(false)))
		base := story{from: i, pref: 100}
		if external(i) {
			base.path = []uint32{as[i]}
		}
		// Three prefixes come from everybody, with lengths that no filter evens out: who is best
		// changes with LOCAL_PREF alone.
		for k := range 3 {
			s := base
			s.prefix = pfx(fmt.Sprintf("10.50.%d.0/24", k))
			s.path = append(slices.Clone(s.path),
				slices.Repeat([]uint32{65100}, 10*((i*3+k)%len(as)))...)
			stories = append(stories, s)
		}
		for k, p := range []string{
			"10.%d.0.0/16", "10.%d.0.0/26", "10.%d.0.64/26", "10.%d.0.70/32", "10.%d.1.0/24",
			"10.%d.1.1/32",
		} {
			s := base
			s.prefix = pfx(fmt.Sprintf(p, i))
			if !external(i) {
				s.pref = []uint32{100, 2147482623, 2147483135}[(k+i)%3]
			}
			switch k {
			case 1:
				s.communities = []bgp.Community{otherC}
			case 2:
				s.communities = []bgp.Community{plainC, largeC}
			case 3:
				s.path = append(slices.Clone(s.path), 65003)
			case 4:
				s.communities, s.med = []bgp.Community{largeC}, 5
			case 5:
				s.communities = []bgp.Community{bgp.NoExport, largeC}
			}
			stories = append(stories, s)
		}
	}
	for _, s := range stories {
		s.send(fars[s.from], n.plan.Peers[s.from].Address.String(), external(s.from))
	}
	eventually(t, "routes learned", 6*len(as)+2, n.size) // 10.50.2.0/24 is our own
	since := func() (all []time.Time) {
		for _, p := range n.Peers() {
			all = append(all, p.Since)
		}
		return all
	}
	up := since()

	prefixes := []netip.Prefix{pfx("0.0.0.0/0"), pfx("10.0.0.0/8")}
	for _, s := range stories {
		prefixes = append(prefixes, s.prefix)
	}
	for _, a := range n.plan.Announcements {
		prefixes = append(prefixes, a.Prefix)
	}
	draws, sent := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		n.plan.Announcements = rapid.SliceOfNDistinct(rapid.SampledFrom(mine), 0, len(mine),
			func(a bgp.Announcement) netip.Prefix { return a.Prefix }).Draw(rt, "mine")
		drawPolicies(rt, n, prefixes)
		if err := n.Set(t.Context(), n.plan); err != nil {
			rt.Fatal(err)
		}
		learned := map[netip.Prefix]bool{}
		for i, f := range fars {
			want := expected(n.plan, i, stories, learned)
			sent += len(want)
			agree(rt, fmt.Sprintf("%+v of %+v\nannouncing %+v\ngets",
				n.plan.Peers[i], n.plan.Policies, n.plan.Announcements),
				want, f.routes)
		}
		agree(rt, "accepted", learned, func() map[netip.Prefix]bool {
			out := map[netip.Prefix]bool{}
			n.locked(func() {
				for p := range n.sets {
					out[p] = true
				}
			})
			return out
		})
		draws++
	})
	t.Logf("%d policies, %d routes sent by them", draws, sent)
	if !slices.Equal(since(), up) {
		t.Error("a session was reset")
	}
}

func agree[V comparable](
	t *rapid.T, what string, want map[netip.Prefix]V, got func() map[netip.Prefix]V,
) {
	deadline := time.Now().Add(2 * time.Minute)
	for g := got(); !maps.Equal(g, want); g = got() {
		if time.Now().After(deadline) {
			text := ""
			prefixes := maps.Keys(maps.Collect(both(g, want)))
			for _, p := range slices.SortedFunc(prefixes, route.ComparePrefixes) {
				if g[p] != want[p] {
					text += fmt.Sprintf("\n%s: %v, want %v", p, g[p], want[p])
				}
			}
			t.Fatalf("%s%s", what, text)
		}
		time.Sleep(time.Millisecond)
	}
}

func both[V any](a, b map[netip.Prefix]V) func(func(netip.Prefix, V) bool) {
	return func(yield func(netip.Prefix, V) bool) {
		maps.All(a)(yield)
		maps.All(b)(yield)
	}
}

// drawPolicies changes everything in the plan that needs no reset.
func drawPolicies(t *rapid.T, n *node, prefixes []netip.Prefix) {
	list := func(name string, most int) []netip.Prefix {
		out := rapid.SliceOfNDistinct(rapid.SampledFrom(prefixes), 0, most,
			rapid.ID[netip.Prefix]).Draw(t, name)
		slices.SortFunc(out, route.ComparePrefixes)
		return out
	}
	p := bgp.Policies{
		NoExport: list("no_export", 1), OwnBlocks: list("own_blocks", 3),
		ExportPools: list("export_pools", 4),
		Reflects:    rapid.Bool().Draw(t, "reflects"), Services: list("announced services", 1),
		ReflectedServices: list("services", 2), Filters: map[string]bgp.Filter{},
		Tunnels: rapid.SampledFrom([][]string{nil, {"*.cali", "*.calico"}}).Draw(t, "tunnels"),
		Normal4: 2147482623, Normal6: 2147482623, Leaving: rapid.Bool().Draw(t, "leaving"),
	}
	for _, prefix := range list("advertised", 2) {
		p.Advertisements = append(p.Advertisements, bgp.Advertisement{
			Prefix: prefix,
			Communities: rapid.SampledFrom([][]bgp.Community{{plainC}, {addedC},
				{otherC, addedC}}).Draw(t, "communities"),
		})
	}
	for _, name := range []string{"f", "g"} {
		p.Filters[name] = bgp.Filter{
			Export4: anyRules(t, "export", prefixes), Import4: anyRules(t, "import", prefixes),
		}
	}
	if rapid.Bool().Draw(t, "interfaces are known") {
		hops := []netip.Prefix{pfx("127.0.0.70/31"), pfx("127.0.0.73/32"), pfx("127.0.0.0/8")}
		p.Behind = map[string][]netip.Prefix{}
		for _, pattern := range []string{"cali*", "eth0", "vxlan*"} {
			p.Behind[pattern] = rapid.SliceOfNDistinct(rapid.SampledFrom(hops), 0, 2,
				rapid.ID[netip.Prefix]).Draw(t, pattern)
		}
	}
	n.plan.Policies = p
	n.plan.Peers = slices.Clone(n.plan.Peers)
	for i := range n.plan.Peers {
		peer := &n.plan.Peers[i]
		peer.Filters = rapid.SampledFrom([][]string{nil, nil, {"f"}, {"g"}, {"g", "f"}}).Draw(t,
			"filters")
		peer.NextHop = rapid.SampledFrom([]bgp.NextHopMode{bgp.NextHopAuto, bgp.NextHopSelf,
			bgp.NextHopKeep}).Draw(t, "next_hop")
		if !peer.External() {
			peer.Client = p.Reflects && rapid.Bool().Draw(t, "client")
			peer.Reflector = rapid.Bool().Draw(t, "reflector")
		}
	}
	n.plan.Announcements = slices.Clone(n.plan.Announcements)
	for i := range n.plan.Announcements {
		a := &n.plan.Announcements[i]
		a.OnlyByFilter = !p.Common(a.Route()).Accept
	}
}

// route is what policies see of it when it comes.
func (s story) route(from *bgp.Peer) bgp.Route {
	return bgp.Route{
		Prefix: s.prefix, From: from, NextHop: from.Address, LocalPref: s.pref, ASPath: s.path,
		Communities: s.communities,
	}
}

// expected returns what a peer is to be sent, and notes what is accepted from anybody.
func expected(
	plan bgp.Plan, to int, stories []story, learned map[netip.Prefix]bool,
) map[netip.Prefix]string {
	p, peer := plan.Policies, plan.Peers[to]
	out := map[netip.Prefix]string{}
	text := func(r bgp.Route, v bgp.Verdict, med uint32, hop netip.Addr) string {
		if peer.External() {
			r.ASPath = slices.Concat([]uint32{peer.LocalAS}, r.ASPath)
		}
		r = r.Apply(v.Operations)
		prefText, medText := fmt.Sprint(r.LocalPref), fmt.Sprint(med)
		if peer.External() {
			prefText, medText = "-", "-"
		}
		if med == 0 {
			medText = "-"
		}
		var communities []string
		for _, c := range r.Communities {
			communities = append(communities, c.String())
		}
		return describe(r.ASPath, prefText, medText, hop.String(), communities)
	}
	best := map[netip.Prefix][2]int{} // LOCAL_PREF, length of AS_PATH
	better := func(prefix netip.Prefix, pref uint32, length int) bool {
		b, ok := best[prefix]
		if ok && (b[0] > int(pref) || b[0] == int(pref) && b[1] < length) {
			return false
		}
		best[prefix] = [2]int{int(pref), length}
		delete(out, prefix)
		return true
	}
	for _, a := range plan.Announcements {
		better(a.Prefix, a.LocalPref, 0)
		if v := p.Export(a.Route(), peer); v.Accept {
			out[a.Prefix] = text(a.Route(), v, 0, a.NextHop)
		}
	}
	for _, s := range stories {
		source := plan.Peers[s.from]
		r, v := p.Import(s.route(&source))
		if !v.Accept {
			continue
		}
		med, hop := s.med, source.Address
		if !better(s.prefix, r.LocalPref, len(r.ASPath)) {
			continue
		}
		learned[s.prefix] = true
		if v = p.Export(r, peer); !v.Accept { // also where it is the peer's own
			continue
		}
		if peer.NextHop == bgp.NextHopSelf || peer.External() && peer.NextHop == bgp.NextHopAuto {
			hop = peer.LocalAddress
		}
		out[s.prefix] = text(r, v, med, hop)
	}
	return out
}
