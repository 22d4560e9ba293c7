package testcluster

import "fmt"

// Resource is a resource of Calico's in calicoctl's YAML, which may be followed by others. The name
// may be followed by more metadata; the spec is what is between its braces.
func Resource(kind, name, spec string) string {
	return fmt.Sprintf("---\napiVersion: projectcalico.org/v3\nkind: %s\nmetadata: {name: %s}\n"+
		"spec: {%s}\n", kind, name, spec)
}

// Peer is a BGPPeer with a speaker that is no node of Calico's. The spec may say more.
func Peer(name, address string, as uint32, spec string) string {
	return Resource("BGPPeer", name, fmt.Sprintf("peerIP: %q, asNumber: %d, %s", address, as, spec))
}

// NoMesh ends the mesh.
var NoMesh = Resource("BGPConfiguration", "default", "nodeToNodeMeshEnabled: false")

// ToReflectors has every node peer with the reflectors, which have a label.
var ToReflectors = Resource("BGPPeer", "to-reflectors",
	`nodeSelector: "all()", peerSelector: "role == 'rr'"`)

// ReflectorNode is a Node that reflects routes.
func ReflectorNode(name, clusterID, bgp string) string {
	return Resource("Node", name+", labels: {role: rr}",
		fmt.Sprintf("bgp: {%s, routeReflectorClusterID: %s}", bgp, clusterID))
}
