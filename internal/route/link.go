package route

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// Link wants an interface that we make, under a name of ours. A data plane marks it with the name
// and the digest of its settings; another digest makes it anew.
type Link struct {
	Name string
	Kind LinkKind
	MAC  string // as net.HardwareAddr prints it; "": the data plane's choice
	MTU  uint16 // of IP packets that leave by it, in bytes; 0: the data plane's choice

	// Parent and VLAN are of a SubInterface: it has the frames of one with this tag.
	Parent string
	VLAN   uint16

	// HostName is the kernel's name of what an AFPacket is bound to, or of a TAP's other end; ""
	// for a TAP: the kernel's choice.
	HostName string

	// Source is the outer source address of an IPIPTunnel, IPv4, or of a VXLANTunnel.
	Source netip.Addr
	VXLAN  VXLANLink

	TAP   TAPSettings
	Memif MemifSettings
}

// VXLANLink are the settings of a VXLANTunnel. What they say holds for all of its Endpoints, so
// that it is made anew, and they with it, when one changes.
type VXLANLink struct {
	Address netip.Addr // its own, which the tunnels borrow
	VNI     uint32
	Port    uint16 // of both ends
}

// TAPSettings are those of a TAP. Of a size 0 is the data plane's choice.
type TAPSettings struct {
	RxRing, TxRing uint16 // frames
	GSO            bool
}

// MemifSettings are those of a Memif. Of a number but ID 0 is the data plane's choice.
type MemifSettings struct {
	Socket   string // path of the unix socket at which both ends meet
	Master   bool   // it makes the socket
	ID       uint32 // among those of a socket
	Secret   Secret // both ends have the same
	RingSize uint32 // frames
	// BufferSize is in bytes.
	BufferSize         uint16
	RxQueues, TxQueues uint8 // of a slave alone
}

// Secret is never printed.
type Secret string

// Format implements fmt.Formatter.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, "(secret)") }

// MaxLinkName is how many bytes its name can have. The mark must fit into VPP's 63.
const MaxLinkName = 47

// LinkKind is what an interface is.
type LinkKind string

const (
	Loopback     LinkKind = "loopback"
	SubInterface LinkKind = "sub-interface"
	Memif        LinkKind = "memif"               // shared memory with another process
	TAP          LinkKind = "TAP"                 // whose other end is the kernel's
	AFPacket     LinkKind = "AF_PACKET interface" // bound to an interface of the kernel
	IPIPTunnel   LinkKind = "IPIP tunnel"         // to all of its Endpoints
	VXLANTunnel  LinkKind = "VXLAN tunnel"        // the same
)

// LinkKey identifies the interface that we make under a name.
func LinkKey(name string) ObjectKey { return ObjectKey{Kind: MadeLink, Interface: name} }

func (l Link) Key() ObjectKey { return LinkKey(l.Name) }

func (l Link) Digest() uint64 {
	settings := []string{string(l.Kind), l.MAC}
	if l.MTU != 0 {
		settings = append(settings, fmt.Sprint("MTU ", l.MTU))
	}
	switch l.Kind {
	case SubInterface:
		settings = append(settings, l.Parent, fmt.Sprint(l.VLAN))
	case TAP:
		settings = append(settings, l.HostName, fmt.Sprint(l.TAP))
	case AFPacket:
		settings = append(settings, l.HostName)
	case IPIPTunnel:
		settings = append(settings, l.Source.String())
	case VXLANTunnel:
		settings = append(settings, l.Source.String(), fmt.Sprint(l.VXLAN))
	case Memif:
		settings = append(settings, fmt.Sprint(l.Memif), string(l.Memif.Secret))
	}
	return digestOf(strings.Join(settings, "\n"))
}

// Needs: the parent may be one that we make.
func (l Link) Needs() []ObjectKey {
	if l.Parent == "" {
		return nil
	}
	return []ObjectKey{LinkKey(l.Parent)}
}

func (l Link) Marked() bool { return true }

// FoundLink is an interface that is there under a name: with our mark, or another program's.
type FoundLink struct {
	Name string
	Mark uint64 // the digest of the Link it was made for; 0: it is not ours
}

func (f FoundLink) Key() ObjectKey     { return LinkKey(f.Name) }
func (f FoundLink) Digest() uint64     { return max(f.Mark, 1) }
func (f FoundLink) Needs() []ObjectKey { return nil }
func (f FoundLink) Marked() bool       { return f.Mark != 0 }
