package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
)

// Status is what `status -o json` prints. docs/status.md documents each field with a full sample.
// Fields are added, never renamed or removed.
type Status struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Ready   bool      `json:"ready"`
	// Health is "ready", "degraded" or "not ready"; Degraded has the reasons, also of the last.
	Health     string           `json:"health"`
	Degraded   []DegradedStatus `json:"degraded"`
	Conditions []Condition      `json:"conditions"`
	BGP        BGPStatus        `json:"bgp"`
	FIB        FIBStatus        `json:"fib"`
	Datastore  DatastoreStatus  `json:"datastore"`
	Learn      []string         `json:"learn"` // sources of routes to other nodes: "bgp", "etcd"
	// Unrouted are the blocks and borrowed addresses of other hosts that yield no route from etcd.
	Unrouted []UnroutedStatus `json:"unrouted"`
	Uplink   *UplinkStatus    `json:"uplink,omitempty"`
	// External are the sources of external configuration, by rank; absent without any.
	External []ExternalSource `json:"external,omitempty"`
	// Linux is set where items of Linux are beside a data plane of another kind.
	Linux *LinuxStatus `json:"linux,omitempty"`
	// Report is what a reflector controller is told; absent without --publish-status.
	Report   *ReportStatus   `json:"report,omitempty"`
	Problems []ProblemStatus `json:"problems"`
	// Drain is set while this node leaves service, or has left it.
	Drain *DrainStatus `json:"drain,omitempty"`
}

// DegradedStatus is something that is not as it should be: a reason of docs/monitoring.md.
type DegradedStatus struct {
	Condition string `json:"condition"`
	Reason    string `json:"reason"`
}

// UnroutedStatus is a prefix whose node is not in IPAM's data, and why.
type UnroutedStatus struct {
	Prefix netip.Prefix `json:"prefix"`
	Reason string       `json:"reason"`
}

// UplinkStatus is the interface that the agent brings up (--uplink), and what it publishes.
type UplinkStatus struct {
	Interface string         `json:"interface"`
	Addresses []netip.Prefix `json:"addresses"`
	OK        bool           `json:"ok"` // up, with the addresses, when it was looked at last
	Problem   string         `json:"problem,omitempty"`

	Publish        string       `json:"publish"` // "lease", "static" or "off"
	TTLSeconds     int          `json:"ttlSeconds"`
	Published      []netip.Addr `json:"published"` // what etcd has acknowledged
	PublishProblem string       `json:"publishProblem,omitempty"`
}

// ReportStatus is how what a reflector controller is told of this node stands in the datastore.
type ReportStatus struct {
	Key       string `json:"key"`
	Published bool   `json:"published"` // the datastore has it, or had it before it was lost
	Problem   string `json:"problem,omitempty"`
	// TooManyQuestions: not all that are asked are answered.
	TooManyQuestions bool `json:"tooManyQuestions,omitempty"`
}

// BGPStatus is the speaker: its identity, peers and announcements.
type BGPStatus struct {
	AS            uint32               `json:"as"`
	RouterID      string               `json:"routerID"`
	ListenPort    uint16               `json:"listenPort"`
	Peers         []PeerStatus         `json:"peers"`
	Announcements []AnnouncementStatus `json:"announcements"`
	Withheld      []WithheldStatus     `json:"withheld"`
	PathsDropped  int                  `json:"pathsDropped"`
	PathsForeign  int                  `json:"pathsForeign"`
	// StrangersRefused counts connections from addresses where no peer is.
	StrangersRefused int `json:"strangersRefused"`

	MessagesMalformed int `json:"messagesMalformed"`
	MessagesRevised   int `json:"messagesRevised"`
	DecoderPanics     int `json:"decoderPanics"`
	PathsUnsendable   int `json:"pathsUnsendable"`
	// PrefixLimitsReached counts how often a peer was cut off for its prefix limit.
	PrefixLimitsReached int `json:"prefixLimitsReached"`
	// PeersToRemove are still to be removed before the rest of the last plan is applied.
	PeersToRemove int `json:"peersToRemove"`
}

// PeerStatus is one session, as planned and as it stands.
type PeerStatus struct {
	Peer        bgp.PeerID `json:"peer"` // the address, and the port of a second session
	Address     netip.Addr `json:"address"`
	Port        uint16     `json:"port"`
	Type        string     `json:"type"` // calicoctl's PEER TYPE
	Source      string     `json:"source"`
	Node        string     `json:"node,omitempty"`
	Reflector   bool       `json:"reflector,omitempty"` // the peer is a route reflector's node
	RemoteAS    uint32     `json:"remoteAS"`
	LocalAS     uint32     `json:"localAS"`
	Passive     bool       `json:"passive"`
	State       string     `json:"state"`
	Since       *time.Time `json:"since,omitempty"`
	RouterID    string     `json:"routerID,omitempty"`
	EndOfRIB    bool       `json:"endOfRIB"`
	Received    int        `json:"received"`
	Accepted    int        `json:"accepted"`
	Advertised  int        `json:"advertised"`
	LastError   string     `json:"lastError,omitempty"`
	Established bool       `json:"established"`
	// Deferring: after our restart, UPDATEs to it wait until all peers have sent theirs.
	Deferring bool `json:"deferring,omitempty"`
	// Problem is what of its configuration cannot be used; a session that is up stays up.
	Problem string `json:"problem,omitempty"`
	// Flaps is how often the session was lost. UPDATEs are counted since GoBGP was given the peer.
	Flaps           int        `json:"flaps"`
	UpdatesReceived uint64     `json:"updatesReceived"`
	UpdatesSent     uint64     `json:"updatesSent"`
	LastContact     *time.Time `json:"lastContact,omitempty"` // a message came by then
}

// AnnouncementStatus is a prefix that this node originates.
type AnnouncementStatus struct {
	Prefix    netip.Prefix `json:"prefix"`
	NextHop   netip.Addr   `json:"nextHop"`
	LocalPref uint32       `json:"localPref"`
	// GracefulShutdown: with the community of RFC 8326.
	GracefulShutdown bool `json:"gracefulShutdown"`
}

// WithheldStatus is a prefix that this node does not originate, though an operator could expect it.
type WithheldStatus struct {
	Prefix netip.Prefix `json:"prefix"`
	Reason string       `json:"reason"`
}

// FIBStatus is the data plane, and which desired routes are programmed.
type FIBStatus struct {
	Dataplane string `json:"dataplane"`
	Version   string `json:"version,omitempty"`
	Identity  string `json:"identity,omitempty"`
	Problem   string `json:"problem,omitempty"`
	// LastContact is when the data plane last sent anything; absent for Linux.
	LastContact *time.Time `json:"lastContact,omitempty"`

	API      string   `json:"api,omitempty"`
	APILacks []string `json:"apiLacks"`
	Adopted  string   `json:"adopted,omitempty"`
	Sweep    string   `json:"sweep"`
	Journal  string   `json:"journal"`

	Routes []RouteCounts `json:"routes"`
	// UnusableNextHops are ignored by BGP's best path: no list of routes has what only they lead
	// to.
	UnusableNextHops []NextHopStatus `json:"unusableNextHops"`

	// Revision counts what was set besides BGP's routes; Settled is the last that the data plane
	// has whole. Unsettled are the first of the routes that keep it from having the rest.
	Revision      uint64        `json:"revision"`
	Settled       uint64        `json:"settled"`
	Unsettled     []RouteStatus `json:"unsettled,omitempty"`
	UnsettledMore int           `json:"unsettledMore,omitempty"`

	Drift DriftStatus   `json:"drift"`
	Guard []GuardStatus `json:"guard"`
	// Tunnels is absent where no pool encapsulates.
	Tunnels *TunnelCounts `json:"tunnels,omitempty"`

	OpsPut     uint64 `json:"opsPut"`
	OpsDeleted uint64 `json:"opsDeleted"`
	OpsFailed  uint64 `json:"opsFailed"`
	refusal    error  // of the op that failed last
	OpsQueued  int    `json:"opsQueued"`
	// Batches is how often operations were handed to the data plane: large ones are cheap ones.
	Batches uint64 `json:"batches"`
}

// RouteCounts are the numbers of routes of one family and origin in each state.
type RouteCounts struct {
	Family     string `json:"family"`
	Origin     string `json:"origin"`
	Desired    int    `json:"desired"`
	Programmed int    `json:"programmed"`
	Failed     int    `json:"failed"`
	Unusable   int    `json:"unusable"`
	Held       int    `json:"held"`
	Shadowed   int    `json:"shadowed"`
	Drifted    int    `json:"drifted"`
}

// LinuxStatus is what external configuration has in Linux, beside the FIB in VPP.
type LinuxStatus struct {
	Version string       `json:"version,omitempty"`
	Problem string       `json:"problem,omitempty"`
	Journal string       `json:"journal"`
	Objects ObjectCounts `json:"objects"`

	OpsPut     uint64 `json:"opsPut"`
	OpsDeleted uint64 `json:"opsDeleted"`
	OpsFailed  uint64 `json:"opsFailed"`
}

// ObjectCounts are the numbers of interfaces, addresses, neighbours and routes in each state.
type ObjectCounts struct {
	Desired    int `json:"desired"`
	Programmed int `json:"programmed"`
	Failed     int `json:"failed"`
	Held       int `json:"held"`
	Shadowed   int `json:"shadowed"` // another program has made it
}

// DriftStatus counts since the start what spot checks and audits found: routes that the data plane
// does not have as it acknowledged them.
type DriftStatus struct {
	Checked   uint64 `json:"checked"`
	Missing   uint64 `json:"missing"`
	Different uint64 `json:"different"`
	Extra     uint64 `json:"extra"`
	Repaired  uint64 `json:"repaired"`
}

// GuardStatus describes deletions that the mass-delete guard holds.
type GuardStatus struct {
	Origin   string    `json:"origin"` // of routes; "tunnel": to nodes
	Held     int       `json:"held"`
	Since    time.Time `json:"since"`
	Releases time.Time `json:"releases"`
}

// NextHopStatus is a next hop that the data plane cannot use, and why.
type NextHopStatus struct {
	Address netip.Addr `json:"address"`
	Reason  string     `json:"reason"`
	// Pool has the prefixes for which it cannot be used; absent: for none.
	Pool *netip.Prefix `json:"pool,omitempty"`
}

// DatastoreStatus is the connection to Calico's data.
type DatastoreStatus struct {
	// Type is etcdv3 or kubernetes, as in calico-node's DATASTORE_TYPE.
	Type        string     `json:"type"`
	Endpoints   []string   `json:"endpoints"`
	Connected   bool       `json:"connected"`
	Synced      bool       `json:"synced"` // every kind has been listed once
	Revision    int64      `json:"revision"`
	LastContact *time.Time `json:"lastContact,omitempty"`
	Relists     int        `json:"relists"`
	Error       string     `json:"error,omitempty"`
	// Stale: the data in use were kept on disk by an earlier run, at AsOf. The datastore has
	// delivered none yet, or is locked.
	Stale bool       `json:"stale"`
	AsOf  *time.Time `json:"asOf,omitempty"`
	// Kept says how the copy on disk stands: "ok" or "degraded: " and why.
	Kept string `json:"kept"`
	// KeptBehind: the newest change is not in that copy yet. That takes a second or, after a slow
	// write, 50 times its duration, a minute at most.
	KeptBehind bool `json:"keptBehind"`
}

// ProblemStatus names a piece of Calico's data that is skipped.
type ProblemStatus struct {
	Key      string `json:"key"`                // in etcd, or else the resource
	Resource string `json:"resource,omitempty"` // absent for a key that names none
	Error    string `json:"error"`
}

// ProblemOf returns p as status and plan show it.
func ProblemOf(p calico.Problem) ProblemStatus {
	return ProblemStatus{Key: shown(cmp.Or(p.Key, p.Resource)), Resource: shown(p.Resource),
		Error: shown(p.Err)}
}

// shown is a text of others as a terminal can be given it, which would obey control characters: a
// key of etcd has any bytes.
func shown(text string) string {
	if calico.IsPrintable(text) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func (p ProblemStatus) String() string {
	if p.Resource == "" || p.Resource == p.Key {
		return p.Key + ": " + p.Error
	}
	return fmt.Sprintf("%s: %s (%s)", p.Resource, p.Error, p.Key)
}

// Status is the state of everything, put together from its owners.
func (a *Agent) Status() Status {
	a.mu.Lock()
	now, drain := a.shown, a.drainStatus()
	a.mu.Unlock()

	s := Status{
		Node: a.cfg.Node, Version: a.cfg.Version, Started: a.started,
		BGP: bgpStatus(now.plan, a.cfg.Speaker), FIB: FIBStatus{Dataplane: a.cfg.Dataplane},
		Datastore: a.cfg.Datastore.Status(), Learn: a.learn(),
		Problems: []ProblemStatus{}, Unrouted: append([]UnroutedStatus{}, now.unrouted...),
	}
	for _, p := range slices.Concat(now.problems, now.plan.BGP.Problems, now.shared) {
		s.Problems = append(s.Problems, ProblemOf(p))
	}
	s.Conditions = []Condition{
		now.datastoreCondition(s.Datastore), now.nodeCondition(), now.speakerCondition(),
	}
	if a.cfg.FIB != nil {
		s.FIB = fibStatus(a.cfg.Dataplane, a.cfg.FIB, now.sweepWaits)
		s.FIB.UnusableNextHops = append(s.FIB.UnusableNextHops, a.usable.list()...)
		if at := a.dataplaneStats().LastContact; !at.IsZero() {
			s.FIB.LastContact = &at
		}
		s.FIB.Tunnels = tunnelCounts(a.Tunnels(), now.tunnelProblem(a.cfg.FIB.Facts()))
		if now.lostNodes != nil {
			s.FIB.Guard = append(s.FIB.Guard, *now.lostNodes)
		}
		s.Conditions = append(s.Conditions,
			dataplaneCondition(s.FIB, unreachablePeer(now.plan.BGP.Peers, s, a.cfg.FIB)),
			sweepCondition(now.sweepWaits))
	}
	if a.cfg.Uplink != nil {
		u := a.cfg.Uplink()
		s.Uplink = &u
		s.Conditions = append(s.Conditions, uplinkCondition(u))
	}
	if a.cfg.Reported != nil {
		r := a.cfg.Reported()
		s.Report = &r
		s.Conditions = append(s.Conditions, reportCondition(r))
	}
	if a.cfg.External != nil {
		s.External = a.cfg.External.Sources()
	}
	if a.cfg.Linux != nil {
		s.Linux = linuxStatus(a.cfg.Linux)
	}
	if a.cfg.StateDirError != nil {
		s.Conditions = append(s.Conditions, stateCondition(a.cfg.StateDirError))
	}
	if r := a.cfg.Recorder; r != nil {
		updates, _ := r.UpdateStats()
		s.Conditions = append(s.Conditions, recorderCondition(r.Stats(), updates))
	}
	if drain.Phase != NotDraining {
		s.Drain = &drain
	}
	if drain.Phase != NotDraining || drain.NotKept != "" {
		s.Conditions = append(s.Conditions, drainCondition(drain))
	}
	s.setHealth()
	return s
}

func (a *Agent) learn() []string {
	sources := []string{}
	if !a.noBGP {
		sources = append(sources, "bgp")
	}
	if a.cfg.EtcdRoutes != nil {
		sources = append(sources, "etcd")
	}
	return sources
}

func bgpStatus(plan Plan, speaker Speaker) BGPStatus {
	count := speaker.Counters()
	s := BGPStatus{
		PathsDropped: count.Dropped, PathsForeign: count.Foreign,
		StrangersRefused: count.Strangers,
		PathsUnsendable:  count.Unsendable, MessagesMalformed: count.Malformed,
		MessagesRevised: count.Revised, DecoderPanics: count.Panicked,
		PrefixLimitsReached: count.OverLimit, PeersToRemove: count.Removing,
		AS: plan.BGP.Speaker.AS, ListenPort: plan.BGP.Speaker.ListenPort,
		Peers: []PeerStatus{}, Announcements: []AnnouncementStatus{},
		Withheld: []WithheldStatus{},
	}
	if id := plan.BGP.Speaker.RouterID; id.IsValid() {
		s.RouterID = id.String()
	}
	states := map[bgp.PeerID]bgp.PeerState{}
	for _, p := range speaker.Peers() {
		states[p.ID] = p
	}
	for _, p := range plan.BGP.Peers {
		s.Peers = append(s.Peers, peerStatus(p, states[p.ID()]))
	}
	for _, a := range speaker.Announced() {
		s.Announcements = append(s.Announcements,
			AnnouncementStatus{a.Prefix, a.NextHop, a.LocalPref, a.GracefulShutdown})
	}
	for _, b := range plan.Deferred {
		s.Withheld = append(s.Withheld,
			WithheldStatus{b, "its route is not acknowledged by the data plane yet"})
	}
	for _, w := range plan.BGP.Withheld {
		s.Withheld = append(s.Withheld, WithheldStatus{w.Prefix, w.Reason})
	}
	return s
}

func peerStatus(p bgp.Peer, st bgp.PeerState) PeerStatus {
	out := PeerStatus{
		Peer: p.ID(), Address: p.Address, Port: p.Port, Type: string(p.Scope),
		Source: p.Source, Node: p.CalicoNode, Reflector: p.Reflector,
		RemoteAS: p.RemoteAS, LocalAS: p.LocalAS, Passive: p.Passive,
		State: cmp.Or(st.State, "Idle"), EndOfRIB: st.EndOfRIB,
		Received: st.Received, Accepted: st.Accepted, Advertised: st.Advertised,
		LastError: st.LastError, Established: st.Established, Deferring: st.Deferring,
		Flaps: st.Flaps, UpdatesReceived: st.UpdatesReceived, UpdatesSent: st.UpdatesSent,
		Problem: st.Problem,
	}
	if !st.LastContact.IsZero() {
		out.LastContact = &st.LastContact
	}
	if !st.Since.IsZero() {
		out.Since = &st.Since
	}
	if st.RouterID.IsValid() {
		out.RouterID = st.RouterID.String()
	}
	return out
}

// maxUnsettled bounds FIBStatus.Unsettled.
const maxUnsettled = 10

func fibStatus(dataplane string, e *fib.Engine, sweepWaits string) FIBStatus {
	facts, stats, settled := e.Facts(), e.Stats(), e.Settled(maxUnsettled)
	s := FIBStatus{
		Revision: settled.Taken, Settled: settled.Revision, UnsettledMore: settled.More,
		Dataplane: dataplane, Version: facts.Version, Identity: facts.Identity,
		Problem: facts.Problem, API: string(facts.Preflight.Outcome),
		APILacks: append([]string{}, facts.Preflight.Lacks...), Guard: []GuardStatus{},
		Drift: DriftStatus{stats.Drift.Checked, stats.Drift.Missing, stats.Drift.Different,
			stats.Drift.Extra, stats.Drift.Repaired},
		Adopted: stats.Adopted, Sweep: cmp.Or(sweepWaits, "done"),
		Journal: journalStatus(stats.Journal),
		Routes:  []RouteCounts{}, UnusableNextHops: unusableHops(e),
		OpsPut: stats.Put, OpsDeleted: stats.Deleted, OpsFailed: stats.Errors,
		refusal: stats.Refusal, OpsQueued: stats.Queued, Batches: stats.Batches,
	}
	for _, e := range settled.Open {
		s.Unsettled = append(s.Unsettled, routeStatus(e))
	}
	for _, g := range stats.Guard {
		s.Guard = append(s.Guard, GuardStatus{g.Origin.String(), g.Held, g.Since, g.Releases})
	}
	for _, c := range stats.Routes {
		family := "ipv4"
		if c.IPv6 {
			family = "ipv6"
		}
		s.Routes = append(s.Routes, RouteCounts{family, c.Origin.String(), c.Desired,
			c.Programmed, c.Failed, c.Unusable, c.Held, c.Shadowed, c.Drifted})
	}
	return s
}

// unusableHops are those that lead nowhere, whatever the prefix.
func unusableHops(e *fib.Engine) []NextHopStatus {
	out := []NextHopStatus{}
	for _, hop := range e.UnusableNextHops() {
		out = append(out, NextHopStatus{Address: hop.Address, Reason: hop.Reason.String()})
	}
	return out
}

func linuxStatus(e *fib.Engine) *LinuxStatus {
	facts, stats := e.Facts(), e.Stats()
	stats.Journal.Enabled = true // it has no routes, but objects
	c := stats.Objects
	return &LinuxStatus{
		Version: facts.Version, Problem: facts.Problem, Journal: journalStatus(stats.Journal),
		Objects: ObjectCounts{c.Desired, c.Programmed, c.Failed, c.Held, c.Shadowed},
		OpsPut:  stats.Put, OpsDeleted: stats.Deleted, OpsFailed: stats.Errors,
	}
}

func journalStatus(j fib.JournalState) string {
	switch {
	case !j.Enabled:
		return "off"
	case j.Problem != "":
		return "degraded: " + j.Problem
	}
	return "ok"
}
