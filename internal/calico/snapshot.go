// Package calico defines the parts of Calico's resources that routing needs: their Go types, their
// keys in etcd v3, and pure decoders. It does no I/O: internal/calico/etcd lists and watches,
// internal/calico/calicotest writes.
package calico

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Snapshot is Calico's data as of Revision, immutable once published. It may share maps with
// others. An item that cannot be decoded is in Problems and keeps its previous value here. Kinds
// are not synchronized: one may be newer than another. Without Needs for remote routes not all
// blocks are there.
type Snapshot struct {
	// Revision is etcd's, or the newest version of the Kubernetes API, which is its etcd's
	// revision; 0 for a snapshot that came from neither.
	Revision int64
	// Lists counts the lists, as opposed to watch events, so far. If it differs from the snapshot
	// before, items may be missing because of a list, which is a reason to doubt a mass deletion.
	Lists int
	// Versions says of each kind of objects in the Kubernetes API how new they are, as
	// internal/kubernetes counts. No other list is taken that is older.
	Versions map[string]Version `json:",omitempty"`
	// Received is when the first event came of those that the snapshot before did not have; zero:
	// none did. It means nothing to another process.
	Received time.Time `json:"-"`

	Nodes             map[string]Node                // by name
	IPPools           map[string]IPPool              // by name
	Blocks            map[netip.Prefix]Block         // by CIDR
	Affinities        map[netip.Prefix]AffinityState // this node's own, by the block's CIDR
	BGPConfigurations map[string]BGPConfiguration    // "default" and "node.<name>"
	BGPPeers          map[string]BGPPeer             // by name
	BGPFilters        map[string]BGPFilter           // by name
	WorkloadEndpoints map[string]WorkloadEndpoint    // this node's own, by "namespace/name"
	LiveMigrations    map[string]LiveMigration       // to or from this node, by "namespace/name"
	Felix             map[string]FelixConfiguration  // by name; see felixFor
	// next hops that hosts publish; not Calico's
	PeerIPs map[PeerIP]netip.Addr
	// Services and Endpoints are by "namespace/name" of the Service; one without EndpointSlices has
	// no Endpoints. nil Services: they are not read.
	Services  map[string]Service   `json:",omitzero"`
	Endpoints map[string]Endpoints `json:",omitzero"`

	// ClusterInformation: there is one, perhaps one that cannot be read. calico-node makes it
	// before all else.
	ClusterInformation bool `json:",omitempty"`
	// DatastoreNotReady is ClusterInformation's datastoreReady: false, Calico's sign of a
	// migration, or the ClusterInformation that there was is gone.
	DatastoreNotReady bool
	// CalicoVersion is ClusterInformation's: that of the newest calico-node, as "v3.32.1"; "": it
	// is not known.
	CalicoVersion string `json:",omitempty"`

	Problems []Problem // sorted by key
}

// Locked says why the data may be incomplete and are not to be used; "": they are.
func (s *Snapshot) Locked() string {
	switch {
	case !s.DatastoreNotReady:
		return ""
	case !s.ClusterInformation:
		return "ClusterInformation is gone"
	}
	return "ClusterInformation says datastoreReady: false"
}

// Deliver makes s the newest value of a channel of size one with no other sender. A snapshot that
// nobody has read leaves s the time of its events.
func Deliver(to chan *Snapshot, s *Snapshot) {
	select {
	case unread := <-to:
		if at := unread.Received; !at.IsZero() && (s.Received.IsZero() || at.Before(s.Received)) {
			older := *s
			older.Received = at
			s = &older
		}
	default:
	}
	to <- s
}

// Version is how new the objects of a kind are.
type Version struct {
	Version uint64 `json:"version"`
	// Objects: there were some, so that it must be a mistake where the kind is unknown.
	Objects bool `json:"objects,omitzero"`
}

// Problem is an unusable item of Calico's data. Everything else stays in use.
type Problem struct {
	Resource string // kind and name: "BGPPeer(tor-r2)"; "" for a key that names none
	Key      string // where it is stored, the etcd key; "" for what follows from several items
	Err      string // which field and why
	// Harmless: a warning. It costs no peer and no route.
	Harmless bool
}

// Name is the resource, or the key where there is none.
func (p Problem) Name() string { return cmp.Or(p.Resource, p.Key) }

func (p Problem) String() string { return fmt.Sprintf("%s: %s", p.Name(), p.Err) }

// Node is a Calico Node. Addresses have the length of their subnet (/32 or /128 if stored without
// one) and are invalid if absent. See libcalico-go lib/apis/v3/node.go.
type Node struct {
	Name   string
	Labels map[string]string

	IPv4, IPv6 netip.Prefix // host address with subnet length
	// from spec.addresses, for a node without spec.bgp (calico-node without networking)
	HostIPv4, HostIPv6      netip.Addr
	ASNumber                uint32 // 0: not set
	RouteReflectorClusterID string // dotted quad; "" for a node that is no route reflector

	// tunnel addresses of this node, invalid if absent
	IPv4IPIPTunnelAddr, IPv4VXLANTunnelAddr, IPv6VXLANTunnelAddr netip.Addr
	// as written; VTEPMAC has the address that counts
	VXLANTunnelMACAddr, VXLANTunnelMACAddrV6 string
	WireguardIPv4, WireguardIPv6             netip.Addr
	// WireguardKey: Felix has published a public key, so that other nodes encrypt what they send.
	WireguardKey bool
}

// Tunnel is an address of a node's tunnel device.
type Tunnel struct {
	Address netip.Addr
	Type    string // as an Allocation's
}

// Tunnels returns the tunnel addresses that n names.
func (n Node) Tunnels() []Tunnel {
	all := []Tunnel{
		{n.IPv4IPIPTunnelAddr, "ipipTunnelAddress"},
		{n.IPv4VXLANTunnelAddr, "vxlanTunnelAddress"},
		{n.IPv6VXLANTunnelAddr, "vxlanV6TunnelAddress"},
		{n.WireguardIPv4, "wireguardTunnelAddress"},
		{n.WireguardIPv6, "wireguardV6TunnelAddress"},
	}
	return slices.DeleteFunc(all, func(t Tunnel) bool { return !t.Address.IsValid() })
}

// EncapMode is a pool's ipipMode or vxlanMode.
type EncapMode string

const (
	EncapNever       EncapMode = "Never"
	EncapAlways      EncapMode = "Always"
	EncapCrossSubnet EncapMode = "CrossSubnet"
)

// Encapsulates reports whether packets to some nodes leave in a tunnel.
func (m EncapMode) Encapsulates() bool { return m == EncapAlways || m == EncapCrossSubnet }

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

// HasVXLAN reports whether a pool has VXLAN.
func HasVXLAN(pools map[string]IPPool) bool {
	for _, p := range pools {
		if p.VXLANMode.Encapsulates() {
			return true
		}
	}
	return false
}

// AffinityState is the state of a block affinity. An empty one (before Calico 3) means confirmed.
type AffinityState string

const (
	AffinityPending         AffinityState = "pending"
	AffinityConfirmed       AffinityState = "confirmed"
	AffinityPendingDeletion AffinityState = "pendingDeletion"
)

// Block is an IPAM block.
type Block struct {
	CIDR  netip.Prefix
	Owner Owner
	// those that have a handle or name a node, in the order of their addresses
	Allocations []Allocation
}

// Owner owns a block: a host, a virtual owner (load balancers), or none (the zero Owner).
type Owner struct {
	Host    string // node name, from affinity "host:<node>"
	Virtual string // from affinity "virtual:<name>"
}

// Allocation is an address of a block that is in use.
type Allocation struct {
	Address netip.Addr
	Node    string // attributes' secondary.node; "" where none is recorded
	Type    string // "ipipTunnelAddress", "vxlanTunnelAddress", …; "" for a workload
}

// WorkloadEndpoint is a Calico WorkloadEndpoint.
type WorkloadEndpoint struct {
	Namespace, Name string
	Labels          map[string]string
	Node            string
	IPNetworks      []netip.Prefix
	FloatingIPs     []netip.Addr // ipNATs[].externalIP
	InterfaceName   string
	// identifies the workload, which may be a Pod, for LiveMigrations
	Orchestrator, Workload, Endpoint string
}

// LiveMigration is the migration of a running machine (Calico ≥ 3.32). OpenStack's driver writes it
// before the endpoint on the target, and deletes it afterwards; of KubeVirt it is a migration under
// way. See libcalico-go lib/apis/internalapi/livemigration.go.
type LiveMigration struct {
	Namespace, Name string
	Source, Target  MigrationEnd
}

// MigrationEnd identifies a WorkloadEndpoint, or without Endpoint all of a workload.
type MigrationEnd struct {
	Host, Orchestrator, Workload, Endpoint string
	// Machine and Job are of a target of KubeVirt instead, whose Pod has them as labels.
	Machine string `json:",omitempty"`
	Job     string `json:",omitempty"`
}

// Labels of a machine's Pods (kubevirt.io/api/core/v1); its name is in either of the latter two.
const (
	jobLabel        = "kubevirt.io/migrationJobUID"
	machineLabel    = "vmi.kubevirt.io/id"
	oldMachineLabel = "vm.kubevirt.io/name"
)

// Is reports whether e identifies w. As in Felix, a workload includes its namespace, and a Pod has
// one name in the whole cluster.
func (e MigrationEnd) Is(w WorkloadEndpoint) bool {
	if e.Job != "" {
		return w.Labels[jobLabel] == e.Job &&
			(w.Labels[machineLabel] == e.Machine || w.Labels[oldMachineLabel] == e.Machine)
	}
	return (e.Orchestrator == OrchestratorKubernetes || e.Host != "" && e.Host == w.Node) &&
		e.Orchestrator == w.Orchestrator && (e.Endpoint == "" || e.Endpoint == w.Endpoint) &&
		w.Workload != "" && (e.Workload == w.Namespace+"/"+w.Workload || e.Workload == w.Workload)
}

// OrchestratorKubernetes is the Orchestrator of Pods.
const OrchestratorKubernetes = "k8s"

// FelixConfiguration is the part of a Calico FelixConfiguration that affects routes between nodes.
// Unset fields are zero.
type FelixConfiguration struct {
	Name string
	// NodeSelector says for which nodes it is; "": for those of its name. Of several the oldest
	// counts: Created is in seconds since 1970, 0 if unknown.
	NodeSelector string `json:",omitzero"`
	Created      int64  `json:",omitzero"`
	// "Enabled", "EnabledIPIPOnly", "EnabledNoEncapOnly", "Disabled"
	ProgramClusterRoutes                                 string
	IPv4NormalRoutePriority, IPv6NormalRoutePriority     int
	IPv4ElevatedRoutePriority, IPv6ElevatedRoutePriority int
	// LiveMigrationRouteConvergenceTime is how long routes stay elevated after a migration.
	LiveMigrationRouteConvergenceTime time.Duration
	// IPIPMTU is of packets that leave by IPIP, in bytes; 0: what fits into the uplink.
	IPIPMTU int
	// VXLANPort and VXLANVNI are of tunnels of both families; 0: 4789 and 4096, as in Felix.
	VXLANPort, VXLANVNI int
	// VXLANMTU and VXLANMTUV6 are as IPIPMTU, each of one family.
	VXLANMTU, VXLANMTUV6 int
	// IPIPEnabled and VXLANEnabled replace what follows from the pools; nil, as below: not set.
	IPIPEnabled, VXLANEnabled            *bool
	WireguardEnabled, WireguardEnabledV6 *bool
	// Annotated are the annotations that Felix takes in place of the fields above.
	Annotated []string `json:",omitempty"`
}

// SecretKeyRef names a password. Calico's resource has no namespace.
type SecretKeyRef struct{ Name, Key string }
