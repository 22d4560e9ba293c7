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
	"vpp-route-agent/internal/route"
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
	us.agent.Dataplane = []string{"--dataplane", "vpp", "--vpp-socket", v.APISocket(),
		"--vpp-stats-socket", v.StatsSocket()}
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
	crossVXLAN(t, pod, near, own, "vxlan.calico", "10.1.0.7", "10.1.2.1", pfx("10.1.2.0/26"))
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
	check(t, us.agent.Get(t.Context(), "/v1/tunnels", &all))
	if len(all) != 1 || all[0].Node != "near" || all[0].State != "programmed" ||
		all[0].Encapsulation.String() != "VXLAN" || all[0].MTU != 1450 {
		t.Fatalf("tunnels %+v", all)
	}
	if n := all[0]; n.PacketsIn == nil || *n.PacketsIn == 0 || n.PacketsOut == nil ||
		*n.PacketsOut == 0 || n.NotCounted != "" {
		t.Errorf("packets in %v, out %v, %s", n.PacketsIn, n.PacketsOut, n.NotCounted)
	}
}

// crossVXLAN sends packets between a workload behind VPP and a Linux node.
func crossVXLAN(t *testing.T, pod *netlab.Namespace, near *vxlanNode, own vtep, device string,
	nearAddress, farAddress string, farBlock netip.Prefix) {
	t.Helper()
	t.Attr("part", "VXLAN of Linux")
	mtu := 1450
	if own.node.Is6() {
		mtu = 1430
	}
	check(t, errors.Join(near.NS.FillChecksums(device), near.NS.NoGRO(device)))
	podSide, wire := newSight(t, pod, "eth0", false), newSight(t, near.NS, "eth0", false)
	farSide := newSight(t, near.NS, device, false)
	cross(t, pod, near.NS, nearAddress, farAddress,
		&crossing{name: "from VPP", before: podSide, wire: wire, after: farSide, from: own.block,
			to: farBlock, routedIn: true, mtu: mtu,
			outer: outerHeaders{kind: route.VXLAN, from: own.node, to: near.Address,
				macFrom: own.mac, macTo: near.mac}},
		&crossing{name: "to VPP", before: farSide, wire: wire, after: podSide, from: farBlock,
			to: own.block, routedOut: true,
			outer: outerHeaders{kind: route.VXLAN, from: near.Address, to: own.node,
				macFrom: near.mac, macTo: own.mac, linux: true}})
}

// checkTCP sends more than fits into a packet, both ways.
func checkTCP(t *testing.T, pod, far *netlab.Namespace, farPod string) {
	t.Helper()
	var l net.Listener
	check(t, far.Do(func() (err error) {
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
	// In turns: a burst may be more than AF_PACKET's ring holds.
	sent, got := bytes.Repeat([]byte("0123456789abcdef"), 512), make([]byte, 16*512)
	for range 8 {
		_, err := c.Write(sent)
		n, readErr := io.ReadFull(c, got)
		if err = errors.Join(err, readErr); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d of %d bytes came back: %v", n, len(sent), err)
		}
	}
	check(t, c.(*net.TCPConn).CloseWrite())
	_, err := c.Read(got)
	if err != io.EOF { // nothing follows
		t.Errorf("instead of the end: %v", err)
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
