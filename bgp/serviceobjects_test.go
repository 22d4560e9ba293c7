package bgp

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kube"
)

// serviceObject is a Service as the Kubernetes API has it.
type serviceObject struct {
	name, kind, policy, requested          string
	cluster, external, ingress, ipFamilies []string
}

// sliceObject is an EndpointSlice of a Service.
type sliceObject struct {
	name, service, addressType string
	endpoints                  []endpointObject
}

type endpointObject struct {
	node  string // "": none
	ready *bool
}

// object reads the JSON of fields as kube does.
func object(t testing.TB, fields map[string]any) kube.Object {
	t.Helper()
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	o, is, err := kube.ReadObject(text)
	if !is || err != nil {
		t.Fatalf("%s: %t, %v", text, is, err)
	}
	return o
}

func (v serviceObject) object(t testing.TB) kube.Object {
	spec := map[string]any{"type": v.kind, "clusterIPs": v.cluster, "externalIPs": v.external,
		"ipFamilies": v.ipFamilies}
	for field, value := range map[string]string{"clusterIP": v.clusterIP(),
		"loadBalancerIP": v.requested, "externalTrafficPolicy": v.policy} {
		if value != "" {
			spec[field] = value
		}
	}
	var ingress []any
	for _, ip := range v.ingress {
		ingress = append(ingress, map[string]any{"ip": ip})
	}
	return object(t, map[string]any{"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": v.name, "namespace": "shop"}, "spec": spec,
		"status": map[string]any{"loadBalancer": map[string]any{"ingress": ingress}}})
}

func (v serviceObject) clusterIP() string {
	if len(v.cluster) == 0 {
		return ""
	}
	return v.cluster[0]
}

func (s sliceObject) object(t testing.TB) kube.Object {
	var endpoints []any
	for _, e := range s.endpoints {
		fields := map[string]any{"addresses": []string{"10.0.0.1"}}
		if e.node != "" {
			fields["nodeName"] = e.node
		}
		if e.ready != nil {
			fields["conditions"] = map[string]any{"ready": *e.ready}
		}
		endpoints = append(endpoints, fields)
	}
	return object(t, map[string]any{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata": map[string]any{"name": s.name, "namespace": "shop",
			"labels": map[string]any{"kubernetes.io/service-name": s.service}},
		"addressType": s.addressType, "endpoints": endpoints})
}

// announcing is what a node with BGP announces services by.
type announcing struct {
	cluster, external, balanced []string
	env, aggregation            string
	excluded                    bool
	services                    []serviceObject
	slices                      []sliceObject
}

// snapshot has everything come from objects in the given order.
func (a announcing) snapshot(t testing.TB) *calico.Snapshot {
	s := calico.NewStore("a")
	for _, v := range a.services {
		v.object(t).Put(s, kube.Options{})
	}
	for _, e := range a.slices {
		e.object(t).Put(s, kube.Options{})
	}
	return a.resources(s.Snapshot(1))
}

// resources adds Calico's resources.
func (a announcing) resources(from *calico.Snapshot) *calico.Snapshot {
	s := *from
	n := calico.Node{Name: "a", IPv4: pfx("172.30.8.9/24"), IPv6: pfx("fd77::9/64")}
	if a.excluded {
		n.Labels = map[string]string{excludedFromServices: "true"}
	}
	s.Nodes = map[string]calico.Node{"a": n}
	s.BGPConfigurations = map[string]calico.BGPConfiguration{"default": {
		ServiceClusterIPs: a.cluster, ServiceExternalIPs: a.external,
		ServiceLoadBalancerIPs: a.balanced, ServiceLoadBalancerAggregation: a.aggregation,
	}}
	if s.Services == nil {
		s.Services = map[string]calico.Service{}
	}
	return &s
}

func (a announcing) options() (o Options) {
	if a.env != "" {
		o.ClusterIPs = pfx(a.env)
	}
	return o
}

// literal is what confd does, slowly and in its words (routes.go of Calico 3.31.7): the global
// routes, and those of each Service.
func (a announcing) literal() []string {
	clusterCIDRs := a.cluster
	if a.env != "" {
		clusterCIDRs = []string{a.env}
	}
	nets := func(cidrs []string) (all []*net.IPNet) {
		for _, c := range cidrs {
			if _, n, err := net.ParseCIDR(c); err == nil {
				all = append(all, n)
			}
		}
		return all
	}
	static := map[string]bool{}
	if a.excluded {
		return nil
	}
	for _, n := range nets(clusterCIDRs) {
		static[n.String()] = true
	}
	global := func(cidrs []string) {
		for _, n := range nets(cidrs) {
			if ones, bits := n.Mask.Size(); ones != bits {
				static[n.String()] = true
			}
		}
	}
	global(a.external)
	if a.aggregation != "Disabled" {
		global(a.balanced)
	}
	contained := func(cidrs []string, text string, single bool) bool {
		ip := net.ParseIP(text)
		for _, n := range nets(cidrs) {
			ones, bits := n.Mask.Size()
			if ip != nil && n.Contains(ip) && (!single || ones == bits) {
				return true
			}
		}
		return false
	}
	for _, v := range a.services {
		if !a.advertises(v, contained) {
			continue
		}
		var routes []string
		if len(clusterCIDRs) > 0 {
			routes = append(routes, v.cluster...)
		}
		for _, ip := range v.external {
			if contained(a.external, ip, false) {
				routes = append(routes, ip)
			}
		}
		for _, ip := range v.ingress {
			if contained(a.balanced, ip, false) {
				routes = append(routes, ip)
			}
		}
		for _, r := range routes {
			if strings.Contains(r, ":") {
				static[r+"/128"] = true
			} else {
				static[r+"/32"] = true
			}
		}
	}
	var all []string
	for r := range static {
		all = append(all, r)
	}
	return all
}

func (a announcing) advertises(v serviceObject,
	contained func(cidrs []string, ip string, single bool) bool) bool {
	if v.kind != "ClusterIP" && v.kind != "NodePort" && v.kind != "LoadBalancer" {
		return false
	}
	if ip := v.clusterIP(); ip == "" || ip == "None" {
		return false
	}
	var slicesOf []sliceObject
	for _, s := range a.slices {
		if s.service == v.name {
			slicesOf = append(slicesOf, s)
		}
	}
	if len(slicesOf) == 0 {
		return false
	}
	if v.policy == "Cluster" {
		if v.kind == "LoadBalancer" {
			for _, ip := range append([]string{v.requested}, v.ingress...) {
				if contained(a.balanced, ip, true) {
					return true
				}
			}
		}
		for _, ip := range v.external {
			if contained(a.external, ip, true) {
				return true
			}
		}
	}
	if v.policy != "Local" && a.aggregation != "Disabled" {
		return false
	}
	for _, s := range slicesOf {
		if !slices.Contains(v.ipFamilies, s.addressType) {
			continue
		}
		for _, e := range s.endpoints {
			if e.ready != nil && !*e.ready {
				continue
			}
			if v.policy != "Local" || e.node == "a" {
				return true
			}
		}
	}
	return false
}

// parseAnnouncing reads rows of a table. conf is "cluster=CIDR,CIDR external=CIDR lb=CIDR env=CIDR
// disabled excluded". Services, which are a, b and so on, are "LoadBalancer Local 4 cluster=IP
// ext=IP,IP lb=IP asked=IP; ...". Endpoints are "a4: here, there!; b6: none": of a for IPv4, two
// endpoints, one not ready.
func parseAnnouncing(t testing.TB, conf, services, endpoints string) (a announcing) {
	t.Helper()
	list := func(text string) []string { return strings.Split(text, ",") }
	for word := range strings.FieldsSeq(conf) {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "cluster":
			a.cluster = list(value)
		case "external":
			a.external = list(value)
		case "lb":
			a.balanced = list(value)
		case "env":
			a.env = value
		case "disabled":
			a.aggregation = "Disabled"
		case "excluded":
			a.excluded = true
		default:
			t.Fatalf("conf: %s", word)
		}
	}
	for text := range strings.SplitSeq(services, ";") {
		v := serviceObject{name: string(rune('a' + len(a.services)))}
		for word := range strings.FieldsSeq(text) {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "Local", "Cluster":
				v.policy = key
			case "4", "6", "46", "64":
				for _, f := range key {
					v.ipFamilies = append(v.ipFamilies, "IPv"+string(f))
				}
			case "cluster":
				v.cluster = list(value)
			case "ext":
				v.external = list(value)
			case "lb":
				v.ingress = list(value)
			case "asked":
				v.requested = value
			case "ClusterIP", "NodePort", "LoadBalancer", "ExternalName":
				v.kind = key
			default:
				t.Fatalf("service: %s", word)
			}
		}
		a.services = append(a.services, v)
	}
	for text := range strings.SplitSeq(endpoints, ";") {
		of, all, found := strings.Cut(strings.TrimSpace(text), ": ")
		if !found || len(of) != 2 {
			if text != "" {
				t.Fatalf("slices: %s", text)
			}
			continue
		}
		s := sliceObject{name: fmt.Sprintf("s%d", len(a.slices)), service: of[:1],
			addressType: map[string]string{"4": "IPv4", "6": "IPv6", "n": "FQDN"}[of[1:]]}
		for word := range strings.SplitSeq(all, ", ") {
			name, unready := strings.CutSuffix(word, "!")
			yes, no := true, false
			e := endpointObject{ready: &yes}
			if unready {
				e.ready = &no
			}
			switch name {
			case "here":
				e.node = "a"
			case "there":
				e.node = "b"
			case "nowhere":
			case "unsaid":
				e.node, e.ready = "a", nil
			case "none":
				continue
			default:
				t.Fatalf("slices: %s", word)
			}
			s.endpoints = append(s.endpoints, e)
		}
		a.slices = append(a.slices, s)
	}
	return a
}
