package main

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/netlab"
)

func TestLostInGaps(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms float64) time.Time { return start.Add(time.Duration(ms * float64(time.Millisecond))) }
	gaps := []gap{{at(1000), at(1000.1)}, {at(3000), at(3000.1)}}
	for name, c := range map[string]struct {
		outage netlab.Outage
		want   int
	}{
		"one packet in a gap":       {netlab.Outage{First: at(999.8), Last: at(999.8), Lost: 1}, 1},
		"some around one":           {netlab.Outage{First: at(2998), Last: at(3002), Lost: 5}, 5},
		"between the two":           {netlab.Outage{First: at(2000), Last: at(2000), Lost: 1}, 0},
		"from one gap to the other": {netlab.Outage{First: at(1000), Last: at(3000), Lost: 2000}, 0},
		"longer than a gap":         {netlab.Outage{First: at(1000), Last: at(1050), Lost: 50}, 0},
	} {
		if got := lostInGaps([]netlab.Report{{Outages: []netlab.Outage{c.outage}}}, gaps); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// BIRD's routes that go and come again are gaps; those that are replaced in one step, and those of others, are none.
func TestGapsOfAKernel(t *testing.T) {
	if err := netlab.Available(); err != nil {
		t.Skip(err)
	}
	l, err := netlab.New("chaosgaps", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ns, err := l.Namespace("node")
	if err != nil {
		t.Fatal(err)
	}
	h := ns.Handle()
	link, err := h.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	w, err := watchGaps(ns)
	if err != nil {
		t.Fatal(err)
	}
	route := func(prefix string, protocol int) *netlink.Route {
		p := netip.MustParsePrefix(prefix)
		dst := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
		return &netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Protocol: netlink.RouteProtocol(protocol), Scope: netlink.SCOPE_LINK}
	}
	again := func(r *netlink.Route) {
		for _, step := range []func(*netlink.Route) error{h.RouteAdd, h.RouteDel, h.RouteAdd} {
			if err := step(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	again(route("10.1.0.0/26", unix.RTPROT_BIRD))
	again(route("10.2.0.0/26", unix.RTPROT_STATIC))
	replaced := route("10.3.0.0/26", unix.RTPROT_BIRD)
	for range 2 {
		if err := h.RouteReplace(replaced); err != nil {
			t.Fatal(err)
		}
	}
	again(route("10.4.0.0/26", unix.RTPROT_BIRD))
	time.Sleep(200 * time.Millisecond) // the kernel's messages
	if gaps := w.stop(); len(gaps) != 2 {
		t.Errorf("%d gaps, want 2", len(gaps))
	}
}
