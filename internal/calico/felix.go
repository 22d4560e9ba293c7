package calico

import (
	"cmp"
	"fmt"
	"time"
)

// FelixOn returns how Felix of node is configured as far as Calico's resources say it: its own
// FelixConfiguration goes before the default one, field by field, so the result has no name. Felix'
// environment and file go before both, and are not known here.
func (s *Snapshot) FelixOn(node string) FelixConfiguration {
	own, all := s.Felix["node."+node], s.Felix["default"]
	return FelixConfiguration{
		ProgramClusterRoutes: cmp.Or(own.ProgramClusterRoutes,
			all.ProgramClusterRoutes),
		IPv4NormalRoutePriority: cmp.Or(own.IPv4NormalRoutePriority,
			all.IPv4NormalRoutePriority),
		IPv6NormalRoutePriority: cmp.Or(own.IPv6NormalRoutePriority,
			all.IPv6NormalRoutePriority),
		IPv4ElevatedRoutePriority: cmp.Or(own.IPv4ElevatedRoutePriority,
			all.IPv4ElevatedRoutePriority),
		IPv6ElevatedRoutePriority: cmp.Or(own.IPv6ElevatedRoutePriority,
			all.IPv6ElevatedRoutePriority),
		LiveMigrationRouteConvergenceTime: cmp.Or(own.LiveMigrationRouteConvergenceTime,
			all.LiveMigrationRouteConvergenceTime),
		IPIPMTU:    cmp.Or(own.IPIPMTU, all.IPIPMTU),
		VXLANPort:  cmp.Or(own.VXLANPort, all.VXLANPort),
		VXLANVNI:   cmp.Or(own.VXLANVNI, all.VXLANVNI),
		VXLANMTU:   cmp.Or(own.VXLANMTU, all.VXLANMTU),
		VXLANMTUV6: cmp.Or(own.VXLANMTUV6, all.VXLANMTUV6),

		IPIPEnabled:        cmp.Or(own.IPIPEnabled, all.IPIPEnabled),
		VXLANEnabled:       cmp.Or(own.VXLANEnabled, all.VXLANEnabled),
		WireguardEnabled:   cmp.Or(own.WireguardEnabled, all.WireguardEnabled),
		WireguardEnabledV6: cmp.Or(own.WireguardEnabledV6, all.WireguardEnabledV6),
	}
}

// FelixWith names the resource that sets a field of FelixOn(node).
func FelixWith[T comparable](s *Snapshot, node string, field func(FelixConfiguration) T) string {
	var nothing T
	name := "node." + node
	if field(s.Felix[name]) == nothing {
		name = "default"
	}
	return "FelixConfiguration(" + name + ")"
}

// FelixRoutesIPIP reports whether Felix of node has the routes of IPIP pools. Those of VXLAN pools
// it always has. By default it is so since Calico 3.33; one whose version is not known counts as
// older, since a route too many does no harm: Felix' goes before it.
func (s *Snapshot) FelixRoutesIPIP(node string) bool {
	switch s.FelixOn(node).ProgramClusterRoutes {
	case "Enabled", "EnabledIPIPOnly":
		return true
	case "Disabled", "EnabledNoEncapOnly":
		return false
	}
	var major, minor int
	_, err := fmt.Sscanf(s.CalicoVersion, "v%d.%d", &major, &minor)
	return err == nil && (major > 3 || major == 3 && minor >= 33)
}

func decodeFelixConfiguration(k Key, value []byte) (FelixConfiguration, error) {
	var spec struct {
		ProgramClusterRoutes              string   `json:"programClusterRoutes"`
		IPv4NormalRoutePriority           int      `json:"ipv4NormalRoutePriority"`
		IPv6NormalRoutePriority           int      `json:"ipv6NormalRoutePriority"`
		IPv4ElevatedRoutePriority         int      `json:"ipv4ElevatedRoutePriority"`
		IPv6ElevatedRoutePriority         int      `json:"ipv6ElevatedRoutePriority"`
		LiveMigrationRouteConvergenceTime duration `json:"liveMigrationRouteConvergenceTime"`
		IPIPMTU                           int      `json:"ipipMTU"`
		VXLANPort                         int      `json:"vxlanPort"`
		VXLANVNI                          int      `json:"vxlanVNI"`
		VXLANMTU                          int      `json:"vxlanMTU"`
		VXLANMTUV6                        int      `json:"vxlanMTUV6"`
		IPIPEnabled                       *bool    `json:"ipipEnabled"`
		VXLANEnabled                      *bool    `json:"vxlanEnabled"`
		WireguardEnabled                  *bool    `json:"wireguardEnabled"`
		WireguardEnabledV6                *bool    `json:"wireguardEnabledV6"`
	}
	if _, err := decodeSpec(k, value, &spec); err != nil {
		return FelixConfiguration{}, err
	}
	return FelixConfiguration{
		Name: k.Name, ProgramClusterRoutes: spec.ProgramClusterRoutes,
		IPv4NormalRoutePriority:           spec.IPv4NormalRoutePriority,
		IPv6NormalRoutePriority:           spec.IPv6NormalRoutePriority,
		IPv4ElevatedRoutePriority:         spec.IPv4ElevatedRoutePriority,
		IPv6ElevatedRoutePriority:         spec.IPv6ElevatedRoutePriority,
		LiveMigrationRouteConvergenceTime: time.Duration(spec.LiveMigrationRouteConvergenceTime),
		IPIPMTU:                           spec.IPIPMTU,
		VXLANPort:                         spec.VXLANPort,
		VXLANVNI:                          spec.VXLANVNI,
		VXLANMTU:                          spec.VXLANMTU,
		VXLANMTUV6:                        spec.VXLANMTUV6,
		IPIPEnabled:                       spec.IPIPEnabled,
		VXLANEnabled:                      spec.VXLANEnabled,
		WireguardEnabled:                  spec.WireguardEnabled,
		WireguardEnabledV6:                spec.WireguardEnabledV6,
	}, nil
}
