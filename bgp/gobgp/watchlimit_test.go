package gobgp

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	api "github.com/osrg/gobgp/v3/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Clients that watch over gRPC and do not read are ended before much waits for them, and one that
// reads hears of everything.
func TestWatchThatDoesNotRead(t *testing.T) {
	const updates, clients = 75_000, 4
	socket := filepath.Join(t.TempDir(), "gobgp.sock")
	n := newLabAlone(t).node(64512, func(c *Config) { c.GRPC = "unix://" + socket })
	n.farPeer("127.0.0.90", 64512)
	set(t, n)
	f := dialFar(t, n, "127.0.0.90", 64512, 90, true)
	watch := func() api.GobgpApi_WatchEventClient {
		w, err := client(t, "unix://"+socket).WatchEvent(t.Context(), &api.WatchEventRequest{
			Table: &api.WatchEventRequest_Table{Filters: []*api.WatchEventRequest_Table_Filter{
				{Type: api.WatchEventRequest_Table_Filter_BEST, Init: true},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Recv(); err != nil { // what there is at first
			t.Fatal(err)
		}
		return w
	}
	f.announce("10.90.0.0/26", "192.0.2.90")
	n.wantHops("10.90.0.0/26", "192.0.2.90")
	var slow []api.GobgpApi_WatchEventClient
	for range clients {
		slow = append(slow, watch())
	}
	reader := watch()
	var heard atomic.Int64
	go func() {
		for {
			ev, err := reader.Recv()
			if err != nil {
				return
			}
			heard.Add(int64(len(ev.GetTable().GetPaths())))
		}
	}()

	before := liveHeap()
	if rest := f.write(changes(t, updates, 100), 4*patience); len(rest) > 0 {
		t.Fatalf("%d bytes were not taken", len(rest))
	}
	within(t, "changes that the reader heard of", updates, func() int { return int(heard.Load()) })
	grown := (liveHeap() - before) >> 20
	t.Logf("%d MiB of heap for %d changes and %d clients", grown, updates, clients)
	if grown > 60 {
		t.Errorf("%d MiB wait for clients that do not read", grown)
	}
	for i, w := range slow {
		var err error
		got := 0
		for ; err == nil && got < updates; got++ {
			_, err = w.Recv()
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("client %d after %d events: %v", i, got, err)
		}
	}
}
