package external

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"vpp-route-agent/internal/external/proto/ligato/linux"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/external/proto/ligato/vpp/l3"
	"vpp-route-agent/internal/route"
)

// Item is one piece of configuration, as its source has it. It is immutable.
type Item struct {
	Key string
	// Message is what is in use: the value, or the last one that was accepted. nil: none was.
	Message proto.Message
	// Canonical is the key of Message in its normal spelling.
	Canonical string
	// Problem refuses the present value.
	Problem Problem
	// Revision is the source's own number for when the present value came.
	Revision int64
	// Labels are what generic clients find the item by. They are never changed.
	Labels map[string]string
}

// Source is all that one source wants. It is immutable.
type Source struct {
	Name  string
	Items map[string]Item // by Item.Key
}

// Snapshot is all that the sources behind an adapter want. It is immutable.
type Snapshot struct {
	Sources []Source // by rank
	// List is the number of the listing that this is from, as fib.Source.List.
	List int
	// Complete: the sources themselves have told all.
	Complete bool
	// Revision is the adapter's own number for it; see Answer.
	Revision int64
	// Edition counts snapshots where Revision does not; see Answer.
	Edition int
	// Resync is the ID of the last request of a client to read everything again that is done.
	Resync string
}

// DecodeJSON makes an item of its key and its JSON. before is what the key held until now: of a
// value that is refused its message stays in use, so that a slip deletes nothing.
func DecodeJSON(key string, value []byte, before Item) Item {
	return decode(key, value, before, protojson.Unmarshal)
}

// DecodeBinary makes an item of its key and its encoded message.
func DecodeBinary(key string, value []byte) Item {
	return decode(key, value, Item{}, proto.Unmarshal)
}

func decode(key string, value []byte, before Item,
	unmarshal func([]byte, proto.Message) error) Item {
	m, problem := newMessage(key)
	if problem.ok() {
		if err := unmarshal(value, m); err != nil {
			problem = undecodable(m, err)
		}
	}
	canonical := ""
	if problem.ok() {
		problem = check(m)
	}
	if problem.ok() {
		if canonical = canonicalKey(m); canonical == key {
			canonical = key // in the memory that it has already
		}
		problem = checkKey(key, canonical, m)
	}
	if !problem.ok() {
		return Item{Key: key, Message: before.Message, Canonical: before.Canonical,
			Problem: problem}
	}
	return Item{Key: key, Message: m, Canonical: canonical}
}

// undecodable quotes no value of an interface, which may be a secret: only where it is, and names
// of fields.
func undecodable(m proto.Message, err error) Problem {
	why := plain(err)
	if _, ok := m.(*vpp.Interface); ok {
		why = withoutValues.FindString(why)
	}
	return invalid("it cannot be decoded: %s", why)
}

var withoutValues = regexp.MustCompile(
	`^proto:[^(]*\(line \d+:\d+\)(: unknown field "\w*")?`)

// plain undoes the non-breaking spaces that protojson puts into errors at random.
func plain(err error) string { return strings.ReplaceAll(err.Error(), "\u00a0", " ") }

// Decode makes an item of a message, whose key follows from it. One that is wrong has no message.
func Decode(m proto.Message) Item {
	model := ModelOf(m)
	if model == nil {
		return Item{Key: string(m.ProtoReflect().Descriptor().FullName()),
			Problem: unimplemented("message %s", m.ProtoReflect().Descriptor().FullName())}
	}
	key, problem := canonicalKey(m), check(m)
	if !model.Carried {
		problem = unimplemented("model %s", model.Name())
	}
	if !problem.ok() {
		return Item{Key: key, Problem: problem}
	}
	return Item{Key: key, Message: m, Canonical: key}
}

// TablesOf returns the tables that an item is in, or leads into.
func TablesOf(m proto.Message) []uint32 {
	switch m := m.(type) {
	case *l3.Route:
		if m.Type == l3.Route_INTER_VRF {
			return []uint32{m.VrfId, m.ViaVrfId}
		}
		return []uint32{m.VrfId}
	case *l3.VrfTable:
		return []uint32{m.Id}
	case *vpp.Interface:
		return []uint32{m.Vrf}
	case *l3.ProxyARP:
		var all []uint32
		for _, r := range m.Ranges {
			all = append(all, r.VrfId)
		}
		return all
	}
	return nil
}

// InterfacesOf returns the interfaces that an item is about, or sends packets to.
func InterfacesOf(m proto.Message) (all []string) {
	switch m := m.(type) {
	case *l3.Route:
		all = []string{m.OutgoingInterface}
	case *l3.ARPEntry:
		all = []string{m.Interface}
	case *l3.L3XConnect:
		all = []string{m.Interface}
		for _, p := range m.Paths {
			all = append(all, p.OutgoingInterface)
		}
	case *vpp.XConnectPair:
		all = []string{m.ReceiveInterface, m.TransmitInterface}
	case *vpp.Interface:
		all = []string{m.Name, m.GetSub().GetParentName(), m.GetAfpacket().GetHostIfName(),
			m.GetTap().GetHostIfName()}
	case *linux.Interface:
		all = []string{m.Name, hostName(m), m.GetVeth().GetPeerIfName()}
	case *linux.Route:
		all = []string{m.OutgoingInterface}
	case *linux.ARPEntry:
		all = []string{m.Interface}
	case *l3.ProxyARP:
		for _, i := range m.Interfaces {
			all = append(all, i.Name)
		}
	}
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

// check looks at a message alone.
func check(m proto.Message) Problem {
	if name := unknownIn(m.ProtoReflect()); name != "" {
		return invalid("%s has fields that this agent does not know", name)
	}
	switch m := m.(type) {
	case *l3.Route:
		return checkRoute(m)
	case *l3.VrfTable:
		return checkTable(m)
	case *l3.ARPEntry:
		if problem := checkNeighbour(m.Interface, m.IpAddress, "phys_address",
			m.PhysAddress); !problem.ok() || m.Static {
			return problem
		}
		return unimplemented("a neighbour that is not static")
	case *l3.L3XConnect:
		return checkL3XConnect(m)
	case *vpp.XConnectPair:
		return checkXConnectPair(m)
	case *vpp.Interface:
		return checkInterface(m)
	case *l3.ProxyARP:
		return checkProxyARP(m)
	case *linux.Interface:
		return checkLinuxInterface(m)
	case *linux.Route:
		return checkLinuxRoute(m)
	case *linux.ARPEntry:
		return checkLinuxNeighbour(m)
	}
	return unimplemented("model %s", m.ProtoReflect().Descriptor().FullName())
}

// unknownIn names a message in m that has bytes of unknown fields. Decoding accepts them silently.
func unknownIn(m protoreflect.Message) (name protoreflect.FullName) {
	if len(m.GetUnknown()) > 0 {
		return m.Descriptor().FullName()
	}
	fields := m.Descriptor().Fields()
	for i := 0; i < fields.Len() && name == ""; i++ {
		switch f := fields.Get(i); {
		case f.Message() == nil || f.IsMap() || !m.Has(f):
		case f.IsList():
			for list, j := m.Get(f).List(), 0; j < list.Len() && name == ""; j++ {
				name = unknownIn(list.Get(j).Message())
			}
		default:
			name = unknownIn(m.Get(f).Message())
		}
	}
	return name
}

const maxUint8 = 255

// checkNetwork reads the network of a route.
func checkNetwork(text string) (p netip.Prefix, _ Problem) {
	if strings.HasPrefix(text, "alloc:") {
		return p, unimplemented("alloc: (model netalloc)")
	}
	given, err := netip.ParsePrefix(text)
	if err != nil {
		return p, invalid("dst_network %.80q is no network", text)
	}
	p, ok := route.Normalize(given)
	switch {
	case !ok:
		return p, invalid("dst_network %.80q is an IPv4-mapped network", text)
	case p.Addr() != given.Addr().Unmap():
		return p, invalid("dst_network %s has host bits set: the network is %s", text, p)
	}
	return p, Problem{}
}

func checkRoute(r *l3.Route) Problem {
	p, problem := checkNetwork(r.DstNetwork)
	switch {
	case !problem.ok():
		return problem
	case !isName(r.OutgoingInterface):
		return invalid("outgoing_interface %.80q is no name of an interface", r.OutgoingInterface)
	case r.Weight > maxUint8:
		return invalid("weight %d is above %d", r.Weight, maxUint8)
	case r.Preference > maxUint8:
		return invalid("preference %d is above %d", r.Preference, maxUint8)
	}
	hop, problem := addressOf("next_hop_addr", r.NextHopAddr)
	if !problem.ok() {
		return problem
	}
	if hop.IsValid() && hop.Is4() != p.Addr().Is4() {
		return unimplemented("a next hop of the other family")
	}
	switch r.Type {
	case l3.Route_INTRA_VRF:
		if r.ViaVrfId != 0 {
			return invalid("via_vrf_id is for INTER_VRF alone")
		}
		if !hop.IsValid() && r.OutgoingInterface == "" {
			return invalid("it has neither next_hop_addr nor outgoing_interface")
		}
	case l3.Route_INTER_VRF:
		return checkInterVRF(r)
	case l3.Route_DROP:
		if hop.IsValid() || r.OutgoingInterface != "" || r.ViaVrfId != 0 {
			return invalid("a DROP route has no next hop, interface or via_vrf_id")
		}
	default:
		return invalid("type %d is none", r.Type)
	}
	return Problem{}
}

func checkInterVRF(r *l3.Route) Problem {
	switch {
	case r.OutgoingInterface != "":
		return invalid("an INTER_VRF route has no outgoing_interface")
	case r.ViaVrfId == r.VrfId:
		return invalid("via_vrf_id %d is the route's own table", r.ViaVrfId)
	}
	return Problem{}
}

// maxLabel is VPP's limit of the name of a table or interface.
const maxLabel = 63

// isName reports whether an interface, or a table, can have this name: VPP has room for 63 bytes.
func isName(s string) bool {
	return len(s) <= maxLabel && !strings.ContainsFunc(s, unicode.IsControl)
}

func checkTable(t *l3.VrfTable) Problem {
	switch {
	case t.Id == 0:
		return invalid("table 0 always exists")
	case t.Protocol != l3.VrfTable_IPV4 && t.Protocol != l3.VrfTable_IPV6:
		return invalid("protocol %d is none", t.Protocol)
	case len(t.Label) > maxLabel:
		return invalid("the label has %d bytes; at most %d", len(t.Label), maxLabel)
	case !isName(t.Label):
		return invalid("the label %.80q has control characters", t.Label)
	case t.FlowHashSettings != nil:
		return unimplemented("field flow_hash_settings")
	}
	return Problem{}
}

func checkNeighbour(on, address, macField, mac string) Problem {
	a, err := netip.ParseAddr(address)
	_, isMAC := canonicalMAC(mac)
	switch {
	case on == "" || !isName(on):
		return invalid("interface %.80q is no name of an interface", on)
	case strings.HasPrefix(address, "alloc:"):
		return unimplemented("alloc: (model netalloc)")
	case err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast():
		return invalid("ip_address %.80q is no address of a neighbour", address)
	case !isMAC:
		return invalid("%s %.80q is no MAC address", macField, mac)
	}
	return Problem{}
}

// canonicalMAC respells six octets with colons between.
func canonicalMAC(text string) (string, bool) {
	octets := strings.Split(text, ":")
	for i, o := range octets {
		n, err := strconv.ParseUint(o, 16, 8)
		if err != nil || len(o) > 2 {
			return "", false
		}
		octets[i] = fmt.Sprintf("%02x", n)
	}
	return strings.Join(octets, ":"), len(octets) == 6
}
