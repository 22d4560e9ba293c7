// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v3/internal/pkg/table"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// KnownPath is a path of the table, best or not. What it shows does not change any more.
type KnownPath struct {
	*table.Path
	stale bool // GoBGP edits that of a path in the table
}

// Watched is the path as WatchPaths reports it.
func (p KnownPath) Watched() Watched {
	w := Watched{
		Peer: p.GetSource().Name(), NLRI: p.GetNlri(), Withdrawn: p.IsNexthopInvalid,
		Stale: p.stale,
	}
	if !w.Withdrawn {
		w.Attributes = p.SharedPathAttrs()
	}
	return w
}

// Originator is the router ID of who announced the path to a route reflector, which passed it on
// (RFC 4456 §8); zero: it was not reflected.
func (p KnownPath) Originator() netip.Addr {
	id, _ := netip.AddrFromSlice(p.GetOriginatorID().To4())
	return id
}

// AsGood reports whether multipath uses p beside best.
func (p KnownPath) AsGood(best KnownPath) bool { return best.Compare(p.Path) == 0 }

// knownPiece is after how many paths GoBGP does other work. The client of a hundred route
// reflectors has as many paths of each prefix.
const knownPiece = 4096

// knownPrefix is one of a piece, whose paths end at a place.
type knownPrefix struct {
	nlri bgp.AddrPrefixInterface
	end  int
}

// KnownPaths calls show with the paths of each prefix of a family, in the order of the prefixes,
// the best path first, until show returns false. GoBGP is asked for a piece at a time, and does its
// other work while show is called: what changes meanwhile is not shown. show keeps nothing.
func (s *BgpServer) KnownPaths(family bgp.RouteFamily,
	show func(nlri bgp.AddrPrefixInterface, paths []KnownPath) (more bool)) {
	var keys []string
	s.mgmtOperation(func() error {
		if t, ok := s.globalRib.Tables[family]; ok {
			keys = make([]string, 0, len(t.GetDestinations()))
			for k := range t.GetDestinations() {
				keys = append(keys, k)
			}
		}
		return nil
	}, false)
	slices.Sort(keys)
	var prefixes []knownPrefix
	var paths []KnownPath
	for len(keys) > 0 {
		prefixes, paths = prefixes[:0], paths[:0]
		stopped := true
		s.mgmtOperation(func() error {
			t, ok := s.globalRib.Tables[family]
			stopped = !ok
			for ; ok && len(keys) > 0 && len(paths) < knownPiece; keys = keys[1:] {
				d, ok := t.GetDestinations()[keys[0]]
				if !ok {
					continue
				}
				for _, p := range d.GetAllKnownPathList() {
					paths = append(paths, KnownPath{p, p.IsStale()})
				}
				prefixes = append(prefixes, knownPrefix{d.GetNlri(), len(paths)})
			}
			return nil
		}, false)
		if stopped {
			return
		}
		begin := 0
		for _, p := range prefixes {
			if !show(p.nlri, paths[begin:p.end]) {
				return
			}
			begin = p.end
		}
	}
}

// Looped reports a path of an Adj-RIB-In that went through this speaker: its AS_PATH or
// ORIGINATOR_ID says so. Import was not asked.
func (p KnownPath) Looped() bool { return p.IsRejected() }

// PrefixPaths is all that is known of a prefix.
type PrefixPaths struct {
	Prefix   netip.Prefix
	Table    []KnownPath // the best first; those whose next hop cannot be used are last
	Received []KnownPath // what peers sent, before Import; in no order
}

// receivedPiece is how many look-ups in Adj-RIB-Ins GoBGP does before other work.
const receivedPiece = 4096

// PathsOf returns all paths of those prefixes, of one family, that have any. What takes long are
// look-ups, of each prefix at each peer.
func (s *BgpServer) PathsOf(prefixes []netip.Prefix) []PrefixPaths {
	found := make([]PrefixPaths, len(prefixes))
	nlris := make([]bgp.AddrPrefixInterface, len(prefixes))
	family := bgp.RF_IPv4_UC
	for i, p := range prefixes {
		found[i].Prefix, nlris[i] = p, nlriOf(p)
		if !p.Addr().Is4() {
			family = bgp.RF_IPv6_UC
		}
	}
	var peers []*peer
	s.mgmtOperation(func() error {
		for i, nlri := range nlris {
			found[i].Table = knownIn(s.globalRib.Tables[family], nlri)
		}
		for _, peer := range s.neighborMap {
			peers = append(peers, peer)
		}
		return nil
	}, false)
	for len(peers) > 0 {
		n := min(len(peers), max(1, receivedPiece/max(1, len(prefixes))))
		s.mgmtOperation(func() error {
			for _, peer := range peers[:n] {
				for i, nlri := range nlris {
					found[i].Received = append(found[i].Received,
						knownIn(peer.adjRibIn.Table(family), nlri)...)
				}
			}
			return nil
		}, false)
		peers = peers[n:]
	}
	return slices.DeleteFunc(found, func(p PrefixPaths) bool {
		return len(p.Table) == 0 && len(p.Received) == 0
	})
}

// knownIn returns the paths of a prefix in a table, which may be nil.
func knownIn(t *table.Table, nlri bgp.AddrPrefixInterface) (out []KnownPath) {
	if t == nil {
		return nil
	}
	if d := t.GetDestination(nlri); d != nil {
		for _, p := range d.GetAllKnownPathList() {
			out = append(out, KnownPath{p, p.IsStale()})
		}
	}
	return out
}
