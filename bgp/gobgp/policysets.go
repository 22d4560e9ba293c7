package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// statements collects the statements of one policy and the sets that they name.
type statements struct {
	sets  *[]*api.DefinedSet
	names map[string]int // GoBGP wants names of sets and statements once; shared by the policies
	all   []*api.Statement
}

// add appends a statement; without a route action evaluation goes on after it.
func (s *statements) add(name string, c *api.Conditions, actions ...*api.Actions) {
	for _, a := range actions {
		s.all = append(s.all, &api.Statement{Name: s.unique(name), Conditions: c, Actions: a})
	}
}

func (s *statements) unique(name string) string {
	s.names[name]++
	if n := s.names[name]; n > 1 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}

// set returns the name of a set with these members, a new one if there is none yet.
func (s *statements) set(kind api.DefinedType, name string, list []string) string {
	for _, d := range *s.sets {
		if d.DefinedType == kind && slices.Equal(d.List, list) {
			return d.Name
		}
	}
	d := &api.DefinedSet{DefinedType: kind, Name: s.unique(name), List: list}
	*s.sets = append(*s.sets, d)
	return d.Name
}

// peers matches peers of a set, or none of it with not. GoBGP takes an empty set for everybody: ok is false if nobody matches.
func (s *statements) peers(name string, addrs []netip.Addr, not bool) (m *api.MatchSet, ok bool) {
	if len(addrs) == 0 {
		return nil, not
	}
	list := make([]string, len(addrs))
	for i, a := range addrs {
		list[i] = route.HostPrefix(a).String()
	}
	m = &api.MatchSet{Name: s.set(api.DefinedType_NEIGHBOR, name, list)}
	if not {
		m.Type = api.MatchSet_INVERT
	}
	return m, true
}

// large matches paths with large communities for every pattern; none with a path that has one for none of them.
func (s *statements) large(name string, patterns ...string) *api.MatchSet {
	return &api.MatchSet{Type: api.MatchSet_ALL, Name: s.set(api.DefinedType_LARGE_COMMUNITY, name, patterns)}
}

func (s *statements) noLarge(name string, patterns ...string) *api.MatchSet {
	return &api.MatchSet{Type: api.MatchSet_INVERT, Name: s.set(api.DefinedType_LARGE_COMMUNITY, name, patterns)}
}

func (s *statements) communities(name string, all ...bgp.Community) *api.MatchSet {
	var list []string
	for _, c := range all {
		list = append(list, "^"+c.String()+"$")
	}
	return &api.MatchSet{Name: s.set(api.DefinedType_COMMUNITY, name, list)}
}

// asPath matches paths that begin with these AS numbers.
func (s *statements) asPath(as []uint32) *api.MatchSet {
	text := strings.Trim(fmt.Sprint(as), "[]")
	return &api.MatchSet{Name: s.set(api.DefinedType_AS_PATH, "as-path "+text, []string{"^" + text + "( |$)"})}
}

// prefixes makes a condition per family, because GoBGP's sets know one family only, and none where it would be empty. With longer, what is inside
// one of the prefixes matches as well.
func (s *statements) prefixes(name string, prefixes []netip.Prefix, longer bool) []*api.MatchSet {
	var out []*api.MatchSet
	for _, v4 := range []bool{true, false} {
		set := &api.DefinedSet{DefinedType: api.DefinedType_PREFIX}
		for _, p := range prefixes {
			if p.Addr().Is4() == v4 {
				most := p.Bits()
				if longer {
					most = p.Addr().BitLen()
				}
				set.Prefixes = append(set.Prefixes, &api.Prefix{
					IpPrefix: p.String(), MaskLengthMin: uint32(p.Bits()), MaskLengthMax: uint32(most),
				})
			}
		}
		if len(set.Prefixes) == 0 {
			continue
		}
		set.Name = s.unique(name + map[bool]string{true: "-ipv4", false: "-ipv6"}[v4])
		*s.sets = append(*s.sets, set)
		out = append(out, &api.MatchSet{Name: set.Name})
	}
	return out
}

// prefix matches what a rule says about the prefix. ok is false if no prefix can match.
func (s *statements) prefix(name string, m bgp.Match, v4 bool, c *api.Conditions) (ok bool) {
	if m.Prefix.IsValid() && m.Min <= m.Max {
		set := &api.DefinedSet{DefinedType: api.DefinedType_PREFIX, Name: s.unique(name), Prefixes: []*api.Prefix{{
			IpPrefix: m.Prefix.String(), MaskLengthMin: uint32(max(m.Min, m.Prefix.Bits())), MaskLengthMax: uint32(m.Max),
		}}}
		*s.sets = append(*s.sets, set)
		c.PrefixSet = &api.MatchSet{Name: set.Name}
		if m.Not { // of the other family it matches nothing then either
			c.PrefixSet.Type = api.MatchSet_INVERT
		}
		return true
	}
	family := ipv6Unicast
	if v4 {
		family = ipv4Unicast
	}
	c.AfiSafiIn = []*api.Family{family}
	return !m.Prefix.IsValid() || m.Not // a range without lengths
}

func addMark(m mark) *api.Actions {
	return &api.Actions{LargeCommunity: &api.CommunityAction{Type: api.CommunityAction_ADD, Communities: []string{m.String()}}}
}

func removeMarks(pattern string) *api.Actions {
	return &api.Actions{LargeCommunity: &api.CommunityAction{Type: api.CommunityAction_REMOVE, Communities: []string{pattern}}}
}

// actionsOf are the actions for operations, in their order, a statement for each. A community is removed before it is added, so that no path has it twice.
// That also gives each path a list of its own: GoBGP appends in place, and paths share their attributes.
func actionsOf(ops []bgp.Operation) []*api.Actions {
	var out []*api.Actions
	for _, op := range ops {
		switch {
		case op.LocalPref != 0:
			out = append(out, &api.Actions{LocalPref: &api.LocalPrefAction{Value: op.LocalPref}})
		case op.Add == nil:
			for _, as := range slices.Backward(op.Prepend) {
				out = append(out, &api.Actions{AsPrepend: &api.AsPrependAction{Asn: as, Repeat: 1}})
			}
		default:
			for _, kind := range []api.CommunityAction_Type{api.CommunityAction_REMOVE, api.CommunityAction_ADD} {
				action := &api.CommunityAction{Type: kind, Communities: []string{op.Add.String()}}
				if op.Add.Large {
					out = append(out, &api.Actions{LargeCommunity: action})
				} else {
					out = append(out, &api.Actions{Community: action})
				}
			}
		}
	}
	return out
}

func accept() *api.Actions { return &api.Actions{RouteAction: api.RouteAction_ACCEPT} }

func reject() *api.Actions { return &api.Actions{RouteAction: api.RouteAction_REJECT} }
