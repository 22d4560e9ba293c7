package testcluster

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"

	"vpp-route-agent/internal/netlab"
)

func TestMessages(t *testing.T) {
	raw := slices.Concat(OpenMessage(70000, 90, addr("10.0.0.1"), Unicast(addr("fd00::1"))...),
		UpdateMessage([]netip.Prefix{pfx("10.1.0.0/20")}, []byte{0x40, 1, 1, 0},
			pfx("10.2.0.0/16")))
	in, buffer := bytes.NewReader(raw), make([]byte, MaxMessage)
	for kind, want := range map[byte][]byte{
		MsgOpen: {4, 0x5b, 0xa0, 0, 90, 10, 0, 0, 1, 14, 2, 12,
			1, 4, 0, 2, 0, 1, 65, 4, 0, 1, 0x11, 0x70},
		MsgUpdate: {0, 4, 20, 10, 1, 0, 0, 4, 0x40, 1, 1, 0, 16, 10, 2},
	} {
		in.Seek(0, 0)
		for {
			got, body, err := ReadMessage(in, buffer)
			check(t, err)
			if got != kind {
				continue
			}
			if !bytes.Equal(body, want) {
				t.Errorf("message %d: %v, want %v", kind, body, want)
			}
			break
		}
	}
	bad := Message(MsgKeepalive, nil)
	bad[17] = HeaderLength - 1
	if _, _, err := ReadMessage(bytes.NewReader(bad), buffer); err == nil {
		t.Error("a message shorter than its header is taken")
	}
}

// TestSpeakerIsDialledAgain has a speaker's session end by a NOTIFICATION, and come up again.
func TestSpeakerIsDialledAgain(t *testing.T) {
	if err := netlab.Available(); err != nil {
		t.Skip(err)
	}
	c, err := New("speaker", Programs{}, slog.New(slog.DiscardHandler))
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	ns, err := c.Machine("far", pfx("10.0.0.1/24"))
	check(t, err)
	open := OpenMessage(AS, 90, addr("10.0.0.1"))
	greeting := UpdateMessage(nil, nil)
	s, err := Listen(ns, addr("10.0.0.1"), open, greeting, nil)
	check(t, err)
	defer s.Close()
	if err := s.Send(greeting); err == nil {
		t.Error("it sends without a session")
	}
	for range 2 {
		conn, err := Dial(t.Context(), ns, "tcp", "10.0.0.1:179")
		check(t, err)
		expect := func(want ...byte) {
			t.Helper()
			for _, kind := range want {
				got, _, err := ReadMessage(conn, make([]byte, MaxMessage))
				if err != nil || got != kind {
					t.Fatalf("message %d instead of %d: %v", got, kind, err)
				}
			}
		}
		_, err = conn.Write(slices.Concat(open, keepalive))
		check(t, err)
		expect(MsgOpen, MsgKeepalive, MsgUpdate)
		up := func(want bool) func(context.Context) error {
			return func(context.Context) error {
				if is, _ := s.Session(); (is != nil) != want {
					return errors.New("it is otherwise")
				}
				return nil
			}
		}
		await(t, "the session is up", up(true))
		check(t, s.Send(greeting))
		expect(MsgUpdate)
		_, err = conn.Write(slices.Concat(keepalive, Message(MsgNotification, []byte{6, 2})))
		check(t, err)
		expect(MsgKeepalive)
		await(t, "the session has ended", up(false))
		if _, err := s.Session(); err == nil || err.Error() != "NOTIFICATION [6 2]" {
			t.Errorf("it ended by %v", err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
			t.Errorf("the connection is still there: %v", err)
		}
		conn.Close()
	}
}
