package external

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
	"vpp-route-agent/internal/route"
)

// source is one whose items are given as "KEY = JSON"; that of a route may lack its key: "= JSON".
func source(t interface{ Fatal(...any) }, name string, items ...string) Source {
	s := Source{Name: name, Items: map[string]Item{}}
	for _, text := range items {
		key, value, ok := strings.Cut(text, " = ")
		if rest, found := strings.CutPrefix(text, "= "); found {
			r := decodeRoute(rest)
			key, value, ok = canonicalKey(r), rest, true
		}
		if !ok {
			t.Fatal(text)
		}
		s.Items[key] = DecodeJSON(key, []byte(value), s.Items[key])
	}
	return s
}

func decodeRoute(text string) proto.Message {
	i := DecodeJSON(routeKeys, []byte(text), Item{})
	if i.Message != nil {
		return i.Message
	}
	// the key does not fit, which is the only problem
	_, after, _ := strings.Cut(i.Problem.Detail, "whose key is ")
	key := after
	return DecodeJSON(key, []byte(text), Item{}).Message
}

const (
	one   = `= {"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.2"}`
	other = `= {"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.3"}`
	drop  = `config/vpp/v2/route/vrf/0/dst/10.9.1.0/24 = ` +
		`{"type":"DROP","dst_network":"10.9.1.0/24"}`
	table7 = `config/vpp/v2/vrf-table/id/7/protocol/IPV4 = {"id":7,"label":"seven"}`
	near   = `config/vpp/v2/arp/eth0/10.0.0.9 = {"interface":"eth0","ip_address":"10.0.0.9",` +
		`"phys_address":"02:fe:00:00:00:01","static":true}`
	proxy = `config/vpp/v2/proxyarp-global = {"interfaces":[{"name":"tap1"}],"ranges":[` +
		`{"first_ip_addr":"10.1.0.1","last_ip_addr":"10.1.0.9"},` +
		`{"first_ip_addr":"10.1.0.1","last_ip_addr":"10.1.0.9","vrf_id":7}]}`
	in7 = `= {"vrf_id":7,"dst_network":"10.9.1.0/24","outgoing_interface":"eth0"}`
)

var allowed = Policy{Table0: true}

func TestMerge(t *testing.T) {
	for _, c := range []struct {
		name     string
		sources  []Source
		policy   Policy
		routes   string // separated by "; "
		verdicts string
	}{
		{name: "nothing", policy: allowed},
		{
			name: "one route", policy: allowed, sources: []Source{source(t, "etcd", one)},
			routes: "10.9.1.0/24 via 10.0.0.2",
			verdicts: "etcd route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.2 PENDING the data plane has " +
				"not acknowledged it yet",
		},
		{
			name: "paths of one prefix are one route", policy: allowed,
			sources: []Source{source(t, "etcd", one, other)},
			routes:  "10.9.1.0/24 via 10.0.0.2, 10.0.0.3",
		},
		{
			name: "table 0 needs a setting", policy: Policy{},
			sources: []Source{source(t, "etcd", one)},
			verdicts: "etcd route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.2 INVALID routes in table 0 " +
				"are Calico's: --external-table-0 is not set",
		},
		{
			name: "one source wins whole", policy: allowed,
			sources: []Source{source(t, "grpc", one), source(t, "etcd", other)},
			routes:  "10.9.1.0/24 via 10.0.0.2",
			verdicts: "etcd route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.3 PENDING source grpc has " +
				"10.9.1.0/24",
		},
		{
			name: "a refused item reveals the next source's", policy: allowed,
			sources: []Source{
				source(t, "grpc", `config/vpp/v2/route/vrf/0/dst/10.9.1.0/24 = {"x":1}`),
				source(t, "etcd", other),
			},
			routes: "10.9.1.0/24 via 10.0.0.3",
		},
		{
			name: "contradiction within a source", policy: allowed,
			sources: []Source{source(t, "etcd", drop, other)}, routes: "10.9.1.0/24 drop",
			verdicts: "etcd route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.3 INVALID config/vpp/v2/route/" +
				"vrf/0/dst/10.9.1.0/24 says otherwise what to do with packets to 10.9.1.0/24",
		},
		{
			name: "a path twice, in two spellings of its key", policy: allowed,
			sources: []Source{source(t, "etcd",
				`config/vpp/v2/route/vrf/0/dst/fd01::/64/gw/fd00::2 = `+
					`{"dst_network":"fd01::/64","next_hop_addr":"fd00::2"}`,
				`config/vpp/v2/route/vrf/0/dst/fd01::/64/gw/FD00:0::2 = `+
					`{"dst_network":"fd01::/64","next_hop_addr":"FD00:0::2"}`)},
			routes: "fd01::/64 via fd00::2",
			verdicts: "etcd route/vrf/0/dst/fd01::/64/gw/fd00::2 INVALID another key of this " +
				"source has the same path",
		},
		{
			name: "a route that drops, in two spellings of its key", policy: allowed,
			sources: []Source{source(t, "etcd",
				`config/vpp/v2/route/vrf/0/dst/fd01::/64 = `+
					`{"type":"DROP","dst_network":"fd01::/64"}`,
				`config/vpp/v2/route/vrf/0/dst/FD01::/64 = `+
					`{"type":"DROP","dst_network":"FD01::/64"}`)},
			routes: "fd01::/64 drop",
		},
		{
			name: "a table must exist", policy: allowed, sources: []Source{source(t, "etcd", in7)},
			verdicts: "etcd route/if/eth0/vrf/7/dst/10.9.1.0/24 PENDING there is no VRF table 7 " +
				"(IPv4)",
		},
		{
			name: "it may be another source's", policy: allowed,
			sources: []Source{source(t, "grpc", in7), source(t, "etcd", table7)},
			routes:  "10.9.1.0/24 table 7 via eth0",
		},
		{
			name: "a neighbour has one source", policy: allowed,
			sources:  []Source{source(t, "grpc", near), source(t, "etcd", near)},
			verdicts: "etcd arp/eth0/10.0.0.9 PENDING source grpc has neighbour 10.0.0.9 on eth0",
		},
		{
			name: "and one key", policy: allowed, sources: []Source{source(t, "etcd", near,
				strings.Replace(near, "10.0.0.9 =", "::ffff:10.0.0.9 =", 1))},
			verdicts: "etcd arp/eth0/::ffff:10.0.0.9 INVALID another key of this source is about " +
				"neighbour 10.0.0.9 on eth0",
		},
		{
			name: "proxy ARP waits for a table", policy: allowed,
			sources: []Source{source(t, "grpc", proxy), source(t, "etcd", proxy)},
			verdicts: "grpc proxyarp-global PENDING there is no VRF table 7 (IPv4); " +
				"etcd proxyarp-global PENDING source grpc has proxy ARP",
		},
		{
			name: "proxy ARP on Linux", policy: Policy{Linux: true},
			sources:  []Source{source(t, "etcd", proxy)},
			verdicts: "etcd proxyarp-global UNIMPLEMENTED model vpp.proxyarp-global with this",
		},
		{
			name:   "cross-connects",
			policy: Policy{Own: []route.Address{{Interface: "eth0"}}},
			sources: []Source{source(t, "etcd",
				`config/vpp/l2/v2/xconnect/eth0 = {"receive_interface":"eth0",`+
					`"transmit_interface":"a"}`,
				`config/vpp/l2/v2/xconnect/a = {"receive_interface":"a",`+
					`"transmit_interface":"b"}`)},
			verdicts: "etcd config/vpp/l2/v2/xconnect/a PENDING the data plane has not " +
				"acknowledged it yet; etcd config/vpp/l2/v2/xconnect/eth0 FAILED " +
				"eth0 is the uplink of this node",
		},
		{
			name: "cross-connects on Linux", policy: Policy{Linux: true},
			sources: []Source{source(t, "etcd", `config/vpp/v2/l3xconnect/a/protocol/IPV6 = `+
				`{"interface":"a","protocol":"IPV6","paths":[{"outgoing_interface":"b"}]}`)},
			verdicts: "etcd l3xconnect/a/protocol/IPV6 UNIMPLEMENTED model vpp.l3xconnect with " +
				"this data plane",
		},
		{
			name: "without tables", policy: Policy{Table0: true, Linux: true},
			sources: []Source{source(t, "etcd", in7, table7)},
			verdicts: "etcd route/if/eth0/vrf/7/dst/10.9.1.0/24 UNIMPLEMENTED VRF table 7 (IPv4) " +
				"with this data plane; etcd vrf-table/id/7/protocol/IPV4 UNIMPLEMENTED model " +
				"vpp.vrf-table with this data plane",
		},
		{
			name: "a path into a table that is missing keeps the others back", policy: allowed,
			sources: []Source{source(t, "etcd", one, `= {"type":"INTER_VRF","via_vrf_id":9,`+
				`"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.9"}`)},
			verdicts: "etcd route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.2 PENDING another path of " +
				"10.9.1.0/24; etcd route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.9 PENDING " +
				"there is no VRF table 9 (IPv4)",
		},
		{
			name: "a look-up in another table, and back", policy: allowed,
			sources: []Source{source(t, "etcd", table7,
				`= {"type":"INTER_VRF","via_vrf_id":7,"dst_network":"10.9.1.0/24"}`,
				`= {"type":"INTER_VRF","vrf_id":7,"dst_network":"0.0.0.0/0"}`)},
			routes: "10.9.1.0/24 via lookup in table 7; 0.0.0.0/0 table 7 via lookup in table 0",
		},
		{
			name: "weights and preferences", policy: allowed,
			sources: []Source{source(t, "etcd",
				`= {"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.2","weight":3}`,
				`= {"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.3","preference":1}`)},
			routes: "10.9.1.0/24 via 10.0.0.2 weight 3, 10.0.0.3 preference 1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := Merge(c.sources, c.policy)
			var routes []string
			for _, r := range plan.Routes {
				routes = append(routes, r.String())
			}
			if got := strings.Join(routes, "; "); got != c.routes {
				t.Errorf("routes %q, want %q", got, c.routes)
			}
			got := printed(Judge(plan, Facts{}))
			for want := range strings.SplitSeq(c.verdicts, "; ") {
				if want != "" && !strings.Contains(got, want) {
					t.Errorf("verdicts\n%s\nlack %q", got, want)
				}
			}
		})
	}
}

func printed(all []Verdict) string {
	var b strings.Builder
	for _, v := range all {
		key := strings.TrimPrefix(v.Key, "config/vpp/v2/")
		fmt.Fprintf(&b, "%s %s %v %s\n", v.Source, key, v.State, strings.Join(v.Details, ", "))
	}
	return b.String()
}

func TestProxyARPInATable(t *testing.T) {
	plan := Merge([]Source{source(t, "etcd", proxy, table7)}, allowed)
	var got []string
	for _, o := range plan.Objects {
		got = append(got, o.Key().String())
	}
	want := `VRF table 7 (IPv4) "seven"; proxy ARP on tap1; ` +
		`proxy ARP for 0 10.1.0.1 10.1.0.9; proxy ARP for 7 10.1.0.1 10.1.0.9`
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("%s, want %s", text, want)
	}
}

func TestDecode(t *testing.T) {
	good := `config/vpp/v2/route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.2`
	for _, c := range []struct{ key, value, want string }{
		{good, `{"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.2"}`, ""},
		{good, `{"dstNetwork":"10.9.1.0/24","nextHopAddr":"10.0.0.2","type":0}`, ""},
		{"config/vpp/v2/route/if/GigabitEthernet0/8/0/vrf/3/dst/2001:db8::/32/gw/fe80::1",
			`{"vrf_id":3,"dst_network":"2001:DB8::/32","next_hop_addr":"fe80::1",` +
				`"outgoing_interface":"GigabitEthernet0/8/0"}`, ""},
		{"config/vpp/v2/route/vrf/3/dst/10.0.0.0/8", `{"type":"DROP","vrf_id":3,` +
			`"dst_network":"10.0.0.0/8"}`, ""},
		{"config/vpp/v2/route/vrf/3/dst/10.0.0.0/8/gw/0.0.0.0", `{"type":"DROP","vrf_id":3,` +
			`"dst_network":"10.0.0.0/8"}`, ""},
		{"config/vpp/v2/route/vrf/3/dst/10.0.0.0/8/gw", `{"type":"DROP","vrf_id":3,` +
			`"dst_network":"10.0.0.0/8"}`, ""},
		{"config/vpp/v2/vrf-table/id/3/protocol/IPV6", `{"id":3,"protocol":"IPV6"}`, ""},

		{good, `{`, "INVALID it cannot be decoded"},
		{good, ``, "INVALID it cannot be decoded"},
		{good, `{"mtu":3}`, `INVALID it cannot be decoded: proto: (line 1:2): unknown field "mtu"`},
		{good, `{"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.3"}`,
			"INVALID the key does not fit the value, whose key is config/vpp/v2/route/vrf/0/dst/" +
				"10.9.1.0/24/gw/10.0.0.3"},
		{"config/vpp/v2/route/vrf/0/dst/10.9.1.0/24/gw/10.0.0.2",
			`{"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.2","outgoing_interface":"e"}`,
			"INVALID this form of the key, of Ligato before v2.2, is not read: the key of this " +
				"item is config/vpp/v2/route/if/e/vrf/0/dst/10.9.1.0/24/gw/10.0.0.2"},
		{"vpp/config/v1/vrf/0/fib/10.9.1.0/24/10.0.0.2", `{}`, "INVALID keys of Ligato v1"},
		{good, `{"dst_network":"10.9.1.5/24","next_hop_addr":"10.0.0.2"}`, "INVALID dst_network " +
			"10.9.1.5/24 has host bits set: the network is 10.9.1.0/24"},
		{good, `{"dst_network":"alloc:x/y","next_hop_addr":"10.0.0.2"}`, "UNIMPLEMENTED alloc:"},
		{good, `{"dst_network":"10.9.1.0/33"}`, `INVALID dst_network "10.9.1.0/33" is no network`},
		{good, `{"dst_network":"::ffff:1.2.3.0/90"}`, "INVALID dst_network"},
		{good, `{"dst_network":"10.9.1.0/24","next_hop_addr":"fd00::2"}`,
			"UNIMPLEMENTED a next hop of the other family"},
		{good, `{"dst_network":"10.9.1.0/24","next_hop_addr":"x"}`, `INVALID next_hop_addr "x"`},
		{good, `{"dst_network":"10.9.1.0/24"}`, "INVALID it has neither"},
		{good, `{"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.2","weight":256}`,
			"INVALID weight 256 is above 255"},
		{good, `{"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.2","type":7}`,
			"INVALID type 7 is none"},
		{good, `{"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.2","type":"DROP"}`,
			"INVALID a DROP route has"},
		{good, `{"dst_network":"10.9.1.0/24","next_hop_addr":"10.0.0.2","via_vrf_id":2}`,
			"INVALID via_vrf_id is for INTER_VRF alone"},
		{good, `{"dst_network":"10.9.1.0/24","type":"INTER_VRF"}`,
			"INVALID via_vrf_id 0 is the route's own table"},
		{"config/vpp/v2/vrf-table/id/0/protocol/IPV4", `{}`, "INVALID table 0 always exists"},
		{"config/vpp/v2/vrf-table/id/3/protocol/IPV4", `{"id":3,"flow_hash_settings":{}}`,
			"UNIMPLEMENTED field flow_hash_settings"},
		{"config/vpp/v2/vrf-table/id/3/protocol/IPV4", `{"id":3,"label":"` +
			strings.Repeat("x", 64) + `"}`, "INVALID the label has 64 bytes"},
		{"config/vpp/v2/vrf-table/id/3/protocol/IPV4", `{"id":3,"label":"a\u0000"}`,
			`INVALID the label "a\x00" has control characters`},
		{"config/vpp/v2/route/if/a\nb/vrf/0/dst/10.9.1.0/24",
			`{"dst_network":"10.9.1.0/24","outgoing_interface":"a\nb"}`,
			`INVALID outgoing_interface "a\nb" is no name of an interface`},
		{"config/vpp/v2/route/if/" + strings.Repeat("x", 64) + "/vrf/0/dst/10.9.1.0/24",
			`{"dst_network":"10.9.1.0/24","outgoing_interface":"` + strings.Repeat("x", 64) +
				`"}`, `INVALID outgoing_interface "xxx`},
		{"config/vpp/v2/arp/memif0/2001:DB8::1",
			`{"interface":"memif0","ip_address":"2001:db8:0::1","phys_address":"2:0:0:0:0:A",` +
				`"static":true}`, ""},
		{"config/vpp/v2/arp/memif0/10.0.0.1",
			`{"interface":"memif0","ip_address":"10.0.0.1","phys_address":"02:00:00:00:00"}`,
			`INVALID phys_address "02:00:00:00:00" is no MAC address`},
		{"config/vpp/v2/arp/memif0/224.0.0.1",
			`{"interface":"memif0","ip_address":"224.0.0.1"}`,
			`INVALID ip_address "224.0.0.1" is no address of a neighbour`},
		{"config/vpp/v2/arp/memif0/10.0.0.1",
			`{"interface":"memif0","ip_address":"10.0.0.1","phys_address":"02:00:00:00:00:01"}`,
			"UNIMPLEMENTED a neighbour that is not static"},
		{"config/vpp/v2/proxyarp-global",
			`{"ranges":[{"first_ip_addr":"10.1.0.9","last_ip_addr":"10.1.0.1"}]}`,
			"INVALID last_ip_addr 10.1.0.1 is before first_ip_addr 10.1.0.9"},
		{"config/vpp/v2/proxyarp-global", `{"ranges":[{"first_ip_addr":"fd00::1"}]}`,
			`INVALID first_ip_addr "fd00::1" is no IPv4 address`},
		{"config/vpp/v2/proxyarp-global", `{"interfaces":[{}]}`,
			`INVALID interfaces: "" is no name of an interface`},
		{"config/vpp/v2/l3xconnect/a/protocol/IPV4",
			`{"interface":"a","paths":[{"outgoing_interface":"b","next_hop_addr":"10.0.0.1"}]}`,
			""},
		{"config/vpp/v2/l3xconnect/a/protocol/IPV4",
			`{"interface":"a","paths":[{"next_hop_addr":"10.0.0.1"}]}`,
			`INVALID outgoing_interface "" of a path is no name of an interface`},
		{"config/vpp/v2/l3xconnect/a/protocol/IPV4",
			`{"interface":"a","paths":[{"outgoing_interface":"b","next_hop_addr":"fd00::1"}]}`,
			"INVALID next_hop_addr fd00::1 is not of protocol IPV4"},
		{"config/vpp/v2/l3xconnect/a/protocol/IPV4", `{"interface":"a"}`,
			"INVALID it has 0 paths: there must be 1 to 255"},
		{"config/vpp/l2/v2/xconnect/a", `{"receive_interface":"a","transmit_interface":"a"}`,
			"INVALID receive_interface and transmit_interface are one interface"},
		{"config/vpp/v2/interfaces/GigabitEthernet0/8/0", `{"name":"GigabitEthernet0/8/0",` +
			`"type":"DPDK","enabled":true,"ip_addresses":["10.0.0.1/24","10.0.0.2/24",` +
			`"10.0.0.1/24","2001:DB8::1/64"]}`, ""},
		{"config/vpp/v2/interfaces/loop1", `{}`, `INVALID name "" is no name of an interface`},
		{"config/vpp/v2/interfaces/loop1", `{"name":"loop2"}`, "INVALID the key does not fit"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"VXLAN_TUNNEL"}`,
			"UNIMPLEMENTED making an interface of type VXLAN_TUNNEL"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":99}`,
			"UNIMPLEMENTED making an interface of type 99"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"SOFTWARE_LOOPBACK","enabled":true,` +
			`"phys_address":"02:FE:0:0:0:1","ip_addresses":["10.0.0.1/24"]}`, ""},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"SOFTWARE_LOOPBACK",` +
			`"phys_address":"02:fe"}`, `INVALID phys_address "02:fe" is no MAC address`},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"SOFTWARE_LOOPBACK","mtu":68}`, ""},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"SUB_INTERFACE","mtu":65535,` +
			`"sub":{"parent_name":"eth0","sub_id":7}}`, ""},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"SOFTWARE_LOOPBACK","mtu":67}`,
			"INVALID mtu 67 is not within 68 and 65535"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"TAP","mtu":65536}`,
			"INVALID mtu 65536 is not within 68 and 65535"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","mtu":1400}`, "UNIMPLEMENTED field mtu"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"DPDK","mtu":1400}`,
			"UNIMPLEMENTED field mtu"},
		{"config/vpp/v2/interfaces/" + strings.Repeat("x", 48), `{"name":"` +
			strings.Repeat("x", 48) + `","type":"SOFTWARE_LOOPBACK"}`,
			"INVALID the name has 48 bytes; at most 47"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","phys_address":"02:fe:00:00:00:01"}`,
			"UNIMPLEMENTED field phys_address"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"SUB_INTERFACE",` +
			`"sub":{"parent_name":"eth0","sub_id":7}}`, ""},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"SUB_INTERFACE"}`,
			`INVALID sub.parent_name "" is no name of an interface`},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"SUB_INTERFACE",` +
			`"sub":{"parent_name":"eth0","sub_id":4095}}`, "INVALID sub.sub_id 4095 is no VLAN"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"SUB_INTERFACE",` +
			`"sub":{"parent_name":"eth0","sub_id":7,"tag1":3}}`, "UNIMPLEMENTED field sub.tag1"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"MEMIF","memif":{"master":true,` +
			`"id":3,"socket_filename":"/run/t/a_b-1.sock","secret":"hunter2","ring_size":1024,` +
			`"buffer_size":2048}}`, ""},
		{"config/vpp/v2/interfaces/x", memif(`"rx_queues":2,"tx_queues":255`), ""},
		{"config/vpp/v2/interfaces/x", memif(`"mode":"IP"`), "UNIMPLEMENTED field memif.mode IP"},
		{"config/vpp/v2/interfaces/x", memif(`"master":true,"rx_queues":2`),
			"UNIMPLEMENTED field memif.rx_queues of a master"},
		{"config/vpp/v2/interfaces/x", memif(`"master":true,"tx_queues":2`),
			"UNIMPLEMENTED field memif.tx_queues of a master"},
		{"config/vpp/v2/interfaces/x", memif(`"tx_queues":256`),
			"INVALID memif.rx_queues 0 or memif.tx_queues 256 is above 255"},
		{"config/vpp/v2/interfaces/x", memif(`"ring_size":1000`),
			"INVALID memif.ring_size 1000 is no power of 2 up to 16384"},
		{"config/vpp/v2/interfaces/x", memif(`"ring_size":32768`),
			"INVALID memif.ring_size 32768 is no power of 2 up to 16384"},
		{"config/vpp/v2/interfaces/x", memif(`"buffer_size":65536`),
			"INVALID memif.buffer_size 65536 is above 65535"},
		{"config/vpp/v2/interfaces/x", memif(`"secret":"` + strings.Repeat("x", 24) + `"`),
			"INVALID memif.secret has 24 bytes, or control characters; at most 23, and none"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"MEMIF"}`,
			`INVALID memif.socket_filename "" is no absolute path`},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"MEMIF",` +
			`"memif":{"socket_filename":"/run/../etc/x"}}`,
			`INVALID memif.socket_filename "/run/../etc/x" is no absolute path`},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"MEMIF",` +
			`"memif":{"socket_filename":"/run/a,b"}}`,
			`INVALID memif.socket_filename "/run/a,b" is no absolute path`},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"MEMIF","tap":{}}`,
			`INVALID memif.socket_filename "" is no absolute path`},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"TAP"}`, ""},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"TAP","phys_address":"2:0:0:0:0:1",` +
			`"tap":{"version":2,"host_if_name":"tap.7","rx_ring_size":256,"tx_ring_size":32768,` +
			`"enable_gso":true}}`, ""},
		{"config/vpp/v2/interfaces/x", tap(`"version":1`),
			"UNIMPLEMENTED field tap.version 1: VPP has version 2 alone"},
		{"config/vpp/v2/interfaces/x", tap(`"to_microservice":"m"`),
			"UNIMPLEMENTED field tap.to_microservice"},
		{"config/vpp/v2/interfaces/x", tap(`"enable_tunnel":true`),
			"UNIMPLEMENTED field tap.enable_tunnel"},
		{"config/vpp/v2/interfaces/x", tap(`"rx_ring_size":100`),
			"INVALID tap.rx_ring_size 100 is no power of 2 up to 32768"},
		{"config/vpp/v2/interfaces/x", tap(`"tx_ring_size":65536`),
			"INVALID tap.tx_ring_size 65536 is no power of 2 up to 32768"},
		{"config/vpp/v2/interfaces/x", tap(`"host_if_name":"a b"`),
			`INVALID tap.host_if_name "a b" is no name of an interface in Linux`},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"AF_PACKET",` +
			`"afpacket":{"host_if_name":"veth1"}}`, ""},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"AF_PACKET"}`,
			`INVALID afpacket.host_if_name "" is no name of an interface in Linux`},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"AF_PACKET",` +
			`"afpacket":{"host_if_name":"0123456789abcdef"}}`,
			`INVALID afpacket.host_if_name "0123456789abcdef" is no name of an interface in Linux`},
		{"config/vpp/v2/interfaces/x", `{"name":"x","type":"AF_PACKET",` +
			`"afpacket":{"linux_interface":"veth1"}}`,
			"UNIMPLEMENTED field afpacket.linux_interface"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","mtu":1400,"set_dhcp_client":true}`,
			"UNIMPLEMENTED field set_dhcp_client"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","rx_modes":[{}]}`,
			"UNIMPLEMENTED field rx_modes"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","unnumbered":{}}`,
			"UNIMPLEMENTED field unnumbered"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","memif":{}}`, "UNIMPLEMENTED field memif"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","ip_addresses":["alloc:n"]}`,
			"UNIMPLEMENTED alloc:"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","ip_addresses":["10.0.0.1"]}`,
			`INVALID ip_addresses: "10.0.0.1" is no address with a length`},
		{"config/vpp/v2/interfaces/x", `{"name":"x","ip_addresses":["224.0.0.1/24"]}`,
			"INVALID ip_addresses: 224.0.0.1/24 is no address of an interface"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","ip_addresses":["::ffff:10.0.0.1/120"]}`,
			"INVALID ip_addresses: ::ffff:10.0.0.1/120 is no address of an interface"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","ip_addresses":["fe80::1/64"]}`,
			"UNIMPLEMENTED a link-local address"},
		{"config/vpp/v2/interfaces/x", `{"name":"x","ip_addresses":["10.0.0.1/24",` +
			`"10.0.0.2/16"]}`, "INVALID ip_addresses: 10.0.0.2/16 overlaps 10.0.0.1/24"},
		{"config/vpp/nat/v2/dnat44/x", `{}`, "UNIMPLEMENTED model vpp.nat.dnat44"},
	} {
		i := DecodeJSON(c.key, []byte(c.value), Item{})
		got := ""
		if !i.Problem.ok() {
			got = i.Problem.State.String() + " " + i.Problem.Detail
		}
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s = %s: %q, want %q", c.key, c.value, got, c.want)
		}
		if (i.Message != nil) != (c.want == "") {
			t.Errorf("%s = %s: message %v", c.key, c.value, i.Message)
		}
	}
}

func TestABadValueKeepsTheLastGoodOne(t *testing.T) {
	s := source(t, "etcd", one)
	for key, good := range s.Items {
		bad := DecodeJSON(key, []byte("{"), good)
		if bad.Message != good.Message || bad.Problem.State != Invalid {
			t.Errorf("after a bad value: %+v", bad)
		}
		s.Items[key] = bad
	}
	plan := Merge([]Source{s}, allowed)
	v := Judge(plan, Facts{})[0]
	if len(plan.Routes) != 1 || v.State != Invalid || !v.LastGood {
		t.Errorf("%v, %+v", plan.Routes, v)
	}
}

func TestUnknownBytesAreRefused(t *testing.T) {
	m := &l3.VrfTable{Id: 3}
	m.ProtoReflect().SetUnknown([]byte{0x78, 1}) // field 15
	if p := check(m); p.State != Invalid || !strings.Contains(p.Detail, "VrfTable") {
		t.Errorf("%+v", p)
	}
	m = &l3.VrfTable{Id: 3, FlowHashSettings: &l3.VrfTable_FlowHashSettings{}}
	m.FlowHashSettings.ProtoReflect().SetUnknown([]byte{0x78, 1})
	if p := check(m); p.State != Invalid || !strings.Contains(p.Detail, "FlowHashSettings") {
		t.Errorf("%+v", p)
	}
}

func FuzzDecodeJSON(f *testing.F) {
	f.Add("config/vpp/v2/route/if/a/vrf/3/dst/10.0.0.0/8/gw/1.2.3.4", []byte(one[2:]))
	f.Add("config/vpp/v2/vrf-table/id/3/protocol/IPV4", []byte(`{"id":3}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		i := DecodeJSON(key, value, Item{})
		if i.Problem.ok() != (i.Message != nil) {
			t.Errorf("%+v", i)
		}
		s := Source{Name: "s", Items: map[string]Item{key: i}}
		Judge(Merge([]Source{s}, allowed), Facts{})
	})
}
