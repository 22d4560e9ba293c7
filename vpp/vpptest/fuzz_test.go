package vpptest

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/codec"
)

// fuzzed are the requests that have a handler, in a fixed order: message ids are others in each
// generation.
func (s *Server) fuzzed() []uint16 {
	var ids []uint16
	for id, m := range s.messages {
		if _, ok := handlers[m.GetMessageName()]; ok {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b uint16) int {
		return strings.Compare(nameOf(s.messages[a]), nameOf(s.messages[b]))
	})
	return append(ids, createID, deleteID)
}

// FuzzRequests has a server serve anything. It may panic only to say that a real VPP would crash;
// whatever it has taken it must be able to show.
func FuzzRequests(f *testing.F) {
	path := fib_types.FibPath{SwIfIndex: 1, Weight: 1}
	path.Nh.Address = union(netip.MustParseAddr("10.0.0.2"))
	r := ip.IPRouteV2{Prefix: prefixMessage(netip.MustParsePrefix("10.9.0.0/16")), NPaths: 1,
		Paths: []fib_types.FibPath{path}}
	for which, m := range map[byte]api.Message{
		0: &ip.IPRouteAddDelV2{IsAdd: true, Route: r},
		1: &ip.IPRouteAddDel{IsAdd: true, Route: olderForm(r)},
		2: &ip.IPTableAddDel{IsAdd: true, Table: ip.IPTable{TableID: 3, Name: "x"}},
		3: &ip.IPRouteLookupV2{Prefix: r.Prefix, Exact: 1},
	} {
		msg, err := codec.EncodeMsg(m, 0)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(which, msg)
		f.Add(which, msg[:len(msg)/2])
	}
	f.Add(byte(9), []byte{})
	f.Fuzz(func(t *testing.T, which byte, msg []byte) {
		s := booted("")
		s.AddInterface("loop0", netip.MustParsePrefix("10.0.0.1/24"),
			netip.MustParsePrefix("fd00::1/64"))
		near, far := net.Pipe()
		defer far.Close()
		c := newClient(s, near)
		defer c.end()
		s.clients[c] = true
		defer func() {
			if p := recover(); p != nil && !strings.HasPrefix(fmt.Sprint(p), "vpptest: ") {
				panic(p)
			}
		}()
		for i := range s.fuzzed() { // each kind sees the message, beginning with the chosen one
			m := slices.Clone(msg)
			if len(m) >= 2 {
				ids := s.fuzzed()
				binary.BigEndian.PutUint16(m, ids[(int(which)+i)%len(ids)])
			}
			s.serve(c, m)
		}
		s.Dump()
		s.Routes("API")
		for _, id := range s.Tables() {
			for _, six := range []bool{false, true} {
				s.dumpRoutes(ip.IPTable{TableID: id, IsIP6: six}, 0, func(r ip.IPRouteV2) {
					if _, err := codec.EncodeMsg(&ip.IPRouteV2Details{Route: r}, 1); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}
