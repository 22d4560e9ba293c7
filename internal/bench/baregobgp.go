package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/internal/netlab"
)

// bare is GoBGP by itself, in a process of its own: configured as the agent configures it (peer,
// policies, multipath, the same build and collector), but without a watcher of what it learns. Its
// speed is what an agent on top of GoBGP could reach at best.
type bare struct {
	*netlab.Process
	l    net.Listener
	conn net.Conn // carries the number of paths after each End-of-RIB
}

// watching says whether best paths are watched over GoBGP's API, and thrown away. The
// agent watches with what the build adds to GoBGP
// (docs/decisions/0013-best-paths-without-protobuf.md).
type watching string

const (
	unwatched watching = "unwatched"
	watched   watching = "watched"
)

// bareRole is the argument that makes this program a bare GoBGP.
const bareRole = "gobgp"

func (l *lab) startBare(watch watching) (*bare, error) {
	socket := filepath.Join(l.Dir(), "bare.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	b := &bare{l: listener}
	b.Process, err = l.Start(netlab.Spec{Name: "gobgp", Namespace: l.node,
		Path: l.b.self, Args: []string{
			bareRole, socket, nodeAddress.String(), peerAddress(0).String(), string(watch),
		}})
	if err == nil {
		listener.(*net.UnixListener).SetDeadline(time.Now().Add(10 * time.Second))
		b.conn, err = listener.Accept()
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return b, nil
}

// awaitEndOfRIB waits until the peer has sent End-of-RIB, and checks how many routes came.
func (b *bare) awaitEndOfRIB(paths int) error {
	b.conn.SetReadDeadline(time.Now().Add(5 * time.Minute))
	var got int
	if _, err := fmt.Fscanln(b.conn, &got); err != nil {
		return fmt.Errorf("bare GoBGP: %w", err)
	}
	if got != paths {
		return fmt.Errorf("bare GoBGP has %d paths instead of %d", got, paths)
	}
	return nil
}

func (b *bare) kill() error {
	return errors.Join(b.conn.Close(), b.l.Close(), b.Kill())
}

// serveBare is the process: `bench gobgp SOCKET ADDRESS PEER watched|unwatched`.
func serveBare(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("usage: bench %s SOCKET ADDRESS PEER %s|%s", bareRole, watched, unwatched)
	}
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	address, err := netip.ParseAddr(args[1])
	if err != nil {
		return err
	}
	peer, err := netip.ParseAddr(args[2])
	if err != nil {
		return err
	}
	s := server.NewBgpServer(server.LoggerOption(silent{}))
	go s.Serve() // never returns; it ends with the process
	if err := configureBare(ctx, s, address, peer); err != nil {
		return err
	}
	filters := []*api.WatchEventRequest_Table_Filter{{Type: api.WatchEventRequest_Table_Filter_EOR}}
	if watching(args[3]) == watched {
		filters = append(filters, &api.WatchEventRequest_Table_Filter{
			Type: api.WatchEventRequest_Table_Filter_BEST,
		})
	}
	err = s.WatchEvent(ctx,
		&api.WatchEventRequest{Table: &api.WatchEventRequest_Table{Filters: filters}},
		func(r *api.WatchEventResponse) {
			if p := r.GetTable().GetPaths(); len(p) == 0 || p[0].Nlri != nil {
				return // not an End-of-RIB, which comes behind all paths
			}
			paths := 0
			s.ListPeer(ctx, &api.ListPeerRequest{}, func(p *api.Peer) {
				for _, f := range p.AfiSafis {
					paths += int(f.GetState().GetAccepted())
				}
			})
			fmt.Fprintln(conn, paths)
		})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// configureBare follows bgp/gobgp: start.go, policy.go and peers.go.
func configureBare(ctx context.Context, s *server.BgpServer, address, peer netip.Addr) error {
	err := s.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: asNumber, RouterId: address.String(), ListenPort: bgpPort,
		ListenAddresses: []string{"0.0.0.0"}, UseMultiplePaths: true, Families: []uint32{0, 1},
	}})
	if err != nil {
		return err
	}
	accept := &api.Actions{RouteAction: api.RouteAction_ACCEPT}
	reject := &api.Actions{RouteAction: api.RouteAction_REJECT}
	local := &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL}
	err = s.SetPolicies(ctx, &api.SetPoliciesRequest{
		DefinedSets: []*api.DefinedSet{
			{
				DefinedType: api.DefinedType_COMMUNITY, Name: "not-passed-on",
				List: []string{"^65535:65282$"},
			},
		},
		Policies: []*api.Policy{
			{Name: "import", Statements: []*api.Statement{
				{Name: "own", Conditions: local, Actions: accept},
				{
					Name:       "unusable-next-hop",
					Conditions: &api.Conditions{NextHopInList: []string{address.String()}},
					Actions:    reject,
				},
			}},
			{Name: "export", Statements: []*api.Statement{
				{Name: "own-export", Conditions: local, Actions: accept},
				{
					Name:       "not-passed-on",
					Conditions: &api.Conditions{CommunitySet: &api.MatchSet{Name: "not-passed-on"}},
					Actions:    reject,
				},
			}},
		},
	})
	if err != nil {
		return err
	}
	for name, d := range map[string]api.PolicyDirection{
		"import": api.PolicyDirection_IMPORT, "export": api.PolicyDirection_EXPORT,
	} {
		err := s.SetPolicyAssignment(ctx,
			&api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
				Name: "global", Direction: d, DefaultAction: api.RouteAction_ACCEPT,
				Policies: []*api.Policy{{Name: name}},
			}})
		if err != nil {
			return err
		}
	}
	return s.AddPeer(ctx, &api.AddPeerRequest{Peer: &api.Peer{
		Conf: &api.PeerConf{
			NeighborAddress: peer.String(), PeerAsn: asNumber, LocalAsn: asNumber,
		},
		Transport: &api.Transport{
			PassiveMode: true, RemotePort: bgpPort, LocalAddress: address.String(),
		},
		Timers: &api.Timers{
			Config: &api.TimersConfig{
				HoldTime: holdTime, ConnectRetry: 3, IdleHoldTimeAfterReset: 5,
			},
		},
		GracefulRestart: &api.GracefulRestart{Enabled: true, RestartTime: 120, DeferralTime: 30},
		AfiSafis: []*api.AfiSafi{{
			Config: &api.AfiSafiConfig{
				Family:  &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST},
				Enabled: true,
			},
			MpGracefulRestart: &api.MpGracefulRestart{
				Config: &api.MpGracefulRestartConfig{Enabled: true},
			},
			AddPaths: &api.AddPaths{Config: &api.AddPathsConfig{Receive: true}},
		}},
	}})
}

// silent is a logger for GoBGP that spares it the formatting.
type silent struct{}

func (silent) Panic(string, log.Fields) {}
func (silent) Fatal(string, log.Fields) {}
func (silent) Error(string, log.Fields) {}
func (silent) Warn(string, log.Fields)  {}
func (silent) Info(string, log.Fields)  {}
func (silent) Debug(string, log.Fields) {}
func (silent) SetLevel(log.LogLevel)    {}
func (silent) GetLevel() log.LogLevel   { return log.PanicLevel }
