package bgp

import (
	"cmp"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// Calico ≥ 3.32 writes a route's priority (kernel metric, lower is better) into LOCAL_PREF as
// maxPriority - priority, so that a normal route has 2147482623. Older releases send 100, which
// then loses.
const (
	maxPriority     = 2147483647
	defaultPriority = 1024
)

// announcer decides which of this node's prefixes are announced, and with what.
type announcer struct {
	policies  Policies
	peers     []Peer
	filtering []Peer // those with filters: they may get what Calico's rules reject
	// none: the node has no address of the family and announces nothing of it
	nextHop   map[family]netip.Addr
	localPref map[family]uint32
	elevated  map[family]uint32 // LOCAL_PREF of what is in arrived
	arrived   []netip.Prefix

	announcements []Announcement
	withheld      []Withheld
}

// ours announces own blocks and the addresses that live here outside of them. A block of one
// address is announced only while its address lives here: Calico has no blackhole for it, so the
// host route is all there is.
func (a *announcer) ours(blocks []netip.Prefix, hosts []ipam.Host) {
	single := map[netip.Prefix]bool{}
	for _, h := range hosts {
		r := Route{Prefix: h.Prefix, Interface: h.Interface}
		if h.Block == h.Prefix {
			single[h.Prefix] = true
		}
		if reason := a.announce(r); reason != "" && (h.Borrowed() || single[h.Prefix]) {
			a.withhold(h.Prefix, h.Source+": "+reason)
		}
	}
	for _, b := range blocks {
		switch {
		case single[b]:
		case b.IsSingleIP():
			a.withhold(b, "own block of one address, which no workload here has")
		default:
			if reason := a.announce(Route{Prefix: b}); reason != "" {
				a.withhold(b, reason)
			} else {
				a.last().Static = true
			}
		}
	}
}

// services announces service addresses. What is a block or an address of this node is announced as
// that.
func (a *announcer) services(all []netip.Prefix) {
	ours := map[netip.Prefix]bool{}
	for _, x := range a.announcements {
		ours[x.Prefix] = true
	}
	a.announcements = slices.Grow(a.announcements, len(all))
	for _, p := range all {
		if ours[p] {
			continue
		}
		if reason := a.announce(Route{Prefix: p}); reason != "" {
			a.withhold(p, reason)
		} else {
			a.last().Service, a.last().Static = true, true
		}
	}
}

// last is what was announced last.
func (a *announcer) last() *Announcement { return &a.announcements[len(a.announcements)-1] }

func (a *announcer) sort() {
	slices.SortFunc(a.announcements, func(x, y Announcement) int {
		return route.ComparePrefixes(x.Prefix, y.Prefix)
	})
	slices.SortFunc(a.withheld, func(x, y Withheld) int {
		return cmp.Or(route.ComparePrefixes(x.Prefix, y.Prefix), cmp.Compare(x.Reason, y.Reason))
	})
}

// announce adds a route that at least one peer may get, or returns why there is none.
func (a *announcer) announce(r Route) (reason string) {
	f := familyOf(r.Prefix.Addr())
	r.LocalPref = a.localPref[f]
	if slices.Contains(a.arrived, r.Prefix) {
		r.LocalPref = a.elevated[f]
	}
	accept, _, _ := a.policies.common(r)
	if !accept && !a.letOut(r, f, a.filtering) {
		return a.policies.Common(r).Reason // in words
	}
	if outside := a.policies.byTunnel(r); outside.Reason != "" && !a.letOut(r, f, a.peers) {
		return outside.Reason
	}
	nextHop, ok := a.nextHop[f]
	if !ok {
		return "this node has no " + f.String() + " BGP address"
	}
	a.announcements = append(a.announcements, Announcement{
		Prefix: r.Prefix, NextHop: nextHop, LocalPref: r.LocalPref, Interface: r.Interface,
		OnlyByFilter: !accept,
	})
	return ""
}

// letOut reports whether one of peers may get a route.
func (a *announcer) letOut(r Route, f family, peers []Peer) bool {
	return slices.ContainsFunc(peers, func(p Peer) bool {
		return familyOf(p.Address) == f && a.policies.Export(r, p).Accept
	})
}

func (a *announcer) withhold(p netip.Prefix, reason string) {
	a.withheld = append(a.withheld, Withheld{p, reason})
}

// nextHops returns what each family announces as NEXT_HOP: the node's BGP address, or what the
// operator said instead.
func nextHops(n calico.Node, o Options) map[family]netip.Addr {
	all := map[family]netip.Addr{}
	for _, f := range families {
		if addr, ok := addressOf(n, f); ok {
			all[f] = addr
			if asked := o.nextHop(f); asked.IsValid() {
				all[f] = asked
			}
		}
	}
	return all
}

// localPrefs returns the LOCAL_PREF of each family's announcements.
func localPrefs(conf calico.BGPConfiguration) (map[family]uint32, []calico.Problem) {
	v4, problems4 := localPref("ipv4NormalRoutePriority", conf.IPv4NormalRoutePriority)
	v6, problems6 := localPref("ipv6NormalRoutePriority", conf.IPv6NormalRoutePriority)
	return map[family]uint32{ipv4: v4, ipv6: v6}, append(problems4, problems6...)
}

func localPref(field string, priority int) (uint32, []calico.Problem) {
	if priority < 0 || priority >= maxPriority {
		return maxPriority - defaultPriority, []calico.Problem{
			badConfiguration("%s %d is not in 1…%d: %d is used",
				field, priority, maxPriority-1, defaultPriority),
		}
	}
	return uint32(maxPriority - cmp.Or(priority, defaultPriority)), nil
}
