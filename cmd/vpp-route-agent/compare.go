package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// compared is a node of a diff.
type compared struct {
	nodeSide
	snapshot *calico.Snapshot
	self     calico.Node
	words    *regexp.Regexp // its name and addresses
	options  bgp.Options
	plan     agent.NodePlan
	routes   []agent.RouteStatus
	status   *agent.Status      // nil: the agent did not tell
	current  *agent.CurrentPlan // likewise
}

// compareNodes finds what differs and need not.
func compareNodes(a, b *compared) nodesDiff {
	out := nodesDiff{Nodes: []nodeSide{a.nodeSide, b.nodeSide}, Differences: []difference{}}
	changed := itemChanges(a.items(b), b.items(a))
	if a.Asked && b.Asked {
		changed = append(changed, routeChanges(a, b)...)
	}
	for _, c := range changed {
		d := difference{Section: c.Section, Item: c.Item, Fields: c.Fields,
			Values: []fields{c.Before, c.After}, Why: whyItMatters[c.Section]}
		switch c.Change {
		case "removed":
			d.Only = a.Node
		case "added":
			d.Only = b.Node
		}
		out.Differences = append(out.Differences, d)
	}
	out.Same = len(out.Differences) == 0
	return out
}

// items are what n shall do, and does, in words that are the same for every node that does the
// same.
func (n *compared) items(other *compared) (out []planItem) {
	add := func(section, name string, v any) {
		out = append(out, planItem{section: section, name: n.neutral(name),
			fields: n.neutralFields(fieldsOf(v))})
	}
	for _, i := range itemsOf(n.plan) {
		switch i.section {
		case "speaker":
			delete(i.fields, "routerID")
			delete(i.fields, "listenAddresses")
		case "peers":
			if i.fields["node"] == other.Node {
				continue
			}
			for _, own := range []string{"dial", "sourceAddress", "reachableBy"} {
				delete(i.fields, own)
			}
		case "announcements", "withheld", "problems":
			continue // below
		}
		out = append(out, planItem{section: i.section, name: n.neutral(i.name),
			fields: n.neutralFields(i.fields)})
	}
	for _, x := range n.plan.Announcements {
		if x.Service {
			add("services", x.Prefix.String(), struct {
				LocalPref uint32 `json:"localPref"`
			}{x.LocalPref})
		}
	}
	for _, x := range n.plan.Withheld {
		add("withheld", n.withoutPrefix(x), struct{}{})
	}
	for _, p := range n.plan.Problems {
		add("problems", p.String(), struct{}{})
	}
	out = append(out, n.between(other)...)
	out = append(out, n.poolItems()...)
	if n.Asked && other.Asked {
		out = append(out, n.agentItems(other)...)
	}
	return uniqueItems(out)
}

// between is the session of the two: a peer of one end alone is wanted by that end alone.
func (n *compared) between(other *compared) (out []planItem) {
	for _, p := range n.plan.Peers {
		if p.Node == other.Node {
			family := "IPv4"
			if p.Address.Is6() {
				family = "IPv6"
			}
			out = append(out, planItem{section: "peers",
				name: "the session of the two, " + family, fields: fieldsOf(struct {
					Filters  []string         `json:"filters"`
					Password *bgpPasswordName `json:"password,omitempty"`
					TTL      uint8            `json:"ttlSecurity"`
				}{p.Filters, (*bgpPasswordName)(p.Password), p.TTLSecurity})})
		}
	}
	return out
}

type bgpPasswordName agent.PlannedPassword

// poolItems are the pools, and how packets to them leave.
func (n *compared) poolItems() (out []planItem) {
	e, _ := ipam.Encapsulation(n.Node, n.options.Tunnels, n.options.FelixTunnels, n.snapshot)
	if e == nil {
		return nil
	}
	for _, p := range e.Pools {
		out = append(out, planItem{section: "pools", name: p.Prefix.String(),
			fields: n.neutralFields(fieldsOf(struct {
				Encapsulation string `json:"encapsulation"`
				CrossSubnet   bool   `json:"crossSubnet"`
				Waits         string `json:"waits,omitempty"`
				Felix         bool   `json:"felix"`
			}{p.Encap.String(), p.CrossSubnet, p.Waits, p.Felix}))})
	}
	return out
}

// agentItems are what the agent tells, but for its routes.
func (n *compared) agentItems(other *compared) (out []planItem) {
	add := func(section, name string, v any) {
		out = append(out, planItem{section: section, name: n.neutral(name),
			fields: n.neutralFields(fieldsOf(v))})
	}
	s := n.status
	add("agent", "", struct {
		Version          string `json:"version"`
		Dataplane        string `json:"dataplane"`
		DataplaneVersion string `json:"dataplaneVersion"`
		Health           string `json:"health"`
		Learn            string `json:"learn"`
		Draining         bool   `json:"draining"`
	}{s.Version, s.FIB.Dataplane, s.FIB.Version, s.Health, strings.Join(s.Learn, ","),
		s.Drain != nil})
	o := n.options
	add("settings", "", struct {
		RouterID     string `json:"routerID"`
		NextHop      bool   `json:"nextHop"` // another than the node's address
		PrefixLimits any    `json:"prefixLimits"`
		ClusterIPs   string `json:"advertiseClusterIPs"`
		Tunnels      any    `json:"tunnels"`
		FelixTunnels bool   `json:"felixTunnels"`
		NoWireguard  bool   `json:"noWireguard"`
	}{o.RouterID, o.NextHop4.IsValid() || o.NextHop6.IsValid(), o.PrefixLimits,
		validText(o.ClusterIPs), fmt.Sprint(o.Tunnels), o.FelixTunnels, o.NoWireguard})
	if behind := changes(withoutFacts(n), n.plan); len(behind) > 0 {
		// By name: that both are behind is no less of a difference.
		out = append(out, planItem{section: "applied", fields: fields{},
			name: fmt.Sprintf("agent and datastore differ in %s on %s",
				count(len(behind), "thing", "things"), n.Node)})
	}
	common := map[bgp.PeerID]bool{}
	for _, p := range other.plan.Peers {
		common[p.Peer] = true
	}
	for _, p := range s.BGP.Peers {
		if common[p.Peer] {
			add("sessions", p.Peer.String(), struct {
				Up bool `json:"up"`
			}{p.Established})
		}
	}
	return out
}

// withoutFacts is the plan that the agent works by, without what its data plane adds.
func withoutFacts(n *compared) agent.NodePlan {
	p := n.current.Plan
	if len(n.current.Options.Arrived) > 0 || n.current.Options.Outgoing != nil {
		// It says no more than the datastore does: the announcements may be others.
		p.Announcements, p.Withheld, p.Problems = n.plan.Announcements, n.plan.Withheld,
			n.plan.Problems
	}
	return p
}

func validText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func uniqueItems(all []planItem) []planItem {
	seen := map[[2]string]bool{}
	return slices.DeleteFunc(all, func(i planItem) bool {
		k := [2]string{i.section, i.name}
		was := seen[k]
		seen[k] = true
		return was
	})
}

// withoutPrefix is why something is withheld: the own prefix must differ.
func (n *compared) withoutPrefix(w agent.WithheldStatus) string {
	return strings.ReplaceAll(w.Reason, w.Prefix.String(), "(own prefix)")
}

// neutral replaces the name and addresses of the node in a text.
func (n *compared) neutral(text string) string {
	return n.words.ReplaceAllStringFunc(text, func(found string) string {
		if strings.Contains(found, n.Node) {
			return strings.Replace(found, n.Node, "(this node)", 1)
		}
		for _, p := range []netip.Prefix{n.self.IPv4, n.self.IPv6} {
			if p.IsValid() {
				found = strings.Replace(found, p.Addr().String(), "(own address)", 1)
			}
		}
		return found
	})
}

// words matches a name or address of a node that is no part of another.
func words(n calico.Node) *regexp.Regexp {
	all := []string{regexp.QuoteMeta(n.Name)}
	for _, p := range []netip.Prefix{n.IPv4, n.IPv6} {
		if p.IsValid() {
			all = append(all, regexp.QuoteMeta(p.Addr().String()))
		}
	}
	return regexp.MustCompile(`(^|[^\w.:-])(` + strings.Join(all, "|") + `)($|[^\w:-])`)
}

// neutralFields does so in all texts of an item.
func (n *compared) neutralFields(f fields) fields {
	for k, v := range f {
		f[k] = n.neutralValue(v)
	}
	return f
}

func (n *compared) neutralValue(v any) any {
	switch v := v.(type) {
	case string:
		return n.neutral(v)
	case []any:
		for i := range v {
			v[i] = n.neutralValue(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = n.neutralValue(v[k])
		}
	}
	return v
}

// comparedRoute is what of a route must not differ.
type comparedRoute struct {
	State    string   `json:"state"`
	Kind     string   `json:"kind"`
	NextHops []string `json:"nextHops"`
}

// routeKey tells routes apart.
type routeKey struct {
	table  uint32
	prefix netip.Prefix
}

// routeChanges compares the FIBs. A prefix of one of the two is in the other's as a route to it.
func routeChanges(a, b *compared) (out []planChange) {
	inA, ownA := a.routesBut(b.self)
	inB, ownB := b.routesBut(a.self)
	keys := slices.AppendSeq(slices.Collect(maps.Keys(inA)), maps.Keys(inB))
	slices.SortFunc(keys, func(x, y routeKey) int {
		return cmp.Or(cmp.Compare(x.table, y.table), route.ComparePrefixes(x.prefix, y.prefix))
	})
	for _, k := range slices.Compact(keys) {
		x, isA := inA[k]
		y, isB := inB[k]
		if ownA[k] || ownB[k] || isA && isB && reflect.DeepEqual(x, y) {
			continue
		}
		c := planChange{Section: "routes", Item: k.prefix.String(), Fields: []string{}}
		if k.table != 0 {
			c.Item += fmt.Sprintf(" in table %d", k.table)
		}
		switch {
		case !isB:
			c.Change, c.Before = "removed", fieldsOf(x)
		case !isA:
			c.Change, c.After = "added", fieldsOf(y)
		default:
			c.Change, c.Before, c.After = "changed", fieldsOf(x), fieldsOf(y)
			c.Fields = differing(c.Before, c.After)
		}
		out = append(out, c)
	}
	return out
}

// routesBut are the routes of the agent without those that lead to another node, and which are own
// ones.
func (n *compared) routesBut(other calico.Node) (all map[routeKey]comparedRoute,
	own map[routeKey]bool) {
	all, own = map[routeKey]comparedRoute{}, map[routeKey]bool{}
	for _, r := range n.routes {
		k := routeKey{r.Table, r.Prefix}
		c := comparedRoute{State: r.State, Kind: r.Kind, NextHops: []string{}}
		toOther := false
		for _, p := range r.Paths {
			toOther = toOther || p.NextHop != "" && (p.NextHop == other.IPv4.Addr().String() ||
				p.NextHop == other.IPv6.Addr().String())
			if p.NextHop != "" {
				c.NextHops = append(c.NextHops, p.NextHop)
			}
		}
		slices.Sort(c.NextHops)
		switch {
		case r.Origin == route.Own.String():
			own[k] = true
		case !toOther:
			all[k] = c
		}
	}
	return all, own
}
