package kube

import (
	"encoding/json"
	"testing"

	"vpp-route-agent/internal/calico"
)

// FuzzObjects takes any text for an object of each kind. Nothing may panic, what was taken must be
// printable as JSON (the agent keeps its last snapshot on disk), and a deletion must leave nothing.
func FuzzObjects(f *testing.F) {
	all := []kind{nodes, pods, ipPools, bgpConfigurations, bgpPeers, bgpFilters,
		felixConfigurations, clusterInformations, blockAffinities, ipamBlocks, services,
		endpointSlices}
	for _, seed := range []struct {
		kind int
		json string
	}{
		{0, annotatedNode("projectcalico.org/IPv4Address=192.0.2.7/24;"+
			`projectcalico.org/labels={"a":"b"}`, `},"spec":{"podCIDR":"10.1.4.0/24",`+
			`"podCIDRs":["10.1.4.0/24"]},"status":{"addresses":[{"type":"InternalIP",`+
			`"address":"192.0.2.7"}]}}`)},
		{1, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","annotations":{` +
			`"cni.projectcalico.org/podIPs":"10.1.0.8/32","cni.projectcalico.org/floatingIPs":` +
			`"[\"198.51.100.9\"]"}},"spec":{"nodeName":"edge-1"}}`},
		{8, `{"spec":{"node":"edge-1","cidr":"10.1.0.0/26","deleted":"false","state":"pending"}}`},
		{9, `{"spec":{"cidr":"10.1.0.0/30","affinity":"host:edge-1","allocations":[0],` +
			`"attributes":[{"secondary":{"node":"edge-1"}}]}}`},
		{10, `{"spec":{"type":"LoadBalancer","clusterIP":"10.96.0.1","clusterIPs":["10.96.0.1"],` +
			`"externalIPs":["192.0.2.7"],"externalTrafficPolicy":"Local","ipFamilies":["IPv4"]},` +
			`"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.8"}]}}}`},
		{11, `{"metadata":{"labels":{"kubernetes.io/service-name":"a"}},"addressType":"IPv4",` +
			`"endpoints":[{"conditions":{"ready":true},"nodeName":"edge-1"}]}`},
	} {
		f.Add(seed.kind, []byte(seed.json))
	}
	f.Fuzz(func(t *testing.T, i int, text []byte) {
		k := all[uint(i)%uint(len(all))]
		s := calico.NewStore("edge-1")
		o := object{name: "edge-1", json: text}
		if k.namespaced {
			o.namespace = "shop"
		}
		items := k.convert(converter{podCIDRs: true, node: "edge-1", before: s.Value}, o)
		for _, p := range items {
			s.Set(p.place, p.item)
		}
		if _, err := json.Marshal(s.Snapshot(1)); err != nil {
			t.Errorf("snapshot as JSON: %v", err)
		}
		for _, p := range items {
			s.Delete(p.place)
		}
		after := s.Snapshot(2)
		if n := len(after.Nodes) + len(after.Blocks) + len(after.Affinities) +
			len(after.WorkloadEndpoints) + len(after.IPPools) + len(after.Services) +
			len(after.Endpoints) + len(after.Problems); n != 0 {
			t.Errorf("%d items are left: %+v", n, after)
		}
	})
}
