package gobgp

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/osrg/gobgp/v3/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"vpp-route-agent/bgp"
)

func client(t *testing.T, target string) api.GobgpApiClient {
	t.Helper()
	c, _ := dialAPI(t, target)
	return c
}

func dialAPI(t *testing.T, target string) (api.GobgpApiClient, io.Closer) {
	t.Helper()
	c, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		// the socket is there a moment before somebody listens on it
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return api.NewGobgpApiClient(c), c
}

func listPaths(t *testing.T, c api.GobgpApiClient) []string {
	t.Helper()
	stream, err := c.ListPath(t.Context(), &api.ListPathRequest{Family: ipv4Unicast})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Destination.Paths {
			hop, _ := nextHopOf(pfx(r.Destination.Prefix),
				attributesOf(pathOfAPI(p).Attributes).nextHops)
			out = append(out, r.Destination.Prefix+" via "+hop.String())
		}
	}
}

// Over gRPC one can look (gobgp global rib, gobgp neighbor) and cannot touch.
func TestGRPCIsReadOnly(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "gobgp.sock")
	// A socket that a killed process left is no obstacle.
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	old.Close()
	l := newLab(t)
	n := l.node(64512, func(c *Config) { c.GRPC = "unix://" + socket })
	n.announce("10.1.0.0/26", "192.0.2.1")
	set(t, n)
	c := client(t, "unix://"+socket)
	if got := listPaths(t, c); len(got) != 1 || got[0] != "10.1.0.0/26 via 192.0.2.1" {
		t.Errorf("paths %v", got)
	}
	if g, err := c.GetBgp(t.Context(), &api.GetBgpRequest{}); err != nil || g.Global.Asn != 64512 {
		t.Errorf("GetBgp: %v, %v", g, err)
	}
	p, err := pathOf(bgp.Announcement{Prefix: pfx("10.7.0.0/26"), NextHop: addr("192.0.2.7")})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.AddPathStream(t.Context())
	if err == nil {
		if err = stream.Send(&api.AddPathStreamRequest{Paths: []*api.Path{p}}); err == nil ||
			err == io.EOF {
			_, err = stream.CloseAndRecv()
		}
	}
	errs := map[string]error{"AddPathStream": err}
	_, errs["AddPath"] = c.AddPath(t.Context(), &api.AddPathRequest{Path: p})
	_, errs["DeletePath"] = c.DeletePath(t.Context(), &api.DeletePathRequest{Family: ipv4Unicast})
	_, errs["StopBgp"] = c.StopBgp(t.Context(), &api.StopBgpRequest{})
	_, errs["ResetPeer"] = c.ResetPeer(t.Context(), &api.ResetPeerRequest{Address: "192.0.2.1"})
	_, errs["SetLogLevel"] = c.SetLogLevel(t.Context(), &api.SetLogLevelRequest{})
	for call, err := range errs {
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v, want PermissionDenied", call, err)
		}
	}
	if got := listPaths(t, c); len(got) != 1 {
		t.Errorf("paths afterwards %v", got)
	}
}

func TestForeignPathsAreRemoved(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "gobgp.sock")
	l := newLab(t)
	n := l.node(64512, func(c *Config) { c.GRPC, c.GRPCWrite = "unix://"+socket, true })
	n.farPeer("127.0.0.93", 64512)
	n.announce("10.1.0.0/26", "192.0.2.1")
	n.plan.Announcements[0].Static = true
	set(t, n)
	c := client(t, "unix://"+socket)
	add := func(prefix string, id uint32) {
		t.Helper()
		p, err := pathOf(bgp.Announcement{
			Prefix: pfx(prefix), NextHop: addr("192.0.2.66"), LocalPref: 2147482623,
		})
		if err != nil {
			t.Fatal(err)
		}
		p.Identifier = id
		if _, err := c.AddPath(t.Context(), &api.AddPathRequest{Path: p}); err != nil {
			t.Fatal(err)
		}
	}
	add("10.6.0.0/26", 0) // hijacks a prefix
	add("10.1.0.0/26", 0) // takes the place of ours
	add("10.1.0.0/26", 5) // stands beside ours
	eventually(t, "paths", "10.1.0.0/26 via 192.0.2.1", func() string {
		return strings.Join(listPaths(t, c), ", ")
	})
	eventually(t, "counted", 3, func() int { return n.Counters().Foreign })

	// Ours is what it was: whatever a peer says, it stays (TestOwnBlockStays).
	f := dialFar(t, n, "127.0.0.93", 64512, 90, true)
	f.announcePref("10.1.0.0/26", "192.0.2.93", 2147483647)
	f.announcePref("10.7.0.0/26", "192.0.2.93", 2147483647)
	n.wantHops("10.7.0.0/26", "192.0.2.93")
	n.wantHops("10.1.0.0/26")
}

// A gRPC address that cannot be had ends Run with a sentence, not the process.
func TestBadGRPCAddressEndsRun(t *testing.T) {
	s, err := New(Config{Log: quietLog(), Sink: newRecorder(),
		GRPC: "unix:///nonexistent/dir/sock"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = s.Run(ctx)
	cancel()
	if err == nil || !strings.HasPrefix(err.Error(), "gobgp: ") {
		t.Errorf("Run: %v", err)
	}
	if err := s.Set(t.Context(), bgp.Plan{}); err != errEnded {
		t.Errorf("Set after Run: %v", err)
	}
	file := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Log: quietLog(), Sink: newRecorder(),
		GRPC: "unix://" + file}); err == nil {
		t.Error("a file was taken for a stale socket")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
