package agent

import (
	"testing"
	"time"

	"vpp-route-agent/bgp"
)

func TestConvergingEndsWithTheLastPeerOrTheDeferral(t *testing.T) {
	b, c := bgp.Peer{Address: addr("192.168.4.3")}, bgp.Peer{Address: addr("192.168.4.4")}
	up := bgp.PeerState{ID: b.ID(), Established: true, GR: true, EndOfRIB: true}
	down := bgp.PeerState{ID: b.ID()}
	var m convergence
	for _, s := range []struct {
		at      int // seconds
		why     string
		peers   []bgp.Peer
		states  []bgp.PeerState
		want    bool
		changed bool
	}{
		{0, "a peer is not there yet", []bgp.Peer{b}, nil, true, true},
		{1, "it still is not", []bgp.Peer{b}, nil, true, false},
		{2, "End-of-RIB", []bgp.Peer{b}, []bgp.PeerState{up}, false, true},
		{3, "the session ended", []bgp.Peer{b}, []bgp.PeerState{down}, true, true},
		{32, "the deferral lasts", []bgp.Peer{b}, []bgp.PeerState{down}, true, false},
		{33, "the peer stays away", []bgp.Peer{b}, []bgp.PeerState{down}, false, true},
		{34, "another one is configured", []bgp.Peer{b, c}, []bgp.PeerState{down}, true, true},
		{35, "BGP is switched off", nil, []bgp.PeerState{down}, false, true},
	} {
		d := deferral{limit: 30 * time.Second, peers: s.peers, states: s.states}
		changed := m.step(time.Unix(1e9+int64(s.at), 0), d)
		if m.converging != s.want || changed != s.changed {
			t.Errorf("%s: converging %v, changed %v", s.why, m.converging, changed)
		}
	}
}
