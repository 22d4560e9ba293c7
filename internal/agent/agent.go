package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// Datastore is where Calico's data comes from; internal/calico/etcd provides it.
type Datastore interface {
	// Snapshots delivers the newest snapshot after every kind has been listed once, and again whenever something changed.
	Snapshots() <-chan *calico.Snapshot
	// Status is how the connection stands.
	Status() DatastoreStatus
}

// Speaker is the BGP side; bgp/gobgp provides it.
type Speaker interface {
	Set(ctx context.Context, p bgp.Plan) error
	// RejectNextHops has paths with these next hops passed over, so that a live second path takes
	// over.
	RejectNextHops(ctx context.Context, dead []netip.Addr) error
	// NextHops are those of all that was received from peers whose import filters ask for
	// interfaces.
	NextHops() []netip.Addr
	Peers() []bgp.PeerState
	Counters() bgp.Counters
	Announced() []bgp.Announcement
	Changed() <-chan struct{}
	// Stop says goodbye to all peers.
	Stop(ctx context.Context) error
}

// Config is what an Agent is made of.
type Config struct {
	Node      string
	Version   string
	Dataplane string // "vpp", "kernel" or "none": how it is called in status
	Settings
	// DrainFile is where a drain is noted, so that a restart goes on with it; "": a restart ends it.
	DrainFile string

	Datastore Datastore
	Speaker   Speaker     // nil: no BGP (--learn ipam)
	FIB       *fib.Engine // nil with Dataplane "none"
	// Ways tells by which interface next hops are reached, for BGPFilters that ask; nil: FIB does.
	Ways *fib.Engine
	// EtcdRoutes has routes to other nodes taken from Calico's blocks in etcd, and says where the addresses of hosts are found, the first
	// that has one first. nil: routes come from BGP alone. It needs a FIB.
	EtcdRoutes []ipam.AddressSource
	// Uplink tells how the uplink stands that the agent takes care of; nil: it takes care of none.
	Uplink func() UplinkStatus
	// DataplaneStats is nil where the data plane counts nothing.
	DataplaneStats func() DataplaneStats
	Log            *slog.Logger
	// Forwarded counts the packets of the data plane; nil where there is none. It may take as long as the data plane is frozen.
	Forwarded func() (packets uint64, err error)
	// LogLevel is the level of Log, to be set; nil: it stays.
	LogLevel *slog.LevelVar
}

// Settings is the part of Config that may change while the agent runs; see Set.
type Settings struct {
	BGP bgp.Options
	// Deferral bounds how long routes of an earlier run wait for peers that have not finished; 0
	// sweeps at once.
	Deferral time.Duration
	// WithdrawWithoutDataplane withdraws everything while the data plane is away for longer than
	// announcements wait for it. Otherwise peers keep sending packets here, which is right where
	// VPP comes back in a moment and nobody else could take them.
	WithdrawWithoutDataplane bool
	// OwnLogLevel is the operator's, which goes before what Calico's resources ask for; nil:
	// theirs.
	OwnLogLevel *slog.Level
}

// DataplaneStats are the counters of a data plane's connection.
type DataplaneStats struct {
	Connections uint64            // made ready for use
	Refused     map[string]uint64 // operations, by the data plane's reason
}

// ErrNewProcess ends Run when the speaker must start anew. The caller lets a new process take over, without a word to the peers: then they keep
// our routes, the data plane keeps theirs, and no packet is lost.
var ErrNewProcess = errors.New("agent: a new process must take over")

// CollectorPercent is what the agent sets where neither GOGC nor GOMEMLIMIT is set (docs/decisions/0009): with 200 000 routes an eighth more
// memory than Go's default of 100, and a fifth less processor time.
const CollectorPercent = 200

// absentAfter is how long announcements wait for the drop routes of a data plane that is away. Longer would withhold blocks whose
// packets nobody forwards anyway.
const absentAfter = 5 * time.Second

// Agent owns the plan. One goroutine, Run, changes it; the mutex guards what Status reads.
type Agent struct {
	cfg     Config
	noBGP   bool
	started time.Time

	// Owned by Run.
	snapshot    *calico.Snapshot // the newest that was not of a locked datastore
	planned     *calico.Snapshot // the snapshot and the facts of the plan in force
	plannedWith Facts
	listed      int                 // Lists of the snapshot of which own routes were last set
	ownNode     *calico.Node        // this node's object as it last was usable
	firstPlan   time.Time           // when there was first something to hand to the speaker
	absentSince time.Time           // zero while the data plane is there
	arrivals    arrivals            // what came by live migration
	rejected    []netip.Addr        // next hops that the speaker rejects
	followed    []netip.Addr        // whose ways are followed, see followWays
	upBefore    map[bgp.PeerID]bool // peers with a session when it was seen that a new process is needed; nil: none is
	// Which peers have not told all they know, since when, and what the FIB was told about that.
	unfinished      []bgp.PeerID
	unfinishedSince time.Time
	converging      bool
	remotesOf       *calico.Snapshot // of which remotes was made

	wake    chan struct{} // of size 1: somebody changed what the mutex guards
	listing chan struct{} // of size 1: full while somebody is told all routes

	keeping sync.Mutex // held while the drain is written; goes before mu

	mu             sync.Mutex
	settings       *Settings // asked for by Set, and not yet taken
	turned         time.Time // when Run's loop last came round
	plan           Plan
	handsOff       bool             // Calico says datastoreReady: false
	waitingForNode string           // what keeps a plan from being made; "" when one is in force
	configured     time.Time        // when the speaker first took a plan with peers or announcements
	setError       error            // of the last Speaker.Set
	problems       []calico.Problem // of the newest snapshot
	swept          bool
	waiting        string          // what the sweep waits for
	remotes        ipam.RemotePlan // routes from etcd
	unrouted       []UnroutedStatus
	drain          DrainStatus
	traffic        traffic
	asking         bool      // a sample of the traffic is under way
	asked          time.Time // when the last one began
	waited         bool      // the drain's wait is over
	peersBack      bool      // no peer keeps what an earlier process announced, where that is to be withdrawn
	withdrawn      time.Time // when the speaker had withdrawn everything
	stopping       bool      // the drain cannot be taken back any more
}

// New returns an Agent that does nothing until Run.
func New(cfg Config) *Agent {
	noBGP := cfg.Speaker == nil
	if noBGP {
		cfg.Speaker = silence{}
	}
	drain, err := readDrain(cfg.DrainFile)
	switch {
	case err != nil:
		cfg.Log.Error("draining until `drain --cancel`: there is a note of a drain that cannot be read", "err", err)
	case drain.Phase != NotDraining:
		cfg.Log.Warn("an earlier run was draining; this one goes on with it", "until", drain.Until, "stay", drain.Stay)
	}
	if cfg.Ways == nil {
		cfg.Ways = cfg.FIB
	}
	return &Agent{
		cfg: cfg, noBGP: noBGP, started: time.Now(), absentSince: time.Now(), waiting: "waiting for Calico's data", swept: cfg.FIB == nil,
		wake: make(chan struct{}, 1), listing: make(chan struct{}, 1), drain: drain,
	}
}

// Run keeps the speaker and the FIB equal to the plan until ctx ends (nil), a new process must take over (ErrNewProcess) or a drain is over
// (ErrDrained).
func (a *Agent) Run(ctx context.Context) error {
	var fibChanged <-chan struct{}
	if a.cfg.Ways != nil {
		fibChanged = a.cfg.Ways.Changed()
	}
	// Absence, deferral and quiet peers are matters of time; a look each second is fine enough for all of them.
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-a.cfg.Datastore.Snapshots():
			a.take(s)
		case <-fibChanged:
		case <-a.cfg.Speaker.Changed():
		case <-a.wake:
			a.takeSettings()
		case <-tick.C:
		}
		a.sampleTraffic(time.Now())
		a.endWait(time.Now())
		if a.snapshot != nil {
			a.apply(ctx)
			a.applyRemotes()
			a.noteConverging(time.Now())
			a.rejectNextHops(ctx)
			a.followWays()
			a.sweep()
			if a.mayHandOver() {
				return ErrNewProcess
			}
		}
		if a.advanceDrain(time.Now()) {
			return a.endDrain(ctx)
		}
		a.noteTurn()
	}
}

// Set has the agent go on with other settings.
func (a *Agent) Set(to Settings) {
	a.mu.Lock()
	a.settings = &to
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// takeSettings has the plan made anew if there are other settings.
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

func (a *Agent) noteTurn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turned = time.Now()
}

// Turned is when Run's loop last came round, which it does each second at least; a watchdog looks at it.
func (a *Agent) Turned() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.turned
}

// take makes s what the plan is made of. What a locked datastore has (datastoreReady: false) may be on its way out of it or into it: then the
// agent goes on with what it had before, as while etcd is away.
func (a *Agent) take(s *calico.Snapshot) {
	a.noteProblems(s.Problems)
	a.setLogLevel(s)
	a.setHandsOff(s.DatastoreNotReady)
	if !s.DatastoreNotReady {
		a.snapshot = s
	}
}

// apply computes the plan and hands it on, again when what was handed on changed the facts that the plan is made of: an announcement
// that went lets its drop route go. It does nothing while neither snapshot nor facts changed, unless the speaker owes us something.
func (a *Agent) apply(ctx context.Context) {
	for ctx.Err() == nil {
		f := a.facts()
		if a.planned == a.snapshot && reflect.DeepEqual(a.plannedWith, f) {
			break
		}
		a.planned, a.plannedWith = a.snapshot, f
		plan := a.planFor(f)
		a.setWaitingForNode(plan.BGP.Waiting)
		if plan.BGP.Waiting != "" && a.ownNode != nil {
			plan = PlanFor(a.cfg.Node, withNode(a.snapshot, *a.ownNode), a.cfg.BGP, f)
		}
		if plan.BGP.Waiting != "" {
			continue
		}
		if node, ok := a.snapshot.Nodes[a.cfg.Node]; ok && a.waitingForNode == "" {
			a.ownNode = &node
		}
		a.applyPlan(ctx, plan)
	}
	if a.setError != nil || a.configured.IsZero() {
		a.setSpeaker(ctx)
	}
}

func (a *Agent) planFor(f Facts) Plan {
	if a.noBGP {
		return PlanWithoutBGP(a.cfg.Node, a.snapshot, f)
	}
	return PlanFor(a.cfg.Node, a.snapshot, a.cfg.BGP, f)
}

func (a *Agent) applyPlan(ctx context.Context, plan Plan) {
	if a.cfg.FIB != nil {
		a.cfg.FIB.Protect(plan.OwnAddresses, plan.PeerAddresses)
		a.cfg.FIB.KeepOut(plan.BGP.NotProgrammed)
		a.cfg.FIB.SetNormal(plan.BGP.Policies.Normal4, plan.BGP.Policies.Normal6)
		if a.snapshot.Lists != a.listed { // what is missing now may be missing from a broken list only
			a.listed = a.snapshot.Lists
			a.cfg.FIB.SetListed(route.Own, plan.Own)
		} else {
			a.cfg.FIB.SetRoutes(route.Own, plan.Own)
		}
	}
	old := a.plan
	a.mu.Lock()
	a.plan = plan
	a.mu.Unlock()
	if !reflect.DeepEqual(old.BGP, plan.BGP) {
		a.logPlan(old.BGP, plan.BGP)
		a.setSpeaker(ctx)
	}
}

// maySpeak reports whether sessions may be started. They start once: with all that this node announces in the RIB already, so that peers
// hear of no block later than of the End-of-RIB behind it, and knowing whether the data plane kept our routes. A data plane that
// does not answer is waited for only so long.
func (a *Agent) maySpeak() bool {
	if !a.configured.IsZero() {
		return true
	}
	if a.waitingForNode != "" {
		return false
	}
	if a.firstPlan.IsZero() {
		a.firstPlan = time.Now()
	}
	return a.cfg.FIB == nil || time.Since(a.firstPlan) >= absentAfter || len(a.plan.Deferred) == 0 && a.plannedWith.Adopted
}

// setSpeaker hands the plan to the speaker. What it did not take is tried again with the next look.
func (a *Agent) setSpeaker(ctx context.Context) {
	if !a.maySpeak() {
		return
	}
	err := a.cfg.Speaker.Set(ctx, a.plan.BGP)
	if ctx.Err() != nil {
		return
	}
	switch {
	case errors.Is(err, bgp.ErrSpeakerChanged) && !errors.Is(a.setError, bgp.ErrSpeakerChanged):
		a.cfg.Log.Info("the speaker changes: a new process takes over once the peers have told what they know", "as", a.plan.BGP.Speaker.AS,
			"router_id", a.plan.BGP.Speaker.RouterID, "port", a.plan.BGP.Speaker.ListenPort, "addresses", a.plan.BGP.Speaker.ListenAddresses)
	case err != nil && a.setError == nil:
		a.cfg.Log.Error("the speaker did not take the whole plan; it is tried again each second", "err", err)
	}
	a.noteUp(err)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setError = err
	if a.configured.IsZero() && (err == nil || len(a.plan.BGP.Peers) > 0 && a.speaksTo(a.plan.BGP.Peers)) {
		a.configured = time.Now()
	}
}

// noteUp notes which peers have a session when a new process becomes necessary.
func (a *Agent) noteUp(err error) {
	if !errors.Is(err, bgp.ErrSpeakerChanged) {
		a.upBefore = nil
		return
	}
	if a.upBefore != nil {
		return
	}
	a.upBefore = map[bgp.PeerID]bool{}
	for _, s := range a.cfg.Speaker.Peers() {
		if s.Established {
			a.upBefore[s.ID] = true
		}
	}
}

// mayHandOver reports whether a new process is needed and may take over now. Peers that are in the middle of a restart of ours
// must not see another: they would drop what they keep of us (RFC 4724 §4.2, a session that fails again before its End-of-RIB). One without a
// session cannot lose another, and the new process has as good a chance to get it back. What has not been swept yet the new process will sweep.
func (a *Agent) mayHandOver() bool {
	if !errors.Is(a.setError, bgp.ErrSpeakerChanged) {
		return false
	}
	states := a.cfg.Speaker.Peers()
	waitFor := maps.Clone(a.upBefore)
	for _, s := range states {
		waitFor[s.ID] = waitFor[s.ID] || s.Established
	}
	peers := slices.DeleteFunc(slices.Clone(a.plan.BGP.Peers), func(p bgp.Peer) bool { return !waitFor[p.ID()] })
	ok, _ := sweepVerdict(time.Now(), a.configured, a.cfg.Deferral, peers, states, 0)
	return ok
}

// speaksTo reports whether the speaker has taken these peers, though it may not have taken all of the plan. One that could not start
// has none: then nothing is known about what peers would announce.
func (a *Agent) speaksTo(peers []bgp.Peer) bool {
	taken := map[bgp.PeerID]bool{}
	for _, p := range a.cfg.Speaker.Peers() {
		taken[p.ID] = true
	}
	return !slices.ContainsFunc(peers, func(p bgp.Peer) bool { return !taken[p.ID()] })
}

// withNode is c with this node as it was last known.
func withNode(c *calico.Snapshot, n calico.Node) *calico.Snapshot {
	out := *c
	out.Nodes = maps.Clone(c.Nodes)
	if out.Nodes == nil {
		out.Nodes = map[string]calico.Node{}
	}
	out.Nodes[n.Name] = n
	return &out
}

// setWaitingForNode notes what this node's own object lacks. While it is away after it was there, the plan is made with the object as it was:
// it may be on its way back, and all else that changes still counts.
func (a *Agent) setWaitingForNode(waiting string) {
	a.mu.Lock()
	changed := a.waitingForNode != waiting
	a.waitingForNode = waiting
	a.mu.Unlock()
	if changed && waiting != "" {
		a.cfg.Log.Warn(waiting)
	}
}

// rejectNextHops tells the speaker which next hops the data plane cannot use. GoBGP tracks none itself: a dead best path would hide a live
// second one.
func (a *Agent) rejectNextHops(ctx context.Context) {
	if a.cfg.FIB == nil || a.configured.IsZero() {
		return
	}
	var dead []netip.Addr
	for _, hop := range a.cfg.FIB.UnusableNextHops() {
		dead = append(dead, hop.Address)
	}
	if slices.Equal(dead, a.rejected) {
		return
	}
	if err := a.cfg.Speaker.RejectNextHops(ctx, dead); err != nil {
		a.cfg.Log.Error("the speaker does not reject unusable next hops; it is tried again each second", "err", err)
		return
	}
	a.cfg.Log.Info("next hops that cannot be used", "next_hops", dead)
	a.rejected = dead
}

// followWays has the engine follow the ways to all addresses that a learned route may have as next
// hop: peers and Calico's nodes, before a session is up, and what peers have sent. An import rule
// that asks for an interface matches no next hop whose way is not known.
func (a *Agent) followWays() {
	var all []netip.Addr // nil: nobody asks
	if a.cfg.Ways == nil {
		return
	}
	if bgp.AsksInterface(a.snapshot) {
		all = slices.Concat(a.cfg.Speaker.NextHops(), a.plan.PeerAddresses)
		for _, n := range a.snapshot.Nodes {
			all = append(all, nodeAddresses(n)...)
		}
		slices.SortFunc(all, netip.Addr.Compare)
		all = slices.Compact(all)
	}
	if !slices.Equal(all, a.followed) {
		a.followed = all
		a.cfg.Ways.FollowOutgoing(all)
	}
}

// facts are read anew before each plan.
func (a *Agent) facts() Facts {
	f := Facts{Programmed: map[route.Key]bool{}, Announced: map[netip.Prefix]bool{}, Drain: a.drainPhase()}
	for _, ann := range a.cfg.Speaker.Announced() {
		f.Announced[ann.Prefix] = !ann.Service
	}
	f.Arrived = a.arrivals.see(a.cfg.Node, a.snapshot, time.Now())
	if a.cfg.Ways != nil && bgp.AsksInterface(a.snapshot) {
		f.Outgoing = a.cfg.Ways.Outgoing()
	}
	if a.cfg.FIB == nil {
		f.NoDataplane = true
		return f
	}
	f.Adopted, f.Restarting = a.plannedWith.Adopted, a.plannedWith.Restarting
	if a.configured.IsZero() {
		stats := a.cfg.FIB.Stats()
		f.Adopted, f.Restarting = stats.Adopted != "", stats.AdoptedRoutes > 0
	}
	for _, r := range a.plan.Own {
		if a.cfg.FIB.Programmed(r) {
			f.Programmed[r.Key] = true
		}
	}
	if a.cfg.FIB.Facts().Identity != "" {
		a.absentSince = time.Time{}
	} else if a.absentSince.IsZero() {
		a.absentSince = time.Now()
	}
	f.NoDataplane = !a.absentSince.IsZero() && time.Since(a.absentSince) >= absentAfter
	f.Withdraw = f.NoDataplane && a.cfg.WithdrawWithoutDataplane
	return f
}

func (a *Agent) sweep() {
	if a.swept {
		return
	}
	ok, waiting := sweepVerdict(time.Now(), a.configured, a.cfg.Deferral, a.plan.BGP.Peers, a.cfg.Speaker.Peers(), a.unusable())
	a.mu.Lock()
	a.swept, a.waiting = ok, waiting
	a.mu.Unlock()
	if ok {
		a.cfg.Log.Info("peers have told what they know; routes of an earlier run that nobody announces are deleted now")
		a.cfg.FIB.AllowSweep()
	}
}

// unusable counts what we could not read or use: behind each such resource may stand a peer that we do not know of.
func (a *Agent) unusable() (n int) {
	for _, p := range slices.Concat(a.snapshot.Problems, a.plan.BGP.Problems) {
		if !p.Harmless {
			n++
		}
	}
	return n
}

func (a *Agent) setLogLevel(s *calico.Snapshot) {
	own := a.cfg.OwnLogLevel
	switch {
	case a.cfg.LogLevel == nil:
		return
	case own != nil:
		a.cfg.LogLevel.Set(*own)
		return
	case s == nil:
		return
	}
	if old, now := a.cfg.LogLevel.Level(), bgp.LogLevel(a.cfg.Node, s); now != old {
		a.cfg.LogLevel.Set(min(old, now)) // so that the change itself is logged
		a.cfg.Log.Info("the log level follows Calico's logSeverityScreen", "level", now)
		a.cfg.LogLevel.Set(now)
	}
}

func (a *Agent) setHandsOff(on bool) {
	a.mu.Lock()
	changed := a.handsOff != on
	a.handsOff = on
	a.mu.Unlock()
	switch {
	case changed && on:
		a.cfg.Log.Warn("ClusterInformation says datastoreReady: false; nothing is changed until it says true")
	case changed:
		a.cfg.Log.Info("ClusterInformation no longer says datastoreReady: false")
	}
}

// noteProblems keeps the problems for status. The datastore's adapter has logged them.
func (a *Agent) noteProblems(problems []calico.Problem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.problems = problems
}

// logPlan tells what changed, not that a plan was made.
func (a *Agent) logPlan(old, now bgp.Plan) {
	if len(old.Peers) != len(now.Peers) || len(old.Announcements) != len(now.Announcements) {
		a.cfg.Log.Info("plan", "peers", len(now.Peers), "announcements", len(now.Announcements))
	}
	told := map[calico.Problem]bool{}
	for _, p := range old.Problems {
		told[p] = true
	}
	for _, p := range now.Problems {
		if !told[p] {
			a.cfg.Log.Warn("Calico resource cannot be used", "resource", p.Name(), "err", p.Err)
		}
	}
}

// Learner hands what the speaker learns to the FIB engine.
type Learner struct{ FIB *fib.Engine }

// Learned implements the speaker's sink; it stores and returns.
func (l Learner) Learned(prefix netip.Prefix, paths []bgp.Path) {
	next := make([]route.Path, len(paths))
	preference := uint32(math.MaxUint32)
	for i, p := range paths {
		next[i] = route.Path{NextHop: p.NextHop}
		preference = min(preference, p.LocalPref) // equal, but where stale paths are alone
	}
	l.FIB.LearnPreferred(prefix, next, preference)
}
