package bgp

import (
	"fmt"
	"net/netip"
	"slices"
)

// Policies decides which learned routes are passed on to which peers: Calico's export filter (confd's bird_aggr.cfg and bird_ipam.cfg)
// for routes that are not our own. Our own routes need none: what is in Plan.Announcements goes to every peer.
//
// Export is the authority. The adapter generates GoBGP's policies from the fields, and they must answer as Export does for every route
// and peer. All prefixes are masked, sorted and without duplicates; both families are in one list.
type Policies struct {
	// NoExport are the pools with disableBGPExport: nothing inside or equal to one leaves this node.
	NoExport []netip.Prefix
	// OwnBlocks are aggregated: a route equal to one may leave, a more specific one does not.
	OwnBlocks []netip.Prefix
	// ExportPools are all other pools, disabled ones too: what is inside or equal to one may leave.
	ExportPools []netip.Prefix
}

// Learned is a route that came from a peer, as far as export asks about it.
type Learned struct {
	Prefix   netip.Prefix
	External bool // learned over eBGP
}

// Export decides whether a learned route is announced to a peer that is (external) or is not an eBGP peer. When it says no, reason
// tells a person why. The tests come in the order of Calico's filter.
//
// BIRD passes on a more specific route inside an own block when its LOCAL_PREF is above normal (a live migration). That is left
// out: the node it points to announces it as well, and until then packets that come here for the block are forwarded.
func (p Policies) Export(r Learned, external bool) (ok bool, reason string) {
	if !r.External && !external {
		return false, "learned over iBGP, and the peer is an iBGP peer (RFC 4271 §9.2.1)"
	}
	if pool, found := covering(p.NoExport, r.Prefix); found {
		return false, insideNoExport(pool)
	}
	if slices.Contains(p.OwnBlocks, r.Prefix) {
		return true, ""
	}
	if block, found := covering(p.OwnBlocks, r.Prefix); found {
		return false, fmt.Sprintf("inside own block %s, which is announced as a whole", block)
	}
	if _, found := covering(p.ExportPools, r.Prefix); found {
		return true, ""
	}
	return false, outsidePools
}

const outsidePools = "outside all pools"

func insideNoExport(pool netip.Prefix) string {
	return fmt.Sprintf("inside pool %s, which has disableBGPExport", pool)
}

// covering returns the first of prefixes that equals p or contains all of it.
func covering(prefixes []netip.Prefix, p netip.Prefix) (netip.Prefix, bool) {
	for _, c := range prefixes {
		if c.Bits() <= p.Bits() && c.Contains(p.Addr()) {
			return c, true
		}
	}
	return netip.Prefix{}, false
}
