package manifest

import (
	"bytes"
	"encoding/json"

	"vpp-route-agent/internal/calico"
)

// The specs of Calico's resources with all fields that calicoctl accepts. Zero values are omitted
// from what is stored, as in Calico. An empty list of prefixAdvertisements stays: calicoctl omits
// it, but a CRD keeps it, and confd treats it as a list.

// ASNumber is read from a number or a string ("65546", "1.10") and written as a number.
type ASNumber uint32

func (a *ASNumber) UnmarshalJSON(b []byte) error {
	n, err := calico.ParseASNumber(string(bytes.Trim(b, `"`)))
	*a = ASNumber(n)
	return err
}

type (
	NodeSpec struct {
		BGP                  *NodeBGPSpec    `json:"bgp,omitempty"`
		IPv4VXLANTunnelAddr  string          `json:"ipv4VXLANTunnelAddr,omitempty"`
		VXLANTunnelMACAddr   string          `json:"vxlanTunnelMACAddr,omitempty"`
		IPv6VXLANTunnelAddr  string          `json:"ipv6VXLANTunnelAddr,omitempty"`
		VXLANTunnelMACAddrV6 string          `json:"vxlanTunnelMACAddrV6,omitempty"`
		OrchRefs             []OrchRef       `json:"orchRefs,omitempty"`
		Wireguard            *Wireguard      `json:"wireguard,omitempty"`
		Addresses            []NodeAddress   `json:"addresses,omitempty"`
		Interfaces           []NodeInterface `json:"interfaces,omitempty"`
	}
	NodeBGPSpec struct {
		ASNumber                ASNumber `json:"asNumber,omitempty"`
		IPv4Address             string   `json:"ipv4Address,omitempty"`
		IPv6Address             string   `json:"ipv6Address,omitempty"`
		IPv4IPIPTunnelAddr      string   `json:"ipv4IPIPTunnelAddr,omitempty"`
		RouteReflectorClusterID string   `json:"routeReflectorClusterID,omitempty"`
	}
	OrchRef struct {
		NodeName     string `json:"nodeName,omitempty"`
		Orchestrator string `json:"orchestrator"`
	}
	Wireguard struct {
		InterfaceIPv4Address string `json:"interfaceIPv4Address,omitempty"`
		InterfaceIPv6Address string `json:"interfaceIPv6Address,omitempty"`
	}
	NodeAddress struct {
		Address string `json:"address"`
		Type    string `json:"type,omitempty"`
	}
	NodeInterface struct {
		Name      string   `json:"name,omitempty"`
		Addresses []string `json:"addresses,omitempty"`
	}
)

type IPPoolSpec struct {
	CIDR              string   `json:"cidr"`
	IPIPMode          string   `json:"ipipMode,omitempty"`
	VXLANMode         string   `json:"vxlanMode,omitempty"`
	NATOutgoing       bool     `json:"natOutgoing,omitempty"`
	Disabled          bool     `json:"disabled,omitempty"`
	DisableBGPExport  bool     `json:"disableBGPExport,omitempty"`
	BlockSize         int      `json:"blockSize,omitempty"`
	NodeSelector      string   `json:"nodeSelector,omitempty"`
	NamespaceSelector string   `json:"namespaceSelector,omitempty"`
	AllowedUses       []string `json:"allowedUses,omitempty"`
	AssignmentMode    string   `json:"assignmentMode,omitempty"`
}

type (
	BGPConfigurationSpec struct {
		LogSeverityScreen      string         `json:"logSeverityScreen,omitempty"`
		NodeToNodeMeshEnabled  *bool          `json:"nodeToNodeMeshEnabled,omitempty"`
		ASNumber               ASNumber       `json:"asNumber,omitempty"`
		ServiceLoadBalancerIPs []ServiceBlock `json:"serviceLoadBalancerIPs,omitempty"`
		ServiceExternalIPs     []ServiceBlock `json:"serviceExternalIPs,omitempty"`
		ServiceClusterIPs      []ServiceBlock `json:"serviceClusterIPs,omitempty"`

		ServiceLoadBalancerAggregation string `json:"serviceLoadBalancerAggregation,omitempty"`

		Communities              []Community           `json:"communities,omitempty"`
		PrefixAdvertisements     []PrefixAdvertisement `json:"prefixAdvertisements,omitzero"`
		ListenPort               uint16                `json:"listenPort,omitempty"`
		NodeMeshPassword         *Password             `json:"nodeMeshPassword,omitempty"`
		NodeMeshMaxRestartTime   string                `json:"nodeMeshMaxRestartTime,omitempty"`
		BindMode                 string                `json:"bindMode,omitempty"`
		IgnoredInterfaces        []string              `json:"ignoredInterfaces,omitempty"`
		LocalWorkloadPeeringIPV4 string                `json:"localWorkloadPeeringIPV4,omitempty"`
		LocalWorkloadPeeringIPV6 string                `json:"localWorkloadPeeringIPV6,omitempty"`
		ProgramClusterRoutes     string                `json:"programClusterRoutes,omitempty"`
		IPv4NormalRoutePriority  int                   `json:"ipv4NormalRoutePriority,omitempty"`
		IPv6NormalRoutePriority  int                   `json:"ipv6NormalRoutePriority,omitempty"`
	}
	ServiceBlock struct {
		CIDR string `json:"cidr,omitempty"`
	}
	Community struct {
		Name  string `json:"name,omitempty"`
		Value string `json:"value,omitempty"`
	}
	PrefixAdvertisement struct {
		CIDR        string   `json:"cidr,omitempty"`
		Communities []string `json:"communities,omitempty"`
	}
	Password struct {
		SecretKeyRef *SecretKeyRef `json:"secretKeyRef,omitempty"`
	}
	SecretKeyRef struct {
		Name     string `json:"name,omitempty"`
		Key      string `json:"key"`
		Optional *bool  `json:"optional,omitempty"`
	}
)

type BGPPeerSpec struct {
	Node                     string    `json:"node,omitempty"`
	NodeSelector             string    `json:"nodeSelector,omitempty"`
	PeerIP                   string    `json:"peerIP,omitempty"`
	ASNumber                 ASNumber  `json:"asNumber,omitempty"`
	LocalASNumber            ASNumber  `json:"localASNumber,omitempty"`
	PeerSelector             string    `json:"peerSelector,omitempty"`
	KeepOriginalNextHop      bool      `json:"keepOriginalNextHop,omitempty"`
	NextHopMode              string    `json:"nextHopMode,omitempty"`
	Password                 *Password `json:"password,omitempty"`
	SourceAddress            string    `json:"sourceAddress,omitempty"`
	MaxRestartTime           string    `json:"maxRestartTime,omitempty"`
	KeepaliveTime            string    `json:"keepaliveTime,omitempty"`
	NumAllowedLocalASNumbers int       `json:"numAllowedLocalASNumbers,omitempty"`
	TTLSecurity              uint8     `json:"ttlSecurity,omitempty"`
	ReachableBy              string    `json:"reachableBy,omitempty"`
	Filters                  []string  `json:"filters,omitempty"`
	LocalWorkloadSelector    string    `json:"localWorkloadSelector,omitempty"`
	ReversePeering           string    `json:"reversePeering,omitempty"`
}

type (
	BGPFilterSpec struct {
		ExportV4 []BGPFilterRule `json:"exportV4,omitempty"`
		ImportV4 []BGPFilterRule `json:"importV4,omitempty"`
		ExportV6 []BGPFilterRule `json:"exportV6,omitempty"`
		ImportV6 []BGPFilterRule `json:"importV6,omitempty"`
	}
	BGPFilterRule struct {
		CIDR          string                `json:"cidr,omitempty"`
		PrefixLength  *PrefixLength         `json:"prefixLength,omitempty"`
		Source        string                `json:"source,omitempty"`
		Interface     string                `json:"interface,omitempty"`
		MatchOperator string                `json:"matchOperator,omitempty"`
		PeerType      string                `json:"peerType,omitempty"`
		Communities   *FilterValues         `json:"communities,omitempty"`
		ASPathPrefix  []ASNumber            `json:"asPathPrefix,omitempty"`
		Priority      int                   `json:"priority,omitempty"`
		Action        string                `json:"action"`
		Operations    []BGPFilterOperations `json:"operations,omitempty"`
	}
	PrefixLength struct {
		Min *int `json:"min,omitempty"`
		Max *int `json:"max,omitempty"`
	}
	FilterValues struct {
		Values []string `json:"values,omitempty"`
	}
	BGPFilterOperations struct {
		AddCommunity *struct {
			Value string `json:"value"`
		} `json:"addCommunity,omitempty"`
		PrependASPath *struct {
			Prefix []ASNumber `json:"prefix"`
		} `json:"prependASPath,omitempty"`
		SetPriority *struct {
			Value int `json:"value"`
		} `json:"setPriority,omitempty"`
	}
)

type WorkloadEndpointSpec struct {
	Orchestrator               string            `json:"orchestrator,omitempty"`
	Workload                   string            `json:"workload,omitempty"`
	Node                       string            `json:"node,omitempty"`
	ContainerID                string            `json:"containerID,omitempty"`
	Pod                        string            `json:"pod,omitempty"`
	Endpoint                   string            `json:"endpoint,omitempty"`
	ServiceAccountName         string            `json:"serviceAccountName,omitempty"`
	IPNetworks                 []string          `json:"ipNetworks,omitempty"`
	IPNATs                     []IPNAT           `json:"ipNATs,omitempty"`
	IPv4Gateway                string            `json:"ipv4Gateway,omitempty"`
	IPv6Gateway                string            `json:"ipv6Gateway,omitempty"`
	Profiles                   []string          `json:"profiles,omitempty"`
	InterfaceName              string            `json:"interfaceName,omitempty"`
	MAC                        string            `json:"mac,omitempty"`
	Ports                      []json.RawMessage `json:"ports,omitempty"`
	AllowSpoofedSourcePrefixes []string          `json:"allowSpoofedSourcePrefixes,omitempty"`
	QoSControls                json.RawMessage   `json:"qosControls,omitempty"`
}

type IPNAT struct {
	InternalIP string `json:"internalIP"`
	ExternalIP string `json:"externalIP"`
}

type ClusterInformationSpec struct {
	ClusterGUID    string `json:"clusterGUID,omitempty"`
	ClusterType    string `json:"clusterType,omitempty"`
	CalicoVersion  string `json:"calicoVersion,omitempty"`
	DatastoreReady *bool  `json:"datastoreReady,omitempty"`
	Variant        string `json:"variant,omitempty"`
}

// FelixConfigurationSpec is kept as it is: most of its two hundred fields do not concern routing.
type FelixConfigurationSpec map[string]json.RawMessage

// LiveMigrationSpec has the names of upstream's type, which has no JSON tags.
type (
	LiveMigrationSpec struct {
		Source *LiveMigrationEnd `json:"Source,omitempty"`
		Target *LiveMigrationEnd `json:"Target,omitempty"`
	}
	LiveMigrationEnd struct {
		WorkloadEndpoint *EndpointIdentifier `json:"WorkloadEndpoint,omitempty"`
		Workload         *EndpointIdentifier `json:"Workload,omitempty"`
		Selector         *string             `json:"Selector,omitempty"`
	}
	EndpointIdentifier struct {
		Hostname       string `json:"Hostname"`
		OrchestratorID string `json:"OrchestratorID"`
		WorkloadID     string `json:"WorkloadID"`
		EndpointID     string `json:"EndpointID,omitempty"`
	}
)

// BlockAffinitySpec is the resource's form. etcd holds it as IPAM does, see Affinity.
type BlockAffinitySpec struct {
	State   string `json:"state"`
	Node    string `json:"node"`
	Type    string `json:"type,omitempty"`
	CIDR    string `json:"cidr"`
	Deleted string `json:"deleted,omitempty"`
}
