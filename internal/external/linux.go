package external

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"

	"vpp-route-agent/internal/external/proto/ligato/linux"
	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/route"
)

// Items of Linux name an interface by the name of its item, which says the device and its network
// namespace. Routes and neighbours wait for that item.

// IsLinux reports whether a key is that of an item of Linux.
func IsLinux(key string) bool { return strings.HasPrefix(key, "config/linux/") }

// namedNamespaces is where `ip netns` keeps namespaces.
const namedNamespaces = "/run/netns/"

// NamespaceOf returns the path of the namespace that an interface is in; "": the agent's own.
func NamespaceOf(i *linux.Interface) string {
	if i.GetNamespace() == nil {
		return ""
	}
	return NamespacePath(i.Namespace.Reference)
}

// NamespacePath returns the path of a namespace, of which this is the name or a path; "": "".
func NamespacePath(reference string) string {
	switch {
	case reference == "":
		return ""
	case path.IsAbs(reference):
		return path.Clean(reference)
	}
	return namedNamespaces + reference
}

func checkNamespace(ns *linux.NetNamespace) Problem {
	ref := ns.GetReference()
	switch ns.GetType() {
	case linux.NetNamespace_UNDEFINED:
		if ref != "" {
			return invalid("namespace has a reference and no type")
		}
	case linux.NetNamespace_NSID:
		if !isFileName(ref) {
			return invalid("namespace %.80q is no name of a network namespace", ref)
		}
	case linux.NetNamespace_FD:
		if !path.IsAbs(ref) || strings.ContainsFunc(ref, unicode.IsControl) {
			return invalid("namespace %.80q is no absolute path", ref)
		}
	default:
		return unimplemented("namespace of type %s", ns.GetType())
	}
	return Problem{}
}

func isFileName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.Contains(s, "/") &&
		!strings.ContainsFunc(s, unicode.IsControl)
}

// maxDevice is IFNAMSIZ without the byte at the end.
const maxDevice = 15

// isDevice reports whether an interface of Linux can have this name (dev_valid_name).
func isDevice(s string) bool {
	return isFileName(s) && len(s) <= maxDevice && !strings.Contains(s, ":") &&
		!strings.ContainsFunc(s, unicode.IsSpace)
}

// hostName is the name of its device.
func hostName(i *linux.Interface) string { return cmp.Or(i.HostIfName, i.Name) }

// deviceOf is what the FIB calls the interface of an item.
func deviceOf(i *linux.Interface) string { return route.InNamespace(NamespaceOf(i), hostName(i)) }

// linuxFields are those that the agent carries out, by type.
var linuxFields = map[linux.Interface_Type][]protoreflect.Name{
	linux.Interface_EXISTING:   nil,
	linux.Interface_TAP_TO_VPP: {"tap"},
	linux.Interface_VETH:       {"veth", "phys_address", "mtu"},
}

func checkLinuxInterface(i *linux.Interface) Problem {
	fields, carried := linuxFields[i.Type]
	_, isMAC := canonicalMAC(i.PhysAddress)
	switch {
	case i.Name == "" || !isName(i.Name):
		return invalid("name %.80q is no name of an interface", i.Name)
	case i.Type == linux.Interface_UNDEFINED:
		return invalid("it has no type")
	case !carried:
		return unimplemented("an interface of type %s", i.Type)
	case !isDevice(hostName(i)):
		return invalid("%.80q is no name of a device: host_if_name must be one", hostName(i))
	}
	for _, f := range fieldsIn(i.ProtoReflect()) {
		if !slices.Contains(fields, f) && !slices.Contains([]protoreflect.Name{"name", "type",
			"namespace", "host_if_name", "enabled", "ip_addresses"}, f) {
			return unimplemented("field %s", f)
		}
	}
	for _, f := range fieldsIn(i.GetVeth().ProtoReflect()) {
		if f != "peer_if_name" {
			return unimplemented("field veth.%s", f)
		}
	}
	peer := i.GetVeth().GetPeerIfName()
	switch {
	case i.Type == linux.Interface_VETH && (peer == "" || !isName(peer) || peer == i.Name):
		return invalid("veth.peer_if_name %.80q is no name of another interface", peer)
	case i.Type == linux.Interface_TAP_TO_VPP && i.GetTap().GetVppTapIfName() == "":
		return invalid("it has no tap.vpp_tap_if_name")
	case i.PhysAddress != "" && !isMAC:
		return invalid("phys_address %.80q is no MAC address", i.PhysAddress)
	}
	if problem := checkNamespace(i.Namespace); !problem.ok() {
		return problem
	}
	_, problem := addressesOf(deviceOf(i), i.IpAddresses, 0)
	return problem
}

// objectsOfLinux are what an item about an interface wants, but the interface.
func objectsOfLinux(i *linux.Interface) []route.Object {
	addresses, _ := addressesOf(deviceOf(i), i.IpAddresses, 0)
	return objectsOn(deviceOf(i), i.Enabled, addresses)
}

func checkLinuxNeighbour(e *linux.ARPEntry) Problem {
	return checkNeighbour(e.Interface, e.IpAddress, "hw_address", e.HwAddress)
}

func checkLinuxRoute(r *linux.Route) Problem {
	p, problem := checkNetwork(r.DstNetwork)
	if !problem.ok() {
		return problem
	}
	gateway, problem := addressOf("gw_addr", r.GwAddr)
	switch {
	case !problem.ok():
		return problem
	case r.OutgoingInterface == "" || !isName(r.OutgoingInterface):
		return invalid("outgoing_interface %.80q is no name of an interface", r.OutgoingInterface)
	case linux.Route_Scope_name[int32(r.Scope)] == "":
		return invalid("scope %d is none", r.Scope)
	case gateway.IsValid() && gateway.Is4() != p.Addr().Is4():
		return unimplemented("a gateway of the other family")
	case gateway.IsValid() && r.Scope >= linux.Route_LINK:
		return invalid("a route of scope %s has no gw_addr", r.Scope)
	case p.Addr().Is6() && r.Scope != linux.Route_UNDEFINED && r.Scope != linux.Route_GLOBAL &&
		r.Scope != linux.Route_LINK:
		return unimplemented("scope %s of an IPv6 route", r.Scope)
	}
	return Problem{}
}

// linuxScopes are the kernel's numbers (rtnetlink(7)).
var linuxScopes = map[linux.Route_Scope]uint8{
	linux.Route_GLOBAL: 0, linux.Route_SITE: 200, linux.Route_LINK: 253, linux.Route_HOST: 254,
}

// ip6Metric is what the kernel makes of metric 0 in IPv6 (IP6_RT_PRIO_USER).
const ip6Metric = 1024

// linuxRouteOf is a route over a device. Without a scope it has the one that `ip route` chooses.
func linuxRouteOf(r *linux.Route, device string) route.LinuxRoute {
	gateway, _ := addressOf("", r.GwAddr)
	out := route.LinuxRoute{Interface: device, Network: mustPrefix(r.DstNetwork),
		Metric: r.Metric, Gateway: gateway}
	if out.Network.Addr().Is6() {
		out.Metric = cmp.Or(out.Metric, ip6Metric)
		return out
	}
	out.Scope = linuxScopes[cmp.Or(r.Scope, usualScope(gateway))]
	return out
}

func usualScope(gateway netip.Addr) linux.Route_Scope {
	if gateway.IsValid() {
		return linux.Route_GLOBAL
	}
	return linux.Route_LINK
}

// nameLinux has other items of Linux know an interface by its name. Of several with one name the
// first has it.
func (m *merger) nameLinux(p *planned) {
	i, ok := p.item.Message.(*linux.Interface)
	if !ok {
		return
	}
	if first := m.named[i.Name]; first == nil {
		m.named[i.Name] = p
	} else {
		p.missing = append(p.missing,
			fmt.Sprintf("source %s has interface %s of Linux", first.source, i.Name))
	}
}

// placeLinux says what an item on an interface of Linux is about, now that all names are known.
func (m *merger) placeLinux(p *planned) {
	var name string
	switch i := p.item.Message.(type) {
	case *linux.Route:
		name = i.OutgoingInterface
	case *linux.ARPEntry:
		name = i.Interface
	default:
		return
	}
	on := m.named[name]
	if on == nil {
		p.missing = append(p.missing, noLinuxItem(name))
		return
	}
	device := deviceOf(on.item.Message.(*linux.Interface))
	switch i := p.item.Message.(type) {
	case *linux.ARPEntry:
		p.claims(neighbourOf(device, i.IpAddress, i.HwAddress))
	case *linux.Route:
		namespace, _ := route.SplitNamespace(device)
		r := linuxRouteOf(i, device)
		if m.policy.Linux && namespace == "" {
			p.isFIBRoute(i, r)
			return
		}
		p.claims(r)
		p.claim = fmt.Sprintf("route %s metric %d of namespace %q", r.Network, r.Metric, namespace)
	}
}

func noLinuxItem(name string) string {
	return "there is no item of interface " + name + " of Linux"
}

// isFIBRoute: where the FIB is the kernel's, a route in the agent's own namespace is one of the
// FIB, as a route of VPP in table 0 would be. It has the agent's metric.
func (p *planned) isFIBRoute(i *linux.Route, r route.LinuxRoute) {
	usual := usualScope(r.Gateway)
	switch {
	case i.Metric != 0:
		p.problem = unimplemented("field metric with this data plane, in the agent's namespace")
	case i.Scope != linux.Route_UNDEFINED && i.Scope != usual && r.Network.Addr().Is4():
		p.problem = unimplemented("scope %s with this data plane, in the agent's namespace",
			i.Scope)
	}
	p.isRoute, p.key = true, route.Key{Prefix: r.Network}
	p.path = route.Path{NextHop: r.Gateway, Interface: r.Interface, Weight: 1}
}

// requirePeer has an end of a veth pair wait for the item of the other, which must want the same
// pair.
func (m *merger) requirePeer(p *planned) {
	i, ok := p.item.Message.(*linux.Interface)
	if !ok || i.Type != linux.Interface_VETH || m.claims[p.claim] != p {
		return
	}
	name := i.GetVeth().GetPeerIfName()
	other := m.named[name]
	if other == nil || m.claims[other.claim] != other {
		p.missing, p.objects = append(p.missing, noLinuxItem(name)), nil
		return
	}
	peer := other.item.Message.(*linux.Interface)
	if back := peer.GetVeth().GetPeerIfName(); back != i.Name {
		p.missing = append(p.missing,
			fmt.Sprintf("veth.peer_if_name of %s is %.80q", name, back))
		p.objects = nil
		return
	}
	mac, _ := canonicalMAC(i.PhysAddress)
	end := route.VethEnd{Name: deviceOf(i), Peer: deviceOf(peer), MAC: mac, MTU: i.Mtu}
	p.objects = slices.Insert(p.objects, 0, route.Object(end))
}

// requireTap has the host's end of a TAP interface wait for the item of VPP's.
func (m *merger) requireTap(p *planned) {
	i, ok := p.item.Message.(*linux.Interface)
	if !ok || i.Type != linux.Interface_TAP_TO_VPP || m.claims[p.claim] != p {
		return
	}
	name := i.GetTap().GetVppTapIfName()
	key := ModelOf(&vpp.Interface{}).KeyPrefix() + name
	for _, s := range m.sources {
		if tap, ok := s.Items[key].Message.(*vpp.Interface); ok && tap.Type == vpp.Interface_TAP {
			return
		}
	}
	p.missing = append(p.missing, "there is no item of TAP interface "+name+" of VPP")
	p.objects = nil
}
