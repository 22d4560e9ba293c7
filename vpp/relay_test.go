package vpp_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay is a unix socket that passes everything on to another one, until it is cut.
type relay struct {
	path string
	l    net.Listener
	wg   sync.WaitGroup

	mu   sync.Mutex
	live map[net.Conn]bool
}

func newRelay(t testing.TB, path, to string) *relay {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{path: path, l: l, live: map[net.Conn]bool{}}
	r.wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", to)
			if err != nil {
				near.Close()
				continue
			}
			r.mu.Lock()
			r.live[near], r.live[far] = true, true
			r.mu.Unlock()
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				r.wg.Go(func() {
					io.Copy(way[0], way[1])
					near.Close()
					far.Close()
				})
			}
		}
	})
	return r
}

// cut closes all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.live {
		c.Close()
	}
	clear(r.live)
}

func (r *relay) close() {
	r.l.Close()
	r.cut()
	r.wg.Wait()
}
