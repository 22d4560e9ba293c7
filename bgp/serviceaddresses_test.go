package bgp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/kube"
	"vpp-route-agent/internal/route"
)

// announcedServices are all prefixes that a plan announces for services, sorted.
func announcedServices(p Plan) (all []netip.Prefix) {
	for _, a := range p.Announcements {
		if a.Service {
			all = append(all, a.Prefix)
		}
	}
	return all
}

// canonical sorts prefixes, once each.
func canonical(texts []string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, pfx(text))
	}
	return sortedPrefixes(all)
}

// TestServiceAddresses has what confd announces of single services, row by row, from objects of the
// Kubernetes API. Ranges are announced besides. Each row is held against the literal reading, too.
// That takes what is a prefix in a list with something that is none, as we do; confd takes nothing.
func TestServiceAddresses(t *testing.T) {
	const (
		all = "cluster=10.96.0.0/12,fd96::/108 external=192.0.2.64/27,fdee::/64 " +
			"lb=198.51.100.0/24,fdbb::/64"
		single  = "external=192.0.2.7/32,192.0.2.64/27 lb=198.51.100.9/32,198.51.100.128/25"
		four    = " 4 cluster=10.96.0.1 "
		full    = four + "ext=192.0.2.70,203.0.113.1 lb=198.51.100.1,203.0.113.2"
		allowed = "10.96.0.1 192.0.2.70 198.51.100.1"
	)
	for _, row := range []struct{ name, conf, services, slices, want string }{
		// Local: nodes with a ready endpoint
		{"local, here", all, "LoadBalancer Local" + full, "a4: here", allowed},
		{"local, there", all, "LoadBalancer Local" + full, "a4: there", ""},
		{"local, here and there", all, "LoadBalancer Local" + full, "a4: there, here", allowed},
		{"local, here but not ready", all, "LoadBalancer Local" + full, "a4: here!", ""},
		{"local, here not ready, there ready", all, "LoadBalancer Local" + full,
			"a4: here!, there", ""},
		{"local, one of two here is ready", all, "LoadBalancer Local" + full,
			"a4: here!, here", allowed},
		{"local, nothing said of readiness", all, "LoadBalancer Local" + full, "a4: unsaid",
			allowed},
		{"local, an endpoint without a node", all, "LoadBalancer Local" + full, "a4: nowhere", ""},
		{"local, an empty slice", all, "LoadBalancer Local" + full, "a4: none", ""},
		{"local, no slice", all, "LoadBalancer Local" + full, "", ""},
		{"local, in the second slice", all, "LoadBalancer Local" + full, "a4: there; a4: here",
			allowed},
		{"local, in the first slice", all, "LoadBalancer Local" + full, "a4: here; a4: there",
			allowed},
		{"local, gone from one slice and in another", all, "LoadBalancer Local" + full,
			"a4: here!; a4: none; a4: here", allowed},
		{"local, another service's slice", all, "LoadBalancer Local" + full, "b4: here", ""},
		{"local NodePort", all, "NodePort Local" + full, "a4: here", allowed},
		{"local ClusterIP", all, "ClusterIP Local" + full, "a4: here", allowed},
		{"local, disabled aggregation, here", all + " disabled", "LoadBalancer Local" + full,
			"a4: here", allowed},
		{"local, disabled aggregation, there", all + " disabled", "LoadBalancer Local" + full,
			"a4: there", ""},
		{"local, single addresses do not make it everybody's", single,
			"LoadBalancer Local 4 cluster=10.96.0.1 ext=192.0.2.7 lb=198.51.100.9", "a4: there",
			""},
		{"local, single addresses, here", single,
			"LoadBalancer Local 4 cluster=10.96.0.1 ext=192.0.2.7 lb=198.51.100.9", "a4: here",
			"192.0.2.7 198.51.100.9"},

		// types
		{"ExternalName", all, "ExternalName Local" + full, "a4: here", ""},
		{"headless", all, "ClusterIP Local 4 cluster=None ext=192.0.2.70", "a4: here", ""},
		{"no cluster address yet", all, "LoadBalancer Local 4 ext=192.0.2.70", "a4: here", ""},
		{"headless, single address", single, "ClusterIP Cluster 4 cluster=None ext=192.0.2.7",
			"a4: here", ""},
		{"ExternalName, single address", single,
			"ExternalName Cluster 4 cluster=10.96.0.1 ext=192.0.2.7", "a4: here", ""},

		// what is configured
		{"only cluster addresses", "cluster=10.96.0.0/12", "LoadBalancer Local" + full, "a4: here",
			"10.96.0.1"},
		{"only external addresses", "external=192.0.2.64/27", "LoadBalancer Local" + full,
			"a4: here", "192.0.2.70"},
		{"only load balancers", "lb=198.51.100.0/24", "LoadBalancer Local" + full, "a4: here",
			"198.51.100.1"},
		{"nothing", "", "LoadBalancer Local" + full, "a4: here", ""},
		{"cluster addresses outside every range", "cluster=10.112.0.0/12",
			"ClusterIP Local" + four, "a4: here", "10.96.0.1"},
		{"cluster addresses of the other family than the range", "cluster=fd96::/108",
			"ClusterIP Local" + four, "a4: here", "10.96.0.1"},
		{"CALICO_ADVERTISE_CLUSTER_IPS", "env=10.97.0.0/16", "ClusterIP Local" + four, "a4: here",
			"10.96.0.1"},
		{"CALICO_ADVERTISE_CLUSTER_IPS besides a range", "env=10.97.0.0/16 cluster=fd96::/108",
			"ClusterIP Local" + four, "a4: here", "10.96.0.1"},
		{"external addresses in a range of load balancers", "lb=192.0.2.64/27",
			"LoadBalancer Local" + full, "a4: here", ""},
		{"load balancers in a range of external addresses", "external=198.51.100.0/24",
			"LoadBalancer Local" + full, "a4: here", ""},
		{"a range that is none beside one that is", "external=192.0.2.0/33,192.0.2.64/27",
			"LoadBalancer Local" + full, "a4: here", "192.0.2.70"},
		{"a range with host bits", "external=192.0.2.77/27", "LoadBalancer Local" + full,
			"a4: here", "192.0.2.70"},
		{"all addresses", "external=0.0.0.0/0", "LoadBalancer Local" + full, "a4: here",
			"192.0.2.70 203.0.113.1"},
		{"the node is excluded", all + " excluded", "LoadBalancer Local" + full, "a4: here", ""},
		{"the node is excluded, single address", single + " excluded",
			"LoadBalancer Cluster 4 cluster=10.96.0.1 ext=192.0.2.7", "a4: here", ""},
		{"the node is excluded, disabled aggregation", all + " excluded disabled",
			"LoadBalancer Cluster" + full, "a4: here", ""},
		{"a load balancer's address beside the type", all, "ClusterIP Local" + four +
			"lb=198.51.100.1", "a4: here", "10.96.0.1 198.51.100.1"},
		{"an address that is only asked for", all, "LoadBalancer Local" + four +
			"asked=198.51.100.1", "a4: here", "10.96.0.1"},

		// Cluster: ranges do, but for single addresses
		{"cluster, in ranges", all, "LoadBalancer Cluster" + full, "a4: here", ""},
		{"cluster, no policy", all, "ClusterIP" + full, "a4: here", ""},
		{"cluster, single external address, endpoint here", single,
			"NodePort Cluster 4 cluster=10.96.0.1 ext=192.0.2.7", "a4: here", "192.0.2.7"},
		{"cluster, single external address, endpoint there", single,
			"NodePort Cluster 4 cluster=10.96.0.1 ext=192.0.2.7", "a4: there", "192.0.2.7"},
		{"cluster, single external address, no endpoint ready", single,
			"NodePort Cluster 4 cluster=10.96.0.1 ext=192.0.2.7", "a4: there!", "192.0.2.7"},
		{"cluster, single external address, no endpoint", single,
			"NodePort Cluster 4 cluster=10.96.0.1 ext=192.0.2.7", "a4: none", "192.0.2.7"},
		{"cluster, single external address, only names", single,
			"NodePort Cluster 4 cluster=10.96.0.1 ext=192.0.2.7", "an: none", "192.0.2.7"},
		{"cluster, single external address, no slice", single,
			"NodePort Cluster 4 cluster=10.96.0.1 ext=192.0.2.7", "", ""},
		{"cluster, single external address of a ClusterIP", single,
			"ClusterIP Cluster 4 cluster=10.96.0.1 ext=192.0.2.7", "a4: there", "192.0.2.7"},
		{"no policy, single external address", single,
			"ClusterIP 4 cluster=10.96.0.1 ext=192.0.2.7", "a4: there", ""},
		{"cluster, single load balancer's address", single,
			"LoadBalancer Cluster 4 cluster=10.96.0.1 lb=198.51.100.9", "a4: there",
			"198.51.100.9"},
		{"cluster, single load balancer's address of a NodePort", single,
			"NodePort Cluster 4 cluster=10.96.0.1 lb=198.51.100.9", "a4: there", ""},
		{"cluster, single address that is asked for", single,
			"LoadBalancer Cluster 4 cluster=10.96.0.1 asked=198.51.100.9 lb=198.51.100.130",
			"a4: there", "198.51.100.130"},
		{"cluster, single address that is asked for of a NodePort", single,
			"NodePort Cluster 4 cluster=10.96.0.1 asked=198.51.100.9", "a4: there", ""},
		{"cluster, one address announces all that are allowed", "cluster=10.96.0.0/12 " + single,
			"LoadBalancer Cluster 4 cluster=10.96.0.1 ext=192.0.2.7,192.0.2.70,203.0.113.1 " +
				"lb=198.51.100.130,203.0.113.2", "a4: there",
			"10.96.0.1 192.0.2.7 192.0.2.70 198.51.100.130"},
		{"cluster, a load balancer's address announces external ones, too", single,
			"LoadBalancer Cluster 4 cluster=10.96.0.1 ext=192.0.2.70 lb=198.51.100.9",
			"a4: there", "192.0.2.70 198.51.100.9"},
		{"cluster, external address in a load balancer's single one", "lb=192.0.2.7/32",
			"LoadBalancer Cluster 4 cluster=10.96.0.1 ext=192.0.2.7", "a4: there", ""},
		{"cluster, single address of the cluster", "cluster=10.96.0.1/32",
			"ClusterIP Cluster 4 cluster=10.96.0.1", "a4: there", "10.96.0.1"},
		{"cluster, single address of the cluster is announced without any service",
			"cluster=10.96.0.1/32", "ClusterIP Cluster 4 cluster=10.96.0.2", "", "10.96.0.1"},
		{"single address that no service has", single, "LoadBalancer Cluster" + four, "a4: here",
			""},
		{"cluster, single IPv6 address", "external=fdee::7/128",
			"ClusterIP Cluster 6 cluster=fd96::1 ext=fdee::7", "a6: there", "fdee::7"},
		{"cluster, single address in another form", "external=fdee::7/128",
			"ClusterIP Cluster 6 cluster=fd96::1 ext=FDEE:0::0:7", "a6: there", "fdee::7"},

		// serviceLoadBalancerAggregation: Disabled
		{"disabled, there", all + " disabled", "LoadBalancer Cluster" + full, "a4: there",
			allowed},
		{"disabled, here", all + " disabled", "LoadBalancer Cluster" + full, "a4: here", allowed},
		{"disabled, without a node", all + " disabled", "LoadBalancer Cluster" + full,
			"a4: nowhere", allowed},
		{"disabled, not ready", all + " disabled", "LoadBalancer Cluster" + full, "a4: there!", ""},
		{"disabled, one of two slices has a ready one", all + " disabled",
			"LoadBalancer Cluster" + full, "a4: there!; a4: there", allowed},
		{"disabled, no endpoint", all + " disabled", "LoadBalancer Cluster" + full, "a4: none", ""},
		{"disabled, no slice", all + " disabled", "LoadBalancer Cluster" + full, "", ""},
		{"disabled, no policy", all + " disabled", "ClusterIP" + full, "a4: there", allowed},
		{"disabled, NodePort", all + " disabled", "NodePort Cluster" + full, "a4: there", allowed},
		{"disabled, single address without a ready endpoint", single + " disabled",
			"LoadBalancer Cluster 4 cluster=10.96.0.1 lb=198.51.100.9", "a4: there!",
			"198.51.100.9"},
		{"disabled, other family", all + " disabled", "LoadBalancer Cluster" + full, "a6: there",
			""},

		// families
		{"IPv6", all, "LoadBalancer Local 6 cluster=fd96::1 ext=fdee::7 lb=fdbb::9", "a6: here",
			"fd96::1 fdbb::9 fdee::7"},
		{"IPv6, endpoints of IPv4", all, "LoadBalancer Local 6 cluster=fd96::1", "a4: here", ""},
		{"IPv4, endpoints of IPv6", all, "LoadBalancer Local 4 cluster=10.96.0.1", "a6: here", ""},
		{"names are of no family", all, "LoadBalancer Local 46 cluster=10.96.0.1,fd96::1",
			"an: here", ""},
		{"both, endpoint of the first here", all,
			"LoadBalancer Local 46 cluster=10.96.0.1,fd96::1", "a4: here; a6: there",
			"10.96.0.1 fd96::1"},
		{"both, endpoint of the second here", all,
			"LoadBalancer Local 46 cluster=10.96.0.1,fd96::1", "a4: there; a6: here",
			"10.96.0.1 fd96::1"},
		{"both, none here", all, "LoadBalancer Local 64 cluster=fd96::1,10.96.0.1",
			"a4: there; a6: there", ""},
		{"no family said", all, "LoadBalancer Local cluster=10.96.0.1", "a4: here", ""},
		{"no family said, single address", single,
			"LoadBalancer Cluster cluster=10.96.0.1 lb=198.51.100.9", "a4: here", "198.51.100.9"},
		{"one family, external addresses of both", all,
			"LoadBalancer Local 4 cluster=10.96.0.1 ext=192.0.2.70,fdee::7", "a4: here",
			"10.96.0.1 192.0.2.70 fdee::7"},

		// several services
		{"two share an address, one has an endpoint here", all,
			"ClusterIP Local 4 cluster=10.96.0.1 ext=192.0.2.70; " +
				"ClusterIP Local 4 cluster=10.96.0.2 ext=192.0.2.70", "a4: there; b4: here",
			"10.96.0.2 192.0.2.70"},
		{"two share an address, both have", all,
			"ClusterIP Local 4 cluster=10.96.0.1 ext=192.0.2.70; " +
				"ClusterIP Local 4 cluster=10.96.0.2 ext=192.0.2.70", "a4: here; b4: here",
			"10.96.0.1 10.96.0.2 192.0.2.70"},
		{"two share an address, neither has", all,
			"ClusterIP Local 4 cluster=10.96.0.1 ext=192.0.2.70; " +
				"ClusterIP Local 4 cluster=10.96.0.2 ext=192.0.2.70", "a4: there; b4: there", ""},
		{"one's external address is the other's cluster address", all + ",10.96.0.0/12",
			"ClusterIP Local 4 cluster=10.96.0.1; ClusterIP Local 4 cluster=10.96.0.2 " +
				"lb=10.96.0.1", "b4: here", "10.96.0.1 10.96.0.2"},
		{"one address twice", all, "ClusterIP Local 4 cluster=10.96.0.1 ext=192.0.2.70,192.0.2.70",
			"a4: here", "10.96.0.1 192.0.2.70"},
		{"local and cluster share a single address", single,
			"LoadBalancer Local 4 cluster=10.96.0.1 lb=198.51.100.9; " +
				"LoadBalancer Cluster 4 cluster=10.96.0.2 lb=198.51.100.9", "a4: there; b4: there",
			"198.51.100.9"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := parseAnnouncing(t, row.conf, row.services, row.slices)
			got := announcedServices(PlanFor("a", a.snapshot(t), a.options()))
			if want := canonical(a.literal()); !slices.Equal(got, want) {
				t.Errorf("announced %v, by the literal reading %v", got, want)
			}
			var singles []string
			for _, p := range got {
				if p.IsSingleIP() {
					singles = append(singles, p.Addr().String())
				}
			}
			if text := strings.Join(singles, " "); text != row.want {
				t.Errorf("announced %s\nwant      %s", text, row.want)
			}
		})
	}
}

// anyAnnouncing draws a configuration and a few services from few addresses, so that they meet.
func anyAnnouncing(t *rapid.T) announcing {
	pick := func(name string, from ...string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(from), 0, 2).Draw(t, name)
	}
	a := announcing{
		cluster:  pick("cluster", "10.96.0.0/12", "10.96.0.1/32", "fd96::/108", "fd96::1/128"),
		external: pick("external", "192.0.2.0/28", "192.0.2.7/32", "fdee::7/128", "0.0.0.0/0", "x"),
		balanced: pick("lb", "198.51.100.0/24", "198.51.100.9/32", "192.0.2.7/32", "fdbb::/64"),
		env:      rapid.SampledFrom([]string{"", "", "10.97.0.0/16"}).Draw(t, "env"),
		aggregation: rapid.SampledFrom([]string{"", "Enabled", "Disabled"}).Draw(t,
			"aggregation"),
		excluded: rapid.IntRange(0, 9).Draw(t, "excluded") == 0,
	}
	for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(0, 3).Draw(t, "services")] {
		a.services = append(a.services, anyService(t, name))
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "slices") {
		a.slices = append(a.slices, anySlice(t, "s"+string(rune('0'+i))))
	}
	return a
}

func anyService(t *rapid.T, name string) serviceObject {
	pick := func(field string, most int, from ...string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(from), 0, most).Draw(t, field)
	}
	return serviceObject{
		name: name,
		kind: rapid.SampledFrom([]string{"ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer",
			"ExternalName"}).Draw(t, "type"),
		policy: rapid.SampledFrom([]string{"", "Cluster", "Cluster", "Local", "Local"}).Draw(t,
			"policy"),
		requested: rapid.SampledFrom([]string{"", "198.51.100.9", "192.0.2.7"}).Draw(t, "asked"),
		cluster:   pick("clusterIPs", 2, "10.96.0.1", "10.96.0.2", "fd96::1", "10.112.0.1"),
		external:  pick("externalIPs", 2, "192.0.2.7", "192.0.2.8", "203.0.113.1", "fdee::7"),
		ingress: pick("ingress", 2, "198.51.100.9", "198.51.100.10", "192.0.2.7", "fdbb::9",
			"203.0.113.1"),
		ipFamilies: rapid.SampledFrom([][]string{{"IPv4"}, {"IPv6"}, {"IPv4", "IPv6"}, nil}).
			Draw(t, "families"),
	}
}

func anySlice(t *rapid.T, name string) sliceObject {
	yes, no := true, false
	s := sliceObject{
		name: name, service: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "of"),
		addressType: rapid.SampledFrom([]string{"IPv4", "IPv4", "IPv6", "FQDN"}).Draw(t, "type"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "endpoints") {
		s.endpoints = append(s.endpoints, endpointObject{
			node:  rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "node"),
			ready: rapid.SampledFrom([]*bool{&yes, &yes, &no, nil}).Draw(t, "ready"),
		})
	}
	return s
}

// Whatever services there are, the plan announces what confd's rules say.
func TestServiceAddressesAgainstLiteral(t *testing.T) {
	with, without := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		a := anyAnnouncing(rt)
		p := PlanFor("a", a.snapshot(t), a.options())
		got, want := announcedServices(p), canonical(a.literal())
		if !slices.Equal(got, want) {
			rt.Fatalf("%+v:\nannounced %v\nliteral   %v", a, got, want)
		}
		for _, prefix := range got {
			if _, kept := route.Covering(p.NotProgrammed, prefix); !kept {
				rt.Fatalf("a learned route to %s, which this node announces, is programmed", prefix)
			}
		}
		if slices.ContainsFunc(got, netip.Prefix.IsSingleIP) {
			with++
		} else {
			without++
		}
	})
	if with < 10 || without < 10 {
		t.Errorf("%d with an address, %d without", with, without)
	}
}

// After any change of a Service or an EndpointSlice, in any order, a Store has what the literal
// reading announces. Where it says that nothing has changed, the announcements have not.
func TestServiceChangesAgainstLiteral(t *testing.T) {
	silent := 0
	rapid.Check(t, func(rt *rapid.T) {
		a := anyAnnouncing(rt)
		s := calico.NewStore("a")
		put := func(o kube.Object) { o.Put(s, kube.Options{}) }
		s.Set("bgpconfigurations/default", calico.Item{
			Key: calico.Key{Kind: calico.KindBGPConfiguration, Name: "default"},
			Value: calico.BGPConfiguration{Name: "default",
				ServiceLoadBalancerAggregation: a.aggregation}})
		for _, v := range a.services {
			put(v.object(t))
		}
		for _, e := range a.slices {
			put(e.object(t))
		}
		before := a.literal()
		s.Snapshot(1)
		for range rapid.IntRange(1, 12).Draw(rt, "changes") {
			a = a.change(rt, t, s)
			now := a.literal()
			changed := s.Changed()
			if !changed {
				silent++
			}
			if !changed && !slices.Equal(canonical(before), canonical(now)) {
				rt.Fatalf("%+v:\nannounces %v instead of %v, which is no change", a, now, before)
			}
			p := PlanFor("a", a.resources(s.Snapshot(2)), a.options())
			if got := announcedServices(p); !slices.Equal(got, canonical(now)) {
				rt.Fatalf("%+v:\nannounced %v\nliteral   %v", a, got, now)
			}
			before = now
		}
	})
	if silent < 10 {
		t.Errorf("%d changes were none", silent)
	}
}

// change puts or deletes a Service or an EndpointSlice, here and in s.
func (a announcing) change(rt *rapid.T, t *testing.T, s *calico.Store) announcing {
	gone := rapid.IntRange(0, 2).Draw(rt, "deleted") == 0
	name := rapid.SampledFrom([]string{"a", "b", "c", "s0", "s1", "s2", "s3"}).Draw(rt, "which")
	if strings.HasPrefix(name, "s") {
		e := anySlice(rt, name)
		is := func(o sliceObject) bool { return o.name == name }
		a.slices = slices.DeleteFunc(slices.Clone(a.slices), is)
		if gone {
			e.object(t).Delete(s)
			return a
		}
		a.slices = append(a.slices, e)
		e.object(t).Put(s, kube.Options{})
		return a
	}
	v := anyService(rt, name)
	is := func(o serviceObject) bool { return o.name == name }
	a.services = slices.DeleteFunc(slices.Clone(a.services), is)
	if gone {
		v.object(t).Delete(s)
		return a
	}
	a.services = append(a.services, v)
	v.object(t).Put(s, kube.Options{})
	return a
}
