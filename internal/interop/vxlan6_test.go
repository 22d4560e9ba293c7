package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/testcluster"
)

// TestVXLANOnVPPInIPv6 is TestVXLANOnVPP for a pool of IPv6, whose tunnels are in IPv6, with one
// node.
func TestVXLANOnVPPInIPv6(t *testing.T) {
	t.Parallel()
	vpp := needVPP(t)
	l := newLab(t, "vxlan6vpp")
	l.apply(t, testcluster.Resource("IPPool", "six", `cidr: "fd10::/48", blockSize: 122, `+
		"ipipMode: Never, vxlanMode: Always"))
	node := func(name, four, six, tunnel, mac string) {
		t.Helper()
		l.apply(t, testcluster.Resource("Node", name, fmt.Sprintf("bgp: {ipv4Address: %s, "+
			"ipv6Address: '%s'}, ipv6VXLANTunnelAddr: '%s', vxlanTunnelMACAddrV6: '%s'", four, six,
			tunnel, mac)))
	}
	us := l.host(t, "us", "10.0.0.2/24").agent()
	own := vtep{addr("fd00::102"), addr("fd10::1"), net.HardwareAddr{0x66, 0, 0, 0, 0, 1},
		pfx("fd10::/122")}
	node("us", "10.0.0.102/24", "fd00::102/64", "fd10::1", own.mac.String())
	check(t, l.Data.ClaimBlock(t.Context(), "us", own.block))
	v := us.startVPP(t, vpp)
	check(t, us.NS.FillChecksums("uplink"))
	check(t, v.Configure(t.Context(), "set interface ip address host-uplink fd00::102/64"))
	us.agent.Dataplane = []string{"--dataplane", "vpp", "--vpp-socket", v.APISocket()}
	us.agent.Flags = []string{"--learn", "ipam"}
	pod := l.podBehindVPP(t, us, v, "10.9.0.7")
	podMAC, err := pod.MAC("eth0")
	check(t, errors.Join(err, pod.AddAddress("eth0", pfx("fd10::7/128")),
		v.Configure(t.Context(),
			fmt.Sprintf("set ip neighbor host-pod0 fd10::7 %s static", podMAC),
			"ip route add fd10::7/128 via fd10::7 host-pod0"),
		pod.AddNeighbour("eth0", addr("fe80::1"), []byte{2, 0xfe, 0, 0, 0, 7}),
		pod.AddRoute(pfx("::/0"), addr("fe80::1"), "eth0")))

	near := &vxlanNode{host: l.host(t, "near", "fd00::9/64"),
		mac: net.HardwareAddr{0x66, 0, 0, 0, 0, 9}}
	const device, farPod = "vxlan-v6.calico", "fd10::c1"
	check(t, errors.Join(near.NS.FillChecksums("eth0"),
		near.NS.VXLAN(device, addr("fd00::9"), near.mac, "eth0", 1430),
		near.NS.AddAddress(device, pfx("fd10::c0/128")),
		near.NS.AddAddress("lo", pfx(farPod+"/128")),
		near.NS.AddNeighbour(device, own.tunnel, own.mac),
		near.NS.AddFDB(device, own.mac, own.node),
		near.NS.AddRoute(own.block, own.tunnel, device)))
	node("near", "10.0.0.9/24", "fd00::9/64", "fd10::c0", near.mac.String())
	check(t, l.Data.ClaimBlock(t.Context(), "near", pfx("fd10::c0/122")))
	near.capture, err = near.NS.Capture("eth0")
	check(t, err)
	t.Cleanup(func() { check(t, near.capture.Close()) })

	us.start(t)
	var from, to []byte
	await(t, "a ping in VXLAN", func(ctx context.Context) error {
		near.capture.Take()
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if _, err := pod.Ping(limited, addr(farPod)); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
		from, to = nil, nil
		for _, f := range near.capture.Take() {
			if p := f[14:]; len(p) > 110 && p[0]>>4 == 6 && p[6] == unix.IPPROTO_UDP {
				if netip.AddrFrom16([16]byte(p[8:])) == own.node {
					from = p
				} else {
					to = p
				}
			}
		}
		if from == nil || to == nil {
			return errors.New("nothing came")
		}
		return nil
	})
	sameHeaders6(t, "from VPP", from, vxlanHeaders{outerFrom: own.node, outerTo: addr("fd00::9"),
		macFrom: own.mac, macTo: near.mac, from: addr("fd10::7"), to: addr(farPod),
		outerTTL: 254, ttl: 63, proto: unix.IPPROTO_ICMPV6})
	sameHeaders6(t, "from Linux", to, vxlanHeaders{outerFrom: addr("fd00::9"), outerTo: own.node,
		macFrom: near.mac, macTo: own.mac, from: addr(farPod), to: addr("fd10::7"),
		outerTTL: 64, ttl: 64, proto: unix.IPPROTO_ICMPV6})
	checkTCP(t, pod, near, farPod)
}

// sameHeaders6 is sameHeaders for IPv6. Free are the flow labels, the UDP source port and the
// checksum, which the kernel checks.
func sameHeaders6(t *testing.T, what string, p []byte, h vxlanHeaders) {
	t.Helper()
	ipv6 := func(n int, next, limit byte, from, to netip.Addr) []byte {
		out := make([]byte, 8, 40)
		out[0], out[6], out[7] = 0x60, next, limit
		binary.BigEndian.PutUint16(out[4:], uint16(n))
		return append(append(out, from.AsSlice()...), to.AsSlice()...)
	}
	udp := make([]byte, 8)
	binary.BigEndian.PutUint16(udp[2:], 4789)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(p)-40))
	want := bytes.Join([][]byte{
		ipv6(len(p)-40, unix.IPPROTO_UDP, h.outerTTL, h.outerFrom, h.outerTo), udp,
		{8, 0, 0, 0, 0, 0x10, 0, 0}, h.macTo, h.macFrom, {0x86, 0xdd},
		ipv6(len(p)-110, h.proto, h.ttl, h.from, h.to)}, nil)
	got := bytes.Clone(p[:110])
	for _, free := range [][2]int{{2, 4}, {40, 42}, {46, 48}, {72, 74}} {
		clear(got[free[0]:free[1]])
	}
	got[1] &= 0xf0
	got[71] &= 0xf0
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\ngot  % x\nwant % x", what, got, want)
	}
}
