package netlab

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// BIRD's routes that go and come again are gaps; those that are replaced in one step, and those of others, are none.
func TestGapsOfAKernel(t *testing.T) {
	l := newLab(t)
	ns := must[*Namespace](t)(l.Namespace("node"))
	h := ns.Handle()
	link, err := h.LinkByName("lo")
	check(t, err)
	w, err := ns.WatchGaps(slog.New(slog.NewTextHandler(t.Output(), nil)))
	check(t, err)
	route := func(prefix string, protocol int) *netlink.Route {
		p := pfx(prefix)
		dst := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
		return &netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Protocol: netlink.RouteProtocol(protocol), Scope: netlink.SCOPE_LINK}
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
	time.Sleep(200 * time.Millisecond) // the kernel's messages
	var found []string
	for _, g := range w.Stop() {
		found = append(found, g.Prefix.String())
	}
	if got, want := slices.Compact(found), []string{"10.1.0.0/26", "10.4.0.0/26"}; !slices.Equal(got, want) {
		t.Errorf("gaps of %v, want %v", got, want)
	}
}
