package gobgp

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// panicking is a log in which GoBGP panics where it writes a message about a peer. GoBGP logs in
// all of its goroutines, so this is a panic of theirs.
type panicking struct {
	slog.Handler
	msg, peer string        // "": about none
	left      *atomic.Int32 // how often it still does
}

func (panicking) Enabled(context.Context, slog.Level) bool { return true }

func (p panicking) Handle(ctx context.Context, r slog.Record) error {
	about := p.peer == ""
	r.Attrs(func(a slog.Attr) bool {
		about = about || a.Key == "peer" && a.Value.String() == p.peer
		return true
	})
	if r.Message == "gobgp: "+p.msg && about && p.left.Add(-1) >= 0 {
		panic("injected")
	}
	if r.Level < slog.LevelInfo {
		return nil
	}
	return p.Handler.Handle(ctx, r)
}

func (p panicking) WithAttrs(a []slog.Attr) slog.Handler {
	p.Handler = p.Handler.WithAttrs(a)
	return p
}

// panicWhere has GoBGP panic so often where it writes msg about the peer.
func panicWhere(msg, peer string, times int32) func(*Config) {
	return func(c *Config) {
		left := &atomic.Int32{}
		left.Store(times)
		c.Log = slog.New(panicking{c.Log.Handler(), msg, peer, left})
	}
}

// A panic in a state of a session, or where it is dialled, ends that session and no other. It comes
// back, and status says what happened.
func TestPanicInASession(t *testing.T) {
	const peer = "127.0.0.90"
	for name, tc := range map[string]struct {
		msg string
		run func(*node)
	}{
		"established": {"the peer opened a new connection", func(n *node) {
			f := dialFar(n.t, n, peer, 64512, 90, true, gracefulCap(false))
			n.wantState(peer, "Established")
			f.announce("10.90.0.0/26", "192.0.2.90")
			n.wantHops("10.90.0.0/26", "192.0.2.90")
			time.Sleep(3 * time.Second)
			b := dialBare(n.t, n, peer, "9.9.9.90")
			b.open(64512, gracefulCap(true))
			b.expect("OPEN", "KEEPALIVE")
			b.send(packet.NewBGPKeepAliveMessage())
			n.wantHops("10.90.0.0/26", "192.0.2.90")
		}},
		// GoBGP holds the session's lock there.
		"an OPEN": {"restart flag is not set", func(n *node) {
			n.breakSession(peer, gracefulCap(false))
			dialBare(n.t, n, peer, "9.9.9.90").open(64512, gracefulCap(false))
			eventually(n.t, "a panic", 1, func() int { return n.Counters().Panicked })
			dialFar(n.t, n, peer, 64512, 90, true, gracefulCap(false))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newLab(t).node(64512, panicWhere(tc.msg, peer, 1))
			n.farPeer(peer, 64512)
			n.farPeer("127.0.0.91", 64512)
			set(t, n)
			dialFar(t, n, "127.0.0.91", 64512, 90, true)
			n.wantState("127.0.0.91", "Established")
			since := n.farState("127.0.0.91").Since
			tc.run(n)
			n.wantState(peer, "Established")
			if c := n.Counters(); c.Panicked != 1 {
				t.Errorf("%d panics", c.Panicked)
			}
			why := n.farState(peer).LastError
			text, place := "GoBGP panicked: injected (", ".go:"
			if !strings.HasPrefix(why, text) || !strings.Contains(why, place) {
				t.Errorf("status says %q", why)
			}
			if s := n.farState("127.0.0.91"); !s.Established || !s.Since.Equal(since) {
				t.Errorf("the other session did not last: %+v", s)
			}
		})
	}
	t.Run("dialling", func(t *testing.T) {
		n, l := newLab(t).activeNode("127.0.0.92", panicWhere("try to connect", "127.0.0.92", 2))
		b := acceptBare(t, l, "9.9.9.92")
		b.expect("OPEN")
		b.open(64512)
		b.expect("KEEPALIVE")
		b.send(packet.NewBGPKeepAliveMessage())
		n.wantState("127.0.0.92", "Established")
		if c := n.Counters(); c.Panicked != 2 {
			t.Errorf("%d panics", c.Panicked)
		}
	})
}

// A panic in a call of GoBGP's API ends the call.
func TestPanicInACall(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "gobgp.sock")
	newLab(t).node(64512, func(c *Config) {
		c.GRPC, c.GRPCWrite = "unix://"+socket, true
		panicWhere("logging level changed", "", 1)(c)
	})
	c := client(t, "unix://"+socket)
	level := &api.SetLogLevelRequest{Level: api.SetLogLevelRequest_ERROR}
	if _, err := c.SetLogLevel(t.Context(), level); status.Code(err) != codes.Internal {
		t.Errorf("the call that panics: %v", err)
	}
	if _, err := c.GetBgp(t.Context(), &api.GetBgpRequest{}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}
