package route

import (
	"fmt"
	"slices"
	"strings"
)

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

var originNames = [...]string{"unknown", "own", "external", "bgp", "etcd", "uplink", "overlay"}

func (o Origin) String() string {
	if int(o) < len(originNames) {
		return originNames[o]
	}
	return fmt.Sprintf("origin(%d)", uint8(o))
}

// ParseOrigin takes the name of an origin.
func ParseOrigin(name string) (Origin, error) {
	if i := slices.Index(originNames[:], name); i >= 0 {
		return Origin(i), nil
	}
	return Unknown, fmt.Errorf("origin %q is none of %s", name, strings.Join(originNames[:], ", "))
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
