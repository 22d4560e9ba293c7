package interop

import (
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/testcluster"
)

// TestFilters6 has BGPFilters in IPv6 with two routers (FRR) that go from one filter to another one
// by one, to one that does not exist, and stay while theirs is deleted and comes back. All sessions
// stay.
func TestFilters6(t *testing.T) {
	t.Parallel()
	l := newLab(t, "filters6")
	us := l.agentNode(t, "us", "fd00::2/64")
	check(t, us.NS.AddAddress("eth0", pfx("10.0.0.2/24")))
	us.agent.Flags = []string{"--router-id", "hash"}
	nine := l.birdNode(t, "nine", "fd00::9/64", "fd00::2")
	router := func(name, address string, as uint32, networks ...string) *frrRouter {
		lines := append([]string{"no bgp default ipv4-unicast"}, frrPeer("fd00::2", asNumber)...)
		return l.frrRouter(t, name, as, address,
			append(lines,
				append([]string{"address-family ipv6 unicast", "neighbor fd00::2 activate"},
					networks...)...)...)
	}
	one := router("one", "fd00::1/64", torAS, "network fd98::/64",
		"network fd98:0:0:1::/80", "network ::/0")
	two := router("two", "fd00::3/64", 65003, "network fd97::/64")
	filter := func(name, spec string) {
		l.apply(t, "apiVersion: projectcalico.org/v3\nkind: BGPFilter\nmetadata: {name: "+name+
			"}\nspec:\n"+spec)
	}
	peer := func(name, filters string) {
		address, as := "fd00::1", uint32(torAS)
		if name == "two" {
			address, as = "fd00::3", 65003
		}
		l.apply(t, testcluster.Peer(name, address, as, "filters: ["+filters+"]"))
	}
	filter("edge", `
  importV4: [{action: Reject}]
  importV6:
  - {cidr: "fd98::/32", matchOperator: In, prefixLength: {max: 64}, action: Accept}
  - {cidr: "fd97::/64", matchOperator: NotEqual, action: Reject}
  exportV6:
  - {cidr: "fd01::40/122", matchOperator: Equal, action: Reject}
  - cidr: fd01::/122
    matchOperator: Equal
    action: Accept
    operations: [{addCommunity: {value: "64512:1:300"}}, {prependASPath: {prefix: [64512, 64512]}}]
`)
	filter("other", `
  exportV4: [{action: Reject}]
  exportV6:
  - {source: RemotePeers, action: Reject}
`)
	peer("one", "edge")
	peer("two", "edge")
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("fd01::/122")))
	nine.setBlocks(t, "fd01::40/122")
	pod := us.pod(t, "pod", "fd01::1")
	ninePod := nine.workload(t, "pod9", "fd01::41")
	check(t, one.NS.AddAddress("lo", pfx("fd98::7/128"))) // what the filters leave
	check(t, one.NS.AddAddress("lo", pfx("fd99::7/128"))) // by the default route alone
	check(t, two.NS.AddAddress("lo", pfx("fd97::7/128")))
	nine.start(t)
	us.start(t)
	us.awaitPeers(t, "fd00::1", "fd00::3", "fd00::9")
	nine.awaitEstablished(t)
	since := us.sessionsOf(t, "fd00::1", "fd00::3", "fd00::9")

	const (
		own, prepended, nines = "fd01::/122 via fd00::2 64512", "fd01::/122 via fd00::2 " +
			"64512 64512 64512", "fd01::40/122 via fd00::2 64512"
		everything = "fd98:0:0:1::/80 via fd00::1"
	)
	fib := []string{
		"fd01::/122 blackhole", "fd01::40/122 via fd00::9", "fd97::/64 via fd00::3",
		"fd98::/64 via fd00::1",
	}
	see := func(step string, from *frrRouter, want ...string) {
		t.Helper()
		t.Log(step)
		from.awaitRIB(t, "ipv6", "fd00::2", want...)
	}
	us.awaitFIB(t, "-6", fib...)
	see("one filter", one, prepended)
	see("one filter", two, prepended)
	ping(t, pod, "fd98::7")
	ping(t, pod, "fd97::7")
	for _, r := range []*frrRouter{one, two} {
		ping(t, r.NS, "fd01::1")
	}
	shown, err := one.Command(t.Context(), "show bgp ipv6 unicast fd01::/122")
	check(t, err)
	if !strings.Contains(shown, "Large Community: 64512:1:300\n") {
		t.Errorf("FRR shows:\n%s", shown)
	}

	peer("two", "other")
	see("two has another", two, own)
	see("two has another", one, prepended)
	peer("one", "other")
	see("one has it, too", one, own)
	see("one has it, too", two, own)
	us.awaitFIB(t, "-6", append(slices.Clone(fib), everything, "::/0 via fd00::1")...)
	ping(t, pod, "fd99::7")
	peer("two", "edge")
	see("two goes back", two, prepended)
	peer("one", "edge, other")
	see("one goes back", one, prepended)
	us.awaitFIB(t, "-6", fib...)
	peer("two", "missing")
	see("two has one that does not exist", two, own, nines)
	ping(t, two.NS, "fd01::41") // by us
	see("two has one that does not exist", one, prepended)
	check(t, l.Data.Delete(t.Context(), "BGPFilter", "edge"))
	see("the filter is deleted, the second is left", one, own)
	us.awaitFIB(t, "-6", append(slices.Clone(fib), everything, "::/0 via fd00::1")...)
	filter("missing", "\n  exportV6: [{action: Reject}]\n  importV6: [{action: Reject}]\n")
	see("the missing one appears", two)
	filter("edge",
		"\n  exportV6: [{cidr: \"fd01::/64\", matchOperator: In, prefixLength: {min: 123}, "+
			"action: Reject}, {action: Accept}]\n")
	see("the deleted one is back, and lets everything out", one, own, nines)
	us.awaitFIB(t, "-6", "fd01::/122 blackhole", "fd01::40/122 via fd00::9",
		"fd98::/64 via fd00::1", everything, "::/0 via fd00::1")
	see("the missing one keeps everything", two)

	ping(t, pod, "fd99::7")
	ping(t, one.NS, "fd01::41")
	nine.awaitRIB(t, mesh("fd00::2"), iBGP("fd01::/122", "fd00::2"))
	ping(t, ninePod, "fd01::1")
	us.sameSessions(t, since)
}
