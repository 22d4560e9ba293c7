package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

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
	check(t, v.Configure(t.Context(), "set interface ip address host-uplink fd00::102/64",
		"set interface mtu packet 1500 host-uplink"))
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
	await(t, "a ping in VXLAN", func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := pod.Ping(limited, addr(farPod))
		return err
	})
	crossVXLAN(t, pod, near, own, device, "fd10::7", farPod, pfx("fd10::c0/122"))
}
