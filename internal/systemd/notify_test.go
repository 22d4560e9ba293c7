package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"vpp-route-agent/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manager is a service manager's end of the socket.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func listen(t *testing.T) manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return manager{t, conn}
}

// next returns the next message, "" when none comes within wait.
func (m manager) next(wait time.Duration) string {
	m.t.Helper()
	m.conn.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 4096)
	n, err := m.conn.Read(buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

const patience = 30 * time.Second

// until reads messages until one contains text.
func (m manager) until(text string) {
	m.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if strings.Contains(m.next(patience), text) {
			return
		}
	}
	m.t.Fatalf("no %q", text)
}

// service is one whose loop the test turns.
func service(t *testing.T, status *atomic.Value, turned *atomic.Int64) Service {
	return Service{
		Status: func() string { return status.Load().(string) },
		Turned: func() time.Time { return time.Unix(0, turned.Load()) },
		Log:    testlog.New(t),
	}
}

func start(t *testing.T, s Service) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Run(ctx, s) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestTellsReadyStatusAndStopping(t *testing.T) {
	m := listen(t)
	var status atomic.Value
	status.Store("waiting for\netcd")
	stop := start(t, service(t, &status, new(atomic.Int64)))
	if got := m.next(patience); got != "READY=1\nSTATUS=waiting for etcd" {
		t.Errorf("first message %q", got)
	}
	status.Store("ready")
	if got := m.next(patience); got != "STATUS=ready" {
		t.Errorf("after a change: %q", got)
	}
	stop()
	if got := m.next(patience); got != "STOPPING=1" {
		t.Errorf("last message %q", got)
	}
}

// systemd sets a unit that said STOPPING to end within TimeoutStopSec, and no READY of a new
// process takes that back.
func TestANewProcessInThisPlaceIsNoStop(t *testing.T) {
	takenOver, drained := errors.New("a new process takes over"), errors.New("drained")
	for _, tc := range []struct {
		name        string
		cause, over error
		want        string
	}{
		{"a new process takes over", fmt.Errorf("agent: %w", takenOver), takenOver, ""},
		{"the agent has drained", drained, takenOver, "STOPPING=1"},
		{"SIGTERM", nil, takenOver, "STOPPING=1"},
		{"nothing ever takes over", takenOver, nil, "STOPPING=1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := listen(t)
			var status atomic.Value
			status.Store("ready")
			s := service(t, &status, new(atomic.Int64))
			s.TakenOver = tc.over
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error)
			go func() { done <- Run(ctx, s) }()
			m.until("READY=1")
			cancel(tc.cause)
			if err := <-done; err != nil {
				t.Error(err)
			}
			// it was sent before Run returned
			if got := m.next(100 * time.Millisecond); got != tc.want {
				t.Errorf("last message %q, want %q", got, tc.want)
			}
		})
	}
}

func TestFeedsTheWatchdogOnlyWhileTheLoopTurns(t *testing.T) {
	m := listen(t)
	t.Setenv("WATCHDOG_USEC", "60000")
	var status atomic.Value
	status.Store("ready")
	var turned atomic.Int64
	stop := start(t, service(t, &status, &turned))
	// of the turn 0: were it still on its way, each one below might be taken for the next
	m.until("WATCHDOG=1")
	for turn := range int64(3) {
		turned.Store(time.Now().UnixNano() + turn)
		m.until("WATCHDOG=1")
	}
	if got := m.next(10 * 60 * time.Millisecond); got != "" { // ten times the watchdog's patience
		t.Errorf("the loop stands still: %q", got)
	}
	stop()
}

func TestDoesNothingOutsideAServiceManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Run(t.Context(), Service{}); err != nil {
		t.Error(err)
	}
}

func TestAManagerThatDoesNotReadHoldsUpNothing(t *testing.T) {
	m := listen(t)
	// until there is no room even for one who has sent nothing yet: each is also stopped by a
	// buffer of its own
	for sent := -1; sent != 0; {
		conn, err := net.DialUnix("unixgram", nil, m.conn.LocalAddr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for sent = -1; err == nil; sent++ {
			conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			_, err = conn.Write([]byte("X=1"))
		}
	}
	var status atomic.Value
	var turned atomic.Int64
	status.Store("well")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, service(t, &status, &turned)) }()
	time.Sleep(100 * time.Millisecond) // in which it sends
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it waits for the manager")
	}
}

func TestGoesOnAndTellsAgainWhenTheManagerIsAway(t *testing.T) {
	m := listen(t)
	var status atomic.Value
	status.Store("ready")
	n := notifier{Service: service(t, &status, new(atomic.Int64))}
	n.notify(time.Now())
	m.conn.Close()
	os.Remove(m.conn.LocalAddr().String())
	status.Store("not ready")
	n.notify(time.Now())
	again, err := net.ListenUnixgram("unixgram", m.conn.LocalAddr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	n.notify(time.Now())
	if got := (manager{t, again}).next(patience); got != "READY=1\nSTATUS=not ready" {
		t.Errorf("after it came back: %q", got)
	}
}
