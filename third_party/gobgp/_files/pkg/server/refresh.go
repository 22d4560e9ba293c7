// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"slices"
	"time"

	"github.com/osrg/gobgp/v3/internal/pkg/table"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

const (
	// refreshPause is the least time between two answers to ROUTE-REFRESH for one family.
	refreshPause = time.Second
	// refreshShare keeps a peer's answers at one part in that many of the server's time.
	refreshShare = 10
)

// refresh is what a session owes its peer of one family. Each answer is the whole table, so those
// that a peer asks for before the next is due get one together.
type refresh struct {
	due  time.Time // no answer before
	owed bool
}

// refreshRoutes answers ROUTE-REFRESH, now or when the next answer is due.
func (s *BgpServer) refreshRoutes(peer *peer, e *fsmMsg) {
	if !needToAdvertise(peer) {
		return // the end of our restart's deferral sends all there is
	}
	m := e.MsgData.(*bgp.BGPMessage).Body.(*bgp.BGPRouteRefresh)
	family := bgp.AfiSafiToRouteFamily(m.AFI, m.SAFI)
	if !slices.Contains(peer.negotiatedRFList(), family) {
		family = 0 // one for all others, of which the log tells
	}
	r := peer.refreshes[family]
	if r == nil {
		r = &refresh{}
		if peer.refreshes == nil {
			peer.refreshes = map[bgp.RouteFamily]*refresh{}
		}
		peer.refreshes[family] = r
	}
	if r.owed {
		return
	}
	r.owed = true
	answer := func() error {
		// A session that ended has its messages and refreshes no more.
		if s.neighborMap[e.MsgSrc] == peer && peer.refreshes[family] == r {
			s.answerRefresh(peer, e, r)
		}
		return nil
	}
	if wait := time.Until(r.due); wait > 0 {
		time.AfterFunc(wait, func() { s.mgmtOperation(answer, false) })
		return
	}
	answer()
}

func (s *BgpServer) answerRefresh(peer *peer, e *fsmMsg, r *refresh) {
	start := time.Now()
	// End-of-RIB is for the first table of a session (RFC 4724 §2).
	paths := slices.DeleteFunc(s.handleRouteRefresh(peer, e), (*table.Path).IsEOR)
	if len(paths) > 0 {
		sendfsmOutgoingMsg(peer, paths, nil, false)
	}
	r.owed, r.due = false, time.Now().Add(max(refreshPause, refreshShare*time.Since(start)))
}
