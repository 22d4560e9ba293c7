package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
)

// serviceOf is the label of an EndpointSlice that names its Service.
const serviceOf = "kubernetes.io/service-name"

// serviceObject is what is read of a Service.
type serviceObject struct {
	Spec struct {
		Type                  string   `json:"type"`
		ClusterIP             string   `json:"clusterIP"`
		ClusterIPs            []string `json:"clusterIPs"`
		ExternalIPs           []string `json:"externalIPs"`
		LoadBalancerIP        string   `json:"loadBalancerIP"`
		ExternalTrafficPolicy string   `json:"externalTrafficPolicy"`
		IPFamilies            []string `json:"ipFamilies"`
	} `json:"spec"`
	Status struct {
		LoadBalancer struct {
			Ingress []struct {
				IP string `json:"ip"`
			} `json:"ingress"`
		} `json:"loadBalancer"`
	} `json:"status"`
}

// serviceItem is the item of a Service. Each address is checked alone: one that cannot be used is
// an error, and the others count.
func serviceItem(name string, o object) calico.Item {
	item := calico.Item{Name: name,
		Key: calico.Key{Kind: calico.KindService, Namespace: o.namespace, Name: o.name}}
	var v serviceObject
	if item.Err = unmarshal(o.json, &v); item.Err != nil {
		return item
	}
	spec := v.Spec
	switch spec.Type {
	case "ClusterIP", "NodePort", "LoadBalancer":
	default:
		return calico.Item{}
	}
	if spec.ClusterIP == "" || spec.ClusterIP == "None" {
		return calico.Item{}
	}
	var ingress []string
	for _, i := range v.Status.LoadBalancer.Ingress {
		if i.IP != "" { // else it has a host name
			ingress = append(ingress, i.IP)
		}
	}
	var wrong fieldErrors
	out := calico.Service{
		Namespace: o.namespace, Name: o.name, LoadBalancer: spec.Type == "LoadBalancer",
		ClusterIPs:            wrong.addresses("spec.clusterIPs", spec.ClusterIPs),
		ExternalIPs:           wrong.addresses("spec.externalIPs", spec.ExternalIPs),
		LoadBalancerIPs:       wrong.addresses("status.loadBalancer.ingress", ingress),
		ExternalTrafficPolicy: spec.ExternalTrafficPolicy,
		IPv4:                  slices.Contains(spec.IPFamilies, "IPv4"),
		IPv6:                  slices.Contains(spec.IPFamilies, "IPv6"),
	}
	if spec.LoadBalancerIP != "" {
		for _, a := range wrong.addresses("spec.loadBalancerIP", []string{spec.LoadBalancerIP}) {
			out.RequestedIP = a
		}
	}
	for _, f := range spec.IPFamilies {
		if f != "IPv4" && f != "IPv6" {
			wrong.add("spec.ipFamilies", fmt.Errorf("%.40q is neither IPv4 nor IPv6", f))
		}
	}
	switch p := spec.ExternalTrafficPolicy; p {
	case "", "Cluster", "Local":
	default:
		wrong.add("spec.externalTrafficPolicy", fmt.Errorf("%.40q is neither Cluster nor Local", p))
	}
	item.Value, item.Err = out, wrong.err()
	return item
}

// fieldErrors are what is wrong with fields of an object.
type fieldErrors []string

func (f *fieldErrors) add(field string, err error) { *f = append(*f, field+": "+err.Error()) }

func (f fieldErrors) err() error {
	if f == nil {
		return nil
	}
	return errors.New(strings.Join(f, "; "))
}

// addresses returns the addresses in a field.
func (f *fieldErrors) addresses(field string, texts []string) (all []netip.Addr) {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			f.add(field, fmt.Errorf("%.40q is not an address", text))
			continue
		}
		all = append(all, a.Unmap())
	}
	return all
}

// sliceObject is what is read of an EndpointSlice.
type sliceObject struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	AddressType string `json:"addressType"`
	Endpoints   []struct {
		Conditions struct {
			Ready *bool `json:"ready"` // nil: it is ready
		} `json:"conditions"`
		NodeName string `json:"nodeName"`
	} `json:"endpoints"`
}

// sliceItem is the item of an EndpointSlice; one without Service has none. node is what Kubernetes
// calls this node.
func sliceItem(name, node string, o object) calico.Item {
	item := calico.Item{Name: name,
		Key: calico.Key{Kind: calico.KindEndpointSlice, Namespace: o.namespace, Name: o.name}}
	var s sliceObject
	if item.Err = unmarshal(o.json, &s); item.Err != nil {
		return item
	}
	service := s.Metadata.Labels[serviceOf]
	if service == "" {
		return calico.Item{}
	}
	ready, here := false, false
	for _, e := range s.Endpoints {
		if e.Conditions.Ready == nil || *e.Conditions.Ready {
			ready, here = true, here || e.NodeName == node
		}
	}
	out := calico.EndpointSlice{Service: o.namespace + "/" + service}
	switch s.AddressType {
	case "IPv4":
		out.Endpoints.Ready4, out.Endpoints.Here4 = ready, here
	case "IPv6":
		out.Endpoints.Ready6, out.Endpoints.Here6 = ready, here
	case "FQDN":
	default:
		item.Err = fmt.Errorf("addressType: %.40q is none of IPv4, IPv6, FQDN", s.AddressType)
	}
	item.Value = out
	return item
}
