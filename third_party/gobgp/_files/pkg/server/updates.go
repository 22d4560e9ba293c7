// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/osrg/gobgp/v3/internal/pkg/table"
	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// updates are UPDATE messages as they go over the wire, for all members of a group.
type updates struct {
	messages []message
	size     int64 // of all, in bytes
	dump     bool
}

// message is an UPDATE for all but the peer that its routes came from.
type message struct {
	wire []byte
	not  netip.AddrPort
}

// queued are updates in the queue of a session.
type queued struct {
	*updates
	to *outPeer
}

// op is a change of one route for a group.
type op struct {
	name        routeName
	attrs       *attributes     // nil: it is withdrawn
	before, now *table.PeerInfo // whose route the members had and have; nil: none
}

// attributes are those of a route, but for the prefix, as they go over the wire.
type attributes struct {
	wire []byte // without MP_REACH_NLRI
	// how much of wire goes before it: BIRD has attributes in the order of their types
	before  int
	nextHop []byte // of MP_REACH_NLRI; nil where NEXT_HOP is in wire
	digest  uint64
}

// builder makes one batch of updates for a group. Routes of one batch with equal attributes share
// messages.
type builder struct {
	s     *BgpServer
	g     *outGroup
	again bool // also what members have already

	ops    []op
	at     map[routeName]int // where in ops
	seen   map[attributeKey]*attributes
	shared map[string]*attributes // by wire and nextHop
}

// attributeKey is what attributes depend on, for a path that is as it came in its message. A
// message can have one next hop in NEXT_HOP and one in MP_REACH_NLRI.
type attributeKey struct {
	of     bgp.PathAttributeInterface
	hop    netip.Addr
	change *table.Change
}

func newBuilder(s *BgpServer, g *outGroup) *builder {
	return &builder{s: s, g: g}
}

// addPrefix adds what changes for the group in a prefix: known are its paths now, before those that
// it had.
func (b *builder) addPrefix(known, before []*table.Path) {
	paths := known
	if len(paths) == 0 {
		paths = before
	}
	if len(paths) == 0 || paths[0].GetRouteFamily() != b.g.key.family {
		return
	}
	var has [4]routeName
	wanted := has[:0]
	for _, p := range b.s.candidates(b.g, known) {
		d := b.s.export(b.g, p)
		if !d.Accept {
			continue
		}
		attrs := b.attributes(p, d.Change)
		name, ok := nameOf(p.GetNlri(), b.id(p))
		if attrs == nil || !ok {
			continue
		}
		wanted = append(wanted, name)
		source := p.GetSource()
		had, sent := b.g.rib[name]
		if !sent || had.digest != attrs.digest || had.source != source {
			b.g.rib[name] = sentRoute{attrs.digest, source}
		} else if !b.again {
			continue
		}
		b.add(op{name, attrs, had.source, source})
	}
	if b.again {
		return
	}
	withdraw := func(name routeName) {
		if had, sent := b.g.rib[name]; sent && !slices.Contains(wanted, name) {
			delete(b.g.rib, name)
			b.add(op{name: name, before: had.source})
		}
	}
	if !b.g.key.addPath {
		name, _ := nameOf(paths[0].GetNlri(), 0)
		withdraw(name)
		return
	}
	for _, p := range before {
		name, _ := nameOf(p.GetNlri(), b.id(p))
		withdraw(name)
	}
}

// id is the path identifier of a path for the group.
func (b *builder) id(p *table.Path) uint32 {
	if !b.g.key.addPath {
		return 0
	}
	return p.GetNlri().PathLocalIdentifier()
}

// add takes the change of a route, in place of an earlier one in this batch.
func (b *builder) add(o op) {
	if i, ok := b.at[o.name]; ok {
		o.before = b.ops[i].before
		b.ops[i] = o
		return
	}
	if b.at == nil {
		b.at = map[routeName]int{}
	}
	b.at[o.name] = len(b.ops)
	b.ops = append(b.ops, o)
}

// attributes returns those that a path goes out with; nil where no message can hold them.
func (b *builder) attributes(p *table.Path, c *table.Change) *attributes {
	key := attributeKey{p.Shared(), addrOf(p.GetNexthop()), c}
	if a, ok := b.seen[key]; ok && key.of != nil {
		return a
	}
	a, why := b.tryEncode(p, c)
	if a != nil {
		a = b.same(a)
	} else {
		b.g.cannotSend(p, why)
	}
	if key.of != nil {
		if b.seen == nil {
			b.seen = map[attributeKey]*attributes{}
		}
		b.seen[key] = a
	}
	return a
}

// same returns the attributes of the batch that are equal to a.
func (b *builder) same(a *attributes) *attributes {
	text := string(a.wire) + string(a.nextHop)
	if same, ok := b.shared[text]; ok {
		return same
	}
	if b.shared == nil {
		b.shared = map[string]*attributes{}
	}
	b.shared[text] = a
	return a
}

// tryEncode changes nothing that outlives it, so a panic on a path leaves everything as it was.
func (b *builder) tryEncode(p *table.Path, c *table.Change) (a *attributes, why any) {
	defer func() {
		if v := recover(); v != nil {
			a, why = nil, bgp.DescribePanic(v)
		}
	}()
	if a = b.encode(b.s.exported(b.g, p, c)); a == nil {
		why = "its attributes fill a message, or its next hop is of another family"
	}
	return a, why
}

var digestSeed = maphash.MakeSeed()

// encode returns nil where the next hop is not of the family (RFC 8950 was not negotiated) or one
// prefix has no room beside the attributes.
func (b *builder) encode(p *table.Path) *attributes {
	attrs := slices.DeleteFunc(p.GetPathAttrs(), func(a bgp.PathAttributeInterface) bool {
		t := a.GetType()
		return t == bgp.BGP_ATTR_TYPE_MP_REACH_NLRI || t == bgp.BGP_ATTR_TYPE_NEXT_HOP
	})
	a := &attributes{}
	if b.g.key.family == bgp.RF_IPv4_UC {
		hop := p.GetNexthop().To4()
		if hop == nil {
			return nil
		}
		attrs = append(attrs, bgp.NewPathAttributeNextHop(hop.String()))
	} else if a.nextHop = p.GetNexthop().To16(); a.nextHop == nil ||
		p.GetNexthop().IsLinkLocalUnicast() &&
			// of another link it means nothing (RFC 2545 §3)
			addrOf(p.GetNexthop()) != b.g.key.localAddress {
		return nil
	}
	if b.g.key.twoByteAS {
		msg := &bgp.BGPUpdate{PathAttributes: attrs}
		if table.UpdatePathAttrs2ByteAs(msg) != nil {
			return nil
		}
		table.UpdatePathAggregator2ByteAs(msg)
		attrs = msg.PathAttributes
	}
	slices.SortStableFunc(attrs, func(a, b bgp.PathAttributeInterface) int {
		return int(a.GetType()) - int(b.GetType())
	})
	for _, attr := range attrs {
		wire, err := attr.Serialize()
		if err != nil {
			return nil
		}
		a.wire = append(a.wire, wire...)
		if attr.GetType() < bgp.BGP_ATTR_TYPE_MP_REACH_NLRI {
			a.before = len(a.wire)
		}
	}
	if len(a.wire)+a.reachSize() > roomOfUpdate-b.maxNLRI() {
		return nil
	}
	var h maphash.Hash
	h.SetSeed(digestSeed)
	h.Write(a.wire)
	h.Write(a.nextHop)
	a.digest = h.Sum64()
	return a
}

// roomOfUpdate is what a message of 4096 bytes has left beside the header and the two lengths (RFC
// 4271 §4.1, §4.3).
const roomOfUpdate = bgp.BGP_MAX_MESSAGE_LENGTH - bgp.BGP_HEADER_LENGTH - 4

// maxNLRI is the size of the longest prefix, with its length and its path identifier.
func (b *builder) maxNLRI() int {
	size := 1 + 16
	if b.g.key.family == bgp.RF_IPv4_UC {
		size = 1 + 4
	}
	if b.g.key.addPath {
		size += 4
	}
	return size
}

// reachSize is how long MP_REACH_NLRI (RFC 4760 §3) is without prefixes; 0 where there is none.
func (a *attributes) reachSize() int {
	if a.nextHop == nil {
		return 0
	}
	return 4 + 3 + 1 + len(a.nextHop) + 1
}

// appendNLRI appends a prefix (RFC 4271 §4.3), with ADD-PATH after its identifier (RFC 7911 §3).
func (b *builder) appendNLRI(to []byte, name routeName) []byte {
	if b.g.key.addPath {
		to = binary.BigEndian.AppendUint32(to, name.id)
	}
	to = append(to, name.bits)
	return append(to, name.addr[:(name.bits+7)/8]...)
}

// piece is one message to be: routes of one source with equal attributes.
type piece struct {
	attrs  *attributes
	source *table.PeerInfo
}

// updates packs the batch. Announcements go before withdrawals, since one of them may replace a
// route that is withdrawn.
func (b *builder) updates() *updates {
	u := &updates{}
	var order []piece
	nlris := map[piece][][]byte{} // each fits one message
	for _, o := range b.ops {
		p := piece{o.attrs, o.now}
		if o.attrs == nil {
			if o.before == nil {
				continue
			}
			p.source = o.before
		}
		b.pack(nlris, &order, p, o.name)
	}
	b.write(u, nlris, order)
	return u
}

func (b *builder) pack(nlris map[piece][][]byte, order *[]piece, p piece, name routeName) {
	room := roomOfUpdate - 4 - 3 // of MP_UNREACH_NLRI
	if p.attrs != nil {
		room = roomOfUpdate - len(p.attrs.wire) - p.attrs.reachSize()
	}
	all, ok := nlris[p]
	if !ok {
		*order = append(*order, p)
	}
	if len(all) == 0 || len(all[len(all)-1])+b.maxNLRI() > room {
		all = append(all, nil)
	}
	all[len(all)-1] = b.appendNLRI(all[len(all)-1], name)
	nlris[p] = all
}

func (b *builder) write(u *updates, nlris map[piece][][]byte, order []piece) {
	for _, withdrawn := range []bool{false, true} {
		for _, p := range order {
			if (p.attrs == nil) != withdrawn {
				continue
			}
			for _, n := range nlris[p] {
				m := message{wire: b.update(p.attrs, n)}
				if p.source != nil {
					m.not = p.source.Name()
				}
				u.messages = append(u.messages, m)
				u.size += int64(len(m.wire))
			}
		}
	}
}

// update is one message.
func (b *builder) update(a *attributes, nlris []byte) []byte {
	wire := make([]byte, bgp.BGP_HEADER_LENGTH, bgp.BGP_HEADER_LENGTH+4+len(nlris)+64)
	v4 := b.g.key.family == bgp.RF_IPv4_UC
	var attrs []byte
	switch {
	case a == nil && v4:
		wire = binary.BigEndian.AppendUint16(wire, uint16(len(nlris)))
		return withHeader(append(append(wire, nlris...), 0, 0))
	case a == nil:
		attrs, nlris = b.multiprotocol(bgp.BGP_ATTR_TYPE_MP_UNREACH_NLRI, nlris), nil
	case v4:
		attrs = a.wire
	default:
		reach := append(append([]byte{byte(len(a.nextHop))}, a.nextHop...), 0)
		attrs = append(attrs, a.wire[:a.before]...)
		attrs = append(attrs,
			b.multiprotocol(bgp.BGP_ATTR_TYPE_MP_REACH_NLRI, append(reach, nlris...))...)
		attrs, nlris = append(attrs, a.wire[a.before:]...), nil
	}
	wire = binary.BigEndian.AppendUint16(append(wire, 0, 0), uint16(len(attrs)))
	return withHeader(append(append(wire, attrs...), nlris...))
}

// multiprotocol is MP_REACH_NLRI or MP_UNREACH_NLRI (RFC 4760 §3, §4).
func (b *builder) multiprotocol(typ bgp.BGPAttrType, value []byte) (attr []byte) {
	afi, safi := bgp.RouteFamilyToAfiSafi(b.g.key.family)
	size := 3 + len(value)
	if size <= 255 {
		attr = append(attr, byte(bgp.BGP_ATTR_FLAG_OPTIONAL), byte(typ), byte(size))
	} else {
		attr = append(attr, byte(bgp.BGP_ATTR_FLAG_OPTIONAL|bgp.BGP_ATTR_FLAG_EXTENDED_LENGTH),
			byte(typ))
		attr = binary.BigEndian.AppendUint16(attr, uint16(size))
	}
	return append(append(binary.BigEndian.AppendUint16(attr, afi), safi), value...)
}

// withHeader fills in the header of an UPDATE (RFC 4271 §4.1).
func withHeader(wire []byte) []byte {
	for i := range 16 {
		wire[i] = 0xff
	}
	binary.BigEndian.PutUint16(wire[16:], uint16(len(wire)))
	wire[18] = bgp.BGP_MSG_UPDATE
	return wire
}

// endOfRIB is the marker of RFC 4724 §2.
func endOfRIB(f bgp.RouteFamily) *updates {
	b := builder{g: &outGroup{key: groupKey{family: f}}}
	wire := b.update(nil, nil)
	return &updates{messages: []message{{wire: wire}}, size: int64(len(wire))}
}

// deliver sends the batch to all members.
func (b *builder) deliver() {
	if len(b.ops) > 0 {
		b.g.dump = nil
	}
	b.deliverTo(b.g.members)
}

// deliverTo sends the batch to some members.
func (b *builder) deliverTo(members []*peer) {
	if len(b.ops) == 0 {
		return
	}
	u := b.updates()
	replaced := b.replaced()
	for _, m := range members {
		if b.lags(m) {
			continue
		}
		m.out.send(u)
		if more := replaced[m.out.name]; more != nil {
			m.out.send(more.updates())
		}
	}
}

// lags postpones the batch for a member that does not keep up.
func (b *builder) lags(m *peer) bool {
	if m.out.lagging == nil && m.out.waiting.Load() < outgoingLimit {
		return false
	}
	m.out.postpone(b)
	return true
}

// replaced are the withdrawals for members whose own routes take the place of what they had.
func (b *builder) replaced() map[netip.AddrPort]*builder {
	var out map[netip.AddrPort]*builder
	for _, o := range b.ops {
		if o.attrs == nil || o.before == nil || o.now == o.before || o.now.Address == nil {
			continue
		}
		now := o.now.Name()
		if now == o.before.Name() {
			continue
		}
		if out == nil {
			out = map[netip.AddrPort]*builder{}
		}
		if out[now] == nil {
			out[now] = newBuilder(b.s, b.g)
		}
		out[now].ops = append(out[now].ops, op{name: o.name, before: o.before})
	}
	return out
}

// writeSize is how much is written at once. The time that a write may take is for so much.
const writeSize = 64 << 10

// sendUpdates writes updates to the session's connection.
func (h *fsmHandler) sendUpdates(conn net.Conn, q queued) error {
	var all net.Buffers
	size, count := 0, 0
	flush := func() error {
		if h.ending.Load() != nil { // the NOTIFICATION is sent next, and nothing after it
			return nil
		}
		h.fsm.lock.RLock()
		limit := writeTime(h.fsm.pConf)
		h.fsm.lock.RUnlock()
		err := conn.SetWriteDeadline(time.Now().Add(limit))
		if err == nil {
			_, err = all.WriteTo(conn)
		}
		for range count {
			h.fsm.bgpMessageStateUpdate(bgp.BGP_MSG_UPDATE, false)
		}
		all, size, count = nil, 0, 0
		return err
	}
	for _, m := range q.messages {
		if len(m.wire) == 0 || m.not == q.to.name {
			continue
		}
		all, size, count = append(all, m.wire), size+len(m.wire), count+1
		if size < writeSize {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	if size > 0 {
		if err := flush(); err != nil {
			return err
		}
	}
	if q.dump {
		q.to.dumping.Store(false)
	}
	if q.to.waiting.Add(-q.size) == 0 && q.to.behind.Load() {
		go q.to.drained() // the server goroutine may be waiting for this one to end
	}
	return nil
}

// sendQueued is sendUpdates for the loop that sends; false ends it and the session.
func (h *fsmHandler) sendQueued(conn net.Conn, q queued) bool {
	err := h.sendUpdates(conn, q)
	if err == nil {
		return true
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && h.ending.Load() == nil {
		h.fsm.tell(PeerDoesNotRead, nil)
	}
	h.fsm.lock.RLock()
	h.fsm.logger.Warn("failed to send",
		log.Fields{
			"Topic": "Peer",
			"Key":   h.fsm.pConf.State.NeighborAddress,
			"State": h.fsm.state.String(),
			"Data":  err})
	h.fsm.lock.RUnlock()
	select {
	case h.stateReasonCh <- *newfsmStateReason(fsmWriteFailed, nil, nil):
	default:
	}
	return false
}
