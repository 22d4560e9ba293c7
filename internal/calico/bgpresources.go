package calico

import "time"

// BGPConfiguration is a Calico BGPConfiguration. Unset fields are nil or zero; package bgp decides
// which default applies.
type BGPConfiguration struct {
	Name                  string
	NodeToNodeMeshEnabled *bool
	ASNumber              uint32
	ListenPort            uint16
	BindMode              string // "NodeIP": listen on the node's address only
	LogSeverityScreen     string

	NodeMeshPassword       *SecretKeyRef
	NodeMeshMaxRestartTime *time.Duration // nil: not set

	Communities          []Community
	PrefixAdvertisements []PrefixAdvertisement // nil: not set; empty: set to none

	ServiceClusterIPs, ServiceExternalIPs, ServiceLoadBalancerIPs []string
	ServiceLoadBalancerAggregation                                string

	IgnoredInterfaces        []string
	LocalWorkloadPeeringIPV4 string
	LocalWorkloadPeeringIPV6 string
	ProgramClusterRoutes     string
	IPv4NormalRoutePriority  int // 0: not set, 1024 applies
	IPv6NormalRoutePriority  int
}

// Community gives a name to a community value.
type Community struct{ Name, Value string }

// PrefixAdvertisement attaches communities to what is announced inside CIDR.
type PrefixAdvertisement struct {
	CIDR        string
	Communities []string
}

// BGPPeer is a Calico BGPPeer as written. Package bgp interprets its fields.
type BGPPeer struct {
	Name                     string
	Node                     string
	NodeSelector             string
	PeerIP                   string // "a.b.c.d", "a.b.c.d:port", "v6", "[v6]:port"
	PeerSelector             string
	ASNumber                 uint32
	LocalASNumber            uint32
	KeepOriginalNextHop      bool
	NextHopMode              string // "Auto", "Self", "Keep"
	Password                 *SecretKeyRef
	SourceAddress            string         // "UseNodeIP", "None"
	MaxRestartTime           *time.Duration // nil: not set
	KeepaliveTime            time.Duration
	NumAllowedLocalASNumbers int
	TTLSecurity              uint8
	ReachableBy              string
	Filters                  []string
	LocalWorkloadSelector    string
	ReversePeering           string // "Auto", "Manual"
}

// BGPFilter is a Calico BGPFilter.
type BGPFilter struct {
	Name                                   string
	ExportV4, ImportV4, ExportV6, ImportV6 []BGPFilterRule
}

// BGPFilterRule is one rule of a BGPFilter, as written.
type BGPFilterRule struct {
	CIDR          string
	MatchOperator string // "Equal", "NotEqual", "In", "NotIn"
	PrefixLength  *PrefixLengthRange
	Source        string // "RemotePeers"
	Interface     string
	PeerType      string   // "eBGP", "iBGP"
	Communities   []string // nil: not set; empty: set to none, which makes no sense
	ASPathPrefix  []uint32
	Priority      int
	Action        string // "Accept", "Reject"
	Operations    []BGPFilterOperation
}

// PrefixLengthRange bounds a prefix length; nil means unbounded.
type PrefixLengthRange struct{ Min, Max *int }

// BGPFilterOperation changes a route that a rule accepts; one field is to be set.
type BGPFilterOperation struct {
	AddCommunity  string
	PrependASPath []uint32
	SetPriority   int
}
