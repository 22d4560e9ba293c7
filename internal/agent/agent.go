package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/recorder"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// Datastore is where Calico's data comes from; internal/calico/etcd provides it.
type Datastore interface {
	// Snapshots delivers the newest snapshot after every kind has been listed once, and again
	// whenever something changed.
	Snapshots() <-chan *calico.Snapshot
	Status() DatastoreStatus
}

// Config is what an Agent is made of.
type Config struct {
	Node      string
	Version   string
	Dataplane string // "vpp", "kernel" or "none", for status
	Settings
	// DrainFile notes a drain, so that a restart goes on with it; "": a restart ends it.
	DrainFile string
	// StateDirError is why nothing can be kept on disk, as found at the start; nil: it can.
	StateDirError error

	Datastore Datastore
	Speaker   Speaker     // nil: no BGP (--learn ipam)
	FIB       *fib.Engine // nil with Dataplane "none"
	// Resolver knows the outgoing interfaces of next hops, for BGPFilters that ask; nil: FIB does.
	Resolver *fib.Engine
	// EtcdRoutes, which need a FIB, take routes to other nodes from Calico's blocks. They say where
	// to find addresses of hosts, the best source first. nil: routes come from BGP alone.
	EtcdRoutes []ipam.AddressSource
	// Sources are those that call Want, besides BGP and Calico's data.
	Sources []route.Origin
	// External is what external configuration shows; nil: there is none.
	External *External
	// Linux has the items of Linux beside another data plane; nil: FIB has them, or nobody.
	Linux *fib.Engine
	// Report takes what a reflector controller is told of this node, after each turn, and returns
	// at once; nil: nothing is told. Reported says how it stands in etcd.
	Report   func(reflector.Status)
	Reported func() ReportStatus
	// Uplink is the state of the uplink that the agent configures; nil: there is none.
	Uplink func() UplinkStatus
	// DataplaneStats is nil where the data plane counts nothing.
	DataplaneStats func() DataplaneStats
	Log            *slog.Logger
	// Forwarded counts the packets of the data plane; nil where there is none. It may block while
	// the data plane is frozen.
	Forwarded func() (packets uint64, err error)
	// Resolve says how the data plane forwards to an address, as fib.Dataplane has it; nil where
	// there is none.
	Resolve func(ctx context.Context, table uint32, a netip.Addr) (route.Resolution, error)
	// Lookup reads one route of ours, as fib.Dataplane has it; nil where there is none.
	Lookup func(ctx context.Context, k route.Key) (route.Route, bool, error)
	// Counter counts packets by route and next hop; nil where the data plane does not.
	Counter Counter
	// MetricsRoutes is up to how many routes, and next hops, have counters in metrics.
	MetricsRoutes int
	// Owners reads blocks that a snapshot may lack, for one question; nil: it lacks none.
	Owners func(ctx context.Context, cidrs []netip.Prefix) ([]calico.Ownership, error)
	// Recorder is told what the plan is made of, and counts what is recorded; nil: nothing is.
	Recorder *recorder.Recorder
	// LogLevel is the level of Log, which Calico's resources set; nil: they do not.
	LogLevel *slog.LevelVar
	// LogTail are the last lines of Log; nil: they are not kept.
	LogTail func() []byte
	// Configuration are the settings in force, by name, without secrets; nil: they are not shown.
	Configuration func() map[string]string
	// NothingKept: the process before ended with ErrNothingKept.
	NothingKept bool
}

// Settings is the part of Config that may change while the agent runs; see Set.
type Settings struct {
	BGP bgp.Options
	// Deferral bounds how long routes of an earlier run wait for peers that have not finished; 0
	// sweeps at once.
	Deferral time.Duration
	// WithdrawWithoutDataplane withdraws everything while the data plane is absent for longer than
	// announcements wait for it. Otherwise peers keep sending packets here, which is right where
	// VPP comes back in a moment and no other node could take them.
	WithdrawWithoutDataplane bool
	ServicesVia              ServicesVia
	// EncapPause is how long a pool's routes leave as before when its mode changes.
	EncapPause time.Duration
	// OwnLogLevel is the operator's, which overrides that of Calico's resources; nil: theirs.
	OwnLogLevel *slog.Level
}

// DataplaneStats are the counters of a data plane's connection.
type DataplaneStats struct {
	Connections uint64            // made ready for use
	Refused     map[string]uint64 // operations, by the data plane's reason
	LastContact time.Time         // zero: never, or it is not known
}

// ErrNewProcess ends Run when the speaker must start anew. The caller executes a new process and
// sends peers nothing: they and the data plane keep the routes, and no packet is lost.
var ErrNewProcess = errors.New("agent: a new process must take over")

// ErrNothingKept is an ErrNewProcess after which no peer sees the session of before: each has
// another AS or address of this node. Peers end their sessions, or what they keep leads nowhere.
var ErrNothingKept = fmt.Errorf("%w: peers keep nothing of this one", ErrNewProcess)

// CollectorPercent is GOGC where neither GOGC nor GOMEMLIMIT is set (docs/decisions/0009): with
// 200 000 routes it takes an eighth more memory than 100, and a fifth less processor time.
const CollectorPercent = 200

// Agent owns the plan. Run's goroutine owns all fields but those below a mutex.
type Agent struct {
	cfg     Config
	started time.Time
	wake    chan struct{} // of size 1: what mu guards was changed
	hasPlan chan struct{} // closed when the FIB has been handed this node's own routes
	samples chan sample   // of size 1: there is one question at a time, see traffic

	state
	snapshot       *calico.Snapshot // the newest of a datastore that was not locked
	planned        *calico.Snapshot // snapshot and facts of the plan in force
	plannedWith    Facts
	unrecorded     *planInputs      // of the plan in force, while it is to be recorded
	remotesPlanned *calico.Snapshot // that remotes was made of
	remotesPools   []route.Pool     // likewise
	sharedOf       *calico.Snapshot // that shared was made of
	ownNode        *calico.Node     // this node's object when it was last usable
	absence        absence
	arrivals       arrivals
	draining       DrainPhase // as stepDrain last left it
	formerPeers    formerPeers
	lost           lostNodes
	modes          modes
	convergence    convergence
	handOver       handOver
	usable         usableHops
	usableStale    bool       // the speaker must ask usable again about all it has
	setAt          time.Time  // when the speaker was last handed a plan
	spokeTo        []bgp.Peer // of the plan that it took last
	received       time.Time  // Received of snapshots whose routes the FIB has not been handed

	wanting sync.Mutex // guards wanted
	wanted  fib.Wanted // as last set

	firstPlan sync.Once // closes hasPlan

	startLevel slog.Level // of Log, before any resource has set it

	noting sync.Mutex // held while the drain is noted on disk; locked before mu

	mu       sync.Mutex
	shown    state     // as Run published it last
	settings *Settings // asked for by Set, and not yet taken
	believe  bool      // the datastore's list: an operator has found it right
	drain    drain
	traffic  traffic
	logs     logOverride
}

// state is the part of Run's state that Status shows.
type state struct {
	noBGP          bool      // it never changes
	turned         time.Time // when the loop last completed a turn
	plan           Plan
	problems       []calico.Problem // of the newest snapshot
	locked         string           // why Calico's data are not used, Snapshot.Locked
	waitingForNode string           // what this node's object lacks; "" if nothing
	sessions       sessions
	setError       error            // of the last Speaker.Set
	sweepWaits     string           // what the sweep waits for, for people; "": it is allowed
	remotes        ipam.RemotePlan  // routes from etcd
	shared         []calico.Problem // of hosts that share an address
	unrouted       []UnroutedStatus
	inputs         inputs
	applied        applied
	peersAwaited   string // what isWithdrawn waits for; "" if for no peer
	lostNodes      *GuardStatus
}

// New returns an Agent that does nothing until Run.
func New(cfg Config) *Agent {
	a := &Agent{
		cfg: cfg, started: time.Now(),
		wake:    make(chan struct{}, 1),
		hasPlan: make(chan struct{}),
		samples: make(chan sample, 1),
		state:   state{noBGP: cfg.Speaker == nil, sweepWaits: deferral{}.waiting(time.Time{})},
	}
	a.absence.since, a.shown = a.started, a.state
	if a.logs.taken = true; cfg.LogLevel != nil {
		a.startLevel = cfg.LogLevel.Level()
	}
	if a.noBGP {
		a.cfg.Speaker = noSpeaker{}
	}
	if cfg.Resolver == nil {
		a.cfg.Resolver = cfg.FIB
	}
	var err error
	a.drain, err = readDrainNote(cfg.DrainFile)
	switch {
	case err != nil:
		cfg.Log.Error("draining until `drain --cancel`: "+
			"there is a note of a drain that cannot be read", "err", err)
	case a.drain.state != drainNone:
		cfg.Log.Warn("an earlier run was draining; this one goes on with it",
			"until", a.drain.request.Until,
			"stay", a.drain.request.Stay)
	}
	return a
}

// Run keeps the speaker and the FIB equal to the plan until ctx ends (nil), a new process must take
// over (ErrNewProcess) or a drain is over (ErrDrained).
func (a *Agent) Run(ctx context.Context) error {
	var fibChanged <-chan struct{}
	if a.cfg.Resolver != nil {
		fibChanged = a.cfg.Resolver.Changed()
	}
	tick := time.NewTicker(time.Second) // fine enough for all that depends on time
	defer tick.Stop()
	for {
		var counted *sample
		select {
		case <-ctx.Done():
			return nil
		case s := <-a.cfg.Datastore.Snapshots():
			a.take(s)
		case s := <-a.samples:
			counted = &s
		case <-fibChanged:
		case <-a.cfg.Speaker.Changed():
		case <-a.wake:
			a.takeSettings()
		case <-tick.C:
		}
		if err := a.turn(ctx, time.Now(), counted); err != nil {
			return err
		}
	}
}

// turn brings everything up to date. An error ends Run.
func (a *Agent) turn(ctx context.Context, now time.Time, counted *sample) error {
	a.stepLogLevel(now)
	a.stepTraffic(now, counted)
	if a.stepDrain(now) {
		return a.endDrain(ctx)
	}
	if a.snapshot != nil {
		a.applyPlan(ctx, now)
		a.applyRemotes()
		a.findSharedAddresses()
		a.recordPlan(now)
		a.received = time.Time{}
		now = time.Now() // the speaker may have taken long
		peers := a.deferral()
		a.stepConvergence(now, peers)
		a.rejectNextHops(ctx)
		a.trackInterfaces()
		a.stepSweep(now, peers)
		if a.handOver.step(now, a.needsNewProcess(), peers) {
			return a.newProcess()
		}
		if a.stepDrain(now) { // what the plan withdrew may be all
			return a.endDrain(ctx)
		}
		a.stepReport(now)
	}
	a.turned = time.Now()
	a.publish()
	return nil
}

// needsNewProcess: a new process knows of a drain by its note alone.
func (a *Agent) needsNewProcess() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Is(a.setError, bgp.ErrSpeakerChanged) && a.drain.request.NotKept == ""
}

// newProcess is how Run ends for a new process to take over.
func (a *Agent) newProcess() error {
	seen := map[seenSession]bool{}
	for _, p := range a.spokeTo {
		seen[sessionSeenBy(p)] = true
	}
	for _, p := range a.plan.BGP.Peers {
		if seen[sessionSeenBy(p)] {
			return ErrNewProcess
		}
	}
	return ErrNothingKept
}

// seenSession is what a session is to a peer, which keeps our routes while a new process takes over
// if that is the same. Where the kernel chooses our address, it may have stayed.
type seenSession struct {
	peer, local       netip.Addr
	remoteAS, localAS uint32
}

func sessionSeenBy(p bgp.Peer) seenSession {
	return seenSession{p.Address, p.LocalAddress, p.RemoteAS, p.LocalAS}
}

// publish shows to Status what Run knows.
func (a *Agent) publish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shown = a.state
}

func (a *Agent) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Set has the agent go on with other settings.
func (a *Agent) Set(to Settings) {
	defer a.wakeUp()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settings = &to
}

// takeSettings invalidates the plan if there are other settings.
func (a *Agent) takeSettings() {
	a.mu.Lock()
	to := a.settings
	a.settings = nil
	a.mu.Unlock()
	if to != nil {
		a.cfg.Settings, a.planned = *to, nil
		a.setLogLevel(a.snapshot)
	}
}

// Turned is when Run's loop last completed a turn, which it does each second at least.
func (a *Agent) Turned() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.shown.turned
}

// take makes s what the plan is made of. The data of a locked datastore may be incomplete: then the
// agent goes on with what it had before, as while etcd is away.
func (a *Agent) take(s *calico.Snapshot) {
	a.problems = s.Problems
	a.setLogLevel(s)
	was := a.locked
	a.locked = s.Locked()
	switch {
	case a.locked != "" && a.locked != was:
		a.cfg.Log.Warn(a.locked + "; nothing is changed meanwhile")
	case a.locked == "" && was != "":
		a.cfg.Log.Info("the datastore is no longer locked")
	}
	if a.locked != "" {
		return
	}
	if a.cfg.Recorder != nil {
		a.cfg.Recorder.Datastore(cmp.Or(s.Received, time.Now()), s)
	}
	a.snapshot, a.received = s, s.Received
}

// deferral is the wait for the peers of the plan in force.
func (a *Agent) deferral() deferral {
	return deferral{
		configured: a.sessions.configured, limit: a.cfg.Deferral,
		peers: a.plan.BGP.Peers, states: a.cfg.Speaker.Peers(),
		planned: len(a.plan.OwnAddresses) > 0, node: a.waitingForNode,
	}
}

// backup: routes of external configuration stand behind those of BGP.
func (a *Agent) backup() bool { return a.cfg.External != nil && a.cfg.External.Backup }

func (a *Agent) stepConvergence(now time.Time, d deferral) {
	if a.noBGP || a.cfg.EtcdRoutes == nil && !a.backup() { // nothing stands behind BGP's routes
		return
	}
	if a.convergence.step(now, d) {
		a.setWanted(func(w *fib.Wanted) { w.Converging = a.convergence.converging })
	}
}

// unusable counts resources that cannot be used. Each may stand for a peer or a route.
func (a *Agent) unusable() (n int) {
	for _, p := range slices.Concat(a.remotes.Unlocated, a.plan.Overlay.Unlocated) {
		if a.cfg.FIB.Holds(route.Key{Prefix: p}) {
			n++
		}
	}
	for _, p := range slices.Concat(a.snapshot.Problems, a.plan.BGP.Problems) {
		if !p.Harmless {
			n++
		}
	}
	return n
}

// stepSweep allows, once and for all, that what an earlier run left and no source wants is deleted.
func (a *Agent) stepSweep(now time.Time, d deferral) {
	if a.cfg.FIB == nil || a.sweepWaits == "" {
		return
	}
	if a.plan.Encapsulation != nil && !a.plannedWith.InterfacesRead {
		a.sweepWaits = "waiting for the interfaces of the data plane"
		return // tunnels are not known to be wanted before
	}
	d.unusable = a.unusable()
	if d.unusable == 0 && !a.wanted.Sources[route.Overlay].Complete {
		a.complete(route.Etcd, route.Overlay) // these wait for no peer
	}
	if a.sweepWaits = d.waiting(now); a.sweepWaits == "" {
		a.cfg.Log.Info("all sources have been heard; " +
			"routes of an earlier run that none of them wants are deleted now")
		a.complete(route.Own, route.BGP, route.Etcd, route.Overlay)
	}
}
