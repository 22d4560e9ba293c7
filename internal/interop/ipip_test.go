package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testcluster"
)

// ipipNode is a node whose IPIP device is in user space: the test kernel has none.
type ipipNode struct {
	*host
	tunnel *netlab.IPIP

	mu    sync.Mutex // guards what follows
	outer [][]byte   // packets that came, with both headers
}

// ipipNode makes a node with a workload's address, and a tunnel to us.
func (l *lab) ipipNode(t *testing.T, name, address, block, us string) *ipipNode {
	t.Helper()
	n := &ipipNode{host: l.host(t, name, address)}
	var err error
	n.tunnel, err = n.NS.IPIP("tunl0", pfx(address).Addr())
	check(t, err)
	t.Cleanup(func() { check(t, n.tunnel.Close()) })
	n.tunnel.Watch(func(p []byte) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.outer = append(n.outer, append([]byte{}, p...))
	})
	n.tunnel.Route(pfx("10.1.0.0/26"), addr(us))
	first := pfx(block).Addr()
	check(t, n.NS.AddAddress("tunl0", netip.PrefixFrom(first, 32)))
	check(t, n.NS.AddAddress("lo", netip.PrefixFrom(first.Next(), 32)))
	check(t, n.NS.AddRoute(pfx("10.1.0.0/26"), netip.Addr{}, "tunl0"))
	l.apply(t, ipipNodeResource(name, address, first.String()))
	check(t, l.Data.ClaimBlock(t.Context(), name, pfx(block)))
	return n
}

func ipipNodeResource(name, address, tunnel string) string {
	return testcluster.Resource("Node", name, fmt.Sprintf(
		"bgp: {ipv4Address: %s, ipv4IPIPTunnelAddr: %s}", address, tunnel))
}

// seen returns what came since it was last asked.
func (n *ipipNode) seen() [][]byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.outer
	n.outer = nil
	return out
}

// TestIPIPOnVPP sends packets between a workload behind VPP and others behind two nodes, a
// neighbour and one behind a router, as the mode of the pool changes. The far ends are Linux with
// an IPIP device in user space, whose framing netlab tests.
func TestIPIPOnVPP(t *testing.T) {
	t.Parallel()
	vpp := needVPP(t)
	l := newLab(t, "ipipvpp")
	mode := func(mode string) {
		t.Helper()
		l.apply(t, testcluster.Resource("IPPool", "four", "cidr: 10.1.0.0/16, blockSize: 26, "+
			"ipipMode: "+mode+", vxlanMode: Never"))
	}
	const ours = "10.0.0.102" // VPP's own: it takes what comes for it
	us := l.host(t, "us", "10.0.0.2/24").agent()
	l.apply(t, ipipNodeResource("us", ours+"/24", "10.1.0.1"))
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	v := us.startVPP(t, vpp)
	us.agent.Dataplane = []string{"--dataplane", "vpp", "--vpp-socket", v.APISocket(),
		"--vpp-stats-socket", v.StatsSocket()}
	us.agent.Flags = []string{"--learn", "ipam"}
	pod := l.podBehindVPP(t, us, v, "10.1.0.7")

	near := l.ipipNode(t, "near", "10.0.0.9/24", "10.1.2.0/26", ours)
	router := l.gateway(t, "router", "10.0.0.254/24")
	check(t, router.NS.AddAddress("eth0", pfx("10.8.0.254/24")))
	far := l.ipipNode(t, "far", "10.8.0.8/24", "10.1.8.0/26", ours)
	check(t, far.NS.AddRoute(pfx("10.0.0.0/24"), addr("10.8.0.254"), "eth0"))
	check(t, v.Configure(t.Context(), "ip route add 0.0.0.0/0 via 10.0.0.254 host-uplink",
		"set interface mtu packet 1500 host-uplink"))

	leaves := func(what string, encapsulated ...*ipipNode) {
		t.Helper()
		for _, to := range []struct {
			*ipipNode
			pod string
		}{{near, "10.1.2.1"}, {far, "10.1.8.1"}} {
			tunnelled := false
			for _, n := range encapsulated {
				tunnelled = tunnelled || n == to.ipipNode
			}
			await(t, fmt.Sprintf("%s: %s, tunnelled %t", what, to.name, tunnelled),
				func(ctx context.Context) error {
					to.seen()
					limited, cancel := context.WithTimeout(ctx, 2*time.Second)
					defer cancel()
					if _, err := pod.Ping(limited, addr(to.pod)); err != nil {
						return err
					}
					if n := len(to.seen()); (n > 0) != tunnelled {
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
	crossIPIP(t, pod, near, ours)

	// Packets of who is no Node are dropped and counted, those of Nodes go on.
	l.strangerIsIgnored(t, v, ours)
	leaves("beside a stranger", near, far)

	// The agent restarts; a Node goes.
	check(t, us.agent.Kill())
	leaves("without the agent", near, far)
	us.start(t)
	leaves("with the next agent", near, far)
	us.awaitReady(t)
	_, err := l.Data.ReleaseBlock(t.Context(), pfx("10.1.8.0/26"))
	check(t, errors.Join(err, l.Data.Delete(t.Context(), "Node", "far")))
	await(t, "its tunnel goes", func(ctx context.Context) error {
		out, err := v.Command(ctx, "show teib")
		if err == nil && (strings.Contains(out, "10.8.0.8") || !strings.Contains(out, "10.0.0.9")) {
			err = errors.New(out)
		}
		return err
	})
	var all []agent.TunnelStatus
	check(t, us.agent.Get(t.Context(), "/v1/tunnels", &all))
	if len(all) != 1 || all[0].Node != "near" || all[0].State != "programmed" {
		t.Fatalf("tunnels %+v", all)
	}
	// What comes in is counted for all nodes together.
	if n := all[0]; n.PacketsIn != nil || n.PacketsOut == nil || *n.PacketsOut == 0 ||
		n.NotCounted == "" {
		t.Errorf("packets in %v, out %v, %s", n.PacketsIn, n.PacketsOut, n.NotCounted)
	}
}

// podBehindVPP makes a workload whose interface is VPP's.
func (l *lab) podBehindVPP(t *testing.T, us *agentNode, v *netlab.VPP,
	address string) *netlab.Namespace {
	t.Helper()
	pod, err := l.Namespace("pod")
	check(t, err)
	check(t, l.Veth(netlab.End{Namespace: us.NS, Device: "pod0"},
		netlab.End{Namespace: pod, Device: "eth0", Addresses: prefixes(address + "/32")}))
	check(t, pod.FillChecksums("eth0"))
	check(t, v.CreateHost(t.Context(), "pod0", []byte{2, 0xfe, 0, 0, 0, 7}))
	mac, err := pod.MAC("eth0")
	check(t, err)
	check(t, v.Configure(t.Context(), "set interface state host-pod0 up",
		"set interface unnumbered host-pod0 use host-uplink",
		fmt.Sprintf("set ip neighbor host-pod0 %s %s static", address, mac),
		fmt.Sprintf("ip route add %s/32 via %s host-pod0", address, address)))
	check(t, pod.AddNeighbour("eth0", addr("169.254.1.1"), []byte{2, 0xfe, 0, 0, 0, 7}))
	check(t, pod.AddRoute(pfx("0.0.0.0/0"), addr("169.254.1.1"), "eth0"))
	return pod
}

// datagram sends a small one by UDP from a namespace.
func datagram(from *netlab.Namespace, to string, tos, discover int) error {
	return datagramOf(5, from, to, tos, discover)
}

// datagramOf sends one with so many bytes. What discover says is the same in both families.
func datagramOf(size int, from *netlab.Namespace, to string, tos, discover int) error {
	family, level, tosName, discoverName := unix.AF_INET, unix.IPPROTO_IP, unix.IP_TOS,
		unix.IP_MTU_DISCOVER
	var dest unix.Sockaddr
	if a := addr(to); a.Is6() {
		family, level, tosName, discoverName = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_TCLASS,
			unix.IPV6_MTU_DISCOVER
		dest = &unix.SockaddrInet6{Port: 9, Addr: a.As16()}
	} else {
		dest = &unix.SockaddrInet4{Port: 9, Addr: a.As4()}
	}
	return from.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return errors.Join(unix.SetsockoptInt(fd, level, tosName, tos),
			unix.SetsockoptInt(fd, level, discoverName, discover),
			unix.Sendto(fd, make([]byte, size), 0, dest))
	})
}

// crossIPIP compares packets with what Linux' tunl0 would send. TTL differs: VPP decrements it once
// more (docs/decisions/0023-teib.md).
func crossIPIP(t *testing.T, pod *netlab.Namespace, near *ipipNode, ours string) {
	t.Helper()
	t.Attr("part", ipipPart)
	setMTU(t, near.NS, "tunl0", 1480)
	podSide, wire := newSight(t, pod, "eth0", false), newSight(t, near.NS, "eth0", false)
	farSide := newSight(t, near.NS, "tunl0", true)
	podBlock, farBlock := pfx("10.1.0.0/26"), pfx("10.1.2.0/26")
	cross(t, pod, near.NS, "10.1.0.7", "10.1.2.1",
		&crossing{name: "from VPP", before: podSide, wire: wire, after: farSide, from: podBlock,
			to: farBlock, routedIn: true, mtu: 1480,
			outer: outerHeaders{kind: route.IPIP, from: addr(ours), to: near.Address}},
		&crossing{name: "to VPP", before: farSide, wire: wire, after: podSide, from: farBlock,
			to: podBlock, routedOut: true,
			outer: outerHeaders{kind: route.IPIP, from: near.Address, to: addr(ours), linux: true}})
}

// ipipPart says that the tests do not use the kernel's own tunl0, which many have not.
const ipipPart = "IPIP of Linux in user space"

func setMTU(t *testing.T, n *netlab.Namespace, device string, mtu int) {
	t.Helper()
	out, err := n.Run(t.Context(), "ip", "link", "set", device, "mtu", fmt.Sprint(mtu))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// strangerIsIgnored has a machine that is no Node send tunnelled packets.
func (l *lab) strangerIsIgnored(t *testing.T, v *netlab.VPP, ours string) {
	t.Helper()
	ns := l.host(t, "stranger", "10.0.0.77/24").NS
	x, err := ns.IPIP("tunl0", addr("10.0.0.77"))
	check(t, err)
	t.Cleanup(func() { check(t, x.Close()) })
	x.Route(pfx("10.1.0.0/26"), addr(ours))
	check(t, ns.AddRoute(pfx("10.1.0.0/26"), netip.Addr{}, "tunl0"))
	errorsOf := func(ctx context.Context) (refused, taken int) {
		out, err := v.Command(ctx, "show errors")
		check(t, err)
		for line := range strings.Lines(out) {
			switch words := strings.Fields(line); {
			case len(words) < 4 || words[1] != "ipip4-input":
			case words[2] == "no":
				_, err = fmt.Sscan(words[0], &refused)
			default:
				_, err = fmt.Sscan(words[0], &taken)
			}
			check(t, err)
		}
		return refused, taken - refused // VPP counts those of no tunnel as decapsulated, too
	}
	refused, taken := errorsOf(t.Context())
	await(t, "packets of a stranger are counted", func(ctx context.Context) error {
		if err := datagram(ns, "10.1.0.7", 0, unix.IP_PMTUDISC_DO); err != nil {
			return err
		}
		if now, _ := errorsOf(ctx); now < refused+3 {
			return fmt.Errorf("%d, then %d", refused, now)
		}
		return nil
	})
	if _, now := errorsOf(t.Context()); now != taken {
		t.Errorf("%d packets of a stranger were taken", now-taken)
	}
}
