// Command baregobgp is GoBGP by itself, for the benchmarks: the released one, configured as the
// agent configures it. It writes the number of paths to a socket after each End-of-RIB.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/server"
)

const (
	asNumber = 64512
	bgpPort  = 179
	holdTime = 90 // seconds
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "baregobgp:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return errors.New("usage: baregobgp SOCKET ADDRESS PEER watched|unwatched")
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
	if err := configure(ctx, s, address, peer); err != nil {
		return err
	}
	filters := []*api.WatchEventRequest_Table_Filter{{Type: api.WatchEventRequest_Table_Filter_EOR}}
	if args[3] == "watched" {
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

// configure follows bgp/gobgp: start.go, policy.go and peers.go.
func configure(ctx context.Context, s *server.BgpServer, address, peer netip.Addr) error {
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
