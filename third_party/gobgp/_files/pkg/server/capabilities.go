// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"slices"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// offered returns caps without what the agent has no use for. FQDN and SOFT_VERSION would tell
// neighbours the host's name and GoBGP's version, which no Calico node does. EXTENDED_NEXTHOP would
// let them send IPv4 routes with IPv6 next hops, for which a session of one family has no use.
func offered(caps []bgp.ParameterCapabilityInterface) []bgp.ParameterCapabilityInterface {
	return slices.DeleteFunc(caps, func(c bgp.ParameterCapabilityInterface) bool {
		switch c.Code() {
		case bgp.BGP_CAP_FQDN, bgp.BGP_CAP_SOFT_VERSION, bgp.BGP_CAP_EXTENDED_NEXTHOP:
			return true
		}
		return false
	})
}
