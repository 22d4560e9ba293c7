// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"slices"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// offered returns caps without those that the agent does not use. FQDN and SOFT_VERSION would show
// the host's name and GoBGP's version, which no Calico node does. EXTENDED_NEXTHOP would allow IPv4
// routes with IPv6 next hops, which a session of one family cannot use.
func offered(caps []bgp.ParameterCapabilityInterface) []bgp.ParameterCapabilityInterface {
	return slices.DeleteFunc(caps, func(c bgp.ParameterCapabilityInterface) bool {
		switch c.Code() {
		case bgp.BGP_CAP_FQDN, bgp.BGP_CAP_SOFT_VERSION, bgp.BGP_CAP_EXTENDED_NEXTHOP:
			return true
		}
		return false
	})
}
