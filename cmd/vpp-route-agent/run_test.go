package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/testlog"
)

// SIGTERM may come while the parts of the agent end to make way for a new process.
func TestNoProcessTakesOverFromOneToldToStop(t *testing.T) {
	const again = "VPP_ROUTE_AGENT_TEST_TAKEN_OVER"
	if os.Getenv(again) != "" {
		t.Fatal("a new process took over: this one")
	}
	t.Setenv(again, "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := handOver(ctx, false, testlog.New(t)); err != nil {
		t.Error(err)
	}
}

// SIGHUP may come while the agent still reads its settings, which have changed by then.
func TestSIGHUPWhileSettingsAreRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.yaml")
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("vpp-route-agent", "run", "--node-name", "edge-5", "--dataplane", "none",
		"--etcd-endpoints", "http://127.0.0.1:1", "--state-dir", dir, "--gobgp-listen", "off",
		"--admin-socket", filepath.Join(dir, "agent.sock"), "--metrics-listen", "off",
		"--config", file)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	old, err := os.OpenFile(file, os.O_WRONLY, 0) // waits for the agent to read
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(file),
		os.WriteFile(file, []byte("deferral: 7s\n"), 0o600),
		cmd.Process.Signal(syscall.SIGHUP)); err != nil {
		t.Fatal(err)
	}
	if _, err := old.WriteString("deferral: 5s\n"); err != nil {
		t.Fatal(err)
	}
	old.Close()
	said := ""
	for lines := bufio.NewScanner(log); !strings.Contains(said, "changed=[--deferral]"); {
		if !lines.Scan() {
			t.Fatalf("it ended with %v:\n%s", cmd.Wait(), said)
		}
		said += lines.Text() + "\n"
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if _, err := io.Copy(io.Discard, log); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// held is what a process holds of the system: sockets, and processes that it started.
func held(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if what, err := os.Readlink(fd); err == nil && strings.HasPrefix(what, "socket:") {
			out[what] = fd
		}
	}
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // the thread may be gone
		for _, child := range strings.Fields(string(text)) {
			out["process "+child] = task
		}
	}
	return out
}

func TestTheLogHasNoEmptyAttributes(t *testing.T) {
	var out strings.Builder
	for _, format := range []string{"text", "json"} {
		log := newLogger(&out, config{nodeName: "a", logLevel: "info", logFormat: format})
		log.Info("data plane", "version", "25.10", "problem", "", "routes", 0)
	}
	if got := out.String(); strings.Contains(got, "problem") ||
		!strings.Contains(got, "version=25.10 routes=0") ||
		!strings.Contains(got, `"version":"25.10","routes":0`) {
		t.Error(got)
	}
}

// What repeats is counted, and the end of the process writes the number.
func TestTheLogCountsWhatRepeats(t *testing.T) {
	var out strings.Builder
	log := newLogger(&out, config{nodeName: "a", logLevel: "info", logFormat: "text"})
	for i := range 4 {
		log.With("component", "etcd").Warn("no answer", "err", fmt.Sprint("after ", i, " tries"))
	}
	if n := strings.Count(out.String(), "no answer"); n != 1 {
		t.Errorf("%d lines", n)
	}
	log.end()
	if got := out.String(); strings.Count(got, "no answer") != 2 ||
		!strings.Contains(got, `err="after 3 tries" repeated=3 during=0s`) {
		t.Error(got)
	}
}

// A supervisor starts the agent again at once: what a failed start leaves behind would add up, or
// stand in the way.
func TestAStageThatFailsLeavesNothingBehind(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct {
		name, says string
		breaks     func(t *testing.T, dir string, cfg *config)
	}{
		{"datastore", "ca.pem", func(t *testing.T, dir string, cfg *config) {
			cfg.etcdCAFile = filepath.Join(dir, "none", "ca.pem")
		}},
		{"admin socket", "is no socket", func(t *testing.T, dir string, cfg *config) {
			cfg.adminSocket = filepath.Join(dir, "file")
		}},
		{"metrics", "address already in use", func(t *testing.T, dir string, cfg *config) {
			cfg.metricsListen = busy.Addr().String()
		}},
		{"state directory", "another agent uses", func(t *testing.T, dir string, cfg *config) {
			unlock, err := lockStateDir(cfg.stateDir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(unlock)
		}},
		{"data plane", "metric", func(t *testing.T, dir string, cfg *config) {
			cfg.kernelElevated = cfg.kernelMetric
		}},
		{"passwords", "serviceaccount", func(t *testing.T, dir string, cfg *config) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
			t.Setenv("KUBERNETES_SERVICE_PORT", "1")
		}},
		{"TLS of gRPC", "none.pem", func(t *testing.T, dir string, cfg *config) {
			cfg.gobgpListen, cfg.tlsCertFile = "0.0.0.0:0", filepath.Join(dir, "none.pem")
		}},
		{"speaker", "not a socket", func(t *testing.T, dir string, cfg *config) {
			cfg.gobgpListen = "unix://" + filepath.Join(dir, "file")
		}},
		{"gRPC of GoBGP", "--gobgp-listen: gobgp: gRPC: listen tcp " + busy.Addr().String(),
			func(t *testing.T, dir string, cfg *config) {
				cfg.gobgpListen = busy.Addr().String()
			}},
		{"uplink", "ca.pem", func(t *testing.T, dir string, cfg *config) {
			// The etcd of the datastore is known then: the file is removed meanwhile.
			cfg.etcdEndpoints = []string{"https://127.0.0.1:1"}
			cfg.etcdCAFile = filepath.Join(dir, "ca.pem")
			cfg.uplink, cfg.uplinkPublish = "eth9", "static"
			cfg.uplinkAddress = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
			cfg.adminSocket = filepath.Join(dir, "made", "agent.sock")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := calicotest.WriteCerts(dir); err != nil {
				t.Fatal(err)
			}
			cfg := config{
				nodeName: "a", dataplane: "kernel", kernelMetric: 1050, kernelElevated: 512,
				learnBGP: true, etcdEndpoints: []string{"http://127.0.0.1:1"},
				metricsListen: "127.0.0.1:0", gobgpListen: "unix://" + filepath.Join(dir, "grpc"),
				adminSocket: filepath.Join(dir, "agent.sock"),
				stateDir:    filepath.Join(dir, "state"),
			}
			c.breaks(t, dir, &cfg)
			log := logger{Logger: slog.New(removing{slog.DiscardHandler,
				filepath.Join(dir, "ca.pem")}), level: new(slog.LevelVar), tail: new(logTail)}
			before, running := held(t), goleak.IgnoreCurrent()
			err := run(t.Context(), cfg, nil, nil, log)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("ended with %v", err)
			}
			if err := goleak.Find(running); err != nil {
				t.Error(err)
			}
			for what, where := range held(t) {
				if before[what] == "" {
					t.Errorf("%s (%s) is left", what, where)
				}
			}
			for _, s := range []string{"agent.sock", "grpc"} {
				if _, err := os.Lstat(filepath.Join(dir, s)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is left: %v", s, err)
				}
			}
		})
	}
}

// removing removes a file when the directory of the admin socket was made.
type removing struct {
	slog.Handler
	file string
}

func (r removing) Enabled(context.Context, slog.Level) bool { return true }
func (r removing) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r removing) WithGroup(string) slog.Handler            { return r }

func (r removing) Handle(_ context.Context, record slog.Record) error {
	if strings.HasPrefix(record.Message, "made the directory") {
		return os.Remove(r.file)
	}
	return nil
}

// Whoever can open the lock's file can hold it, and so keep the agent from starting.
func TestLockIsNotForOthers(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "lock")
	if err := os.WriteFile(name, nil, 0o644); err != nil { // an earlier version's
		t.Fatal(err)
	}
	unlock, err := lockStateDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := lockStateDir(dir); !errors.Is(err, errLocked) || errors.As(err, new(usageError)) {
		t.Errorf("%v: the unit is to try again", err)
	}
	if i, err := os.Stat(name); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", i.Mode(), err)
	}
}

// Who reads the log may end before the agent does: a pipe's reader, or the service manager's.
func TestLogWithoutAReader(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	cmd := exec.Command("vpp-route-agent", "run", "--node-name", "edge-5", "--dataplane", "none",
		"--etcd-endpoints", "http://127.0.0.1:1", "--admin-socket", socket, "--state-dir", dir,
		"--gobgp-listen", "off", "--metrics-listen", "off")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the agent has ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil { // its last words are written by then
		t.Error(err)
	}
}
