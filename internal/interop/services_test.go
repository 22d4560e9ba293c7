package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/testcluster"
)

// serviceNode is our node, which announces ranges of service addresses unless its label says no.
var serviceNode = testcluster.Resource("Node", "us%s", "bgp: {ipv4Address: 10.0.0.2/24}")

// TestServiceRanges has the ranges of service addresses announced by us and by a node with BIRD.
// Neither's kernel gets a route for them: who balances the load (here an address on lo) has the
// packets.
func TestServiceRanges(t *testing.T) {
	t.Parallel()
	l := newLab(t, "services")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2")
	tor := l.frrRouter(t, "tor", torAS, "10.0.0.1/24", frrPeer("10.0.0.2", asNumber)...)
	ranges := func(balanced string) {
		t.Helper()
		l.apply(t, testcluster.Resource("BGPConfiguration", "default", `
			serviceClusterIPs: [{cidr: 10.96.0.0/16}],
			serviceExternalIPs: [{cidr: 192.0.2.7/32}],
			serviceLoadBalancerIPs: [{cidr: `+balanced+`}]`)+
			testcluster.Peer("tor", "10.0.0.1", torAS, ""))
	}
	ranges("192.0.2.128/25")
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	nine.setBlocks(t, "10.1.0.64/26")
	// The range as every node announces it, and one service with endpoints on nine alone, which
	// takes the Kubernetes API.
	nine.config.Services = prefixes("10.96.0.0/16", "10.96.7.7/32", "192.0.2.128/25")
	pod := us.pod(t, "pod", "10.1.0.1")
	ninePod := nine.workload(t, "pod9", "10.1.0.65")
	for _, balancer := range []*host{us.host, nine.host} {
		for _, service := range []string{"10.96.0.10/32", "10.96.7.7/32", "192.0.2.200/32"} {
			check(t, balancer.NS.AddAddress("lo", pfx(service)))
		}
	}
	nine.start(t)
	us.start(t)
	us.awaitPeers(t, "10.0.0.1", "10.0.0.9")
	nine.awaitEstablished(t)
	since := us.sessionsOf(t, "10.0.0.1", "10.0.0.9")

	// What is on nine's lo lies in a range, and so it announces that, too.
	inside := []string{"10.96.0.10/32", "192.0.2.200/32"}
	kernels := func(t *testing.T) {
		t.Helper()
		us.awaitOnlyKernel(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9")
		nine.awaitKernel(t, "-4", kernelRoute{"10.1.0.0/26 via 10.0.0.2", 1024},
			kernelRoute{"10.1.0.64/26 blackhole", 0})
	}
	outside := func(all ...string) (lines []string) {
		for _, p := range slices.Concat([]string{"10.1.0.0/26", "10.1.0.64/26"}, all) {
			lines = append(lines, p+" via 10.0.0.2 64512")
		}
		return lines
	}
	pings := func(t *testing.T, services ...string) {
		t.Helper()
		for _, service := range services {
			ping(t, tor.NS, service)
		}
		ping(t, tor.NS, "10.1.0.65")
		ping(t, pod, "10.1.0.65")
		ping(t, ninePod, "10.1.0.1")
	}
	t.Run("both announce the ranges", func(t *testing.T) {
		nine.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"),
			iBGP("10.96.0.0/16", "10.0.0.2"), iBGP("192.0.2.128/25", "10.0.0.2"))
		tor.awaitRIB(t, "ipv4", "10.0.0.2",
			outside(append(inside, "10.96.0.0/16", "10.96.7.7/32", "192.0.2.128/25")...)...)
		kernels(t)
		pings(t, "10.96.0.10", "10.96.7.7", "192.0.2.200")
	})
	t.Run("we say what is not in our kernel", func(t *testing.T) {
		await(t, "routes name the range", func(ctx context.Context) error {
			var routes []agent.RouteStatus
			if err := us.agent.Get(ctx, "/v1/routes", &routes); err != nil {
				return err
			}
			i := slices.IndexFunc(routes, func(r agent.RouteStatus) bool {
				return r.Prefix == pfx("10.96.7.7/32")
			})
			if i < 0 || !strings.Contains(routes[i].Reason, "range of service addresses") {
				return fmt.Errorf("%+v", routes)
			}
			return nil
		})
	})
	t.Run("a range changes", func(t *testing.T) {
		ranges("192.0.2.192/26")
		nine.config.Services[2] = pfx("192.0.2.192/26")
		nine.reconfigure(t)
		nine.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"),
			iBGP("10.96.0.0/16", "10.0.0.2"), iBGP("192.0.2.192/26", "10.0.0.2"))
		tor.awaitRIB(t, "ipv4", "10.0.0.2",
			outside(append(inside, "10.96.0.0/16", "10.96.7.7/32", "192.0.2.192/26")...)...)
		kernels(t)
		pings(t, "10.96.0.10", "192.0.2.200")
	})
	t.Run("the node is excluded", func(t *testing.T) {
		l.apply(t, fmt.Sprintf(serviceNode,
			`, labels: {node.kubernetes.io/exclude-from-external-load-balancers: "true"}`))
		nine.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
		tor.awaitRIB(t, "ipv4", "10.0.0.2", outside()...)
		kernels(t)
		pings(t)
	})
	t.Run("and is not any more", func(t *testing.T) {
		l.apply(t, fmt.Sprintf(serviceNode, ""))
		nine.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"),
			iBGP("10.96.0.0/16", "10.0.0.2"), iBGP("192.0.2.192/26", "10.0.0.2"))
		tor.awaitRIB(t, "ipv4", "10.0.0.2",
			outside(append(inside, "10.96.0.0/16", "10.96.7.7/32", "192.0.2.192/26")...)...)
		pings(t, "10.96.0.10")
	})
	t.Run("a service ends", func(t *testing.T) {
		nine.config.Services = slices.Delete(nine.config.Services, 1, 2)
		_, err := nine.NS.Run(t.Context(), "ip", "address", "delete", "10.96.7.7/32", "dev", "lo")
		check(t, err)
		nine.reconfigure(t)
		tor.awaitRIB(t, "ipv4", "10.0.0.2",
			outside(append(inside, "10.96.0.0/16", "192.0.2.192/26")...)...)
		kernels(t)
		pings(t, "10.96.0.10", "192.0.2.200")
	})
	us.sameSessions(t, since)
}
