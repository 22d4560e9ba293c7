package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// TestPasswords has TCP MD5 with BIRD in the mesh, one end dialling and the other, and with FRR
// outside. The passwords are files.
func TestPasswords(t *testing.T) {
	t.Parallel()
	l := newLab(t, "md5")
	l.apply(t, testcluster.Resource("BGPConfiguration", "default",
		"nodeMeshPassword: {secretKeyRef: {name: bgp, key: mesh}}")+
		testcluster.Peer("tor", "10.0.0.1", torAS,
			"password: {secretKeyRef: {name: bgp, key: tor}}"))
	us := l.agentNode(t, "us", "10.0.0.2/24")
	secrets := filepath.Join(l.Dir(), "secrets")
	us.agent.Flags = []string{"--password-dir", secrets}
	secret := func(key, text string) {
		check(t, os.MkdirAll(filepath.Join(secrets, "bgp"), 0o700))
		check(t, os.WriteFile(filepath.Join(secrets, "bgp", key), []byte(text), 0o600))
	}
	secret("mesh", "of the mesh")
	nine, ten := l.birdNode(t, "nine", "10.0.0.9/24"), l.birdNode(t, "ten", "10.0.0.10/24")
	for _, b := range []*birdNode{nine, ten} { // nine dials us, we dial ten
		p := netlab.MeshPeer(b.config.Address, addr("10.0.0.2"), asNumber)
		p.Password = "of the mesh"
		b.config.Peers = []netlab.BirdPeer{p}
	}
	tor := l.frrRouter(t, "tor", torAS, "10.0.0.1/24",
		append(frrPeer("10.0.0.2", asNumber, "password of-the-tor"),
			"address-family ipv4 unicast", "network 10.99.0.0/24")...)
	check(t, l.Data.ClaimBlock(t.Context(), "us", pfx("10.1.0.0/26")))
	nine.setBlocks(t, "10.1.0.64/26")
	ten.setBlocks(t, "10.1.0.128/26")
	check(t, tor.NS.AddAddress("lo", pfx("10.99.0.7/32")))
	pod := us.pod(t, "pod", "10.1.0.1")
	ninePod, tenPod := nine.workload(t, "pod9", "10.1.0.65"), ten.workload(t, "pod10", "10.1.0.129")
	nine.start(t)
	ten.start(t)
	us.start(t)

	fib := []string{
		"10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.9", "10.1.0.128/26 via 10.0.0.10",
	}
	us.awaitUp(t, "10.0.0.9", "10.0.0.10")
	us.awaitFIB(t, "-4", fib...)
	for _, b := range []*birdNode{nine, ten} {
		b.awaitRIB(t, mesh("10.0.0.2"), iBGP("10.1.0.0/26", "10.0.0.2"))
	}
	for _, from := range []*netlab.Namespace{ninePod, tenPod} {
		ping(t, from, "10.1.0.1")
	}
	if s, err := us.session(t.Context(), addr("10.0.0.1")); err == nil ||
		!strings.Contains(s.LastError, "bgp/tor is not known") {
		t.Errorf("the router, whose password is missing: %+v", s)
	}
	since := us.sessionsOf(t, "10.0.0.9", "10.0.0.10")
	secret("tor", "of-the-tor")
	us.awaitUp(t, "10.0.0.1")
	us.awaitFIB(t, "-4", append(fib, "10.99.0.0/24 via 10.0.0.1")...)
	tor.awaitRIB(t, "ipv4", "10.0.0.2", "10.1.0.0/26 via 10.0.0.2 64512",
		"10.1.0.64/26 via 10.0.0.2 64512", "10.1.0.128/26 via 10.0.0.2 64512")
	ping(t, pod, "10.99.0.7")
	ping(t, tor.NS, "10.1.0.65")
	us.sameSessions(t, since)

	secret("tor", "another") // the peer does not follow
	await(t, "the session with the router ends", func(ctx context.Context) error {
		if s, err := us.session(ctx, addr("10.0.0.1")); err == nil {
			return fmt.Errorf("it is %s since %s", s.State, s.Since)
		}
		return nil
	})
	us.sameSessions(t, since)
	check(t, tor.Configure(t.Context(), "router bgp 65001", "neighbor 10.0.0.2 password another"))
	us.awaitUp(t, "10.0.0.1")
	us.awaitFIB(t, "-4", append(fib, "10.99.0.0/24 via 10.0.0.1")...)
	ping(t, pod, "10.99.0.7")
	us.sameSessions(t, since)
}

// TestNoRoomForPasswords has a kernel that takes fewer keys than there are peers.
func TestNoRoomForPasswords(t *testing.T) {
	t.Parallel()
	l := newLab(t, "optmem")
	l.apply(t, testcluster.Resource("BGPConfiguration", "default",
		"nodeMeshPassword: {secretKeyRef: {name: bgp, key: mesh}}"))
	us := l.agentNode(t, "us", "10.0.0.2/24")
	secrets := filepath.Join(l.Dir(), "secrets")
	us.agent.Flags = []string{"--password-dir", secrets}
	check(t, os.MkdirAll(filepath.Join(secrets, "bgp"), 0o700))
	check(t, os.WriteFile(filepath.Join(secrets, "bgp", "mesh"), []byte("s3cret"), 0o600))
	if err := us.NS.Sysctl("net.core.optmem_max", "1000"); err != nil {
		t.Skipf("this kernel has one net.core.optmem_max for all namespaces: %v", err)
	}
	const peers = 12
	for i := range peers {
		check(t, l.Data.AddNode(t.Context(), fmt.Sprintf("n%d", i),
			pfx(fmt.Sprintf("10.0.0.%d/24", 100+i))))
	}
	us.start(t)
	refused := func(ctx context.Context) (n int, err error) {
		s, err := us.agent.Status(ctx)
		for _, p := range s.BGP.Peers {
			if strings.Contains(p.LastError, "cannot allocate memory: net.core.optmem_max limits") {
				n++
			}
		}
		if len(s.BGP.Peers) != peers {
			return 0, fmt.Errorf("%d peers", len(s.BGP.Peers))
		}
		return n, err
	}
	await(t, "some peers have no key, and say so", func(ctx context.Context) error {
		n, err := refused(ctx)
		if err == nil && (n == 0 || n == peers) {
			err = fmt.Errorf("%d of %d", n, peers)
		}
		return err
	})
	check(t, us.NS.Sysctl("net.core.optmem_max", "131072"))
	await(t, "there is room for all", func(ctx context.Context) error {
		n, err := refused(ctx)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d of %d are refused", n, peers)
		}
		return err
	})
}
