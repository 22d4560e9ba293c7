// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"context"
	"net"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// A peer is removed after its state has ended and before the server knows it. The connection is
// closed, and not left to the garbage collector.
func TestRemovedBetweenStates(t *testing.T) {
	open := bgp.NewBGPOpenMessage(64512, 90, "2.2.2.2", []bgp.OptionParameterInterface{
		bgp.NewOptionParameterCapability([]bgp.ParameterCapabilityInterface{
			bgp.NewCapMultiProtocol(bgp.RF_IPv4_UC), bgp.NewCapFourOctetASNumber(64512)}),
	})
	for _, from := range []bgp.FSMState{bgp.BGP_FSM_ACTIVE, bgp.BGP_FSM_OPENSENT,
		bgp.BGP_FSM_OPENCONFIRM} {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s := runNewServer(t, 64512, "1.1.1.1", -1)
		defer s.StopBgp(context.Background(), &api.StopBgpRequest{})
		err = s.AddPeer(context.Background(), &api.AddPeerRequest{Peer: &api.Peer{
			Conf: &api.PeerConf{NeighborAddress: "127.0.0.1", PeerAsn: 64512},
			Transport: &api.Transport{
				RemotePort: uint32(l.Addr().(*net.TCPAddr).Port)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		p := s.neighborMap["127.0.0.1"]
		var conn net.Conn
		proceed := func(state bgp.FSMState) { // what the peer does in a state
			switch state {
			case bgp.BGP_FSM_ACTIVE:
				conn, err = l.Accept()
			case bgp.BGP_FSM_OPENSENT:
				b, _ := open.Serialize()
				_, err = conn.Write(b)
			case bgp.BGP_FSM_OPENCONFIRM:
				b, _ := bgp.NewBGPKeepAliveMessage().Serialize()
				_, err = conn.Write(b)
			}
			if err != nil {
				t.Error(err)
			}
		}
		for state := bgp.BGP_FSM_ACTIVE; state <= from; state++ {
			began := time.Now()
			for reached := false; !reached; time.Sleep(time.Millisecond) {
				p.fsm.lock.RLock()
				reached = p.fsm.state == state
				p.fsm.lock.RUnlock()
				if !reached && time.Since(began) > time.Minute {
					t.Fatalf("%s is not reached", state)
				}
			}
			if state < from {
				proceed(state)
			}
		}
		s.mgmtOperation(func() error {
			proceed(from)
			p.fsm.h.wg.Wait()
			return s.deleteNeighbor(p.fsm.pConf, bgp.BGP_ERROR_CEASE,
				bgp.BGP_ERROR_SUB_PEER_DECONFIGURED)
		}, false)
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		b := make([]byte, bgp.BGP_MAX_MESSAGE_LENGTH)
		for err == nil {
			_, err = conn.Read(b)
		}
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Errorf("%s: the connection stays open", from)
		}
	}
}
