package bgp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// excludedFromServices is the label of a Node that announces no service addresses.
const excludedFromServices = "node.kubernetes.io/exclude-from-external-load-balancers"

// services are the addresses of services, as far as they follow from Calico's resources and
// Kubernetes' Services.
type services struct {
	// announced are the ranges and single addresses that this node announces, like every other or
	// because of its endpoints: packets for one of them may come in here. No route of ours leads
	// there, not even a drop: kube-proxy or its like takes them off before, or a route of its own
	// does.
	announced []netip.Prefix
	// notProgrammed are disjoint: BIRD accepts routes inside them and keeps them out of the kernel,
	// where kube-proxy or its like has those addresses. What is announced here is among them:
	// BIRD prefers its own route to a learned one.
	notProgrammed []netip.Prefix
	problems      []calico.Problem
}

// serviceRanges are what BGPConfiguration says of service addresses. The lists are sorted.
type serviceRanges struct {
	cluster, external, balanced []netip.Prefix
	aggregates                  bool // ranges of load balancers are announced as a whole
}

// servicesOf follows confd (client.go and routes.go of its backend calico, in Calico 3.31.7), which
// looks at single services where there is a Kubernetes API.
func servicesOf(n calico.Node, s *calico.Snapshot, o Options) services {
	out := services{}
	say := func(format string, args ...any) {
		p := badConfiguration(format, args...)
		p.Harmless = true
		out.problems = append(out.problems, p)
	}
	r := readServiceRanges(s.BGPConfigurations["default"], o, say)
	if len(r.cluster)+len(r.external)+len(r.balanced) == 0 {
		return out
	}
	whole := r.whole()
	if n.Labels[excludedFromServices] == "true" {
		say("service addresses are not announced: Node(%s) has the label %s",
			n.Name, excludedFromServices)
		out.notProgrammed = route.Disjoint(whole)
		return out
	}
	out.announced = whole
	if s.Services != nil {
		out.announced = sortedPrefixes(slices.Concat(whole, r.single(s)))
	} else {
		say("ranges of service addresses are announced as a whole; addresses of single services " +
			"are not: that needs the Kubernetes API")
		if rest := r.notWhole(); len(rest) > 0 {
			say("nothing of %s is announced: that needs the Kubernetes API", joinPrefixes(rest))
		}
	}
	out.notProgrammed = route.Disjoint(out.announced)
	return out
}

// readServiceRanges leaves out what is no prefix. The CRD lets a cidr be empty, and confd passes
// that over.
func readServiceRanges(
	conf calico.BGPConfiguration, o Options, say func(format string, args ...any),
) serviceRanges {
	read := func(field string, texts []string) []netip.Prefix {
		for _, text := range texts {
			if text != "" && len(prefixes([]string{text})) == 0 {
				say("%s: cidr %q is not a prefix", field, text)
			}
		}
		return prefixes(texts)
	}
	r := serviceRanges{aggregates: conf.Aggregates()}
	if o.ClusterIPs.IsValid() {
		r.cluster = []netip.Prefix{o.ClusterIPs}
	} else {
		r.cluster = read("serviceClusterIPs", conf.ServiceClusterIPs)
	}
	r.external = read("serviceExternalIPs", conf.ServiceExternalIPs)
	r.balanced = read("serviceLoadBalancerIPs", conf.ServiceLoadBalancerIPs)
	if a := conf.ServiceLoadBalancerAggregation; a != "" && a != "Enabled" && a != "Disabled" {
		say("serviceLoadBalancerAggregation %q is neither Enabled nor Disabled: it "+
			"counts as Enabled", a)
	}
	return r
}

// whole are the ranges that every node announces: single addresses are announced for services that
// have them, but for cluster addresses.
func (r serviceRanges) whole() []netip.Prefix {
	all := slices.Concat(r.cluster, slices.DeleteFunc(slices.Clone(r.external),
		netip.Prefix.IsSingleIP))
	if r.aggregates {
		all = slices.Concat(all, slices.DeleteFunc(slices.Clone(r.balanced),
			netip.Prefix.IsSingleIP))
	}
	return sortedPrefixes(all)
}

// notWhole are all others.
func (r serviceRanges) notWhole() []netip.Prefix {
	whole := r.whole()
	return sortedPrefixes(slices.DeleteFunc(slices.Concat(r.external, r.balanced),
		func(p netip.Prefix) bool { return slices.Contains(whole, p) }))
}

// single are the addresses that are announced for services, perhaps several times.
func (r serviceRanges) single(s *calico.Snapshot) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(s.Services))
	for name, v := range s.Services {
		if endpoints, sliced := s.Endpoints[name]; sliced && r.announces(v, endpoints) {
			all = r.addresses(all, v)
		}
	}
	return all
}

// announces reports whether this node announces a service with these endpoints, which may be none:
// every node one that has a single address of the configuration, and those with endpoints what is
// Local. Where load balancers are not aggregated every node announces all the others.
func (r serviceRanges) announces(v calico.Service, e calico.Endpoints) bool {
	if v.ExternalTrafficPolicy == "Cluster" {
		balanced := append(slices.Clone(v.LoadBalancerIPs), v.RequestedIP)
		if v.LoadBalancer && slices.ContainsFunc(balanced, isSingleOf(r.balanced)) ||
			slices.ContainsFunc(v.ExternalIPs, isSingleOf(r.external)) {
			return true
		}
	}
	return (v.IsLocal() || !r.aggregates) && v.Backed(e)
}

// addresses appends all of a service that may be announced. Those of the cluster need not be inside
// a range: there only has to be one.
func (r serviceRanges) addresses(all []netip.Prefix, v calico.Service) []netip.Prefix {
	add := func(addresses []netip.Addr, allowed func(netip.Addr) bool) {
		for _, a := range addresses {
			if allowed(a) {
				all = append(all, route.HostPrefix(a))
			}
		}
	}
	add(v.ClusterIPs, func(netip.Addr) bool { return len(r.cluster) > 0 })
	add(v.ExternalIPs, isIn(r.external))
	add(v.LoadBalancerIPs, isIn(r.balanced))
	return all
}

func isIn(ranges []netip.Prefix) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
	}
}

// isSingleOf is isIn those ranges that are a single address.
func isSingleOf(ranges []netip.Prefix) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		return a.IsValid() && slices.Contains(ranges, route.HostPrefix(a))
	}
}

func sortedPrefixes(all []netip.Prefix) []netip.Prefix {
	route.SortPrefixes(all)
	return slices.Compact(all)
}

func joinPrefixes(all []netip.Prefix) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

// ServiceAddress returns the configured range of service addresses that p lies in, invalid if in
// none, and why this node does not announce it; "": it does.
func ServiceAddress(self string, s *calico.Snapshot, o Options, p netip.Prefix) (
	in netip.Prefix, why string) {
	r := readServiceRanges(s.BGPConfigurations["default"], o, func(string, ...any) {})
	whole := r.whole()
	in, found := covering(slices.Concat(whole, r.notWhole()), p)
	_, announced := covering(whole, p)
	switch {
	case !found:
		return netip.Prefix{}, ""
	case s.Nodes[self].Labels[excludedFromServices] == "true":
		return in, fmt.Sprintf("Node(%s) has the label %s", self, excludedFromServices)
	case announced:
		return in, ""
	case s.Services == nil:
		return in, "addresses of single services are not announced without the Kubernetes API"
	}
	why = "no Service has it"
	for _, name := range slices.Sorted(maps.Keys(s.Services)) {
		v := s.Services[name]
		if !slices.Contains(r.addresses(nil, v), p) {
			continue
		}
		endpoints, sliced := s.Endpoints[name]
		switch {
		case sliced && r.announces(v, endpoints):
			return in, ""
		case !sliced:
			why = fmt.Sprintf("Service(%s) has no EndpointSlice", name)
		case v.IsLocal():
			why = fmt.Sprintf("Service(%s) has externalTrafficPolicy Local, and no endpoint here",
				name)
		default:
			why = fmt.Sprintf("Service(%s) is announced with its range, which is not announced",
				name)
		}
	}
	return in, why
}
