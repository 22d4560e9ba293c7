package external

import (
	"net/netip"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
)

// A key is what follows /vnf-agent/NODE/ in etcd: config/MODULE/VERSION/TYPE/NAME. Ligato's models
// are at version v2 in its releases v2 and v3.
const (
	routeKeys     = "config/vpp/v2/route/"
	neighbourKeys = "config/vpp/v2/arp/"
	// oldKeys begin the keys of Ligato v1.
	oldKeys = "vpp/config/v1/"
)

// KeyPrefixes begin all keys that a source reads. Those of Ligato v1 are only refused.
func KeyPrefixes() []string { return []string{"config/", oldKeys} }

// newMessage returns an empty message of the model whose key this is.
func newMessage(key string) (proto.Message, Problem) {
	if strings.HasPrefix(key, oldKeys) {
		return nil, invalid("keys of Ligato v1 are not read; a route has the key %s", newForm)
	}
	if m := modelOfKey(key); m != nil {
		if !m.Carried {
			return nil, unimplemented("model %s", m.Name())
		}
		return m.empty.ProtoReflect().New().Interface(), Problem{}
	}
	parts := strings.Split(key, "/")
	return nil, unimplemented("model of %s", strings.Join(parts[:min(len(parts), 4)], "/"))
}

const newForm = routeKeys + "[if/INTERFACE/]vrf/ID/dst/NETWORK/LENGTH[/gw/NEXTHOP]"

// canonicalKey returns the key of a message of one of Models: addresses of a route or neighbour in
// their usual spelling, and no gateway where there is none.
func canonicalKey(m proto.Message) string {
	switch m := m.(type) {
	case *l3.Route:
		return routeKey(m.OutgoingInterface, tableText(m.VrfId), m.DstNetwork, m.NextHopAddr)
	case *l3.ARPEntry:
		return neighbourKeys + m.Interface + "/" + canonicalAddress(m.IpAddress)
	}
	return ModelOf(m).key(m)
}

func routeKey(out, table, network, hop string) string {
	key := append(make([]byte, 0, 128), routeKeys...)
	if out != "" {
		key = append(append(append(key, "if/"...), out...), '/')
	}
	key = append(append(append(key, "vrf/"...), table...), "/dst/"...)
	if p, err := netip.ParsePrefix(network); err == nil {
		key = p.Masked().AppendTo(key)
	} else {
		key = append(key, network...)
	}
	switch a, err := netip.ParseAddr(hop); {
	case err == nil && !a.IsUnspecified():
		key = a.Unmap().AppendTo(append(key, "/gw/"...))
	case err != nil && hop != "":
		key = append(append(key, "/gw/"...), hop...)
	}
	return string(key)
}

func tableText(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// SameKey reports whether both are spellings of one key.
func SameKey(a, b string) bool { return a == b || NormalKey(a) == NormalKey(b) }

// NormalKey respells a key of a route or neighbour as that of its item: addresses in their usual
// spelling, and no gateway where there is none. Names of interfaces may have slashes, so it looks
// for the last part of each name.
func NormalKey(key string) string {
	if i := strings.LastIndex(key, "/"); strings.HasPrefix(key, neighbourKeys) {
		return key[:i+1] + canonicalAddress(key[i+1:])
	}
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
	network, hop, _ := strings.Cut(strings.TrimSuffix(tail, "/"), "/gw")
	return routeKey(out, table, network, strings.TrimPrefix(hop, "/"))
}

// canonicalAddress respells an address.
func canonicalAddress(text string) string {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Unmap().String()
	}
	return text
}

// checkKey reports whether key is one of the spellings of the message's own key, want.
func checkKey(key, want string, m proto.Message) Problem {
	if key == want || NormalKey(key) == want {
		return Problem{}
	}
	if r, ok := m.(*l3.Route); ok && r.OutgoingInterface != "" {
		without := routeKey("", tableText(r.VrfId), r.DstNetwork, r.NextHopAddr)
		if NormalKey(key) == without {
			return invalid("this form of the key, of Ligato before v2.2, is not read: "+
				"the key of this item is %s", want)
		}
	}
	return invalid("the key does not fit the value, whose key is %s", want)
}
