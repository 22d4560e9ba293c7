package external

import (
	"path"
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"vpp-route-agent/internal/external/proto/ligato/vpp"
	"vpp-route-agent/internal/route"
)

// linkKind is how an item wants an interface of a type that the agent makes.
type linkKind struct {
	kind   route.LinkKind
	fields []protoreflect.Name // that this type has besides
	check  func(*vpp.Interface) Problem
}

var linkKinds = map[vpp.Interface_Type]linkKind{
	vpp.Interface_SOFTWARE_LOOPBACK: {route.Loopback, []protoreflect.Name{"phys_address"},
		func(*vpp.Interface) Problem { return Problem{} }},
	vpp.Interface_SUB_INTERFACE: {route.SubInterface, []protoreflect.Name{"sub"},
		func(i *vpp.Interface) Problem { return checkSubInterface(i.GetSub()) }},
	vpp.Interface_MEMIF: {route.Memif, []protoreflect.Name{"phys_address", "memif"},
		func(i *vpp.Interface) Problem { return checkMemif(i.GetMemif()) }},
	vpp.Interface_TAP: {route.TAP, []protoreflect.Name{"phys_address", "tap"},
		func(i *vpp.Interface) Problem { return checkTAP(i.GetTap()) }},
	vpp.Interface_AF_PACKET: {route.AFPacket, []protoreflect.Name{"phys_address", "afpacket"},
		func(i *vpp.Interface) Problem { return checkAFPacket(i.GetAfpacket()) }},
}

// minMTU is IPv4's (RFC 791 section 3.2). VPP takes any number, and cuts off what is above 16 bits
// (src/vnet/adj/rewrite.h).
const minMTU = 68

// linkOf is for messages that passed checkInterface.
func linkOf(i *vpp.Interface) route.Link {
	mac, _ := canonicalMAC(i.PhysAddress)
	l := route.Link{Name: i.Name, Kind: linkKinds[i.Type].kind, MAC: mac, MTU: uint16(i.Mtu)}
	switch l.Kind {
	case route.SubInterface:
		l.Parent, l.VLAN = i.GetSub().ParentName, uint16(i.GetSub().SubId)
	case route.AFPacket:
		l.HostName = i.GetAfpacket().HostIfName
	case route.TAP:
		t := i.GetTap()
		l.HostName = t.GetHostIfName()
		l.TAP = route.TAPSettings{RxRing: uint16(t.GetRxRingSize()),
			TxRing: uint16(t.GetTxRingSize()), GSO: t.GetEnableGso()}
	case route.Memif:
		m := i.GetMemif()
		l.Memif = route.MemifSettings{Socket: m.SocketFilename, Master: m.Master, ID: m.Id,
			Secret: route.Secret(m.Secret), RingSize: m.RingSize,
			BufferSize: uint16(m.BufferSize), RxQueues: uint8(m.RxQueues),
			TxQueues: uint8(m.TxQueues)}
	}
	return l
}

const maxVLAN = 4094

func checkSubInterface(s *vpp.SubInterface) Problem {
	switch {
	case s.GetParentName() == "" || !isName(s.GetParentName()):
		return invalid("sub.parent_name %.80q is no name of an interface", s.GetParentName())
	case s.GetSubId() == 0 || s.GetSubId() > maxVLAN:
		return invalid("sub.sub_id %d is no VLAN", s.GetSubId())
	}
	return onlyFields("sub.", s, "parent_name", "sub_id")
}

// What VPP 25.10 takes for a memif.
const (
	maxSocket   = 106 // bytes of the path (src/vppinfra/socket.c)
	maxSecret   = 23  // bytes; it cuts off the rest
	maxRing     = 1 << 14
	maxUint16   = 1<<16 - 1
	socketRunes = "letters, digits and /._-"
)

// checkMemif never names the secret.
func checkMemif(m *vpp.MemifLink) Problem {
	switch {
	case m.GetMode() != vpp.MemifLink_ETHERNET:
		return unimplemented("field memif.mode %s", m.GetMode())
	case !isSocket(m.GetSocketFilename()):
		return invalid("memif.socket_filename %.120q is no absolute path of at most %d %s",
			m.GetSocketFilename(), maxSocket, socketRunes)
	case len(m.Secret) > maxSecret || strings.ContainsFunc(m.Secret, unicode.IsControl):
		return invalid("memif.secret has %d bytes, or control characters; at most %d, and none",
			len(m.Secret), maxSecret)
	case m.RingSize > maxRing || !isPowerOf2(m.RingSize):
		return invalid("memif.ring_size %d is no power of 2 up to %d", m.RingSize, maxRing)
	case m.BufferSize > maxUint16:
		return invalid("memif.buffer_size %d is above %d", m.BufferSize, maxUint16)
	case m.RxQueues > maxUint8 || m.TxQueues > maxUint8:
		return invalid("memif.rx_queues %d or memif.tx_queues %d is above %d", m.RxQueues,
			m.TxQueues, maxUint8)
	case m.Master && m.RxQueues != 0:
		return unimplemented("field memif.rx_queues of a master: the slave says how many")
	case m.Master && m.TxQueues != 0:
		return unimplemented("field memif.tx_queues of a master: the slave says how many")
	}
	return Problem{}
}

func isSocket(name string) bool {
	odd := func(r rune) bool {
		return r > unicode.MaxASCII || !strings.ContainsRune("/._-", r) && !unicode.IsLetter(r) &&
			!unicode.IsDigit(r)
	}
	return path.IsAbs(name) && path.Clean(name) == name && len(name) <= maxSocket &&
		!strings.ContainsFunc(name, odd)
}

// isPowerOf2 holds for 0, which leaves the choice to VPP.
func isPowerOf2(n uint32) bool { return n&(n-1) == 0 }

// maxTAPRing is VPP's limit (src/vnet/devices/virtio/virtio.c).
const maxTAPRing = 1 << 15

func checkTAP(t *vpp.TapLink) Problem {
	switch {
	case t.GetVersion() != 0 && t.GetVersion() != 2:
		return unimplemented("field tap.version %d: VPP has version 2 alone", t.GetVersion())
	case t.GetHostIfName() != "" && !isHostName(t.GetHostIfName()):
		return invalid("tap.host_if_name %.80q is no name of an interface in Linux",
			t.GetHostIfName())
	case t.GetRxRingSize() > maxTAPRing || !isPowerOf2(t.GetRxRingSize()):
		return invalid("tap.rx_ring_size %d is no power of 2 up to %d", t.GetRxRingSize(),
			maxTAPRing)
	case t.GetTxRingSize() > maxTAPRing || !isPowerOf2(t.GetTxRingSize()):
		return invalid("tap.tx_ring_size %d is no power of 2 up to %d", t.GetTxRingSize(),
			maxTAPRing)
	}
	return onlyFields("tap.", t, "version", "host_if_name", "rx_ring_size", "tx_ring_size",
		"enable_gso")
}

func checkAFPacket(a *vpp.AfpacketLink) Problem {
	if problem := onlyFields("afpacket.", a, "host_if_name"); !problem.ok() {
		return problem
	}
	if !isHostName(a.GetHostIfName()) {
		return invalid("afpacket.host_if_name %.80q is no name of an interface in Linux",
			a.GetHostIfName())
	}
	return Problem{}
}

// maxHostName is Linux' limit. VPP does not check it, and writes behind its buffer.
const maxHostName = 15

// isHostName is the kernel's rule (net/core/dev.c, dev_valid_name).
func isHostName(name string) bool {
	odd := func(r rune) bool {
		return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r)
	}
	return name != "" && name != "." && name != ".." && len(name) <= maxHostName &&
		!strings.ContainsFunc(name, odd)
}

// SocketOf returns the path of the socket that an item wants; "": none.
func SocketOf(m proto.Message) string {
	i, _ := m.(*vpp.Interface)
	return i.GetMemif().GetSocketFilename()
}

// WithoutSecrets returns what may be shown of an item's message.
func WithoutSecrets(m proto.Message) proto.Message {
	i, _ := m.(*vpp.Interface)
	if i.GetMemif().GetSecret() == "" {
		return m
	}
	shown := proto.CloneOf(i)
	shown.GetMemif().Secret = ""
	return shown
}
