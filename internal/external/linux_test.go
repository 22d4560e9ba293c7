package external

import (
	"strings"
	"testing"

	"vpp-route-agent/internal/external/proto/ligato/linux"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/route"
)

const (
	lin  = "config/linux/interfaces/v2/interface/"
	host = lin + `host = {"name":"host","type":"EXISTING","host_if_name":"eth0",` +
		`"enabled":true,"ip_addresses":["10.0.0.1/24"]}`
	inBlue = lin + `far = {"name":"far","type":"EXISTING","host_if_name":"eth0",` +
		`"namespace":{"type":"NSID","reference":"blue"},"ip_addresses":["10.0.0.1/24"]}`
	vethA = lin + `a = {"name":"a","type":"VETH","enabled":true,"veth":{"peer_if_name":"b"},` +
		`"ip_addresses":["10.1.0.1/30"]}`
	vethB = lin + `b = {"name":"b","type":"VETH","veth":{"peer_if_name":"a"},"mtu":1400,` +
		`"host_if_name":"eth9","namespace":{"type":"FD","reference":"/run//netns/blue"}}`
	viaHost = `config/linux/l3/v2/route/10.7.0.0/16/host = {"outgoing_interface":"host",` +
		`"dst_network":"10.7.0.0/16","gw_addr":"10.0.0.9"}`
	viaFar = `config/linux/l3/v2/route/10.7.0.0/16/far = {"outgoing_interface":"far",` +
		`"dst_network":"10.7.0.0/16","metric":5}`
	nearFar = `config/linux/l3/v2/arp/far/10.0.0.9 = {"interface":"far",` +
		`"ip_address":"10.0.0.9","hw_address":"2:fe:0:0:0:1"}`
	vppEth0 = `config/vpp/v2/interfaces/eth0 = {"name":"eth0","enabled":true}`
)

func TestMergeLinux(t *testing.T) {
	kernel := Policy{Table0: true, Linux: true}
	for _, c := range []struct {
		name     string
		policy   Policy
		sources  []Source
		objects  string
		routes   string
		verdicts string
	}{
		{
			name: "an interface of this namespace", sources: []Source{source(t, "etcd", host)},
			objects: "interface eth0; address 10.0.0.1/24 of eth0",
		},
		{
			name: "equal addresses in two namespaces", sources: []Source{
				source(t, "etcd", host, inBlue)},
			objects: "interface eth0; address 10.0.0.1/24 of /run/netns/blue/eth0; " +
				"address 10.0.0.1/24 of eth0",
		},
		{
			name:    "a pair whose ends are in two namespaces",
			sources: []Source{source(t, "etcd", vethA, vethB)},
			objects: "interface a; address 10.1.0.1/30 of a; new interface /run/netns/blue/eth9; " +
				"new interface a",
		},
		{
			name: "a pair needs both ends", sources: []Source{source(t, "etcd", vethA)},
			verdicts: "etcd interface/a PENDING there is no item of interface b of Linux",
		},
		{
			name: "the other end has another peer", sources: []Source{source(t, "etcd", vethA,
				strings.ReplaceAll(vethB, `"a"`, `"c"`))},
			verdicts: `etcd interface/a PENDING veth.peer_if_name of b is "c"; ` +
				"etcd interface/b PENDING there is no item of interface c of Linux",
		},
		{
			name:    "a route and a neighbour go by the name of an item",
			sources: []Source{source(t, "etcd", inBlue, viaFar, nearFar)},
			objects: "address 10.0.0.1/24 of /run/netns/blue/eth0; " +
				"neighbour 10.0.0.9 on /run/netns/blue/eth0; " +
				"route 10.7.0.0/16 metric 5 over /run/netns/blue/eth0",
		},
		{
			name: "they wait for it", sources: []Source{source(t, "etcd", viaFar, nearFar)},
			verdicts: "etcd arp/far/10.0.0.9 PENDING there is no item of interface far of Linux; " +
				"etcd route/10.7.0.0/16/far PENDING there is no item of interface far of Linux",
		},
		{
			name: "where the FIB is the kernel's, a route is one of table 0", policy: kernel,
			sources: []Source{source(t, "etcd", host, viaHost)},
			objects: "interface eth0; address 10.0.0.1/24 of eth0",
			routes:  "10.7.0.0/16 via 10.0.0.9 eth0",
		},
		{
			name: "and shares it with items of VPP", policy: kernel,
			sources: []Source{source(t, "etcd", host, viaHost), source(t, "grpc",
				`= {"dst_network":"10.7.0.0/16","next_hop_addr":"10.0.0.3"}`)},
			objects: "interface eth0; address 10.0.0.1/24 of eth0",
			routes:  "10.7.0.0/16 via 10.0.0.9 eth0",
			verdicts: "grpc route/vrf/0/dst/10.7.0.0/16/gw/10.0.0.3 PENDING source etcd has " +
				"10.7.0.0/16",
		},
		{
			name: "with the agent's metric", policy: kernel,
			sources: []Source{source(t, "etcd", host, strings.ReplaceAll(viaHost, `"gw_addr"`,
				`"metric":7,"gw_addr"`))},
			objects: "interface eth0; address 10.0.0.1/24 of eth0",
			verdicts: "etcd route/10.7.0.0/16/host UNIMPLEMENTED field metric with this data " +
				"plane, in the agent's namespace",
		},
		{
			name: "in another namespace it is none of the FIB", policy: kernel,
			sources: []Source{source(t, "etcd", inBlue, viaFar)},
			objects: "address 10.0.0.1/24 of /run/netns/blue/eth0; " +
				"route 10.7.0.0/16 metric 5 over /run/netns/blue/eth0",
		},
		{
			name: "an item of VPP about the same device", policy: kernel,
			sources:  []Source{source(t, "etcd", host), source(t, "grpc", vppEth0)},
			objects:  "interface eth0; address 10.0.0.1/24 of eth0",
			verdicts: "grpc interfaces/eth0 PENDING source etcd has interface eth0",
		},
		{
			name: "two names of one device", sources: []Source{source(t, "etcd", host,
				strings.NewReplacer(`"host"`, `"other"`, "/host", "/other").Replace(host))},
			objects: "interface eth0; address 10.0.0.1/24 of eth0",
			verdicts: "etcd interface/other INVALID another " +
				"key of this source is about interface eth0",
		},
		{
			name: "one name in two sources", sources: []Source{source(t, "etcd", host),
				source(t, "grpc", strings.ReplaceAll(host, "eth0", "eth1"))},
			objects:  "interface eth0; address 10.0.0.1/24 of eth0",
			verdicts: "grpc interface/host PENDING source etcd has interface host of Linux",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Merge(c.sources, c.policy)
			var objects, routes []string
			for _, o := range p.Objects {
				objects = append(objects, o.Key().String())
			}
			for _, r := range p.Routes {
				routes = append(routes, r.String())
			}
			if got := strings.Join(objects, "; "); got != c.objects {
				t.Errorf("objects %s\nwant    %s", got, c.objects)
			}
			if got := strings.Join(routes, "; "); got != c.routes {
				t.Errorf("routes %s\nwant   %s", got, c.routes)
			}
			if got := troubles(p); got != c.verdicts {
				t.Errorf("verdicts %s\nwant     %s", got, c.verdicts)
			}
		})
	}
}

// troubles prints the items that the data plane has no part in.
func troubles(p Plan) string {
	var all []string
	for _, v := range Judge(p, Facts{}) {
		if !v.Unfinished {
			_, name, _ := strings.Cut(v.Key, "/v2/")
			all = append(all, v.Source+" "+name+" "+v.State.String()+" "+
				strings.Join(v.Details, ", "))
		}
	}
	return strings.Join(all, "; ")
}

// The host's end of a TAP is an interface that is there when VPP's item is.
func TestMergeTap(t *testing.T) {
	const item = lin + `tap = {"name":"tap","type":"TAP_TO_VPP","enabled":true,` +
		`"tap":{"vpp_tap_if_name":"tap1"}}`
	s := source(t, "etcd", item)
	p := Merge([]Source{s}, Policy{})
	if got, want := troubles(p), "etcd interface/tap PENDING there is no item of TAP interface "+
		"tap1 of VPP"; got != want || len(p.Objects) > 0 {
		t.Errorf("%s, want %s; objects %v", got, want, p.Objects)
	}
	const key = "config/vpp/v2/interfaces/tap1"
	s.Items[key] = Item{Key: key, Message: &vpp.Interface{Name: "tap1", Type: vpp.Interface_TAP}}
	p = Merge([]Source{s}, Policy{Takes: IsLinux})
	if len(p.Objects) != 1 || p.Objects[0] != (route.Up{Interface: "tap"}) {
		t.Errorf("objects %v", p.Objects)
	}
}

func TestCheckLinux(t *testing.T) {
	for text, want := range map[string]string{
		lin + `x = {"name":"x"}`:                "INVALID it has no type",
		lin + `x = {"name":"x","type":"DUMMY"}`: "UNIMPLEMENTED an interface of type DUMMY",
		lin + `x = {"name":"a/b","type":"EXISTING"}`: `INVALID "a/b" is no name of a device: ` +
			"host_if_name must be one",
		lin + `x = {"name":"x","type":"EXISTING","mtu":9000}`: "UNIMPLEMENTED field mtu",
		lin + `x = {"name":"x","type":"EXISTING","link_only":true}`: "" +
			"UNIMPLEMENTED field link_only",
		lin + `x = {"name":"x","type":"VETH"}`: `INVALID veth.peer_if_name "" is no name of ` +
			"another interface",
		lin + `x = {"name":"x","type":"VETH","veth":{"peer_if_name":"y",` +
			`"rx_checksum_offloading":1}}`: "UNIMPLEMENTED field veth.rx_checksum_offloading",
		lin + `x = {"name":"x","type":"TAP_TO_VPP"}`: "INVALID it has no tap.vpp_tap_if_name",
		lin + `x = {"name":"x","type":"EXISTING","namespace":{"type":"PID","reference":"1"}}`: "" +
			"UNIMPLEMENTED namespace of type PID",
		lin + `x = {"name":"x","type":"EXISTING","namespace":{"type":"NSID",` +
			`"reference":"../x"}}`: "" +
			`INVALID namespace "../x" is no name of a network namespace`,
		lin + `x = {"name":"x","type":"EXISTING","namespace":{"type":"FD","reference":"x"}}`: "" +
			`INVALID namespace "x" is no absolute path`,
		`config/linux/l3/v2/route/10.0.0.0/8/x = {"dst_network":"10.0.0.0/8",` +
			`"outgoing_interface":"x","scope":"LINK","gw_addr":"10.0.0.1"}`: "" +
			"INVALID a route of scope LINK has no gw_addr",
		`config/linux/l3/v2/route/2001:db8::/32/x = {"dst_network":"2001:db8::/32",` +
			`"outgoing_interface":"x","scope":"SITE"}`: "" +
			"UNIMPLEMENTED scope SITE of an IPv6 route",
		`config/linux/l3/v2/arp/x/10.0.0.1 = {"interface":"x","ip_address":"10.0.0.1"}`: "" +
			`INVALID hw_address "" is no MAC address`,
	} {
		key, value, _ := strings.Cut(text, " = ")
		p := DecodeJSON(key, []byte(value), Item{}).Problem
		if got := p.State.String() + " " + p.Detail; got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestNamespaceOf(t *testing.T) {
	for want, ns := range map[string]*linux.NetNamespace{
		"":                nil,
		"/run/netns/blue": {Type: linux.NetNamespace_NSID, Reference: "blue"},
		"/proc/1/ns/net":  {Type: linux.NetNamespace_FD, Reference: "/proc/1//ns/net"},
	} {
		if got := NamespaceOf(&linux.Interface{Namespace: ns}); got != want {
			t.Errorf("%v: %s, want %s", ns, got, want)
		}
	}
}
