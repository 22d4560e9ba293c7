package bgp

import (
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// excludedFromServices is the label of a Node that announces no service addresses.
const excludedFromServices = "node.kubernetes.io/exclude-from-external-load-balancers"

// services are the addresses of services, as far as they follow from Calico's resources.
type services struct {
	// announced are the ranges that this node announces, like every other: packets for one of their
	// addresses may come in anywhere. No route of ours leads there, not even a drop: kube-proxy or
	// its like takes them off before, or a route of its own does.
	announced []netip.Prefix
	// ranges are all with more than one address. BIRD accepts routes inside them and keeps them out
	// of the kernel, where kube-proxy or its like has those addresses.
	ranges   []netip.Prefix
	problems []calico.Problem
}

// servicesOf reads the ranges as confd does without a Kubernetes API (client.go,
// updateGlobalRoutes). Only that API has the single services and their endpoints. So single
// addresses, and those of ranges that are not aggregated, are not announced.
func servicesOf(n calico.Node, conf calico.BGPConfiguration, o Options) services {
	s := services{}
	say := func(format string, args ...any) {
		p := badConfiguration(format, args...)
		p.Harmless = true
		s.problems = append(s.problems, p)
	}
	read := func(field string, texts []string) []netip.Prefix {
		for _, text := range texts {
			if len(prefixes([]string{text})) == 0 {
				say("%s: cidr %q is not a prefix", field, text)
			}
		}
		return prefixes(texts)
	}
	var cluster []netip.Prefix
	if o.ClusterIPs.IsValid() {
		cluster = []netip.Prefix{o.ClusterIPs}
	} else {
		cluster = read("serviceClusterIPs", conf.ServiceClusterIPs)
	}
	external := read("serviceExternalIPs", conf.ServiceExternalIPs)
	balanced := read("serviceLoadBalancerIPs", conf.ServiceLoadBalancerIPs)
	if a := conf.ServiceLoadBalancerAggregation; a != "" && a != "Enabled" && a != "Disabled" {
		say("serviceLoadBalancerAggregation %q is neither Enabled nor Disabled: it "+
			"counts as Enabled", a)
	}
	all := slices.Concat(cluster, external, balanced)
	if len(all) == 0 {
		return s
	}
	s.ranges = sortedPrefixes(slices.DeleteFunc(slices.Clone(all), netip.Prefix.IsSingleIP))
	if n.Labels[excludedFromServices] == "true" {
		say("service addresses are not announced: Node(%s) has the label %s",
			n.Name, excludedFromServices)
		return s
	}
	s.announced = slices.Concat(cluster,
		slices.DeleteFunc(slices.Clone(external), netip.Prefix.IsSingleIP))
	single := slices.DeleteFunc(slices.Concat(external, balanced), func(p netip.Prefix) bool {
		return !p.IsSingleIP()
	})
	if conf.ServiceLoadBalancerAggregation == "Disabled" {
		single = slices.Concat(single,
			slices.DeleteFunc(slices.Clone(balanced), netip.Prefix.IsSingleIP))
	} else {
		s.announced = slices.Concat(s.announced,
			slices.DeleteFunc(slices.Clone(balanced), netip.Prefix.IsSingleIP))
	}
	s.announced = sortedPrefixes(s.announced)
	say("ranges of service addresses are announced as a whole; addresses of single services are " +
		"not: that needs the Kubernetes API")
	if len(single) > 0 {
		say("nothing of %s is announced: that needs the Kubernetes API",
			joinPrefixes(sortedPrefixes(single)))
	}
	return s
}

func sortedPrefixes(all []netip.Prefix) []netip.Prefix {
	slices.SortFunc(all, route.ComparePrefixes)
	return slices.Compact(all)
}

func joinPrefixes(all []netip.Prefix) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}
