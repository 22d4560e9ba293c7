package gobgp

import (
	"fmt"
	"net/netip"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// defaultLocalPref is what a path without LOCAL_PREF counts as: every path from an eBGP peer. GoBGP and BIRD agree on it.
const defaultLocalPref = 100

// isLocal reports a path that no peer sent. GoBGP prints its missing source as the string of a nil net.IP.
func isLocal(p *api.Path) bool { return p.NeighborIp == "<nil>" || p.NeighborIp == "" }

// isEndOfRIB reports the path that stands for an End-of-RIB in a watch event.
func isEndOfRIB(p *api.Path) bool { return p.Nlri == nil }

// prefixOf reads the NLRI. Only what can be a key of a FIB is let through: unicast, masked, no IPv4-mapped prefix. The latter is
// another NLRI than the IPv4 prefix that it resembles and must not take its place.
func prefixOf(p *api.Path) (netip.Prefix, error) {
	var nlri api.IPAddressPrefix
	if err := p.Nlri.UnmarshalTo(&nlri); err != nil {
		return netip.Prefix{}, fmt.Errorf("NLRI is no unicast prefix: %w", err)
	}
	addr, err := netip.ParseAddr(nlri.Prefix)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("NLRI: %w", err)
	}
	prefix := netip.PrefixFrom(addr, int(nlri.PrefixLen))
	switch {
	case !prefix.IsValid():
		return netip.Prefix{}, fmt.Errorf("NLRI: %s/%d is no prefix", nlri.Prefix, nlri.PrefixLen)
	case addr.Is4In6():
		return netip.Prefix{}, fmt.Errorf("NLRI: %s is IPv4-mapped", prefix)
	case p.Family != nil && (p.Family.Afi == api.Family_AFI_IP) != addr.Is4():
		return netip.Prefix{}, fmt.Errorf("NLRI: %s in family %s", prefix, p.Family.Afi)
	}
	masked, _ := route.Normalize(prefix)
	return masked, nil
}

// attributes are the ones that forwarding asks for.
type attributes struct {
	nextHops  []string // NEXT_HOP, or those of MP_REACH_NLRI: one, or a global and a link-local one (RFC 2545 §3)
	localPref uint32
}

// attributesOf picks out of a path's attributes what is needed; unknown and broken ones are passed over, since GoBGP has checked
// what RFC 7606 asks to check.
func attributesOf(p *api.Path) attributes {
	a := attributes{localPref: defaultLocalPref}
	for _, attr := range p.Pattrs {
		switch attr.GetTypeUrl() {
		case "type.googleapis.com/apipb.NextHopAttribute":
			var v api.NextHopAttribute
			if attr.UnmarshalTo(&v) == nil && a.nextHops == nil {
				a.nextHops = []string{v.NextHop}
			}
		case "type.googleapis.com/apipb.MpReachNLRIAttribute":
			var v api.MpReachNLRIAttribute
			if attr.UnmarshalTo(&v) == nil {
				a.nextHops = v.NextHops // beside a NEXT_HOP, MP_REACH_NLRI counts (RFC 4760 §3)
			}
		case "type.googleapis.com/apipb.LocalPrefAttribute":
			var v api.LocalPrefAttribute
			if attr.UnmarshalTo(&v) == nil {
				a.localPref = v.LocalPref
			}
		}
	}
	return a
}

// nextHopOf picks the address to forward to: the global one of a pair, the link-local one where there is no other. An IPv4 prefix may
// have an IPv6 next hop (RFC 8950); an IPv6 prefix cannot have an IPv4 one, also not in mapped form.
func nextHopOf(prefix netip.Prefix, hops []string) (netip.Addr, error) {
	if len(hops) == 0 {
		return netip.Addr{}, fmt.Errorf("no next hop")
	}
	var linkLocal netip.Addr
	for _, h := range hops {
		a, err := netip.ParseAddr(h)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("next hop %q is no address", h)
		}
		a = a.Unmap().WithZone("")
		switch {
		case a.IsUnspecified():
			continue
		case a.IsMulticast():
			return netip.Addr{}, fmt.Errorf("next hop %s is multicast", a)
		case a.Is4() && !prefix.Addr().Is4():
			return netip.Addr{}, fmt.Errorf("IPv4 next hop %s for an IPv6 prefix", a)
		case a.Is6() && a.IsLinkLocalUnicast():
			linkLocal = a
			continue
		}
		return a, nil
	}
	if linkLocal.IsValid() {
		return linkLocal, nil
	}
	return netip.Addr{}, fmt.Errorf("next hop %s is unspecified", hops[0])
}

// pathFrom is one path of a best-path event. External is for the caller to fill in: GoBGP does not say it.
func pathFrom(prefix netip.Prefix, p *api.Path) (bgp.Path, error) {
	peer, err := netip.ParseAddr(p.NeighborIp)
	if err != nil {
		return bgp.Path{}, fmt.Errorf("peer %q is no address", p.NeighborIp)
	}
	a := attributesOf(p)
	hop, err := nextHopOf(prefix, a.nextHops)
	if err != nil {
		return bgp.Path{}, err
	}
	return bgp.Path{Peer: peer.Unmap().WithZone(""), NextHop: hop, LocalPref: a.localPref, Stale: p.Stale}, nil
}
