package gobgp

import (
	"context"
	"net"
	"net/netip"
	"slices"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
)

// PathsOf returns all that is known of those of prefixes, which are of one family, that have a
// path: also what import policy rejected.
func (s *Speaker) PathsOf(ctx context.Context, prefixes []netip.Prefix) (
	[]bgp.PrefixPaths, error) {
	s.mu.Lock()
	srv := s.view.server
	s.mu.Unlock()
	if srv == nil || len(prefixes) == 0 {
		return nil, nil
	}
	// GoBGP may be blocked for as long as a hold time.
	done := make(chan []bgp.PrefixPaths, 1)
	go func() {
		var out []bgp.PrefixPaths
		for _, p := range srv.PathsOf(prefixes) {
			out = append(out, prefixPaths(p))
		}
		done <- out
	}()
	select {
	case out := <-done:
		return out, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pathName identifies a path of a prefix, also with ADD-PATH.
type pathName struct {
	peer bgp.PeerID
	id   uint32
}

func nameOfPath(p server.KnownPath) pathName {
	return pathName{peerID(p.GetSource().Name()), p.GetNlri().PathIdentifier()}
}

func prefixPaths(all server.PrefixPaths) bgp.PrefixPaths {
	out := bgp.PrefixPaths{Prefix: all.Prefix}
	rank := map[pathName]int{}
	for i, p := range all.Table {
		rank[nameOfPath(p)] = i
		if !p.Watched().Peer.IsValid() {
			out.Own, out.OwnIsBest = true, i == 0
		}
	}
	place := func(p server.KnownPath) int {
		if i, there := rank[nameOfPath(p)]; there {
			return i
		}
		return len(all.Table)
	}
	slices.SortStableFunc(all.Received, func(a, b server.KnownPath) int {
		if pa, pb := place(a), place(b); pa != pb {
			return pa - pb
		}
		return nameOfPath(a).peer.Compare(nameOfPath(b).peer)
	})
	for _, p := range all.Received {
		r := bgp.Received{Peer: peerOf(p.Watched()), Since: p.GetTimestamp(),
			Stale: p.Watched().Stale, Looped: p.Looped()}
		r.Sent, r.BadHop = shownAttributes(all.Prefix, p)
		if i := place(p); i < len(all.Table) {
			used := all.Table[i]
			accepted, _ := shownAttributes(all.Prefix, used)
			r.Accepted, r.Rejected, r.Stale = &accepted, used.IsNexthopInvalid, used.Watched().Stale
			r.Best = !r.Rejected && r.BadHop == "" && used.AsGood(all.Table[0])
		}
		out.Received = append(out.Received, r)
	}
	return out
}

// shownAttributes are those of a path. badHop says why its next hop is left out.
func shownAttributes(prefix netip.Prefix, p server.KnownPath) (a bgp.Attributes, badHop string) {
	var hops [2]net.IP
	if r, ok := routeOf(p, nil); ok {
		a.ASPath, a.ASSet = r.ASPath, r.ASSet
		a.Communities, a.ClusterList = r.Communities, r.ClusterList
	}
	attrs := p.SharedPathAttrs()
	hops = attributesOf(attrs).nextHops
	hop, err := nextHopOf(prefix, hops)
	if a.NextHop = hop; err != nil {
		badHop = err.Error()
	}
	for _, attr := range attrs {
		switch v := attr.(type) {
		case *packet.PathAttributeLocalPref:
			a.LocalPref = new(v.Value)
		case *packet.PathAttributeMultiExitDisc:
			a.MED = new(v.Value)
		case *packet.PathAttributeOrigin:
			a.Origin = v.Value
		}
	}
	a.Originator = p.Originator()
	return a, badHop
}
