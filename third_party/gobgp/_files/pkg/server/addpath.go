// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"slices"

	"github.com/osrg/gobgp/v3/internal/pkg/table"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// sentPath names a path in a session with ADD-PATH (RFC 7911 §3). Each peer has a set of those that were sent: GoBGP's own count of them
// knows nothing of a first dump. It has no pointers, since there may be millions.
type sentPath struct {
	addr   [16]byte
	length uint8
	six    bool
	id     uint32
}

// nameOf returns the name of a path; ok is false for families that no neighbour of ours has.
func nameOf(p *table.Path) (name sentPath, ok bool) {
	switch n := p.GetNlri().(type) {
	case *bgp.IPv6AddrPrefix:
		name = sentPath{length: n.Length, six: true}
		copy(name.addr[:], n.Prefix.To16())
	case *bgp.IPAddrPrefix:
		name = sentPath{length: n.Length}
		copy(name.addr[:], n.Prefix.To4())
	default:
		return name, false
	}
	name.id = p.GetNlri().PathLocalIdentifier()
	return name, true
}

func (peer *peer) hasSent(p *table.Path) bool {
	if len(peer.sent) == 0 {
		return false
	}
	name, _ := nameOf(p)
	_, ok := peer.sent[name]
	return ok
}

// account notes what is about to be sent, and leaves out withdrawals of what was not. Without ADD-PATH it changes nothing.
func (peer *peer) account(paths []*table.Path) []*table.Path {
	out := paths[:0:0]
	for i, p := range paths {
		if i == 0 && !peer.isAddPathSendEnabled(p.GetRouteFamily()) {
			return paths // of one family, as our sessions are
		}
		name, ok := nameOf(p)
		if ok && !p.IsEOR() {
			if _, sent := peer.sent[name]; p.IsWithdraw && !sent {
				continue
			}
			if p.IsWithdraw {
				delete(peer.sent, name)
			} else {
				if peer.sent == nil {
					peer.sent = map[sentPath]struct{}{}
				}
				peer.sent[name] = struct{}{}
			}
		}
		out = append(out, p)
	}
	return out
}

// changes is what happened to prefixes; which paths are other ones than before is found once for all peers.
type changes struct {
	dsts  []*table.Update
	other [][]bool // by index of the update and of its KnownPathList; nil: not found yet
}

func (c *changes) find() {
	if c.other != nil {
		return
	}
	c.other = make([][]bool, len(c.dsts))
	for i, d := range c.dsts {
		for _, p := range d.KnownPathList {
			c.other[i] = append(c.other[i], !slices.ContainsFunc(d.OldKnownPathList, func(o *table.Path) bool {
				return o == p || o.GetNlri().PathLocalIdentifier() == p.GetNlri().PathLocalIdentifier() && o.Equal(p)
			}))
		}
	}
}

// sendPaths tells a peer of changes, if its session has ADD-PATH for sending. GoBGP's own way is left out: it forgets what a first dump had, and never
// withdraws what policy does not let out any more.
func (s *BgpServer) sendPaths(peer *peer, family bgp.RouteFamily, c *changes) bool {
	if !peer.isAddPathSendEnabled(family) {
		return false
	}
	if !needToAdvertise(peer) {
		return true
	}
	c.find()
	var announced, withdrawn []*table.Path
	for i, d := range c.dsts {
		a, w := s.pathsFor(peer, d.KnownPathList, d.OldKnownPathList, c.other[i])
		announced, withdrawn = append(announced, a...), append(withdrawn, w...)
	}
	sendInOrder(peer, announced, withdrawn)
	return true
}

// sendInOrder has what takes the place of a path go out before the path is withdrawn; in one piece GoBGP would put withdrawals first.
func sendInOrder(peer *peer, announced, withdrawn []*table.Path) {
	if len(announced) > 0 {
		sendfsmOutgoingMsg(peer, announced, nil, false)
	}
	if len(withdrawn) > 0 {
		sendfsmOutgoingMsg(peer, withdrawn, nil, false)
	}
}

// pathsFor returns what a peer must hear for it to have of a prefix what policy lets out: of all paths, or of the best. Of the known paths those
// that are other ones than before are marked; the rest is as it was sent.
func (s *BgpServer) pathsFor(peer *peer, known, before []*table.Path, other []bool) (announced, withdrawn []*table.Path) {
	wanted := known
	if !s.several {
		wanted = known[:min(1, len(known))]
	}
	var kept []uint32
	for i, p := range wanted {
		if !other[i] && peer.hasSent(p) {
			kept = append(kept, p.GetNlri().PathLocalIdentifier())
			continue
		}
		if q := s.filterpath(peer, p, nil); q != nil && !q.IsWithdraw {
			announced = append(announced, q)
			kept = append(kept, p.GetNlri().PathLocalIdentifier())
		}
	}
	for _, p := range before {
		if peer.hasSent(p) && !slices.Contains(kept, p.GetNlri().PathLocalIdentifier()) {
			withdrawn = append(withdrawn, p.Clone(true))
		}
	}
	return announced, withdrawn
}

// SendSeveralPaths says what neighbours with ADD-PATH are sent of each prefix: all paths that policy lets out, or the best alone. Those that are up
// are told of the difference.
func (s *BgpServer) SendSeveralPaths(yes bool) {
	s.mgmtOperation(func() error {
		if s.several == yes {
			return nil
		}
		s.several = yes
		for _, peer := range s.neighborMap {
			for _, family := range peer.negotiatedRFList() {
				if t, ok := s.globalRib.Tables[family]; ok && peer.isAddPathSendEnabled(family) && needToAdvertise(peer) {
					s.sendDifference(peer, t)
				}
			}
		}
		return nil
	}, false)
}

func (s *BgpServer) sendDifference(peer *peer, t *table.Table) {
	var announced, withdrawn []*table.Path
	for _, d := range t.GetDestinations() {
		if known := d.GetAllKnownPathList(); len(known) > 1 {
			a, w := s.pathsFor(peer, known, known, make([]bool, len(known)))
			announced, withdrawn = append(announced, a...), append(withdrawn, w...)
		}
	}
	sendInOrder(peer, announced, withdrawn)
}
