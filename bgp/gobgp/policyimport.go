package gobgp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
)

// importer writes the import policy: what is accepted, what is changed on it, and the marks by which export goes.
type importer struct {
	statements
	policy
}

func (i *importer) build() {
	// Our own routes come with their marks. Next hops below are not asked of them either.
	i.add("own", &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL}, accept())
	i.add("foreign-marks", &api.Conditions{LargeCommunitySet: i.large("marked", anyMark)}, removeMarks(anyMark))
	if hops := slices.Concat(i.own, i.dead); len(hops) > 0 { // an empty list would match everything
		i.add("unusable-next-hop", &api.Conditions{NextHopInList: addrStrings(hops)}, reject())
	}
	i.filters()
	i.reflected()
	if i.hush {
		for _, m := range i.prefixes("announced", i.announced, false) {
			i.add("announced", &api.Conditions{PrefixSet: m}, accept())
		}
		// GoBGP sends no peer what has that peer's AS in its AS_PATH, looks at that before anything that costs, and holds withdrawals against it
		// as well. All learned paths get longer by the same, and nobody outside sees them.
		i.add("hush", &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_INTERNAL}, &api.Actions{AsPrepend: &api.AsPrependAction{Asn: i.as, Repeat: 1}})
	}
	if !i.passes() {
		return
	}
	for _, a := range i.pass.Advertisements {
		for _, m := range i.prefixes("advertisement", []netip.Prefix{a.Prefix}, true) {
			i.add("advertisement", &api.Conditions{PrefixSet: m}, addMark(i.numbers.advertisement(a)))
		}
	}
	if slices.ContainsFunc(i.classes, func(c class) bool { return c.number != 0 }) {
		i.commonThenClasses()
	} else {
		i.common()
	}
}

// filters carries out import filters: of the rules that match the first decides. Statements cannot skip others, so they come backwards, and each one takes
// back what the ones before it said.
func (i *importer) filters() {
	marked := false
	for _, from := range i.sources() {
		rules := i.pass.Rules(from.peer, true)
		for len(rules) > 0 { // at the end of the list accepting is what happens anyway
			last := rules[len(rules)-1]
			if !last.Accept || len(last.Operations) > 0 {
				break
			}
			rules = rules[:len(rules)-1]
		}
		set, ok := i.peers("from", from.members, false)
		if !ok {
			continue
		}
		for k, r := range slices.Backward(rules) {
			c := &api.Conditions{NeighborSet: set}
			if !i.conditions(r.Match, from.peer, true, c) {
				continue
			}
			if k < len(rules)-1 {
				i.add(r.Name, c, removeMarks(patternOf(groupImport)))
			}
			if !r.Accept || len(r.Operations) > 0 {
				i.add(r.Name, c, addMark(i.numbers.verdict(groupImport, r.Accept, r.Operations)))
			}
			marked = true
		}
		for _, r := range rules {
			if r.Accept && len(r.Operations) > 0 {
				i.operate(i.numbers.verdict(groupImport, true, r.Operations), r.Operations)
			}
		}
	}
	if marked {
		i.add("import-rejected", &api.Conditions{LargeCommunitySet: i.large("import-rejected", mark{groupImport, 0}.pattern())}, reject())
		i.add("imported", &api.Conditions{LargeCommunitySet: i.large("imported", patternOf(groupImport))}, removeMarks(patternOf(groupImport)))
	}
}

// operate carries out the operations that a mark stands for. It takes the mark away, so that another rule with the same operations does not
// repeat them.
func (i *importer) operate(m mark, ops []bgp.Operation) {
	c := &api.Conditions{LargeCommunitySet: i.large("import "+m.String(), m.pattern())}
	i.add("operate", c, actionsOf(ops)...)
	i.add("operated", c, removeMarks(m.String()))
}

// sources are the peers with import filters, those alike together.
func (i *importer) sources() []class {
	byKind := map[string]*class{}
	for _, p := range i.peerList {
		if len(i.pass.Rules(p, true)) == 0 {
			continue
		}
		kind := fmt.Sprint(p.Address.Is4(), p.External(), p.Filters)
		if byKind[kind] == nil {
			byKind[kind] = &class{peer: p}
		}
		byKind[kind].members = append(byKind[kind].members, p.Address)
	}
	var out []class
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		out = append(out, *byKind[kind])
	}
	return out
}

// conditions translates those of a rule of peer's filters, for learned routes. ok is false if it can match none.
func (s *statements) conditions(m bgp.Match, peer bgp.Peer, in bool, c *api.Conditions) (ok bool) {
	if m.Interface != "" || m.PeerType == "eBGP" && !peer.External() || m.PeerType == "iBGP" && peer.External() {
		return false
	}
	if as := m.ASPath; len(as) > 0 {
		if !in && peer.External() { // filters see the path as it leaves
			if as[0] != peer.LocalAS {
				return false
			}
			as = as[1:]
		}
		if len(as) > 0 {
			c.AsPathSet = s.asPath(as)
		}
	}
	switch {
	case m.Community == nil:
	case m.Community.Large:
		c.LargeCommunitySet = s.large("large", "^"+m.Community.String()+"$")
	default:
		c.CommunitySet = s.communities("community", *m.Community)
	}
	c.LocalPrefEq = m.LocalPref // from an eBGP peer it is GoBGP's default, bgp.FromExternal
	return s.prefix("rule", m, peer.Address.Is4(), c)
}

// reflectedMED is added to MED of what another reflector says.
const reflectedMED = 1 << 16

// reflected marks what may go on to iBGP peers. Without the marks nothing does, whatever GoBGP thinks of clients.
//
// A route from another reflector must lose against the same route from its client, or two reflectors prefer each other's copies, and the route outlives its
// origin. LOCAL_PREF would do it, but in Calico it says which of two nodes has a migrating address; so MED does, which copies of one
// route agree in otherwise.
func (i *importer) reflected() {
	if !i.pass.Reflects {
		return
	}
	internal := api.Conditions_ROUTE_TYPE_INTERNAL
	if set, ok := i.peers("served-not", i.unserved, true); ok {
		i.add("from-client", &api.Conditions{RouteType: internal, NeighborSet: set}, addMark(markFromClient))
	}
	if set, ok := i.peers("served-not", i.unserved, false); ok {
		i.add("from-non-client", &api.Conditions{RouteType: internal, NeighborSet: set}, addMark(markFromNonClient))
	}
	if set, ok := i.peers("reflectors", i.reflectors, false); ok {
		i.add("from-reflector", &api.Conditions{NeighborSet: set}, &api.Actions{Med: &api.MedAction{Type: api.MedAction_MOD, Value: reflectedMED}})
	}
}

// commonLists are the tests of bgp.Policies.Common in their order.
func (i *importer) commonLists() []commonList {
	lists := []commonList{
		{"no-export-pool", i.pass.NoExport, true, false},
		{"own-block", i.pass.OwnBlocks, false, true},
		{"elevated", i.pass.Elevated, false, true},
		{"inside-own-block", i.pass.OwnBlocks, true, false},
		{"service", i.pass.Services, true, true},
		{"reflected-service", i.pass.ReflectedServices, true, true},
		{"export-pool", i.pass.ExportPools, true, true},
	}
	if !i.pass.Reflects {
		lists = slices.DeleteFunc(lists, func(l commonList) bool { return l.name == "reflected-service" })
	}
	return lists
}

type commonList struct {
	name           string
	prefixes       []netip.Prefix
	longer, passes bool
}

// common ends with the first test that matches: a path is marked once or not at all.
func (i *importer) common() {
	for _, l := range i.commonLists() {
		for _, m := range i.prefixes(l.name, l.prefixes, l.longer) {
			actions := accept()
			if !l.passes {
				actions = addMark(markRejected)
				actions.RouteAction = api.RouteAction_ACCEPT
			}
			i.add(l.name, &api.Conditions{PrefixSet: m}, actions)
		}
	}
	i.add("outside-all-pools", &api.Conditions{}, addMark(markRejected))
}

// commonThenClasses comes to the same mark as common without ending there, by going backwards, and then marks for each class what its filters say.
func (i *importer) commonThenClasses() {
	i.add("outside-all-pools", &api.Conditions{}, addMark(markRejected))
	for _, l := range slices.Backward(i.commonLists()) {
		for _, m := range i.prefixes(l.name, l.prefixes, l.longer) {
			c := &api.Conditions{PrefixSet: m}
			i.add(l.name, c, removeMarks(markRejected.String()))
			if !l.passes {
				i.add(l.name, c, addMark(markRejected))
			}
		}
	}
	for _, k := range i.classes {
		if k.number != 0 {
			i.class(k)
		}
	}
}

// class marks what a class gets of learned routes, backwards as in filters: the common verdict counts where no rule matches, and what may not be reflected
// to it counts before all rules.
func (i *importer) class(k class) {
	verdict := func(name string, c *api.Conditions, m mark) {
		i.add(name, c, removeMarks(patternOf(k.number)), addMark(m))
	}
	rejected := mark{k.number, 0}
	i.add("common", &api.Conditions{LargeCommunitySet: i.large("rejected", markRejected.pattern())}, addMark(rejected))
	for _, r := range slices.Backward(i.pass.Rules(k.peer, false)) {
		c := &api.Conditions{}
		if m, some := r.OnLearned(); some && i.conditions(m, k.peer, false, c) {
			verdict(r.Name, c, i.numbers.verdict(k.number, r.Accept, r.Operations))
		}
	}
	if k.nonClient && i.pass.Reflects {
		verdict("from-non-client", &api.Conditions{LargeCommunitySet: i.large("from-non-client", markFromNonClient.pattern())}, rejected)
	}
}
