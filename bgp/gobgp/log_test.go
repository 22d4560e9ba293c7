package gobgp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
)

func quietLog() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestLoggerNeverExits(t *testing.T) {
	fatal := make(chan error, 1)
	l := &logger{log: quietLog(), fatal: fatal}
	l.Fatal("failed to listen grpc port", log.Fields{"Err": errors.New("address already in use")})
	l.Panic("code logic bug", log.Fields{}) // the second is not waited for
	if err := <-fatal; err.Error() != "gobgp: failed to listen grpc port: address already in use" {
		t.Error(err)
	}
}

func TestLoggerLevels(t *testing.T) {
	for level, want := range map[slog.Level]log.LogLevel{
		slog.LevelWarn: log.InfoLevel, slog.LevelDebug: log.InfoLevel, levelTrace: log.DebugLevel,
	} {
		l := &logger{
			log: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: level})),
		}
		if got := l.GetLevel(); got != want {
			t.Errorf("slog level %s: GoBGP level %d, want %d", level, got, want)
		}
	}
	var out bytes.Buffer
	l := &logger{log: slog.New(slog.NewTextHandler(&out, nil))}
	l.Warn("No matching path for withdraw found, may be path was not installed into table",
		log.Fields{"Topic": "Table", "Key": "10.0.0.0/8"})
	l.Info("Add a peer configuration", log.Fields{"Topic": "Peer", "Key": "192.0.2.1"})
	l.Debug("received update", log.Fields{})
	if out.Len() > 0 {
		t.Errorf("routine messages written at info: %s", &out)
	}
	l.Warn("failed to unset md5", log.Fields{
		"Topic": "Peer", "Key": "192.0.2.1", "Err": errors.New("protocol not available"),
	})
	for _, want := range []string{
		"level=WARN", `msg="gobgp: failed to unset md5"`, "peer=192.0.2.1",
		`err="protocol not available"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in %s", want, &out)
		}
	}
}

func TestSessionsForgetEndOfRIBWithTheSession(t *testing.T) {
	a, now := first("192.0.2.1"), time.Now()
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

// countedLines counts the debug lines that GoBGP makes at another level.
type countedLines struct {
	*logger
	lines atomic.Int64
}

func (c *countedLines) Debug(string, log.Fields) { c.lines.Add(1) }

// A line's fields cost more than the table's work for a prefix.
func TestNoDebugLineForEachPrefix(t *testing.T) {
	counted := &countedLines{logger: &logger{log: quietLog()}}
	s := server.NewBgpServer(server.LoggerOption(counted))
	go s.Serve()
	start := &api.StartBgpRequest{Global: global(bgp.Speaker{AS: 64512,
		RouterID: addr("127.0.0.1")})}
	if err := s.StartBgp(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.StopBgp(context.Background(), &api.StopBgpRequest{}) }()
	const prefixes = 100
	for i := range prefixes {
		p, err := pathOf(bgp.Announcement{NextHop: addr("192.0.2.1"),
			Prefix: pfx(fmt.Sprintf("10.1.%d.0/26", i))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.AddPath(t.Context(), &api.AddPathRequest{Path: p}); err != nil {
			t.Fatal(err)
		}
	}
	if n := counted.lines.Load(); n > prefixes/2 {
		t.Errorf("%d debug lines for %d prefixes", n, prefixes)
	}
}
