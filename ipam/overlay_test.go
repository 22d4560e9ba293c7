package ipam

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// overlayCluster has blocks in a pool with VXLAN and in one without, and borrowed addresses.
func overlayCluster() *calico.Snapshot {
	s := encapCluster([]string{"a 192.0.2.5/24 fd77::5/64", "b 192.0.2.9/24 fd77::9/64",
		"c 198.51.100.7/24"},
		vxlanPool("vxlan", "10.1.0.0/16", calico.EncapAlways),
		vxlanPool("six", "fd01::/48", calico.EncapCrossSubnet),
		ipipPool("ipip", "10.2.0.0/16", calico.EncapAlways))
	for _, change := range []func(*calico.Snapshot){
		block("10.1.0.0/26", host("a"), "10.1.0.9 c vxlanTunnelAddress"),
		block("10.1.0.64/26", host("b"), "10.1.0.70 a -", "10.1.0.71 c -"),
		block("10.2.0.64/26", host("b")), block("fd01::40/122", host("b")),
		block("10.1.0.128/26", host("gone")),
	} {
		change(s)
	}
	return s
}

func TestOverlay(t *testing.T) {
	of := route.Overlay
	text := func(p RemotePlan) string {
		var all []string
		for _, r := range p.Routes {
			all = append(all, fmt.Sprintf("%s %s", r.Prefix, r.Paths[0].NextHop))
			if r.Origin != of {
				t.Errorf("%s is of %s", r, r.Origin)
			}
		}
		return strings.Join(all, ", ")
	}
	s := overlayCluster()
	// What hosts publish decides elsewhere: VXLAN goes to Nodes alone.
	s.PeerIPs = map[calico.PeerIP]netip.Addr{{Host: "b"}: ip("192.0.2.99")}
	e, _ := Encapsulation("a", allTunnels, false, s)
	p := Overlay("a", e, s, nil)
	const want = "10.1.0.9/32 198.51.100.7, 10.1.0.64/26 192.0.2.9, 10.1.0.71/32 198.51.100.7, " +
		"fd01::40/122 fd77::9"
	if got := text(p); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(p.Unlocated) != 1 || p.Unlocated[0] != pfx("10.1.0.128/26") {
		t.Errorf("unlocated %v", p.Unlocated)
	}
	for _, last := range [][]route.Route{p.Routes, Remotes("a", both, nil, s, nil).Routes} {
		if again := Overlay("a", e, s, last); !reflect.DeepEqual(again, p) {
			t.Errorf("after %v it is %+v instead of %+v", last, again, p)
		}
	}
	of = route.Etcd
	rest := Remotes("a", both, e, s, nil)
	// Our own block and that of a host without address are in a pool with VXLAN.
	if len(p.Skipped) != 2 || len(rest.Skipped) != 0 {
		t.Errorf("skipped %v and of other pools %v", p.Skipped, rest.Skipped)
	}
	if got := text(rest); got != "10.2.0.64/26 192.0.2.99" {
		t.Errorf("of other pools %s", got)
	}
	onLinux, _ := Encapsulation("a", allTunnels, true, s)
	if got := text(Overlay("a", onLinux, s, nil)); got != "" {
		t.Errorf("on Linux, where they are Felix', %s", got)
	}
	all := text(Remotes("a", both, nil, s, nil))
	if rest := text(Remotes("a", both, onLinux, s, nil)); rest != all {
		t.Errorf("on Linux %s are left of %s: nothing says why the others are not programmed",
			rest, all)
	}
	for _, tunnels := range [][]route.Encap{nil, {route.IPIP}} {
		e, _ := Encapsulation("a", tunnels, false, s)
		if got := text(Overlay("a", e, s, nil)); got != "" {
			t.Errorf("a data plane with %v has %s", tunnels, got)
		}
	}
}

// Garbage in a Node costs no other node anything.
func TestVTEPs(t *testing.T) {
	for name, tc := range map[string]struct {
		edit      func(b *calico.Node)
		vtep, why string
	}{
		"computed from the name": {func(*calico.Node) {}, "66:e9:d7:1f:5e:e7", ""},
		"written": {func(b *calico.Node) { b.VXLANTunnelMACAddr = "66-00-00-00-00-0A" },
			"66:00:00:00:00:0a", ""},
		"garbage": {func(b *calico.Node) { b.VXLANTunnelMACAddr = "x" }, "",
			`Node(b): spec.vxlanTunnelMACAddr: "x" is not a MAC address`},
		"no address": {func(b *calico.Node) { b.IPv4VXLANTunnelAddr = netip.Addr{} }, "",
			"spec.ipv4VXLANTunnelAddr of Node(b) is missing"},
	} {
		s := overlayCluster()
		b := s.Nodes["b"]
		tc.edit(&b)
		s.Nodes["b"] = b
		e, problems := Encapsulation("a", allTunnels, false, s)
		want := route.Node{Address: ip("192.0.2.9"), Name: "b", VXLAN: &route.VTEP{MAC: tc.vtep,
			Problem: tc.why, Address: b.IPv4VXLANTunnelAddr}}
		if got, _ := e.Nodes.Find(want.Address); !got.Equal(want) {
			t.Errorf("%s: %+v", name, got)
		}
		l := e.Leaves(e.PoolOf(pfx("10.1.0.64/26")), ip("192.0.2.9"))
		if l.Refused != (tc.why != "") || !strings.Contains(l.Reason(), tc.why) {
			t.Errorf("%s: %+v", name, l)
		}
		if tc.why != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0].Err, tc.why)) ||
			tc.why == "" && len(problems) > 0 {
			t.Errorf("%s: problems %v", name, problems)
		}
		var ends []string
		for _, o := range Tunnels("a", e, s, MTUs{IPv4: 1500, IPv6: 9000}, false, nil) {
			if end, ok := o.(route.Endpoint); ok && end.VXLAN != (route.VXLANSettings{}) {
				ends = append(ends, end.Outer.String())
			}
		}
		reached := "192.0.2.9 198.51.100.7 fd77::9"
		if tc.why != "" {
			reached = "198.51.100.7 fd77::9"
		}
		if got := strings.Join(ends, " "); got != reached {
			t.Errorf("%s: tunnels to %s, want %s", name, got, reached)
		}
	}
}

func TestVXLANTunnels(t *testing.T) {
	s := overlayCluster()
	s.Felix = map[string]calico.FelixConfiguration{"default": {VXLANPort: 8472, VXLANMTUV6: 1300},
		"node.a": {VXLANVNI: 7}}
	e, _ := Encapsulation("a", allTunnels, false, s)
	links := map[string]route.Link{}
	for _, o := range Tunnels("a", e, s, MTUs{IPv4: 1500, IPv6: 9000}, false, nil) {
		switch o := o.(type) {
		case route.Link:
			links[o.Name] = o
		case route.Endpoint:
			if l := links[o.Interface]; l.Kind == route.VXLANTunnel && (o.VXLAN.VNI != 7 ||
				o.VXLAN.Port != 8472 || o.VXLAN.Source != l.Source) {
				t.Errorf("%+v", o)
			}
		}
	}
	four, six := links["vxlan.calico"], links["vxlan-v6.calico"]
	if four.MTU != 1450 || four.MAC != "66:86:f7:e4:37:fa" || four.Source != ip("192.0.2.5") ||
		four.VXLAN != (route.VXLANLink{Address: ip("10.9.0.2"), VNI: 7, Port: 8472}) {
		t.Errorf("%+v", four)
	}
	if six.MTU != 1300 || six.MAC == four.MAC || six.VXLAN.Address != ip("fd09::2") {
		t.Errorf("%+v", six)
	}
}

// A value that no VXLAN device can have counts as not set.
func TestBoundsOfFelixSettings(t *testing.T) {
	s := overlayCluster()
	e, _ := Encapsulation("a", allTunnels, false, s)
	for _, tc := range []struct {
		vni, port, mtu int
		want           string
	}{
		{0, 0, 0, "4096 4789 1450"},
		{-1, -1, -1, "4096 4789 1450"},
		{1, 1, 68, "1 1 68"},
		{1, 1, 67, "1 1 1450"},
		{1<<24 - 1, 65535, 65535, "16777215 65535 65535"},
		{1 << 24, 1 << 16, 1 << 16, "4096 4789 1450"},
	} {
		s.Felix = map[string]calico.FelixConfiguration{"default": {VXLANVNI: tc.vni,
			VXLANPort: tc.port, VXLANMTU: tc.mtu}}
		for _, o := range Tunnels("a", e, s, MTUs{IPv4: 1500}, false, nil) {
			l, ok := o.(route.Link)
			got := fmt.Sprint(l.VXLAN.VNI, l.VXLAN.Port, l.MTU)
			if ok && l.Name == "vxlan.calico" && got != tc.want {
				t.Errorf("%+v: %s", tc, got)
			}
		}
	}
}
