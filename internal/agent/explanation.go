package agent

import (
	"net/netip"
	"time"

	"vpp-route-agent/bgp"
)

// Explanation is what `explain -o json` prints. docs/status.md documents each field. Fields are
// added, never renamed or removed.
type Explanation struct {
	Asked netip.Prefix `json:"asked"`
	Node  string       `json:"node"`
	// Version is that of the agent.
	Version string `json:"version"`
	OK      bool   `json:"ok"`
	// Verdict is one sentence. Fails is the name of the first step that fails; absent with OK.
	Verdict string        `json:"verdict"`
	Fails   string        `json:"fails,omitempty"`
	Steps   []ExplainStep `json:"steps"` // up to the first that fails

	Ownership OwnershipStatus `json:"ownership"`
	// Paths are BGP's, of the prefixes that cover what is asked about, the longest first.
	Paths []ReceivedStatus `json:"paths"`
	// Routes are those of the FIB engine, likewise; Inside the first of those that hide a part.
	Routes     []ExplainedRoute `json:"routes"`
	Inside     []RouteStatus    `json:"inside"`
	InsideMore int              `json:"insideMore,omitempty"`
	Tunnels    []TunnelStatus   `json:"tunnels"`
	Dataplane  DataplaneAnswer  `json:"dataplane"`
	// Exports are what becomes of the prefix at each peer: of this node's announcement that covers
	// it, else of the best path where peers get it.
	Exports  []ExportStatus  `json:"exports"`
	Problems []ProblemStatus `json:"problems"`
}

// ExplainStep is one link of the chain from Calico's data to the data plane.
type ExplainStep struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// OwnershipStatus is what IPAM says of a prefix. What is not known is absent.
type OwnershipStatus struct {
	Pool         string        `json:"pool,omitempty"`
	PoolDisabled bool          `json:"poolDisabled,omitempty"` // no new addresses
	NoExport     bool          `json:"disableBGPExport,omitempty"`
	Block        *netip.Prefix `json:"block,omitempty"`
	Owner        string        `json:"owner,omitempty"` // a node, or "virtual:NAME"
	Affinity     string        `json:"affinity,omitempty"`
	Allocated    bool          `json:"allocated,omitempty"`
	Borrower     string        `json:"borrower,omitempty"`
	Workload     string        `json:"workload,omitempty"` // of this node
	NodeAddress  string        `json:"nodeAddress,omitempty"`
	Service      *netip.Prefix `json:"service,omitempty"` // the range of service addresses
	Problem      string        `json:"problem,omitempty"` // why not all could be read
}

// ReceivedStatus is a path as a peer sent it, and what became of it.
type ReceivedStatus struct {
	Prefix      netip.Prefix `json:"prefix"`
	Peer        bgp.PeerID   `json:"peer"`
	Node        string       `json:"node,omitempty"`
	NextHop     string       `json:"nextHop"`
	LocalPref   *uint32      `json:"localPref,omitempty"`
	MED         *uint32      `json:"med,omitempty"`
	Origin      string       `json:"origin"`
	ASPath      []uint32     `json:"asPath"`
	Communities []string     `json:"communities"`
	Originator  string       `json:"originator,omitempty"`
	ClusterList []string     `json:"clusterList"`
	Since       time.Time    `json:"since"`
	Stale       bool         `json:"stale,omitempty"`
	Accepted    bool         `json:"accepted"`
	Import      string       `json:"import"` // the rule that decided, or why there was none
	Operations  []string     `json:"operations"`
	Best        bool         `json:"best"`
	Reason      string       `json:"reason,omitempty"` // why it is not among the best
}

// ExplainedRoute is a route with what each source wants for its prefix.
type ExplainedRoute struct {
	RouteStatus
	Claims []ClaimStatus `json:"claims"`
}

// ClaimStatus is what one source wants, in the order in which they are tried.
type ClaimStatus struct {
	Origin   string      `json:"origin"`
	Distance uint8       `json:"distance"`
	Kind     string      `json:"kind"`
	Chosen   bool        `json:"chosen"`
	Reason   string      `json:"reason,omitempty"`
	Paths    []WayStatus `json:"paths"`
}

// WayStatus is one path, step by step: the next hop, the prefix that it is reached by and whose
// that is, and what is programmed for it.
type WayStatus struct {
	NextHop   string       `json:"nextHop,omitempty"`
	Interface string       `json:"interface,omitempty"`
	By        string       `json:"by,omitempty"`
	Owner     string       `json:"owner,omitempty"` // "connected", or whose route
	Used      []PathStatus `json:"used"`
	Reason    string       `json:"reason,omitempty"`
}

// DataplaneAnswer is what the data plane said when it was asked just now.
type DataplaneAnswer struct {
	// Match is the longest match of the first address asked about; absent if it was not told.
	Match *MatchStatus `json:"match,omitempty"`
	// Entry is our entry of Routes[0], by exact look-up: "as acknowledged" or how it differs.
	Entry   string `json:"entry,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Packets and Bytes were forwarded by that entry since it was made, whoever's it is;
	// NotCounted says why they are absent.
	Packets    *uint64 `json:"packets,omitempty"`
	Bytes      *uint64 `json:"bytes,omitempty"`
	NotCounted string  `json:"notCounted,omitempty"`
	// NextHops are those of that entry, with what was sent to each, for whatever prefix;
	// NextHopsNotCounted says why there are none.
	NextHops           []PathStatus `json:"nextHops,omitempty"`
	NextHopsNotCounted string       `json:"nextHopsNotCounted,omitempty"`
}

// ExportStatus is what a peer gets.
type ExportStatus struct {
	Prefix      netip.Prefix `json:"prefix"`
	Peer        bgp.PeerID   `json:"peer"`
	Node        string       `json:"node,omitempty"`
	Established bool         `json:"established"`
	Deferring   bool         `json:"deferring,omitempty"` // as in PeerStatus
	Accept      bool         `json:"accept"`
	Rule        string       `json:"rule"`
	NextHop     string       `json:"nextHop,omitempty"`
	LocalPref   *uint32      `json:"localPref,omitempty"` // to iBGP peers
	ASPath      []uint32     `json:"asPath"`
	Communities []string     `json:"communities"`
}
