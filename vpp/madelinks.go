package vpp

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/tapv2"

	"vpp-route-agent/internal/route"
)

// An interface that we make has a mark as its tag: the name that it has for us, and the digest of
// the settings that it was made with. VPP clears the tag when the interface is deleted.
type mark struct {
	name   string
	digest uint64
}

// unfinished is the digest of an interface that has not all its settings yet.
const unfinished = 1

// tagPrefix is short, as VPP has room for 63 bytes.
const tagPrefix = "vra:"

func (m mark) tag() string {
	return tagPrefix + encoding.EncodeToString(binary.BigEndian.AppendUint64(nil, m.digest)) +
		":" + m.name
}

var encoding = base64.RawURLEncoding

// markOf returns the zero mark for an interface that we have not made.
func markOf(d *interfaces.SwInterfaceDetails) mark {
	rest, ok := strings.CutPrefix(text(d.Tag), tagPrefix)
	digest, name, found := strings.Cut(rest, ":")
	raw, err := encoding.DecodeString(digest)
	if !ok || !found || name == "" || err != nil || len(raw) != 8 {
		return mark{}
	}
	return mark{name, binary.BigEndian.Uint64(raw)}
}

func text(s string) string { return strings.TrimRight(s, "\x00") }

// isNamed reports whether an interface has a name, ours or VPP's.
func isNamed(d *interfaces.SwInterfaceDetails, name string) bool {
	return markOf(d).name == name || text(d.InterfaceName) == name
}

// namesOf returns the names of interfaces. One that we have made has ours, unless that is another
// one's name in VPP.
func namesOf(all []*interfaces.SwInterfaceDetails) []string {
	taken := make(map[string]bool, len(all))
	for _, d := range all {
		taken[text(d.InterfaceName)] = true
	}
	names := make([]string, len(all))
	for i, d := range all {
		names[i] = text(d.InterfaceName)
		if m := markOf(d); m.name != "" && !taken[m.name] {
			names[i] = m.name
			taken[m.name] = true
		}
	}
	return names
}

// made are the indexes of interfaces that this session has made, which its reading of the
// interfaces may lack still. The zero value is ready to use.
type made struct {
	mu      sync.Mutex
	indexes map[string]uint32
}

func (m *made) set(name string, index uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.indexes == nil {
		m.indexes = map[string]uint32{}
	}
	m.indexes[name] = index
}

func (m *made) index(name string) (uint32, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	index, ok := m.indexes[name]
	return index, ok
}

func readMade(ctx context.Context, l *session, k route.ObjectKey) (route.Object, error) {
	d, err := l.linkDetails(ctx, k.Interface)
	if err != nil || d == nil {
		return nil, err
	}
	m, err := l.digestNow(ctx, d, k.Interface)
	if err != nil {
		return nil, fmt.Errorf("read interface %s: %w", k.Interface, err)
	}
	if m == 0 && l.isUnmarked(d, route.Link{Name: k.Interface}) {
		m = unfinished
	}
	return route.FoundLink{Name: k.Interface, Mark: m}, nil
}

// tunnelLinks are the interfaces of tunnels that have our mark.
func tunnelLinks(all []*interfaces.SwInterfaceDetails) (out []route.Object) {
	for _, d := range all {
		if m := markOf(d); route.EncapBy(m.name) != route.Plain {
			out = append(out, route.FoundLink{Name: m.name, Mark: m.digest})
		}
	}
	return out
}

// markFor returns the digest of an interface that we have made under a name, else 0.
func markFor(d *interfaces.SwInterfaceDetails, name string) uint64 {
	if m := markOf(d); m.name == name {
		return m.digest
	}
	return 0
}

// putMade makes an interface, or makes it anew if it has other settings.
func putMade(ctx context.Context, l *session, o route.Object) error {
	want := o.(route.Link)
	err := l.make(ctx, want)
	return wrap(err, "make interface %s", want.Name)
}

func (l *session) make(ctx context.Context, want route.Link) error {
	kind, ok := linkKinds[want.Kind]
	if lacks := l.conn.missing(slices.Concat(kind.needs, settingNeeds)); !ok || len(lacks) > 0 {
		return declined(fmt.Sprintf("this VPP cannot make the %s: it lacks %v", want.Kind, lacks))
	}
	all, err := readDetails(ctx, l.conn)
	if err != nil {
		return err
	}
	claimed := claimFor(all, want.Name)
	var before []*interfaces.SwInterfaceDetails
	for _, d := range all {
		marked, err := l.digestNow(ctx, d, want.Name)
		switch {
		case err != nil:
			return err
		case l.isUnmarked(d, want), claimed.covers(d):
		case !isNamed(d, want.Name):
			continue
		case marked == 0:
			return declined("another program has an interface of that name")
		case marked == want.Digest():
			return nil
		}
		before = append(before, d)
	}
	if err := l.deleteLinks(ctx, want.Name, before, claimed); err != nil {
		return err
	}
	index, err := kind.make(ctx, l, want)
	if err != nil {
		return err
	}
	// What is there is of an interface that had the index, and was deleted by another program.
	if err = l.deleteNeighbours(ctx, interface_types.InterfaceIndex(index)); err == nil {
		err = l.deleteEndpoints(ctx, interface_types.InterfaceIndex(index))
	}
	if err == nil {
		err = l.finish(ctx, index, want)
	}
	if err == nil {
		return nil
	}
	// What is refused is not there: it may not be wanted any more.
	if undo := removeMade(ctx, l, want.Key()); undo != nil {
		err = fmt.Errorf("%w: %w, and then %w", route.ErrUnanswered, err, undo)
	}
	return err
}

// finish gives an interface that was just made its mark, and in between the settings that it lacks
// still.
func (l *session) finish(ctx context.Context, index uint32, want route.Link) error {
	l.made.set(want.Name, index)
	err := l.mark(ctx, index, mark{want.Name, unfinished})
	if err == nil && needsClaim(want) {
		err = l.unclaim(ctx, want.Name)
	}
	isLoopback := want.Kind == route.Loopback || want.Kind == route.VXLANTunnel
	if err == nil && isLoopback && want.MAC != "" {
		err = l.setMAC(ctx, index, macOf(want))
	}
	if a := want.VXLAN.Address; err == nil && a.IsValid() {
		err = l.setAddress(ctx, index, netip.PrefixFrom(a, a.BitLen()), true)
	}
	if err == nil && want.MTU != 0 {
		err = l.setMTU(ctx, index, want.MTU)
	}
	if err != nil {
		return err
	}
	return l.mark(ctx, index, mark{want.Name, want.Digest()})
}

func (l *session) mark(ctx context.Context, index uint32, m mark) error {
	return l.tag(ctx, index, m.tag())
}

func (l *session) tag(ctx context.Context, index uint32, tag string) error {
	r, err := ask[interfaces.SwInterfaceTagAddDelReply](ctx, l.conn,
		&interfaces.SwInterfaceTagAddDel{IsAdd: true,
			SwIfIndex: interface_types.InterfaceIndex(index), Tag: tag})
	return cmp.Or(err, vppError(r.Retval))
}

func (l *session) setMAC(ctx context.Context, index uint32, mac ethernet_types.MacAddress) error {
	r, err := ask[interfaces.SwInterfaceSetMacAddressReply](ctx, l.conn,
		&interfaces.SwInterfaceSetMacAddress{
			SwIfIndex: interface_types.InterfaceIndex(index), MacAddress: mac})
	return cmp.Or(err, vppError(r.Retval))
}

// setMTU sets that of all protocols, none of which has one of its own.
func (l *session) setMTU(ctx context.Context, index uint32, mtu uint16) error {
	r, err := ask[interfaces.SwInterfaceSetMtuReply](ctx, l.conn,
		&interfaces.SwInterfaceSetMtu{SwIfIndex: interface_types.InterfaceIndex(index),
			Mtu: []uint32{uint32(mtu), 0, 0, 0}})
	return cmp.Or(err, vppError(r.Retval))
}

// isUnmarked reports whether d was made for want, or another Link of its name, and then the
// connection ended. Its MAC address says so, the number of a sub-interface, or that of a memif's
// socket. A client's MAC address says so together with the name in VPP, or with a claim.
func (l *session) isUnmarked(d *interfaces.SwInterfaceDetails, want route.Link) bool {
	switch {
	case text(d.Tag) != "":
		return false
	case isOwnSub(d), isOwnMemif(d), isOwnIPIP(d):
		return true
	case d.Type != interface_types.IF_API_TYPE_HARDWARE:
		return false
	}
	isBound := want.Kind == route.AFPacket && text(d.InterfaceName) == hostPrefix+want.HostName
	return d.L2Address == l.ownMAC(want.Name) ||
		isBound && want.MAC != "" && d.L2Address == macOf(want)
}

// macOf returns the MAC address that is wanted.
func macOf(want route.Link) (mac ethernet_types.MacAddress) {
	a, _ := net.ParseMAC(want.MAC)
	copy(mac[:], a)
	return mac
}

// macFor returns the MAC address to make an interface with: the one that is wanted, else ownMAC.
func (l *session) macFor(want route.Link) ethernet_types.MacAddress {
	if want.MAC != "" {
		return macOf(want)
	}
	return l.ownMAC(want.Name)
}

// ownMAC tells an interface that we make from all others. The FIB source has a random name in each
// VPP: nodes that give one name to interfaces in a common network must not share a MAC address
// there.
func (l *session) ownMAC(name string) (mac ethernet_types.MacAddress) {
	h := fnv.New64a()
	fmt.Fprintln(h, l.own.name, name)
	binary.BigEndian.PutUint32(mac[2:], uint32(h.Sum64()))
	mac[0], mac[1] = 2, byte(h.Sum64()>>32) // locally administered, unicast
	return mac
}

// removeMade leaves what has not our mark, unless the connection ended before it got that.
func removeMade(ctx context.Context, l *session, k route.ObjectKey) error {
	all, err := readDetails(ctx, l.conn)
	claimed := claimFor(all, k.Interface)
	var its []*interfaces.SwInterfaceDetails
	for _, d := range all {
		if markFor(d, k.Interface) != 0 || l.isUnmarked(d, route.Link{Name: k.Interface}) ||
			claimed.covers(d) {
			its = append(its, d)
		}
	}
	if err == nil {
		err = l.deleteLinks(ctx, k.Interface, its, claimed)
	}
	if err == nil {
		err = l.freeMemifSockets(ctx)
	}
	return wrap(err, "delete interface %s", k.Interface)
}

// deleteLinks deletes what has a name of ours, and its claim. Tunnels of a VXLAN interface go
// first, also where another program has deleted that.
func (l *session) deleteLinks(ctx context.Context, name string,
	all []*interfaces.SwInterfaceDetails, claimed *claim) error {
	if route.EncapBy(name) == route.VXLAN {
		if err := l.deleteVXLAN(ctx, name); err != nil {
			return err
		}
	}
	for _, d := range all {
		if err := l.deleteLink(ctx, d); err != nil {
			return err
		}
	}
	return l.dropClaim(ctx, claimed)
}

// linkDetails returns an interface as VPP has it now, nil if there is none.
func (l *session) linkDetails(ctx context.Context,
	name string) (found *interfaces.SwInterfaceDetails, err error) {
	var reqs []request
	for _, index := range []func(string) (uint32, bool){l.links.Load().index, l.made.index} {
		if i, ok := index(name); ok {
			reqs = append(reqs, &interfaces.SwInterfaceDump{
				SwIfIndex: interface_types.InterfaceIndex(i)})
		}
	}
	if len(reqs) == 0 {
		return nil, nil
	}
	// An index may have been reused since, and VPP lists all interfaces for index 0.
	err = dump(ctx, l.conn, reqs, func(_ int, d *interfaces.SwInterfaceDetails) {
		if isNamed(d, name) && (found == nil || markFor(found, name) == 0) {
			found = d
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read interface %s: %w", name, err)
	}
	return found, nil
}

// linkKind is how VPP makes and deletes interfaces of one kind.
type linkKind struct {
	device string        // of the interfaces in VPP
	isSub  bool          // which has its parent's device
	needs  []api.Message // besides settingNeeds
	make   func(context.Context, *session, route.Link) (index uint32, err error)
	remove func(context.Context, *session, *interfaces.SwInterfaceDetails) error
}

var settingNeeds = []api.Message{(*interfaces.SwInterfaceSetMacAddress)(nil),
	(*interfaces.SwInterfaceSetMtu)(nil), (*interfaces.SwInterfaceTagAddDel)(nil)}

var linkKinds = map[route.LinkKind]linkKind{
	route.Loopback: {device: "Loopback", make: makeLoopback, remove: removeLoopback,
		needs: []api.Message{(*interfaces.CreateLoopbackInstance)(nil),
			(*interfaces.DeleteLoopback)(nil)}},
	route.SubInterface: {isSub: true, make: makeSubInterface, remove: removeSubInterface,
		needs: []api.Message{(*interfaces.CreateSubif)(nil), (*interfaces.DeleteSubif)(nil)}},
	route.Memif:      {device: "memif", make: makeMemif, remove: removeMemif, needs: memifNeeds},
	route.IPIPTunnel: {device: ipipDevice, make: makeIPIP, remove: removeIPIP, needs: ipipNeeds},
	route.VXLANTunnel: {device: vxlanDevice, make: makeLoopback, remove: removeLoopback,
		needs: vxlanNeeds}, // its device is that of a loopback
	route.TAP: {device: "virtio", make: makeTAP, remove: removeTAP,
		needs: []api.Message{(*tapv2.TapCreateV3)(nil), (*tapv2.TapDeleteV2)(nil)}},
	route.AFPacket: {device: afPacketDevice, make: makeAFPacket, remove: removeAFPacket,
		needs: []api.Message{(*af_packet.AfPacketCreateV3)(nil),
			(*af_packet.AfPacketDelete)(nil), (*af_packet.AfPacketDump)(nil),
			(*interfaces.CreateLoopbackInstance)(nil), (*interfaces.DeleteLoopback)(nil)}},
}

// deleteLink goes by what VPP says that the interface is. Static neighbours would outlive it (see
// neighbours).
func (l *session) deleteLink(ctx context.Context, d *interfaces.SwInterfaceDetails) error {
	for _, kind := range linkKinds {
		isSub := d.Type == interface_types.IF_API_TYPE_SUB
		if kind.isSub == isSub && (isSub || kind.device == text(d.InterfaceDevType)) {
			if err := l.deleteNeighbours(ctx, d.SwIfIndex); err != nil {
				return err
			}
			return kind.remove(ctx, l, d)
		}
	}
	return declined(fmt.Sprintf("it is of type %s, which the agent does not make",
		text(d.InterfaceDevType)))
}

var loopbackName = regexp.MustCompile(`^loop(\d{1,5})$`)

// makeLoopback gives a loopback that is to be called like one of VPP's that name in VPP, too. Until
// it has a mark it has ownMAC.
func makeLoopback(ctx context.Context, l *session, want route.Link) (uint32, error) {
	req := &interfaces.CreateLoopbackInstance{MacAddress: l.ownMAC(want.Name)}
	if m := loopbackName.FindStringSubmatch(want.Name); m != nil {
		n, _ := strconv.ParseUint(m[1], 10, 32)
		req.IsSpecified, req.UserInstance = true, uint32(n)
	}
	return l.createLoopback(ctx, req)
}

func (l *session) createLoopback(ctx context.Context,
	req *interfaces.CreateLoopbackInstance) (uint32, error) {
	r, err := ask[interfaces.CreateLoopbackInstanceReply](ctx, l.conn, req)
	return uint32(r.SwIfIndex), cmp.Or(err, vppError(r.Retval))
}

func removeLoopback(ctx context.Context, l *session, d *interfaces.SwInterfaceDetails) error {
	r, err := ask[interfaces.DeleteLoopbackReply](ctx, l.conn,
		&interfaces.DeleteLoopback{SwIfIndex: d.SwIfIndex})
	return cmp.Or(err, vppError(r.Retval))
}

// VPP knows a sub-interface by a number among those of its parent, which any client may choose.
// Ours is firstSub and the VLAN, by which we know one that has no mark yet.
const (
	firstSub = 17900000
	maxVLAN  = 4094
)

func isOwnSub(d *interfaces.SwInterfaceDetails) bool {
	return d.Type == interface_types.IF_API_TYPE_SUB && firstSub < d.SubID &&
		d.SubID <= firstSub+maxVLAN
}

// makeSubInterface asks for no VLAN that another one has: VPP would refuse it, and no longer give
// the other its frames (src/vnet/ethernet/node.c, ethernet_sw_interface_add_del).
func makeSubInterface(ctx context.Context, l *session, want route.Link) (uint32, error) {
	parent, _, err := l.findLink(ctx, want.Parent)
	if err != nil {
		return 0, err
	}
	all, err := readDetails(ctx, l.conn)
	if err != nil {
		return 0, err
	}
	for _, d := range all {
		switch {
		case d.Type != interface_types.IF_API_TYPE_SUB:
		case uint32(d.SwIfIndex) == parent:
			return 0, declined(want.Parent + " is a sub-interface itself")
		case d.SupSwIfIndex == parent && d.SubNumberOfTags == 1 && d.SubOuterVlanID == want.VLAN:
			return 0, declined(fmt.Sprintf("%s has VLAN %d", text(d.InterfaceName), want.VLAN))
		}
	}
	const oneTag = interface_types.SUB_IF_API_FLAG_ONE_TAG |
		interface_types.SUB_IF_API_FLAG_EXACT_MATCH
	r, err := ask[interfaces.CreateSubifReply](ctx, l.conn, &interfaces.CreateSubif{
		SwIfIndex:   interface_types.InterfaceIndex(parent),
		SubID:       firstSub + uint32(want.VLAN),
		SubIfFlags:  oneTag,
		OuterVlanID: want.VLAN})
	return uint32(r.SwIfIndex), cmp.Or(err, vppError(r.Retval))
}

func removeSubInterface(ctx context.Context, l *session,
	d *interfaces.SwInterfaceDetails) error {
	r, err := ask[interfaces.DeleteSubifReply](ctx, l.conn,
		&interfaces.DeleteSubif{SwIfIndex: d.SwIfIndex})
	return cmp.Or(err, vppError(r.Retval))
}
