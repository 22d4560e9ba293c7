// Package gobgp keeps one embedded GoBGP equal to a bgp.Plan and hands on what peers announce. It
// owns the BgpServer, its gRPC and everything configured in it; it decides nothing: what to
// announce, whom to peer with and what to pass on stands in the plan. It is the only importer of
// GoBGP, and GoBGP's types do not leave it.
//
// GoBGP keeps its multipath switch in a process-wide variable, so every Speaker of a process uses
// multipath.
package gobgp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// Sink takes what peers announce. Learned gets the complete best-path set of a prefix when it may
// have changed, sorted by next hop and peer, all fresh or all stale, and empty when no remote path
// is best. Calls come one at a time in GoBGP's order, and before Peers shows what they report. A
// peer, but not GoBGP, may wait for Learned, which must not call the Speaker.
type Sink interface {
	Learned(prefix netip.Prefix, paths []bgp.Path)
}

// Passwords finds TCP MD5 keys; it must not wait for anything. While there is an error its peers
// are not configured (fail closed), are shown with it, and come up within seconds once there is a
// password. A peer that is configured keeps the key that it has. Passwords are asked for every few
// seconds: a changed one resets its peers and no other. Errors must not contain one.
type Passwords func(calico.SecretKeyRef) (password string, err error)

// Config is what a Speaker is made of. Log is required.
type Config struct {
	Log *slog.Logger
	// Sink may be nil: what peers announce is not reported. Then Peers shows no LastUpdate, and
	// unusable paths are not counted.
	Sink Sink
	// Tap is called in the goroutine of a session that has come up, and returns who is told what
	// its peer sends; nil: nobody is.
	Tap func(bgp.Session) bgp.Tap
	// Passwords may be nil: no secret is known.
	Passwords Passwords
	// LimitRetry is how long a peer stays down that sent more prefixes than its limit; 0 means
	// DefaultLimitRetry.
	LimitRetry time.Duration
	// look is the time between two looks at what no event reports; 0 means a second.
	look time.Duration
	// GRPC is where GoBGP's own API listens, for the gobgp CLI: "127.0.0.1:50051", "unix:///path"
	// or several with commas. Empty: off.
	GRPC string
	// GRPCTLS is what it speaks; nil: plain text.
	GRPCTLS *tls.Config
	// GRPCWrite opens the calls that change something. They bypass the plan; paths added that way
	// are removed again and counted.
	GRPCWrite bool
	// Crashes is the file in which a process that GoBGP ends notes whose message it was; "":
	// nowhere.
	Crashes string
}

// Speaker is one embedded BGP speaker. Its methods may be called from any goroutine, also before
// Run, for which Set, Stop and SetUsable then wait.
type Speaker struct {
	cfg      Config
	log      *slog.Logger
	sessions *sessions
	crashes  *crashes
	learned  *learned
	lister   lister
	received receivedHops
	requests chan request  // to the goroutine of Run
	fatal    chan error    // GoBGP gave up; of size 1, the first one counts
	ended    chan struct{} // closed when Run returns
	applied  applied       // owned by Run's goroutine
	removing atomic.Int64  // peers; see bgp.Counters

	mu   sync.Mutex
	view view
}

// applied is what GoBGP has been made to be.
type applied struct {
	server    *server.BgpServer
	speaker   *bgp.Speaker // nil while BGP is stopped
	wanted    []bgp.Peer   // of the last plan, for retries
	peers     map[bgp.PeerID]peerConf
	announced []bgp.Announcement             // by prefix
	policy    *policy                        // nil: none yet, and no peer is added before
	passwords map[calico.SecretKeyRef]string // as last known
	restart   *restart                       // nil when there was none, or it is over
	clusterID netip.Addr
}

// view is what other goroutines may know of applied; its values are never edited.
type view struct {
	server    *server.BgpServer // nil while BGP is stopped
	peers     []bgp.Peer
	problems  map[bgp.PeerID]string // why a peer is not configured as it should be
	announced []bgp.Announcement    // by prefix
}

type request struct {
	do   func(context.Context) error
	done chan error // of size 1
}

var (
	errEnded   = errors.New("gobgp: the speaker has ended")
	errStopped = errors.New("gobgp: stopped") // ends Run, not seen by callers
)

// New returns a Speaker that does nothing until Run.
func New(cfg Config) (*Speaker, error) {
	if cfg.GRPC != "" {
		if err := checkGRPC(cfg.GRPC); err != nil {
			return nil, err
		}
	}
	cfg.LimitRetry = cmp.Or(cfg.LimitRetry, DefaultLimitRetry)
	cfg.look = cmp.Or(cfg.look, time.Second)
	ss := newSessions()
	s := &Speaker{
		cfg:      cfg,
		log:      cfg.Log,
		sessions: ss,
		crashes:  readCrashes(cfg.Crashes, cfg.Log, time.Now()),
		learned:  newLearned(cfg.Log, cfg.Sink, ss, cfg.GRPCWrite),
		requests: make(chan request),
		fatal:    make(chan error, 1),
		ended:    make(chan struct{}),
	}
	s.applied.peers = map[bgp.PeerID]peerConf{}
	s.applied.passwords = map[calico.SecretKeyRef]string{}
	s.applied.server = server.NewBgpServer(s.options()...)
	s.applied.server.OnSession(s.handleEvent)
	if cfg.Tap != nil {
		s.tap()
	}
	s.applied.server.OnPanic(func(peer, what string) {
		id, _ := parsePeer(peer)
		s.crashes.note(id, what, time.Now())
	})
	return s, nil
}

// retryInterval is how often peers that could not be configured (a password that is missing, an
// error of GoBGP) are tried again.
const retryInterval = 3 * time.Second

// Run starts GoBGP and serves until ctx ends or Stop was called (nil), or GoBGP fails for good.
// When ctx ends it leaves sessions and sockets open: the process then exits, and peers whose
// connection closes without CEASE keep our routes (RFC 4724 §4.2). Run is called once.
func (s *Speaker) Run(ctx context.Context) error {
	defer close(s.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.applied.server.Serve()
	wait := s.watch(ctx)
	defer func() { cancel(); wait() }()

	tick := time.NewTicker(s.cfg.look)
	defer tick.Stop()
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.fatal:
			return err
		case r := <-s.requests:
			err := r.do(ctx)
			if errors.Is(err, errStopped) {
				r.done <- nil
				return nil
			}
			r.done <- err
		case <-s.sessions.expired:
			s.restartExpired(ctx)
		case <-s.sessions.moves:
			s.watchRestart(time.Now())
		case <-s.learned.suspicion:
			s.removeForeign(ctx)
		case now := <-tick.C:
			s.restartIncomplete(ctx, now)
			s.restartLimited(ctx, now)
			s.watchRestart(now)
		case <-retry.C:
			s.retryPeers(ctx)
		}
	}
}

func (s *Speaker) options() []server.ServerOption {
	o := []server.ServerOption{server.LoggerOption(&logger{log: s.log, fatal: s.fatal})}
	if s.cfg.GRPC != "" {
		guards := append(s.confined(), withoutKeys())
		guards = append(guards, limits()...)
		if !s.cfg.GRPCWrite {
			guards = append(guards, readOnly()...)
		}
		if s.cfg.GRPCTLS != nil {
			guards = append(guards, grpc.Creds(credentials.NewTLS(s.cfg.GRPCTLS)))
		}
		o = append(o, server.GrpcListenAddress(s.cfg.GRPC), server.GrpcOption(guards))
	}
	return o
}

// ask has do run in Run's goroutine, one at a time. When ctx ends first, do may still run.
func (s *Speaker) ask(ctx context.Context, do func(context.Context) error) error {
	r := request{do: do, done: make(chan error, 1)}
	select {
	case s.requests <- r:
	case <-s.ended:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Set makes GoBGP equal to p; the same plan twice does nothing. Errors of single items are joined,
// and the next Set tries those again. Nothing is taken when p.Speaker differs
// (bgp.ErrSpeakerChanged). Set reads p until it returns and keeps no part of it that the caller may
// edit.
func (s *Speaker) Set(ctx context.Context, p bgp.Plan) error {
	return s.ask(ctx, func(ctx context.Context) error {
		fresh := s.applied.speaker == nil
		startErr := s.start(ctx, p.Speaker)
		if startErr != nil && !errors.As(startErr, &listenError{}) {
			return startErr // without a speaker nothing else can be applied
		}
		// One that cannot listen as it should still takes the rest.
		if fresh && p.Restarting {
			s.beginRestart(p)
		}
		wanted, _ := s.confs(p.Peers)
		// Peers that go, or whose session starts anew, go first: the new policies are not made for
		// them. New ones come last, to get all of our routes packed and before End-of-RIB. Errors
		// of dropPeers come again in setPeers.
		s.dropPeers(ctx, wanted)
		s.setClusterID(p.Policies.ClusterID)
		// to those with ADD-PATH, as BIRD does to its clients
		s.applied.server.SendAllPaths(p.Policies.Reflects)
		pol := policyOf(p, &s.received)
		s.setPolicy(pol)
		return errors.Join(startErr, s.announce(pol.announced), s.setPeers(ctx, p.Peers))
	})
}

// SetUsable takes paths whose next hop cannot be used for their prefix out of GoBGP's choice of
// best paths, so that a dead best path does not hide a live second one. usable takes the place of
// the one before and survives Set; announcements are not concerned. It is asked here about all
// paths there are, and later, from GoBGP's goroutines, about each that comes.
func (s *Speaker) SetUsable(ctx context.Context,
	usable func(netip.Prefix, netip.Addr) bool) error {
	return s.ask(ctx, func(context.Context) error {
		s.applied.server.SetUsable(usable)
		return nil
	})
}

// Stop says goodbye: it sends CEASE to every peer, which then drop our routes at once, stops the
// gRPC and ends Run. What peers announced is not reported as gone: whether to forward on is not
// decided here.
func (s *Speaker) Stop(ctx context.Context) error {
	return s.ask(ctx, func(context.Context) error {
		s.learned.end()
		s.applied.server.Stop()
		s.forget()
		return errStopped
	})
}

// start makes BGP run as sp says, unless it runs otherwise already: GoBGP could change that only by
// stopping.
func (s *Speaker) start(ctx context.Context, sp bgp.Speaker) error {
	a := &s.applied
	if a.speaker != nil && sameSpeaker(*a.speaker, sp) {
		return nil
	}
	if sp.AS == 0 || !sp.RouterID.Is4() { // what runs goes on
		return fmt.Errorf("gobgp: AS %d, router ID %s: both are needed, the latter in IPv4 form",
			sp.AS, sp.RouterID)
	}
	if a.speaker != nil {
		if err := canListen(sp, *a.speaker); err != nil {
			if sp.AS == a.speaker.AS && sp.RouterID == a.speaker.RouterID {
				err = listenError{err}
			}
			return err
		}
		return bgp.ErrSpeakerChanged
	}
	if err := a.server.StartBgp(ctx, &api.StartBgpRequest{Global: global(sp)}); err != nil {
		// StartBgp leaves the listeners open that it had opened before the error; StopBgp closes
		// them.
		return errors.Join(fmt.Errorf("gobgp: start: %w", err),
			a.server.StopBgp(ctx, &api.StopBgpRequest{}))
	}
	s.log.Info("BGP started", "as", sp.AS, "router_id", sp.RouterID, "port", sp.ListenPort)
	sp.ListenAddresses = append([]netip.Addr(nil), sp.ListenAddresses...)
	a.speaker = &sp
	s.publish(func(v *view) { v.server = a.server })
	return nil
}

// listenError: BGP cannot listen where it is to, and goes on where it does.
type listenError struct{ error }

func (e listenError) Unwrap() error { return e.error }

// forget notes that GoBGP has nothing any more.
func (s *Speaker) forget() {
	s.applied.speaker, s.applied.policy, s.applied.restart = nil, nil, nil
	for id := range s.applied.peers {
		s.sessions.remove(id)
	}
	s.applied.peers, s.applied.clusterID = map[bgp.PeerID]peerConf{}, netip.Addr{}
	s.applied.announced = nil
	s.publish(func(v *view) { v.server, v.announced = nil, nil })
}

func (s *Speaker) publish(change func(*view)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.view)
}
