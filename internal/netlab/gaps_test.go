package netlab

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/testlog"
)

// BIRD's routes that go and come again are gaps; those that are replaced in one step, and those of
// others, are none.
func TestGapsOfAKernel(t *testing.T) {
	l := newLab(t)
	ns := must[*Namespace](t)(l.Namespace("node"))
	h := ns.Handle()
	link, err := h.LinkByName("lo")
	check(t, err)
	w, err := ns.WatchGaps(testlog.New(t))
	check(t, err)
	route := func(prefix string, protocol int) *netlink.Route {
		p := pfx(prefix)
		dst := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
		return &netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst,
			Protocol: netlink.RouteProtocol(protocol), Scope: netlink.SCOPE_LINK}
	}
	again := func(r *netlink.Route) {
		check(t, h.RouteAdd(r))
		for range 20 { // on a busy machine one may last too long for a gap
			check(t, errors.Join(h.RouteDel(r), h.RouteAdd(r)))
		}
	}
	again(route("10.1.0.0/26", unix.RTPROT_BIRD))
	again(route("10.2.0.0/26", unix.RTPROT_STATIC))
	replaced := route("10.3.0.0/26", unix.RTPROT_BIRD)
	for range 2 {
		check(t, h.RouteReplace(replaced))
	}
	again(route("10.4.0.0/26", unix.RTPROT_BIRD))
	var found []string
	for _, g := range w.Stop() {
		found = append(found, g.Prefix.String())
	}
	if got, want := slices.Compact(found),
		[]string{"10.1.0.0/26", "10.4.0.0/26"}; !slices.Equal(got, want) {
		t.Errorf("gaps of %v, want %v", got, want)
	}
}

func TestLostInGaps(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms float64) time.Time {
		return start.Add(time.Duration(ms * float64(time.Millisecond)))
	}
	block, other := pfx("10.1.0.0/26"), pfx("10.2.0.0/26")
	gap := func(prefix netip.Prefix, from, to float64) Gap {
		return Gap{Prefix: prefix, From: at(from), To: at(to)}
	}
	gaps := []Gap{gap(block, 1000, 1000.1), gap(block, 3000, 3003), gap(other, 5000, 5000.1),
		gap(block, 7000, 7040), gap(other, 7041, 7042), gap(block, 7040.5, 7080)}
	outage := func(first, last float64, lost int) Outage {
		return Outage{First: at(first), Last: at(last), Lost: lost}
	}
	for name, c := range map[string]struct {
		outages []Outage
		want    int
	}{
		"one packet in a gap":                    {[]Outage{outage(999.8, 999.8, 1)}, 1},
		"more than a gap can cost":               {[]Outage{outage(996, 1004, 8)}, 2},
		"what a longer gap can cost":             {[]Outage{outage(2999, 3004, 6)}, 4},
		"in two gaps, one right after the other": {[]Outage{outage(7001, 7079, 79)}, 79},
		"between the gaps":                       {[]Outage{outage(2000, 2000, 1)}, 0},
		"from one gap to the other":              {[]Outage{outage(1000, 3000, 2000)}, 0},
		"beyond a gap":                           {[]Outage{outage(1000, 1050, 50)}, 0},
		"in a gap of a prefix elsewhere":         {[]Outage{outage(5000, 5000, 1)}, 0},
		"in two gaps, and in none": {[]Outage{outage(1000, 1000, 1), outage(2000, 2000, 1),
			outage(3001, 3001, 1)}, 2},
		"two in one gap, as much as it is": {[]Outage{outage(999, 999, 2), outage(1001, 1001, 1)},
			2},
	} {
		report := Report{Outages: c.outages}
		for _, o := range c.outages {
			report.Lost += o.Lost
		}
		if got := report.LostInGaps(gaps, addr("10.1.0.5"), time.Millisecond); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
