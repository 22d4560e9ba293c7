package vpp_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

func drops(n int) (ops []route.Op, keys []route.Key) {
	for i := range n {
		k := route.Key{Prefix: netip.PrefixFrom(
			netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 32)}
		ops = append(ops, route.Op{Route: route.Route{Key: k, Kind: route.Drop}})
		keys = append(keys, k)
	}
	return ops, keys
}

// Few routes are looked up, many are listed: what is counted is the same.
func TestCountManyRoutes(t *testing.T) {
	s := newServer(t)
	check(t, s.ServeStats())
	a := runAgent(t, vpp.Config{Socket: s.Socket(), StatsSocket: s.StatsSocket()})
	a.await(t, "VPP", present)
	ops, keys := drops(route.MaxLookups + 1)
	check(t, a.Apply(t.Context(), ops, func(_ int, err error) { check(t, err) }))
	s.Forward(keys[7], 5)
	missing := route.Key{Prefix: netip.MustParsePrefix("198.19.0.1/32")}
	for _, asked := range [][]route.Key{keys, keys[:route.MaxLookups],
		append([]route.Key{missing}, keys...), {missing, keys[7]}} {
		before := s.Requests("ip_route_lookup_v2")
		got, err := a.CountRoutes(t.Context(), asked)
		check(t, err)
		lookups, want := s.Requests("ip_route_lookup_v2")-before, 0
		if len(asked) <= route.MaxLookups {
			want = len(asked)
		}
		if lookups != want {
			t.Errorf("%d routes were looked up one by one, of %d", lookups, len(asked))
		}
		if _, there := got[missing]; there || got[keys[7]].Packets != 5 {
			t.Errorf("of %d: %t, %v", len(asked), there, got[keys[7]])
		}
	}
}

// VPP shows its adjacencies once a minute, however often they are counted.
func TestCountNextHopsAgain(t *testing.T) {
	s := newServer(t)
	check(t, s.ServeStats())
	s.CountByHop(true)
	a := runAgent(t, vpp.Config{Socket: s.Socket(), StatsSocket: s.StatsSocket()})
	a.await(t, "VPP", present)
	k := route.Key{Prefix: netip.MustParsePrefix("198.19.7.0/24")}
	check(t, a.Apply(t.Context(), []route.Op{{Route: route.Route{Key: k, Kind: route.Via,
		Paths: []route.Path{{NextHop: netip.MustParseAddr("10.0.1.2"), Interface: "loop0",
			Weight: 1}}}}}, func(_ int, err error) { check(t, err) }))
	commands := s.Requests("cli_inband")
	for n := range 3 {
		s.Forward(k, 1)
		got, err := a.CountNextHops(t.Context())
		check(t, err)
		if len(got) != 1 || got[0].Packets != uint64(n+1) {
			t.Errorf("after %d packets: %v", n+1, got)
		}
	}
	// one of them for the adjacencies, the others for whether they are counted
	if n := s.Requests("cli_inband") - commands; n != 4 {
		t.Errorf("%d commands", n)
	}
}

// What cannot be counted costs an error, and neither time nor a line on the standard output.
func TestCountWithoutStatisticsSegment(t *testing.T) {
	s := newServer(t)
	a := runAgent(t, vpp.Config{Socket: s.Socket(), StatsSocket: s.StatsSocket()})
	a.await(t, "VPP", present)
	ops, keys := drops(1)
	check(t, a.Apply(t.Context(), ops, func(_ int, err error) { check(t, err) }))
	if _, err := a.CountRoutes(t.Context(), keys); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := a.Forwarded(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	s.CountByHop(true)
	if _, err := a.CountNextHops(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	s.CountByHop(false)
	if _, err := a.CountNextHops(t.Context()); !errors.Is(err, vpp.ErrNoHopCounts) {
		t.Errorf("%v", err)
	}
}

// A VPP that hands nothing out is waited for no longer than asked.
func TestCountFrozenStatisticsSegment(t *testing.T) {
	s := newServer(t)
	silent, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: s.StatsSocket(),
		Net: "unixpacket"})
	check(t, err)
	defer silent.Close()
	a := runAgent(t, vpp.Config{Socket: s.Socket(), StatsSocket: s.StatsSocket()})
	a.await(t, "VPP", present)
	ops, keys := drops(1)
	check(t, a.Apply(t.Context(), ops, func(_ int, err error) { check(t, err) }))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := a.CountRoutes(ctx, keys); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "stats.sock does not answer") {
		t.Errorf("%v", err)
	}
	// it needs no connection, which so short a reply time-out could lose
	short := vpp.New(vpp.Config{StatsSocket: s.StatsSocket(), ReplyTimeout: 100 * time.Millisecond})
	if _, err := short.Forwarded(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
