package interop

import (
	"net/netip"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// TestDualStack has a node with both families, which is two sessions, and a node with IPv6 only.
// "fd00::10" < "fd00::2" < "fd00::9".
func TestDualStack(t *testing.T) {
	t.Parallel()
	l := newLab(t, "dualstack")
	us := l.agentNode(t, "us", "10.0.0.2/24", "fd00::2/64")
	both4 := l.birdNode(t, "both", "10.0.0.6/24", "10.0.0.2")
	check(t, both4.NS.AddAddress("eth0", pfx("fd00::10/64")))
	check(t, l.Data.AddNode(t.Context(), "both", pfx("10.0.0.6/24"), pfx("fd00::10/64")))
	both6 := &birdNode{host: both4.host, config: testcluster.BirdConfig(addr("fd00::10"))}
	both6.config.RouterID = addr("10.0.0.6")
	only6 := l.birdNode(t, "only6", "fd00::9/64", "fd00::2", "fd00::10")
	both6.config.Peers = []netlab.BirdPeer{
		netlab.MeshPeer(addr("fd00::10"), addr("fd00::2"), asNumber),
		netlab.MeshPeer(addr("fd00::10"), addr("fd00::9"), asNumber),
	}
	for _, block := range []string{"10.1.0.0/26", "fd01::/122"} {
		check(t, l.Data.ClaimBlock(t.Context(), "us", pfx(block)))
	}
	both4.setBlocks(t, "10.1.0.64/26")
	both6.setBlocks(t, "fd01::40/122")
	only6.setBlocks(t, "fd01::80/122")

	pod4 := us.workload(t, "pod4", "10.1.0.1")
	pod6 := us.workload(t, "pod6", "fd01::1")
	borrower := us.workload(t, "borrower", "fd01::42")
	both4.workload(t, "bothpod4", "10.1.0.65")
	bothPod6 := both6.workload(t, "bothpod6", "fd01::41")
	onlyPod6 := only6.workload(t, "onlypod6", "fd01::81")
	l.attach(t, "us", "pod4", "10.1.0.1")
	l.attach(t, "us", "pod6", "fd01::1")
	l.attach(t, "us", "borrower", "fd01::42") // from a block of both
	for _, b := range []*birdNode{both4, both6, only6} {
		b.start(t)
	}
	us.start(t)

	t.Run("sessions come up", func(t *testing.T) {
		us.awaitPeers(t, "10.0.0.6", "fd00::9", "fd00::10")
		for _, b := range []*birdNode{both4, both6, only6} {
			b.awaitEstablished(t)
		}
	})
	if t.Failed() {
		return
	}
	t.Run("exactly one end dials", func(t *testing.T) {
		for peer, want := range map[string]string{
			"10.0.0.6": "accepted", "fd00::9": "accepted", "fd00::10": "dialled",
		} {
			got, err := us.connections(t.Context(), addr(peer), "179")
			check(t, err)
			if len(got) != 1 || got[0] != want {
				t.Errorf("connections with %s: %v, want one, %s", peer, got, want)
			}
		}
	})
	t.Run("BIRD's blocks arrive in the kernel", func(t *testing.T) {
		us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.6")
		us.awaitFIB(t, "-6", "fd01::/122 blackhole", "fd01::40/122 via fd00::10",
			"fd01::80/122 via fd00::9")
	})
	t.Run("ours arrive in BIRD", func(t *testing.T) {
		both4.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
		for _, b := range []*birdNode{both6, only6} {
			b.awaitRIB(t, mesh("fd00::2"), iBGP("fd01::/122", "fd00::2"),
				iBGP("fd01::42/128", "fd00::2"))
		}
		only6.awaitKernel(t, "-6",
			kernelRoute{"fd01::/122 via fd00::2", 1024},
			kernelRoute{"fd01::40/122 via fd00::10", 1024},
			kernelRoute{"fd01::42/128 via fd00::2", 1024},
			kernelRoute{"fd01::80/122 blackhole", 1024})
	})
	t.Run("packets arrive", func(t *testing.T) {
		ping(t, pod4, "10.1.0.65")
		for _, from := range []*netlab.Namespace{pod6, borrower} {
			ping(t, from, "fd01::41")
			ping(t, from, "fd01::81")
		}
		for _, from := range []*netlab.Namespace{bothPod6, onlyPod6} {
			ping(t, from, "fd01::1")
			ping(t, from, "fd01::42")
		}
	})
	t.Run("one family ends, the other stays", func(t *testing.T) {
		before, err := us.session(t.Context(), addr("10.0.0.6"))
		check(t, err)
		check(t, l.Data.AddNode(t.Context(), "both", pfx("10.0.0.6/24")))
		us.awaitPeers(t, "10.0.0.6", "fd00::9")
		us.awaitFIB(t, "-6", "fd01::/122 blackhole", "fd01::80/122 via fd00::9")
		us.awaitFIB(t, "-4", "10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.6")
		after, err := us.session(t.Context(), addr("10.0.0.6"))
		check(t, err)
		if !after.Since.Equal(*before.Since) {
			t.Error("the IPv4 session was reset")
		}
		check(t, l.Data.AddNode(t.Context(), "both", []netip.Prefix{
			pfx("10.0.0.6/24"), pfx("fd00::10/64"),
		}...))
		us.awaitPeers(t, "10.0.0.6", "fd00::9", "fd00::10")
		us.awaitFIB(t, "-6", "fd01::/122 blackhole", "fd01::40/122 via fd00::10",
			"fd01::80/122 via fd00::9")
	})
}
