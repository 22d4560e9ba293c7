package interop

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// hubNode is our node, with what follows its address, and its session to each of the others.
var hubNode = testcluster.Resource("Node", "us, labels: {role: us}",
	"bgp: {ipv4Address: 10.0.0.2/24%s}") +
	testcluster.Resource("BGPPeer", "to-us",
		`nodeSelector: "!has(role)", peerSelector: has(role)`)

// policyResources make node us a reflector or not, with a session to the other nodes either way,
// and give the router a BGPFilter.
func policyResources(cluster, export, imports, advertised string) string {
	if cluster != "" {
		cluster = ", routeReflectorClusterID: " + cluster
	}
	return fmt.Sprintf(hubNode+
		testcluster.Peer("tor", "10.0.0.1", torAS, "node: us, filters: [tor]")+
		testcluster.Resource("BGPFilter", "tor", "exportV4: [%s], importV4: [%s]")+
		testcluster.Resource("BGPConfiguration", "default",
			`communities: [{name: site, value: "64512:77"}], prefixAdvertisements: [%s]`),
		cluster, export, imports, advertised)
}

// BIRD as clients and as a router sees what filters, communities and reflection say, and sees them
// change without losing a session.
func TestPolicies(t *testing.T) {
	t.Parallel()
	l := newLab(t, "policies")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	one := l.birdNode(t, "one", "10.0.0.6/24", "10.0.0.2")
	two := l.birdNode(t, "two", "10.0.0.7/24", "10.0.0.2")
	tor := l.birdRouter(t, "tor", "10.0.0.1/24")
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	one.setBlocks(t, "10.1.0.64/26")
	two.setBlocks(t, "10.1.0.128/26")
	tor.config.AS = torAS
	tor.config.Extra = fmt.Sprintf(torProtocols, "route 10.99.1.0/24 blackhole;",
		"if net = 10.99.1.0/24 then bgp_large_community.add((65001,1,1));")
	const advertised = `{cidr: 10.1.0.0/16, communities: [site, "64512:1:2"]}`
	l.apply(t, policyResources("", "", "", advertised))
	ourPod := us.pod(t, "pod", "10.1.0.1")
	onePod := one.workload(t, "onepod", "10.1.0.65")
	twoPod := two.workload(t, "twopod", "10.1.0.129")
	// the latter by the default route
	for _, behind := range []string{"10.99.0.7/32", "10.55.0.7/32"} {
		check(t, tor.NS.AddAddress("lo", pfx(behind)))
	}
	for _, b := range []*birdNode{one, two, tor} {
		b.start(t)
	}
	us.start(t)
	us.awaitPeers(t, "10.0.0.1", "10.0.0.6", "10.0.0.7")
	for _, b := range []*birdNode{one, two, tor} {
		b.awaitEstablished(t)
	}
	sees := func(b *birdNode, prefix, want string) {
		t.Helper()
		await(t, fmt.Sprintf("%s sees %s with %s", b.name, prefix, want),
			func(ctx context.Context) error {
				shown, err := b.Command(ctx, "show route all for "+prefix)
				text := strings.Join(shown, "\n")
				if err == nil &&
					(!strings.Contains(text, want) || strings.Contains(text, "4294967295")) {
					err = fmt.Errorf("%s", text)
				}
				return err
			})
	}
	outside := []string{
		eBGP("10.1.0.0/26", "64512"), eBGP("10.1.0.64/26", "64512"), eBGP("10.1.0.128/26", "64512"),
	}
	fib := []string{
		"10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.6", "10.1.0.128/26 via 10.0.0.7",
		"10.99.0.0/24 via 10.0.0.1",
	}

	tor.awaitRIB(t, "Us", outside...)
	one.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
	us.awaitFIB(t, "-4", append(fib, "10.99.1.0/24 via 10.0.0.1", "0.0.0.0/0 via 10.0.0.1")...)
	for _, b := range []*birdNode{one, tor} {
		sees(b, "10.1.0.0/26", "BGP.community: (64512,77)")
		sees(b, "10.1.0.0/26", "BGP.large_community: (64512, 1, 2)")
	}
	since := us.sessionsOf(t, "10.0.0.1", "10.0.0.6", "10.0.0.7")
	ping(t, ourPod, "10.55.0.7")
	for _, from := range []*netlab.Namespace{onePod, twoPod, tor.NS} {
		ping(t, from, "10.1.0.1")
	}
	control := flow(t, ourPod, "10.1.0.65")

	// Each way, with an operation; what is let out by a filter has no communities from
	// prefixAdvertisements.
	const (
		export = `{cidr: 10.1.0.128/26, matchOperator: Equal, action: Reject}, {interface: ` +
			`"cali*", action: Accept, operations: [{addCommunity: {value: "64512:5"}}, ` +
			`{prependASPath: {prefix: [64512, 64512]}}]}`
		imports = `{cidr: 0.0.0.0/0, matchOperator: Equal, action: Reject}, {communities: ` +
			`{values: ["65001:1:1"]}, action: Reject}`
	)
	l.apply(t, policyResources("", export, imports, advertised))
	tor.awaitRIB(t, "Us", outside[0], outside[1], eBGP("10.1.0.1/32", "64512 64512 64512"))
	sees(tor, "10.1.0.1/32", "BGP.community: (64512,5)")
	us.awaitFIB(t, "-4", fib...)
	ping(t, ourPod, "10.99.0.7")
	ping(t, tor.NS, "10.1.0.1")

	// Reflection, on and off.
	l.apply(t, policyResources("0.0.0.9", export, imports,
		`{cidr: 10.1.0.0/16, communities: ["64512:78"]}`))
	one.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"),
		iBGP("10.1.0.128/26", "10.0.0.7"))
	two.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"),
		iBGP("10.1.0.64/26", "10.0.0.6"))
	sees(two, "10.1.0.64/26", "BGP.originator_id: 10.0.0.6")
	sees(two, "10.1.0.64/26", "BGP.community: (64512,78)")
	ping(t, onePod, "10.1.0.129") // they have no session with each other
	ping(t, twoPod, "10.1.0.65")
	l.apply(t, policyResources("", "", "", ""))
	one.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
	two.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
	tor.awaitRIB(t, "Us", outside...)
	us.awaitFIB(t, "-4", append(fib, "10.99.1.0/24 via 10.0.0.1", "0.0.0.0/0 via 10.0.0.1")...)
	ping(t, ourPod, "10.55.0.7")
	ping(t, tor.NS, "10.1.0.129")

	us.sameSessions(t, since)
	noneLost(t, control)
}
