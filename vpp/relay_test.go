package vpp_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// relay is a unix socket that passes everything on to another one, until it is cut.
type relay struct {
	path string
	l    net.Listener
	wg   sync.WaitGroup

	// piece is the longest part that is passed on in one go; 0: whatever comes. Random ones are
	// shorter.
	piece  int
	random bool
	// pause is between two of them.
	pause time.Duration
	// stop, if not 0, closes the connection after so many bytes from VPP.
	stop int

	mu   sync.Mutex
	live map[net.Conn]bool
}

func newRelay(t testing.TB, path, to string) *relay {
	t.Helper()
	r := &relay{path: path}
	r.serve(t, to)
	return r
}

func (r *relay) serve(t testing.TB, to string) {
	t.Helper()
	l, err := net.Listen("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	r.l, r.live = l, map[net.Conn]bool{}
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
			r.wg.Go(func() {
				r.pass(far, near)
				near.Close()
				far.Close()
			})
			r.wg.Go(func() {
				from := io.Reader(far)
				if r.stop > 0 {
					from = io.LimitReader(from, int64(r.stop))
				}
				r.pass(near, from)
				near.Close()
				far.Close()
			})
		}
	})
}

// pass copies until either side ends.
func (r *relay) pass(to net.Conn, from io.Reader) {
	if r.piece == 0 {
		io.Copy(to, from)
		return
	}
	buf := make([]byte, r.piece)
	for {
		n := len(buf)
		if r.random {
			n = 1 + rand.IntN(n)
		}
		n, err := from.Read(buf[:n])
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
		if r.pause > 0 {
			time.Sleep(r.pause)
		}
	}
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
