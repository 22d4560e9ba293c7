package demo

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"vpp-route-agent/internal/netlab"
)

// fibSource is the name under which our agent's routes are in VPP, its default. The agent adds "@" and a mark of its own to it.
const fibSource = "vpp-route-agent"

// vppFIB is the forwarder of a node whose packets a VPP forwards.
type vppFIB struct {
	vpp     *netlab.VPP
	vppctl  string // the program
	version string
}

func (v *vppFIB) name() string { return "VPP " + v.version }

// portMAC leaves the kernel's end some other address than VPP's, which is gatewayMAC: the kernel sees the same packets and shall take
// them for somebody else's.
func (v *vppFIB) portMAC() net.HardwareAddr { return nil }

// makeVPPNode makes n a machine that forwards with VPP. VPP has the uplink and an address of its own in the underlay (192.168.4.111 and
// so on). The node's address belongs to the kernel, which is behind VPP on a veth: VPP has a /32 route to it and answers ARP for it on
// the uplink, so that BGP sessions run over the underlay as in any cluster, through VPP.
func (d *demo) makeVPPNode(ctx context.Context, n *node, i int) error {
	if err := relaxSourceChecks(n.ns); err != nil {
		return err
	}
	// The kernel has VPP's devices too and would answer ARP on all of them for the address that it has on one.
	for _, key := range []string{"net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.default.arp_ignore"} {
		if err := n.ns.Sysctl(key, "1"); err != nil {
			return err
		}
	}
	if err := d.lab.Attach(d.underlay, netlab.End{Namespace: n.ns, Device: "uplink"}); err != nil {
		return err
	}
	host := netip.PrefixFrom(n.address, n.address.BitLen())
	err := d.lab.Veth(
		netlab.End{Namespace: n.ns, Device: "host0", Addresses: []netip.Prefix{host}},
		netlab.End{Namespace: n.ns, Device: "vpp0"})
	if err != nil {
		return err
	}
	if err := n.ns.FillChecksums("host0"); err != nil {
		return err
	}
	if err := n.ns.AddNeighbour("host0", gateway, gatewayMAC); err != nil {
		return err
	}
	if err := n.ns.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), gateway, "host0"); err != nil {
		return err
	}
	mac, err := n.ns.MAC("host0")
	if err != nil {
		return err
	}
	v, err := d.startVPP(ctx, n)
	if err != nil {
		return err
	}
	n.fib = v
	own := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 4, byte(111 + i)}), underlay.Bits())
	args := append([]string{"--dataplane", "vpp", "--vpp-socket", v.vpp.APISocket()}, d.learnArgs("host-uplink", own)...)
	n.speaker = newAgent(d.lab, d.cfg.Binary, n.name, n.ns, args...)
	if err := d.addUplink(ctx, n, v.vpp, own); err != nil {
		return err
	}
	if err := v.port(ctx, "vpp0", n.address, mac); err != nil {
		return err
	}
	return v.vpp.Configure(ctx,
		fmt.Sprintf("set arp proxy start %s end %s", n.address, n.address),
		"set interface proxy-arp host-uplink enable")
}

// startVPP starts the node's VPP and waits until it answers.
func (d *demo) startVPP(ctx context.Context, n *node) (*vppFIB, error) {
	process, err := d.lab.StartVPP(ctx, *d.tools.vpp, n.ns, n.name+"-vpp", netlab.VPPConfig{})
	if err != nil {
		return nil, err
	}
	text, err := process.Command(ctx, "show version")
	if err != nil {
		return nil, err
	}
	v := &vppFIB{vpp: process, vppctl: d.tools.vpp.Vppctl}
	if f := strings.Fields(text); len(f) > 1 { // "vpp v25.10-release built by …"
		v.version, _, _ = strings.Cut(strings.TrimPrefix(f[1], "v"), "-")
	}
	return v, nil
}

// port gives VPP a device behind which one address is, with its route, as a CNI plugin for VPP does. VPP ignores ARP requests from
// outside an interface's subnet, so the neighbour is permanent, as ours is on the other side.
func (v *vppFIB) port(ctx context.Context, device string, behind netip.Addr, mac net.HardwareAddr) error {
	name := "host-" + device
	said, err := v.vpp.Command(ctx, fmt.Sprintf("create host-interface name %s hw-addr %s", device, gatewayMAC))
	if err != nil {
		return err
	}
	if said = strings.TrimSpace(said); said != name { // it prints the name of what it made
		return fmt.Errorf("create host-interface %s: %s", device, said)
	}
	return v.vpp.Configure(ctx,
		fmt.Sprintf("set interface state %s up", name),
		fmt.Sprintf("set interface unnumbered %s use host-uplink", name),
		fmt.Sprintf("set ip neighbor %s %s %s static", name, behind, mac),
		fmt.Sprintf("ip route add %s/%d via %s %s", behind, behind.BitLen(), behind, name))
}

func (v *vppFIB) addWorkload(ctx context.Context, host netip.Prefix, p port) error {
	return v.port(ctx, p.outside, host.Addr(), p.mac)
}

func (v *vppFIB) removeWorkload(ctx context.Context, host netip.Prefix, p port) error {
	name := "host-" + p.outside
	return v.vpp.Configure(ctx,
		fmt.Sprintf("ip route del %s via %s %s", host, host.Addr(), name),
		fmt.Sprintf("set ip neighbor del %s %s %s", name, host.Addr(), p.mac),
		fmt.Sprintf("delete host-interface name %s", p.outside))
}

// learned asks for each entry by itself: the list of all does not say whose they are.
func (v *vppFIB) learned(ctx context.Context) (map[netip.Prefix]entry, error) {
	out, err := v.vpp.Command(ctx, "show ip fib table 0")
	if err != nil {
		return nil, err
	}
	found := map[netip.Prefix]entry{}
	for _, m := range fibPrefix.FindAllStringSubmatch(out, -1) {
		p, err := netip.ParsePrefix(m[1])
		if err != nil {
			return nil, fmt.Errorf("show ip fib: %w", err)
		}
		e, ours, err := v.lookup(ctx, p)
		if err != nil {
			return nil, err
		}
		if ours {
			found[p] = e
		}
	}
	return found, nil
}

func (v *vppFIB) lookup(ctx context.Context, p netip.Prefix) (entry, bool, error) {
	out, err := v.vpp.Command(ctx, "show ip fib table 0 "+p.String())
	if err != nil {
		return entry{}, false, err
	}
	e, ours := parseFIBEntry(out, p)
	return e, ours, nil
}

var (
	fibPrefix = regexp.MustCompile(`(?m)^(\d+\.\d+\.\d+\.\d+/\d+)`)
	fibOwner  = regexp.MustCompile(`^  (\S.*) refs:\d+ `)
	fibHop    = regexp.MustCompile(`^\s+(?:via )?(\d+\.\d+\.\d+\.\d+) (\S+)`)
)

// parseFIBEntry finds in the output of `show ip fib PREFIX`, which is about the longest match, what our source has for p: also where
// another source's route for it wins.
func parseFIBEntry(text string, p netip.Prefix) (e entry, ours bool) {
	if m := fibPrefix.FindStringSubmatch(text); m == nil || m[1] != p.String() {
		return entry{}, false
	}
	inside := false // our source's part
	for line := range strings.Lines(text) {
		if m := fibOwner.FindStringSubmatch(line); m != nil {
			name, _, _ := strings.Cut(m[1], "@")
			if inside = name == fibSource; inside {
				e, ours = entry{where: fmt.Sprintf("VPP, source %s, drop", fibSource)}, true
			}
			continue
		}
		if strings.HasPrefix(line, " forwarding:") {
			break
		}
		if m := fibHop.FindStringSubmatch(line); inside && m != nil {
			hop, _ := netip.ParseAddr(m[1]) // the zero Addr is nobody's next hop
			e = entry{hop, fmt.Sprintf("VPP, source %s, %s", fibSource, m[2])}
		}
	}
	return e, ours
}

func (v *vppFIB) command() string {
	return fmt.Sprintf("%s -s %s show ip fib", v.vppctl, v.vpp.CLISocket())
}
