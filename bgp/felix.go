package bgp

import (
	"cmp"
	"fmt"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/ipam"
)

// defaultElevatedPriority is Felix' priority of a route to what came by live migration (felix/config, IPv4ElevatedRoutePriority).
const defaultElevatedPriority = 512

// elevatedPrefs returns LOCAL_PREF of elevated announcements of each family. Only Felix is configured for it; BIRD takes the metric of Felix' route.
func elevatedPrefs(self string, normal map[family]uint32, s *calico.Snapshot) (map[family]uint32, []calico.Problem) {
	felix := s.FelixOn(self)
	prefs := map[family]uint32{}
	var problems []calico.Problem
	for f, priority := range map[family]int{ipv4: felix.IPv4ElevatedRoutePriority, ipv6: felix.IPv6ElevatedRoutePriority} {
		priority = cmp.Or(priority, defaultElevatedPriority)
		if priority < 0 || priority >= maxPriority || uint32(maxPriority-priority) <= normal[f] {
			problems = append(problems, felixProblem(felix, "the elevated route priority %d of %s is not below the normal one %d: what comes by live migration is announced as everything else",
				priority, f, maxPriority-normal[f]))
			prefs[f] = normal[f]
			continue
		}
		prefs[f] = uint32(maxPriority - priority)
	}
	return prefs, problems
}

// besideFelix names what Felix does that this agent does as well, and what the two must agree on.
func besideFelix(self string, s *calico.Snapshot) (problems []calico.Problem) {
	felix := s.FelixOn(self)
	var plain, ipip bool
	for _, pool := range ipam.Pools(s) {
		tunnelled := pool.IPIPMode == calico.EncapAlways || pool.IPIPMode == calico.EncapCrossSubnet
		ipip = ipip || tunnelled
		plain = plain || !tunnelled && pool.VXLANMode != calico.EncapAlways && pool.VXLANMode != calico.EncapCrossSubnet
	}
	mode := felix.ProgramClusterRoutes
	if plain && (mode == "Enabled" || mode == "EnabledNoEncapOnly") || ipip && (mode == "Enabled" || mode == "EnabledIPIPOnly") {
		problems = append(problems, felixProblem(felix, "programClusterRoutes %s: Felix puts routes to other nodes into the Linux FIB, too; set it to Disabled", mode))
	}
	conf := s.BGPConfigurations["default"]
	for f, pair := range map[family][2]int{
		ipv4: {felix.IPv4NormalRoutePriority, conf.IPv4NormalRoutePriority}, ipv6: {felix.IPv6NormalRoutePriority, conf.IPv6NormalRoutePriority},
	} {
		if theirs, ours := cmp.Or(pair[0], defaultPriority), cmp.Or(pair[1], defaultPriority); theirs != ours {
			problems = append(problems, felixProblem(felix, "the normal route priority of %s is %d here and %d in BGPConfiguration(default): they must be equal", f, theirs, ours))
		}
	}
	return problems
}

func felixProblem(felix calico.FelixConfiguration, format string, args ...any) calico.Problem {
	return calico.Problem{Key: "FelixConfiguration(" + cmp.Or(felix.Name, "default") + ")", Err: fmt.Sprintf(format, args...), Harmless: true}
}
