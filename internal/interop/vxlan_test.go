package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// vxlanNode is a node with a VXLAN device as Felix makes it, and what its uplink carries.
type vxlanNode struct {
	*host
	mac     net.HardwareAddr
	capture *netlab.Capture
}

// vtep is where a node of the test sends to.
type vtep struct {
	node, tunnel netip.Addr
	mac          net.HardwareAddr
	block        netip.Prefix
}

// vxlanNode makes a node with a workload's address, and a tunnel to us.
func (l *lab) vxlanNode(t *testing.T, name, address, block string, mac byte, us vtep) *vxlanNode {
	t.Helper()
	n := &vxlanNode{host: l.host(t, name, address),
		mac: net.HardwareAddr{0x66, 0, 0, 0, 0, mac}}
	check(t, n.NS.FillChecksums("eth0"))
	tunnel := pfx(block).Addr()
	check(t, n.NS.VXLAN("vxlan.calico", pfx(address).Addr(), n.mac, "eth0", 1450))
	check(t, n.NS.AddAddress("vxlan.calico", netip.PrefixFrom(tunnel, 32)))
	check(t, n.NS.AddAddress("lo", netip.PrefixFrom(tunnel.Next(), 32)))
	check(t, n.NS.AddNeighbour("vxlan.calico", us.tunnel, us.mac))
	check(t, n.NS.AddFDB("vxlan.calico", us.mac, us.node))
	check(t, n.NS.AddRoute(us.block, us.tunnel, "vxlan.calico"))
	l.apply(t, vxlanNodeResource(name, address, tunnel.String(), n.mac.String()))
	check(t, l.Data.ClaimBlock(t.Context(), name, pfx(block)))
	var err error
	n.capture, err = n.NS.Capture("eth0")
	check(t, err)
	t.Cleanup(func() { check(t, n.capture.Close()) })
	return n
}

func vxlanNodeResource(name, address, tunnel, mac string) string {
	return testcluster.Resource("Node", name, fmt.Sprintf("bgp: {ipv4Address: %s}, "+
		"ipv4VXLANTunnelAddr: %s, vxlanTunnelMACAddr: '%s'", address, tunnel, mac))
}

// seen returns the frames in VXLAN since it was last asked, from us or to us.
func (n *vxlanNode) seen(from netip.Addr) (out [][]byte) {
	for _, f := range n.capture.Take() {
		if len(f) > 50+20 && f[12] == 8 && f[13] == 0 && f[14+9] == unix.IPPROTO_UDP &&
			binary.BigEndian.Uint16(f[14+20+2:]) == 4789 &&
			netip.AddrFrom4([4]byte(f[14+12:])) == from {
			out = append(out, f[14:])
		}
	}
	return out
}

// TestVXLANOnVPP sends packets between a workload behind VPP and others behind two nodes, a
// neighbour and one behind a router, as the mode of the pool changes. The far ends are Linux with
// VXLAN devices as Felix makes them. BGP says something else of all of them.
func TestVXLANOnVPP(t *testing.T) {
	t.Parallel()
	vpp := needVPP(t)
	l := newLab(t, "vxlanvpp")
	mode := func(mode string) {
		t.Helper()
		l.apply(t, testcluster.Resource("IPPool", "four", "cidr: 10.1.0.0/16, blockSize: 26, "+
			"ipipMode: Never, vxlanMode: "+mode))
	}
	const ours = "10.0.0.102" // VPP's own: it takes what comes for it
	us := l.host(t, "us", "10.0.0.2/24").agent()
	own := vtep{addr(ours), addr("10.1.0.1"), net.HardwareAddr{0x66, 0, 0, 0, 0, 1},
		pfx("10.1.0.0/26")}
	l.apply(t, vxlanNodeResource("us", ours+"/24", "10.1.0.1", own.mac.String()))
	check(t, l.Data.ClaimBlock(t.Context(), "us", own.block))
	v := us.startVPP(t, vpp)
	check(t, us.NS.FillChecksums("uplink"))
	us.agent.Dataplane = []string{"--dataplane", "vpp", "--vpp-socket", v.APISocket()}
	us.agent.Flags = []string{"--learn", "ipam"}
	pod := l.podBehindVPP(t, us, v, "10.1.0.7")

	near := l.vxlanNode(t, "near", "10.0.0.9/24", "10.1.2.0/26", 9, own)
	router := l.gateway(t, "router", "10.0.0.254/24")
	check(t, router.NS.AddAddress("eth0", pfx("10.8.0.254/24")))
	far := l.vxlanNode(t, "far", "10.8.0.8/24", "10.1.8.0/26", 8, own)
	check(t, far.NS.AddRoute(pfx("10.0.0.0/24"), addr("10.8.0.254"), "eth0"))
	check(t, v.Configure(t.Context(), "ip route add 0.0.0.0/0 via 10.0.0.254 host-uplink",
		"set interface mtu packet 1500 host-uplink"))

	leaves := func(what string, encapsulated ...*vxlanNode) {
		t.Helper()
		for _, to := range []struct {
			*vxlanNode
			pod string
		}{{near, "10.1.2.1"}, {far, "10.1.8.1"}} {
			tunnelled := false
			for _, n := range encapsulated {
				tunnelled = tunnelled || n == to.vxlanNode
			}
			await(t, fmt.Sprintf("%s: %s, tunnelled %t", what, to.name, tunnelled),
				func(ctx context.Context) error {
					to.capture.Take()
					limited, cancel := context.WithTimeout(ctx, 2*time.Second)
					defer cancel()
					if _, err := pod.Ping(limited, addr(to.pod)); err != nil {
						return err
					}
					if n := len(to.seen(own.node)); (n > 0) != tunnelled {
						return fmt.Errorf("%d packets came tunnelled", n)
					}
					return nil
				})
		}
	}
	mode("CrossSubnet")
	us.start(t)
	leaves("CrossSubnet", far) // near sends all tunnelled: each direction has a rule of its own
	mode("Always")
	leaves("Always", near, far)
	checkVXLANFrames(t, pod, near, own)
	checkTCP(t, pod, near, "10.1.2.1")
	checkLargePackets(t, pod, near, own)
	l.strangerHasNoVXLAN(t, v, own)
	leaves("beside a stranger", near, far)

	// The agent restarts; a Node gets another VTEP; one goes.
	check(t, us.agent.Kill())
	leaves("without the agent", near, far)
	us.start(t)
	leaves("with the next agent", near, far)
	us.awaitReady(t)
	for _, by := range []string{
		"delete loopback interface intfc loop0", // the interface that tunnels are unnumbered to
		"create vxlan tunnel src 10.0.0.102 dst 10.0.0.9 vni 4096 del",
	} {
		_, err := v.Command(t.Context(), by)
		check(t, err)
		leaves("after "+by, near, far)
	}
	near.mac = net.HardwareAddr{0x66, 0, 0, 0, 1, 9}
	check(t, near.NS.SetMAC("vxlan.calico", near.mac))
	check(t, near.NS.AddRoute(own.block, own.tunnel, "vxlan.calico")) // it went with the device
	check(t, near.NS.AddNeighbour("vxlan.calico", own.tunnel, own.mac))
	l.apply(t, vxlanNodeResource("near", "10.0.0.9/24", "10.1.2.0", near.mac.String()))
	leaves("after a change of the MAC address", near, far)
	_, err := l.Data.ReleaseBlock(t.Context(), pfx("10.1.8.0/26"))
	check(t, errors.Join(err, l.Data.Delete(t.Context(), "Node", "far")))
	await(t, "its tunnel goes", func(ctx context.Context) error {
		out, err := v.Command(ctx, "show vxlan tunnel")
		if err == nil && (strings.Contains(out, "10.8.0.8") || !strings.Contains(out, "10.0.0.9")) {
			err = errors.New(out)
		}
		return err
	})
	var all []agent.TunnelStatus
	check(t, us.ask(t.Context(), &all, "tunnels"))
	if len(all) != 1 || all[0].Node != "near" || all[0].State != "programmed" ||
		all[0].Encapsulation.String() != "VXLAN" || all[0].MTU != 1450 {
		t.Errorf("tunnels %+v", all)
	}
}

// checkVXLANFrames compares whole headers of both directions with what is written here. Free are
// the IP identifications, the UDP source port, which is the flow's, and checksums of what is free;
// they are checked by the kernels that take the packets.
func checkVXLANFrames(t *testing.T, pod *netlab.Namespace, near *vxlanNode, own vtep) {
	t.Helper()
	const podAddress, farPod = "10.1.0.7", "10.1.2.1"
	for _, tc := range []struct {
		name  string
		send  func() error
		proto byte
		tos   byte
		df    bool
		both  bool // it is answered
	}{
		{"ICMP", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := pod.Ping(ctx, addr(farPod))
			return err
		}, unix.IPPROTO_ICMP, 0, true, true}, // Linux sets DF in a request, not in an answer
		{"UDP", func() error { return datagram(pod, farPod, 0, unix.IP_PMTUDISC_DO) },
			unix.IPPROTO_UDP, 0, true, false},
		{"UDP with a DSCP and ECN", func() error {
			return datagram(pod, farPod, 0xb8|1, unix.IP_PMTUDISC_DONT)
		}, unix.IPPROTO_UDP, 0xb9, false, false},
	} {
		var from, to []byte
		await(t, tc.name, func(context.Context) error {
			near.capture.Take()
			if err := tc.send(); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
			from, to = nil, nil
			for _, f := range near.capture.Take() {
				if p := f[14:]; len(p) > 70 && p[9] == unix.IPPROTO_UDP && p[50+9] == tc.proto {
					if netip.AddrFrom4([4]byte(p[12:])) == own.node {
						from = p
					} else {
						to = p
					}
				}
			}
			if from == nil || tc.both && to == nil {
				return errors.New("nothing came")
			}
			return nil
		})
		// VPP begins with a TTL of 254, of which the uplink takes one.
		sameHeaders(t, tc.name+" from VPP", from, vxlanHeaders{own.node, near.Address, own.mac,
			near.mac, addr(podAddress), addr(farPod), 253, 63, tc.proto, tc.tos, tc.df})
		if tc.both {
			sameHeaders(t, tc.name+" from Linux", to, vxlanHeaders{near.Address, own.node, near.mac,
				own.mac, addr(farPod), addr(podAddress), 64, 64, tc.proto, tc.tos, false})
		}
	}
}

// vxlanHeaders are those of a packet.
type vxlanHeaders struct {
	outerFrom, outerTo netip.Addr
	macFrom, macTo     net.HardwareAddr
	from, to           netip.Addr
	outerTTL, ttl      byte
	proto, tos         byte
	df                 bool
}

func sameHeaders(t *testing.T, what string, p []byte, h vxlanHeaders) {
	t.Helper()
	ipv4 := func(tos, ttl, proto byte, df bool, n int, from, to netip.Addr) []byte {
		out := make([]byte, 20)
		out[0], out[1], out[8], out[9] = 0x45, tos, ttl, proto
		binary.BigEndian.PutUint16(out[2:], uint16(n))
		if df {
			out[6] = 0x40
		}
		copy(out[12:], from.AsSlice())
		copy(out[16:], to.AsSlice())
		return out
	}
	udp := make([]byte, 8)
	binary.BigEndian.PutUint16(udp[2:], 4789)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(p)-20))
	want := bytes.Join([][]byte{
		ipv4(0, h.outerTTL, unix.IPPROTO_UDP, false, len(p), h.outerFrom, h.outerTo), udp,
		{8, 0, 0, 0, 0, 0x10, 0, 0}, h.macTo, h.macFrom, {8, 0},
		ipv4(h.tos, h.ttl, h.proto, h.df, len(p)-50, h.from, h.to)}, nil)
	got := bytes.Clone(p[:70])
	for _, free := range [][2]int{{4, 6}, {10, 12}, {20, 22}, {26, 28}, {54, 56}, {60, 62}} {
		clear(got[free[0]:free[1]])
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\ngot  % x\nwant % x", what, got, want)
	}
	if binary.BigEndian.Uint16(p[20:]) == 0 {
		t.Errorf("%s: the UDP source port is 0", what)
	}
	if h.outerTTL == 253 && binary.BigEndian.Uint16(p[26:]) != 0 {
		t.Errorf("%s: VPP set a UDP checksum", what)
	}
}

// checkLargePackets sends more than fits into the tunnel. With DF the workload hears of it; without
// it two fragments leave, each in VXLAN.
func checkLargePackets(t *testing.T, pod *netlab.Namespace, near *vxlanNode, own vtep) {
	t.Helper()
	const fits, tooLarge, farPod = 1450 - 28, 1500 - 28, "10.1.2.1"
	await(t, "without DF", func(context.Context) error {
		near.capture.Take()
		err := datagramOf(tooLarge, pod, farPod, 0, unix.IP_PMTUDISC_INTERFACE)
		if err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
		fragments, size := 0, 0
		for _, p := range near.seen(own.node) {
			inner := p[50:]
			if inner[9] == unix.IPPROTO_UDP && inner[6]&0x3f|inner[7] != 0 {
				fragments, size = fragments+1, size+len(inner)-20
			}
		}
		if fragments != 2 || size != tooLarge+8 {
			return fmt.Errorf("%d fragments with %d bytes", fragments, size)
		}
		return nil
	})
	await(t, "with DF", func(context.Context) error {
		err := datagramOf(tooLarge, pod, farPod, 0, unix.IP_PMTUDISC_DO)
		if !errors.Is(err, unix.EMSGSIZE) {
			return fmt.Errorf("the workload has not heard of the MTU: %v", err)
		}
		return datagramOf(fits, pod, farPod, 0, unix.IP_PMTUDISC_DO)
	})
}

// checkTCP sends more than fits into a packet, both ways.
func checkTCP(t *testing.T, pod *netlab.Namespace, far *vxlanNode, farPod string) {
	t.Helper()
	var l net.Listener
	check(t, far.NS.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(farPod, "7"))
		return err
	}))
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	var c net.Conn
	check(t, pod.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", net.JoinHostPort(farPod, "7"), patience)
		return err
	}))
	defer c.Close()
	check(t, c.SetDeadline(time.Now().Add(patience)))
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	go func() {
		_, _ = c.Write(sent)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes came back: %v", len(got), len(sent), err)
	}
}

// strangerHasNoVXLAN has a machine that is no Node send tunnelled packets.
func (l *lab) strangerHasNoVXLAN(t *testing.T, v *netlab.VPP, own vtep) {
	t.Helper()
	ns := l.host(t, "stranger", "10.0.0.77/24").NS
	check(t, ns.FillChecksums("eth0"))
	check(t, ns.VXLAN("vxlan.calico", addr("10.0.0.77"), net.HardwareAddr{0x66, 0, 0, 0, 0, 77},
		"eth0", 1450))
	check(t, ns.AddNeighbour("vxlan.calico", own.tunnel, own.mac))
	check(t, ns.AddFDB("vxlan.calico", own.mac, own.node))
	check(t, ns.AddRoute(own.block, own.tunnel, "vxlan.calico"))
	refused := func(ctx context.Context) (n int) {
		out, err := v.Command(ctx, "show errors")
		check(t, err)
		for line := range strings.Lines(out) {
			if strings.Contains(line, "vxlan4-input") && strings.Contains(line, "no such tunnel") {
				_, err = fmt.Sscan(line, &n)
				check(t, err)
			}
		}
		return n
	}
	before := refused(t.Context())
	await(t, "packets of a stranger are counted", func(ctx context.Context) error {
		if err := datagram(ns, "10.1.0.7", 0, unix.IP_PMTUDISC_DO); err != nil {
			return err
		}
		if now := refused(ctx); now < before+3 {
			return fmt.Errorf("%d, then %d", before, now)
		}
		return nil
	})
}
