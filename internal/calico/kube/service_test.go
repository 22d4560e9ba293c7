package kube

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"vpp-route-agent/internal/calico"
)

// inShop is an object of the namespace shop.
func inShop(name, json string) object { return object{"shop", name, []byte(json)} }

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, addr(text))
	}
	return all
}

func TestServices(t *testing.T) {
	const ip4 = `"type":"ClusterIP","clusterIP":"10.96.0.1","clusterIPs":["10.96.0.1"],` +
		`"ipFamilies":["IPv4"]`
	plain := calico.Service{ClusterIPs: addrs("10.96.0.1"), IPv4: true}
	for _, tc := range []struct {
		name, json string
		want       func(*calico.Service) // nil: no Service
		wrong      string
	}{
		{"one family", `{"spec":{` + ip4 + `}}`, func(*calico.Service) {}, ""},
		{"both families", `{"spec":{"type":"NodePort","clusterIP":"fd96::1","clusterIPs":` +
			`["fd96::1","10.96.0.1"],"ipFamilies":["IPv6","IPv4"],"externalTrafficPolicy":` +
			`"Cluster"}}`, func(v *calico.Service) {
			v.ClusterIPs, v.IPv6 = addrs("fd96::1", "10.96.0.1"), true
			v.ExternalTrafficPolicy = "Cluster"
		}, ""},
		{"a load balancer", `{"spec":{"type":"LoadBalancer","clusterIP":"10.96.0.1",` +
			`"clusterIPs":["10.96.0.1"],"ipFamilies":["IPv4"],"externalTrafficPolicy":"Local",` +
			`"loadBalancerIP":"192.0.2.9","externalIPs":["192.0.2.7","2001:DB8::7"]},` +
			`"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.9"},{"hostname":"a.example"}]}}}`,
			func(v *calico.Service) {
				v.LoadBalancer, v.ExternalTrafficPolicy = true, "Local"
				v.RequestedIP, v.LoadBalancerIPs = addr("192.0.2.9"), addrs("192.0.2.9")
				v.ExternalIPs = addrs("192.0.2.7", "2001:db8::7")
			}, ""},
		{"headless", `{"spec":{"type":"ClusterIP","clusterIP":"None","clusterIPs":["None"]}}`,
			nil, ""},
		{"without an address yet", `{"spec":{"type":"ClusterIP"}}`, nil, ""},
		{"another name for something", `{"spec":{"type":"ExternalName","clusterIP":"10.96.0.1"}}`,
			nil, ""},
		{"without a type", `{"spec":{"clusterIP":"10.96.0.1"}}`, nil, ""},
		{"an IPv4 address in the form of IPv6", `{"spec":{` + ip4 +
			`,"externalIPs":["::ffff:192.0.2.7"]}}`,
			func(v *calico.Service) { v.ExternalIPs = addrs("192.0.2.7") }, ""},
		{"each field is checked alone", `{"spec":{"type":"LoadBalancer","clusterIP":"10.96.0.1",` +
			`"clusterIPs":["10.96.0.1","ten"],"loadBalancerIP":"nine",` +
			`"externalIPs":["192.0.2.7","192.0.2.07","fe80::1%e"],` +
			`"externalTrafficPolicy":"Remote","ipFamilies":["IPv4","IPv5"]},` +
			`"status":{"loadBalancer":{"ingress":[{"ip":"x"},{"ip":"192.0.2.9"}]}}}`,
			func(v *calico.Service) {
				v.LoadBalancer, v.ExternalTrafficPolicy = true, "Remote"
				v.ExternalIPs, v.LoadBalancerIPs = addrs("192.0.2.7"), addrs("192.0.2.9")
			}, `spec.clusterIPs: "ten" is not an address; spec.externalIPs: "192.0.2.07" is not ` +
				`an address; spec.externalIPs: "fe80::1%e" is not an address; ` +
				`status.loadBalancer.ingress: "x" is not an address; spec.loadBalancerIP: "nine" ` +
				`is not an address; spec.ipFamilies: "IPv5" is neither IPv4 nor IPv6; ` +
				`spec.externalTrafficPolicy: "Remote" is neither Cluster nor Local`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := one(t, services, converter{}, inShop("web", tc.json))
			if tc.want == nil {
				if got != (calico.Item{}) {
					t.Errorf("got %+v", got)
				}
				return
			}
			want := plain
			want.Namespace, want.Name = "shop", "web"
			tc.want(&want)
			if !reflect.DeepEqual(got.Value, want) {
				t.Errorf("got  %+v\nwant %+v", got.Value, want)
			}
			if got.Name != "Service(shop/web)" || fmt.Sprint(got.Err) != or(tc.wrong, "<nil>") {
				t.Errorf("%s: %v", got.Name, got.Err)
			}
		})
	}
	bad := one(t, services, converter{}, inShop("web", `{"spec":{"clusterIPs":"10.96.0.1"}}`))
	if bad.Value != nil || fmt.Sprint(bad.Err) != "spec.clusterIPs: cannot be a JSON string" ||
		bad.Key != (calico.Key{Kind: calico.KindService, Namespace: "shop", Name: "web"}) {
		t.Errorf("%+v", bad)
	}
}

func TestEndpointSlices(t *testing.T) {
	slice := func(rest string) string {
		return `{"metadata":{"labels":{"kubernetes.io/service-name":"web"}},` + rest + `}`
	}
	const ready, not = `"conditions":{"ready":true}`, `"conditions":{"ready":false}`
	const here, there = `"nodeName":"edge-7"`, `"nodeName":"edge-10"`
	for _, tc := range []struct {
		name, json string
		want       calico.Endpoints
		wrong      string
	}{
		{"none", slice(`"addressType":"IPv4"`), calico.Endpoints{}, ""},
		{"there", slice(`"addressType":"IPv4","endpoints":[{` + ready + `,` + there + `}]`),
			calico.Endpoints{Ready4: true}, ""},
		{"here", slice(`"addressType":"IPv6","endpoints":[{` + ready + `,` + there + `},{` +
			ready + `,` + here + `}]`), calico.Endpoints{Ready6: true, Here6: true}, ""},
		{"not ready here", slice(`"addressType":"IPv4","endpoints":[{` + not + `,` + here + `},{` +
			ready + `,` + there + `}]`), calico.Endpoints{Ready4: true}, ""},
		{"nothing said means ready", slice(`"addressType":"IPv4","endpoints":[{` + here + `}]`),
			calico.Endpoints{Ready4: true, Here4: true}, ""},
		{"no node", slice(`"addressType":"IPv4","endpoints":[{"conditions":{}}]`),
			calico.Endpoints{Ready4: true}, ""},
		{"names", slice(`"addressType":"FQDN","endpoints":[{` + ready + `,` + here + `}]`),
			calico.Endpoints{}, ""},
		{"another type", slice(`"addressType":"IPv5","endpoints":[{` + here + `}]`),
			calico.Endpoints{}, `addressType: "IPv5" is none of IPv4, IPv6, FQDN`},
	} {
		got := one(t, endpointSlices, converter{node: "edge-7"}, inShop("web-x", tc.json))
		want := calico.EndpointSlice{Service: "shop/web", Endpoints: tc.want}
		if got.Value != want || got.Name != "EndpointSlice(shop/web-x)" ||
			fmt.Sprint(got.Err) != or(tc.wrong, "<nil>") {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
	// one that somebody has made for no Service
	if got := one(t, endpointSlices, converter{}, inShop("x", `{"addressType":"IPv4"}`)); got !=
		(calico.Item{}) {
		t.Errorf("%+v", got)
	}
	if got := one(t, endpointSlices, converter{}, inShop("x", slice(`"endpoints":{}`))); got.
		Value != nil || fmt.Sprint(got.Err) != "endpoints: cannot be a JSON object" {
		t.Errorf("%+v", got)
	}
}
