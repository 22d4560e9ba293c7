package external

import (
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/route"
)

// checkInterface refuses what the agent does not carry out.
func checkInterface(i *vpp.Interface) Problem {
	fields := []protoreflect.Name{"name", "type", "enabled", "ip_addresses", "vrf"}
	_, isMAC := canonicalMAC(i.PhysAddress)
	switch makes := linkKinds[i.Type]; {
	case i.Name == "" || !isName(i.Name):
		return invalid("name %.80q is no name of an interface", i.Name)
	case isThere(i):
	case makes.kind == "":
		return unimplemented("making an interface of type %s", i.Type)
	case len(i.Name) > route.MaxLinkName:
		return invalid("the name has %d bytes; at most %d", len(i.Name), route.MaxLinkName)
	case i.PhysAddress != "" && !isMAC:
		return invalid("phys_address %.80q is no MAC address", i.PhysAddress)
	case i.Mtu != 0 && (i.Mtu < minMTU || i.Mtu > maxUint16):
		return invalid("mtu %d is not within %d and %d", i.Mtu, minMTU, maxUint16)
	default:
		if problem := makes.check(i); !problem.ok() {
			return problem
		}
		fields = append(append(fields, "mtu"), makes.fields...)
	}
	if problem := onlyFields("", i, fields...); !problem.ok() {
		return problem
	}
	_, problem := addressesOf(i.Name, i.IpAddresses, i.Vrf)
	return problem
}

// onlyFields refuses a message with other fields. within begins their names.
func onlyFields(within string, m proto.Message, carried ...protoreflect.Name) Problem {
	for _, field := range fieldsIn(m.ProtoReflect()) {
		if !slices.Contains(carried, field) {
			return unimplemented("field %s%s", within, field)
		}
	}
	return Problem{}
}

// isThere reports whether an item is about an interface that is there without it.
func isThere(i *vpp.Interface) bool {
	return i.Type == vpp.Interface_UNDEFINED_TYPE || i.Type == vpp.Interface_DPDK
}

// fieldsIn lists the fields of m that are set, in the order of its file.
func fieldsIn(m protoreflect.Message) (set []protoreflect.Name) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); m.Has(f) {
			set = append(set, f.Name())
		}
	}
	return set
}

// addressesOf returns the addresses of an interface, each once, and why they cannot be.
func addressesOf(device string, texts []string, table uint32) (all []route.Address, _ Problem) {
	var among subnets
	seen := map[route.Address]bool{}
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		a := p.Addr()
		switch {
		case strings.HasPrefix(text, "alloc:"):
			return nil, unimplemented("alloc: (model netalloc)")
		case err != nil:
			return nil, invalid("ip_addresses: %.80q is no address with a length", text)
		case a.Is4In6(), a.IsUnspecified(), a.IsMulticast(), p.Bits() == 0:
			return nil, invalid("ip_addresses: %s is no address of an interface", text)
		case a.Is6() && a.IsLinkLocalUnicast():
			return nil, unimplemented("a link-local address")
		}
		want := route.Address{Interface: device, Address: p, Table: table}
		if seen[want] {
			continue
		}
		if other, ok := among.obstacle(want); ok {
			return nil, invalid("ip_addresses: %s overlaps %s", p, other.Address)
		}
		seen[want] = true
		among.add(want)
		all = append(all, want)
	}
	return all, Problem{}
}

// objectsOf are what an item about an interface wants, the interface first. Without `enabled` one
// that is there is left as it is.
func objectsOf(i *vpp.Interface) (all []route.Object) {
	if !isThere(i) {
		all = append(all, linkOf(i))
	}
	addresses, _ := addressesOf(i.Name, i.IpAddresses, i.Vrf)
	return append(all, objectsOn(i.Name, i.Enabled, addresses)...)
}

// objectsOn are what an item wants on an interface.
func objectsOn(name string, enabled bool, addresses []route.Address) (all []route.Object) {
	if enabled {
		all = append(all, route.Up{Interface: name})
	}
	for _, a := range addresses {
		all = append(all, a)
	}
	return all
}

// familiesOf are those in which an item about an interface needs its table: those of its addresses,
// both if it has none.
func familiesOf(i *vpp.Interface) (all []route.TableID) {
	addresses, _ := addressesOf(i.Name, i.IpAddresses, i.Vrf)
	for _, six := range []bool{false, true} {
		if i.Vrf != 0 && (len(addresses) == 0 || slices.ContainsFunc(addresses,
			func(a route.Address) bool { return a.Address.Addr().Is6() == six })) {
			all = append(all, route.TableID{ID: i.Vrf, IPv6: six})
		}
	}
	return all
}

// requireTables puts an interface into its tables. Without one it is made, and set up, but has no
// address.
func (m *merger) requireTables(p *planned) {
	i, ok := p.item.Message.(*vpp.Interface)
	if !ok || m.claims[p.claim] != p {
		return
	}
	for _, id := range familiesOf(i) {
		if t, ok := m.tables[id]; ok {
			p.objects = append(p.objects, route.InTable{Interface: i.Name, Table: t})
		} else {
			p.missing = append(p.missing, "there is no "+id.String())
		}
	}
	if len(p.missing) > 0 {
		p.objects = slices.DeleteFunc(p.objects, func(o route.Object) bool {
			k := o.Key().Kind
			return k == route.InterfaceAddress || k == route.InterfaceTable
		})
	}
}

// subnets are those of addresses. On one interface they may be equal; else they must not overlap
// within a table. The zero value has none.
type subnets struct {
	lengths []int                    // that were used, sorted
	taken   map[subnet]route.Address // an address in it
	around  map[subnet]route.Address // of lengths: the first address in a smaller one within
}

type subnet struct {
	namespace string
	table     uint32
	prefix    netip.Prefix
}

func subnetOf(a route.Address) subnet {
	namespace, _ := route.SplitNamespace(a.Interface)
	return subnet{namespace, a.Table, a.Address.Masked()}
}

// shortened returns the subnet of a length that contains s.
func (s subnet) shortened(length int) subnet {
	s.prefix = netip.PrefixFrom(s.prefix.Addr(), length).Masked()
	return s
}

// obstacle returns an address because of which a cannot be in its table.
func (s *subnets) obstacle(a route.Address) (route.Address, bool) {
	own := subnetOf(a)
	s.use(own.prefix.Bits())
	for _, n := range s.lengths {
		if n > own.prefix.Bits() {
			break
		}
		other, ok := s.taken[own.shortened(n)]
		if ok && (n < own.prefix.Bits() || other.Interface != a.Interface) {
			return other, true
		}
	}
	other, ok := s.around[own]
	return other, ok
}

func (s *subnets) add(a route.Address) {
	own := subnetOf(a)
	s.use(own.prefix.Bits())
	for _, n := range s.lengths {
		if n < own.prefix.Bits() {
			s.surround(own.shortened(n), a)
		}
	}
	if _, ok := s.taken[own]; !ok {
		s.taken[own] = a
	}
}

// use has around know a length.
func (s *subnets) use(length int) {
	if s.taken == nil {
		s.taken, s.around = map[subnet]route.Address{}, map[subnet]route.Address{}
	}
	at, known := slices.BinarySearch(s.lengths, length)
	if known {
		return
	}
	s.lengths = slices.Insert(s.lengths, at, length)
	for k, a := range s.taken {
		if k.prefix.Bits() > length {
			s.surround(k.shortened(length), a)
		}
	}
}

func (s *subnets) surround(k subnet, a route.Address) {
	if was, ok := s.around[k]; !ok || route.ComparePrefixes(a.Address, was.Address) < 0 {
		s.around[k] = a
	}
}
