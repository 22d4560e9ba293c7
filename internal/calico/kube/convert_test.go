package kube

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico"
)

func pfx(s string) netip.Prefix    { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func nothing(calico.Key) any       { return nil }
func obj(name, json string) object { return object{name: name, json: []byte(json)} }

// one converts an object that stands for one item.
func one(t *testing.T, k kind, c converter, o object) calico.Item {
	t.Helper()
	if c.before == nil {
		c.before = nothing
	}
	all := k.convert(c, o)
	if len(all) != 1 {
		t.Fatalf("%d items", len(all))
	}
	if all[0].place != k.place(o) {
		t.Errorf("place %q", all[0].place)
	}
	return all[0].item
}

// annotated is a Node with annotations, "key=value;key=value".
func annotatedNode(notes, rest string) string {
	var all []string
	for note := range strings.SplitSeq(notes, ";") {
		if k, v, ok := strings.Cut(note, "="); ok {
			all = append(all, fmt.Sprintf("%q:%q", k, v))
		}
	}
	return `{"metadata":{"annotations":{` + strings.Join(all, ",") + `}` + rest
}

func TestNodes(t *testing.T) {
	const p = "projectcalico.org/"
	for _, tc := range []struct {
		name, notes, rest string
		podCIDRs          bool
		want              calico.Node
		wrong             string
	}{
		{name: "nothing of Calico", rest: `}}`, want: calico.Node{}},
		{name: "addresses and AS",
			notes: p + "IPv4Address=192.0.2.7/24;" + p + "IPv6Address=2001:db8::7/64;" + p +
				"ASNumber=65001", rest: `}}`,
			want: calico.Node{IPv4: pfx("192.0.2.7/24"), IPv6: pfx("2001:db8::7/64"),
				ASNumber: 65001, HostIPv4: addr("192.0.2.7"), HostIPv6: addr("2001:db8::7")}},
		{name: "dotted AS, address without a length",
			notes: p + "ASNumber=1.10;" + p + "IPv4Address=192.0.2.7", rest: `}}`,
			want: calico.Node{IPv4: pfx("192.0.2.7/32"), ASNumber: 65546,
				HostIPv4: addr("192.0.2.7")}},
		{name: "reflector", notes: p + "RouteReflectorClusterID=10.0.0.1", rest: `}}`,
			want: calico.Node{RouteReflectorClusterID: "10.0.0.1"}},
		{name: "tunnels",
			notes: p + "IPv4IPIPTunnelAddr=10.1.0.1;" + p + "IPv4VXLANTunnelAddr=10.1.0.2;" + p +
				"IPv6VXLANTunnelAddr=fd00::2;" + p + "VXLANTunnelMACAddr=66:00:00:00:00:01;" + p +
				"VXLANTunnelMACAddrV6=66:00:00:00:00:02;" + p +
				"IPv4WireguardInterfaceAddr=10.1.0.3;" + p +
				"IPv6WireguardInterfaceAddr=fd00::3", rest: `}}`,
			want: calico.Node{IPv4IPIPTunnelAddr: addr("10.1.0.1"),
				IPv4VXLANTunnelAddr: addr("10.1.0.2"), IPv6VXLANTunnelAddr: addr("fd00::2"),
				VXLANTunnelMACAddr:   "66:00:00:00:00:01",
				VXLANTunnelMACAddrV6: "66:00:00:00:00:02",
				WireguardIPv4:        addr("10.1.0.3"), WireguardIPv6: addr("fd00::3")}},
		{name: "each annotation is checked alone",
			notes: p + "IPv4Address=192.0.2.300/24;" + p + "IPv6Address=192.0.2.7/24;" + p +
				"ASNumber=many;" + p + "RouteReflectorClusterID=1;" + p +
				"IPv4IPIPTunnelAddr=10.1.0.1", rest: `}}`,
			want: calico.Node{IPv4IPIPTunnelAddr: addr("10.1.0.1")},
			wrong: `metadata.annotations[projectcalico.org/IPv4Address]: "192.0.2.300/24" is ` +
				`not an address; metadata.annotations[projectcalico.org/IPv6Address]: ` +
				`"192.0.2.7/24" is of the other address family; ` +
				`metadata.annotations[projectcalico.org/ASNumber]: "many" is not an AS number; ` +
				`metadata.annotations[projectcalico.org/RouteReflectorClusterID]: "1" is not a ` +
				`dotted quad`},
		{name: "Kubernetes' labels go first", notes: p + `labels={"rack":"r1","zone":"z1"}`,
			rest: `,"labels":{"rack":"r2","host":"a"}}}`,
			want: calico.Node{Labels: map[string]string{"rack": "r2", "zone": "z1", "host": "a"}}},
		{name: "labels that are none", notes: p + `labels=rack`, rest: `,"labels":{"host":"a"}}}`,
			want:  calico.Node{Labels: map[string]string{"host": "a"}},
			wrong: "metadata.annotations[projectcalico.org/labels]: it is no JSON of labels"},
		{name: "a host's addresses, without BGP",
			rest: `},"status":{"addresses":[{"type":"Hostname","address":"a"},` +
				`{"type":"ExternalIP","address":"198.51.100.7"},` +
				`{"type":"InternalIP","address":"192.0.2.7"},` +
				`{"type":"InternalIP","address":"192.0.2.8"},` +
				`{"type":"InternalIP","address":"2001:db8::7"}]}}`,
			want: calico.Node{HostIPv4: addr("192.0.2.7"), HostIPv6: addr("2001:db8::7")}},
		{name: "podCIDR: the tunnel has its first address", podCIDRs: true,
			notes: p + "IPv4IPIPTunnelAddr=10.9.9.9;" + p + "IPv4WireguardInterfaceAddr=10.9.9.8",
			rest:  `},"spec":{"podCIDR":"10.1.4.0/24"}}`,
			want:  calico.Node{IPv4IPIPTunnelAddr: addr("10.1.4.1")}},
		{name: "podCIDR with host bits: the tunnel has the next address", podCIDRs: true,
			rest: `},"spec":{"podCIDR":"10.1.4.5/24"}}`,
			want: calico.Node{IPv4IPIPTunnelAddr: addr("10.1.4.6")}},
		{name: "podCIDR: the same for WireGuard where there is a key", podCIDRs: true,
			notes: p + "WireguardPublicKey=k", rest: `},"spec":{"podCIDR":"10.1.4.0/24"}}`,
			want: calico.Node{IPv4IPIPTunnelAddr: addr("10.1.4.1"),
				WireguardIPv4: addr("10.1.4.1"), WireguardKey: true}},
		{name: "key", notes: p + "WireguardPublicKeyV6=k", rest: `}}`,
			want: calico.Node{WireguardKey: true}},
		{name: "podCIDRs not in use", notes: p + "IPv4IPIPTunnelAddr=10.9.9.9",
			rest: `},"spec":{"podCIDR":"10.1.4.0/24"}}`,
			want: calico.Node{IPv4IPIPTunnelAddr: addr("10.9.9.9")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := converter{podCIDRs: tc.podCIDRs, before: nothing}
			got := nodes.convert(c, obj("edge-7", annotatedNode(tc.notes, tc.rest)))[0].item
			tc.want.Name = "edge-7"
			if !reflect.DeepEqual(got.Value, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got.Value, tc.want)
			}
			if got.Name != "Node(edge-7)" || fmt.Sprint(got.Err) != or(tc.wrong, "<nil>") {
				t.Errorf("%s: %v", got.Name, got.Err)
			}
		})
	}
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// What cannot be used does not end a session: what the Node said before counts.
func TestNodeKeepsWhatItSaidBefore(t *testing.T) {
	before := calico.Node{Name: "edge-7", IPv4: pfx("192.0.2.7/24"), ASNumber: 65001,
		Labels: map[string]string{"rack": "r1", "old": "x"}, WireguardIPv4: addr("10.1.0.3"),
		RouteReflectorClusterID: "10.0.0.1", HostIPv4: addr("192.0.2.7")}
	const p = "projectcalico.org/"
	text := annotatedNode(p+"IPv4Address=?;"+p+"ASNumber=?;"+p+"labels=?;"+p+
		"RouteReflectorClusterID=?;"+p+"IPv4WireguardInterfaceAddr=?;"+p+
		"IPv6Address=2001:db8::7/64", `,"labels":{"rack":"r2"}}}`)
	got := one(t, nodes, converter{before: func(calico.Key) any { return before }},
		obj("edge-7", text))
	want := before
	want.IPv6, want.HostIPv6 = pfx("2001:db8::7/64"), addr("2001:db8::7")
	want.Labels = map[string]string{"rack": "r2", "old": "x"}
	if !reflect.DeepEqual(got.Value, want) {
		t.Errorf("got  %+v\nwant %+v", got.Value, want)
	}
	if strings.Count(fmt.Sprint(got.Err), "metadata.annotations[") != 5 {
		t.Errorf("%v", got.Err)
	}
	if got := one(t, nodes, converter{}, obj("x", `{"spec":{"podCIDRs":7}}`)); got.Value != nil ||
		fmt.Sprint(got.Err) != "spec.podCIDRs: cannot be a JSON number" ||
		got.Key != (calico.Key{Kind: calico.KindNode, Name: "x"}) {
		t.Errorf("%+v", got)
	}
}

func TestPodCIDRsAreBlocks(t *testing.T) {
	c := converter{podCIDRs: true, before: nothing}
	got := nodes.convert(c, obj("a", `{"spec":{"podCIDR":"10.1.4.0/24",`+
		`"podCIDRs":["10.1.4.0/24","fd00:4::/64"]}}`))
	owner := calico.Owner{Host: "a"}
	var places []string
	for i, cidr := range []string{"10.1.4.0/24", "fd00:4::/64"} {
		affinity, block := got[1+2*i].item, got[2+2*i].item
		if affinity.Key != (calico.Key{Kind: calico.KindBlockAffinity, Owner: owner,
			CIDR: pfx(cidr)}) || affinity.Value != calico.AffinityConfirmed {
			t.Errorf("%+v", affinity)
		}
		if !reflect.DeepEqual(block.Value, calico.Block{CIDR: pfx(cidr), Owner: owner}) {
			t.Errorf("%+v", block)
		}
	}
	for _, p := range got {
		places = append(places, p.place)
	}
	// The same places, so that what is gone is deleted.
	for i, p := range nodes.convert(c, obj("a", `{"spec":{"podCIDRs":["0.0.0.0/0"]}}`)) {
		if p.place != places[i] || i > 2 && (p.item.Value != nil || p.item.Err != nil) {
			t.Errorf("%d: %+v", i, p)
		}
		if i == 2 && fmt.Sprint(p.item.Err) != "spec.podCIDRs[0]: it is all addresses" {
			t.Errorf("%v", p.item.Err)
		}
	}
}

func TestPods(t *testing.T) {
	wep := func(ips ...string) calico.WorkloadEndpoint {
		w := calico.WorkloadEndpoint{Namespace: "shop", Name: "edge--7-k8s-web--1-eth0",
			Node: "edge-7", InterfaceName: vethName("shop", "web-1"), Orchestrator: "k8s",
			Workload: "web-1", Endpoint: "eth0", Labels: map[string]string{
				"projectcalico.org/namespace":    "shop",
				"projectcalico.org/orchestrator": "k8s",
			}}
		for _, ip := range ips {
			w.IPNetworks = append(w.IPNetworks, pfx(ip))
		}
		return w
	}
	const spec = `"spec":{"nodeName":"edge-7"}`
	for _, tc := range []struct {
		name, json string
		want       any
		wrong      string
	}{
		{"no node yet", `{"spec":{}}`, nil, ""},
		{"the host's network", `{"spec":{"nodeName":"edge-7","hostNetwork":true},` +
			`"status":{"podIP":"192.0.2.7"}}`, nil, ""},
		{"no address yet", `{` + spec + `}`, wep(), ""},
		{"both families", `{` + spec + `,"status":{"podIP":"10.1.0.9",` +
			`"podIPs":[{"ip":"10.1.0.9"},{"ip":"fd00::9"}]}}`,
			wep("10.1.0.9/32", "fd00::9/128"), ""},
		{"podIP alone", `{` + spec + `,"status":{"podIP":"10.1.0.9"}}`, wep("10.1.0.9/32"), ""},
		{"the status goes before annotations", `{"metadata":{"annotations":{` +
			`"cni.projectcalico.org/podIP":"10.1.0.7/32"}},` + spec +
			`,"status":{"podIP":"10.1.0.9"}}`, wep("10.1.0.9/32"), ""},
		{"the plural annotation first", `{"metadata":{"annotations":{` +
			`"cni.projectcalico.org/podIP":"10.1.0.7/32",` +
			`"cni.projectcalico.org/podIPs":"10.1.0.8/32,fd00::8/128"}},` + spec + `}`,
			wep("10.1.0.8/32", "fd00::8/128"), ""},
		{"the singular annotation", `{"metadata":{"annotations":{` +
			`"cni.projectcalico.org/podIP":"10.1.0.7/32"}},` + spec + `}`, wep("10.1.0.7/32"), ""},
		{"AWS", `{"metadata":{"annotations":{"vpc.amazonaws.com/pod-ips":"10.1.0.6"}},` + spec +
			`}`, wep("10.1.0.6/32"), ""},
		{"no address that is one", `{` + spec + `,"status":{"podIP":"ten"}}`, nil,
			`status.podIP: "ten" is not an address`},
		{"failed", `{` + spec + `,"status":{"phase":"Failed","podIP":"10.1.0.9"}}`, wep(), ""},
		{"succeeded", `{` + spec + `,"status":{"phase":"Succeeded","podIP":"10.1.0.9"}}`, wep(),
			""},
		{"on its way out, with its address", `{"metadata":{"deletionTimestamp":` +
			`"2026-01-01T00:00:00Z","annotations":{"cni.projectcalico.org/podIP":"10.1.0.9"}},` +
			spec + `,"status":{"podIP":"10.1.0.9"}}`, wep("10.1.0.9/32"), ""},
		{"on its way out, of another CNI plugin", `{"metadata":{"deletionTimestamp":` +
			`"2026-01-01T00:00:00Z"},` + spec + `,"status":{"podIP":"10.1.0.9"}}`,
			wep("10.1.0.9/32"), ""},
		{"on its way out, annotation emptied", `{"metadata":{"deletionTimestamp":` +
			`"2026-01-01T00:00:00Z","annotations":{"cni.projectcalico.org/podIP":""}},` + spec +
			`,"status":{"podIP":"10.1.0.9"}}`, wep(), ""},
		{"annotation emptied alone", `{"metadata":{"annotations":{` +
			`"cni.projectcalico.org/podIP":""}},` + spec + `,"status":{"podIP":"10.1.0.9"}}`,
			wep("10.1.0.9/32"), ""},
		{"floating addresses that are none", `{"metadata":{"annotations":{` +
			`"cni.projectcalico.org/floatingIPs":"x"}},` + spec +
			`,"status":{"podIP":"10.1.0.9"}}`, wep("10.1.0.9/32"),
			"metadata.annotations[cni.projectcalico.org/floatingIPs]: it is no JSON list of " +
				"addresses"},
		{"garbage", `{"spec":[]}`, nil, "spec: cannot be a JSON array"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := obj("web-1", tc.json)
			o.namespace = "shop"
			got := one(t, pods, converter{}, o)
			if !reflect.DeepEqual(got.Value, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got.Value, tc.want)
			}
			if fmt.Sprint(got.Err) != or(tc.wrong, "<nil>") {
				t.Errorf("%v", got.Err)
			}
			if got.Value != nil && got.Name != "Pod(shop/web-1)" {
				t.Errorf("name %q", got.Name)
			}
		})
	}
	o := obj("web-1", `{"metadata":{"labels":{"app":"web"},"annotations":{`+
		`"cni.projectcalico.org/floatingIPs":"[\"198.51.100.9\",\"2001:db8::9\"]"}},`+
		`"spec":{"nodeName":"edge-7","serviceAccountName":"sa"},"status":{"podIP":"10.1.0.9"}}`)
	o.namespace = "shop"
	w := one(t, pods, converter{}, o).Value.(calico.WorkloadEndpoint)
	if !reflect.DeepEqual(w.FloatingIPs, []netip.Addr{addr("198.51.100.9")}) ||
		w.Labels["app"] != "web" || w.Labels["projectcalico.org/serviceaccount"] != "sa" {
		t.Errorf("%+v", w)
	}
	long := strings.Repeat("long-", 20) + "name"
	o.json = []byte(strings.Replace(string(o.json), `"sa"`, `"`+long+`"`, 1))
	same := one(t, pods, converter{}, o).Value.(calico.WorkloadEndpoint)
	if got := same.Labels["projectcalico.org/serviceaccount"]; got != long {
		t.Errorf("a long name of a service account: %q", got)
	}
	// echo -n shop.web-1 | sha1sum
	if w.InterfaceName != "cali751425ce827" {
		t.Errorf("interface %s", w.InterfaceName)
	}
}

func TestBlockAffinities(t *testing.T) {
	key := func(o calico.Owner) calico.Key {
		return calico.Key{Kind: calico.KindBlockAffinity, Owner: o, CIDR: pfx("10.1.0.0/26")}
	}
	host, virtual := calico.Owner{Host: "edge-7"}, calico.Owner{Virtual: "load-balancer"}
	const at = `"node":"edge-7","cidr":"10.1.0.0/26"`
	for _, tc := range []struct {
		spec  string
		key   calico.Key
		want  any
		wrong string
	}{
		{at + `,"state":"confirmed","deleted":"false"`, key(host), calico.AffinityConfirmed, ""},
		{at + `,"state":"pending","deleted":false`, key(host), calico.AffinityPending, ""},
		{at + `,"state":"pendingDeletion"`, key(host), calico.AffinityPendingDeletion, ""},
		{at + `,"deleted":""`, key(host), calico.AffinityConfirmed, ""},
		{at + `,"state":"confirmed","deleted":"true"`, calico.Key{}, nil, ""},
		{at + `,"state":"confirmed","deleted":true`, calico.Key{}, nil, ""},
		{at + `,"type":"host"`, key(host), calico.AffinityConfirmed, ""},
		{`"node":"load-balancer","cidr":"10.1.0.0/26","type":"virtual"`, key(virtual),
			calico.AffinityConfirmed, ""},
		{`"node":"edge-7","cidr":"10.1.0.7/26"`, key(host), calico.AffinityConfirmed, ""},
		{at + `,"type":"rack"`, calico.Key{}, nil,
			`spec.type: "rack" is neither host nor virtual`},
		{at + `,"deleted":"maybe"`, calico.Key{}, nil,
			`spec.deleted: "maybe" is not true or false`},
		{at + `,"state":"lost"`, key(host), calico.AffinityState("lost"),
			`spec.state: "lost" is unknown and counts as not confirmed`},
		{`"node":"edge-7","cidr":"10.0.0.0/8"`, calico.Key{}, nil,
			"spec.cidr: block 10.0.0.0/8 is larger than Calico's largest, /20"},
		{`"node":"edge-7"`, calico.Key{}, nil, `spec.cidr: "" is not an address`},
		{`"cidr":"10.1.0.0/26"`, calico.Key{}, nil, "spec.node: it names no node"},
		{`"node":7`, calico.Key{}, nil, "spec.node: cannot be a JSON number"},
	} {
		// The name says another CIDR: names are not parsed.
		got := one(t, blockAffinities, converter{}, obj("edge-7-10-9-9-0-26",
			`{"spec":{`+tc.spec+`}}`))
		if got.Key != tc.key || got.Value != tc.want ||
			fmt.Sprint(got.Err) != or(tc.wrong, "<nil>") {
			t.Errorf("%s:\ngot %+v", tc.spec, got)
		}
		if got.Err != nil && got.Name != "BlockAffinity(edge-7-10-9-9-0-26)" {
			t.Errorf("%s: %q", tc.spec, got.Name)
		}
	}
}

func TestIPAMBlocks(t *testing.T) {
	got := one(t, ipamBlocks, converter{}, obj("10-1-0-0-30", `{"kind":"IPAMBlock","spec":{`+
		`"cidr":"10.1.0.0/30","affinity":"host:edge-7","allocations":[0,null,1,null],`+
		`"attributes":[{"handle_id":"h","secondary":{"node":"edge-7","type":`+
		`"ipipTunnelAddress"}},{"handle_id":"p"}],"sequenceNumber":1733812345678901234}}`))
	want := calico.Block{CIDR: pfx("10.1.0.0/30"), Owner: calico.Owner{Host: "edge-7"},
		Allocations: []calico.Allocation{
			{Address: addr("10.1.0.0"), Node: "edge-7", Type: "ipipTunnelAddress"},
			{Address: addr("10.1.0.2")}}}
	if got.Err != nil || !reflect.DeepEqual(got.Value, want) {
		t.Errorf("%+v", got)
	}
	for spec, wrong := range map[string]string{
		`{"cidr":"10.1.0.0/26","affinity":"rack:1"}`: `spec.affinity: "rack:1" is neither ` +
			`host:NODE nor virtual:NAME`,
		`{"cidr":"ten"}`: `spec.cidr: "ten" is not an address`,
		`"ten"`:          "spec: cannot be a JSON string",
		`{"cidr":"10.1.0.0/26","allocations":"all"}`: "spec.allocations: cannot be a JSON string",
	} {
		got := one(t, ipamBlocks, converter{}, obj("10-1-0-0-26", `{"spec":`+spec+`}`))
		if got.Value != nil || fmt.Sprint(got.Err) != wrong ||
			got.Name != "IPAMBlock(10-1-0-0-26)" {
			t.Errorf("%s: %+v", spec, got)
		}
	}
	if got := one(t, ipamBlocks, converter{}, obj("x", `{"spec":{"cidr":"10.1.0.0/26",`+
		`"deleted":true}}`)); got.Value != nil || got.Err != nil {
		t.Errorf("a deleted block is %+v", got)
	}
}

// The other kinds look as in etcd.
func TestResources(t *testing.T) {
	for _, tc := range []struct {
		kind kind
		name string
		spec string
		want any
	}{
		{ipPools, "pods", `{"cidr":"10.1.0.0/16","blockSize":26,"ipipMode":"Never"}`,
			calico.IPPool{Name: "pods", CIDR: pfx("10.1.0.0/16"), IPIPMode: calico.EncapNever,
				VXLANMode: calico.EncapNever, BlockSize: 26}},
		{bgpConfigurations, "default", `{"asNumber":65000}`,
			calico.BGPConfiguration{Name: "default", ASNumber: 65000}},
		{bgpPeers, "tor", `{"peerIP":"192.0.2.1","asNumber":65001}`,
			calico.BGPPeer{Name: "tor", PeerIP: "192.0.2.1", ASNumber: 65001}},
		{bgpFilters, "f", `{"exportV4":[{"action":"Reject"}]}`, calico.BGPFilter{Name: "f",
			ExportV4: []calico.BGPFilterRule{{Action: "Reject"}}}},
		{felixConfigurations, "default", `{"programClusterRoutes":"Enabled"}`,
			calico.FelixConfiguration{Name: "default", ProgramClusterRoutes: "Enabled"}},
		{clusterInformations, "default", `{"datastoreReady":false,"calicoVersion":"v3.33.0"}`,
			calico.ClusterInformation{NotReady: true, Version: "v3.33.0"}},
	} {
		got := one(t, tc.kind, converter{}, obj(tc.name, `{"apiVersion":`+
			`"crd.projectcalico.org/v1","kind":"`+tc.kind.name+`","metadata":{"name":"`+tc.name+
			`"},"spec":`+tc.spec+`}`))
		if got.Err != nil || !reflect.DeepEqual(got.Value, tc.want) {
			t.Errorf("%s: got %+v", tc.kind.plural, got)
		}
		bad := one(t, tc.kind, converter{}, obj(tc.name, `{"spec":[1]}`))
		if bad.Value != nil || bad.Err == nil || bad.Name != tc.kind.name+"("+tc.name+")" {
			t.Errorf("%s: got %+v", tc.kind.plural, bad)
		}
	}
}

// A pool that Calico 2 wrote says in ipip what ipipMode says today. Calico up to 3.31 has it in the
// CRD and goes by it.
func TestPoolOfCalico2(t *testing.T) {
	for spec, want := range map[string]calico.EncapMode{
		`"ipip":{"enabled":true,"mode":"always"}`:          calico.EncapAlways,
		`"ipip":{"enabled":true}`:                          calico.EncapAlways,
		`"ipip":{"enabled":true,"mode":"cross-subnet"}`:    calico.EncapCrossSubnet,
		`"ipipMode":"Always","ipip":{"enabled":false}`:     calico.EncapNever,
		`"ipipMode":"CrossSubnet","ipip":{"enabled":true}`: calico.EncapAlways,
		`"ipipMode":"CrossSubnet","ipip":null`:             calico.EncapCrossSubnet,
		`"ipipMode":"CrossSubnet"`:                         calico.EncapCrossSubnet,
	} {
		got := one(t, ipPools, converter{}, obj("pods", `{"spec":{"cidr":"10.1.0.0/16",`+spec+`}}`))
		if pool, _ := got.Value.(calico.IPPool); pool.IPIPMode != want || got.Err != nil {
			t.Errorf("%s: %q, %v", spec, pool.IPIPMode, got.Err)
		}
	}
	bad := one(t, ipPools, converter{}, obj("pods", `{"spec":{"cidr":"10.1.0.0/16","ipip":7}}`))
	if bad.Value != nil || fmt.Sprint(bad.Err) != "spec.ipip: cannot be a JSON number" {
		t.Errorf("%+v", bad)
	}
}

func TestReadObject(t *testing.T) {
	for text, wrong := range map[string]string{
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}`:                        "",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop"}}`:      "",
		`{"apiVersion":"projectcalico.org/v3","kind":"IPAMBlock","metadata":{"name":"a"}}`: "",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}`: `kind "Secret" of v1 is ` +
			`not one of Node, Pod, Service`,
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"a","namespace":"x"}}`: `Node(x/a): ` +
			`metadata.namespace is "x"`,
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"a/b"}}`: `Node: metadata.name ` +
			`"a/b" is not a name`,
		`{"apiVersion":"projectcalico.org/v3","kind":"Node"}`: "none",
		`{"apiVersion":"apps/v1","kind":"Deployment"}`:        "none",
		`{"kind":7}`: "none",
	} {
		_, is, err := ReadObject([]byte(text))
		if is != (wrong != "none") || is && fmt.Sprint(err) != or(wrong, "<nil>") {
			t.Errorf("%s: %t, %v", text, is, err)
		}
	}
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`
	o, _, err := ReadObject([]byte(pod))
	if got := o.kind.title(o.object); err != nil || got != "Pod(default/a)" {
		t.Errorf("%s: %s, %v", pod, got, err)
	}
}
