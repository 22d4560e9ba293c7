package bgp

import (
	"cmp"
	"fmt"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/ipam"
)

// defaultElevatedPriority is Felix' priority of a route to what came by live migration
// (felix/config, IPv4ElevatedRoutePriority).
const defaultElevatedPriority = 512

// elevatedPrefs returns LOCAL_PREF of elevated announcements of each family. Only Felix is
// configured for it; BIRD takes the metric of Felix' route.
func elevatedPrefs(
	self string, normal map[family]uint32, s *calico.Snapshot,
) (map[family]uint32, []calico.Problem) {
	felix := s.FelixOn(self)
	prefs := map[family]uint32{}
	var problems []calico.Problem
	for f, set := range map[family]func(calico.FelixConfiguration) int{
		ipv4: func(c calico.FelixConfiguration) int { return c.IPv4ElevatedRoutePriority },
		ipv6: func(c calico.FelixConfiguration) int { return c.IPv6ElevatedRoutePriority },
	} {
		priority := cmp.Or(set(felix), defaultElevatedPriority)
		if priority < 0 || priority >= maxPriority || uint32(maxPriority-priority) <= normal[f] {
			problems = append(problems, felixProblem(self, s, set,
				"the elevated route priority %d of %s is not below the normal one %d: "+
					"what comes by live migration is announced as everything else",
				priority, f, maxPriority-normal[f]))
			prefs[f] = normal[f]
			continue
		}
		prefs[f] = uint32(maxPriority - priority)
	}
	return prefs, problems
}

// besideFelix names what Felix does that this agent does as well, and what the two must agree on.
func besideFelix(self string, o Options, s *calico.Snapshot) (problems []calico.Problem) {
	felix := s.FelixOn(self)
	var plain, ipip bool
	for _, pool := range ipam.Pools(s) {
		tunnelled := pool.IPIPMode.Encapsulates()
		ipip = ipip || tunnelled && !o.FelixTunnels // else they are left to it
		plain = plain || !tunnelled && !pool.VXLANMode.Encapsulates()
	}
	set := func(c calico.FelixConfiguration) string { return c.ProgramClusterRoutes }
	mode := set(felix)
	if plain && (mode == "Enabled" || mode == "EnabledNoEncapOnly") ||
		ipip && (mode == "Enabled" || mode == "EnabledIPIPOnly") {
		problems = append(problems, felixProblem(self, s, set,
			"programClusterRoutes %s: Felix puts routes to other nodes into the Linux FIB, too; "+
				"set it to Disabled", mode))
	}
	conf := s.BGPConfigurations["default"]
	for _, x := range []struct {
		f    family
		ours int
		set  func(calico.FelixConfiguration) int
	}{
		{ipv4, conf.IPv4NormalRoutePriority,
			func(c calico.FelixConfiguration) int { return c.IPv4NormalRoutePriority }},
		{ipv6, conf.IPv6NormalRoutePriority,
			func(c calico.FelixConfiguration) int { return c.IPv6NormalRoutePriority }},
	} {
		theirs, ours := cmp.Or(x.set(felix), defaultPriority), cmp.Or(x.ours, defaultPriority)
		if theirs != ours {
			problems = append(problems, felixProblem(self, s, x.set,
				"the normal route priority of %s is %d here and %d in BGPConfiguration(default): "+
					"they must be equal", x.f, theirs, ours))
		}
	}
	return problems
}

// Unencrypted names the settings that ask for WireGuard where the data plane has none.
func Unencrypted(self string, s *calico.Snapshot, o Options) (problems []calico.Problem) {
	felix := s.FelixOn(self)
	for _, x := range []struct {
		field string
		set   func(calico.FelixConfiguration) *bool
	}{
		{"wireguardEnabled",
			func(c calico.FelixConfiguration) *bool { return c.WireguardEnabled }},
		{"wireguardEnabledV6",
			func(c calico.FelixConfiguration) *bool { return c.WireguardEnabledV6 }},
	} {
		if on := x.set(felix); o.NoWireguard && on != nil && *on {
			problems = append(problems, felixProblem(self, s, x.set,
				"%s: VPP has no WireGuard, and traffic of this node is not encrypted", x.field))
		}
	}
	return problems
}

// felixProblem is about a field of FelixOn(self), and named after the resource that sets it.
func felixProblem[T comparable](
	self string, s *calico.Snapshot, set func(calico.FelixConfiguration) T,
	format string, args ...any,
) calico.Problem {
	return calico.Problem{
		Resource: calico.FelixWith(s, self, set),
		Err:      fmt.Sprintf(format, args...), Harmless: true,
	}
}
