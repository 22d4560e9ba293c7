// Package bgp decides whom this node peers with and what it announces, as Calico's resources say:
// pure functions from a calico.Snapshot to a Plan. It opens no connection; bgp/gobgp keeps an
// embedded GoBGP equal to the plan.
package bgp

import (
	"errors"
	"net/netip"
	"reflect"
	"time"

	"vpp-route-agent/internal/calico"
)

// Plan is everything the speaker shall be. Equal plans are equal values: slices are sorted.
type Plan struct {
	// Waiting says in one sentence what is missing before there can be a speaker at all, for
	// instance "waiting for Node(edge-7) to have a BGP address". While it is not empty Speaker,
	// Peers and Announcements are zero: nothing is to be started.
	Waiting string

	// Restarting: the data plane kept forwarding while the speaker was away, so the first OPEN may
	// claim the Forwarding State (RFC 4724 §4.1). It counts when the speaker starts and not
	// afterwards.
	Restarting bool

	Speaker       Speaker
	Peers         []Peer         // by ID, one each
	Announcements []Announcement // by prefix, one each
	Policies      Policies
	// NotProgrammed are ranges and single addresses of services: a learned route inside one may be
	// passed on, but is not forwarded by. Disjoint.
	NotProgrammed []netip.Prefix
	Withheld      []Withheld       // by prefix, then reason
	Problems      []calico.Problem // by key, then text
}

// Withheld is a prefix that could be expected among the announcements and is not, with the reason
// for a person to read. Host routes inside an own block are not listed: the block's announcement
// covers them.
type Withheld struct {
	Prefix netip.Prefix
	Reason string
}

// ErrSpeakerChanged is what a speaker answers to a Plan whose Speaker is another than the one that
// runs. It goes on as before, and nothing else of the plan is taken: stopping BGP would send CEASE,
// on which peers drop our routes and we theirs. A new process takes over without (RFC 4724 §4.1).
var ErrSpeakerChanged = errors.New("port, addresses, AS or router ID changed: BGP must start anew")

// Speaker is what GoBGP can only change by stopping.
type Speaker struct {
	AS         uint32
	RouterID   netip.Addr // IPv4 form
	ListenPort uint16     // 0: no listener
	// ListenAddresses to bind; empty: all addresses of both families.
	ListenAddresses []netip.Addr
}

// Scope says which Calico construct a peer comes from; it is calicoctl's PEER TYPE.
type Scope string

const (
	ScopeMesh          Scope = "node-to-node mesh"
	ScopeGlobal        Scope = "global"
	ScopeNode          Scope = "node specific"
	ScopeLocalWorkload Scope = "local workload" // calicoctl does not show these
)

// Peer is one BGP session: one address, one address family, as Calico's BIRD runs them (bird and
// bird6).
type Peer struct {
	Address netip.Addr
	Port    uint16
	// Further: another session to the address is the first one. They differ in their ports.
	Further bool
	Scope   Scope
	// Source is the resource that asked for the peer, as calicoctl names it: "BGPPeer(tor-r2)" or
	// "Node(edge-7)".
	Source string
	// CalicoNode is the name of the Calico node behind Address; "" for other routers.
	CalicoNode string

	RemoteAS, LocalAS uint32
	LocalAddress      netip.Addr // source of the connection; zero: the kernel chooses
	Passive           bool       // wait for the peer to dial

	// Password names the TCP MD5 key (RFC 2385); nil: none.
	Password *calico.SecretKeyRef
	// RestartTime is our graceful-restart time (RFC 4724 §3), whole seconds; KeepaliveTime 0: a
	// third of the hold time.
	RestartTime, KeepaliveTime time.Duration
	// PrefixLimit is how many paths the peer may send; one more, and the session ends for a while.
	// 0: no limit.
	PrefixLimit uint32
	// TTLSecurity: 0 off, else N hops: send TTL 255, accept at least 256-N (RFC 5082).
	TTLSecurity uint8
	// AllowLocalAS is how often our AS may stand in a received AS_PATH.
	AllowLocalAS int
	// Multihop: an eBGP peer more than one hop away; TTL 64 as BIRD's "multihop". iBGP needs no
	// setting.
	Multihop bool
	// ReachableBy is the gateway of a static host route to Address, so that no learned route
	// captures the way to the peer; zero: none.
	ReachableBy netip.Addr

	// NextHop says what becomes of NEXT_HOP when a route is passed on to the peer.
	NextHop NextHopMode
	// SessionNextHop: routes of our own go to the peer with the local address of the session as
	// NEXT_HOP. The kernel chooses that, so no announcement can say it.
	SessionNextHop bool
	// Filters are the names of its BGPFilters, in the order of evaluation.
	Filters []string
	// Client: this node is a route reflector and reflects to the peer (RFC 4456). Reflector: the
	// peer is a route reflector itself.
	Client, Reflector bool
}

// NextHopMode is a BGPPeer's nextHopMode; keepOriginalNextHop is NextHopKeep towards eBGP peers.
type NextHopMode string

const (
	NextHopAuto NextHopMode = ""     // eBGP: our address; iBGP: unchanged
	NextHopSelf NextHopMode = "Self" // our address
	NextHopKeep NextHopMode = "Keep" // unchanged
)

// Equal reports whether p and o are the same in all fields.
func (p Peer) Equal(o Peer) bool { return reflect.DeepEqual(p, o) }

// External reports an eBGP peer.
func (p Peer) External() bool { return p.RemoteAS != p.LocalAS }

// Announcement is a route that this node originates.
type Announcement struct {
	Prefix netip.Prefix
	// always explicit; of the prefix's family unless the operator said otherwise
	NextHop   netip.Addr
	LocalPref uint32 // sent on iBGP only
	// GracefulShutdown adds the community GRACEFUL_SHUTDOWN (RFC 8326): a router that honours it
	// prefers any other path.
	GracefulShutdown bool
	// OnlyByFilter: it goes only to peers whose BGPFilters accept it.
	OnlyByFilter bool
	// Service: it is a range of service addresses. The data plane needs no route for it.
	Service bool
	// Static: no path of a peer takes its place, whatever LOCAL_PREF it has. So it is with blocks
	// and service addresses, which are static routes of BIRD where calico-node runs; addresses of
	// workloads move with the highest LOCAL_PREF.
	Static bool
	// Interface is where the address is behind, which a filter may ask for; "" for a block.
	Interface string
}

// Route is the announcement as policies see it.
func (a Announcement) Route() Route {
	return Route{Prefix: a.Prefix, Interface: a.Interface, LocalPref: a.LocalPref}
}

// Path is one path of a prefix as learned from a peer, after import policy. Of the best-path set of
// a prefix all paths are equally good.
type Path struct {
	Peer PeerID // the session it came over
	// global address, or link-local where the peer sent only that (RFC 2545 §3)
	NextHop   netip.Addr
	LocalPref uint32
	External  bool // learned over eBGP
	Stale     bool // kept by graceful restart for a peer that is away (RFC 4724 §4.2)
}
