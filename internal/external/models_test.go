package external

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"vpp-route-agent/internal/external/proto/ligato/linux"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
)

func TestKeysOfMessages(t *testing.T) {
	for _, c := range []struct {
		message proto.Message
		key     string
	}{
		{&l3.Route{DstNetwork: "10.10.0.0/24", NextHopAddr: "10.0.0.1"},
			"config/vpp/v2/route/vrf/0/dst/10.10.0.0/24/gw/10.0.0.1"},
		{&l3.Route{VrfId: 3, DstNetwork: "2001:DB8::/32", NextHopAddr: "FE80::1",
			OutgoingInterface: "GigabitEthernet0/8/0"},
			"config/vpp/v2/route/if/GigabitEthernet0/8/0/vrf/3/dst/2001:db8::/32/gw/fe80::1"},
		{&l3.VrfTable{Id: 3, Protocol: l3.VrfTable_IPV6},
			"config/vpp/v2/vrf-table/id/3/protocol/IPV6"},
		{&l3.ARPEntry{Interface: "loop0", IpAddress: "10.0.0.1"},
			"config/vpp/v2/arp/loop0/10.0.0.1"},
		{&l3.ProxyARP{}, "config/vpp/v2/proxyarp-global"},
		{&l3.DHCPProxy{SourceIpAddress: "10.0.0.1", RxVrfId: 2},
			"config/vpp/v2/dhcp-proxy/IPv4/rx-vrf/2"},
		{&l3.DHCPProxy{SourceIpAddress: "2001:db8::1"},
			"config/vpp/v2/dhcp-proxy/IPv6/rx-vrf/0"},
		{&vpp.Interface{Name: "memif1"}, "config/vpp/v2/interfaces/memif1"},
		{&vpp.ACL{Name: "a"}, "config/vpp/acls/v2/acl/a"},
		{&vpp.Nat44AddressPool{FirstIp: "10.0.0.1", LastIp: "10.0.0.9"},
			"config/vpp/nat/v2/nat44-pool/vrf/0/address/10.0.0.1-10.0.0.9"},
		{&vpp.SecurityPolicy{IsOutbound: true}, "config/vpp/ipsec/v2/sp/spd/0/sa/0/outbound/" +
			"local-addresses/-/remote-addresses/-"},
		{&linux.Route{DstNetwork: "10.1.2.3/16", OutgoingInterface: "eth0"},
			"config/linux/l3/v2/route/10.1.0.0/16/eth0"},
	} {
		if got := Decode(c.message).Key; got != c.key {
			t.Errorf("%T: %s, want %s", c.message, got, c.key)
		}
	}
}

func TestModels(t *testing.T) {
	names := map[string]bool{}
	for _, m := range Models() {
		if names[m.Name()] {
			t.Errorf("%s is there twice", m.Name())
		}
		names[m.Name()] = true
		item := Decode(m.empty) // its template fits the message
		if !strings.HasPrefix(item.Key, m.KeyPrefix()) || modelOfKey(item.Key) != m {
			t.Errorf("%s: key %s", m.Name(), item.Key)
		}
		if !m.Carried && item.Problem != unimplemented("model %s", m.Name()) {
			t.Errorf("%s: %+v", m.Name(), item.Problem)
		}
	}
	if len(names) != len(modelByMessage) {
		t.Errorf("%d models, %d messages", len(names), len(modelByMessage))
	}
}

// Ligato's clients name a route without a next hop with a slash at the end.
func TestSlashAtTheEndOfARoutesKey(t *testing.T) {
	r := &l3.Route{VrfId: 3, DstNetwork: "10.0.0.0/8", Type: l3.Route_DROP}
	if p := checkKey("config/vpp/v2/route/vrf/3/dst/10.0.0.0/8/", canonicalKey(r), r); !p.ok() {
		t.Errorf("%+v", p)
	}
}
