package gobgp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// far is a BGP speaker in a few lines: it can do what a well-behaved one never does.
type far struct {
	t    *testing.T
	conn net.Conn
	out  sync.Mutex // held while a message goes out, or several in pieces
	quit chan struct{}
	wg   sync.WaitGroup

	addPath bool            // path identifiers, both ways
	opened  *packet.BGPOpen // the node's OPEN

	mu       sync.Mutex
	updates  int                   // received, without End-of-RIB
	complete bool                  // End-of-RIB has come
	table    map[netip.Prefix]bool // what was received and not withdrawn, IPv4
	attrs    map[netip.Prefix]string
	// attrs by path identifier, with addPath
	paths map[netip.Prefix]map[uint32]string
	whole map[netip.Prefix][]packet.PathAttributeInterface // the attributes behind attrs
	six   map[netip.Prefix]string                          // next hops, IPv6
	// withdrawals of paths that it did not have, with addPath
	strayWithdrawals int
	notified         string // code and subcode of the NOTIFICATION that ended the session
}

// dialFar comes up as a peer of n from local. Hold is what it offers in OPEN; caps are its
// capabilities besides IPv4 unicast.
func dialFar(
	t *testing.T, n *node, local string, as uint32, hold uint16, keepalive bool,
	caps ...packet.ParameterCapabilityInterface,
) *far {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
	f := &far{
		addPath: slices.ContainsFunc(caps, func(c packet.ParameterCapabilityInterface) bool {
			return c.Code() == packet.BGP_CAP_ADD_PATH
		}),
		t: t, quit: make(chan struct{}), table: map[netip.Prefix]bool{},
		attrs: map[netip.Prefix]string{}, whole: map[netip.Prefix][]packet.PathAttributeInterface{},
		six: map[netip.Prefix]string{}, paths: map[netip.Prefix]map[uint32]string{},
	}
	eventually(t, "dial "+n.addr.String(), true, func() bool {
		c, err := d.DialContext(t.Context(), "tcp",
			net.JoinHostPort(n.addr.String(), strconv.Itoa(int(n.port))))
		if err != nil {
			return false
		}
		f.conn = c
		caps := append([]packet.ParameterCapabilityInterface{
			packet.NewCapMultiProtocol(packet.RF_IPv4_UC),
			packet.NewCapMultiProtocol(packet.RF_IPv6_UC), packet.NewCapFourOctetASNumber(as),
		}, caps...)
		f.send(packet.NewBGPOpenMessage(uint16(as), hold,
			"9.9.9."+cmp.Or(local[strings.LastIndexAny(local, ".:")+1:], "1"),
			[]packet.OptionParameterInterface{packet.NewOptionParameterCapability(caps)}))
		m, err := f.read()
		if err != nil || m.Header.Type != packet.BGP_MSG_OPEN {
			c.Close() // the node was still idle
			time.Sleep(200 * time.Millisecond)
			return false
		}
		f.opened = m.Body.(*packet.BGPOpen)
		return true
	})
	f.send(packet.NewBGPKeepAliveMessage())
	f.wg.Go(f.receive)
	if keepalive {
		f.wg.Go(f.keepalives)
	}
	t.Cleanup(f.close)
	return f
}

func (f *far) send(m *packet.BGPMessage) {
	var o packet.MarshallingOption
	if f.addPath {
		o.AddPath = map[packet.RouteFamily]packet.BGPAddPathMode{
			packet.RF_IPv4_UC: packet.BGP_ADD_PATH_BOTH,
		}
	}
	b, err := m.Serialize(&o)
	if err != nil {
		f.t.Error(err)
		return
	}
	f.out.Lock()
	defer f.out.Unlock()
	f.conn.Write(b) // the node may have closed it, which a test sees elsewhere
}

// raw sends an UPDATE made by hand.
func (f *far) raw(withdrawn, attrs, nlri []byte) {
	body := binary.BigEndian.AppendUint16(nil, uint16(len(withdrawn)))
	body = append(body, withdrawn...)
	body = binary.BigEndian.AppendUint16(body, uint16(len(attrs)))
	f.bytes(packet.BGP_MSG_UPDATE, append(append(body, attrs...), nlri...))
}

// bytes sends a message made by hand.
func (f *far) bytes(kind uint8, body []byte) {
	m := make([]byte, 16, 19+len(body))
	for i := range m {
		m[i] = 0xff
	}
	m = binary.BigEndian.AppendUint16(m, uint16(19+len(body)))
	f.conn.Write(append(append(m, kind), body...))
}

func (f *far) read() (*packet.BGPMessage, error) {
	head := make([]byte, 19)
	if _, err := io.ReadFull(f.conn, head); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint16(head[16:]))
	copy(m, head)
	if _, err := io.ReadFull(f.conn, m[19:]); err != nil {
		return nil, err
	}
	var o packet.MarshallingOption
	if f.addPath {
		o.AddPath = map[packet.RouteFamily]packet.BGPAddPathMode{
			packet.RF_IPv4_UC: packet.BGP_ADD_PATH_BOTH,
		}
	}
	msg, err := packet.ParseBGPMessage(m, &o)
	if err == nil && msg.Header.Type == packet.BGP_MSG_UPDATE {
		packet.KeepEncoding(msg.Body.(*packet.BGPUpdate), m[19:])
	}
	return msg, err
}

func (f *far) receive() {
	for {
		m, err := f.read()
		if err != nil {
			return
		}
		switch b := m.Body.(type) {
		case *packet.BGPUpdate:
			f.note(b)
		case *packet.BGPNotification:
			f.mu.Lock()
			f.notified = fmt.Sprintf("%d/%d", b.ErrorCode, b.ErrorSubcode)
			f.mu.Unlock()
		}
	}
}

func (f *far) note(u *packet.BGPUpdate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if eor, _ := u.IsEndOfRib(); eor {
		f.complete = true
		return
	}
	f.updates++
	for _, p := range u.WithdrawnRoutes {
		if _, ok := f.paths[pfx(p.String())][p.PathIdentifier()]; f.addPath && !ok {
			f.strayWithdrawals++
		}
		delete(f.paths[pfx(p.String())], p.PathIdentifier())
		delete(f.table, pfx(p.String()))
		delete(f.attrs, pfx(p.String()))
	}
	for _, a := range u.PathAttributes {
		switch a := a.(type) {
		case *packet.PathAttributeMpReachNLRI:
			for _, p := range a.Value {
				f.six[pfx(p.String())] = a.Nexthop.String()
			}
		case *packet.PathAttributeMpUnreachNLRI:
			for _, p := range a.Value {
				delete(f.six, pfx(p.String()))
			}
		}
	}
	text := f.describe(u.PathAttributes)
	for _, p := range u.NLRI {
		if f.paths[pfx(p.String())] == nil {
			f.paths[pfx(p.String())] = map[uint32]string{}
		}
		f.paths[pfx(p.String())][p.PathIdentifier()] = text
		f.table[pfx(p.String())] = true
		f.attrs[pfx(p.String())], f.whole[pfx(p.String())] = text, u.PathAttributes
	}
}

// describe prints what policies may change.
func (f *far) describe(attrs []packet.PathAttributeInterface) string {
	var path []uint32
	var communities []string
	pref, med, hop := "-", "-", "-"
	for _, a := range attrs {
		switch a := a.(type) {
		case *packet.PathAttributeAsPath:
			for _, p := range a.Value {
				path = append(path, p.GetAS()...)
			}
		case *packet.PathAttributeLocalPref:
			pref = fmt.Sprint(a.Value)
		case *packet.PathAttributeMultiExitDisc:
			med = fmt.Sprint(a.Value)
		case *packet.PathAttributeNextHop:
			hop = a.Value.String()
		case *packet.PathAttributeCommunities:
			for _, c := range a.Value {
				communities = append(communities, fmt.Sprintf("%d:%d", c>>16, c&0xffff))
			}
		case *packet.PathAttributeLargeCommunities:
			for _, c := range a.Values {
				communities = append(communities, c.String())
			}
		}
	}
	return describe(path, pref, med, hop, communities)
}

func describe(path []uint32, pref, med, hop string, communities []string) string {
	slices.Sort(communities)
	return fmt.Sprintf("path %v pref %s med %s hop %s communities %v",
		path, pref, med, hop, communities)
}

// notification returns how the node ended the session: "6/2", or nothing if it did not.
func (f *far) notification() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.notified
}

// routes returns what it has been sent of each IPv4 prefix.
func (f *far) routes() map[netip.Prefix]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.attrs)
}

// several returns the next hops that it has of a prefix by ADD-PATH, in order.
func (f *far) several(prefix string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var hops []string
	for _, text := range f.paths[pfx(prefix)] {
		_, hop, _ := strings.Cut(text, " hop ")
		hop, _, _ = strings.Cut(hop, " ")
		hops = append(hops, hop)
	}
	slices.Sort(hops)
	return strings.Join(hops, " ")
}

// hop6 returns the next hop that it has of an IPv6 prefix.
func (f *far) hop6(prefix string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.six[pfx(prefix)]
}

// reflection returns ORIGINATOR_ID and CLUSTER_LIST of a prefix as it was sent, "-" for what is not
// there.
func (f *far) reflection(prefix string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.table[pfx(prefix)] {
		return "not there"
	}
	originator, clusters := "-", "-"
	for _, a := range f.whole[pfx(prefix)] {
		switch a := a.(type) {
		case *packet.PathAttributeOriginatorId:
			originator = a.Value.String()
		case *packet.PathAttributeClusterList:
			clusters = fmt.Sprint(a.Value)
		}
	}
	return originator + " " + clusters
}

// received returns the IPv4 prefixes it has been sent, in order.
func (f *far) received() []netip.Prefix {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Keys(f.table), route.ComparePrefixes)
}

func (f *far) keepalives() {
	for {
		select {
		case <-f.quit:
			return
		case <-time.After(500 * time.Millisecond):
			f.send(packet.NewBGPKeepAliveMessage())
		}
	}
}

// count returns how many UPDATEs came, End-of-RIB aside.
func (f *far) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.updates
}

// hasAll reports whether End-of-RIB has come.
func (f *far) hasAll() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.complete
}

// restartBits reports whether the node's OPEN had the R bit, and the F bit for IPv4 (RFC 4724
// §3).
func (f *far) restartBits() (restarted, forwarding bool) {
	for _, gr := range f.gracefulRestart() {
		restarted = gr.Flags&0x8 != 0
		for _, t := range gr.Tuples {
			forwarding = forwarding || t.AFI == packet.AFI_IP && t.Flags&0x80 != 0
		}
	}
	return restarted, forwarding
}

// gracefulRestart is what the node's OPEN had of that capability.
func (f *far) gracefulRestart() (all []*packet.CapGracefulRestart) {
	for _, p := range f.opened.OptParams {
		if caps, ok := p.(*packet.OptionParameterCapability); ok {
			for _, c := range caps.Capability {
				if gr, ok := c.(*packet.CapGracefulRestart); ok {
					all = append(all, gr)
				}
			}
		}
	}
	return all
}

// close breaks the connection without a word.
func (f *far) close() {
	select {
	case <-f.quit:
		return
	default:
	}
	close(f.quit)
	f.conn.Close()
	f.wg.Wait()
}

// announce sends one IPv4 prefix; endOfRIB what follows the last one.
func (f *far) announce(prefix, hop string, as ...uint32) {
	f.update(0, prefix, hop, as...)
}

// announcePath sends one path of an IPv4 prefix with its identifier (RFC 7911).
func (f *far) announcePath(id uint32, prefix, hop string) { f.update(id, prefix, hop) }

// announcePref says with which LOCAL_PREF.
func (f *far) announcePref(prefix, hop string, localPref uint32) {
	f.send(packet.NewBGPUpdateMessage(nil, pathAttributes(hop, localPref), []*packet.IPAddrPrefix{
		ipv4(0, prefix),
	}))
}

func (f *far) withdraw(prefix string) { f.withdrawPath(0, prefix) }

func (f *far) withdrawPath(id uint32, prefix string) {
	f.send(packet.NewBGPUpdateMessage([]*packet.IPAddrPrefix{ipv4(id, prefix)}, nil, nil))
}

func (f *far) update(id uint32, prefix, hop string, as ...uint32) {
	attrs := pathAttributes(hop, 100)
	if len(as) > 0 { // eBGP
		attrs[1] = packet.NewPathAttributeAsPath([]packet.AsPathParamInterface{
			packet.NewAs4PathParam(packet.BGP_ASPATH_ATTR_TYPE_SEQ, as),
		})
		attrs = attrs[:3]
	}
	f.send(packet.NewBGPUpdateMessage(nil, attrs, []*packet.IPAddrPrefix{ipv4(id, prefix)}))
}

func pathAttributes(hop string, localPref uint32) []packet.PathAttributeInterface {
	return []packet.PathAttributeInterface{
		packet.NewPathAttributeOrigin(0),
		packet.NewPathAttributeAsPath(nil),
		packet.NewPathAttributeNextHop(hop),
		packet.NewPathAttributeLocalPref(localPref),
	}
}

func ipv4(id uint32, prefix string) *packet.IPAddrPrefix {
	p := packet.NewIPAddrPrefix(uint8(pfx(prefix).Bits()), pfx(prefix).Addr().String())
	p.SetPathLocalIdentifier(id) // the one that goes out
	return p
}

func (f *far) endOfRIB() { f.send(packet.NewEndOfRib(packet.RF_IPv4_UC)) }

// gracefulCap has a restart time that no test waits for.
func gracefulCap(restarting bool) packet.ParameterCapabilityInterface {
	return packet.NewCapGracefulRestart(restarting, false, 600, []*packet.CapGracefulRestartTuple{
		packet.NewCapGracefulRestartTuple(packet.RF_IPv4_UC, true),
	})
}

// farPeer is the peer that a node has configured for a far speaker.
func (n *node) farPeer(local string, as uint32) {
	n.plan.Peers = append(n.plan.Peers, bgp.Peer{
		Address: addr(local), RemoteAS: as, LocalAS: n.as, LocalAddress: n.addr, Passive: true,
		RestartTime: 120 * time.Second, Multihop: as != n.as,
	})
}

// farOverIPv6 is a node with one iBGP session, over IPv6.
func (l *lab) farOverIPv6() (*node, *far) {
	n := l.unset(64512)
	n.plan.Speaker.ListenAddresses = append(n.plan.Speaker.ListenAddresses, addr("::1"))
	n.addr = addr("::1")
	n.farPeer("::1", 64512)
	set(l.t, n)
	return n, dialFar(l.t, n, "::1", 64512, 90, true, gracefulCap(false))
}

func (n *node) farState(local string) bgp.PeerState {
	for _, p := range n.Peers() {
		if p.ID == first(local) {
			return p
		}
	}
	return bgp.PeerState{}
}

// wantDown waits until the session is down, which is later than what a peer or the FIB sees of
// that, and demands the reason.
func (n *node) wantDown(local, reason string) {
	n.t.Helper()
	eventually(n.t, local+" is established", false, func() bool {
		return n.farState(local).Established
	})
	if s := n.farState(local); !strings.HasPrefix(s.LastError, reason) || s.Since.IsZero() {
		n.t.Errorf("state %+v; want %q", s, reason)
	}
}
