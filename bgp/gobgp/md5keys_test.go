package gobgp

import (
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/testlog"
)

// A password is in no answer of the gRPC, in no log line and in no state of a peer; GoBGP by itself
// tells it to everybody who asks. And when it changes, its peers start anew and no other.
func TestPasswordsAreKeptSecret(t *testing.T) {
	const first, second = "hunter2", "correct horse"
	var mu sync.Mutex
	now := first
	lookup := func(calico.SecretKeyRef) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		return now, nil
	}
	socket := filepath.Join(t.TempDir(), "gobgp.sock")
	log := &testlog.Buffer{}
	l := newLab(t)
	a := l.node(64512, func(c *Config) {
		// also where it is not read-only
		c.Passwords, c.GRPC, c.GRPCWrite = lookup, "unix://"+socket, true
		c.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	b, other := l.node(64512, func(c *Config) { c.Passwords = lookup }), l.node(64512)
	connect(a, b, withPassword)
	connect(a, other)
	events := watchPeers(t, client(t, "unix://"+socket))
	set(t, a, b, other)
	up(t, a, b)
	up(t, a, other)
	since, otherSince := a.state(b).Since, a.state(other).Since

	raw := false
	err := a.applied.server.ListPeer(t.Context(), &api.ListPeerRequest{}, func(p *api.Peer) {
		raw = raw || strings.Contains(p.String(), first)
	})
	if err != nil || !raw {
		t.Errorf("GoBGP itself does not tell the key (%v): is this test still needed?", err)
	}

	mu.Lock()
	now = second
	mu.Unlock()
	eventually(t, "the session starts anew", true, func() bool {
		return a.state(b).Since.After(since) && a.state(b).Established
	})
	up(t, a, b)
	if s := a.state(other); s.Since != otherSince || !s.Established {
		t.Errorf("the other peer's session: %+v, was up since %s", s, otherSince)
	}

	all := log.String() + events() + listPeers(t, client(t, "unix://"+socket))
	for _, s := range a.Peers() {
		all += s.LastError
	}
	if !strings.Contains(all, b.addr.String()) {
		t.Error("the peer is not shown at all")
	}
	for _, password := range []string{first, second} {
		if i := strings.Index(all, password); i >= 0 {
			t.Errorf("%q is shown: …%s", password, all[max(0, i-200):min(len(all), i+50)])
		}
	}
}

func TestReasonOfAMissingPassword(t *testing.T) {
	l := newLab(t)
	a, b := l.node(64512, func(c *Config) {
		c.Passwords = func(calico.SecretKeyRef) (string, error) {
			return "", errors.New("secret kube-system/bgp: it does not exist")
		}
	}), l.node(64512)
	connect(a, b, withPassword)
	set(t, a)
	got, want := a.state(b).LastError, "password bgp/mesh is not known: secret kube-system/bgp: "+
		"it does not exist"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func listPeers(t *testing.T, c api.GobgpApiClient) string {
	t.Helper()
	all := ""
	for _, advertised := range []bool{false, true} {
		stream, err := c.ListPeer(t.Context(), &api.ListPeerRequest{EnableAdvertised: advertised})
		if err != nil {
			t.Fatal(err)
		}
		for {
			r, err := stream.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all += r.String()
		}
	}
	return all
}

// watchPeers collects all peer events over gRPC; the function that it returns waits for some, and
// returns them.
func watchPeers(t *testing.T, c api.GobgpApiClient) func() string {
	t.Helper()
	stream, err := c.WatchEvent(t.Context(), &api.WatchEventRequest{
		Peer: &api.WatchEventRequest_Peer{},
	})
	if err != nil {
		t.Fatal(err)
	}
	events := &testlog.Buffer{}
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			_, _ = events.Write([]byte(r.String()))
		}
	}()
	return func() string {
		deadline := time.Now().Add(2 * time.Minute)
		for !strings.Contains(events.String(), "ESTABLISHED") && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		return events.String()
	}
}
