package main

import (
	"context"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp/vpptest"
)

// startTest is a plane in this process.
func startTest(t *testing.T) (*vpptest.Server, *plane) {
	t.Helper()
	s, err := vpptest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.AddInterface(planeLink, netip.MustParsePrefix(planeAddress))
	return s, &plane{name: "vpptest", socket: s.Socket()}
}

func TestEveryWriterWritesTheSame(t *testing.T) {
	s, p := startTest(t)
	c, err := p.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	prefixes := hostPrefixes(3 * rawWindow / 2)
	has := func(source string, want int) {
		t.Helper()
		got := s.Routes(source)
		if len(got) != want {
			t.Fatalf("%s: %d routes instead of %d", source, len(got), want)
		}
		for _, r := range got {
			if len(r.Paths) != 1 ||
				r.Paths[0] != (route.Path{NextHop: hops[0], Interface: planeLink, Weight: 1}) {
				t.Fatalf("%s: %s", source, r)
			}
		}
	}

	w, err := connectRaw(p.socket, c.index, hops[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	for _, x := range []struct {
		request []byte
		want    int
	}{{w.put, len(prefixes)}, {w.del, 0}} {
		if _, err := w.program(prefixes, x.request); err != nil {
			t.Fatal(err)
		}
		has("API", x.want)
	}

	one, err := connectCalls(p.socket, c.index, hops[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.close)
	if _, err := one.program(t.Context(), prefixes[:10], true); err != nil {
		t.Fatal(err)
	}
	has("API", 10)
	if _, err := one.program(t.Context(), prefixes[:10], false); err != nil {
		t.Fatal(err)
	}
	has("API", 0)

	e := c.engine(t.Context(), filepath.Join(t.TempDir(), "journal"))
	t.Cleanup(e.stop)
	if _, err := e.learn(t.Context(), prefixes, []route.Path{{NextHop: hops[0]}}); err != nil {
		t.Fatal(err)
	}
	has("bench", len(prefixes))
	if _, err := e.same(t.Context(), prefixes, []route.Path{{NextHop: hops[0]}}); err != nil {
		t.Fatal(err)
	}
}

func TestRawWriterNoticesARefusal(t *testing.T) {
	_, p := startTest(t)
	w, err := connectRaw(p.socket, 77, hops[0]) // no such interface
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	if _, err := w.program(hostPrefixes(3), w.put); err == nil {
		t.Error("no error")
	}
}

func TestRelayCountsWhatPasses(t *testing.T) {
	s, p := startTest(t)
	r, err := startRelay(filepath.Join(t.TempDir(), "relay.sock"), p.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	p.socket = r.path()
	c, err := p.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	const count = 5000
	if _, err := c.apply(t.Context(), attachedOps(hostPrefixes(count), hops[0])); err != nil {
		t.Fatal(err)
	}
	select {
	case at := <-r.written:
		if time.Since(at) > time.Minute {
			t.Errorf("acknowledged at %s", at)
		}
	default:
		t.Error("no acknowledgement was seen")
	}
	// The relay looks at a message after it has passed it on.
	err = await(context.Background(), 30*time.Second, time.Millisecond, func() error {
		if r.writes() == count && r.count(routeReply) == count &&
			r.writes() == s.Requests("ip_route_add_del_v2") {
			return nil
		}
		return errNotHere
	})
	if err != nil || r.dumps() != 0 {
		t.Errorf("%d writes, %d replies, %d dumps, %v",
			r.writes(), r.count(routeReply), r.dumps(), err)
	}
	if _, err := c.Routes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.dumps() == 0 {
		t.Error("a dump was not counted")
	}
}
