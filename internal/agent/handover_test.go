package agent

import (
	"testing"
	"time"

	"vpp-route-agent/bgp"
)

func TestHandOverSteps(t *testing.T) {
	p := bgp.Peer{Address: addr("192.168.4.3")}
	const limit = 30 * time.Second
	down := bgp.PeerState{ID: p.ID()}
	sending := bgp.PeerState{ID: p.ID(), Established: true, GR: true}
	heard := bgp.PeerState{ID: p.ID(), Established: true, GR: true, EndOfRIB: true}
	type step struct {
		at       int // seconds since the peers were configured
		needed   bool
		state    bgp.PeerState
		takeOver bool
	}
	for name, steps := range map[string][]step{
		"not needed":             {{1, false, heard, false}, {99, false, heard, false}},
		"a peer was down before": {{1, true, down, true}},
		"a peer has sent all":    {{1, true, heard, true}},
		"a peer is sending":      {{1, true, sending, false}, {2, true, heard, true}},
		"its session ends meanwhile": {{1, true, sending, false}, {2, true, down, false},
			{30, true, down, true}},
		"a session starts meanwhile": {{29, true, sending, false}, {30, true, sending, true}},
		"not needed any more, then again": {{1, true, sending, false}, {2, false, down, false},
			{3, true, down, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var h handOver
			configured := time.Unix(1e9, 0)
			for i, s := range steps {
				d := deferral{configured: configured, limit: limit, peers: []bgp.Peer{p},
					states: []bgp.PeerState{s.state}}
				now := configured.Add(time.Duration(s.at) * time.Second)
				if got := h.step(now, s.needed, d); got != s.takeOver {
					t.Errorf("step %d: %v, want %+v", i, got, s)
				}
			}
		})
	}
}
