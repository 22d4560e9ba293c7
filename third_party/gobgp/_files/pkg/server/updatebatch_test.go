// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/osrg/gobgp/v3/internal/pkg/table"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

func batchServer(waiting ...*fsmMsg) *BgpServer {
	s := NewBgpServer()
	s.adjOut = newAdjOut()
	s.messages = make(chan *fsmMsg, len(waiting))
	for _, e := range waiting {
		s.messages <- e
	}
	return s
}

func updateFrom(peer string) *fsmMsg {
	path := table.NewPath(&table.PeerInfo{AS: 1, Address: net.ParseIP(peer)},
		bgp.NewIPAddrPrefix(26, "10.1.0.0"), false,
		[]bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(0),
			bgp.NewPathAttributeNextHop(peer)},
		time.Now(), false)
	return &fsmMsg{
		MsgSrc: peer, MsgData: bgp.NewBGPUpdateMessage(nil, nil, nil),
		PathList: []*table.Path{path},
	}
}

// UPDATEs that wait together are told together, and before anything else is handled.
func TestUpdatesArePassedOnInOneBatch(t *testing.T) {
	other := &fsmMsg{MsgSrc: "10.0.0.4", MsgType: fsmMsgStateChange}
	s := batchServer(updateFrom("10.0.0.3"), other, updateFrom("10.0.0.5"))
	var handled []string
	s.handleBatch(updateFrom("10.0.0.2"), func(e *fsmMsg) {
		handled = append(handled, e.MsgSrc)
		if s.adjOut.batching != e.isUpdate() {
			t.Errorf("%s: held %t", e.MsgSrc, s.adjOut.batching)
		}
		if e == other && len(s.adjOut.changed) > 0 {
			t.Errorf("%d changes wait behind another message", len(s.adjOut.changed))
		}
		if e.isUpdate() {
			s.note([]*table.Update{{KnownPathList: e.PathList}})
			s.updateGroups()
		}
	})
	if want := []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}; !slices.Equal(handled, want) {
		t.Errorf("handled %v instead of %v", handled, want)
	}
	if s.adjOut.batching || len(s.adjOut.changed) > 0 {
		t.Errorf("held %t, %d changes wait", s.adjOut.batching, len(s.adjOut.changed))
	}
}

// panicOn is a policy that cannot stand the paths of one peer.
type panicOn struct {
	Policy
	peer netip.Addr
}

func (p panicOn) Export(_ any, from netip.AddrPort, _ Path) Decision {
	if from.Addr() == p.peer {
		panic("this one")
	}
	return Decision{}
}

// A panic is reported about the peer whose change it was, not about another of the batch.
func TestPanicOfABatchNamesThePeer(t *testing.T) {
	s := batchServer(updateFrom("10.0.0.3"), updateFrom("10.0.0.4"))
	s.adjOut.policy = panicOn{peer: netip.MustParseAddr("10.0.0.3")}
	key := groupKey{family: bgp.RF_IPv4_UC, external: true}
	s.adjOut.groups[key] = &outGroup{key: key, rib: map[routeName]sentRoute{}}
	var named string
	s.onPanic = func(peer, _ string) { named = peer }
	defer func() {
		if recover() == nil || named != "10.0.0.3" {
			t.Errorf("named %q", named)
		}
	}()
	s.handleBatch(updateFrom("10.0.0.2"), func(e *fsmMsg) {
		s.note([]*table.Update{{KnownPathList: e.PathList}})
	})
}
