package kernel

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/dataplanetest"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
)

var (
	_ fib.Dataplane = (*Dataplane)(nil)
	_ fib.Overseer  = (*Dataplane)(nil)
)

const otherTable = 7

// TestDataplaneKernel runs the conformance suite on this machine's kernel. The other means of the
// suite are the netlink library's.
func TestDataplaneKernel(t *testing.T) {
	_, node, _ := newNamespaces(t)
	check(t, setUpTable(node))
	d, stop := open(t, Config{Namespace: node.Path()})
	t.Cleanup(func() { stop() })
	dataplanetest.Run(t, dataplanetest.Setup{
		Name:      d.version,
		Dataplane: d,
		Interfaces: [2]dataplanetest.Interface{
			{Name: "eth1", V4: pfx("10.0.1.1/24"), V6: pfx("fd00:1::1/64")},
			{Name: "eth2", V4: pfx("10.0.2.1/24"), V6: pfx("fd00:2::1/64")},
		},
		OtherTable: otherTable, MissingTable: 8, TunnelAddresses: true,
		AddForeign: func(t *testing.T, r route.Route) func() { return addForeign(t, node, r, 0) },
		// Felix' metric
		AddWorkload: func(t *testing.T, r route.Route) func() {
			return addForeign(t, node, r, 1024)
		},
		Dump:   func(t *testing.T) map[route.Key]string { return dump(t, node) },
		Egress: func(t *testing.T, k route.Key) map[string]int { return egress(t, node, k) },
		Made: func(t *testing.T, name string) (mac string, mtu uint32) {
			link, err := node.Handle().LinkByName(name)
			check(t, err)
			return link.Attrs().HardwareAddr.String(), uint32(link.Attrs().MTU)
		},
		Reopen: func(*testing.T) fib.Dataplane {
			stop()
			d, stop = open(t, Config{Namespace: node.Path()})
			return d
		},
		Lacks: map[dataplanetest.Feature]string{
			dataplanetest.Recursive: "the kernel has no recursive next hops: fib resolves them " +
				"before it puts a route",
			dataplanetest.Counters:      "the kernel counts no packets by route",
			dataplanetest.CrossConnects: "they are VPP's",
			dataplanetest.TAPs:          "they are VPP's",
			dataplanetest.Tunnels: "an IPIP device of Linux leads to all nodes, and many kernels " +
				"have none",
			dataplanetest.Tables:     "a table comes into being by use",
			dataplanetest.Connection: "the kernel cannot go away",
			dataplanetest.Overlaps:   "the kernel takes equal subnets on two interfaces",
			dataplanetest.Links: "the kernel removes routes with their interface, drift " +
				"repair puts them again",
			dataplanetest.Hiding: "the kernel shows routes of all owners: ours behind " +
				"another's too",
		},
	})
}

// setUpTable makes the other table known to IPv6, so that the first route in it is no change of the
// dump.
func setUpTable(node *netlab.Namespace) error {
	return node.Handle().RouteAdd(&netlink.Route{Dst: network(pfx("2001:db9::/64")),
		Type: unix.RTN_BLACKHOLE, Table: otherTable})
}

func addForeign(t *testing.T, node *netlab.Namespace, r route.Route, metric int) (remove func()) {
	t.Helper()
	foreign := &netlink.Route{Dst: network(r.Prefix), Protocol: unix.RTPROT_STATIC,
		Table: int(r.Table), Priority: metric}
	switch r.Kind {
	case route.Drop:
		foreign.Type = unix.RTN_BLACKHOLE
	case route.Via:
		link, err := node.Handle().LinkByName(r.Paths[0].Interface)
		check(t, err)
		foreign.LinkIndex, foreign.Gw = link.Attrs().Index, r.Paths[0].NextHop.AsSlice()
	default:
		t.Fatalf("no foreign routes of kind %s", r.Kind)
	}
	check(t, node.Handle().RouteAdd(foreign))
	return func() { check(t, node.Handle().RouteDel(foreign)) }
}

func dump(t *testing.T, node *netlab.Namespace) map[route.Key]string {
	t.Helper()
	texts := map[route.Key][]string{}
	for _, table := range []int{unix.RT_TABLE_MAIN, otherTable} {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			found, err := node.Handle().RouteListFiltered(family, &netlink.Route{Table: table},
				netlink.RT_FILTER_TABLE)
			check(t, err)
			for _, r := range found {
				k := route.Key{Table: uint32(table)}
				if table == unix.RT_TABLE_MAIN {
					k.Table = 0
				}
				addr, _ := netip.AddrFromSlice(r.Dst.IP)
				bits, _ := r.Dst.Mask.Size()
				k.Prefix = netip.PrefixFrom(addr.Unmap(), bits) // the library maps 0.0.0.0
				texts[k] = append(texts[k], r.String())
			}
		}
	}
	joined := map[route.Key]string{}
	for k, lines := range texts {
		slices.Sort(lines)
		joined[k] = strings.Join(lines, "; ")
	}
	return joined
}

// egress reads the next hops of the best entry of k.
func egress(t *testing.T, node *netlab.Namespace, k route.Key) map[string]int {
	t.Helper()
	table := int(k.Table)
	if table == 0 {
		table = unix.RT_TABLE_MAIN
	}
	family := netlink.FAMILY_V4
	if k.Prefix.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	found, err := node.Handle().RouteListFiltered(family,
		&netlink.Route{Table: table, Dst: network(k.Prefix)},
		netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
	check(t, err)
	if len(found) == 0 {
		t.Fatalf("no route for %s", k)
	}
	slices.SortFunc(found, func(a, b netlink.Route) int {
		return cmp.Compare(a.Priority, b.Priority)
	})
	shares := map[string]int{}
	count := func(index, weight int) {
		link, err := node.Handle().LinkByIndex(index)
		check(t, err)
		shares[link.Attrs().Name] += weight
	}
	for _, hop := range found[0].MultiPath {
		count(hop.LinkIndex, hop.Hops+1)
	}
	if found[0].Type == unix.RTN_UNICAST && len(found[0].MultiPath) == 0 {
		count(found[0].LinkIndex, 1)
	}
	return shares
}

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
