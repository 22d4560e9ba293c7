package kubernetes

import (
	"fmt"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

const sliceKind = "endpointslices.discovery.k8s.io"

// newServiceServer has a Service besides, and a slice of it with an endpoint elsewhere.
func newServiceServer(t *testing.T) *kubetest.Server {
	t.Helper()
	s := newServer(t)
	s.Install("discovery.k8s.io/v1", "endpointslices")
	putService(s, "web", "Local")
	putSlice(s, "web-1", "web", "edge-10", 0)
	return s
}

func putService(s *kubetest.Server, name, policy string) {
	s.PutObject("services", fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"shop"},"spec":{`+
		`"type":"NodePort","clusterIP":"10.96.0.7","clusterIPs":["10.96.0.7"],"ipFamilies":`+
		`["IPv4"],"externalTrafficPolicy":%q}}`, name, policy))
}

// putSlice has one ready endpoint. What is in its number does not count.
func putSlice(s *kubetest.Server, name, service, node string, number int) {
	s.PutObject(sliceKind, fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"shop","labels":{`+
		`"kubernetes.io/service-name":%q}},"addressType":"IPv4","endpoints":[{"addresses":`+
		`["10.77.0.%d"],"nodeName":%q,"conditions":{"ready":true}}]}`, name, service, number, node))
}

const ranges = `{"serviceClusterIPs":[{"cidr":"10.96.0.0/12"}]}`

func configure(s *kubetest.Server, spec string) { put(s, "bgpconfigurations", "default", spec) }

func asked(s *kubetest.Server) int {
	return s.Asked("list", "services") + s.Asked("watch", "services") +
		s.Asked("list", sliceKind) + s.Asked("watch", sliceKind)
}

func hasService(x *calico.Snapshot) bool { return len(x.Services) == 1 }
func noService(x *calico.Snapshot) bool  { return x.Services == nil && x.Endpoints == nil }

func isHere(x *calico.Snapshot) bool { return x.Endpoints["shop/web"].Here4 }

// Services are read as long as a range of their addresses is configured, and what is published with
// the range has them.
func TestServicesAreReadForARangeOnly(t *testing.T) {
	s := newServiceServer(t)
	configure(s, `{"asNumber":65000}`)
	r := run(t, s)
	first := r.until(t, "the first", any1)
	if !noService(first) || asked(s) != 0 {
		t.Fatalf("%d requests, %+v", asked(s), first)
	}
	configure(s, ranges)
	x := r.until(t, "a range", func(x *calico.Snapshot) bool {
		return x.BGPConfigurations["default"].NamesServices()
	})
	if v := x.Services["shop/web"]; !v.IsLocal() || !x.Endpoints["shop/web"].Ready4 {
		t.Errorf("a range was published before its services: %+v", x)
	}
	putSlice(s, "web-2", "web", "edge-7", 0)
	r.until(t, "an endpoint here", isHere)
	s.DeleteObject(sliceKind, "shop/web-2")
	r.until(t, "none here", func(x *calico.Snapshot) bool { return !isHere(x) })
	s.DeleteObject("services", "shop/web")
	r.until(t, "no service", func(x *calico.Snapshot) bool {
		return x.Services != nil && len(x.Services) == 0
	})
	putService(s, "web", "Local")
	r.until(t, "a service", hasService)

	configure(s, `{}`)
	r.until(t, "no range", noService)
	before := asked(s)
	s.EndWatches()
	putNode(s, "edge-11", "172.30.8.11/24")
	r.until(t, "a node", hasNode("edge-11"))
	r.untilStatus(t, "connected", connected)
	if n := asked(s) - before; n != 0 || r.last.Services != nil {
		t.Errorf("%d requests without a range, %+v", n, r.last.Services)
	}
	configure(s, ranges)
	r.until(t, "services again", hasService)
}

func TestClusterIPsOfTheEnvironment(t *testing.T) {
	s := newServiceServer(t)
	r := run(t, s, func(c *Config) { c.ClusterIPs = true })
	if x := r.until(t, "the first", any1); !hasService(x) {
		t.Errorf("%+v", x)
	}
	r.SetClusterIPs(false)
	r.until(t, "no range", noService)
	r.SetClusterIPs(true)
	r.until(t, "a range", hasService)

	without := run(t, s, func(c *Config) {
		c.ClusterIPs, c.Needs = true, calico.Needs{NoBGP: true}
	})
	if x := without.until(t, "the first", any1); !noService(x) {
		t.Errorf("a node without BGP reads services: %+v", x.Services)
	}
}

func TestNodeRef(t *testing.T) {
	s := newServiceServer(t)
	r := run(t, s, func(c *Config) { c.ClusterIPs, c.NodeRef = true, "edge-10" })
	r.until(t, "an endpoint here", isHere)
}

// What pods do all the time publishes nothing.
func TestEndpointsThatMakeNoDifference(t *testing.T) {
	s := newServiceServer(t)
	configure(s, ranges)
	putService(s, "plain", "Cluster")
	r := run(t, s)
	r.until(t, "the first", any1)
	r.untilStatus(t, "connected", connected)
	published := make(chan int)
	go func() {
		n := 0
		for x := range r.Snapshots() {
			if n++; isHere(x) {
				break
			}
		}
		published <- n
	}()
	for i := range 100 {
		putSlice(s, "web-1", "web", "edge-10", i)
		putSlice(s, "plain-1", "plain", "edge-7", i)
		if i%2 == 1 {
			s.DeleteObject(sliceKind, "shop/plain-1")
		}
		time.Sleep(5 * time.Millisecond)
	}
	putSlice(s, "web-1", "web", "edge-7", 0)
	if n := <-published; n != 1 {
		t.Errorf("published %d times, want once", n)
	}
}

// Without the rights nothing is known of services, and all else is. A right that is lost later, or
// over a restart, deletes nothing.
func TestServicesForbidden(t *testing.T) {
	for _, forbidden := range []string{"services", sliceKind} {
		s := newServiceServer(t)
		configure(s, ranges)
		s.Deny("list "+forbidden, true)
		r := run(t, s)
		if x := r.until(t, "the first", any1); !noService(x) {
			t.Errorf("%s: %+v", forbidden, x)
		}
		r.untilStatus(t, "named", says("list "+forbidden, "403"))
		putNode(s, "edge-11", "172.30.8.11/24")
		r.until(t, "another kind goes on", hasNode("edge-11"))
		s.Deny("list "+forbidden, false)
		r.until(t, "services", hasService)
		r.untilStatus(t, "connected", connected)

		s.Deny("list "+forbidden, true)
		s.Deny("watch "+forbidden, true)
		s.EndWatches()
		r.untilStatus(t, "named", says(forbidden, "403"))
		putNode(s, "edge-12", "172.30.8.12/24")
		if x := r.until(t, "another kind", hasNode("edge-12")); !hasService(x) ||
			!x.Endpoints["shop/web"].Ready4 {
			t.Errorf("%s: gone with the right: %+v", forbidden, x)
		}
		again := run(t, s, func(c *Config) { c.Versions = r.last.Versions })
		again.untilStatus(t, "named", says(forbidden, "403"))
		select {
		case x := <-again.Snapshots():
			t.Errorf("%s: published: %+v", forbidden, x)
		case <-time.After(300 * time.Millisecond):
		}

		// No range, no need: what was known is no reason to wait when there is one again.
		configure(s, `{}`)
		r.until(t, "no range", noService)
		r.untilStatus(t, "connected", connected)
		configure(s, ranges)
		r.untilStatus(t, "named", says(forbidden, "403"))
		putNode(s, "edge-13", "172.30.8.13/24")
		r.until(t, "another kind goes on", hasNode("edge-13"))
	}
}

func TestServicesWithoutSlices(t *testing.T) {
	s := newServer(t)
	putService(s, "web", "Local")
	configure(s, ranges)
	r := run(t, s)
	if x := r.until(t, "the first", any1); !hasService(x) || len(x.Endpoints) != 0 {
		t.Errorf("%+v", x)
	}
	s.Install("discovery.k8s.io/v1", "endpointslices")
	putSlice(s, "web-1", "web", "edge-7", 0)
	r.until(t, "an endpoint here", isHere)
}

func TestABadServiceIsNamed(t *testing.T) {
	s := newServiceServer(t)
	configure(s, ranges)
	r := run(t, s)
	r.until(t, "the first", any1)
	s.PutObject("services", []byte(`{"metadata":{"name":"web","namespace":"shop"},"spec":{`+
		`"type":7}}`))
	s.PutObject(sliceKind, []byte(`{"metadata":{"name":"web-1","namespace":"shop","labels":{`+
		`"kubernetes.io/service-name":"web"}},"addressType":"IPv4","endpoints":"none"}`))
	x := r.until(t, "two problems", func(x *calico.Snapshot) bool { return len(x.Problems) == 2 })
	if x.Problems[0].String() != "EndpointSlice(shop/web-1): endpoints: cannot be a JSON string "+
		"(what it said before stays in use)" || x.Problems[1].Resource != "Service(shop/web)" {
		t.Errorf("%v", x.Problems)
	}
	if !hasService(x) || !x.Endpoints["shop/web"].Ready4 {
		t.Errorf("gone for being bad: %+v", x)
	}
}
