package calico

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestKeys(t *testing.T) {
	for _, tc := range []struct {
		key  Key
		text string
	}{
		{Key{Kind: KindBlock, CIDR: pfx("10.77.4.64/26")},
			"/calico/ipam/v2/assignment/ipv4/block/10.77.4.64-26"},
		{Key{Kind: KindBlock, CIDR: pfx("fd12:8::40/122")},
			"/calico/ipam/v2/assignment/ipv6/block/fd12:8::40-122"},
		{Key{Kind: KindBlockAffinity, Owner: Owner{Host: "rack3.edge-1.example.net"},
			CIDR: pfx("10.77.4.64/26")},
			"/calico/ipam/v2/host/rack3.edge-1.example.net/ipv4/block/10.77.4.64-26"},
		{Key{Kind: KindBlockAffinity, Owner: Owner{Virtual: "load-balancer"},
			CIDR: pfx("10.77.4.64/26")},
			"/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.77.4.64-26"},
		{Key{Kind: KindHandle, Name: "k8s-pod-network.51ce"},
			"/calico/ipam/v2/handle/k8s-pod-network.51ce"},
		{Key{Kind: KindIPAMConfig}, "/calico/ipam/v2/config"},
		{Key{Kind: KindNode, Name: "edge-7"},
			"/calico/resources/v3/projectcalico.org/nodes/edge-7"},
		{Key{Kind: KindIPPool, Name: "edge-v4"},
			"/calico/resources/v3/projectcalico.org/ippools/edge-v4"},
		{Key{Kind: KindBGPConfiguration, Name: "node.edge-7"},
			"/calico/resources/v3/projectcalico.org/bgpconfigurations/node.edge-7"},
		{Key{Kind: KindBGPPeer, Name: "tor-r2"},
			"/calico/resources/v3/projectcalico.org/bgppeers/tor-r2"},
		{Key{Kind: KindBGPFilter, Name: "no-default"},
			"/calico/resources/v3/projectcalico.org/bgpfilters/no-default"},
		{Key{Kind: KindClusterInformation, Name: "default"},
			"/calico/resources/v3/projectcalico.org/clusterinformations/default"},
		{Key{Kind: KindWorkloadEndpoint, Namespace: "shop", Name: "edge--9-k8s-cart--1-eth0"},
			"/calico/resources/v3/projectcalico.org/workloadendpoints/shop/" +
				"edge--9-k8s-cart--1-eth0"},
	} {
		if got := tc.key.String(); got != tc.text {
			t.Errorf("built %s, want %s", got, tc.text)
		}
		if got, err := ParseKey(tc.text); err != nil || got != tc.key {
			t.Errorf("parsed %s: %+v %v", tc.text, got, err)
		}
	}
}

func TestParseKeyNormalizesAddresses(t *testing.T) {
	for text, want := range map[string]netip.Prefix{
		"/calico/ipam/v2/assignment/ipv6/block/fd00:0:0:0::40-122":    pfx("fd00::40/122"),
		"/calico/ipam/v2/assignment/ipv6/block/FD00::41-122":          pfx("fd00::40/122"),
		"/calico/ipam/v2/assignment/ipv4/block/10.77.4.65-26":         pfx("10.77.4.64/26"),
		"/calico/ipam/v2/assignment/ipv4/block/::ffff:10.77.4.64-122": pfx("10.77.4.64/26"),
	} {
		if k, err := ParseKey(text); err != nil || k.CIDR != want {
			t.Errorf("%s: %v %v", text, k.CIDR, err)
		}
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for _, text := range []string{
		"", "/calico/", "/calico/ipam/v2/", "/calico/ipam/v2/handle/",
		"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0",
		"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-33",
		"/calico/ipam/v2/assignment/ipv4/block/0.0.0.0-0",
		"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-19",
		"/calico/ipam/v2/assignment/ipv6/block/fd00::-115",
		"/calico/ipam/v2/host/a/ipv4/block/0.0.0.0-0",
		"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26-1",
		"/calico/ipam/v2/assignment/ipv6/block/10.0.0.0-26",
		"/calico/ipam/v2/assignment/ipv6/block/fe80::%eth0-64",
		"/calico/ipam/v2/host//ipv4/block/10.0.0.0-26",
		"/calico/ipam/v2/host/a/b/ipv4/block/10.0.0.0-26",
		"/calico/resources/v3/projectcalico.org/nodes/",
		"/calico/resources/v3/projectcalico.org/nodes/a/b",
		"/calico/resources/v3/projectcalico.org/workloadendpoints/a",
		"/calico/resources/v3/projectcalico.org/workloadendpoints//a",
		"/calico/resources/v3/projectcalico.org/networkpolicies/a/b",
		"/calico/v1/Ready",
		"/calico/resources/v3/projectcalico.org/nodes/a\x1b[2J",
		"/calico/resources/v3/projectcalico.org/nodes/a\nb",
		"/calico/resources/v3/projectcalico.org/nodes/a\xff",
		"/calico/resources/v3/projectcalico.org/nodes/\u202ea",
		"/calico/ipam/v2/host/a\x00/ipv4/block/10.0.0.0-26",
	} {
		if k, err := ParseKey(text); err == nil {
			t.Errorf("%s was accepted as %+v", text, k)
		}
	}
}

// genBlock draws CIDRs of blocks, of both families.
func genBlock() *rapid.Generator[netip.Prefix] {
	return rapid.Custom(func(t *rapid.T) netip.Prefix {
		n := rapid.SampledFrom([]int{4, 16}).Draw(t, "family")
		a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "address"))
		a = a.Unmap()
		return netip.PrefixFrom(a, rapid.IntRange(a.BitLen()-12, a.BitLen()).Draw(t,
			"bits")).Masked()
	})
}

func TestBuiltKeysParseToThemselves(t *testing.T) {
	name := rapid.StringMatching(`[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		var k Key
		switch n, p := name.Draw(t, "name"), genBlock().Draw(t, "cidr"); rapid.IntRange(0,
			4).Draw(t, "kind") {
		case 0:
			k = Key{Kind: KindBlock, CIDR: p}
		case 1:
			k = Key{Kind: KindBlockAffinity, Owner: Owner{Host: n}, CIDR: p}
		case 2:
			k = Key{Kind: KindBlockAffinity, Owner: Owner{Virtual: n}, CIDR: p}
		case 3:
			k = Key{Kind: KindWorkloadEndpoint, Namespace: n, Name: name.Draw(t, "name")}
		case 4:
			k = Key{Kind: rapid.SampledFrom([]Kind{KindNode, KindIPPool, KindBGPPeer,
				KindHandle}).Draw(t, "kind"), Name: n}
		}
		if got, err := ParseKey(k.String()); err != nil || got != k {
			t.Fatalf("%s: %+v %v", k, got, err)
		}
	})
}

func TestRangesSeparateNodesAndCoverOurKinds(t *testing.T) {
	cidr := pfx("10.0.0.0/26")
	s := NewStore("edge-1")
	s.Put(Key{Kind: KindBlockAffinity, Owner: Owner{Host: "edge-1"}, CIDR: cidr}.String(), nil)
	covering := func(k Key) (n int) {
		for _, r := range s.Ranges() {
			rest, within := strings.CutPrefix(k.String(), r.Prefix)
			_, name, _ := strings.Cut(rest, "/")
			if within && (rest == "" || !r.Exact && strings.HasPrefix(name, r.Names)) {
				n++
			}
		}
		return n
	}
	for _, k := range []Key{
		{Kind: KindNode, Name: "x"}, {Kind: KindIPPool, Name: "x"},
		{Kind: KindBGPConfiguration, Name: "default"},
		{Kind: KindBGPPeer, Name: "x"}, {Kind: KindBGPFilter, Name: "x"},
		{Kind: KindClusterInformation, Name: "default"},
		{Kind: KindWorkloadEndpoint, Namespace: "x", Name: "edge--1-k8s-y-eth0"},
		{Kind: KindBlock, CIDR: cidr}, {Kind: KindHandle, Name: "ipip-tunnel-addr-edge-1"},
		{Kind: KindBlockAffinity, Owner: Owner{Host: "edge-1"}, CIDR: cidr},
	} {
		if n := covering(k); n != 1 {
			t.Errorf("%s is in %d ranges", k, n)
		}
	}
	for _, k := range []Key{
		{Kind: KindBlockAffinity, Owner: Owner{Host: "edge-10"}, CIDR: cidr},
		{Kind: KindHandle, Name: "x"}, {Kind: KindIPAMConfig},
		{Kind: KindHandle, Name: "ipip-tunnel-addr-edge-10"},
		{Kind: KindBlock, CIDR: pfx("10.0.0.64/26")},
		{Kind: KindWorkloadEndpoint, Namespace: "x", Name: "edge--10-k8s-y-eth0"},
		{Kind: KindWorkloadEndpoint, Namespace: "edge--1-k8s", Name: "edge--9-k8s-y-eth0"},
		{Kind: KindBlockAffinity, Owner: Owner{Virtual: "edge-1"}, CIDR: cidr},
	} {
		if n := covering(k); n != 0 {
			t.Errorf("%s is read, and not needed", k)
		}
	}
}

func TestWorkloadEndpointName(t *testing.T) {
	if got := WorkloadEndpointName("edge-7", "k8s", "cart-0",
		"eth0"); got != "edge--7-k8s-cart--0-eth0" {
		t.Error(got)
	}
}
