package vpp_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

// Reads and writes may end anywhere, also within a number.
func TestStreamComesInPiecesOfAnySize(t *testing.T) {
	for name, r := range map[string]*relay{
		"single bytes":                     {piece: 1},
		"random pieces up to a header":     {piece: 16, random: true},
		"random pieces up to some replies": {piece: 300, random: true},
		"random pieces beyond a buffer":    {piece: 200_000, random: true},
		"one less than a buffer":           {piece: 64<<10 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			r.path = filepath.Join(t.TempDir(), "s")
			r.serve(t, s.Socket())
			t.Cleanup(r.close)
			a := runAgent(t, vpp.Config{Socket: r.path, Window: 64})
			a.await(t, "connection", present)
			putAndDelete(t, a, 2000)
		})
	}
}

// A side that reads slowly holds the other up, and loses nothing, however much longer than the
// reply time-out it takes in all.
func TestSlowStreamIsNotLost(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	s := newServer(t)
	r := &relay{path: filepath.Join(t.TempDir(), "s"), piece: 4096, pause: 2 * time.Millisecond}
	r.serve(t, s.Socket())
	t.Cleanup(r.close)
	a := runAgent(t, vpp.Config{Socket: r.path, ReplyTimeout: timeout, Window: 4095})
	a.await(t, "connection", present)
	start := time.Now()
	putAndDelete(t, a, 8000)
	if took := time.Since(start); took < timeout {
		t.Errorf("it took %s only", took)
	}
}

func putAndDelete(t *testing.T, a *agent, n int) {
	t.Helper()
	ops := hostRoutes(n)
	a.mustApply(t, ops...)
	rs, err := a.Routes(t.Context())
	check(t, err)
	found := map[route.Key]bool{}
	for _, r := range rs {
		found[r.Key] = r.SameForwarding(route.Route{Key: r.Key, Paths: ops[0].Route.Paths})
	}
	for i, op := range ops {
		if !found[op.Route.Key] {
			t.Errorf("%s is missing or different", op.Route.Key)
		}
		ops[i] = route.Op{Delete: true, Route: op.Route}
	}
	a.mustApply(t, ops...)
	if rs, err := a.Routes(t.Context()); err != nil || len(rs) != 0 {
		t.Errorf("%d routes are left, %v", len(rs), err)
	}
}

// The stream may end within a header, within a message, and between two.
func TestStreamEndsAnywhere(t *testing.T) {
	s := newServer(t)
	table := greetingSize(t, s.Socket())
	stops := []int{1, 8, 15, 16, 17, 30, table / 2, table - 1, table, table + 1, table + 15,
		table + 16, table + 17, table + 22}
	for range 20 {
		stops = append(stops, table+rand.IntN(20_000))
	}
	for _, stop := range stops {
		t.Run(fmt.Sprint(stop-table), func(t *testing.T) {
			r := &relay{path: filepath.Join(t.TempDir(), "s"), stop: stop}
			r.serve(t, s.Socket())
			t.Cleanup(r.close)
			var g gate
			a := runAgent(t, vpp.Config{Dial: g.dial(t, r.path)})
			f := a.await(t, "an answer", func(route.Facts) bool { return true })
			if present(f) {
				g.shut.Store(true)
				if _, _, err := a.apply(hostRoutes(3000)...); err == nil {
					t.Fatal("3000 replies came out of a stream that ended before")
				}
				f = a.await(t, "the loss", absent)
			}
			if !strings.Contains(f.Problem, "closed the connection") {
				t.Errorf("problem %q", f.Problem)
			}
		})
	}
}

// greetingSize returns how many bytes VPP's answer to the greeting has.
func greetingSize(t *testing.T, socket string) int {
	t.Helper()
	nc, err := net.Dial("unix", socket)
	check(t, err)
	defer nc.Close()
	msg, err := codec.EncodeMsg(&memclnt.SockclntCreate{Name: "size"}, 15)
	check(t, err)
	_, err = nc.Write(append(binary.BigEndian.AppendUint32(make([]byte, 8), uint32(len(msg))),
		append(make([]byte, 4), msg...)...))
	check(t, err)
	header := make([]byte, 16)
	_, err = io.ReadFull(nc, header)
	check(t, err)
	return len(header) + int(binary.BigEndian.Uint32(header[8:]))
}
