package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vxlan"

	"vpp-route-agent/internal/route"
)

// A VXLAN interface is a loopback with this node's VTEP address and MAC address. Each endpoint is a
// tunnel of VPP's, unnumbered to it, that carries Ethernet: docs/decisions/0025-vxlan-on-vpp.md has
// why. Facts have the loopback alone. A route names it, and the node's address as next hop.

const (
	vxlanDevice = "VXLAN"
	vxlanName   = "vxlan_tunnel"
	// Tunnels of ours have a number from firstVXLAN on that comes from the far address, in their
	// name. VPP prints it as signed.
	firstVXLAN = 1 << 30
	// tunnelPrefix is that of the name in a tunnel's mark. The node's address follows.
	tunnelPrefix = "vxlan "
)

var vxlanNeeds = []api.Message{(*vxlan.VxlanAddDelTunnelV3)(nil),
	(*vxlan.VxlanAddDelTunnelV3Reply)(nil), (*vxlan.VxlanTunnelV2Dump)(nil),
	(*vxlan.VxlanTunnelV2Details)(nil), (*vlib.AddNodeNext)(nil), (*vlib.AddNodeNextReply)(nil),
	(*interfaces.SwInterfaceSetUnnumbered)(nil), (*ip_neighbor.IPNeighborAddDel)(nil),
	(*interfaces.CreateLoopbackInstance)(nil), (*interfaces.DeleteLoopback)(nil)}

// vtepHop is the next hop on every tunnel. A link-local one may be that of IPv4 routes, too, is
// known to that tunnel alone, and makes no route of its own.
var vtepHop = route.EndpointHop(netip.IPv4Unspecified())

func vxlanInstance(outer netip.Addr) uint32 {
	h := fnv.New32a()
	h.Write(outer.AsSlice())
	return firstVXLAN + h.Sum32()%firstVXLAN
}

// isOwnVXLAN reports whether a tunnel's number is in our range.
func isOwnVXLAN(d *interfaces.SwInterfaceDetails) bool {
	number, ok := strings.CutPrefix(text(d.InterfaceName), vxlanName)
	instance, err := strconv.ParseUint(number, 10, 32)
	return ok && err == nil && text(d.InterfaceDevType) == vxlanDevice && instance >= firstVXLAN
}

// vxlanTunnel is one of ours.
type vxlanTunnel struct {
	index  uint32
	mark   uint64 // of the endpoint; unfinished: it has not all its settings yet
	hasTag bool   // else it never had all of them
}

// markedTunnel returns the node's address of a tunnel that has our mark.
func markedTunnel(d *interfaces.SwInterfaceDetails) (outer netip.Addr, t vxlanTunnel, ok bool) {
	m := markOf(d)
	far, ok := strings.CutPrefix(m.name, tunnelPrefix)
	outer, err := netip.ParseAddr(far)
	t = vxlanTunnel{uint32(d.SwIfIndex), m.digest, true}
	return outer, t, ok && err == nil && isOwnVXLAN(d)
}

// vxlanTunnels returns those of ours by the nodes' addresses. One without a tag was made by us, if
// its number is that of its far address: the connection ended before it got its mark.
func (l *session) vxlanTunnels(ctx context.Context,
	links []*interfaces.SwInterfaceDetails) (map[netip.Addr]vxlanTunnel, error) {
	all := map[netip.Addr]vxlanTunnel{}
	var unmarked []request
	for _, d := range links {
		if outer, t, ok := markedTunnel(d); ok {
			all[outer] = t
		} else if text(d.Tag) == "" && isOwnVXLAN(d) {
			unmarked = append(unmarked, &vxlan.VxlanTunnelV2Dump{SwIfIndex: d.SwIfIndex})
		}
	}
	err := l.checkTunnels(ctx, links, all)
	if err != nil {
		return nil, err
	}
	details, err := l.vxlanDetails(ctx, unmarked)
	for _, d := range details {
		if outer := decodeAddress(d.DstAddress); d.Instance == vxlanInstance(outer) {
			all[outer] = vxlanTunnel{uint32(d.SwIfIndex), unfinished, false}
		}
	}
	return all, err
}

// checkTunnels has those be unfinished that are not as their marks say: another program has changed
// a MAC address, the MTU or the neighbour, or set one down.
func (l *session) checkTunnels(ctx context.Context, links []*interfaces.SwInterfaceDetails,
	all map[netip.Addr]vxlanTunnel) error {
	if len(all) == 0 {
		return nil
	}
	macs := map[uint32]string{} // of the neighbours, by the tunnels' indexes
	err := dump(ctx, l.conn, []request{&ip_neighbor.IPNeighborDump{SwIfIndex: noInterface,
		Af: ip_types.ADDRESS_IP6}}, func(_ int, d *ip_neighbor.IPNeighborDetails) {
		if n := d.Neighbor; decodeAddress(n.IPAddress) == vtepHop &&
			n.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC != 0 {
			macs[uint32(n.SwIfIndex)] = net.HardwareAddr(n.MacAddress[:]).String()
		}
	})
	if err != nil {
		return err
	}
	details, err := l.vxlanDetails(ctx,
		[]request{&vxlan.VxlanTunnelV2Dump{SwIfIndex: noInterface}})
	marks := map[uint32]uint64{} // that tunnels would have as they are
	for _, d := range details {
		marks[uint32(d.SwIfIndex)] = route.Endpoint{VXLAN: route.VXLANSettings{
			Source: decodeAddress(d.SrcAddress), VNI: d.Vni, Port: d.SrcPort,
			MAC: macs[uint32(d.SwIfIndex)]}}.Digest()
	}
	for _, d := range links {
		outer, t, ok := markedTunnel(d)
		if link := linkNamed(links, route.VXLAN.Interface(outer)); ok && (link == nil ||
			marks[t.index] != t.mark || d.L2Address != link.L2Address ||
			!slices.Equal(d.Mtu, link.Mtu) ||
			d.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP == 0) {
			all[outer] = vxlanTunnel{t.index, unfinished, true}
		}
	}
	return err
}

func (l *session) vxlanDetails(ctx context.Context,
	reqs []request) (all []*vxlan.VxlanTunnelV2Details, err error) {
	if len(reqs) == 0 || len(l.conn.missing(vxlanNeeds)) > 0 {
		return nil, nil
	}
	var read []*vxlan.VxlanTunnelV2Details
	err = dump(ctx, l.conn, reqs, func(_ int, d *vxlan.VxlanTunnelV2Details) {
		read = append(read, d)
	})
	if err != nil {
		return nil, err // the reader may still be in the handler
	}
	return read, nil
}

func decodeAddress(a ip_types.Address) netip.Addr {
	return decodeUnion(a.Un, a.Af == ip_types.ADDRESS_IP6)
}

// deleteVXLAN deletes the tunnels of an interface.
func (l *session) deleteVXLAN(ctx context.Context, name string) error {
	links, err := readDetails(ctx, l.conn)
	if err != nil {
		return err
	}
	all, err := l.vxlanTunnels(ctx, links)
	for outer := range all {
		if route.VXLAN.Interface(outer) != name {
			delete(all, outer)
		}
	}
	if err != nil || len(all) == 0 {
		return err
	}
	for _, e := range l.removeTunnels(ctx, all) {
		err = cmp.Or(err, e)
	}
	return err
}

// removeTunnels deletes tunnels and returns what became of each. The neighbour goes first: it would
// outlive the tunnel, and be that of the next interface with the index.
func (l *session) removeTunnels(ctx context.Context,
	all map[netip.Addr]vxlanTunnel) map[netip.Addr]error {
	out := map[netip.Addr]error{}
	var far []netip.Addr
	details, err := l.vxlanDetails(ctx,
		[]request{&vxlan.VxlanTunnelV2Dump{SwIfIndex: noInterface}})
	var reqs []request
	for _, d := range details {
		outer := decodeAddress(d.DstAddress)
		if t, ok := all[outer]; ok && t.index == uint32(d.SwIfIndex) {
			far = append(far, outer)
			reqs = append(reqs, neighbourAt(t.index, "", false), &vxlan.VxlanAddDelTunnelV3{
				Instance: d.Instance, SrcAddress: d.SrcAddress, DstAddress: d.DstAddress,
				SrcPort: d.SrcPort, DstPort: d.DstPort, McastSwIfIndex: noInterface,
				EncapVrfID: d.EncapVrfID, DecapNextIndex: d.DecapNextIndex, Vni: d.Vni})
		}
	}
	for outer := range all {
		out[outer] = err
	}
	answers := change(ctx, l.conn, reqs)
	for i, outer := range far {
		out[outer] = outcomeOf(answers[2*i:2*i+2], noSuchEntry)
		if out[outer] == nil {
			l.vteps.remove(outer)
		}
	}
	return out
}

// neighbourAt has the far VTEP's MAC address, "" for one that goes.
func neighbourAt(on uint32, mac string, add bool) *ip_neighbor.IPNeighborAddDel {
	a, _ := net.ParseMAC(mac)
	n := ip_neighbor.IPNeighbor{SwIfIndex: interface_types.InterfaceIndex(on),
		IPAddress: encodeAddress(vtepHop), Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC}
	copy(n.MacAddress[:], a)
	return &ip_neighbor.IPNeighborAddDel{IsAdd: add, Neighbor: n}
}

func readVXLANEndpoint(ctx context.Context, l *session, want route.Endpoint) (route.Object, error) {
	if _, _, err := l.findLink(ctx, want.Interface); err != nil {
		return nil, err
	}
	links, err := readDetails(ctx, l.conn)
	if err != nil {
		return nil, err
	}
	all, err := l.vxlanTunnels(ctx, links)
	if t, ok := all[want.Outer]; ok && err == nil {
		return foundEndpoint(want.Outer, t), nil
	}
	return nil, wrap(err, "read tunnels")
}

func foundEndpoint(outer netip.Addr, t vxlanTunnel) route.FoundEndpoint {
	return route.FoundEndpoint{Interface: route.VXLAN.Interface(outer), Outer: outer, Mark: t.mark}
}

// vxlanEndpoints lists the tunnels of ours.
func (l *session) vxlanEndpoints(ctx context.Context,
	links []*interfaces.SwInterfaceDetails) (out []route.Object, err error) {
	all, err := l.vxlanTunnels(ctx, links)
	for outer, t := range all {
		out = append(out, foundEndpoint(outer, t))
	}
	return out, wrap(err, "read tunnels")
}

// making is a tunnel on its way.
type making struct {
	endpointOp
	vxlanTunnel
	link  *interfaces.SwInterfaceDetails // that it is unnumbered to
	fresh bool                           // it was made just now
	err   error                          // why it has not all its settings
}

// applyVXLAN changes tunnels in four steps, each of which is one write for many of them.
func (l *session) applyVXLAN(ctx context.Context, ops []endpointOp) {
	all, there, err := l.beforeVXLAN(ctx)
	if err != nil {
		for _, op := range ops {
			op.done(err)
		}
		return
	}
	gone := map[netip.Addr]vxlanTunnel{}
	var makings []*making
	for _, op := range ops {
		t, ok := there[op.end.Outer]
		link := linkNamed(all, op.end.Interface)
		switch {
		case !op.put && ok:
			gone[op.end.Outer] = t
		case !op.put || ok && t.mark == op.end.Digest():
			op.done(nil)
		case link == nil:
			op.done(fmt.Errorf("%w %s", route.ErrNoLink, op.end.Interface))
		default:
			makings = append(makings, &making{op, t, link, !ok, nil})
		}
	}
	if len(gone) > 0 {
		removed := l.removeTunnels(ctx, gone)
		for _, op := range ops {
			if err, ok := removed[op.end.Outer]; ok && !op.put {
				op.done(err)
			}
		}
	}
	for some := range l.bursts(ctx, makings) {
		some = l.makeTunnels(ctx, some)
		l.setTunnels(ctx, some)
		l.finishTunnels(ctx, some)
		l.undoTunnels(ctx, some)
		for _, m := range some {
			m.done(m.err)
		}
	}
}

// Workers of VPP stand still while an interface is made, and its main thread is busy. Between so
// many tunnels there is a rest in which packets go on, which is a multiple of the time that they
// took (docs/decisions/0025-vxlan-on-vpp.md).
const (
	burst     = 32
	restShare = 2
	maxRest   = 50 * time.Millisecond
)

// bursts yields all at once where VPP has no workers: then nothing waits for a barrier.
func (l *session) bursts(ctx context.Context, all []*making) iter.Seq[[]*making] {
	return func(yield func([]*making) bool) {
		if len(all) <= burst || !l.hasWorkers(ctx) {
			yield(all)
			return
		}
		var rest time.Duration
		for some := range slices.Chunk(all, burst) {
			select {
			case <-time.After(rest):
			case <-ctx.Done(): // each is told by its own request
			}
			began := time.Now()
			if !yield(some) {
				return
			}
			rest = min(restShare*time.Since(began), maxRest)
		}
	}
}

// hasWorkers is true where VPP does not say.
func (l *session) hasWorkers(ctx context.Context) bool {
	r, err := ask[vlib.ShowThreadsReply](ctx, l.conn, &vlib.ShowThreads{})
	return err != nil || len(r.ThreadData) > 1
}

// beforeVXLAN reads all interfaces, and the tunnels of ours among them.
func (l *session) beforeVXLAN(ctx context.Context) (links []*interfaces.SwInterfaceDetails,
	there map[netip.Addr]vxlanTunnel, err error) {
	if links, err = readDetails(ctx, l.conn); err == nil {
		there, err = l.vxlanTunnels(ctx, links)
	}
	return links, there, err
}

// linkNamed returns the interface of ours that has all its settings; nil: there is none.
func linkNamed(all []*interfaces.SwInterfaceDetails, name string) *interfaces.SwInterfaceDetails {
	for _, d := range all {
		if m := markOf(d); m.name == name && m.digest != unfinished {
			return d
		}
	}
	return nil
}

// makeTunnels makes those that are not there. It returns what can go on.
func (l *session) makeTunnels(ctx context.Context, all []*making) (on []*making) {
	var reqs []request
	var asked []*making
	nodes := map[bool]uint32{} // the graph node that packets go on to, by family
	for _, m := range all {
		if !m.fresh {
			on = append(on, m)
			continue
		}
		six := m.end.Outer.Is6()
		if _, known := nodes[six]; !known {
			next, err := l.ethernetInput(ctx, six)
			if err != nil {
				m.done(err)
				continue
			}
			nodes[six] = next
		}
		x := m.end.VXLAN
		asked = append(asked, m)
		reqs = append(reqs, &vxlan.VxlanAddDelTunnelV3{IsAdd: true,
			Instance:   vxlanInstance(m.end.Outer),
			SrcAddress: encodeAddress(x.Source), DstAddress: encodeAddress(m.end.Outer),
			SrcPort: x.Port, DstPort: x.Port, McastSwIfIndex: noInterface,
			DecapNextIndex: nodes[six], Vni: x.VNI})
	}
	for i, a := range change(ctx, l.conn, reqs) {
		m := asked[i]
		switch {
		case errors.Is(a.err, tunnelExists):
			m.done(declined("another program has a VXLAN tunnel to that address"))
		case errors.Is(a.err, instanceInUse):
			m.done(declined(fmt.Sprintf("%s%d, the interface of that address, is another one's",
				vxlanName, vxlanInstance(m.end.Outer))))
		case a.err != nil:
			m.done(a.err)
		default:
			m.index = a.index
			on = append(on, m)
		}
	}
	return on
}

// ethernetInput is where tunnels hand packets on to. VPP's own choice is a bridge, where they end.
func (l *session) ethernetInput(ctx context.Context, v6 bool) (uint32, error) {
	req := &vlib.AddNodeNext{NodeName: "vxlan4-input", NextName: "ethernet-input"}
	if v6 {
		req.NodeName = "vxlan6-input"
	}
	r, err := ask[vlib.AddNodeNextReply](ctx, l.conn, req)
	return r.NextIndex, cmp.Or(err, vppError(r.Retval))
}

// setTunnels gives tunnels their settings. Those of the interface, which is made anew when they
// change, are there for all; the MAC address of the node may change.
func (l *session) setTunnels(ctx context.Context, all []*making) {
	var isNew []interface_types.InterfaceIndex
	for _, m := range all {
		if !m.hasTag {
			isNew = append(isNew, interface_types.InterfaceIndex(m.index))
		}
	}
	// Those of an earlier interface with the index lead nowhere.
	if err := l.deleteNeighbours(ctx, isNew...); err != nil {
		for _, m := range all {
			m.err = err
		}
		return
	}
	var reqs []request
	var ends []int // of each in reqs
	for _, m := range all {
		index := interface_types.InterfaceIndex(m.index)
		reqs = append(reqs,
			&interfaces.SwInterfaceSetUnnumbered{IsAdd: true, SwIfIndex: m.link.SwIfIndex,
				UnnumberedSwIfIndex: index},
			&interfaces.SwInterfaceSetMacAddress{SwIfIndex: index,
				MacAddress: m.link.L2Address},
			&interfaces.SwInterfaceSetMtu{SwIfIndex: index, Mtu: m.link.Mtu},
			&interfaces.SwInterfaceSetFlags{SwIfIndex: index,
				Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP},
			neighbourAt(m.index, m.end.VXLAN.MAC, true))
		ends = append(ends, len(reqs))
	}
	answers, from := change(ctx, l.conn, reqs), 0
	for i, m := range all {
		m.err = outcomeOf(answers[from:ends[i]])
		from = ends[i]
	}
}

// finishTunnels marks tunnels that have all their settings.
func (l *session) finishTunnels(ctx context.Context, all []*making) {
	var reqs []request
	var asked []*making
	for _, m := range all {
		if m.err == nil {
			asked = append(asked, m)
			reqs = append(reqs, &interfaces.SwInterfaceTagAddDel{IsAdd: true,
				SwIfIndex: interface_types.InterfaceIndex(m.index),
				Tag:       mark{tunnelPrefix + m.end.Outer.String(), m.end.Digest()}.tag()})
		}
	}
	for i, a := range change(ctx, l.conn, reqs) {
		m := asked[i]
		if m.err = a.err; m.err == nil {
			l.vteps.set(m.end.Outer, m.index)
		}
	}
}

// undoTunnels deletes those that could not be finished: what is refused is not there.
func (l *session) undoTunnels(ctx context.Context, all []*making) {
	gone := map[netip.Addr]vxlanTunnel{}
	for _, m := range all {
		if m.fresh && m.err != nil && !errors.Is(m.err, route.ErrUnanswered) {
			gone[m.end.Outer] = m.vxlanTunnel
		}
	}
	if len(gone) == 0 {
		return
	}
	removed := l.removeTunnels(ctx, gone)
	for _, m := range all {
		if err := removed[m.end.Outer]; err != nil {
			m.err = fmt.Errorf("%w: %w, and then %w", route.ErrUnanswered, m.err, err)
		}
	}
}

// ontoTunnel names the tunnel that a path through an endpoint of VXLAN leaves by.
func ontoTunnel(p route.Path) route.Path {
	if route.EncapBy(p.Interface) == route.VXLAN {
		p.Interface, p.NextHop = tunnelPrefix+p.NextHop.String(), vtepHop
	}
	return p
}

// offTunnel is the inverse of ontoTunnel.
func offTunnel(p route.Path) route.Path {
	far, ok := strings.CutPrefix(p.Interface, tunnelPrefix)
	if outer, err := netip.ParseAddr(far); ok && err == nil {
		p.Interface, p.NextHop = route.VXLAN.Interface(outer), outer
	}
	return p
}

// indexIn finds an interface of a reading by its name, or a tunnel by the one of ontoTunnel. One
// that was deleted since is not found: another may have its index.
func (l *session) indexIn(all *links) func(string) (uint32, bool) {
	return func(name string) (uint32, bool) {
		if far, ok := strings.CutPrefix(name, tunnelPrefix); ok {
			outer, _ := netip.ParseAddr(far)
			return l.vteps.index(outer)
		}
		i, ok := route.Facts{Interfaces: all.list}.Interface(name)
		return i.Index, ok && i.Generation == l.gone.count(i.Index)
	}
}

// nameIn is the inverse of indexIn.
func (l *session) nameIn(all *links) func(uint32) string {
	return func(index uint32) string {
		if outer, ok := l.vteps.outer(index); ok {
			return tunnelPrefix + outer.String()
		}
		return all.name(index)
	}
}
