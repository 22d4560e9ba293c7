package gobgp

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	gobgpmrt "github.com/osrg/gobgp/v3/pkg/packet/mrt"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/mrt"
)

// taps writes down what all peers send as one MRT file.
type taps struct {
	mu       sync.Mutex
	sessions []bgp.Session
	file     []byte
}

type tap struct {
	*taps
	*mrt.Writer
}

func (t *taps) begin(s bgp.Session) bgp.Tap {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions = append(t.sessions, s)
	w := mrt.NewWriter(s)
	t.file = w.StateChange(t.file, time.Now(), mrt.OpenConfirm, mrt.Established)
	return tap{t, w}
}

func (t tap) Message(at time.Time, header, body []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.file = t.Writer.Message(t.file, at, header, body)
}

func (t tap) End(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.file = t.StateChange(t.file, at, mrt.Established, mrt.Idle)
}

// lines are the records as GoBGP's own reader has them; of a message that it cannot decode the
// error.
func (t *taps) lines() (out []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for b := t.file; len(b) > 0; {
		h := &gobgpmrt.MRTHeader{}
		if h.DecodeFromBytes(b) != nil {
			return append(out, "no header")
		}
		record := b[:gobgpmrt.MRT_COMMON_HEADER_LEN+h.Len]
		b = b[len(record):]
		m, err := gobgpmrt.ParseMRTBody(h, record[gobgpmrt.MRT_COMMON_HEADER_LEN:])
		if err != nil {
			out = append(out, "refused")
			continue
		}
		switch body := m.Body.(type) {
		case *gobgpmrt.BGP4MPStateChange:
			again, err := m.Serialize()
			if err != nil || !bytes.Equal(again, record) {
				out = append(out, fmt.Sprintf("%x instead of %x, %v", again, record, err))
			}
			out = append(out, fmt.Sprintf("%d→%d", body.OldState, body.NewState))
		case *gobgpmrt.BGP4MPMessage:
			out = append(out, messageText(body.BGPMessage))
		}
	}
	return out
}

func messageText(m *packet.BGPMessage) string {
	u, ok := m.Body.(*packet.BGPUpdate)
	if !ok {
		return fmt.Sprintf("type %d", m.Header.Type)
	}
	text := "UPDATE"
	for _, p := range u.WithdrawnRoutes {
		text += fmt.Sprintf(" -%s id %d", p, p.PathIdentifier())
	}
	for _, p := range u.NLRI {
		text += fmt.Sprintf(" +%s id %d", p, p.PathIdentifier())
	}
	return text
}

// All that a peer sends is told as it came, also what GoBGP refuses: an UPDATE that withdraws, and
// one that ends the session. GoBGP's reader of MRT understands what is written of it.
func TestTap(t *testing.T) {
	l := newLab(t)
	all := &taps{}
	n := l.unset(64512, func(c *Config) { c.Tap = all.begin })
	n.farPeer("127.0.0.80", 64512)
	n.farPeer("127.0.0.81", 65001)
	set(t, n)
	ids := packet.NewCapAddPath([]*packet.CapAddPathTuple{
		packet.NewCapAddPathTuple(packet.RF_IPv4_UC, packet.BGP_ADD_PATH_BOTH)})
	f := dialFar(t, n, "127.0.0.80", 64512, 90, true, ids)
	f.announcePath(7, "10.1.0.0/26", "192.0.2.1")
	n.wantHops("10.1.0.0/26", "192.0.2.1")
	f.announcePath(8, "10.1.0.0/26", "192.0.2.2")
	n.wantHops("10.1.0.0/26", "192.0.2.1", "192.0.2.2")
	f.withdrawPath(7, "10.1.0.0/26")
	n.wantHops("10.1.0.0/26", "192.0.2.2")
	withID := append(hexBytes("00000009"), hexBytes("1a 0a010000")...)
	f.raw(nil, hexBytes("40010103 400200 400304c0000202 40050400000064"), withID) // ORIGIN 3
	f.raw(nil, hexBytes("40010100 4002 ff"), nil)
	eventually(t, "the session ends", "3/5", f.notification)
	want := []string{"5→6", "UPDATE +10.1.0.0/26 id 7", "UPDATE +10.1.0.0/26 id 8",
		"UPDATE -10.1.0.0/26 id 7", "UPDATE +10.1.0.0/26 id 9", "refused", "6→1"}
	eventually(t, "what is told", fmt.Sprintf("%q", want), func() string {
		return fmt.Sprintf("%q", all.lines())
	})
	all.mu.Lock()
	if !bytes.Contains(all.file, hexBytes("0000 0007 40010100 4002ff")) {
		t.Errorf("what ended the session is not there as it came: %x", all.file)
	}
	all.file = nil
	all.mu.Unlock()
	f.close()

	dialFar(t, n, "127.0.0.81", 65001, 90, true)
	eventually(t, "another session", `["5→6"]`, func() string {
		return fmt.Sprintf("%q", all.lines())
	})
	all.mu.Lock()
	defer all.mu.Unlock()
	for i, want := range []bgp.Session{
		{Peer: addr("127.0.0.80"), Local: n.addr, PeerAS: 64512, LocalAS: 64512,
			FourOctetAS: true, IPv4: bgp.SessionFamily{On: true, PathIDs: true}},
		{Peer: addr("127.0.0.81"), Local: n.addr, PeerAS: 65001, LocalAS: 64512,
			FourOctetAS: true, IPv4: bgp.SessionFamily{On: true}},
	} {
		if all.sessions[i] != want {
			t.Errorf("session %d is %+v instead of %+v", i, all.sessions[i], want)
		}
	}
}
