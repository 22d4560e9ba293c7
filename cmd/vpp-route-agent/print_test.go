package main

import (
	"strings"
	"testing"

	"vpp-route-agent/internal/agent"
)

func TestStatusShowsRemovals(t *testing.T) {
	for _, left := range []int{0, 812} {
		b := &strings.Builder{}
		s := agent.Status{BGP: agent.BGPStatus{RouterID: "192.0.2.1", PeersToRemove: left}}
		if err := printStatus(b, s); err != nil {
			t.Fatal(err)
		}
		shown := strings.Contains(b.String(), "812 peers are still to be removed")
		if shown != (left > 0) {
			t.Errorf("%d left: %s", left, b)
		}
	}
}
