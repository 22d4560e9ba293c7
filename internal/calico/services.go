package calico

import (
	"maps"
	"net/netip"
)

// Service is what is read of a Service of the Kubernetes API. One that has no cluster address, or
// that is of another type than ClusterIP, NodePort and LoadBalancer, is as if absent.
type Service struct {
	Namespace, Name string
	LoadBalancer    bool // its type
	ClusterIPs      []netip.Addr
	ExternalIPs     []netip.Addr
	LoadBalancerIPs []netip.Addr // in its status: those that it has
	RequestedIP     netip.Addr   // spec.loadBalancerIP; invalid: none
	// ExternalTrafficPolicy is "Cluster", "Local" or "": it has none.
	ExternalTrafficPolicy string
	IPv4, IPv6            bool // spec.ipFamilies
}

// IsLocal reports whether only nodes with an endpoint take packets of others to it.
func (v Service) IsLocal() bool { return v.ExternalTrafficPolicy == "Local" }

// Backed reports whether a service has a ready endpoint of one of its families: on this node if it
// IsLocal, else anywhere.
func (v Service) Backed(e Endpoints) bool {
	if v.IsLocal() {
		return v.IPv4 && e.Here4 || v.IPv6 && e.Here6
	}
	return v.IPv4 && e.Ready4 || v.IPv6 && e.Ready6
}

// EndpointSlice is a part of the endpoints of a Service.
type EndpointSlice struct {
	Service   string // "namespace/name", never empty
	Endpoints Endpoints
}

// Endpoints says of which families there are ready endpoints, anywhere and on this node.
type Endpoints struct {
	Ready4 bool `json:",omitzero"`
	Here4  bool `json:",omitzero"`
	Ready6 bool `json:",omitzero"`
	Here6  bool `json:",omitzero"`
}

func (e Endpoints) or(o Endpoints) Endpoints {
	return Endpoints{e.Ready4 || o.Ready4, e.Here4 || o.Here4, e.Ready6 || o.Ready6,
		e.Here6 || o.Here6}
}

// Aggregates reports whether ranges of load balancers are announced as a whole.
func (c BGPConfiguration) Aggregates() bool {
	return c.ServiceLoadBalancerAggregation != "Disabled"
}

// NamesServices reports whether c has a range of service addresses.
func (c BGPConfiguration) NamesServices() bool {
	for _, list := range [][]string{c.ServiceClusterIPs, c.ServiceExternalIPs,
		c.ServiceLoadBalancerIPs} {
		for _, cidr := range list {
			if cidr != "" {
				return true
			}
		}
	}
	return false
}

// slice returns what is known of an EndpointSlice; zero: nothing, or k is of another kind.
func (s *Store) slice(k Key) EndpointSlice {
	if k.Kind != KindEndpointSlice {
		return EndpointSlice{}
	}
	return s.now.slices[k.name()]
}

// joinSlice brings the Endpoints of services up to date after a change of an EndpointSlice.
func (s *Store) joinSlice(name string, was EndpointSlice) {
	is := s.now.slices[name]
	if was.Service != is.Service {
		delete(s.slicesOf[was.Service], name)
		if len(s.slicesOf[was.Service]) == 0 {
			delete(s.slicesOf, was.Service)
		}
		s.joinSlices(was.Service)
	}
	if is.Service != "" {
		if s.slicesOf[is.Service] == nil {
			s.slicesOf[is.Service] = map[string]bool{}
		}
		s.slicesOf[is.Service][name] = true
		s.joinSlices(is.Service)
	}
}

// joinSlices computes the Endpoints of a service. That they are others is a change only if the
// service may be announced otherwise for it: pods come and go all the time.
func (s *Store) joinSlices(service string) {
	var all Endpoints
	for name := range s.slicesOf[service] {
		all = all.or(s.now.slices[name].Endpoints)
	}
	before, had := s.now.Endpoints[service]
	has := len(s.slicesOf[service]) > 0
	if had == has && before == all {
		return
	}
	if !s.ownsEndpoints {
		s.now.Endpoints, s.ownsEndpoints = maps.Clone(s.now.Endpoints), true
	}
	switch {
	case !has:
		delete(s.now.Endpoints, service)
	case s.now.Endpoints == nil:
		s.now.Endpoints = map[string]Endpoints{service: all}
	default:
		s.now.Endpoints[service] = all
	}
	v, known := s.now.Services[service]
	aggregates := s.now.BGPConfigurations["default"].Aggregates()
	if known && v.counts(before, had, aggregates) != v.counts(all, has, aggregates) {
		s.changed = true
	}
}

// counts are what endpoints mean to the announcement of a service. sliced: it has EndpointSlices.
func (v Service) counts(e Endpoints, sliced, aggregates bool) (means struct{ any, ready bool }) {
	hasMore := v.LoadBalancer || len(v.ExternalIPs) > 0
	means.any = sliced && hasMore && v.ExternalTrafficPolicy == "Cluster"
	means.ready = (v.IsLocal() || !aggregates) && v.Backed(e)
	return means
}
