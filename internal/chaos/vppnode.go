package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/vpp/vpptest"
)

// makeVPP makes n a machine that forwards with VPP. VPP has the uplink and an address of its own (192.168.4.111 and so on); the node's
// address is the kernel's, behind VPP on a veth, so that BGP runs over the underlay through VPP.
func (n *node) makeVPP(ctx context.Context, i int) error {
	lab := n.cluster.lab
	for _, key := range []string{"net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.default.arp_ignore"} { // the kernel sees VPP's devices too
		if err := n.ns.Sysctl(key, "1"); err != nil {
			return err
		}
	}
	if err := lab.Attach(n.cluster.underlay, netlab.End{Namespace: n.ns, Device: "uplink"}); err != nil {
		return err
	}
	host := netip.PrefixFrom(n.address, n.address.BitLen())
	err := lab.Veth(netlab.End{Namespace: n.ns, Device: "host0", Addresses: []netip.Prefix{host}}, netlab.End{Namespace: n.ns, Device: "vpp0"})
	if err != nil {
		return err
	}
	if err := n.ns.FillChecksums("host0"); err != nil {
		return err
	}
	if err := n.ns.AddNeighbour("host0", gateway, gatewayMAC); err != nil {
		return err
	}
	if err := n.ns.AddRoute(everything, gateway, "host0"); err != nil {
		return err
	}
	mac, err := n.ns.MAC("host0")
	if err != nil {
		return err
	}
	if n.vpp, err = lab.StartVPP(ctx, *n.cluster.settings.vpp, n.ns, n.name+"-vpp", netlab.VPPConfig{}); err != nil {
		return err
	}
	if err := n.configureUplink(ctx, i); err != nil {
		return err
	}
	return n.addPort(ctx, port{"vpp0", n.address, mac})
}

// configureUplink gives VPP the uplink; VPP answers ARP for the node's address there. As a card's, its hardware address outlives VPP: with a new
// one the others would send into the void until their ARP entries age.
func (n *node) configureUplink(ctx context.Context, i int) error {
	own := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 4, byte(111 + i)}), underlayNet.Bits())
	if err := n.createHost(ctx, "uplink", net.HardwareAddr{0x02, 0xfe, 0, 0, 0, byte(1 + i)}); err != nil {
		return err
	}
	return n.vpp.Configure(ctx,
		"set interface state host-uplink up",
		"set interface ip address host-uplink "+own.String(),
		fmt.Sprintf("set arp proxy start %s end %s", n.address, n.address),
		"set interface proxy-arp host-uplink enable")
}

var (
	fibPrefix  = regexp.MustCompile(`^\d+\.\d+\.\d+\.\d+/\d+$`)
	fibBuckets = regexp.MustCompile(`^  \[@0\]: dpo-load-balance: .* buckets:(\d+) `)
	fibBucket  = regexp.MustCompile(`^    \[\d+\] \[@\d+\]: (?:dpo-drop|(?:arp-)?ipv4:? via (\d+\.\d+\.\d+\.\d+)) `)
	// VPP's own entries, and those of the uplink's network.
	notLearned = []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("0.0.0.0/32"), netip.MustParsePrefix("224.0.0.0/4"),
		netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	}
)

// forwarded is what VPP itself, asked by its command line, does with all that is not its own and not the CNI plugin's: that is what the agent has
// programmed, if both are right.
func (n *node) forwarded(ctx context.Context) (map[netip.Prefix]netip.Addr, error) {
	out, err := n.vpp.Command(ctx, "show ip fib table 0")
	if err != nil {
		return nil, err
	}
	found := map[netip.Prefix]netip.Addr{}
	for p, e := range parseFIB(out) {
		behind := func(port port) bool { return p.IsSingleIP() && port.behind == p.Addr() }
		if slices.Contains(notLearned, p) || underlayNet.Overlaps(p) || slices.ContainsFunc(n.ports, behind) {
			continue
		}
		if e.buckets != 1 || len(e.ways) != 1 {
			return nil, fmt.Errorf("show ip fib: %s has %d buckets, of which %v are drops or next hops", p, e.buckets, e.ways)
		}
		found[p] = e.ways[0]
	}
	return found, nil
}

// fibEntry is what VPP does with packets to a prefix.
type fibEntry struct {
	buckets int
	ways    []netip.Addr // of the buckets: next hops, and the zero Addr for a drop; what is neither is left out
}

// parseFIB reads VPP's list of all entries.
func parseFIB(text string) map[netip.Prefix]fibEntry {
	found := map[netip.Prefix]fibEntry{}
	var p netip.Prefix
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if fibPrefix.MatchString(line) {
			p = netip.MustParsePrefix(line)
			found[p] = fibEntry{}
			continue
		}
		e := found[p]
		if m := fibBuckets.FindStringSubmatch(line); m != nil {
			e.buckets, _ = strconv.Atoi(m[1]) // digits
		} else if m := fibBucket.FindStringSubmatch(line); m != nil {
			hop, _ := netip.ParseAddr(m[1]) // none for a drop
			e.ways = append(e.ways, hop)
		} else {
			continue
		}
		found[p] = e
	}
	return found
}

// addPort gives VPP a device behind which one address is, with its route, as a CNI plugin for VPP does.
func (n *node) addPort(ctx context.Context, p port) error {
	n.ports = append(n.ports, p)
	return n.configurePort(ctx, p)
}

// createHost gives VPP a device of the namespace as interface host-DEVICE.
func (n *node) createHost(ctx context.Context, device string, mac net.HardwareAddr) error {
	said, err := n.vpp.Command(ctx, fmt.Sprintf("create host-interface name %s hw-addr %s", device, mac))
	if err == nil && strings.TrimSpace(said) != "host-"+device { // it prints the name of what it made
		err = fmt.Errorf("create host-interface %s: %s", device, strings.TrimSpace(said))
	}
	return err
}

func (n *node) configurePort(ctx context.Context, p port) error {
	if err := n.createHost(ctx, p.device, gatewayMAC); err != nil {
		return err
	}
	name := "host-" + p.device
	return n.vpp.Configure(ctx,
		fmt.Sprintf("set interface state %s up", name),
		fmt.Sprintf("set interface unnumbered %s use host-uplink", name),
		fmt.Sprintf("set ip neighbor %s %s %s static", name, p.behind, p.mac),
		fmt.Sprintf("ip route add %s/%d via %s %s", p.behind, p.behind.BitLen(), p.behind, name))
}

// restartVPP starts a VPP that has ended and sets it up as at first: uplink and ports, which is what a CNI plugin does. Our routes are the
// agent's to bring back.
func (n *node) restartVPP(ctx context.Context) error {
	if err := n.vpp.Restart(ctx); err != nil {
		return err
	}
	i := int(n.address.As4()[3]) - 11
	if err := n.configureUplink(ctx, i); err != nil {
		return err
	}
	for _, p := range n.ports {
		if err := n.configurePort(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// makeAPI makes n a machine whose agent writes into a VPP API server in this process. BGP runs by the kernel; no packet is forwarded.
func (n *node) makeAPI() (err error) {
	if err := n.makeKernel(); err != nil {
		return err
	}
	if n.api, err = vpptest.Start(filepath.Join(n.cluster.lab.Dir(), n.name, "api.sock")); err != nil {
		return err
	}
	addUplink(n.api)
	return nil
}

func addUplink(s *vpptest.Server) {
	s.AddInterface("uplink", netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 4, 111}), underlayNet.Bits()))
}
