package route

import "fmt"

// Origin is the source of a desired route.
type Origin uint8

const (
	Unknown  Origin = iota // read back from a data plane
	Own                    // this node: drop routes of its own blocks, tunnels
	External               // static routes from external configuration
	BGP                    // learned from a peer
	Etcd                   // taken from Calico's blocks without BGP (--learn ipam)
	Uplink                 // the uplink's objects; it has no routes
	Overlay                // of VXLAN pools, taken from Calico's blocks, whatever BGP says
)

func (o Origin) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case Own:
		return "own"
	case External:
		return "external"
	case BGP:
		return "bgp"
	case Etcd:
		return "etcd"
	case Uplink:
		return "uplink"
	case Overlay:
		return "overlay"
	}
	return fmt.Sprintf("origin(%d)", uint8(o))
}

// IsStatic reports whether the next hops of o are gateways, as in BIRD's static routes: on a
// connected network a gateway is a neighbour, whatever routes lead to its address. The next hops of
// other origins resolve by longest match.
func (o Origin) IsStatic() bool { return o == Own || o == External }

// DefaultDistance is the administrative distance of an origin: among equal prefixes the lowest
// wins. The scale is the usual one (connected 0, static 1, external BGP 20, last resort 250).
func (o Origin) DefaultDistance() uint8 {
	switch o {
	case Own:
		return 0
	case External:
		return 1
	case Overlay:
		return 10
	case BGP:
		return 20
	case Etcd:
		return 250
	}
	return 255
}
