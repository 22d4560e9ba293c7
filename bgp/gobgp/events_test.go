package gobgp

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
)

// events keeps what GoBGP tells of each peer, in order.
type events struct {
	mu sync.Mutex
	of map[string][]string
}

// eventsOf has what GoBGP tells of n's sessions kept. It is called before n has peers.
func eventsOf(n *node) *events {
	es := &events{of: map[string][]string{}}
	n.applied.server.OnSession(func(e server.SessionEvent) {
		es.take(e)
		n.handleEvent(e)
	})
	return es
}

func (es *events) take(e server.SessionEvent) {
	text := string(e.Kind)
	if n := e.Notification; n != nil {
		text += " " + strings.TrimSpace(
			fmt.Sprintf("%d/%d %s", n.ErrorCode, n.ErrorSubcode, e.Communication))
	}
	if e.Err != nil && e.Err.Error() != "" {
		text += ": " + e.Err.Error()
	}
	es.mu.Lock()
	defer es.mu.Unlock()
	peer := peerID(e.Peer).String()
	es.of[peer] = append(es.of[peer], strings.TrimSpace(text))
}

func (es *events) about(peer string) string {
	es.mu.Lock()
	defer es.mu.Unlock()
	return strings.Join(es.of[peer], "\n")
}

// Events of a session are reported where they happen, in order.
func TestSessionEvents(t *testing.T) {
	up := func(do func(*far)) func(*node, string) {
		return func(n *node, peer string) {
			f := dialFar(t, n, peer, 64512, 90, true)
			n.wantState(peer, "Established")
			do(f)
		}
	}
	opening := func(do func(*bare)) func(*node, string) {
		return func(n *node, peer string) {
			b := dialBare(t, n, peer, "9.9.9.9")
			b.expect("OPEN")
			do(b)
		}
	}
	goodbye := packet.NewBGPNotificationMessage(6, 2, []byte("\x03bye"))
	const down, cease = "peer Down: notification-sent code ", "code 6(cease) subcode 2"
	cases := []struct {
		name string
		do   func(n *node, peer string)
		want []string
	}{
		{"the connection breaks", up(func(f *far) { f.close() }),
			[]string{"peer Up", "peer Down: the connection broke"}},
		{"the peer says goodbye", up(func(f *far) { f.send(goodbye) }),
			[]string{"peer Up", "received notification 6/2 bye",
				"peer Down: notification-received " + cease + "(administrative shutdown)"}},
		{"the peer says goodbye first", opening(func(b *bare) { b.send(goodbye) }),
			[]string{"received notification 6/2 bye"}},
		{"we say goodbye", func(n *node, peer string) {
			up(func(*far) {})(n, peer)
			bye := &api.ShutdownPeerRequest{Address: peer, Communication: "bye"}
			if err := n.applied.server.ShutdownPeer(t.Context(), bye); err != nil {
				t.Error(err)
			}
		}, []string{"peer Up", "sent notification 6/2 bye",
			down + "6(cease) subcode 2(administrative shutdown)"}},
		{"silence", func(n *node, peer string) { dialFar(t, n, peer, 64512, 3, false) },
			[]string{"peer Up", "hold timer expired", "sent notification 4/0",
				"peer Down: hold-timer-expired"}},
		{"header", up(func(f *far) { f.bytes(0xff, nil) }),
			[]string{"peer Up", "malformed message: unknown message type", "sent notification 1/3",
				down + "1(header) subcode 3(bad message type)"}},
		{"the first header", opening(func(b *bare) { b.bytes(0xff, nil) }),
			[]string{"malformed message: unknown message type",
				"sent notification 1/3: unknown message type"}},
		{"OPEN of another AS", opening(func(b *bare) { b.open(64513) }),
			[]string{"sent notification 2/2: the peer's AS is 64513, 64512 is configured"}},
		{"UPDATE that cannot be read", up(func(f *far) {
			f.bytes(packet.BGP_MSG_UPDATE, []byte("\x00\x01\x00\x00"))
		}), []string{"peer Up", "malformed message: its lengths are wrong",
			"sent notification 3/1",
			down + "3(update) subcode 1(malformed attribute list)"}},
		{"UPDATE with an unknown attribute that is well-known", up(func(f *far) {
			f.raw(nil, hexBytes(goodHead+"406303 010203"), hexBytes("1a 0a010000"))
		}), []string{"peer Up",
			"malformed message: unrecognized well-known attribute BGPAttrType(99)",
			"sent notification 3/2",
			down + "3(update) subcode 2(unrecognized well known attribute)"}},
		{"attribute that is discarded", up(func(f *far) {
			f.raw(nil, hexBytes(goodHead+"400601 00"), hexBytes("1a 0a010000"))
		}), []string{"peer Up", "some attributes were discarded: " +
			"attribute BGP_ATTR_TYPE_ATOMIC_AGGREGATE is malformed: 40060100"}},
		{"UPDATE that withdraws", up(func(f *far) {
			f.raw(nil, hexBytes(goodHead+"c00800"), hexBytes("1a 0a010000"))
		}), []string{"peer Up", "the received Update message was treated as withdraw: " +
			"attribute BGP_ATTR_TYPE_COMMUNITIES is malformed: c00800"}},
		{"more prefixes than the limit", up(func(f *far) {
			f.announce("10.1.0.0/26", "192.0.2.1")
			f.announce("10.1.1.0/26", "192.0.2.1")
		}), []string{"peer Up", "prefix limit reached", "sent notification 6/1",
			down + "6(cease) subcode 1(maximum number of prefixes reached)"}},
		{"another address of ours", func(n *node, peer string) {
			dialBare(t, n, peer, "").expect("closed")
		}, []string{"mismatched local address: the peer dialled 127.0.0.11, our end is 127.0.0.9"}},
		{"OPEN of another AS, where we dialled", func(n *node, peer string) {
			l, err := net.Listen("tcp4", netip.AddrPortFrom(addr(peer), n.port).String())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			b := acceptBare(t, l, "9.9.9.9")
			b.open(64513)
			b.expect("OPEN", "2/2")
		}, []string{"sent notification 2/2: the peer's AS is 64513, 64512 is configured"}},
	}
	n := newLab(t).unset(64512)
	es := eventsOf(n)
	peer := func(i int) string { return fmt.Sprintf("127.0.0.%d", 80+i) }
	for i, c := range cases {
		n.farPeer(peer(i), 64512)
		p := &n.plan.Peers[i]
		p.PrefixLimit = 1
		switch c.name {
		case "another address of ours":
			p.LocalAddress = addr("127.0.0.9")
		case "OPEN of another AS, where we dialled":
			p.Passive, p.Port = false, n.port
		}
	}
	set(t, n)
	for i, c := range cases {
		c.do(n, peer(i))
	}
	for i, c := range cases {
		want := strings.Join(c.want, "\n")
		eventually(t, c.name, want, func() string { return es.about(peer(i)) })
	}
}

// knows is a speaker that keeps records of these peers, and has no GoBGP.
func knows(log *slog.Logger, peers ...string) *Speaker {
	s := &Speaker{log: log, sessions: newSessions()}
	for _, p := range peers {
		s.sessions.add(first(p), false)
	}
	return s
}

// A peer that is back by the time that the end of its session is looked at keeps its new session,
// also where GoBGP has not got to its paths yet.
func TestExpiryOfASessionBeforeTheLast(t *testing.T) {
	peer := first("192.0.2.1")
	for what, back := range map[string]func(*Speaker){
		"away": nil,
		"back": func(s *Speaker) { s.sessions.state(peer, true, time.Now()) },
		"just back": func(s *Speaker) {
			s.handleEvent(server.SessionEvent{Peer: named("192.0.2.1"), Kind: server.PeerUp})
		},
	} {
		s := knows(quietLog(), "192.0.2.1")
		s.sessions.state(peer, true, time.Now())
		s.handleEvent(server.SessionEvent{Peer: named("192.0.2.1"), Kind: server.HoldTimerExpired})
		s.sessions.state(peer, false, time.Now())
		if back != nil {
			back(s)
		}
		if got := s.sessions.takeExpired(); (len(got) == 0) != (back != nil) {
			t.Errorf("%s: %v are taken out", what, got)
		}
	}
}

func TestRefusedKeys(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{syscall.ENOPROTOOPT, "TCP MD5 key: protocol not available"},
		{syscall.ENOMEM, "TCP MD5 key: cannot allocate memory: " +
			"net.core.optmem_max limits how many keys one listener can have"},
		// listeners of before a restart stay in GoBGP's list
		{&net.OpError{Err: net.ErrClosed}, ""},
	} {
		s := knows(quietLog(), "192.0.2.1")
		s.handleEvent(server.SessionEvent{
			Peer: named("192.0.2.1"), Kind: server.KeyRefused, Err: c.err,
		})
		got := ""
		if err := s.sessions.keyError(first("192.0.2.1")); err != nil {
			got = keyRefused(err).Error()
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

func TestWhySessionsAreDown(t *testing.T) {
	type event = server.SessionEvent
	down := func(why string) event { return event{Kind: server.PeerDown, Err: errors.New(why)} }
	notification := func(kind server.SessionEventKind, code, subcode uint8, why string) event {
		n := &packet.BGPNotification{ErrorCode: code, ErrorSubcode: subcode}
		return event{Kind: kind, Notification: n, Communication: why}
	}
	for _, c := range []struct {
		name string
		tell []event
		want string
	}{
		{"broken connection", []event{down("the connection broke")}, "the connection broke"},
		{"hold timer beats what follows", []event{
			{Kind: server.HoldTimerExpired},
			notification(server.NotificationSent, 4, 0, ""),
			down("the connection broke"),
		}, "hold timer expired"},
		{"the peer's notification", []event{
			notification(server.NotificationReceived, 6, 2, "maintenance"),
			down("notification-received"),
		}, `peer sent Cease: Administrative Shutdown (RFC 4486) ("maintenance")`},
		{"a code of the future", []event{
			notification(server.NotificationReceived, 9, 3, ""), down("notification-received"),
		}, "peer sent code 9 subcode 3"},
		{"a subcode of the future", []event{
			notification(server.NotificationSent, 6, 99, ""), down("notification-sent"),
		}, "we sent Cease, subcode 99 (RFC 4271 §6.7)"},
		{"what we say of a malformed message", []event{
			{Kind: server.MessageRefused, Err: errors.New("its lengths are wrong")},
			notification(server.NotificationSent, 3, 1, ""),
			down("notification-sent"),
		}, "malformed message: its lengths are wrong"},
		{"an old cause is over once it is up", []event{
			notification(server.NotificationReceived, 6, 2, ""),
			{Kind: server.PeerUp},
			down("the connection broke"),
		}, "the connection broke"},
		{"sending panicked", []event{
			{Kind: server.SessionPanicked, Err: errors.New("while sending: index out of range")},
			down("notification-sent code 6(cease)"),
		}, "GoBGP panicked: while sending: index out of range"},
		{"another peer", []event{{Peer: named("192.0.2.2"), Kind: server.HoldTimerExpired}}, ""},
	} {
		s := knows(quietLog(), "192.0.2.1")
		for _, e := range c.tell {
			if !e.Peer.IsValid() {
				e.Peer = named("192.0.2.1")
			}
			s.handleEvent(e)
		}
		if got := s.sessions.snapshot()[first("192.0.2.1")].lastError; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A peer that sends one malformed UPDATE after the other, or is to be sent what has no room, does
// not fill the log. All are counted.
func TestTroubleOfOneKindIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	peers := []string{"192.0.2.1", "192.0.2.2"}
	s := knows(slog.New(slog.NewTextHandler(&out, nil)), peers...)
	for _, peer := range peers {
		tell := func(kind server.SessionEventKind, why string) {
			s.handleEvent(server.SessionEvent{Peer: named(peer), Kind: kind, Err: errors.New(why)})
		}
		for range 3 {
			tell(server.AttributesDiscarded, "AGGREGATOR")
			tell(server.TreatedAsWithdraw, "ORIGIN")
			tell(server.RouteUnsendable, "10.1.0.0/26")
		}
		tell(server.AttributesDiscarded, packet.DecoderPanicked("where"))
		tell(server.SessionPanicked, "where")
	}
	var c bgp.Counters
	s.sessions.count(&c)
	if want := (bgp.Counters{Revised: 14, Unsendable: 6, Panicked: 4}); c != want {
		t.Errorf("counted %+v, not %+v", c, want)
	}
	for text, want := range map[string]int{
		"discarded": 4, "treated as withdraw": 0, "cannot be sent": 2,
	} {
		if got := strings.Count(out.String(), text); got != want {
			t.Errorf("%q is logged %d times, not %d:\n%s", text, got, want, &out)
		}
	}
}
