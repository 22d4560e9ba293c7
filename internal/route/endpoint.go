package route

import (
	"fmt"
	"net/netip"
)

// Endpoint wants a tunnel interface of ours to lead to a node, and packets of that node alone to
// come in by it. Routes name it by NextHop.
type Endpoint struct {
	Interface string
	Outer     netip.Addr // the node's address
	VXLAN     VXLANSettings
}

// VXLANSettings are those of an Endpoint of VXLAN; of others they are zero.
type VXLANSettings struct {
	Source netip.Addr // of outer headers
	VNI    uint32
	Port   uint16     // of both ends
	MAC    string     // of the node's VXLAN device, as net.HardwareAddr prints it
	Tunnel netip.Addr // of that device, on Linux alone: it is the gateway of routes
}

// EndpointOf returns the endpoint that k identifies, without settings.
func EndpointOf(k ObjectKey) (Endpoint, error) {
	a, err := netip.ParseAddr(k.Name)
	if err == nil && (k.Kind != TunnelEndpoint || a.Is6() && EncapBy(k.Interface) != VXLAN) {
		err = fmt.Errorf("%s is not an endpoint", k)
	}
	return Endpoint{Interface: k.Interface, Outer: a}, err
}

func (e Endpoint) Key() ObjectKey {
	return ObjectKey{TunnelEndpoint, e.Interface, e.Outer.String()}
}

// HasOwnPaths reports whether k is an endpoint that is an interface to the data plane: when it
// goes, the paths of routes through it are lost, though another endpoint takes its place.
func (k ObjectKey) HasOwnPaths() bool {
	return k.Kind == TunnelEndpoint && EncapBy(k.Interface) == VXLAN
}

// IsInterface reports whether k is an interface to the data plane, marked as ours. It may be there
// though the one that k names is not, or is another.
func (k ObjectKey) IsInterface() bool { return k.Kind == MadeLink || k.HasOwnPaths() }

func (e Endpoint) Digest() uint64 {
	if e.VXLAN == (VXLANSettings{}) {
		return endpointDigest
	}
	return digestOf(fmt.Sprint(e.VXLAN))
}

// Needs: an interface that comes up brings all of its endpoints up with it, in one long step.
func (e Endpoint) Needs() []ObjectKey { return linkUp(e.Interface) }

// FoundEndpoint is one that is there, with our mark.
type FoundEndpoint struct {
	Interface string
	Outer     netip.Addr
	Mark      uint64 // the digest of the Endpoint that it was made for; 0: it is not finished
}

func (f FoundEndpoint) Key() ObjectKey {
	return Endpoint{Interface: f.Interface, Outer: f.Outer}.Key()
}
func (f FoundEndpoint) Digest() uint64     { return max(f.Mark, 1) }
func (f FoundEndpoint) Needs() []ObjectKey { return nil }
func (f FoundEndpoint) Marked() bool       { return true }

var endpointDigest = digestOf("endpoint")

// Marked: nobody else has endpoints on an interface of ours.
func (e Endpoint) Marked() bool { return true }

// endpointPrefix is that of ISATAP's link-local addresses, which have an IPv4 address in them (RFC
// 5214 §6.1).
var endpointPrefix = netip.MustParseAddr("fe80::5efe:0:0").As16()

// EndpointHop returns the next hop by which routes name the endpoint of a node on an IPIP
// interface. It is the node's address in a form that no route or neighbour has: by its own address
// VPP would take a neighbour on the uplink for a neighbour on the tunnel, too
// (docs/decisions/0023-teib.md).
func EndpointHop(outer netip.Addr) netip.Addr {
	out, a := endpointPrefix, outer.As4()
	copy(out[12:], a[:])
	return netip.AddrFrom16(out)
}

// NextHop returns the next hop by which routes name e.
func (e Endpoint) NextHop() netip.Addr {
	if EncapBy(e.Interface) == VXLAN {
		return e.Outer
	}
	return EndpointHop(e.Outer)
}

// EndpointBehind returns the node's address of the endpoint that a path leads through.
func EndpointBehind(p Path) (outer netip.Addr, ok bool) {
	if EncapBy(p.Interface) == VXLAN {
		return p.NextHop, p.NextHop.IsValid()
	}
	if p.Interface == "" || !p.NextHop.Is6() {
		return outer, false
	}
	a := p.NextHop.As16()
	outer = netip.AddrFrom4([4]byte(a[12:]))
	return outer, EndpointHop(outer) == p.NextHop
}
