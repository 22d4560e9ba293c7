package external

import (
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/proto"

	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
)

// A key is what follows /vnf-agent/NODE/ in etcd: config/MODULE/VERSION/TYPE/NAME. Ligato's models
// are at version v2 in its releases v2 and v3.
const (
	routeKeys = "config/vpp/v2/route/"
	tableKeys = "config/vpp/v2/vrf-table/"
	// oldKeys begin the keys of Ligato v1.
	oldKeys = "vpp/config/v1/"
)

// KeyPrefixes begin all keys that a source reads. Those of Ligato v1 are only refused.
func KeyPrefixes() []string { return []string{"config/", oldKeys} }

// models are Ligato's other models by the beginning of their keys.
var models = []struct{ keys, name string }{
	{"config/vpp/v2/interfaces/", "vpp.interfaces"},
	{"config/vpp/v2/arp/", "vpp.arp"},
	{"config/vpp/v2/proxyarp-global", "vpp.proxyarp-global"},
	{"config/vpp/v2/ipscanneigh-global", "vpp.ipscanneigh-global"},
	{"config/vpp/v2/dhcp-proxy/", "vpp.dhcp-proxy"},
	{"config/vpp/v2/l3xconnect/", "vpp.l3xconnect"},
	{"config/linux/interfaces/v2/interface/", "linux.interfaces.interface"},
	{"config/linux/l3/v2/route/", "linux.l3.route"},
	{"config/linux/l3/v2/arp/", "linux.l3.arp"},
}

// newMessage returns an empty message of the model whose key this is.
func newMessage(key string) (proto.Message, Problem) {
	switch {
	case strings.HasPrefix(key, routeKeys):
		return &l3.Route{}, Problem{}
	case strings.HasPrefix(key, tableKeys):
		return &l3.VrfTable{}, Problem{}
	case strings.HasPrefix(key, oldKeys):
		return nil, invalid("keys of Ligato v1 are not read; a route has the key %s", newForm)
	}
	for _, m := range models {
		if strings.HasPrefix(key, m.keys) {
			return nil, unimplemented("model %s", m.name)
		}
	}
	parts := strings.Split(key, "/")
	return nil, unimplemented("model of %s", strings.Join(parts[:min(len(parts), 4)], "/"))
}

const newForm = routeKeys + "[if/INTERFACE/]vrf/ID/dst/NETWORK/LENGTH[/gw/NEXTHOP]"

// canonicalKey returns the key of a message that passed check: addresses in their usual spelling,
// and no gateway where there is none.
func canonicalKey(m proto.Message) string {
	switch m := m.(type) {
	case *l3.Route:
		return routeKey(m.OutgoingInterface, fmt.Sprint(m.VrfId), m.DstNetwork, m.NextHopAddr)
	case *l3.VrfTable:
		return fmt.Sprintf("%sid/%d/protocol/%v", tableKeys, m.Id, m.Protocol)
	}
	return ""
}

func routeKey(out, table, network, hop string) string {
	key := routeKeys
	if out != "" {
		key += "if/" + out + "/"
	}
	if p, err := netip.ParsePrefix(network); err == nil {
		network = p.Masked().String()
	}
	key += "vrf/" + table + "/dst/" + network
	if a, err := netip.ParseAddr(hop); err == nil && !a.IsUnspecified() {
		key += "/gw/" + a.Unmap().String()
	} else if err != nil && hop != "" {
		key += "/gw/" + hop
	}
	return key
}

// normalKey respells a key of a route as canonicalKey would. Names of interfaces may have slashes,
// so it looks for the last part of each name.
func normalKey(key string) string {
	rest, ok := strings.CutPrefix(key, routeKeys)
	if !ok {
		return key
	}
	i := strings.LastIndex(rest, "/dst/")
	if i < 0 {
		return key
	}
	head, tail := "/"+rest[:i], rest[i+len("/dst/"):]
	j := strings.LastIndex(head, "/vrf/")
	if j < 0 {
		return key
	}
	table, out := head[j+len("/vrf/"):], head[:j]
	if out != "" {
		if out, ok = strings.CutPrefix(out, "/if/"); !ok {
			return key
		}
	}
	network, hop, _ := strings.Cut(tail, "/gw")
	return routeKey(out, table, network, strings.TrimPrefix(hop, "/"))
}

// checkKey reports whether key is one of the spellings of the message's own key.
func checkKey(key string, m proto.Message) Problem {
	want := canonicalKey(m)
	if normalKey(key) == want {
		return Problem{}
	}
	if r, ok := m.(*l3.Route); ok && r.OutgoingInterface != "" {
		without := routeKey("", fmt.Sprint(r.VrfId), r.DstNetwork, r.NextHopAddr)
		if normalKey(key) == without {
			return invalid("this form of the key, of Ligato before v2.2, is not read: "+
				"the key of this item is %s", want)
		}
	}
	return invalid("the key does not fit the value, whose key is %s", want)
}
