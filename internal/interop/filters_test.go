package interop

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"vpp-route-agent/internal/testcluster"
)

// TestFilters has BGPFilters each way with a router (FRR), and communities of prefixAdvertisements
// as a node with BIRD sees them. All of it changes while the sessions stay.
func TestFilters(t *testing.T) {
	t.Parallel()
	l := newLab(t, "filters")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2")
	tor := l.frrRouter(t, "tor", torAS, "10.0.0.1/24",
		append(frrPeer("10.0.0.2", asNumber, "sender-as-path-loop-detection"),
			"address-family ipv4 unicast",
			"network 0.0.0.0/0", "network 10.98.0.0/24", "network 10.98.1.0/25",
			"network 10.99.0.0/24")...)
	for _, behind := range []string{"10.99.0.7/32", "10.55.0.7/32"} {
		check(t, tor.NS.AddAddress("lo", pfx(behind)))
	}
	filter := func(spec string) {
		l.apply(t,
			"apiVersion: projectcalico.org/v3\nkind: BGPFilter\nmetadata: {name: edge}\nspec:\n"+
				spec)
	}
	const imports = `
  importV4:
  - {cidr: 0.0.0.0/0, matchOperator: Equal, action: Reject}
  - {cidr: 10.98.0.0/16, matchOperator: In, prefixLength: {max: 24}, action: Accept}
  - {cidr: 10.98.0.0/16, matchOperator: In, action: Reject}
`
	filter(imports + `
  exportV4:
  - {cidr: 10.1.0.64/26, matchOperator: Equal, action: Reject}
  - cidr: 10.1.0.0/26
    matchOperator: Equal
    action: Accept
    operations: [{addCommunity: {value: "64512:300"}}, {prependASPath: {prefix: [64512, 64512]}}]
`)
	l.apply(t, testcluster.Peer("tor", "10.0.0.1", torAS, "filters: [edge]")+
		testcluster.Resource("BGPConfiguration", "default", `
			communities: [{name: site, value: "64512:77"}],
			prefixAdvertisements: [{cidr: 10.1.0.0/16, communities: [site, "64512:1:2"]}]`))
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	nine.setBlocks(t, "10.1.0.64/26")
	pod := us.pod(t, "pod", "10.1.0.1")
	ninePod := nine.workload(t, "pod9", "10.1.0.65")
	nine.start(t)
	us.start(t)
	us.awaitPeers(t, "10.0.0.1", "10.0.0.9")
	since := us.sessionsOf(t, "10.0.0.1", "10.0.0.9")

	fib := []string{
		"10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9", "10.98.0.0/24 via 10.0.0.1",
		"10.99.0.0/24 via 10.0.0.1",
	}
	t.Run("what may come in", func(t *testing.T) {
		us.awaitFIB(t, "-4", fib...)
		ping(t, pod, "10.99.0.7")
	})
	t.Run("what may go out", func(t *testing.T) {
		tor.awaitRIB(t, "ipv4", "10.0.0.2", "10.1.0.0/26 via 10.0.0.2 64512 64512 64512")
		shown, err := tor.Command(t.Context(), "show bgp ipv4 unicast 10.1.0.0/26")
		check(t, err)
		if !strings.Contains(shown, "Community: 64512:300\n") || strings.Contains(shown, "Large") {
			t.Errorf("FRR shows:\n%s", shown)
		}
		ping(t, tor.NS, "10.1.0.1")
	})
	birdSees := func(t *testing.T, standard, large string) {
		t.Helper()
		nine.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
		await(t, "BIRD sees the communities", func(ctx context.Context) error {
			shown, err := nine.Command(ctx,
				"show route all for 10.1.0.0/26 protocol "+mesh("10.0.0.2"))
			if err != nil {
				return err
			}
			text := strings.Join(shown, "\n")
			if strings.Contains(text, "BGP.community: ") != (standard != "") ||
				!strings.Contains(text, standard) ||
				strings.Contains(text, "BGP.large_community: ") != (large != "") ||
				!strings.Contains(text, large) || strings.Contains(text, "ext_community") {
				return fmt.Errorf("it shows:\n%s", text)
			}
			return nil
		})
	}
	t.Run("communities inside", func(t *testing.T) { birdSees(t, "(64512,77)\n", "(64512, 1, 2)") })
	t.Run("packets inside", func(t *testing.T) { ping(t, ninePod, "10.1.0.1") })
	t.Run("the communities change", func(t *testing.T) {
		l.apply(t, testcluster.Resource("BGPConfiguration", "default",
			`prefixAdvertisements: [{cidr: 10.1.0.0/16, communities: ["64512:78"]}]`))
		birdSees(t, "(64512,78)", "")
	})
	t.Run("the filter becomes stricter each way", func(t *testing.T) {
		filter(`
  importV4:
  - {cidr: 10.99.0.0/16, matchOperator: NotIn, action: Reject}
  exportV4:
  - {action: Reject}
`)
		us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9",
			"10.99.0.0/24 via 10.0.0.1")
		tor.awaitRIB(t, "ipv4", "10.0.0.2")
		birdSees(t, "(64512,78)", "")
		ping(t, ninePod, "10.1.0.1")
	})
	t.Run("there is no filter any more", func(t *testing.T) {
		l.apply(t, testcluster.Peer("tor", "10.0.0.1", torAS, ""))
		us.awaitFIB(t, "-4", append(fib, "0.0.0.0/0 via 10.0.0.1", "10.98.1.0/25 via 10.0.0.1")...)
		tor.awaitRIB(t, "ipv4", "10.0.0.2", "10.1.0.0/26 via 10.0.0.2 64512",
			"10.1.0.64/26 via 10.0.0.2 64512")
		ping(t, pod, "10.99.0.7")
		ping(t, pod, "10.55.0.7") // by the default route
		ping(t, tor.NS, "10.1.0.65")
	})
	us.sameSessions(t, since)
}
