package gobgp

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/osrg/gobgp/v3/pkg/log"

	"vpp-route-agent/bgp"
)

func quietLog() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestLoggerNeverExits(t *testing.T) {
	fatal := make(chan error, 1)
	l := &logger{log: quietLog(), sessions: newSessions(), fatal: fatal}
	l.Fatal("failed to listen grpc port", log.Fields{"Err": errors.New("address already in use")})
	l.Panic("code logic bug", log.Fields{}) // the second is not waited for
	if err := <-fatal; err.Error() != "gobgp: failed to listen grpc port: address already in use" {
		t.Error(err)
	}
}

func TestLoggerLevels(t *testing.T) {
	for level, want := range map[slog.Level]log.LogLevel{slog.LevelWarn: log.InfoLevel, slog.LevelDebug: log.InfoLevel, levelTrace: log.DebugLevel} {
		l := &logger{log: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: level})), sessions: newSessions()}
		if got := l.GetLevel(); got != want {
			t.Errorf("slog level %s: GoBGP level %d, want %d", level, got, want)
		}
	}
	var out bytes.Buffer
	l := &logger{log: slog.New(slog.NewTextHandler(&out, nil)), sessions: newSessions()}
	l.Warn("No matching path for withdraw found, may be path was not installed into table", log.Fields{"Topic": "Table", "Key": "10.0.0.0/8"})
	l.Info("Add a peer configuration", log.Fields{"Topic": "Peer", "Key": "192.0.2.1"})
	l.Debug("received update", log.Fields{})
	if out.Len() > 0 {
		t.Errorf("routine messages written at info: %s", &out)
	}
	l.Warn("failed to unset md5", log.Fields{"Topic": "Peer", "Key": "192.0.2.1", "Err": errors.New("protocol not available")})
	for _, want := range []string{"level=WARN", `msg="gobgp: failed to unset md5"`, "peer=192.0.2.1", `err="protocol not available"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in %s", want, &out)
		}
	}
}

func TestRefusedKeys(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{syscall.ENOPROTOOPT, "TCP MD5 key: protocol not available"},
		{syscall.ENOMEM, "TCP MD5 key: cannot allocate memory: net.core.optmem_max limits how many keys one listener can have"},
		{&net.OpError{Err: net.ErrClosed}, ""}, // listeners of before a restart stay in GoBGP's list
	} {
		ss := newSessions()
		ss.add(addr("192.0.2.1"), false)
		l := &logger{log: quietLog(), sessions: ss}
		l.Warn("failed to set md5", log.Fields{"Key": "192.0.2.1", "Err": c.err})
		got := ""
		if err := ss.keyError(addr("192.0.2.1")); err != nil {
			got = keyRefused(err).Error()
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

func TestWhySessionsAreDown(t *testing.T) {
	peer := log.Fields{"Key": "192.0.2.1"}
	with := func(k string, v any, more ...any) log.Fields {
		f := log.Fields{"Key": "192.0.2.1", k: v}
		for i := 0; i+1 < len(more); i += 2 {
			f[more[i].(string)] = more[i+1]
		}
		return f
	}
	for _, c := range []struct {
		name string
		say  func(*logger)
		want string
	}{
		{"broken connection", func(l *logger) { l.Info("Peer Down", with("Reason", "graceful-restart")) }, "the connection broke"},
		{"hold timer beats what follows", func(l *logger) {
			l.Warn("hold timer expired", peer)
			l.Warn("sent notification", with("Code", uint8(4), "Subcode", uint8(0)))
			l.Info("Peer Down", with("Reason", "graceful-restart"))
		}, "hold timer expired"},
		{"the peer's notification", func(l *logger) {
			l.Warn("received notification", with("Code", uint8(6), "Subcode", uint8(2), "Communicated-Reason", "maintenance"))
			l.Info("Peer Down", with("Reason", "notification-received"))
		}, `peer sent code 6(cease) subcode 2(administrative shutdown) ("maintenance")`},
		{"an old cause is over once it is up", func(l *logger) {
			l.Warn("received notification", with("Code", uint8(6), "Subcode", uint8(2)))
			l.Info("Peer Up", peer)
			l.Info("Peer Down", with("Reason", "read-failed"))
		}, "the connection broke"},
		{"sending panicked", func(l *logger) {
			l.Error("sending panicked", with("Error", "index out of range (message.go:208)"))
			l.Info("Peer Down", with("Reason", "notification-sent code 6(cease)"))
		}, "GoBGP panicked: while sending: index out of range (message.go:208)"},
		{"another peer", func(l *logger) { l.Info("Peer Down", log.Fields{"Key": "192.0.2.2", "Reason": "read-failed"}) }, ""},
	} {
		ss := newSessions()
		ss.add(addr("192.0.2.1"), false)
		c.say(&logger{log: quietLog(), sessions: ss})
		if got := ss.snapshot()[addr("192.0.2.1")].lastError; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A peer that sends one malformed UPDATE after the other, or is to be sent what has no room, does not fill
// the log. All are counted.
func TestTroubleOfOneKindIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	ss := newSessions()
	l := &logger{log: slog.New(slog.NewTextHandler(&out, nil)), sessions: ss}
	for _, peer := range []string{"192.0.2.1", "192.0.2.2"} {
		ss.add(addr(peer), false)
		for range 3 {
			l.Warn("Some attributes were discarded", log.Fields{"Key": peer, "Error": "AGGREGATOR"})
			l.Warn("the received Update message was treated as withdraw", log.Fields{"Key": peer, "Error": "ORIGIN"})
			l.Warn("a route cannot be sent, and is withdrawn at the peer", log.Fields{"Key": peer})
		}
		l.Warn("Some attributes were discarded", log.Fields{"Key": peer, "Error": "the decoder panicked: where"})
		l.Error("sending panicked", log.Fields{"Key": peer, "Error": "where"})
	}
	var c bgp.Counters
	ss.count(&c)
	if want := (bgp.Counters{Revised: 14, Unsendable: 6, Panicked: 4}); c != want {
		t.Errorf("counted %+v, not %+v", c, want)
	}
	for text, want := range map[string]int{
		"discarded": 4, "treated as withdraw": 0, "cannot be sent": 2, "sending panicked": 2,
	} {
		if got := strings.Count(out.String(), text); got != want {
			t.Errorf("%q is logged %d times, not %d:\n%s", text, got, want, &out)
		}
	}
}

func TestSessionsForgetEndOfRIBWithTheSession(t *testing.T) {
	a, now := addr("192.0.2.1"), time.Now()
	ss := newSessions()
	ss.add(a, false)
	ss.endOfRIB(a) // late, of a session that is gone
	if ss.snapshot()[a].endOfRIB {
		t.Error("End-of-RIB without a session")
	}
	ss.state(a, true, now)
	ss.endOfRIB(a)
	if !ss.snapshot()[a].endOfRIB {
		t.Error("End-of-RIB was not noted")
	}
	ss.state(a, false, now)
	ss.state(a, true, now)
	if ss.snapshot()[a].endOfRIB {
		t.Error("End-of-RIB of an earlier session counts")
	}
}
