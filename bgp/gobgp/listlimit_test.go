package gobgp

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Clients that list over gRPC and do not read keep few tables, and make room when they go.
func TestListsThatAreNotRead(t *testing.T) {
	const paths = 2000
	socket := filepath.Join(t.TempDir(), "gobgp.sock")
	n := newLabAlone(t).node(64512, func(c *Config) { c.GRPC = "unix://" + socket })
	for i := range paths {
		n.announce(fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255), "192.0.2.1")
	}
	set(t, n)
	batch := uint64(0)
	list := func() (stream api.GobgpApi_ListPathClient, end func(), err error) {
		c, conn := dialAPI(t, "unix://"+socket)
		batch = math.MaxUint64 - batch
		stream, err = c.ListPath(t.Context(), &api.ListPathRequest{Family: ipv4Unicast,
			BatchSize: batch})
		if err == nil {
			_, err = stream.Recv() // the rest waits for the client
		}
		return stream, func() { conn.Close() }, err
	}
	before := liveHeap()
	first, end, err := list()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for range maxLists - 1 {
		_, end, err = list()
		if err != nil {
			t.Fatal(err)
		}
	}
	each := (liveHeap() - before) / maxLists / paths
	t.Logf("%d bytes of heap for each path of a list that waits", each)
	if each > 700 {
		t.Error("the list itself waits, and not the table alone")
	}
	if _, _, err := list(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one list more: %v", err)
	}
	end()
	if _, end, err = list(); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	defer end()
	got := 1
	for ; ; got++ {
		if _, err = first.Recv(); err != nil {
			break
		}
	}
	if err != io.EOF || got != paths {
		t.Errorf("a client that goes on has %d paths, %v", got, err)
	}
}

// TestClientsThatSayNothing: connections over which nothing is asked take few file descriptors, and
// none for long.
func TestClientsThatSayNothing(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "gobgp.sock")
	n := newLabAlone(t).node(64512, func(c *Config) { c.GRPC = "unix://" + socket })
	set(t, n)
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	const clients = 100
	before := descriptors()
	for range clients {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	time.Sleep(200 * time.Millisecond) // for the server to take them
	if took := descriptors() - before - clients; took > 70 {
		t.Errorf("the server has accepted %d of %d connections", took, clients)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*helloTime)
	defer cancel()
	if _, err := client(t, "unix://"+socket).GetBgp(ctx, &api.GetBgpRequest{}); err != nil {
		t.Errorf("a client that asks: %v", err)
	}
}
