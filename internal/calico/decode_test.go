package calico

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

const sampleBlock = `{"cidr":"10.40.4.4/30","affinity":"host:leaf-1",
	"affinity_claim_time":"2026-03-02T09:15:40Z",
 "allocations":[0,1,null,2],"unallocated":[2],
 "attributes":[
  {"handle_id":"ipip-tunnel-addr-leaf-1","secondary":{"node":"leaf-1","type":"ipipTunnelAddress"}},
  {"handle_id":"k8s-pod-network.aa01","secondary":{"namespace":"shop","node":"leaf-1",
   "pod":"cart-0"}},
  {"handle_id":"k8s-pod-network.aa02","secondary":{"node":"leaf-2","pod":"cart-1"},
   "alternateOwnerAttrs":{"node":"leaf-3"}}],
 "sequenceNumber":18446744073709551615,"sequenceNumberForAllocation":{"0":1772442940123456701},
 "deleted":false,"new":{"field":[1]}}`

// Another kind's resource under a key is refused, not read as one without fields.
func TestKindUnderAKeyOfAnother(t *testing.T) {
	k := Key{Kind: KindBGPPeer, Name: "tor"}
	for value, want := range map[string]string{
		`{"kind":"Pod","spec":{"peerIP":"10.0.0.1"}}`:     `kind: "Pod" under a key of BGPPeer`,
		`{"kind":"BGPPeer","spec":{"peerIP":"10.0.0.1"}}`: "",
		`{"spec":{"peerIP":"10.0.0.1"}}`:                  "",
	} {
		_, err := decodeBGPPeer(k, []byte(value))
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}

func TestDecodeBlock(t *testing.T) {
	sample := Block{CIDR: pfx("10.40.4.4/30"), Owner: Owner{Host: "leaf-1"},
		Allocations: []Allocation{
			{Address: addr("10.40.4.4"), Node: "leaf-1", Type: "ipipTunnelAddress"},
			{Address: addr("10.40.4.5"), Node: "leaf-1"},
			{Address: addr("10.40.4.7"), Node: "leaf-2"},
		}}
	four := func(attributes, allocations string) string {
		return `{"cidr":"10.40.4.4/30","affinity":"host:leaf-1","attributes":` + attributes +
			`,"allocations":` + allocations + `}`
	}
	one := Block{CIDR: pfx("10.40.4.4/30"), Owner: Owner{Host: "leaf-1"},
		Allocations: []Allocation{{Address: addr("10.40.4.6")}}}
	none := Block{CIDR: pfx("10.40.4.4/30"), Owner: Owner{Host: "leaf-1"}}
	for _, tc := range []struct {
		name, value string
		want        Block
		problem     string // part of the error, which comes with a usable block
	}{
		{"sample", sampleBlock, sample, ""},
		{"allocation without node, as made by hand",
			four(`[{"handle_id":"h"}]`, `[null,null,0,null]`), one, ""},
		{"address that cools down after its release",
			four(`[{"releasedAt":"2026-03-02T09:15:40Z"}]`, `[0,null,null,null]`), none, ""},
		{"index beyond the attributes", four(`[{"handle_id":"h"}]`, `[1,null,0,null]`), one,
			"allocations[0]"},
		{"negative index", four(`[{"handle_id":"h"}]`, `[-1,null,0,null]`), one, "allocations[0]"},
		{"more allocations than addresses", four(`[{"handle_id":"h"}]`, `[null,null,0,null,0,0]`),
			one, "allocations: 6"},
		{"fewer allocations than addresses", four(`[]`, `[]`), none, ""},
		{"no owner", `{"affinity":null}`, Block{CIDR: pfx("10.40.4.4/30")}, ""},
		{"owner left out", `{}`, Block{CIDR: pfx("10.40.4.4/30")}, ""},
		{"virtual owner is no host", `{"affinity":"virtual:load-balancer"}`,
			Block{CIDR: pfx("10.40.4.4/30"), Owner: Owner{Virtual: "load-balancer"}}, ""},
		{"colons in a node's name", `{"affinity":"host:a:b"}`,
			Block{CIDR: pfx("10.40.4.4/30"), Owner: Owner{Host: "a:b"}}, ""},
		{"host bits in cidr", `{"cidr":"10.40.4.6/30","affinity":"host:leaf-1"}`, none, ""},
		{"obsolete hostAffinity", `{"affinity":null,"hostAffinity":"leaf-9"}`,
			Block{CIDR: pfx("10.40.4.4/30")}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decodeBlock(Key{CIDR: pfx("10.40.4.4/30")}, []byte(tc.value))
			if partial, ok := err.(partialError); tc.problem == "" && err != nil ||
				tc.problem != "" && (!ok || !strings.Contains(string(partial), tc.problem)) {
				t.Errorf("error %v, want %q", err, tc.problem)
			}
			if diff := cmp.Diff(tc.want, got, byValue); diff != "" {
				t.Error(diff)
			}
		})
	}
	single, err := decodeBlock(Key{CIDR: pfx("10.40.4.4/32")},
		[]byte(`{"cidr":"10.40.4.4","allocations":[0],"attributes":[{"secondary":{"node":"x"}}]}`))
	if err != nil || len(single.Allocations) != 1 {
		t.Errorf("cidr without a mask: %+v %v", single, err)
	}
	last, err := decodeBlock(Key{CIDR: pfx("255.255.255.255/32")},
		[]byte(`{"allocations":[null,null]}`))
	if err == nil || len(last.Allocations) != 0 {
		t.Errorf("beyond the last of all addresses: %+v %v", last, err)
	}
}

func TestDecodeBlockRefuses(t *testing.T) {
	for value, want := range map[string]string{
		``:                          "empty value",
		`{`:                         "unexpected end",
		`[]`:                        "",
		`{"cidr":"10.0.0.0/30"}`:    "cidr: 10.0.0.0/30 is not the block of the key",
		`{"cidr":"x"}`:              `cidr: "x"`,
		`{"affinity":"leaf-1"}`:     "affinity",
		`{"affinity":"host:"}`:      "affinity",
		`{"allocations":["x"]}`:     "allocations",
		`{"allocations":[1.5]}`:     "allocations",
		`{"allocations":{"0":1}}`:   "allocations",
		`{"deleted":true,"cidr":1}`: "cidr",
	} {
		if b, err := decodeBlock(Key{CIDR: pfx("10.40.4.4/30")}, []byte(value)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v %v, want %q", value, b, err, want)
		}
	}
	if _, err := decodeBlock(Key{CIDR: pfx("10.40.4.4/30")},
		[]byte(`{"deleted":true}`)); err != errAbsent {
		t.Errorf("a deleted block: %v", err)
	}
}

func TestDecodeAffinity(t *testing.T) {
	for value, want := range map[string]AffinityState{
		``:                                      AffinityConfirmed,
		`{}`:                                    AffinityConfirmed,
		`null`:                                  AffinityConfirmed,
		`{"state":""}`:                          AffinityConfirmed,
		`{"state":"confirmed","deleted":false}`: AffinityConfirmed,
		`{"state":"pending"}`:                   AffinityPending,
		`{"state":"pendingDeletion"}`:           AffinityPendingDeletion,
	} {
		if got, err := decodeAffinity(Key{}, []byte(value)); err != nil || got != want {
			t.Errorf("%q: %q %v", value, got, err)
		}
	}
	if _, err := decodeAffinity(Key{}, []byte(`{"state":"confirmed",
		"deleted":true}`)); err != errAbsent {
		t.Errorf("deleted: %v", err)
	}
	if got, err := decodeAffinity(Key{}, []byte(`{"state":"new"}`)); got == AffinityConfirmed ||
		err == nil {
		t.Errorf("unknown state: %q %v", got, err)
	}
	if _, err := decodeAffinity(Key{}, []byte(`{"state":1}`)); err == nil ||
		!strings.Contains(err.Error(), "state: cannot be a JSON number") {
		t.Errorf("wrong type: %v", err)
	}
}

func TestDecodeNode(t *testing.T) {
	full := `{"kind":"Node","metadata":{"name":"not-the-key","labels":{"rack":"r2"}},
	 "spec":{"bgp":{"ipv4Address":"172.20.8.7/24","ipv6Address":"FD77:0::7/64","asNumber":"1.10",
	 "ipv4IPIPTunnelAddr":"10.40.4.4","routeReflectorClusterID":"1.0.0.1"},
	 "ipv4VXLANTunnelAddr":"10.40.9.1","ipv6VXLANTunnelAddr":"fd12::9",
	 "vxlanTunnelMACAddr":"66:1A:2b:3c:4d:5e","vxlanTunnelMACAddrV6":"no matter what",
	 "wireguard":{"interfaceIPv4Address":"10.40.9.2","interfaceIPv6Address":"fd12::a"},
	 "addresses":[{"address":"172.20.8.7/24","type":"CalicoNodeIP"}],"future":{"x":1}},
	 "status":{"wireguardPublicKeyV6":"k"}}`
	want := Node{Name: "leaf-1", Labels: map[string]string{"rack": "r2"},
		IPv4: pfx("172.20.8.7/24"), IPv6: pfx("fd77::7/64"), ASNumber: 65546,
		RouteReflectorClusterID: "1.0.0.1", IPv4IPIPTunnelAddr: addr("10.40.4.4"),
		IPv4VXLANTunnelAddr: addr("10.40.9.1"), VXLANTunnelMACAddr: "66:1A:2b:3c:4d:5e",
		VXLANTunnelMACAddrV6: "no matter what",
		IPv6VXLANTunnelAddr:  addr("fd12::9"), WireguardIPv4: addr("10.40.9.2"),
		WireguardIPv6: addr("fd12::a"), HostIPv4: addr("172.20.8.7"), WireguardKey: true}
	for value, want := range map[string]Node{
		full:            want,
		`{}`:            {Name: "leaf-1"},
		`{"spec":{}}`:   {Name: "leaf-1"},
		`{"spec":null}`: {Name: "leaf-1"},
		// As calico-node without networking of its own leaves it: no bgp. What makes no sense here
		// is of no use, but harms no session either.
		`{"spec":{"addresses":[{"address":"edge-7","type":"InternalIP"},
		  {"address":"198.51.100.7","type":"ExternalIP"},
		  {"address":"172.20.8.7","type":"InternalIP"},
		  {"address":"172.20.8.9","type":"InternalIP"},{"address":"fe80::7","type":"InternalIP"},
		  {"address":"fd77::7/64","type":"CalicoNodeIP"}]}}`: {Name: "leaf-1",
			HostIPv4: addr("172.20.8.7"), HostIPv6: addr("fd77::7")},
		`{"spec":{"addresses":{"address":"172.20.8.7"}}}`: {Name: "leaf-1"},
		`{"spec":{"bgp":{"ipv4Address":"","asNumber":64801}}}`: {Name: "leaf-1",
			ASNumber: 64801},
		`{"spec":{"bgp":{"ipv4Address":"172.20.8.7"}}}`: {Name: "leaf-1",
			IPv4: pfx("172.20.8.7/32")},
		`{"spec":{"bgp":{"ipv6Address":"fd77::7","asNumber":"64801"}}}`: {Name: "leaf-1",
			IPv6: pfx("fd77::7/128"), ASNumber: 64801},
		`{"spec":{"bgp":{"ipv4Address":"::ffff:172.20.8.7/120"}}}`: {Name: "leaf-1",
			IPv4: pfx("172.20.8.7/24")},
	} {
		got, err := decodeNode(Key{Kind: KindNode, Name: "leaf-1"}, []byte(value), Node{})
		if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
			t.Errorf("%s: %v %s", value, err, diff)
		}
	}
	for value, want := range map[string]string{
		`{"spec":[]}`: "spec",
		`{"spec":{"bgp":{"ipv4Address":"172.20.8"}}}`: `spec.bgp.ipv4Address: "172.20.8"`,

		`{"spec":{"bgp":{"ipv4Address":"172.20.8.7/33"}}}`:        "spec.bgp.ipv4Address",
		`{"spec":{"bgp":{"ipv4Address":"fd77::7/64"}}}`:           "other address family",
		`{"spec":{"bgp":{"ipv6Address":"172.20.8.7/24"}}}`:        "other address family",
		`{"spec":{"bgp":{"ipv6Address":"fe80::1%eth0/64"}}}`:      "spec.bgp.ipv6Address",
		`{"spec":{"bgp":{"ipv4Address":"::ffff:172.20.8.7/95"}}}`: "spec.bgp.ipv4Address",
		`{"spec":{"bgp":{"asNumber":4294967296}}}`:                "spec.bgp.asNumber: cannot be",

		`{"spec":{"bgp":{"asNumber":"1.65536"}}}`:          `spec.bgp.asNumber: "1.65536" is not`,
		`{"spec":{"bgp":{"asNumber":"64.1.2"}}}`:           "is not an AS number",
		`{"spec":{"bgp":{"asNumber":""}}}`:                 "is not an AS number",
		`{"spec":{"bgp":{"asNumber":-1}}}`:                 "asNumber",
		`{"spec":{"bgp":{"routeReflectorClusterID":"7"}}}`: "routeReflectorClusterID",
		`{"spec":{"bgp":{"ipv4IPIPTunnelAddr":"x"}}}`:      "ipv4IPIPTunnelAddr",

		`{"spec":{"wireguard":{"interfaceIPv6Address":"10.0.0.1"}}}`: "wireguard." +
			"interfaceIPv6Address",

		`{"metadata":{"labels":{"a":1}}}`: "labels",
	} {
		n, err := decodeNode(Key{Kind: KindNode, Name: "leaf-1"}, []byte(value), Node{})
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v %v, want %q", value, n, err, want)
		}
	}
}

func TestDecodeIPPool(t *testing.T) {
	for spec, want := range map[string]IPPool{
		`{"cidr":"10.40.0.0/16"}`: {CIDR: pfx("10.40.0.0/16"), IPIPMode: EncapNever,
			VXLANMode: EncapNever, BlockSize: 26},
		`{"cidr":"10.40.7.9/16"}`: {CIDR: pfx("10.40.0.0/16"), IPIPMode: EncapNever,
			VXLANMode: EncapNever, BlockSize: 26},
		`{"cidr":"fd12:0008::9/64"}`: {CIDR: pfx("fd12:8::/64"), IPIPMode: EncapNever,
			VXLANMode: EncapNever, BlockSize: 122},
		`{"cidr":"10.40.0.0/16","ipipMode":"CrossSubnet","vxlanMode":"Never","blockSize":28,
			"disabled":true,"disableBGPExport":true,"ipip":{"enabled":true}}`: {
			CIDR: pfx("10.40.0.0/16"), IPIPMode: EncapCrossSubnet, VXLANMode: EncapNever,
			BlockSize: 28, Disabled: true, DisableBGPExport: true},
		`{"cidr":"fd12::/64","vxlanMode":"Always","blockSize":128}`: {CIDR: pfx("fd12::/64"),
			IPIPMode: EncapNever, VXLANMode: EncapAlways, BlockSize: 128},
	} {
		want.Name = "p"
		got, err := decodeIPPool(Key{Name: "p"}, []byte(`{"spec":`+spec+`}`))
		if err != nil || got != want {
			t.Errorf("%s: %+v %v", spec, got, err)
		}
	}
	for spec, want := range map[string]string{
		`{}`:                     "spec.cidr",
		`{"cidr":"10.0.0.0/40"}`: "spec.cidr",
		`{"cidr":"10.0.0.1"}`:    `spec.cidr: "10.0.0.1" has no prefix length`,
		`{"cidr":"x","ipipMode":"maybe"}`: `spec.cidr: "x" is not an address; ` +
			`spec.ipipMode: "maybe"`,
	} {
		if p, err := decodeIPPool(Key{Name: "p"}, []byte(`{"spec":`+spec+`}`)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v %v, want %q", spec, p, err, want)
		}
	}
}

// To Calico a mode that it does not know is Never, and it routes by no blockSize.
func TestDecodeIPPoolThatIsPartlyWrong(t *testing.T) {
	for spec, want := range map[string]string{
		`{"cidr":"10.0.0.0/16","blockSize":19}`: "spec.blockSize: 19 is not from 20 to 32, " +
			"26 counts",
		`{"cidr":"fd12::/64","blockSize":26}`: "spec.blockSize",
		`{"cidr":"10.0.0.0/16","ipipMode":"always","disableBGPExport":true}`: "spec.ipipMode: " +
			`"always" is none of Never, Always, CrossSubnet, Never counts`,
		`{"cidr":"10.0.0.0/16","vxlanMode":"Off"}`: "spec.vxlanMode",
	} {
		s := NewStore("edge-1")
		s.Put(resources+"ippools/p", []byte(`{"spec":`+spec+`}`))
		got := s.Snapshot(1)
		p := got.IPPools["p"]
		if !p.CIDR.IsValid() || p.IPIPMode != EncapNever || p.VXLANMode != EncapNever ||
			p.BlockSize != 26 && p.BlockSize != 122 ||
			p.DisableBGPExport != strings.Contains(spec, "disableBGPExport") ||
			len(got.Problems) != 1 || !strings.Contains(got.Problems[0].Err, want) {
			t.Errorf("%s: %+v, problems %v, want %q", spec, p, got.Problems, want)
		}
	}
}

func TestDecodeBGPConfiguration(t *testing.T) {
	yes := true
	got, err := decodeBGPConfiguration(Key{Name: "default"},
		[]byte(
			`{"spec":{"nodeToNodeMeshEnabled":true,"asNumber":64512,"listenPort":1790,
				"bindMode":"NodeIP",
	 "logSeverityScreen":"Info","nodeMeshPassword":{"secretKeyRef":{"name":"s","key":"k"}},
	 "nodeMeshMaxRestartTime":"1m30s",
	 "communities":[{"name":"site-a","value":"64512:77"}],
	 "prefixAdvertisements":[{"cidr":"10.40.0.0/16","communities":["site-a","64512:1:2"]}],
	 "serviceClusterIPs":[{"cidr":"10.96.0.0/12"}],"serviceExternalIPs":[{"cidr":"192.0.2.0/24"}],
	 "serviceLoadBalancerIPs":[{"cidr":"198.51.100.0/24"}],
	 "serviceLoadBalancerAggregation":"Disabled","ignoredInterfaces":["eth9*"],
	 "localWorkloadPeeringIPV4":"10.9.9.9","localWorkloadPeeringIPV6":"fd::9",
	 "programClusterRoutes":"Enabled","ipv4NormalRoutePriority":7,"ipv6NormalRoutePriority":8}}`))
	want := BGPConfiguration{Name: "default", NodeToNodeMeshEnabled: &yes, ASNumber: 64512,
		ListenPort: 1790, BindMode: "NodeIP", LogSeverityScreen: "Info",
		NodeMeshPassword: &SecretKeyRef{"s", "k"}, NodeMeshMaxRestartTime: new(90 * time.Second),
		Communities: []Community{{"site-a", "64512:77"}},
		PrefixAdvertisements: []PrefixAdvertisement{{"10.40.0.0/16",
			[]string{"site-a", "64512:1:2"}}},
		ServiceClusterIPs: []string{"10.96.0.0/12"}, ServiceExternalIPs: []string{"192.0.2.0/24"},
		ServiceLoadBalancerIPs:         []string{"198.51.100.0/24"},
		ServiceLoadBalancerAggregation: "Disabled", IgnoredInterfaces: []string{"eth9*"},
		LocalWorkloadPeeringIPV4: "10.9.9.9",
		LocalWorkloadPeeringIPV6: "fd::9", ProgramClusterRoutes: "Enabled",
		IPv4NormalRoutePriority: 7, IPv6NormalRoutePriority: 8}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	// Package bgp knows what to do without a time that cannot be sent.
	got, err = decodeBGPConfiguration(Key{Name: "default"},
		[]byte(`{"spec":{"nodeMeshMaxRestartTime":"-1s","asNumber":1}}`))
	if err != nil || *got.NodeMeshMaxRestartTime != -time.Second || got.ASNumber != 1 {
		t.Errorf("%+v %v", got, err)
	}
	for spec, want := range map[string]string{
		`{"listenPort":70000}`:              "listenPort",
		`{"nodeMeshMaxRestartTime":"soon"}`: `nodeMeshMaxRestartTime: "soon" is not`,
		`{"nodeMeshMaxRestartTime":90}`:     "nodeMeshMaxRestartTime",
		`{"nodeToNodeMeshEnabled":"yes"}`:   "nodeToNodeMeshEnabled: cannot be a JSON string",
	} {
		c, err := decodeBGPConfiguration(Key{Name: "default"}, []byte(`{"spec":`+spec+`}`))
		if err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v %v, want %q", spec, c, err, want)
		}
	}
}

func TestDecodeBGPPeer(t *testing.T) {
	got, err := decodeBGPPeer(Key{Name: "tor"},
		[]byte(
			`{"spec":{"node":"n","nodeSelector":"rack == 'r2'","peerIP":"192.0.2.1:1790",
				"peerSelector":"x","asNumber":"64900","localASNumber":"1.1",
	 "keepOriginalNextHop":true,"nextHopMode":"Self","password":{"secretKeyRef":{"name":"s",
	 "key":"k"}},"sourceAddress":"None","maxRestartTime":"2m0s",
	 "keepaliveTime":"7s","numAllowedLocalASNumbers":2,"ttlSecurity":1,"reachableBy":"192.0.2.9",
	 "filters":["b","a"],"localWorkloadSelector":"l","reversePeering":"Manual"}}`))
	want := BGPPeer{Name: "tor", Node: "n", NodeSelector: "rack == 'r2'", PeerIP: "192.0.2.1:1790",
		PeerSelector: "x", ASNumber: 64900, LocalASNumber: 65537,
		KeepOriginalNextHop: true, NextHopMode: "Self", Password: &SecretKeyRef{"s", "k"},
		SourceAddress: "None", MaxRestartTime: new(2 * time.Minute),
		KeepaliveTime: 7 * time.Second, NumAllowedLocalASNumbers: 2, TTLSecurity: 1,
		ReachableBy: "192.0.2.9", Filters: []string{"b", "a"},
		LocalWorkloadSelector: "l", ReversePeering: "Manual"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if p, err := decodeBGPPeer(Key{Name: "tor"},
		[]byte(`{"spec":{"ttlSecurity":256}}`)); err == nil {
		t.Errorf("ttlSecurity 256: %+v", p)
	}
	if p, err := decodeBGPPeer(Key{Name: "tor"}, []byte(`{"spec":{"password":{}}}`)); err != nil ||
		p.Password != nil {
		t.Errorf("password without a reference: %+v %v", p, err)
	}
}

func TestDecodeBGPFilter(t *testing.T) {
	sixteen, lots := 16, 28
	got, err := decodeBGPFilter(Key{Name: "f"},
		[]byte(`{"spec":{"importV4":[{"cidr":"0.0.0.0/0","matchOperator":"Equal","action":"Reject"},
	  {"cidr":"10.0.0.0/8","matchOperator":"In","prefixLength":{"min":16,"max":28},
	   "action":"Accept"}],
	 "exportV4":[{"source":"RemotePeers","interface":"eth*","peerType":"eBGP",
	 "communities":{"values":["1:2"]},"asPathPrefix":[64512,"1.1"],"priority":5,"action":"Accept",
	  "operations":[{"addCommunity":{"value":"1:2"}},{"prependASPath":{"prefix":["64512"]}},
	  {"setPriority":{"value":9}}]}],
	 "exportV6":[{"action":"Reject"}],"importV6":[{"action":"Accept"}]}}`))
	want := BGPFilter{Name: "f",
		ImportV4: []BGPFilterRule{{CIDR: "0.0.0.0/0", MatchOperator: "Equal", Action: "Reject"},
			{CIDR: "10.0.0.0/8", MatchOperator: "In", PrefixLength: &PrefixLengthRange{&sixteen,
				&lots}, Action: "Accept"}},
		ExportV4: []BGPFilterRule{{Source: "RemotePeers", Interface: "eth*", PeerType: "eBGP",
			Communities: []string{"1:2"}, ASPathPrefix: []uint32{64512, 65537},
			Priority: 5, Action: "Accept", Operations: []BGPFilterOperation{{AddCommunity: "1:2"},
				{PrependASPath: []uint32{64512}}, {SetPriority: 9}}}},
		ExportV6: []BGPFilterRule{{Action: "Reject"}},
		ImportV6: []BGPFilterRule{{Action: "Accept"}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	_, err = decodeBGPFilter(Key{Name: "f"}, []byte(
		`{"spec":{"exportV4":[{"action":"Accept"},{"action":"Accept","onlyOnMondays":true}]}}`))
	if _, partial := err.(partialError); !partial ||
		!strings.Contains(err.Error(), `spec.exportV4[1]: unknown field "onlyOnMondays"`) {
		t.Errorf("unknown condition: %v", err)
	}
	for _, none := range []string{"{}", `{"values":null}`, `{"values":[]}`} {
		f, err := decodeBGPFilter(Key{Name: "f"},
			[]byte(`{"spec":{"importV4":[{"action":"Accept","communities":`+none+`}]}}`))
		if err != nil || f.ImportV4[0].Communities == nil {
			t.Errorf("communities %s: %+v, %v", none, f, err)
		}
	}
	// An operation that makes no sense costs its rule, which package bgp leaves out.
	for ops, want := range map[string]BGPFilterOperation{
		`[{}]`: {}, `[null]`: {}, `[{"addCommunity":null}]`: {}, `[{"setPriority":{}}]`: {},
		`[{"addCommunity":{"value":"1:2"},"setPriority":{"value":9}}]`: {AddCommunity: "1:2",
			SetPriority: 9},
	} {
		f, err := decodeBGPFilter(Key{Name: "f"}, []byte(`{"spec":{"importV6":[`+
			`{"action":"Accept","operations":`+ops+`},{"action":"Reject"}]}}`))
		if err != nil || len(f.ImportV6) != 2 ||
			!reflect.DeepEqual(f.ImportV6[0].Operations, []BGPFilterOperation{want}) {
			t.Errorf("%s: %+v %v", ops, f, err)
		}
	}
}

func TestDecodeWorkloadEndpoint(t *testing.T) {
	got, err := decodeWorkloadEndpoint(Key{Namespace: "shop", Name: "w"},
		[]byte(
			`{"metadata":{"name":"w","labels":{"app":"bgpd","pcns.team":"a","pcsa.x":"b"}},
				"spec":{"node":"leaf-1","serviceAccountName":"router",
				"ipNATs":[{"internalIP":"10.40.4.7","externalIP":"192.0.2.7"},{"externalIP":"x"}],
				"ipNetworks":["10.40.4.7","10.40.4.8/32","FD12::7"],"interfaceName":"cali1"}}`))
	want := WorkloadEndpoint{Namespace: "shop", Name: "w", Labels: map[string]string{
		"app": "bgpd", "projectcalico.org/serviceaccount": "router"},
		Node: "leaf-1", InterfaceName: "cali1",
		IPNetworks: []netip.Prefix{pfx("10.40.4.7/32"), pfx("10.40.4.8/32"), pfx("fd12::7/128")}}
	want.FloatingIPs = []netip.Addr{netip.MustParseAddr("192.0.2.7")} // the other is none
	if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := decodeWorkloadEndpoint(Key{Namespace: "shop", Name: "w"},
		[]byte(`{"spec":{"ipNetworks":["10.40.4.7","x"]}}`)); err == nil ||
		!strings.Contains(err.Error(), "spec.ipNetworks[1]") {
		t.Error(err)
	}
}

func TestClusterInformation(t *testing.T) {
	for value, want := range map[string]ClusterInformation{
		`{}`:                                {},
		`{"spec":{"datastoreReady":true}}`:  {},
		`{"spec":{"datastoreReady":false}}`: {NotReady: true},
		`{"spec":{"calicoVersion":"v3.33.0","datastoreReady":true}}`: {Version: "v3.33.0"},
	} {
		got, err := decodeClusterInformation(Key{}, []byte(value))
		if err != nil || got != want {
			t.Errorf("%s: %+v %v", value, got, err)
		}
	}
}

func TestFelixRoutesIPIP(t *testing.T) {
	for _, tc := range []struct {
		mode, version string
		want          bool
	}{
		{"", "", false}, {"", "v3.32.1", false}, {"", "v3.33.0", true}, {"", "v3.34.0-0.dev", true},
		{"", "v4.0.0", true}, {"", "master", false}, {"unknown", "v3.33.0", true},
		{"Enabled", "v3.31.0", true}, {"EnabledIPIPOnly", "", true},
		{"Disabled", "v3.33.0", false}, {"EnabledNoEncapOnly", "v3.33.0", false},
	} {
		s := &Snapshot{CalicoVersion: tc.version, Felix: map[string]FelixConfiguration{
			"default": {ProgramClusterRoutes: tc.mode}}}
		if got := s.FelixRoutesIPIP("a"); got != tc.want {
			t.Errorf("%q with %q: %v", tc.mode, tc.version, got)
		}
	}
}
