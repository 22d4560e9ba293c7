package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	api "github.com/osrg/gobgp/v3/api"
	gobgplog "github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"vpp-route-agent/internal/route"
)

// peer is a GoBGP speaker with one neighbour, the agent: a process of its own, since GoBGP keeps
// options in variables of the process. It keeps what it announces while it is down, as a router
// that restarts does.
type peer struct {
	socket      string // of its gRPC
	addr, agent netip.Addr
	as          uint32
	restarts    bool // graceful restart
	password    string
	announced   map[netip.Prefix]announced
	running     bool // BGP is started
	process     *exec.Cmd
	conn        *grpc.ClientConn
	api         api.GobgpApiClient
	watches     sync.WaitGroup

	mu          sync.Mutex // guards what the watch writes
	established bool
	drops       int // how often the session went down, across restarts
	lost        int // routes of the agent that were the best and went
}

// servePeer is the main function of a peer's process: a GoBGP without configuration that listens
// for gRPC on the socket in the first argument.
func servePeer() {
	server.NewBgpServer(server.GrpcListenAddress("unix://"+os.Args[1]),
		server.LoggerOption(silent{})).Serve()
}

type announced struct {
	nextHop     netip.Addr
	localPref   uint32
	communities []uint32
}

var bgpCommand = verbs(map[string]command{
	"start":    bgpStart,
	"stop":     bgpStop,
	"kill":     bgpKill,
	"hang":     bgpSignal(syscall.SIGSTOP),
	"continue": bgpSignal(syscall.SIGCONT),
	"announce": bgpAnnounce,
	"withdraw": bgpWithdraw,
	"session":  bgpSession,
	"drops":    bgpDrops,
	"lost":     bgpLost,
	"rib":      bgpRIB,
})

// bgp start NAME [as=N] [wait] [dial] [norestart] [password=P]: a speaker at $NET.N that peers with
// the agent. It dials or waits as a Calico node does, unless told. Started again after bgp stop it
// announces what it did.
func bgpStart(sc *script, args []string) (string, error) {
	if len(args) == 0 {
		return "", usage("bgp start NAME [as=N] [wait] [dial] [norestart] [password=P]")
	}
	p := sc.peers[args[0]]
	if p == nil {
		addr, agent, err := sc.session(args[0])
		if err != nil {
			return "", err
		}
		p = &peer{socket: sc.path(args[0] + ".sock"), addr: addr, agent: agent, as: 64512,
			restarts: true, announced: map[netip.Prefix]announced{}}
		sc.peers[args[0]] = p
	}
	passive := p.agent.String() > p.addr.String()
	for _, arg := range args[1:] {
		switch {
		case arg == "wait" || arg == "dial":
			passive = arg == "wait"
		case arg == "norestart":
			p.restarts = false
		case strings.HasPrefix(arg, "password="):
			p.password = arg[len("password="):]
		case strings.HasPrefix(arg, "as="):
			as, err := strconv.ParseUint(arg[3:], 10, 32)
			if err != nil {
				return "", usage("%v", err)
			}
			p.as = uint32(as)
		default:
			return "", usage("%q", arg)
		}
	}
	return "", sc.startPeer(p, passive)
}

// session returns the two ends of the session between a peer and the agent. A name that ends in -vN
// is an IPv6 peer.
func (sc *script) session(name string) (peer, agent netip.Addr, err error) {
	number := name[strings.LastIndex(name, "-")+1:]
	if six, ok := strings.CutPrefix(number, "v"); ok {
		peer, err = netip.ParseAddr(namespaceNet6 + six)
		if err != nil {
			return peer, agent, usage("%v", err)
		}
		return peer, netip.MustParseAddr(namespaceNet6 + "5"), nil
	}
	peer, err = sc.address(name)
	return peer, netip.MustParseAddr(sc.net + ".5"), err
}

func (sc *script) startPeer(p *peer, passive bool) (err error) {
	if p.running {
		return usage("the peer runs already")
	}
	if p.process == nil {
		if err := p.launch(sc.children); err != nil {
			return err
		}
	}
	ctx, cancel := brief()
	defer cancel()
	id := p.addr
	if !id.Is4() {
		raw := id.As16()
		id = netip.AddrFrom4([4]byte{10, 9, 9, raw[15]})
	}
	if _, err := p.api.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: p.as, RouterId: id.String(), ListenPort: bgpPort,
		ListenAddresses: []string{p.addr.String()},
	}}, grpc.WaitForReady(true)); err != nil {
		return err
	}
	p.running = true
	for prefix, a := range p.announced {
		err = errors.Join(err, p.add(ctx, prefix, a))
	}
	if err == nil {
		_, err = p.api.AddPeer(ctx, &api.AddPeerRequest{Peer: p.neighbour(passive)})
	}
	return err
}

// launch starts the process and watches its session.
func (p *peer) launch(children *forker) error {
	self, err := exec.LookPath("bgp-peer") // testscript.Main put it there
	if err != nil {
		return err
	}
	os.Remove(p.socket) // of a process that was killed
	cmd := exec.Command(self, p.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := children.start(cmd); err != nil {
		return err
	}
	p.process = cmd
	p.conn, err = grpc.NewClient("unix:"+p.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	p.api = api.NewGobgpApiClient(p.conn)
	stream, err := p.api.WatchEvent(context.Background(), &api.WatchEventRequest{
		Peer: &api.WatchEventRequest_Peer{},
		Table: &api.WatchEventRequest_Table{Filters: []*api.WatchEventRequest_Table_Filter{
			{Type: api.WatchEventRequest_Table_Filter_BEST},
		}},
	}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	p.watches.Go(func() { p.watch(stream) })
	return nil
}

func familyOf(a netip.Addr) *api.Family {
	if a.Is4() {
		return &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	}
	return &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}
}

func (p *peer) neighbour(passive bool) *api.Peer {
	n := &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: p.agent.String(), PeerAsn: 64512,
			AuthPassword: p.password},
		Transport: &api.Transport{LocalAddress: p.addr.String(), RemotePort: bgpPort,
			PassiveMode: passive},
		Timers: &api.Timers{Config: &api.TimersConfig{ConnectRetry: 1,
			IdleHoldTimeAfterReset: 1}},
		EbgpMultihop: &api.EbgpMultihop{Enabled: p.as != 64512, MultihopTtl: 64},
		AfiSafis: []*api.AfiSafi{{Config: &api.AfiSafiConfig{Family: familyOf(p.addr),
			Enabled: true}}},
	}
	if p.restarts {
		n.GracefulRestart = &api.GracefulRestart{Enabled: true, RestartTime: 60}
		n.AfiSafis[0].MpGracefulRestart = &api.MpGracefulRestart{
			Config: &api.MpGracefulRestartConfig{Enabled: true},
		}
	}
	return n
}

// watch counts how often the session goes down and how many routes go, until the process ends.
func (p *peer) watch(events api.GobgpApi_WatchEventClient) {
	for {
		r, err := events.Recv()
		if err != nil {
			return
		}
		for _, path := range r.GetTable().GetPaths() {
			if path.IsWithdraw && path.NeighborIp == p.agent.String() {
				p.mu.Lock()
				p.lost++
				p.mu.Unlock()
			}
		}
		e := r.GetPeer()
		if e == nil || e.Type != api.WatchEventResponse_PeerEvent_STATE {
			continue
		}
		up := e.Peer.State.SessionState == api.PeerState_ESTABLISHED
		p.mu.Lock()
		if p.established && !up {
			p.drops++
		}
		p.established = up
		p.mu.Unlock()
	}
}

// kill ends the process without a word to the agent.
func (p *peer) kill() {
	if p.process == nil {
		return
	}
	p.process.Process.Kill()
	_ = p.process.Wait() // killed
	if p.conn != nil {
		p.conn.Close()
	}
	p.watches.Wait()
	p.process, p.running, p.established = nil, false, false
}

func (sc *script) peer(args []string, n int, use string) (*peer, error) {
	if len(args) != n {
		return nil, usage("%s", use)
	}
	p := sc.peers[args[0]]
	if p == nil {
		return nil, usage("there is no peer %s", args[0])
	}
	return p, nil
}

// bgp stop NAME: the peer leaves with a CEASE.
func bgpStop(sc *script, args []string) (string, error) {
	p, err := sc.peer(args, 1, "bgp stop NAME")
	if err != nil || !p.running {
		return "", usage("bgp stop NAME, of a peer that runs")
	}
	ctx, cancel := brief()
	defer cancel()
	p.running = false
	_, err = p.api.StopBgp(ctx, &api.StopBgpRequest{})
	return "", err
}

// bgp kill NAME: the peer's process dies; its connection breaks without a CEASE.
func bgpKill(sc *script, args []string) (string, error) {
	p, err := sc.peer(args, 1, "bgp kill NAME")
	if err != nil {
		return "", err
	}
	p.kill()
	return "", nil
}

// bgp hang NAME stops the peer's process, whose connections stay. bgp continue NAME lets it go on.
func bgpSignal(s syscall.Signal) command {
	return func(sc *script, args []string) (string, error) {
		p, err := sc.peer(args, 1, "bgp hang|continue NAME")
		if err != nil {
			return "", err
		}
		return "", p.process.Process.Signal(s)
	}
}

// bgp announce NAME PREFIX NEXTHOP [local-pref=N] [community=N]: a community as one number.
func bgpAnnounce(sc *script, args []string) (string, error) {
	const use = "bgp announce NAME PREFIX NEXTHOP [local-pref=N] [community=N]"
	a := announced{localPref: 2147482623}
	for len(args) > 3 {
		name, value, _ := strings.Cut(args[len(args)-1], "=")
		n, err := strconv.ParseUint(value, 10, 32)
		switch {
		case err != nil:
			return "", usage(use)
		case name == "local-pref":
			a.localPref = uint32(n)
		case name == "community":
			a.communities = []uint32{uint32(n)}
		default:
			return "", usage(use)
		}
		args = args[:len(args)-1]
	}
	p, err := sc.peer(args, 3, use)
	if err != nil {
		return "", err
	}
	prefix, err := netip.ParsePrefix(args[1])
	if err != nil {
		return "", usage("%v", err)
	}
	if a.nextHop, err = netip.ParseAddr(args[2]); err != nil {
		return "", usage("%v", err)
	}
	p.announced[prefix] = a
	if !p.running {
		return "", nil
	}
	ctx, cancel := brief()
	defer cancel()
	return "", p.add(ctx, prefix, a)
}

func (p *peer) add(ctx context.Context, prefix netip.Prefix, a announced) error {
	path, err := pathOf(prefix, a)
	if err != nil {
		return err
	}
	_, err = p.api.AddPath(ctx, &api.AddPathRequest{Path: path})
	return err
}

func pathOf(prefix netip.Prefix, a announced) (*api.Path, error) {
	var errs []error
	pack := func(m proto.Message) *anypb.Any {
		packed, err := anypb.New(m)
		errs = append(errs, err)
		return packed
	}
	family := familyOf(prefix.Addr())
	nlri := pack(&api.IPAddressPrefix{Prefix: prefix.Addr().String(),
		PrefixLen: uint32(prefix.Bits())})
	attrs := []*anypb.Any{pack(&api.OriginAttribute{}),
		pack(&api.LocalPrefAttribute{LocalPref: a.localPref})}
	if prefix.Addr().Is4() {
		attrs = append(attrs, pack(&api.NextHopAttribute{NextHop: a.nextHop.String()}))
	} else {
		attrs = append(attrs, pack(&api.MpReachNLRIAttribute{Family: family,
			NextHops: []string{a.nextHop.String()}, Nlris: []*anypb.Any{nlri}}))
	}
	if len(a.communities) > 0 {
		attrs = append(attrs, pack(&api.CommunitiesAttribute{Communities: a.communities}))
	}
	return &api.Path{Family: family, Nlri: nlri, Pattrs: attrs}, errors.Join(errs...)
}

// bgp withdraw NAME PREFIX
func bgpWithdraw(sc *script, args []string) (string, error) {
	p, err := sc.peer(args, 2, "bgp withdraw NAME PREFIX")
	if err != nil {
		return "", err
	}
	prefix, err := netip.ParsePrefix(args[1])
	if err != nil {
		return "", usage("%v", err)
	}
	a, ok := p.announced[prefix]
	if !ok {
		return "", usage("%s does not announce %s", args[0], prefix)
	}
	delete(p.announced, prefix)
	if !p.running {
		return "", nil
	}
	path, err := pathOf(prefix, a)
	if err != nil {
		return "", err
	}
	ctx, cancel := brief()
	defer cancel()
	_, err = p.api.DeletePath(ctx, &api.DeletePathRequest{Family: path.Family, Path: path})
	return "", err
}

// bgp session NAME: the session with the agent is up.
func bgpSession(sc *script, args []string) (string, error) {
	p, err := sc.peer(args, 1, "bgp session NAME")
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.established {
		return "", fmt.Errorf("the session with %s is not up", args[0])
	}
	return "", nil
}

// bgp drops NAME N: the session went down so often.
func bgpDrops(sc *script, args []string) (string, error) {
	p, err := sc.peer(args, 2, "bgp drops NAME N")
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if strconv.Itoa(p.drops) != args[1] {
		return "", fmt.Errorf("the session with %s dropped %d times, want %s", args[0], p.drops,
			args[1])
	}
	return "", nil
}

// bgp lost NAME N: so many routes of the agent went.
func bgpLost(sc *script, args []string) (string, error) {
	p, err := sc.peer(args, 2, "bgp lost NAME N")
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if strconv.Itoa(p.lost) != args[1] {
		return "", fmt.Errorf("%s lost %d routes, want %s", args[0], p.lost, args[1])
	}
	return "", nil
}

// bgp rib NAME FILE: what the peer knows from the agent.
func bgpRIB(sc *script, args []string) (string, error) {
	p, err := sc.peer(args, 2, "bgp rib NAME FILE")
	if err != nil || !p.running {
		return "", usage("bgp rib NAME FILE, of a peer that runs")
	}
	rows, err := p.learned()
	if err != nil {
		return "", err
	}
	return sc.compare(rows, args[1])
}

// learned lists the agent's paths: "PREFIX via NEXTHOP local-pref N", and in the end "as N" from
// another AS, "community N:M", "stale" where only graceful restart keeps it.
func (p *peer) learned() ([]string, error) {
	ctx, cancel := brief()
	defer cancel()
	stream, err := p.api.ListPath(ctx, &api.ListPathRequest{TableType: api.TableType_GLOBAL,
		Family: familyOf(p.addr)})
	if err != nil {
		return nil, err
	}
	rows := map[netip.Prefix]string{}
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		prefix, err := netip.ParsePrefix(r.Destination.Prefix)
		if err != nil {
			return nil, err
		}
		for _, path := range r.Destination.Paths {
			if path.NeighborIp != p.agent.String() {
				continue
			}
			row, err := describe(path)
			if err != nil {
				return nil, err
			}
			rows[prefix] = prefix.String() + row
		}
	}
	var sorted []string
	for _, prefix := range slices.SortedFunc(maps.Keys(rows), route.ComparePrefixes) {
		sorted = append(sorted, rows[prefix])
	}
	return sorted, nil
}

func describe(path *api.Path) (string, error) {
	hop, pref, as := "", "", ""
	for _, packed := range path.Pattrs {
		m, err := packed.UnmarshalNew()
		if err != nil {
			return "", err
		}
		switch a := m.(type) {
		case *api.NextHopAttribute:
			hop = " via " + a.NextHop
		case *api.MpReachNLRIAttribute:
			hop = " via " + strings.Join(a.NextHops, ",")
		case *api.LocalPrefAttribute:
			pref = fmt.Sprintf(" local-pref %d", a.LocalPref)
		case *api.CommunitiesAttribute:
			for _, c := range a.Communities {
				as += fmt.Sprintf(" community %d:%d", c>>16, c&0xffff)
			}
		case *api.AsPathAttribute:
			for _, segment := range a.Segments {
				for _, n := range segment.Numbers {
					as += fmt.Sprintf(" as %d", n)
				}
			}
		}
	}
	if path.Stale {
		as += " stale"
	}
	return hop + pref + as, nil
}

// silent is GoBGP's logger for peers: what they think is no concern of the scripts.
type silent struct{}

func (silent) Panic(msg string, _ gobgplog.Fields) { panic("peer: " + msg) }
func (silent) Fatal(msg string, _ gobgplog.Fields) { panic("peer: " + msg) }
func (silent) Error(string, gobgplog.Fields)       {}
func (silent) Warn(string, gobgplog.Fields)        {}
func (silent) Info(string, gobgplog.Fields)        {}
func (silent) Debug(string, gobgplog.Fields)       {}
func (silent) SetLevel(gobgplog.LogLevel)          {}
func (silent) GetLevel() gobgplog.LogLevel         { return gobgplog.PanicLevel }
