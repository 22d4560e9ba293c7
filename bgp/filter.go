package bgp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// Filter is a BGPFilter, read: its usable rules in order.
type Filter struct {
	Export4, Export6, Import4, Import6 []Rule
	// Unsafe4 and Unsafe6 say why no session of the family may run with it: a Reject of it cannot
	// be carried out. "" if it may.
	Unsafe4, Unsafe6 string
}

// Rule is one rule of a BGPFilter. It matches a route when all of its conditions hold.
type Rule struct {
	Name       string // "BGPFilter(no-default) importV4[0]"
	Match      Match
	Accept     bool
	Operations []Operation // carried out, in order, on what it accepts
}

// Match are the conditions of a rule; zero fields are none.
type Match struct {
	// Prefix matches what lies inside or equals it with a length of Min…Max, or with Not everything
	// else. Min > Max is nothing.
	Prefix   netip.Prefix
	Min, Max int
	Not      bool

	FromPeer  bool   // learned over BGP
	Interface string // outgoing interface, shell pattern
	PeerType  string // "eBGP" or "iBGP": the peer whose filter it is
	Community *Community
	ASPath    []uint32 // the AS_PATH begins with them
	LocalPref uint32   // LOCAL_PREF is this one
}

// Operation changes a route; one field is set.
type Operation struct {
	Add       *Community
	Prepend   []uint32 // the first of them becomes the first of AS_PATH
	LocalPref uint32   // 0: not this one
}

// String says it as an order: "add community 64512:77".
func (o Operation) String() string {
	switch {
	case o.Add != nil:
		return "add community " + o.Add.String()
	case o.LocalPref != 0:
		return fmt.Sprintf("set LOCAL_PREF %d", o.LocalPref)
	}
	return "prepend " + strings.Trim(fmt.Sprint(o.Prepend), "[]")
}

// String says the rule in words: "accept if inside 10.0.0.0/8; prepend 64512".
func (r Rule) String() string {
	out := "reject"
	if r.Accept {
		out = "accept"
	}
	if m := r.Match.String(); m != "" {
		out += " if " + m
	}
	for _, op := range r.Operations {
		out += "; " + op.String()
	}
	return out
}

func (m Match) String() string {
	var all []string
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	not := ""
	if m.Not {
		not = "not "
	}
	switch p := m.Prefix; {
	case !p.IsValid():
	case m.Min == p.Bits() && m.Max == p.Bits():
		add(true, "%sequal to %s", not, p)
	case m.Min == p.Bits() && m.Max == p.Addr().BitLen():
		add(true, "%sinside %s", not, p)
	default:
		add(true, "%sinside %s with length %d to %d", not, p, m.Min, m.Max)
	}
	add(m.FromPeer, "learned over BGP")
	add(m.Interface != "", "interface %s", m.Interface)
	add(m.PeerType != "", "%s", m.PeerType)
	if m.Community != nil {
		add(true, "community %s", m.Community)
	}
	add(len(m.ASPath) > 0, "AS_PATH begins with %s", strings.Trim(fmt.Sprint(m.ASPath), "[]"))
	add(m.LocalPref != 0, "LOCAL_PREF %d", m.LocalPref)
	return strings.Join(all, ", ")
}

// readFilter reads a BGPFilter as BIRD understands what confd makes of it. A rule that makes no
// sense is left out and named; the others count. If it is a Reject, the filter is unsafe in its
// family: without the rule routes would pass that must not.
func readFilter(f calico.BGPFilter) (Filter, []calico.Problem) {
	key := "BGPFilter(" + f.Name + ")"
	var out Filter
	var problems []calico.Problem
	for _, list := range []struct {
		field  string
		f      family
		rules  []calico.BGPFilterRule
		into   *[]Rule
		unsafe *string
	}{
		{"exportV4", ipv4, f.ExportV4, &out.Export4, &out.Unsafe4},
		{"exportV6", ipv6, f.ExportV6, &out.Export6, &out.Unsafe6},
		{"importV4", ipv4, f.ImportV4, &out.Import4, &out.Unsafe4},
		{"importV6", ipv6, f.ImportV6, &out.Import6, &out.Unsafe6},
	} {
		for i, r := range list.rules {
			name := fmt.Sprintf("%s[%d]", list.field, i)
			rule, remark, err := readRule(r, list.f)
			if err != nil {
				problems = append(problems, calico.Problem{
					Resource: key, Err: fmt.Sprintf("%s is left out: %s", name, err),
				})
				if r.Action != "Accept" {
					*list.unsafe = cmp.Or(*list.unsafe,
						fmt.Sprintf("%s %s cannot be carried out: %s", key, name, err))
				}
				continue
			}
			if remark != "" {
				problems = append(problems, calico.Problem{
					Resource: key, Err: name + ": " + remark,
				})
			}
			rule.Name = key + " " + name
			*list.into = append(*list.into, rule)
		}
	}
	return out, problems
}

// readRule reads a rule; remark is what its author should know about it although it can be carried
// out.
func readRule(r calico.BGPFilterRule, f family) (rule Rule, remark string, err error) {
	switch r.Action {
	case "Accept", "Reject":
		rule.Accept = r.Action == "Accept"
	default:
		return Rule{}, "", fmt.Errorf("action %q is neither Accept nor Reject", r.Action)
	}
	m := Match{FromPeer: r.Source == "RemotePeers", Interface: r.Interface, PeerType: r.PeerType,
		ASPath: slices.Clone(r.ASPathPrefix)}
	if anyInterface(r.Interface) {
		m.Interface = ""
	}
	if r.Source != "" && !m.FromPeer {
		return Rule{}, "", fmt.Errorf("source %q is not RemotePeers", r.Source)
	}
	if _, err := path.Match(r.Interface, ""); err != nil {
		return Rule{}, "", fmt.Errorf("interface %q is not a pattern", r.Interface)
	}
	if r.PeerType != "" && r.PeerType != "eBGP" && r.PeerType != "iBGP" {
		return Rule{}, "", fmt.Errorf("peerType %q is neither eBGP nor iBGP", r.PeerType)
	}
	if remark, err = m.readPrefix(r, f); err != nil {
		return Rule{}, "", err
	}
	inside := r.MatchOperator == "In" || r.MatchOperator == "NotIn"
	if _, bare := withoutLength(r); bare && inside {
		return Rule{Match: Match{PeerType: r.PeerType}}, remark, nil
	}
	if matchesNoInterface(r.Interface) {
		rule.Match = nothing(f)
		return rule, fmt.Sprintf("interface %q matches no route", r.Interface), nil
	}
	switch {
	case r.Communities == nil:
	case len(r.Communities) == 0:
		return Rule{}, "", errors.New("communities has no value")
	case len(r.Communities) == 1:
		c, err := ParseCommunity(r.Communities[0])
		if err != nil {
			return Rule{}, "", err
		}
		m.Community = &c
	default:
		return Rule{}, "", errors.New("communities has more than one value")
	}
	if m.LocalPref, err = localPrefOf(r.Priority); err != nil {
		return Rule{}, "", err
	}
	rule.Match = m
	if len(r.Operations) > 0 && !rule.Accept {
		return rule, cmp.Or(remark, "operations of a Reject have no effect"), nil
	}
	ops, more, err := readOperations(r.Operations)
	rule.Operations = ops
	return rule, cmp.Or(remark, more), err
}

// anyInterface reports whether a pattern holds for every route: without an interface BIRD's ifname
// is empty.
func anyInterface(pattern string) bool { return pattern == "" || pattern == "*" }

// matchesNoInterface reports whether a pattern holds for no route: BIRD takes what follows an
// asterisk literally (lib/patmatch.c), and no name has an asterisk or a question mark.
func matchesNoInterface(pattern string) bool {
	return strings.Contains(pattern, "**") || strings.Contains(pattern, "*?")
}

// nothing is a Match that holds for no route of a family.
func nothing(f family) Match {
	if f == ipv4 {
		return Match{Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Min: 1}
	}
	return Match{Prefix: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Min: 1}
}

// withoutLength returns cidr where it is an address, as calicoctl allows. To BIRD it is no prefix:
// no route equals it, and to ask for what is inside is an error, which rejects the route.
func withoutLength(r calico.BGPFilterRule) (a netip.Addr, is bool) {
	a, err := netip.ParseAddr(r.CIDR)
	return a, err == nil && a.Zone() == "" && r.PrefixLength == nil
}

// readPrefix reads cidr, and matchOperator and prefixLength, which have no effect without it, as in
// confd (pkg/resource/template/template_funcs.go).
func (m *Match) readPrefix(r calico.BGPFilterRule, f family) (remark string, err error) {
	switch {
	case r.CIDR == "" && r.MatchOperator != "":
		return "matchOperator without cidr has no effect", nil
	case r.CIDR == "" && r.PrefixLength != nil:
		return "prefixLength without cidr has no effect", nil
	case r.CIDR == "":
		return "", nil
	case r.MatchOperator == "":
		return "", errors.New("cidr without matchOperator")
	}
	given, err := netip.ParsePrefix(r.CIDR)
	a, bare := withoutLength(r)
	if bare {
		given = netip.PrefixFrom(a, a.BitLen())
	} else if err != nil {
		return "", fmt.Errorf("cidr %q is not a prefix", r.CIDR)
	}
	p, ok := route.Normalize(given)
	if !ok || p != given { // BIRD would refuse the whole configuration
		return "", fmt.Errorf("cidr %s has host bits set", given)
	}
	if familyOf(p.Addr()) != f {
		return "", fmt.Errorf("cidr %s is not %s", p, f)
	}
	m.Prefix, m.Min, m.Max = p, p.Bits(), p.Bits()
	switch r.MatchOperator {
	case "Equal", "NotEqual":
		m.Not = r.MatchOperator == "NotEqual"
		what := ""
		if bare {
			what = fmt.Sprintf("cidr %s has no length, and", a)
		} else if r.PrefixLength != nil {
			what = "prefixLength with"
		}
		if what != "" { // what BIRD makes of it, observed
			m.Min, m.Max = 1, 0
			if m.Not {
				return what + " NotEqual matches every route", nil
			}
			return what + " Equal matches no route", nil
		}
	case "In", "NotIn":
		if bare {
			return fmt.Sprintf("cidr %s has no length, and with %s every route that comes to the "+
				"rule is rejected", a, r.MatchOperator), nil
		}
		m.Not = r.MatchOperator == "NotIn"
		m.Max = p.Addr().BitLen()
		if l := r.PrefixLength; l != nil {
			if l.Min != nil {
				m.Min = max(m.Min, *l.Min)
			}
			if l.Max != nil {
				m.Max = min(m.Max, *l.Max)
			}
		}
		if m.Min > m.Max {
			return fmt.Sprintf("no prefix length is inside %s and prefixLength", p), nil
		}
	default:
		return "", fmt.Errorf("matchOperator %q is none of Equal, NotEqual, In, NotIn",
			r.MatchOperator)
	}
	return "", nil
}

// localPrefOf is LOCAL_PREF for a route priority, 0 for none.
func localPrefOf(priority int) (uint32, error) {
	if priority == 0 {
		return 0, nil
	}
	if priority < 0 || priority >= maxPriority {
		return 0, fmt.Errorf("priority %d is not in 1…%d", priority, maxPriority-1)
	}
	return uint32(maxPriority - priority), nil
}

// readOperations has the first field of an operation count, as confd does; remark says where there
// are more.
func readOperations(all []calico.BGPFilterOperation) (out []Operation, remark string, err error) {
	for i, o := range all {
		var op Operation
		prepends := len(o.PrependASPath) > 0
		if o.AddCommunity != "" && (prepends || o.SetPriority != 0) ||
			prepends && o.SetPriority != 0 {
			remark = fmt.Sprintf("of operations[%d] the first of addCommunity, prependASPath and "+
				"setPriority counts", i)
		}
		switch {
		case o.AddCommunity != "":
			c, err := ParseCommunity(o.AddCommunity)
			if err != nil {
				return nil, "", fmt.Errorf("operations[%d]: %w", i, err)
			}
			op.Add = &c
		case prepends:
			op.Prepend = slices.Clone(o.PrependASPath)
		case o.SetPriority != 0:
			pref, err := localPrefOf(o.SetPriority)
			if err != nil {
				return nil, "", fmt.Errorf("operations[%d]: %w", i, err)
			}
			op.LocalPref = pref
		default:
			return nil, "", fmt.Errorf("operations[%d] is empty", i)
		}
		out = append(out, op)
	}
	return out, remark, nil
}

// OnLearned are the conditions of an export rule for learned routes, whose outgoing interface is
// unknown. So a Reject that asks for it rejects all that its other conditions match, and an Accept
// does not apply: nothing passes that must not.
func (r Rule) OnLearned() (m Match, applies bool) {
	m = r.Match
	m.Interface = ""
	return m, r.Match.Interface == "" || !r.Accept
}

// OnImport are the conditions of an import rule without its interface, and the next hops that lead
// out by that interface. There are no such next hops if the rule asks for no interface. While
// nothing is known about next hops, the rule is treated as on export.
func (p Policies) OnImport(r Rule) (m Match, hops []netip.Prefix, applies bool) {
	if r.Match.Interface == "" || p.Behind == nil {
		m, applies = r.OnLearned()
		return m, nil, applies
	}
	m = r.Match
	m.Interface = ""
	hops = p.Behind[r.Match.Interface]
	return m, hops, len(hops) > 0
}

// holds reports whether all conditions of m hold for a route as it is shown to the filter of peer.
func (m Match) holds(r Route, peer Peer) bool {
	switch {
	case m.Prefix.IsValid() && m.inRange(r.Prefix) == m.Not,
		m.FromPeer && r.From == nil,
		!m.isFor(peer),
		m.Community != nil && !slices.Contains(r.Communities, *m.Community),
		len(m.ASPath) > 0 && !r.pathBegins(m.ASPath),
		m.LocalPref != 0 && m.LocalPref != r.LocalPref:
		return false
	case m.Interface != "":
		ok, _ := path.Match(m.Interface, r.Interface)
		return ok
	}
	return true
}

// isFor reports whether peer is of the type that m asks for.
func (m Match) isFor(peer Peer) bool {
	return m.PeerType == "" || (m.PeerType == "eBGP") == peer.External()
}

// catchesLearned reports whether m holds for every learned route of the family of peer, whose
// filter it is.
func (m Match) catchesLearned(peer Peer) bool {
	anywhere := !m.Prefix.IsValid()
	if m.Not {
		anywhere = m.Min > m.Max
	} else if m.Prefix.Bits() == 0 {
		anywhere = m.Min == 0 && m.Max == m.Prefix.Addr().BitLen()
	}
	return anywhere && m.isFor(peer) && m.Interface == "" && m.Community == nil &&
		len(m.ASPath) == 0 && m.LocalPref == 0
}

func (m Match) inRange(p netip.Prefix) bool {
	return m.Min <= p.Bits() && p.Bits() <= m.Max && m.Prefix.Bits() <= p.Bits() &&
		m.Prefix.Contains(p.Addr())
}
