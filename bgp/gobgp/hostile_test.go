package gobgp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"

	"vpp-route-agent/internal/testlog"
)

// hexBytes reads what is written in hexadecimal, with spaces wherever they help.
func hexBytes(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// message is a BGP message whose header is right but for kind.
func message(kind byte, body []byte) []byte {
	m := append(bytes.Repeat([]byte{0xff}, 16), 0, 0, kind)
	binary.BigEndian.PutUint16(m[16:], uint16(19+len(body)))
	return append(m, body...)
}

// connectTo connects to n and returns the connection when n's OPEN has come.
func connectTo(t *testing.T, n *node, local string) (c net.Conn) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
	eventually(t, "OPEN from "+n.addr.String(), true, func() (open bool) {
		var err error
		addr := net.JoinHostPort(n.addr.String(), strconv.Itoa(int(n.port)))
		if c, err = d.DialContext(t.Context(), "tcp", addr); err != nil {
			return false
		}
		if nextMessage(c)[18] == packet.BGP_MSG_OPEN {
			return true
		}
		c.Close() // the node was still idle
		time.Sleep(200 * time.Millisecond)
		return false
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// knock connects to n, sends messages, and returns the NOTIFICATION that ends the connection, with
// its data: "1/3 ff".
func knock(t *testing.T, n *node, local string, messages ...[]byte) string {
	t.Helper()
	c := connectTo(t, n, local)
	for _, m := range messages {
		c.Write(m)
	}
	for {
		switch m := nextMessage(c); m[18] {
		case 0:
			return "nothing"
		case packet.BGP_MSG_NOTIFICATION:
			return strings.TrimSpace(fmt.Sprintf("%d/%d %x", m[19], m[20], m[21:]))
		}
	}
}

// nextMessage returns one of type 0 when the connection ends or nothing comes.
func nextMessage(c net.Conn) []byte {
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	m := make([]byte, 4096)
	if _, err := io.ReadFull(c, m[:19]); err != nil {
		return make([]byte, 19)
	}
	m = m[:binary.BigEndian.Uint16(m[16:])]
	if _, err := io.ReadFull(c, m[19:]); err != nil {
		return make([]byte, 19)
	}
	return m
}

// openOf is an OPEN of AS 64512 with these capabilities.
func openOf(capabilities string) []byte {
	caps := hexBytes(capabilities)
	body := hexBytes("04 fc00 005a 09090950")
	body = append(body, byte(2+len(caps)), 2, byte(len(caps)))
	return message(packet.BGP_MSG_OPEN, append(body, caps...))
}

const usualCapabilities = "0104 0001 0001 0104 0002 0001 4104 0000fc00"

// A header that is wrong, and a message that has no place in the state of the session, end the
// connection with the NOTIFICATION that RFC 4271 §6.1 and RFC 6608 have for it.
func TestMessagesOutOfPlace(t *testing.T) {
	l := newLab(t)
	n := l.unset(64512)
	open, keepalive := openOf(usualCapabilities), message(packet.BGP_MSG_KEEPALIVE, nil)
	unsynchronized := message(packet.BGP_MSG_KEEPALIVE, nil)
	unsynchronized[3] = 0
	long := message(packet.BGP_MSG_UPDATE, make([]byte, 4097-19))
	short := message(packet.BGP_MSG_KEEPALIVE, nil)
	short[17] = 18
	cases := []struct {
		name     string
		messages [][]byte
		want     string
	}{
		{"unknown type before OPEN", [][]byte{message(0xff, nil)}, "1/3 ff"},
		{"unknown type after OPEN", [][]byte{open, message(0, nil)}, "1/3 00"},
		{"unknown type in Established", [][]byte{open, keepalive, message(6, nil)}, "1/3 06"},
		{"marker", [][]byte{unsynchronized}, "1/1"},
		{"message shorter than a header", [][]byte{open, short}, "1/2 0012"},
		{"message longer than 4096 bytes", [][]byte{open, keepalive, long}, "1/2 1001"},
		{"OPEN longer than 4096 bytes",
			[][]byte{message(packet.BGP_MSG_OPEN, make([]byte, 4097-19))}, "1/2 1001"},
		{"KEEPALIVE with a body",
			[][]byte{open, message(packet.BGP_MSG_KEEPALIVE, []byte{0})}, "1/2 0014"},
		{"OPEN cut short", [][]byte{message(packet.BGP_MSG_OPEN, make([]byte, 9))}, "1/2 001c"},
		{"UPDATE cut short",
			[][]byte{open, keepalive, message(packet.BGP_MSG_UPDATE, make([]byte, 3))}, "1/2 0016"},
		{"NOTIFICATION cut short",
			[][]byte{open, keepalive, message(packet.BGP_MSG_NOTIFICATION, []byte{6})}, "1/2 0014"},
		{"UPDATE before OPEN", [][]byte{message(packet.BGP_MSG_UPDATE, make([]byte, 4))}, "5/1 02"},
		{"KEEPALIVE before OPEN", [][]byte{keepalive}, "5/1 04"},
		{"second OPEN before KEEPALIVE", [][]byte{open, open}, "5/2 01"},
		{"UPDATE before KEEPALIVE",
			[][]byte{open, message(packet.BGP_MSG_UPDATE, make([]byte, 4))}, "5/2 02"},
		{"OPEN in Established", [][]byte{open, keepalive, open}, "5/3 01"},
		{"NOTIFICATION before OPEN",
			[][]byte{message(packet.BGP_MSG_NOTIFICATION, []byte{6, 2})}, "nothing"},
	}
	for i := range cases {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 80+i), 64512)
	}
	n.farPeer("127.0.0.79", 64512)
	set(t, n)
	good := dialFar(t, n, "127.0.0.79", 64512, 90, true)
	eventually(t, "a session is up", true, func() bool {
		return n.farState("127.0.0.79").Established
	})
	since := n.farState("127.0.0.79").Since
	for i, c := range cases {
		if got := knock(t, n, fmt.Sprintf("127.0.0.%d", 80+i), c.messages...); got != c.want {
			t.Errorf("%s: NOTIFICATION %s, not %s", c.name, got, c.want)
		}
	}
	good.announce("10.79.0.0/26", "192.0.2.79")
	n.wantHops("10.79.0.0/26", "192.0.2.79")
	if s := n.farState("127.0.0.79"); !s.Established || s.Since != since {
		t.Errorf("another peer suffered: %+v", s)
	}
}

// A peer whose capability cannot be shown is shown without it, before and after its session came
// up.
func TestCapabilityThatCannotBeShown(t *testing.T) {
	l := newLab(t)
	n := l.unset(64512)
	n.farPeer("127.0.0.80", 64512)
	set(t, n)
	c := connectTo(t, n, "127.0.0.80")
	c.Write(openOf(usualCapabilities + "49 03 01 ff 00"))
	c.Write(message(packet.BGP_MSG_KEEPALIVE, nil))
	eventually(t, "the session is up", true, func() bool {
		return n.farState("127.0.0.80").Established
	})
	var caps int
	n.applied.server.ListPeer(t.Context(), &api.ListPeerRequest{}, func(p *api.Peer) {
		caps = len(p.State.RemoteCap)
	})
	if caps != 3 {
		t.Errorf("%d capabilities are shown, not 3", caps)
	}
}

// reflecting returns a node that reflects between peers, and the last of the peers, which listens.
func (l *lab) reflecting(peers []string, change ...func(*Config)) (*node, *far) {
	l.t.Helper()
	n := l.unset(64512, change...)
	for _, p := range peers {
		n.farPeer(p, 64512)
		n.plan.Peers[len(n.plan.Peers)-1].Client = true
	}
	n.plan.Policies.Reflects = true
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	set(l.t, n)
	return n, dialFar(l.t, n, peers[len(peers)-1], 64512, 90, true)
}

// sent returns the attributes of these types that f has of a prefix, "" if it does not have the
// prefix.
func (f *far) sent(prefix string, types ...packet.BGPAttrType) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, a := range f.whole[pfx(prefix)] {
		if slices.Contains(types, a.GetType()) && f.table[pfx(prefix)] {
			b, _ := a.Serialize()
			out = append(out, hex.EncodeToString(b))
		}
	}
	return strings.Join(out, " ")
}

// AS4_PATH and AS4_AGGREGATOR mean something from a speaker of two-octet AS numbers only. Wherever
// they stand, what comes out is well-formed (RFC 6793 §4.2.3, §6).
func TestAS4Attributes(t *testing.T) {
	l := newLab(t)
	n, to := l.reflecting([]string{"127.0.0.80", "127.0.0.81", "127.0.0.82"})
	four := dialFar(t, n, "127.0.0.80", 64512, 90, true)
	two := &far{t: t, conn: connectTo(t, n, "127.0.0.81")}
	two.conn.Write(openOf("0104 0001 0001"))
	two.conn.Write(message(packet.BGP_MSG_KEEPALIVE, nil))

	const (
		origin     = "40010100"
		rest       = "400304c0000201 40050400000064"
		as4        = "c01106 0201 00061a80"               // [400000]
		as4Set     = "c01106 0101 00061a80"               // {400000}
		as4Long    = "c0110a 0202 0000fde8 00061a80"      // [65000 400000]
		as4Short   = "c01105 0201 00061a"                 // cut short
		confed     = "c0110c 0301 0000fde8 0201 00061a80" // (65000) [400000]
		path4      = "400206 0201 0000fde8"               // [65000]
		trans4     = "400206 0201 00005ba0"               // [23456]
		path2      = "400204 0201 5ba0"                   // [23456]
		path22     = "400206 0202 fde8 5ba0"              // [65000 23456]
		pathSet2   = "40020a 0201 fde8 0102 5ba0 fde9"    // [65000] {23456 65001}
		segments2  = "40020e0203fe05fe4cfe4d0102feb0feb1" // [65029 65100 65101] {65200 65201}
		aggregator = "c00706 fde8 c0000207"               // 65000
		trans      = "c00706 5ba0 c0000207"               // 23456
		four7      = "c00708 00005ba0 c0000207"           // 23456
		as4Agg     = "c01208 00061a80 c0000207"           // 400000
		short18    = "c01207 00061a80 c00002"             // cut short
	)
	for i, c := range []struct {
		name string
		from *far
		attr []string
		path string
		aggr string
	}{
		{"before the last attribute",
			four, []string{origin, rest, as4, path4}, "40020602010000fde8", ""},
		{"before AS_PATH", four, []string{origin, as4, path4, rest}, "40020602010000fde8", ""},
		{"after AS_PATH", four, []string{origin, trans4, as4, rest}, "400206020100005ba0", ""},
		{"a set as long", four, []string{origin, path4, as4Set, rest}, "40020602010000fde8", ""},
		{"cut short", four, []string{origin, path4, as4Short, rest}, "40020602010000fde8", ""},
		{"alone", four, []string{origin, path4, as4Agg, rest}, "40020602010000fde8", ""},
		{"beside AGGREGATOR",
			four, []string{origin, path4, four7, as4Agg, rest}, "40020602010000fde8",
			"c0070800005ba0c0000207"},
		{"cut short",
			four, []string{origin, path4, four7, short18, rest}, "40020602010000fde8",
			"c0070800005ba0c0000207"},

		{"two: before the last attribute",
			two, []string{origin, rest, as4, path2}, "400206020100061a80", ""},
		{"two: before AS_PATH", two, []string{origin, as4, path2, rest}, "400206020100061a80", ""},
		{"two: shorter",
			two, []string{origin, path22, as4, rest}, "40020a02020000fde800061a80", ""},
		{"two: as long",
			two, []string{origin, path22, as4Long, rest}, "40020a02020000fde800061a80", ""},
		{"two: longer", two, []string{origin, path2, as4Long, rest}, "400206020100005ba0", ""},
		{"two: a set as long",
			two, []string{origin, path2, as4Set, rest}, "400206010100061a80", ""},
		{"two: a set, shorter",
			two, []string{origin, path22, as4Set, rest}, "40020c02010000fde8010100061a80", ""},
		{"two: instead of a set",
			two, []string{origin, pathSet2, as4, rest}, "40020a02020000fde800061a80", ""},
		// It could be read as one segment of three numbers of four octets.
		{"two: two segments",
			two, []string{origin, segments2, rest},
			"40021802030000fe050000fe4c0000fe4d01020000feb00000feb1", ""},
		{"two: confederation",
			two, []string{origin, path2, confed, rest}, "400206020100061a80", ""},
		{"two: cut short", two, []string{origin, path2, as4Short, rest}, "400206020100005ba0", ""},
		{"two: AGGREGATOR",
			two, []string{origin, path2, aggregator, as4Agg, as4, rest}, "400206020100005ba0",
			"c007080000fde8c0000207"},
		{"two: AS_TRANS",
			two, []string{origin, path2, as4Agg, trans, as4, rest}, "400206020100061a80",
			"c0070800061a80c0000207"},
		{"two: alone", two, []string{origin, path2, as4Agg, rest}, "400206020100005ba0", ""},
		{"two: AS4_AGGREGATOR cut short",
			two, []string{origin, path2, trans, short18, rest}, "400206020100005ba0",
			"c0070800005ba0c0000207"},
	} {
		prefix := fmt.Sprintf("10.1.%d.0/26", i)
		c.from.raw(nil, hexBytes(strings.Join(c.attr, "")),
			append([]byte{26}, pfx(prefix).Addr().AsSlice()...))
		eventually(t, c.name+": AS_PATH", c.path, func() string {
			return to.sent(prefix, packet.BGP_ATTR_TYPE_AS_PATH, packet.BGP_ATTR_TYPE_AS4_PATH)
		})
		got := to.sent(prefix, packet.BGP_ATTR_TYPE_AGGREGATOR, packet.BGP_ATTR_TYPE_AS4_AGGREGATOR)
		if got != c.aggr {
			t.Errorf("%s: AGGREGATOR %s, not %s", c.name, got, c.aggr)
		}
		n.wantHops(prefix, "192.0.2.1")
	}
}

// An attribute that leaves no room for a prefix, once ours are added to it, is not sent; the peer
// has the prefix withdrawn. Communities are transitive: whoever put them there may be far away.
func TestAttributesThatLeaveNoRoom(t *testing.T) {
	log := &testlog.Buffer{}
	l := newLab(t)
	n, last := l.reflecting([]string{"127.0.0.80", "127.0.0.81", "127.0.0.82"}, logTo(log))
	from := dialFar(t, n, "127.0.0.80", 64512, 90, true)
	to := []*far{dialFar(t, n, "127.0.0.81", 64512, 90, true), last}
	// size is of all attributes as they come; ORIGINATOR_ID and CLUSTER_LIST add 14.
	send := func(prefix string, size int) {
		attrs := hexBytes("40010100 400200 400304c0000201 40050400000064")
		size -= len(attrs) + 4
		if size > 0 {
			attrs = binary.BigEndian.AppendUint16(append(attrs, 0xd0, 99), uint16(size))
			attrs = append(attrs, make([]byte, size)...)
		}
		p := pfx(prefix)
		from.raw(nil, attrs, append([]byte{byte(p.Bits())}, p.Addr().AsSlice()...))
	}
	sizes := []int{4053, 4054, 4055, 4063, 4064, 4068} // up to the longest message
	for i, size := range sizes {
		prefix := fmt.Sprintf("10.1.%d.0/26", i)
		send(prefix, 0)
		for _, f := range to {
			eventually(t, prefix+" is reflected", true, func() bool {
				return f.routes()[pfx(prefix)] != ""
			})
		}
		send(prefix, size)
		fits := size+14+5+23 <= 4096
		for _, f := range to {
			eventually(t, fmt.Sprintf("with %d bytes of attributes it is reflected", size), fits,
				func() bool { return f.routes()[pfx(prefix)] != "" })
			if fits {
				eventually(t, "with them", true, func() bool {
					f.mu.Lock()
					defer f.mu.Unlock()
					return len(f.whole[pfx(prefix)]) == 7
				})
			}
		}
		n.wantHops(prefix, "192.0.2.1")
	}
	if c := n.Counters(); c.Unsendable != 2*4 {
		t.Errorf("counted %+v", c)
	}
	if got := strings.Count(log.String(), "cannot be sent"); got != 2 {
		t.Errorf("logged %d times, not once for each of 2 peers:\n%s", got, log)
	}
}
