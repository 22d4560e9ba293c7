package main

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/netlab"
)

func TestLostInGaps(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms float64) time.Time { return start.Add(time.Duration(ms * float64(time.Millisecond))) }
	block, other := netip.MustParsePrefix("10.1.0.0/26"), netip.MustParsePrefix("10.2.0.0/26")
	gaps := []gap{{block, at(1000), at(1000.1)}, {block, at(3000), at(3003)}, {other, at(5000), at(5000.1)}}
	outage := func(first, last float64, lost int) netlab.Outage {
		return netlab.Outage{First: at(first), Last: at(last), Lost: lost}
	}
	for name, c := range map[string]struct {
		outages []netlab.Outage
		want    int
	}{
		"one packet in a gap":              {[]netlab.Outage{outage(999.8, 999.8, 1)}, 1},
		"more than a gap can cost":         {[]netlab.Outage{outage(996, 1004, 8)}, 2},
		"what a longer gap can cost":       {[]netlab.Outage{outage(2999, 3004, 6)}, 4},
		"between the gaps":                 {[]netlab.Outage{outage(2000, 2000, 1)}, 0},
		"from one gap to the other":        {[]netlab.Outage{outage(1000, 3000, 2000)}, 0},
		"beyond a gap":                     {[]netlab.Outage{outage(1000, 1050, 50)}, 0},
		"in a gap of a prefix elsewhere":   {[]netlab.Outage{outage(5000, 5000, 1)}, 0},
		"in two gaps, and in none":         {[]netlab.Outage{outage(1000, 1000, 1), outage(2000, 2000, 1), outage(3001, 3001, 1)}, 2},
		"two in one gap, as much as it is": {[]netlab.Outage{outage(999, 999, 2), outage(1001, 1001, 1)}, 2},
	} {
		report := netlab.Report{Outages: c.outages}
		for _, o := range c.outages {
			report.Lost += o.Lost
		}
		if got := lostInGaps(report, netip.MustParseAddr("10.1.0.5"), gaps); got != c.want {
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
	w, err := watchGaps(ns, slog.New(slog.NewTextHandler(t.Output(), nil)))
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
	var found []string
	for _, g := range w.stop() {
		found = append(found, g.prefix.String())
	}
	if want := []string{"10.1.0.0/26", "10.4.0.0/26"}; !slices.Equal(found, want) {
		t.Errorf("gaps of %v, want %v", found, want)
	}
}
