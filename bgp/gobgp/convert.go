package gobgp

import (
	"fmt"
	"net"
	"net/netip"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// defaultLocalPref is what a path without LOCAL_PREF counts as: every path from an eBGP peer. GoBGP
// and BIRD agree on it.
const defaultLocalPref = 100

// prefixOf reads an NLRI. It accepts only what can be a key of a FIB: unicast, masked, not
// IPv4-mapped. An IPv4-mapped prefix is another NLRI than the IPv4 prefix and must not replace it.
func prefixOf(nlri packet.AddrPrefixInterface) (netip.Prefix, error) {
	var ip net.IP
	var bits uint8
	switch n := nlri.(type) {
	case *packet.IPAddrPrefix:
		ip, bits = n.Prefix.To4(), n.Length
	case *packet.IPv6AddrPrefix:
		ip, bits = n.Prefix.To16(), n.Length
	default:
		return netip.Prefix{}, fmt.Errorf("NLRI is no unicast prefix")
	}
	addr, _ := netip.AddrFromSlice(ip)
	prefix := netip.PrefixFrom(addr, int(bits))
	switch {
	case !prefix.IsValid():
		return netip.Prefix{}, fmt.Errorf("NLRI: %s/%d is no prefix", ip, bits)
	case addr.Is4In6():
		return netip.Prefix{}, fmt.Errorf("NLRI: %s is IPv4-mapped", prefix)
	}
	masked, _ := route.Normalize(prefix)
	return masked, nil
}

// attributes are the ones that forwarding asks for.
type attributes struct {
	// NEXT_HOP, or those of MP_REACH_NLRI: one, or a global and a link-local one (RFC 2545 §3)
	nextHops  [2]net.IP
	localPref uint32
}

// attributesOf picks out of a path's attributes what is needed, and changes none: they are GoBGP's.
// Unknown ones are passed over, since GoBGP has checked what RFC 7606 asks to check.
func attributesOf(attrs []packet.PathAttributeInterface) attributes {
	a := attributes{localPref: defaultLocalPref}
	multiprotocol := false
	for _, attr := range attrs {
		switch v := attr.(type) {
		case *packet.PathAttributeNextHop:
			if !multiprotocol { // beside a NEXT_HOP, MP_REACH_NLRI counts (RFC 4760 §3)
				a.nextHops[0] = v.Value
			}
		case *packet.PathAttributeMpReachNLRI:
			multiprotocol = true
			a.nextHops = [2]net.IP{v.Nexthop, v.LinkLocalNexthop}
		case *packet.PathAttributeLocalPref:
			a.localPref = v.Value
		}
	}
	return a
}

// nextHopOf picks the address to forward to: the global one of a pair, the link-local one where
// there is no other. An IPv4 prefix may have an IPv6 next hop (RFC 8950); an IPv6 prefix cannot
// have an IPv4 one, also not in mapped form.
func nextHopOf(prefix netip.Prefix, hops [2]net.IP) (netip.Addr, error) {
	var linkLocal netip.Addr
	for _, h := range hops {
		if h == nil {
			continue
		}
		a, ok := netip.AddrFromSlice(h)
		a = a.Unmap()
		switch {
		case !ok:
			return netip.Addr{}, fmt.Errorf("next hop %s is no address", h)
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
	switch {
	case linkLocal.IsValid():
		return linkLocal, nil
	case hops[0] == nil:
		return netip.Addr{}, fmt.Errorf("no next hop")
	}
	return netip.Addr{}, fmt.Errorf("next hop %s is unspecified", hops[0])
}

// peerOf is whom something that is watched is about.
func peerOf(w server.Watched) bgp.PeerID { return peerID(w.Peer) }

func peerID(name netip.AddrPort) bgp.PeerID {
	return bgp.PeerID{Address: name.Addr(), Port: name.Port()}
}

// parsePeer reads GoBGP's name of a peer.
func parsePeer(name string) (id bgp.PeerID, ok bool) {
	err := id.UnmarshalText([]byte(name))
	id.Address = id.Address.Unmap().WithZone("")
	return id, err == nil && id.IsValid()
}

// pathFrom is one path of a best-path set. External is for the caller to fill in: GoBGP does not
// say it.
func pathFrom(prefix netip.Prefix, w server.Watched) (bgp.Path, error) {
	a := attributesOf(w.Attributes)
	hop, err := nextHopOf(prefix, a.nextHops)
	if err != nil {
		return bgp.Path{}, err
	}
	return bgp.Path{Peer: peerOf(w), NextHop: hop, LocalPref: a.localPref, Stale: w.Stale}, nil
}
