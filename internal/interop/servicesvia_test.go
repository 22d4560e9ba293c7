package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var findNftables = sync.OnceValues(func() (netlab.Package, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return netlab.Unpack(ctx, packages, "nftables", "")
})

// TestServicesViaOnVPP has a client behind a ToR open a connection to a service's address: by VPP
// it goes to a machine with the rules that kube-proxy would write, and from there to a pod behind
// VPP. Without --services-via it loops, and status says so.
func TestServicesViaOnVPP(t *testing.T) {
	t.Parallel()
	vpp := needVPP(t)
	l := newLab(t, "viavpp")
	us := l.host(t, "us", "10.0.0.2/24").agent()
	const ours = "10.0.0.102" // VPP's own: packets come to it
	l.apply(t, testcluster.Resource("Node", "us", "bgp: {ipv4Address: 10.0.0.2/24}"))
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	l.apply(t, testcluster.Resource("BGPConfiguration", "default",
		"serviceClusterIPs: [{cidr: 10.96.0.0/12}]"))
	v := us.startVPP(t, vpp)
	us.agent.Dataplane = []string{"--dataplane", "vpp", "--vpp-socket", v.APISocket()}
	us.agent.Flags = []string{"--next-hop", ours}

	tor := l.frrRouter(t, "tor", torAS, "10.0.0.1/24", frrPeer("10.0.0.2", asNumber)...)
	l.apply(t, testcluster.Peer("tor", "10.0.0.1", torAS, ""))
	client := l.behind(t, tor.host, "client", "10.5.0.1/24", "10.5.0.2/24")
	check(t, v.Configure(t.Context(), "ip route add 0.0.0.0/0 via 10.0.0.1 host-uplink"))

	pod := l.podBehindVPP(t, us, v, "10.1.0.7")
	serve(t, pod, "10.1.0.7:8080")
	l.kubeProxy(t, us, v)

	us.start(t)
	us.awaitPeers(t, "10.0.0.1")
	loops := func(ctx context.Context) (bool, error) {
		s, err := us.agent.Status(ctx)
		for _, p := range s.Problems {
			if strings.Contains(p.Error, "VPP has no route for 10.96.0.1 but the one back") {
				return true, nil
			}
		}
		return false, err
	}
	await(t, "the problem", func(ctx context.Context) error {
		there, err := loops(ctx)
		if err == nil && !there {
			err = errors.New("it is not named")
		}
		return err
	})
	if who, err := open(client, "10.96.0.10:80"); err == nil {
		t.Errorf("a connection without --services-via, to %s", who)
	}

	check(t, us.agent.Kill())
	us.agent.Flags = append(us.agent.Flags, "--services-via", "host-kube0,10.77.0.2")
	us.start(t)
	await(t, "a connection to the service", func(context.Context) error {
		who, err := open(client, "10.96.0.10:80")
		if err == nil && who != "10.1.0.7:8080" {
			err = fmt.Errorf("by %s", who)
		}
		return err
	})
	us.awaitReady(t)
	if there, err := loops(t.Context()); there || err != nil {
		t.Errorf("the problem is named still: %t, %v", there, err)
	}
}

// behind makes a machine behind a router.
func (l *lab) behind(t *testing.T, r *host, name, gateway, address string) *netlab.Namespace {
	t.Helper()
	n, err := l.Namespace(name)
	check(t, err)
	check(t, l.Veth(
		netlab.End{Namespace: r.NS, Device: name + "0", Addresses: prefixes(gateway)},
		netlab.End{Namespace: n, Device: "eth0", Addresses: prefixes(address)}))
	check(t, n.FillChecksums("eth0"))
	check(t, n.AddRoute(pfx("0.0.0.0/0"), pfx(gateway).Addr(), "eth0"))
	return n
}

// kubeProxy makes a machine behind VPP's interface host-kube0, with kube-proxy's rules for a
// service: the packets' destination becomes the pod, and their source this machine, so that the
// answers come back by it.
func (l *lab) kubeProxy(t *testing.T, us *agentNode, v *netlab.VPP) {
	t.Helper()
	pkg, err := findNftables()
	check(t, err)
	nft, err := pkg.Program(t.Context(), "nft")
	check(t, err)
	kube, err := l.Namespace("kube")
	check(t, err)
	check(t, l.Veth(netlab.End{Namespace: us.NS, Device: "kube0"},
		netlab.End{Namespace: kube, Device: "eth0", Addresses: prefixes("10.77.0.2/24")}))
	check(t, kube.FillChecksums("eth0"))
	check(t, kube.Forward())
	_, err = v.Host(t.Context(), "kube0", pfx("10.77.0.1/24"))
	check(t, err)
	check(t, kube.AddRoute(pfx("0.0.0.0/0"), addr("10.77.0.1"), "eth0"))
	args := append(append([]string{}, pkg.Env()...), nft, `table ip kube {
	chain before { type nat hook prerouting priority dstnat;
		ip daddr 10.96.0.10 tcp dport 80 dnat to 10.1.0.7:8080; }
	chain after { type nat hook postrouting priority srcnat;
		ip daddr 10.1.0.7 masquerade; }
}`)
	_, err = kube.Run(t.Context(), "env", args...)
	check(t, err)
}

// serve tells whoever connects what it connected to.
func serve(t *testing.T, n *netlab.Namespace, address string) {
	t.Helper()
	var l net.Listener
	check(t, n.Do(func() (err error) {
		l, err = net.Listen("tcp4", address)
		return err
	}))
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, c.LocalAddr())
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
}

// open connects, and returns what the other end says.
func open(n *netlab.Namespace, address string) (said string, err error) {
	err = n.Do(func() error {
		c, err := net.DialTimeout("tcp4", netip.MustParseAddrPort(address).String(), 2*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		buffer := make([]byte, 100)
		c.SetDeadline(time.Now().Add(2 * time.Second))
		k, err := c.Read(buffer)
		said = string(buffer[:k])
		return err
	})
	return said, err
}
