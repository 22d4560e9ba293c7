// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"net"
	"testing"

	"github.com/osrg/gobgp/v3/pkg/config/oc"
	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// A panic while a peer's OPEN is copied for a listing leaves no lock behind.
func TestListingPanics(t *testing.T) {
	f := newFSM(&oc.Global{}, &oc.Neighbor{}, log.NewDefaultLogger())
	f.state, f.recvOpen = bgp.BGP_FSM_ESTABLISHED, &bgp.BGPMessage{} // without a body
	f.conn, _ = net.Pipe()
	f.peerInfo.ID = net.IPv4(10, 0, 0, 1)
	s := &BgpServer{}
	err := reading(func() error { s.toConfig(&peer{fsm: f}, false); return nil })()
	if err == nil {
		t.Error("no panic")
	}
	if !f.lock.TryLock() {
		t.Error("the lock is held")
	}
}
