// Package calico holds Calico's resources cut down to what routing needs: their Go form, their keys in etcd v3, and the pure
// decoding from one to the other. It does no I/O: internal/calico/etcd lists and watches, internal/calico/calicotest writes.
package calico

import (
	"fmt"
	"net/netip"
	"time"
)

// Snapshot is one view of Calico's data, as it stood at Revision. It is immutable once published; its
// maps may be shared with older and newer snapshots. Items that could not be decoded are named in Problems; they are missing here, or,
// if they could be decoded before, still as they were then (Store).
//
// As everywhere in Calico, the kinds are not in step with each other: while changes come in, one kind may be a moment ahead of
// another. Every kind is in order in itself.
type Snapshot struct {
	Revision int64 // etcd's revision; 0 for a snapshot that did not come from etcd
	// Lists counts the lists (as against watch events) that have gone into it. When it differs from the snapshot before, what
	// is missing now may be missing because a list said so, which may be a reason to doubt a mass deletion.
	Lists int

	Nodes             map[string]Node                // by name
	IPPools           map[string]IPPool              // by name
	Blocks            map[netip.Prefix]Block         // by CIDR
	Affinities        map[netip.Prefix]AffinityState // this node's own, by the block's CIDR
	BGPConfigurations map[string]BGPConfiguration    // "default" and "node.<name>"
	BGPPeers          map[string]BGPPeer             // by name
	BGPFilters        map[string]BGPFilter           // by name
	WorkloadEndpoints map[string]WorkloadEndpoint    // this node's own, by "namespace/name"
	LiveMigrations    map[string]LiveMigration       // to or from this node, by "namespace/name"
	Felix             map[string]FelixConfiguration  // "default" and this node's own, "node.<name>"
	PeerIPs           map[PeerIP]netip.Addr          // what hosts publish as their next hops; not Calico's

	// DatastoreNotReady is ClusterInformation's datastoreReady: false, Calico's "migration in progress, keep hands off".
	DatastoreNotReady bool

	Problems []Problem // sorted by key
}

// Problem is a piece of Calico's data that cannot be used. The rest goes on without it.
type Problem struct {
	Key string // the etcd key, or the resource as calicoctl names it: "BGPPeer(tor-r2)"
	Err string // which field and why
	// Harmless: it is said because somebody should know. No peer and no route is missing for it.
	Harmless bool
}

func (p Problem) String() string { return fmt.Sprintf("%s: %s", p.Key, p.Err) }

// Node is a Calico Node. Addresses carry the length of their subnet (an address stored without one has /32 or /128) and are
// invalid where absent. See Node.spec.bgp in libcalico-go lib/apis/v3/node.go.
type Node struct {
	Name   string
	Labels map[string]string

	IPv4, IPv6              netip.Prefix // host address with subnet length
	HostIPv4, HostIPv6      netip.Addr   // of spec.addresses, where spec.bgp is missing: calico-node without networking writes none
	ASNumber                uint32       // 0: not set
	RouteReflectorClusterID string       // dotted quad; "" for a node that is no route reflector

	// Tunnel addresses of this node; invalid where absent.
	IPv4IPIPTunnelAddr, IPv4VXLANTunnelAddr, IPv6VXLANTunnelAddr netip.Addr
	WireguardIPv4, WireguardIPv6                                 netip.Addr
}

// EncapMode is a pool's ipipMode or vxlanMode.
type EncapMode string

const (
	EncapNever       EncapMode = "Never"
	EncapAlways      EncapMode = "Always"
	EncapCrossSubnet EncapMode = "CrossSubnet"
)

// IPPool is a Calico IPPool.
type IPPool struct {
	Name             string
	CIDR             netip.Prefix
	IPIPMode         EncapMode
	VXLANMode        EncapMode
	Disabled         bool // no new addresses; its routes are still exported
	DisableBGPExport bool
	BlockSize        int // 26 or 122 where the resource says nothing
}

// AffinityState is the state of a block affinity. A value without a state (written before Calico 3) counts as confirmed.
type AffinityState string

const (
	AffinityPending         AffinityState = "pending"
	AffinityConfirmed       AffinityState = "confirmed"
	AffinityPendingDeletion AffinityState = "pendingDeletion"
)

// Block is an IPAM block.
type Block struct {
	CIDR        netip.Prefix
	Owner       Owner
	Allocations []Allocation // those that have a handle or name a node, in the order of their addresses
}

// Owner is who has a block: a host, something virtual (load balancers), or nobody (the zero Owner).
type Owner struct {
	Host    string // node name, from affinity "host:<node>"
	Virtual string // from affinity "virtual:<name>"
}

// Allocation is one address of a block that is in use.
type Allocation struct {
	Address netip.Addr
	Node    string // attributes' secondary.node; "" where none is recorded
	Type    string // "ipipTunnelAddress", "vxlanTunnelAddress", …; "" for a workload
	Handle  string // of this node's own allocations only: all handles of a large cluster would be most of a snapshot
}

// WorkloadEndpoint is a Calico WorkloadEndpoint.
type WorkloadEndpoint struct {
	Namespace, Name string
	Labels          map[string]string
	Node            string
	IPNetworks      []netip.Prefix
	FloatingIPs     []netip.Addr // ipNATs[].externalIP
	InterfaceName   string
	// Who runs it and what it is there, for LiveMigrations; of a Kubernetes pod they are nobody's business.
	Orchestrator, Workload, Endpoint string
}

// LiveMigration says that a machine is moving while it runs (Calico ≥ 3.32). OpenStack's driver writes it, before the endpoint on the target, and deletes it when
// the machine has moved. See libcalico-go lib/apis/internalapi/livemigration.go.
type LiveMigration struct {
	Namespace, Name string
	Source, Target  MigrationEnd
}

// MigrationEnd names a WorkloadEndpoint by what it is made of, or with an empty Endpoint all of a workload.
type MigrationEnd struct{ Host, Orchestrator, Workload, Endpoint string }

// Is reports whether e names w. Workloads are known by their namespace too, as Felix knows them.
func (e MigrationEnd) Is(w WorkloadEndpoint) bool {
	return e.Host != "" && e.Host == w.Node && e.Orchestrator == w.Orchestrator && (e.Endpoint == "" || e.Endpoint == w.Endpoint) &&
		w.Workload != "" && (e.Workload == w.Namespace+"/"+w.Workload || e.Workload == w.Workload)
}

// FelixConfiguration is what of a Calico FelixConfiguration touches routes between nodes. Zero values stand where the resource says nothing.
type FelixConfiguration struct {
	Name                                                 string
	ProgramClusterRoutes                                 string // "Enabled", "EnabledIPIPOnly", "EnabledNoEncapOnly", "Disabled"
	IPv4NormalRoutePriority, IPv6NormalRoutePriority     int
	IPv4ElevatedRoutePriority, IPv6ElevatedRoutePriority int
	// LiveMigrationRouteConvergenceTime is how long routes stay elevated after a migration.
	LiveMigrationRouteConvergenceTime time.Duration
}

// SecretKeyRef names a password. Namespace is not part of Calico's resource.
type SecretKeyRef struct{ Name, Key string }
