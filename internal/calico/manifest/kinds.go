package manifest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"vpp-route-agent/internal/calico"
)

// NewSpec returns a value to decode the spec of a known kind into.
func NewSpec(kind calico.Kind) (any, error) {
	switch kind {
	case calico.KindNode:
		return new(NodeSpec), nil
	case calico.KindIPPool:
		return new(IPPoolSpec), nil
	case calico.KindBGPConfiguration:
		return new(BGPConfigurationSpec), nil
	case calico.KindBGPPeer:
		return new(BGPPeerSpec), nil
	case calico.KindBGPFilter:
		return new(BGPFilterSpec), nil
	case calico.KindWorkloadEndpoint:
		return new(WorkloadEndpointSpec), nil
	case calico.KindClusterInformation:
		return new(ClusterInformationSpec), nil
	case calico.KindFelixConfiguration:
		return new(FelixConfigurationSpec), nil
	case calico.KindLiveMigration:
		return new(LiveMigrationSpec), nil
	case calico.KindBlockAffinity:
		return new(BlockAffinitySpec), nil
	}
	return nil, fmt.Errorf("kind %q is not one of Node, IPPool, BGPConfiguration, BGPPeer, "+
		"BGPFilter, WorkloadEndpoint, BlockAffinity, ClusterInformation, "+
		"FelixConfiguration, LiveMigration", kind)
}

// Affinity is the value of an affinity's key (libcalico-go lib/backend/model/block_affinity.go).
type Affinity struct {
	State   calico.AffinityState `json:"state"`
	Deleted bool                 `json:"deleted"`
}

// storedAffinity returns a BlockAffinity with the key and form that IPAM uses.
func (r Resource) storedAffinity() (calico.Key, []byte, error) {
	var spec BlockAffinitySpec
	if err := json.Unmarshal(r.Spec, &spec); err != nil {
		return calico.Key{}, nil, err
	}
	cidr, err := netip.ParsePrefix(spec.CIDR)
	if err != nil {
		return calico.Key{}, nil, fmt.Errorf("spec.cidr: %q is not a prefix", spec.CIDR)
	}
	owner := calico.Owner{Host: spec.Node}
	switch {
	case spec.Node == "" || strings.Contains(spec.Node, "/"):
		return calico.Key{}, nil, fmt.Errorf("spec.node: %q is not a name", spec.Node)
	case spec.Type == "virtual":
		owner = calico.Owner{Virtual: spec.Node}
	case spec.Type != "" && spec.Type != "host":
		return calico.Key{}, nil, fmt.Errorf("spec.type: %q is neither host nor virtual", spec.Type)
	}
	value, err := json.Marshal(Affinity{State: calico.AffinityState(spec.State),
		Deleted: spec.Deleted == "true"})
	return calico.Key{Kind: calico.KindBlockAffinity, Owner: owner, CIDR: cidr.Masked()}, value, err
}
