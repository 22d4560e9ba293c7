package adminclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// serve answers on a socket as a running agent does, until the test or the returned function ends
// it.
func serve(t *testing.T, socket, sweep string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"fib":{"sweep":"` + sweep + `"}}`))
	})
	mux.HandleFunc("GET /v1/routes", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "prefix: "+r.URL.Query().Get("prefix")+" is neither a prefix nor an address",
			http.StatusBadRequest)
	})
	s := http.Server{Handler: mux}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return func() { s.Close() }
}

func TestAsksWhicheverAgentIsThereNow(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	c := New(socket)
	for _, sweep := range []string{"waiting", "done"} {
		stop := serve(t, socket, sweep)
		s, err := c.Status(context.Background())
		if err != nil || s.FIB.Sweep != sweep {
			t.Errorf("sweep %q, %v; want %q", s.FIB.Sweep, err, sweep)
		}
		stop()
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	serve(t, socket, "done")
	for _, x := range []struct{ name, socket, path, want string }{
		{"nobody listens", filepath.Join(dir, "other.sock"), "/v1/status",
			"is `vpp-route-agent run` running"},
		{"the agent refuses", socket, "/v1/routes", "prefix: x is neither a prefix nor an address"},
	} {
		var out any
		err := New(x.socket).Get(context.Background(), x.path, map[string][]string{"prefix": {"x"}},
			&out)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v; want %q", x.name, err, x.want)
		}
	}
}

// The unit's agent is not root, and members of its group may ask it.
func TestNoPermissionNamesTheGroup(t *testing.T) {
	c := New("/run/agent.sock")
	c.http.Transport = refusal{syscall.EACCES}
	err := c.Get(context.Background(), "/v1/status", nil, new(any))
	const want = "no permission for /run/agent.sock: try again as root or as a member of its group"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

type refusal struct{ why syscall.Errno }

func (r refusal) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", r.why)}
}

// An interruption has a cause of the signal's (os/signal.NotifyContext), which is no reason.
func TestInterruptedSaysSo(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	serve(t, socket, "done")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("interrupt signal received"))
	err := New(socket).Get(ctx, "/v1/status", nil, new(any))
	if err == nil || err.Error() != "interrupted" {
		t.Errorf("%v", err)
	}
}
