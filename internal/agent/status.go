package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// Status is what `status -o json` prints. docs/status.md documents each field with a full sample. It only grows: fields are added,
// never renamed or removed.
type Status struct {
	Node       string          `json:"node"`
	Version    string          `json:"version"`
	Started    time.Time       `json:"started"`
	Ready      bool            `json:"ready"`
	Conditions []Condition     `json:"conditions"`
	BGP        BGPStatus       `json:"bgp"`
	FIB        FIBStatus       `json:"fib"`
	Datastore  DatastoreStatus `json:"datastore"`
	Learn      []string        `json:"learn"` // where routes to other nodes come from: "bgp", "etcd"
	// Unrouted are the blocks and borrowed addresses of other hosts that yield no route from etcd.
	Unrouted []UnroutedStatus `json:"unrouted"`
	Uplink   *UplinkStatus    `json:"uplink,omitempty"`
	Problems []ProblemStatus  `json:"problems"`
	// Drain is there while this node is on its way out of service, or out of it.
	Drain *DrainStatus `json:"drain,omitempty"`
}

// Condition is one thing that must hold for the node to be ready.
type Condition struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Message string `json:"message,omitempty"`
}

// UnroutedStatus is a prefix of which IPAM's data do not say where it is, and why.
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

// BGPStatus is the speaker: what it is, whom it talks to, what it says.
type BGPStatus struct {
	AS            uint32               `json:"as"`
	RouterID      string               `json:"routerID"`
	ListenPort    uint16               `json:"listenPort"`
	Peers         []PeerStatus         `json:"peers"`
	Announcements []AnnouncementStatus `json:"announcements"`
	Withheld      []WithheldStatus     `json:"withheld"`
	PathsDropped  int                  `json:"pathsDropped"`
	PathsForeign  int                  `json:"pathsForeign"`

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
	Peer        bgp.PeerID `json:"peer"` // its name: the address, and the port of a further session to it
	Address     netip.Addr `json:"address"`
	Port        uint16     `json:"port"`
	Type        string     `json:"type"` // calicoctl's PEER TYPE
	Source      string     `json:"source"`
	Node        string     `json:"node,omitempty"`
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
}

// AnnouncementStatus is a prefix that this node originates.
type AnnouncementStatus struct {
	Prefix    netip.Prefix `json:"prefix"`
	NextHop   netip.Addr   `json:"nextHop"`
	LocalPref uint32       `json:"localPref"`
	// GracefulShutdown: with the community of RFC 8326.
	GracefulShutdown bool `json:"gracefulShutdown"`
}

// WithheldStatus is a prefix that this node could be expected to originate and does not.
type WithheldStatus struct {
	Prefix netip.Prefix `json:"prefix"`
	Reason string       `json:"reason"`
}

// FIBStatus is the data plane and what of the wanted routes is in it.
type FIBStatus struct {
	Dataplane string   `json:"dataplane"`
	Version   string   `json:"version,omitempty"`
	Identity  string   `json:"identity,omitempty"`
	Problem   string   `json:"problem,omitempty"`
	API       string   `json:"api,omitempty"`
	APILacks  []string `json:"apiLacks"`
	Adopted   string   `json:"adopted,omitempty"`
	Sweep     string   `json:"sweep"`
	Journal   string   `json:"journal"`

	Routes []RouteCounts `json:"routes"`
	// UnusableNextHops are rejected when BGP chooses, so that what only they lead to is in no list of routes.
	UnusableNextHops []NextHopStatus `json:"unusableNextHops"`

	Drift DriftStatus   `json:"drift"`
	Guard []GuardStatus `json:"guard"`

	OpsPut     uint64 `json:"opsPut"`
	OpsDeleted uint64 `json:"opsDeleted"`
	OpsFailed  uint64 `json:"opsFailed"`
	refusal    error  // of the op that failed last
	cutOff     string // see cutOff
	OpsQueued  int    `json:"opsQueued"`
	// Batches is how often operations were handed to the data plane: large ones are cheap ones.
	Batches uint64 `json:"batches"`
}

// RouteCounts tells how many routes of one family and origin are in each state.
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

// DriftStatus counts what spot checks and audits found that the data plane did not have as it had acknowledged it, since the start.
type DriftStatus struct {
	Checked   uint64 `json:"checked"`
	Missing   uint64 `json:"missing"`
	Different uint64 `json:"different"`
	Extra     uint64 `json:"extra"`
	Repaired  uint64 `json:"repaired"`
}

// GuardStatus tells of deletions that the mass-delete guard holds.
type GuardStatus struct {
	Origin   string    `json:"origin"`
	Held     int       `json:"held"`
	Since    time.Time `json:"since"`
	Releases time.Time `json:"releases"`
}

// NextHopStatus is a next hop that the data plane cannot use, and why.
type NextHopStatus struct {
	Address netip.Addr `json:"address"`
	Reason  string     `json:"reason"`
}

// DatastoreStatus is the connection to Calico's data.
type DatastoreStatus struct {
	Endpoints   []string   `json:"endpoints"`
	Connected   bool       `json:"connected"`
	Synced      bool       `json:"synced"` // every kind has been listed once
	Revision    int64      `json:"revision"`
	LastContact *time.Time `json:"lastContact,omitempty"`
	Relists     int        `json:"relists"`
	Error       string     `json:"error,omitempty"`
	// Stale: the data in use were kept on disk by an earlier run, at AsOf; etcd has not delivered any yet, or only a locked datastore's.
	Stale bool       `json:"stale"`
	AsOf  *time.Time `json:"asOf,omitempty"`
	// Kept says how the copy on disk stands: "ok" or "degraded: " and why.
	Kept string `json:"kept"`
	// KeptBehind: the newest change is not in that copy yet, which takes a second; after a long write 50 times what that took, a minute at most.
	KeptBehind bool `json:"keptBehind"`
}

// ProblemStatus names a piece of Calico's data that is skipped.
type ProblemStatus struct {
	Key      string `json:"key"`                // in etcd, or the resource where it follows from several keys
	Resource string `json:"resource,omitempty"` // absent for a key that names none
	Error    string `json:"error"`
}

// ProblemOf returns p as status and plan show it.
func ProblemOf(p calico.Problem) ProblemStatus {
	return ProblemStatus{Key: cmp.Or(p.Key, p.Resource), Resource: p.Resource, Error: p.Err}
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
	plan, swept, waiting := a.plan, a.swept, a.waiting
	conditions := []Condition{a.nodeCondition(), a.speakerCondition()}
	problems := slices.Concat(a.problems, a.plan.BGP.Problems, a.remotes.Problems)
	unrouted := append([]UnroutedStatus{}, a.unrouted...)
	drain := a.drainStatus()
	a.mu.Unlock()

	s := Status{
		Node: a.cfg.Node, Version: a.cfg.Version, Started: a.started,
		BGP: bgpStatus(plan, a.cfg.Speaker), FIB: FIBStatus{Dataplane: a.cfg.Dataplane}, Datastore: a.cfg.Datastore.Status(),
		Problems: []ProblemStatus{}, Learn: a.learn(), Unrouted: unrouted,
	}
	for _, p := range problems {
		s.Problems = append(s.Problems, ProblemOf(p))
	}
	s.Conditions = append([]Condition{datastoreCondition(s.Datastore)}, conditions...)
	if a.cfg.FIB != nil {
		s.FIB = fibStatus(a.cfg.Dataplane, a.cfg.FIB, swept, waiting)
		s.FIB.cutOff = cutOff(plan.BGP.Peers, s, a.cfg.FIB)
		s.Conditions = append(s.Conditions, dataplaneCondition(s.FIB), Condition{Name: "fib", OK: swept, Message: waiting})
	}
	if a.cfg.Uplink != nil {
		u := a.cfg.Uplink()
		s.Uplink = &u
		s.Conditions = append(s.Conditions, uplinkCondition(u))
	}
	if drain.Phase != NotDraining {
		s.Drain = &drain
	}
	if drain.Phase != NotDraining || drain.NotKept != "" {
		s.Conditions = append(s.Conditions, drainCondition(drain))
	}
	s.Ready = !slices.ContainsFunc(s.Conditions, func(c Condition) bool { return !c.OK })
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

// uplinkCondition stays true while etcd does not take what was published before: others know the address until its lease ends.
func uplinkCondition(u UplinkStatus) Condition {
	switch {
	case !u.OK:
		return Condition{Name: "uplink", Message: u.Problem}
	case u.Publish != "off" && len(u.Published) == 0:
		return Condition{Name: "uplink", Message: "not published yet: " + u.PublishProblem}
	}
	return Condition{Name: "uplink", OK: true, Message: u.PublishProblem}
}

// datastoreCondition stays true while etcd is away after a first sync, or with data that an earlier run kept: the node goes on with what
// it knows.
func datastoreCondition(d DatastoreStatus) Condition {
	c := Condition{Name: "datastore", OK: d.Synced || d.Stale}
	switch {
	case d.Stale && d.AsOf != nil:
		why := d.Error
		if d.Synced {
			why = "ClusterInformation says datastoreReady: false"
		}
		c.Message = fmt.Sprintf("working with the data kept on disk at %s, which may be stale: %s", d.AsOf.UTC().Format(time.RFC3339), why)
	case !d.Synced && d.Error == "":
		c.Message = "waiting for etcd"
	case !d.Synced:
		c.Message = "waiting for etcd: " + d.Error
	case !d.Connected:
		c.Message = "working with the last known data: " + d.Error
	}
	return c
}

// nodeCondition needs a.mu.
func (a *Agent) nodeCondition() Condition {
	switch {
	case a.noBGP && !a.handsOff:
		return Condition{Name: "node", OK: true} // others find it by what it publishes; how it stands is not Calico's to say
	case a.handsOff:
		return Condition{Name: "node", OK: !a.configured.IsZero(), Message: "ClusterInformation says datastoreReady: false; nothing is changed"}
	case a.waitingForNode != "" && !a.configured.IsZero():
		return Condition{Name: "node", Message: a.waitingForNode + "; until then its last known address and AS are used"}
	case a.waitingForNode != "":
		return Condition{Name: "node", Message: a.waitingForNode}
	case len(a.plan.OwnAddresses) == 0:
		return Condition{Name: "node", Message: "waiting for Calico's data"}
	}
	return Condition{Name: "node", OK: true}
}

// speakerCondition needs a.mu.
func (a *Agent) speakerCondition() Condition {
	switch {
	case errors.Is(a.setError, bgp.ErrSpeakerChanged):
		return Condition{Name: "bgp", OK: true, Message: a.setError.Error() + "; a new process takes over in a moment"}
	case a.noBGP:
		return Condition{Name: "bgp", OK: true, Message: "off, routes come from etcd alone"}
	case errors.Is(a.setError, syscall.EADDRINUSE):
		return Condition{Name: "bgp", Message: a.setError.Error() + "; another BGP speaker has the port, such as calico-node's BIRD: only one may run on a node"}
	case a.setError != nil:
		return Condition{Name: "bgp", Message: a.setError.Error()}
	case a.configured.IsZero() && len(a.plan.Deferred) > 0:
		return Condition{Name: "bgp", Message: "sessions wait for the drop routes of own blocks, 5 s at most"}
	case a.configured.IsZero():
		return Condition{Name: "bgp", Message: "sessions are not started yet"}
	}
	return Condition{Name: "bgp", OK: true}
}

// drainCondition is a mere remark when the drain is cancelled.
func drainCondition(d DrainStatus) Condition {
	c := Condition{Name: "drain", Message: "everything is withdrawn; `drain --cancel` announces it again"}
	switch {
	case d.Phase == NotDraining:
		return Condition{Name: "drain", OK: true, Message: d.AfterRestart()}
	case d.NotWithdrawn != "":
		c.Message = fmt.Sprintf("the wait is over, but not everything is withdrawn yet: %s; `drain --cancel` ends that", d.NotWithdrawn)
	case d.Phase == Draining:
		c.Message = fmt.Sprintf("what this node announces is the worst choice, and is withdrawn %s%s; `drain --cancel` ends that",
			untilIdle(d), d.Until.UTC().Format(time.RFC3339))
	}
	if after := d.AfterRestart(); after != "" {
		c.Message += "; " + after
	}
	return c
}

// untilIdle says what a drain waits for besides a point in time, which follows.
func untilIdle(d DrainStatus) string {
	switch {
	case d.UntilIdle == nil:
		return "at "
	case d.TrafficUnknown != "":
		return fmt.Sprintf("by time alone (%s), at ", d.TrafficUnknown)
	case d.PacketsPerSecond == nil:
		return fmt.Sprintf("at %g packets/s or fewer, at the latest at ", *d.UntilIdle)
	}
	return fmt.Sprintf("at %g packets/s or fewer (now %.0f), at the latest at ", *d.UntilIdle, *d.PacketsPerSecond)
}

// dataplaneCondition does not hold either when the data plane answers and refuses every single
// route, or every learned one (a node that forwards nothing to others is not ready), nor while
// cutOff says something. Other refused routes are no reason to take a node out of service.
func dataplaneCondition(f FIBStatus) Condition {
	c := Condition{Name: "dataplane"}
	var all, learned RouteCounts
	for _, r := range f.Routes {
		all.Desired, all.Failed = all.Desired+r.Desired, all.Failed+r.Failed
		if r.Origin != route.Own.String() {
			learned.Desired, learned.Failed = learned.Desired+r.Desired, learned.Failed+r.Failed
		}
	}
	switch refused := "it refuses all %d %s, the last one with: %v"; {
	case f.Identity == "":
		c.Message = f.Problem
	case all.Failed > 0 && all.Failed == all.Desired:
		c.Message = fmt.Sprintf(refused, all.Failed, "routes", f.refusal)
	case learned.Failed > 0 && learned.Failed == learned.Desired:
		c.Message = fmt.Sprintf(refused, learned.Failed, "learned routes", f.refusal)
	case f.cutOff != "":
		c.Message = f.cutOff
	default:
		c.OK, c.Message = true, f.Problem
	}
	return c
}

// cutOff names a peer with reachableBy whose session is up while no route via it is programmed:
// they all depend on the host route to it. Elsewhere the session itself, which comes the same way,
// shows whether the peer can be reached.
func cutOff(peers []bgp.Peer, s Status, e *fib.Engine) string {
	for i, p := range peers { // s.BGP.Peers has the same order
		if st := s.BGP.Peers[i]; !p.ReachableBy.IsValid() || !st.Established || st.Received == 0 {
			continue
		}
		why := ""
		if n, err := e.RefusedVia(p.Address); n > 0 {
			why = fmt.Sprintf("it refuses all %d, one with: %v", n, err)
		}
		for _, hop := range s.FIB.UnusableNextHops {
			if hop.Address == p.Address {
				why = hop.Reason
			}
		}
		if why != "" {
			return fmt.Sprintf("no route via %s, reachable by %s, is programmed: %s",
				p.Address, p.ReachableBy, why)
		}
	}
	return ""
}

func bgpStatus(plan Plan, speaker Speaker) BGPStatus {
	count := speaker.Counters()
	s := BGPStatus{
		PathsDropped: count.Dropped, PathsForeign: count.Foreign, PathsUnsendable: count.Unsendable,
		MessagesMalformed: count.Malformed, MessagesRevised: count.Revised, DecoderPanics: count.Panicked,
		PrefixLimitsReached: count.OverLimit, PeersToRemove: count.Removing,
		AS: plan.BGP.Speaker.AS, ListenPort: plan.BGP.Speaker.ListenPort,
		Peers: []PeerStatus{}, Announcements: []AnnouncementStatus{}, Withheld: []WithheldStatus{},
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
		s.Announcements = append(s.Announcements, AnnouncementStatus{a.Prefix, a.NextHop, a.LocalPref, a.GracefulShutdown})
	}
	for _, b := range plan.Deferred {
		s.Withheld = append(s.Withheld, WithheldStatus{b, "its drop route is not acknowledged by the data plane yet"})
	}
	for _, w := range plan.BGP.Withheld {
		s.Withheld = append(s.Withheld, WithheldStatus{w.Prefix, w.Reason})
	}
	return s
}

func peerStatus(p bgp.Peer, st bgp.PeerState) PeerStatus {
	out := PeerStatus{
		Peer: p.ID(), Address: p.Address, Port: p.Port, Type: string(p.Scope), Source: p.Source, Node: p.CalicoNode, RemoteAS: p.RemoteAS, LocalAS: p.LocalAS,
		Passive: p.Passive, State: st.State, EndOfRIB: st.EndOfRIB, Received: st.Received, Accepted: st.Accepted, Advertised: st.Advertised,
		LastError: st.LastError, Established: st.Established,
	}
	if out.State == "" {
		out.State = "Idle"
	}
	if !st.Since.IsZero() {
		out.Since = &st.Since
	}
	if st.RouterID.IsValid() {
		out.RouterID = st.RouterID.String()
	}
	return out
}

func fibStatus(dataplane string, e *fib.Engine, swept bool, waiting string) FIBStatus {
	facts, stats := e.Facts(), e.Stats()
	s := FIBStatus{
		Dataplane: dataplane, Version: facts.Version, Identity: facts.Identity, Problem: facts.Problem,
		API: string(facts.Preflight.Outcome), APILacks: append([]string{}, facts.Preflight.Lacks...), Guard: []GuardStatus{},
		Drift:   DriftStatus{stats.Drift.Checked, stats.Drift.Missing, stats.Drift.Different, stats.Drift.Extra, stats.Drift.Repaired},
		Adopted: stats.Adopted, Sweep: waiting, Journal: "ok", Routes: []RouteCounts{}, UnusableNextHops: []NextHopStatus{},
		OpsPut: stats.Put, OpsDeleted: stats.Deleted, OpsFailed: stats.Errors, refusal: stats.Refusal, OpsQueued: stats.Queued, Batches: stats.Batches,
	}
	if swept {
		s.Sweep = "done"
	}
	switch {
	case !stats.Journal.Enabled:
		s.Journal = "off"
	case stats.Journal.Problem != "":
		s.Journal = "degraded: " + stats.Journal.Problem
	}
	for _, hop := range e.UnusableNextHops() {
		s.UnusableNextHops = append(s.UnusableNextHops, NextHopStatus{hop.Address, hop.Reason.String()})
	}
	for _, g := range stats.Guard {
		s.Guard = append(s.Guard, GuardStatus{g.Origin.String(), g.Held, g.Since, g.Releases})
	}
	for _, c := range stats.Routes {
		family := "ipv4"
		if c.IPv6 {
			family = "ipv6"
		}
		s.Routes = append(s.Routes, RouteCounts{family, c.Origin.String(), c.Desired, c.Programmed, c.Failed, c.Unusable, c.Held, c.Shadowed, c.Drifted})
	}
	return s
}
