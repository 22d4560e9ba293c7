package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testcluster"
)

// TestVXLANOnLinux has an agent on a node without Felix make Felix' devices, in both families
// (--tunnels own). The far ends are devices as Felix makes them. Then it restarts, another program
// changes what it has made, and no pool needs it any more.
func TestVXLANOnLinux(t *testing.T) {
	t.Parallel()
	l := newLab(t, "vxlanlinux")
	us := l.host(t, "us", "10.0.0.2/24", "fd00::2/64").agent()
	us.agent.Flags = []string{"--learn", "ipam", "--tunnels", "own"}
	own4 := vtep{addr("10.0.0.2"), addr("10.1.0.1"), net.HardwareAddr{0x66, 0, 0, 0, 0, 1},
		pfx("10.1.0.0/26")}
	own6 := vtep{addr("fd00::2"), addr("fd10::1"), net.HardwareAddr{0x66, 0, 0, 0, 6, 1},
		pfx("fd10::/122")}
	node := func(name, four, six, tunnel4, tunnel6 string, mac4, mac6 net.HardwareAddr) {
		t.Helper()
		l.apply(t, testcluster.Resource("Node", name, fmt.Sprintf("bgp: {ipv4Address: %s, "+
			"ipv6Address: '%s'}, ipv4VXLANTunnelAddr: %s, vxlanTunnelMACAddr: '%s', "+
			"ipv6VXLANTunnelAddr: '%s', vxlanTunnelMACAddrV6: '%s'", four, six, tunnel4, mac4,
			tunnel6, mac6)))
	}
	node("us", "10.0.0.2/24", "fd00::2/64", "10.1.0.1", "fd10::1", own4.mac, own6.mac)
	mode := func(mode string) {
		t.Helper()
		l.apply(t, testcluster.Resource("IPPool", "four", "cidr: 10.1.0.0/16, blockSize: 26, "+
			"ipipMode: Never, vxlanMode: "+mode))
		l.apply(t, testcluster.Resource("IPPool", "six", `cidr: "fd10::/48", blockSize: 122, `+
			"ipipMode: Never, vxlanMode: "+mode))
	}
	mode("Always")
	check(t, l.Data.ClaimBlock(t.Context(), "us", own4.block))
	near := l.vxlanNode(t, "near", "10.0.0.9/24", "10.1.2.0/26", 9, own4)
	const device6 = "vxlan-v6.calico"
	mac6 := net.HardwareAddr{0x66, 0, 0, 0, 6, 9}
	check(t, errors.Join(near.NS.AddAddress("eth0", pfx("fd00::9/64")),
		near.NS.VXLAN(device6, addr("fd00::9"), mac6, "eth0", 1430),
		near.NS.AddAddress(device6, pfx("fd10::c0/128")),
		near.NS.AddAddress("lo", pfx("fd10::c1/128")),
		near.NS.AddNeighbour(device6, own6.tunnel, own6.mac),
		near.NS.AddFDB(device6, own6.mac, own6.node),
		near.NS.AddRoute(own6.block, own6.tunnel, device6)))
	node("near", "10.0.0.9/24", "fd00::9/64", "10.1.2.0", "fd10::c0", near.mac, mac6)
	check(t, l.Data.ClaimBlock(t.Context(), "near", pfx("fd10::c0/122")))

	us.start(t)
	leaves := func(what string) {
		t.Helper()
		await(t, what, func(ctx context.Context) error {
			near.capture.Take()
			limited, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_, err := us.NS.Ping(limited, addr("10.1.2.1"))
			_, err6 := us.NS.Ping(limited, addr("fd10::c1"))
			if err = errors.Join(err, err6); err == nil && len(near.seen(own4.node)) == 0 {
				err = errors.New("nothing came tunnelled")
			}
			return err
		})
	}
	leaves("Always")
	us.awaitReady(t)
	check(t, errors.Join(alike("vxlan.calico", us.NS, near.NS), alike(device6, us.NS, near.NS)))
	us.hasRoute(t, "-4", "10.1.2.0/26 via 10.1.2.0 dev vxlan.calico proto 179 metric 1050 onlink")
	us.hasRoute(t, "-6", "fd10::c0/122 via fd10::c0 dev vxlan-v6.calico proto 179 metric 1050 "+
		"onlink")
	check(t, errors.Join(us.NS.FillChecksums("eth0"), us.NS.FillChecksums("vxlan.calico"),
		us.NS.FillChecksums(device6)))
	crossVXLANOnLinux(t, us, near.NS, "vxlan.calico", own4, vtep{near.Address, addr("10.1.2.0"),
		near.mac, pfx("10.1.2.0/26")})
	crossVXLANOnLinux(t, us, near.NS, device6, own6, vtep{addr("fd00::9"), addr("fd10::c0"), mac6,
		pfx("fd10::c0/122")})

	// A restart writes nothing.
	check(t, us.agent.Kill())
	leaves("without the agent")
	us.start(t)
	us.awaitReady(t)
	s, err := us.agent.Status(t.Context())
	check(t, err)
	if s.FIB.OpsPut+s.FIB.OpsDeleted+s.FIB.OpsFailed != 0 || s.FIB.Tunnels == nil ||
		s.FIB.Tunnels.Programmed != 2 {
		t.Errorf("after a restart: %d put, %d deleted, tunnels %+v", s.FIB.OpsPut, s.FIB.OpsDeleted,
			s.FIB.Tunnels)
	}

	// What another program changes is mended.
	for _, by := range [][]string{
		{"neigh", "del", "10.1.2.0", "dev", "vxlan.calico"},
		{"link", "set", "vxlan.calico", "mtu", "1300"},
		{"addr", "del", "10.1.0.1/32", "dev", "vxlan.calico"},
		{"link", "del", "vxlan.calico"},
	} {
		out, err := us.NS.Run(t.Context(), "ip", by...)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		await(t, "after "+strings.Join(by, " "), func(ctx context.Context) error {
			return alike("vxlan.calico", us.NS, near.NS)
		})
		leaves("after " + strings.Join(by, " "))
	}

	// Two nodes with one MAC address: the other one has no tunnel, and that is said.
	node("other", "10.0.0.77/24", "fd00::77/64", "10.1.7.0", "fd10::7", near.mac,
		net.HardwareAddr{0x66, 0, 0, 0, 6, 7})
	await(t, "a node with the MAC address of another", func(ctx context.Context) error {
		var all []agent.TunnelStatus
		err := us.agent.Get(ctx, "/v1/tunnels", &all)
		for _, x := range all {
			failed := x.Node == "other" && x.OuterDestination.Is4()
			if err == nil && failed != strings.Contains(x.Reason, "has the MAC address") {
				err = fmt.Errorf("%+v", x)
			}
		}
		if err == nil && len(all) != 4 {
			err = fmt.Errorf("%+v", all)
		}
		return err
	})
	leaves("beside it")

	// No pool needs them: after a restart there is nothing that late nodes would be waited for.
	mode("Never")
	check(t, us.agent.Kill())
	us.start(t)
	await(t, "the devices go", func(context.Context) error {
		var left []string
		all, err := us.NS.Handle().LinkList()
		for _, x := range all {
			if x.Type() == "vxlan" {
				left = append(left, x.Attrs().Name)
			}
		}
		if err == nil && left != nil {
			err = fmt.Errorf("%q", left)
		}
		return err
	})
}

func (n *agentNode) hasRoute(t *testing.T, family, want string) {
	t.Helper()
	out, err := n.NS.Run(t.Context(), "ip", family, "route", "show", strings.Fields(want)[0])
	check(t, err)
	if got := strings.Join(strings.Fields(string(out)), " "); !strings.HasPrefix(got, want) {
		t.Errorf("route %q, want %q", got, want)
	}
}

// alike compares devices.
func alike(device string, a, b *netlab.Namespace) error {
	got, err := vxlanOf(a, device)
	want, err2 := vxlanOf(b, device)
	if err = errors.Join(err, err2); err == nil && got != want {
		err = fmt.Errorf("%s is\n%s, want\n%s", device, got, want)
	}
	return err
}

// vxlanOf has what a VXLAN device and its entries are, but for addresses, which differ.
func vxlanOf(n *netlab.Namespace, device string) (string, error) {
	link, err := n.Handle().LinkByName(device)
	if err != nil {
		return "", err
	}
	v, ok := link.(*netlink.Vxlan)
	if !ok {
		return "", fmt.Errorf("%s is a %s device", device, link.Type())
	}
	addresses, err := n.Handle().AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return "", err
	}
	var lengths []string
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			bits, _ := a.Mask.Size()
			lengths = append(lengths, fmt.Sprintf("/%d scope %d", bits, a.Scope))
		}
	}
	entries := map[string]int{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_BRIDGE} {
		all, err := n.Handle().NeighList(v.Index, family)
		if err != nil {
			return "", err
		}
		for _, e := range all {
			if e.State&netlink.NUD_PERMANENT != 0 && !e.IP.IsMulticast() {
				entries[fmt.Sprintf("family %d flags %x", family, e.Flags)]++
			}
		}
	}
	attrs := *v
	attrs.LinkAttrs, attrs.SrcAddr, attrs.VtepDevIndex = netlink.LinkAttrs{}, nil, 0
	return fmt.Sprintf("%+v, MTU %d, flags %s, addresses %v, entries %v", attrs, v.MTU, v.Flags,
		lengths, entries), nil
}

func crossVXLANOnLinux(t *testing.T, us *agentNode, near *netlab.Namespace, device string,
	own, far vtep) {
	t.Helper()
	t.Attr("part", "VXLAN of Linux")
	check(t, errors.Join(near.FillChecksums(device), near.NoGRO(device), us.NS.NoGRO(device)))
	ourSide, wire := newSight(t, us.NS, device, false), newSight(t, near, "eth0", false)
	farSide := newSight(t, near, device, false)
	cross(t, us.NS, near, own.tunnel.String(), far.tunnel.Next().String(),
		&crossing{name: "from us", before: ourSide, wire: wire, after: farSide, from: own.block,
			to: far.block, outer: outerHeaders{kind: route.VXLAN, from: own.node, to: far.node,
				macFrom: own.mac, macTo: far.mac, linux: true}},
		&crossing{name: "to us", before: farSide, wire: wire, after: ourSide, from: far.block,
			to: own.block, outer: outerHeaders{kind: route.VXLAN, from: far.node, to: own.node,
				macFrom: far.mac, macTo: own.mac, linux: true}})
}
