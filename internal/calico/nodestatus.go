package calico

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"unique"
)

// KindCalicoNodeStatus is a question to the calico-node of a node, and its answer. No Snapshot has
// it.
const KindCalicoNodeStatus Kind = "CalicoNodeStatus"

// NodeStatusPrefix begins the keys of all resources of KindCalicoNodeStatus; their names follow.
const NodeStatusPrefix = resourcePath + "caliconodestatuses/"

// NodeStatus is what a calico-node has written about its BIRD.
type NodeStatus struct {
	Annotations map[string]string
	Answered    bool
	Peers       []NodeStatusPeer
	Routes      []NodeStatusRoute
}

// NodeStatusPeer is a session of BIRD with a router that confd knows.
type NodeStatusPeer struct {
	Address     netip.Addr
	Type        PeerType
	Established bool
}

// PeerType says what asks for a session: the mesh, or a BGPPeer of a node or of all.
type PeerType string

const (
	PeerTypeMesh   PeerType = "NodeMesh"
	PeerTypeNode   PeerType = "NodePeer"
	PeerTypeGlobal PeerType = "GlobalPeer"
)

// NodeStatusRoute is a route of BIRD's table.
type NodeStatusRoute struct {
	Prefix             netip.Prefix
	Gateway, Interface string
	// Peer is who has sent it; zero: it is not from BGP.
	Peer netip.Addr
	// FIB: it is the one of its prefix that BIRD forwards by.
	FIB bool
}

// nodeStatusPeer and nodeStatusRoute are as calico-node writes them (node/pkg/status/populators).
type (
	nodeStatusPeer struct {
		PeerIP string `json:"peerIP"`
		Type   string `json:"type"`
		State  string `json:"state"`
	}
	nodeStatusRoute struct {
		Type        string `json:"type"`
		Destination string `json:"destination"`
		Gateway     string `json:"gateway"`
		Interface   string `json:"interface"`
		LearnedFrom struct {
			PeerIP string `json:"peerIP"`
		} `json:"learnedFrom"`
	}
)

// DecodeNodeStatus reads a CalicoNodeStatus. A peer or a route that cannot be read is left out: a
// gate that needs it stays shut.
func DecodeNodeStatus(value []byte) (NodeStatus, error) {
	var stored struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Status struct {
			LastUpdated *string `json:"lastUpdated"`
			BGP         struct {
				PeersV4 []nodeStatusPeer `json:"peersV4"`
				PeersV6 []nodeStatusPeer `json:"peersV6"`
			} `json:"bgp"`
			Routes struct {
				RoutesV4 []nodeStatusRoute `json:"routesV4"`
				RoutesV6 []nodeStatusRoute `json:"routesV6"`
			} `json:"routes"`
		} `json:"status"`
	}
	if err := json.Unmarshal(value, &stored); err != nil {
		return NodeStatus{}, fmt.Errorf("CalicoNodeStatus: %w", err)
	}
	s := NodeStatus{
		Annotations: stored.Metadata.Annotations, Answered: stored.Status.LastUpdated != nil,
	}
	for _, all := range [][]nodeStatusPeer{stored.Status.BGP.PeersV4, stored.Status.BGP.PeersV6} {
		for _, p := range all {
			if address, err := netip.ParseAddr(p.PeerIP); err == nil {
				s.Peers = append(s.Peers, NodeStatusPeer{
					address.Unmap(), PeerType(p.Type), p.State == "Established",
				})
			}
		}
	}
	for _, all := range [][]nodeStatusRoute{stored.Status.Routes.RoutesV4,
		stored.Status.Routes.RoutesV6} {
		for _, r := range all {
			prefix, err := netip.ParsePrefix(r.Destination)
			peer, ok := routeFrom(r.LearnedFrom.PeerIP)
			if err == nil && ok {
				s.Routes = append(s.Routes, NodeStatusRoute{
					prefix.Masked(), shared(r.Gateway), shared(r.Interface), peer, r.Type == "FIB",
				})
			}
		}
	}
	return s, nil
}

// shared is a text whose memory all equal ones share: many routes have few gateways.
func shared(text string) string { return unique.Make(text).Value() }

// routeFrom is the peer of a route. calico-node takes it from the name of BIRD's protocol, so that
// a port follows: "10.0.0.2.port.1179", "fd00::2:port:1179".
func routeFrom(peer string) (netip.Addr, bool) {
	if peer == "" {
		return netip.Addr{}, true
	}
	for _, port := range []string{".port.", ":port:"} {
		peer, _, _ = strings.Cut(peer, port)
	}
	address, err := netip.ParseAddr(peer)
	return address.Unmap(), err == nil
}
