package calico

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/selector"
)

// FelixOn returns how Felix of node is configured as far as Calico's resources say it: field by
// field its own FelixConfiguration goes before one that selects it, and that before the one of all
// nodes, so the result has no name. Felix' environment and file go before all, and are not known
// here.
func (s *Snapshot) FelixOn(node string) FelixConfiguration {
	own, selecting, global := s.felixFor(node)
	return own.or(selecting).or(global)
}

// or returns f with the fields of g that f does not set.
func (f FelixConfiguration) or(g FelixConfiguration) FelixConfiguration {
	return FelixConfiguration{
		ProgramClusterRoutes:      cmp.Or(f.ProgramClusterRoutes, g.ProgramClusterRoutes),
		IPv4NormalRoutePriority:   cmp.Or(f.IPv4NormalRoutePriority, g.IPv4NormalRoutePriority),
		IPv6NormalRoutePriority:   cmp.Or(f.IPv6NormalRoutePriority, g.IPv6NormalRoutePriority),
		IPv4ElevatedRoutePriority: cmp.Or(f.IPv4ElevatedRoutePriority, g.IPv4ElevatedRoutePriority),
		IPv6ElevatedRoutePriority: cmp.Or(f.IPv6ElevatedRoutePriority, g.IPv6ElevatedRoutePriority),
		LiveMigrationRouteConvergenceTime: cmp.Or(f.LiveMigrationRouteConvergenceTime,
			g.LiveMigrationRouteConvergenceTime),
		IPIPMTU:    cmp.Or(f.IPIPMTU, g.IPIPMTU),
		VXLANPort:  cmp.Or(f.VXLANPort, g.VXLANPort),
		VXLANVNI:   cmp.Or(f.VXLANVNI, g.VXLANVNI),
		VXLANMTU:   cmp.Or(f.VXLANMTU, g.VXLANMTU),
		VXLANMTUV6: cmp.Or(f.VXLANMTUV6, g.VXLANMTUV6),

		IPIPEnabled:        cmp.Or(f.IPIPEnabled, g.IPIPEnabled),
		VXLANEnabled:       cmp.Or(f.VXLANEnabled, g.VXLANEnabled),
		WireguardEnabled:   cmp.Or(f.WireguardEnabled, g.WireguardEnabled),
		WireguardEnabledV6: cmp.Or(f.WireguardEnabledV6, g.WireguardEnabledV6),
	}
}

// felixFor returns a node's own FelixConfiguration, the one that selects it, and that of all nodes.
// One that is absent is empty.
func (s *Snapshot) felixFor(node string) (own, selecting, global FelixConfiguration) {
	if all := s.felixSelecting(node); len(all) > 0 {
		selecting = all[0]
	}
	return s.Felix[ownFelix(node)], selecting, s.Felix["default"]
}

// ownFelix is the name of a node's own FelixConfiguration.
func ownFelix(node string) string { return "node." + node }

// felixSelecting returns the FelixConfigurations whose nodeSelector selects a node, the oldest
// first, which is the one that counts (felix/calc/config_batcher.go, since Calico 3.32). A Node
// without labels is selected by none, not even by all().
func (s *Snapshot) felixSelecting(node string) (all []FelixConfiguration) {
	labels := s.Nodes[node].Labels
	for _, f := range s.Felix {
		if f.NodeSelector == "" || labels == nil {
			continue
		}
		if by, err := selector.Parse(f.NodeSelector); err == nil && by.Matches(labels) {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b FelixConfiguration) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// UnusedFelix names the FelixConfigurations that select a node and do not count.
func (s *Snapshot) UnusedFelix(node string) (problems []Problem) {
	all := s.felixSelecting(node)
	for _, f := range all[min(1, len(all)):] {
		problems = append(problems, Problem{Resource: felixResource(f.Name), Harmless: true,
			Err: fmt.Sprintf("nodeSelector selects this node, as that of %s does: the oldest "+
				"counts, or the first by name", felixResource(all[0].Name))})
	}
	return problems
}

// annotatedConfig begins the annotations that Felix takes in place of fields, by its own names
// (libcalico-go lib/backend/syncersv1/updateprocessors/configurationprocessor.go).
const annotatedConfig = "config.projectcalico.org/"

// felixNames are Felix' names of the fields that are read here, in lower case.
var felixNames = []string{"programclusterroutes", "ipv4normalroutepriority",
	"ipv6normalroutepriority", "ipv4elevatedroutepriority", "ipv6elevatedroutepriority",
	"livemigrationrouteconvergencetime", "ipinipmtu", "vxlanport", "vxlanvni", "vxlanmtu",
	"vxlanmtuv6", "ipinipenabled", "vxlanenabled", "wireguardenabled", "wireguardenabledv6"}

// AnnotatedFelix names the annotations that have Felix of a node work by other values than the
// fields that are read here.
func (s *Snapshot) AnnotatedFelix(node string) (problems []Problem) {
	own, selecting, global := s.felixFor(node)
	for _, f := range []FelixConfiguration{own, selecting, global} {
		for _, name := range f.Annotated {
			problems = append(problems, Problem{Resource: felixResource(f.Name), Harmless: true,
				Err: "annotation " + name + ": Felix takes this in place of a field of the spec, " +
					"and the agent does not"})
		}
	}
	return problems
}

// FelixWith names the resource that sets a field of FelixOn(node); that of all nodes if none does.
func FelixWith[T comparable](s *Snapshot, node string, field func(FelixConfiguration) T) string {
	var nothing T
	own, selecting, _ := s.felixFor(node)
	switch {
	case field(own) != nothing:
		return felixResource(ownFelix(node))
	case field(selecting) != nothing:
		return felixResource(selecting.Name)
	}
	return felixResource("default")
}

func felixResource(name string) string { return "FelixConfiguration(" + name + ")" }

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
		NodeSelector                      string   `json:"nodeSelector"`
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
	f := FelixConfiguration{
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
		Annotated:                         annotatedFields(value),
	}
	if k.Name == "default" || strings.HasPrefix(k.Name, ownFelix("")) {
		return f, nil // Calico ignores its nodeSelector
	}
	f.NodeSelector, f.Created = spec.NodeSelector, created(value)
	if _, err := selector.Parse(f.NodeSelector); err != nil { // then it selects no node
		return f, partialError(wrapField("spec.nodeSelector", err).Error())
	}
	return f, nil
}

// annotatedFields returns the annotations that stand for felixNames, sorted.
func annotatedFields(value []byte) (all []string) {
	var stored struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(value, &stored) // what is no text is no annotation
	for name := range stored.Metadata.Annotations {
		field, is := strings.CutPrefix(name, annotatedConfig)
		if is && slices.Contains(felixNames, strings.ToLower(field)) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// created returns when a resource was made, in seconds since 1970; 0 where it does not say.
func created(value []byte) int64 {
	var stored struct {
		Metadata struct {
			Created time.Time `json:"creationTimestamp"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(value, &stored); err != nil || stored.Metadata.Created.IsZero() {
		return 0
	}
	return stored.Metadata.Created.Unix()
}
