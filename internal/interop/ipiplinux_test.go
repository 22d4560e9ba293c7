package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testcluster"
)

// TestIPIPOnLinux sends packets as the mode of the pool changes, and leaves to Felix what is
// Felix'. All IPIP devices are in user space; ours goes by destination instead of by gateway.
func TestIPIPOnLinux(t *testing.T) {
	t.Parallel()
	l := newLab(t, "ipiplinux")
	const ours = "10.0.0.2"
	us := l.host(t, "us", ours+"/24").agent()
	tunnel, err := us.NS.IPIP("tunl0", addr(ours))
	check(t, err)
	t.Cleanup(func() { check(t, tunnel.Close()) })
	check(t, us.NS.AddAddress("tunl0", pfx("10.1.0.1/32")))
	l.apply(t, ipipNodeResource("us", ours+"/24", "10.1.0.1"))
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	us.agent.Flags = []string{"--learn", "ipam"}

	near := l.ipipNode(t, "near", "10.0.0.9/24", "10.1.2.0/26", ours)
	router := l.gateway(t, "router", "10.0.0.254/24")
	check(t, router.NS.AddAddress("eth0", pfx("10.8.0.254/24")))
	far := l.ipipNode(t, "far", "10.8.0.8/24", "10.1.8.0/26", ours)
	check(t, far.NS.AddRoute(pfx("10.0.0.0/24"), addr("10.8.0.254"), "eth0"))
	check(t, us.NS.AddRoute(pfx("0.0.0.0/0"), addr("10.0.0.254"), "eth0"))
	tunnel.Route(pfx("10.1.2.0/26"), near.Address)
	tunnel.Route(pfx("10.1.8.0/26"), far.Address)
	check(t, l.Data.ClaimBlock(t.Context(), "near", pfx("10.2.2.0/26")))
	l.apply(t, testcluster.Resource("IPPool", "felix",
		"cidr: 10.2.0.0/16, blockSize: 26, vxlanMode: Always"))

	const plain, blackhole = " [10.0.0.9] eth0", "10.1.0.0/26 [] blackhole"
	byTunnel := []string{"10.1.2.0/26 [10.0.0.9] tunl0", "10.1.8.0/26 [10.8.0.8] tunl0"}
	for i, tc := range []struct {
		what, mode, felix string
		routes            []string
		tunnelled         []*ipipNode
	}{
		{"Always", "Always", "", byTunnel, []*ipipNode{near, far}},
		{"CrossSubnet", "CrossSubnet", "Disabled",
			[]string{"10.1.2.0/26" + plain, byTunnel[1]}, []*ipipNode{far}},
		{"Felix has them", "Always", "EnabledIPIPOnly", nil, nil},
		{"they are ours again", "Always", "Disabled", byTunnel, []*ipipNode{near, far}},
		{"no mode", "Never", "Disabled",
			[]string{"10.1.2.0/26" + plain, "10.1.8.0/26 [10.0.0.254] eth0"}, nil},
	} {
		l.apply(t, testcluster.Resource("IPPool", "four", "cidr: 10.1.0.0/16, blockSize: 26, "+
			"vxlanMode: Never, ipipMode: "+tc.mode))
		if tc.felix != "" {
			l.apply(t, testcluster.Resource("FelixConfiguration", "default",
				"programClusterRoutes: "+tc.felix))
		}
		if i == 0 {
			us.start(t)
		}
		want := append([]string{blackhole}, tc.routes...)
		await(t, fmt.Sprintf("%s: routes %q", tc.what, want), func(ctx context.Context) error {
			all, err := testcluster.KernelRoutes(ctx, us.NS, "-4", "proto", "179")
			var got []string
			for _, r := range all {
				got = append(got, strings.TrimSpace(fmt.Sprint(r.Prefix, r.NextHops, " ", r.Kind,
					r.Device)))
			}
			if slices.Sort(got); err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("%q", got)
			}
			return err
		})
		for to, pod := range map[*ipipNode]string{near: "10.1.2.1", far: "10.1.8.1"} {
			if tc.tunnelled == nil {
				continue
			}
			await(t, tc.what+": "+to.name, func(ctx context.Context) error {
				to.seen()
				limited, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				_, err := us.NS.Ping(limited, addr(pod))
				if n := len(to.seen()); err == nil && (n > 0) != slices.Contains(tc.tunnelled, to) {
					err = fmt.Errorf("%d packets came tunnelled", n)
				}
				return err
			})
		}
		if i == 0 {
			crossIPIPOnLinux(t, us.NS, near, ours)
		}
	}
	s, err := us.agent.Status(t.Context())
	check(t, err)
	if !slices.ContainsFunc(s.Problems, func(p agent.ProblemStatus) bool {
		return p.Resource == "IPPool(felix)"
	}) {
		t.Errorf("status does not say what is left to Felix: %+v", s.Problems)
	}
}

func crossIPIPOnLinux(t *testing.T, us *netlab.Namespace, near *ipipNode, ours string) {
	t.Helper()
	t.Attr("part", ipipPart)
	setMTU(t, near.NS, "tunl0", 1480)
	setMTU(t, us, "tunl0", 1480)
	ourSide, wire := newSight(t, us, "tunl0", true), newSight(t, near.NS, "eth0", false)
	farSide := newSight(t, near.NS, "tunl0", true)
	ourBlock, farBlock := pfx("10.1.0.0/26"), pfx("10.1.2.0/26")
	cross(t, us, near.NS, "10.1.0.1", "10.1.2.1",
		&crossing{name: "from us", before: ourSide, wire: wire, after: farSide, from: ourBlock,
			to: farBlock, outer: outerHeaders{kind: route.IPIP, from: addr(ours), to: near.Address,
				linux: true}},
		&crossing{name: "to us", before: farSide, wire: wire, after: ourSide, from: farBlock,
			to: ourBlock, outer: outerHeaders{kind: route.IPIP, from: near.Address, to: addr(ours),
				linux: true}})
}
