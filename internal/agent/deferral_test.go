package agent

import (
	"strings"
	"testing"
	"time"

	"vpp-route-agent/bgp"
)

func TestSweepWaitsForWhatPeersStillMayTell(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const limit = 30 * time.Second
	done := bgp.PeerState{ID: bgp.PeerID{Address: addr("10.0.0.1")}, Established: true, GR: true,
		EndOfRIB: true}
	down := bgp.PeerState{ID: bgp.PeerID{Address: addr("10.0.0.2")}}
	restarting := bgp.PeerState{ID: bgp.PeerID{Address: addr("10.0.0.3")}, Established: true,
		GR: true, Restarting: true}
	sending := bgp.PeerState{ID: bgp.PeerID{Address: addr("10.0.0.4")}, Established: true, GR: true}
	plain := bgp.PeerState{ID: bgp.PeerID{Address: addr("10.0.0.5")}, Established: true,
		Since: start, LastUpdate: start.Add(4 * time.Second)}
	for name, tc := range map[string]struct {
		after    time.Duration // since the peers were configured
		peers    []bgp.PeerState
		unusable int
		waitsFor string // "": sweep
	}{
		"no peers, nothing unknown": {0, nil, 0, ""},
		"all have sent End-of-RIB": {time.Second, []bgp.PeerState{done, done},
			0, ""},
		"one is down": {time.Second, []bgp.PeerState{done, down},
			0, "10.0.0.2"},
		"one restarts itself and will announce again": {time.Second,
			[]bgp.PeerState{done, restarting}, 0, "10.0.0.3"},
		"one is still sending": {time.Second,
			[]bgp.PeerState{done, sending}, 0, "10.0.0.4"},
		"without graceful restart, update 2.9 s ago": {6900 * time.Millisecond,
			[]bgp.PeerState{plain}, 0, "10.0.0.5"},
		"without graceful restart, quiet for 3 s": {7 * time.Second, []bgp.PeerState{plain},
			0, ""},
		"a resource is unreadable: it may name a peer": {time.Second, []bgp.PeerState{done}, 1,
			"1 resources"},
		"the deferral ends the wait for a peer":         {limit, []bgp.PeerState{down}, 0, ""},
		"the deferral ends the wait for a bad resource": {limit, nil, 3, ""},
		"just before the deferral ends, still waits": {limit - 1, []bgp.PeerState{down}, 0,
			"10.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			var planned []bgp.Peer
			for _, p := range tc.peers {
				planned = append(planned, bgp.Peer{Address: p.ID.Address})
			}
			d := deferral{configured: start, limit: limit, peers: planned, states: tc.peers,
				unusable: tc.unusable}
			waiting := d.waiting(start.Add(tc.after))
			if (waiting == "") != (tc.waitsFor == "") || !strings.Contains(waiting, tc.waitsFor) {
				t.Errorf("waiting %q; want waiting for %q", waiting, tc.waitsFor)
			}
		})
	}
	t.Run("a planned peer that the speaker does not know is not finished", func(t *testing.T) {
		d := deferral{configured: start, limit: limit,
			peers: []bgp.Peer{{Address: addr("10.0.0.1")}}}
		if d.waiting(start.Add(time.Second)) == "" {
			t.Error("swept")
		}
	})
	t.Run("never before the peers are configured, however late", func(t *testing.T) {
		for want, d := range map[string]deferral{
			"waiting for Calico's data":         {},
			"waiting for Node(edge-5) to exist": {node: "waiting for Node(edge-5) to exist"},
			"waiting for BGP to start":          {planned: true}, // another speaker has the port
		} {
			d.limit = limit
			if got := d.waiting(start.Add(time.Hour)); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
}
