package bgp

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// policiesFor returns what routes of node self and of its peers go by. Pools are tested one by one:
// a pool nested in one with disableBGPExport is not exported either.
func policiesFor(
	self calico.Node, own []netip.Prefix, peers []Peer, prefs map[family]uint32,
	services []netip.Prefix, s *calico.Snapshot,
) (Policies, []calico.Problem) {
	p := Policies{
		OwnBlocks: own, Services: route.Disjoint(services),
		Reflects: self.RouteReflectorClusterID != "",
		Normal4:  prefs[ipv4], Normal6: prefs[ipv6],
	}
	// BIRD takes 0.0.0.0 for "the router ID", which PlanFor fills in
	if id, err := netip.ParseAddr(self.RouteReflectorClusterID); err == nil && !id.IsUnspecified() {
		p.ClusterID = id
	}
	for _, pool := range ipam.Pools(s) {
		if pool.DisableBGPExport {
			p.NoExport = append(p.NoExport, pool.CIDR)
		} else {
			p.ExportPools = append(p.ExportPools, pool.CIDR)
		}
	}
	conf := s.BGPConfigurations["default"]
	p.Tunnels = tunnels(conf)
	if p.Reflects {
		p.ReflectedServices = prefixes(conf.ServiceExternalIPs, conf.ServiceLoadBalancerIPs)
	}
	var problems, more []calico.Problem
	p.Advertisements, problems = advertisements(self.Name, s)
	p.Filters, more = filtersOf(peers, s)
	return p, append(problems, more...)
}

// tunnels are the devices whose routes confd keeps from iBGP peers (reject_tunnel_routes, in HEAD
// IBGPExportFilterForTunnelRoutes): IPIP's too where Felix programs the routes of IPIP pools. Where
// nothing is said Calico 3.32 has BIRD do it and 3.33 Felix: a route too many does no harm.
func tunnels(conf calico.BGPConfiguration) []string {
	felix := []string{"*.cali", "*.calico"}
	switch conf.ProgramClusterRoutes {
	case "Disabled", "EnabledNoEncapOnly":
		return append(felix, "tunl0")
	}
	return felix
}

// prefixes returns what is a prefix in the lists.
func prefixes(lists ...[]string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range slices.Concat(lists...) {
		if p, err := netip.ParsePrefix(text); err == nil {
			if p, ok := route.Normalize(p); ok {
				out = append(out, p)
			}
		}
	}
	return sortedPrefixes(out)
}

// advertisements reads prefixAdvertisements. The list of node.<self> replaces the default one, also
// when it is empty (confd, getPrefixAdvertisementsKVPair), and names communities of its own object.
func advertisements(self string, s *calico.Snapshot) ([]Advertisement, []calico.Problem) {
	name := "node." + self
	if s.BGPConfigurations[name].PrefixAdvertisements == nil {
		name = "default"
	}
	conf := s.BGPConfigurations[name]
	var problems []calico.Problem
	bad := func(format string, args ...any) {
		problems = append(problems, calico.Problem{
			Resource: "BGPConfiguration(" + name + ")", Err: fmt.Sprintf(format, args...),
		})
	}
	named := map[string]string{}
	for _, c := range slices.Backward(conf.Communities) { // the first of a name counts
		named[c.Name] = c.Value
	}
	found := map[netip.Prefix][]Community{}
	for _, a := range conf.PrefixAdvertisements {
		cidr, err := netip.ParsePrefix(a.CIDR)
		cidr, ok := route.Normalize(cidr)
		if err != nil || !ok {
			bad("prefixAdvertisements: cidr %q is not a prefix", a.CIDR)
			continue
		}
		for _, text := range a.Communities {
			value := cmp.Or(named[text], text)
			if c, err := ParseCommunity(value); err != nil {
				bad("prefixAdvertisements of %s: %q is neither a community nor the name of one",
					cidr, text)
			} else if !slices.Contains(found[cidr], c) {
				found[cidr] = append(found[cidr], c)
			}
		}
	}
	var out []Advertisement
	for _, cidr := range slices.SortedFunc(maps.Keys(found), route.ComparePrefixes) {
		slices.SortFunc(found[cidr], compareCommunities)
		out = append(out, Advertisement{cidr, found[cidr]})
	}
	return out, problems
}

func compareCommunities(a, b Community) int {
	large := func(c Community) int {
		if c.Large {
			return 1
		}
		return 0
	}
	return cmp.Or(large(a)-large(b), cmp.Compare(a.Global, b.Global), cmp.Compare(a.Data1, b.Data1),
		cmp.Compare(a.Data2, b.Data2))
}

// filtersOf reads the filters that peers name. One that does not exist has no rules, as in Calico;
// one that exists and could never be decoded may not be passed over so.
func filtersOf(peers []Peer, s *calico.Snapshot) (map[string]Filter, []calico.Problem) {
	out := map[string]Filter{}
	var problems []calico.Problem
	for _, p := range peers {
		for _, name := range p.Filters {
			if _, ok := out[name]; ok {
				continue
			}
			f, ok := s.BGPFilters[name]
			if ok {
				var more []calico.Problem
				f.Name = name
				out[name], more = readFilter(f)
				problems = append(problems, more...)
				continue
			}
			out[name] = Filter{}
			key := "BGPFilter(" + name + ")"
			if slices.ContainsFunc(s.Problems, func(p calico.Problem) bool {
				return p.Resource == key
			}) {
				why := key + " cannot be read"
				out[name] = Filter{Unsafe4: why, Unsafe6: why}
				continue
			}
			problems = append(problems, calico.Problem{
				Resource: p.Source, Err: key + " does not exist and is passed over, as Calico does",
			})
		}
	}
	return out, problems
}

// filtering returns the peers with filters.
func filtering(peers []Peer) (with []Peer) {
	for _, p := range peers {
		if len(p.Filters) > 0 {
			with = append(with, p)
		}
	}
	return with
}

// fit returns the peers that can be served. Problems name those whose filters ask for the outgoing
// interface of a learned route: on export it is not known, on import not before the data plane
// answers.
func (p Policies) fit(peers []Peer) (fit []Peer, problems []calico.Problem) {
	fit = slices.Grow(fit, len(peers))
	speakers := speakersOf(peers)
	for _, peer := range peers {
		for _, in := range []bool{true, false} {
			for _, rule := range p.Rules(peer, in) {
				learned, hops, applies := p.OnImport(rule)
				unknown, none, all := func() bool { return p.Behind == nil }, noneYet, allYet
				if !in {
					hops = nil
					learned, applies = rule.OnLearned()
					unknown = func() bool { return p.mayHear(peer, speakers[peer.Address.Is4()]) }
					none, all = noInterface, allRejected
				}
				if rule.Match.Interface != "" && rule.Match.isFor(peer) && unknown() {
					what := none
					if !rule.Accept {
						what = all
					}
					key, list, _ := strings.Cut(rule.Name, " ")
					problems = append(problems, calico.Problem{
						Resource: key, Err: list + ": " + what,
					})
				}
				if applies && len(hops) == 0 && learned.catchesLearned(peer) {
					break // no learned route reaches the rules behind it
				}
			}
		}
		if refused := p.unsafe(peer); refused != "" {
			problems = append(problems, calico.Problem{
				Resource: peer.Source,
				Err: fmt.Sprintf("the session to %s is not brought up: %s",
					peer.ID(), refused),
			})
			continue
		}
		fit = append(fit, peer)
	}
	return fit, problems
}

// speakers are how many peers of a family there are, and how many of them are external or clients.
type speakers struct{ all, external, served int }

// speakersOf counts peers by family: true is IPv4.
func speakersOf(peers []Peer) map[bool]speakers {
	out := map[bool]speakers{}
	for _, p := range peers {
		s := out[p.Address.Is4()]
		s.all++
		if p.External() {
			s.external++
		}
		if p.Served() {
			s.served++
		}
		out[p.Address.Is4()] = s
	}
	return out
}

// mayHear reports whether BGP itself lets a peer, which is one of these speakers, hear another.
func (p Policies) mayHear(to Peer, from speakers) bool {
	others := from.all > 1
	if to.Served() {
		from.served--
	}
	if to.External() {
		return others
	}
	return from.external > 0 || p.Reflects && (to.Served() && others || from.served > 0)
}

// unsafe says which filter of peer keeps its session down in its family, and why; "" if none does.
func (p Policies) unsafe(peer Peer) string {
	for _, name := range peer.Filters {
		why := p.Filters[name].Unsafe4
		if familyOf(peer.Address) == ipv6 {
			why = p.Filters[name].Unsafe6
		}
		if why != "" {
			return why
		}
	}
	return ""
}

const (
	noInterface = "interface is not known of learned routes: it matches none of them"
	allRejected = "interface is not known of learned routes: those that its other conditions " +
		"match are rejected, whatever theirs is"
	notYet  = "interface is not known of learned routes before the data plane answers: until then "
	noneYet = notYet + "it matches none of them"
	allYet  = notYet + "those that its other conditions match are rejected"
)
