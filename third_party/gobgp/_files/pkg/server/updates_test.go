// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"testing"
	"time"

	"github.com/osrg/gobgp/v3/internal/pkg/table"
	"github.com/osrg/gobgp/v3/pkg/config/oc"
	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// A panic while a path is encoded for a group is why it is not sent, and leaves no lock behind.
func TestEncodingPanics(t *testing.T) {
	f := newFSM(&oc.Global{}, &oc.Neighbor{}, log.NewDefaultLogger())
	g := &outGroup{key: groupKey{family: bgp.RF_IPv4_UC}, members: []*peer{{fsm: f}}}
	poison := []bgp.PathAttributeInterface{nil}
	p := table.NewPath(nil, bgp.NewIPAddrPrefix(26, "10.1.0.0"), false, poison, time.Now(), false)
	if a, why := newBuilder(&BgpServer{}, g).tryEncode(p, nil); a != nil || why == nil {
		t.Errorf("encoded as %+v, %v", a, why)
	}
	if !f.lock.TryLock() {
		t.Error("the lock is held")
	}
}
