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

// The wall clock is set back by an hour while a session is up. What the peer sends from then on
// counts, and its second connection is its restart.
func TestClockIsSetBack(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := runNewServer(t, 64512, "1.1.1.1", -1)
	defer s.StopBgp(context.Background(), &api.StopBgpRequest{})
	err = s.AddPeer(context.Background(), &api.AddPeerRequest{Peer: &api.Peer{
		Conf:            &api.PeerConf{NeighborAddress: "127.0.0.1", PeerAsn: 64512},
		Transport:       &api.Transport{RemotePort: uint32(l.Addr().(*net.TCPAddr).Port)},
		GracefulRestart: &api.GracefulRestart{Enabled: true, RestartTime: 120},
	}})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	open := bgp.NewBGPOpenMessage(64512, 90, "2.2.2.2", []bgp.OptionParameterInterface{
		bgp.NewOptionParameterCapability([]bgp.ParameterCapabilityInterface{
			bgp.NewCapMultiProtocol(bgp.RF_IPv4_UC), bgp.NewCapFourOctetASNumber(64512),
			bgp.NewCapGracefulRestart(false, false, 120, nil)}),
	})
	send := func(m *bgp.BGPMessage) {
		t.Helper()
		b, err := m.Serialize()
		if err == nil {
			_, err = conn.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fsm := s.neighborMap["127.0.0.1"].fsm
	eventually := func(what string, is func() bool) {
		t.Helper()
		for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("not in 20 s: %s", what)
			}
		}
	}
	send(open)
	send(bgp.NewBGPKeepAliveMessage())
	eventually("the session is up", func() bool {
		fsm.lock.RLock()
		defer fsm.lock.RUnlock()
		return fsm.state == bgp.BGP_FSM_ESTABLISHED
	})

	fsm.lock.Lock()
	fsm.pConf.Timers.State.Uptime += 3600 // by the clock the session comes up in an hour
	fsm.lock.Unlock()
	accepted := time.Now().Add(crossingTime)
	if !fsm.restartsBy(&candidate{accepted: accepted, as: 64512, open: open}) {
		t.Error("a second connection is not the peer's restart")
	}
	send(bgp.NewBGPUpdateMessage(nil, []bgp.PathAttributeInterface{
		bgp.NewPathAttributeOrigin(0), bgp.NewPathAttributeAsPath(nil),
		bgp.NewPathAttributeNextHop("192.0.2.1"), bgp.NewPathAttributeLocalPref(100),
	}, []*bgp.IPAddrPrefix{bgp.NewIPAddrPrefix(24, "10.0.0.0")}))
	eventually("the route is there", func() bool {
		n := 0
		err := s.ListPath(context.Background(), &api.ListPathRequest{
			TableType: api.TableType_GLOBAL, Family: &api.Family{Afi: 1, Safi: 1},
		}, func(*api.Destination) { n++ })
		return err == nil && n == 1
	})
}
