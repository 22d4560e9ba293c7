package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// birdNode is a node whose speaker is BIRD, for one family.
type birdNode struct {
	*host
	*netlab.Bird
	config netlab.BirdConfig
}

// birdNode makes a Calico node with stock BIRD and registers it in Calico's data. BIRD is not
// started.
func (l *lab) birdNode(t *testing.T, name, address string, peers ...string) *birdNode {
	t.Helper()
	b := l.birdRouter(t, name, address)
	check(t, l.Data.AddNode(t.Context(), name, pfx(address)))
	for _, p := range peers {
		b.config.Peers = append(b.config.Peers,
			netlab.MeshPeer(b.config.Address, addr(p), asNumber))
	}
	return b
}

// birdRouter makes a machine with BIRD that Calico does not know.
func (l *lab) birdRouter(t *testing.T, name, address string) *birdNode {
	t.Helper()
	return &birdNode{
		host: l.host(t, name, address), config: testcluster.BirdConfig(pfx(address).Addr()),
	}
}

func (b *birdNode) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	name := b.name + "-bird"
	if b.config.Address.Is6() {
		name += "6"
	}
	var err error
	b.Bird, err = b.lab.StartBird(ctx, programs.Bird, b.NS, name, b.config)
	check(t, err)
}

// reconfigure does what confd does after the configuration was changed.
func (b *birdNode) reconfigure(t *testing.T) {
	t.Helper()
	check(t, b.Reconfigure(t.Context(), b.config))
}

// setBlocks gives BIRD the node's blocks, in Calico's data and in its configuration.
func (b *birdNode) setBlocks(t *testing.T, blocks ...string) {
	t.Helper()
	for _, block := range blocks {
		check(t, b.lab.Data.ClaimBlock(t.Context(), b.name, pfx(block)))
	}
	b.config.Blocks = prefixes(blocks...)
}

func (b *birdNode) awaitEstablished(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	check(t, b.AwaitEstablished(ctx))
}

// since is when the session with a protocol's name came up.
func (b *birdNode) since(ctx context.Context, protocol string) (string, error) {
	all, err := b.Protocols(ctx)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(p netlab.BirdProtocol) bool {
		return p.Name == protocol && p.Info == "Established"
	})
	if i < 0 {
		return "", fmt.Errorf("%s: %s is not established", b.name, protocol)
	}
	return all[i].Since, nil
}

// awaitRestarted waits until BIRD holds no stale route of a peer that restarted: our End-of-RIB has
// come. A peer that is lost again before loses all its routes (RFC 4724 §4.2).
func (b *birdNode) awaitRestarted(t *testing.T, protocol string) {
	t.Helper()
	await(t, b.name+" sees the end of the restart", func(ctx context.Context) error {
		shown, err := b.Command(ctx, "show protocols all "+protocol)
		text := strings.Join(shown, "\n")
		if err == nil &&
			(!strings.Contains(text, "Established") ||
				strings.Contains(text, "graceful restart active")) {
			err = errors.New(text)
		}
		return err
	})
}

// mesh is the name of the protocol that confd makes for a mesh peer.
func mesh(peer string) string { return netlab.MeshPeer(netip.Addr{}, addr(peer), 0).Name }

// awaitRIB waits until BIRD has by a protocol exactly these routes, as BirdRoute prints them.
func (b *birdNode) awaitRIB(t *testing.T, protocol string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	await(t, fmt.Sprintf("%s has exactly %d routes by %s", b.name, len(want), protocol),
		func(ctx context.Context) error {
			routes, err := b.Routes(ctx, "protocol "+protocol)
			if err != nil {
				return err
			}
			var got []string
			for _, r := range routes {
				got = append(got, r.String())
			}
			slices.Sort(got)
			return same("RIB of "+b.name, got, want)
		})
}

// awaitKernel waits until BIRD's routes in the kernel are exactly these.
func (b *birdNode) awaitKernel(t *testing.T, family string, want ...kernelRoute) {
	t.Helper()
	await(t, fmt.Sprintf("%s has %d routes in its kernel", b.name, len(want)),
		func(ctx context.Context) error {
			got, err := b.kernel(ctx, family, "bird")
			if err != nil {
				return err
			}
			return same("kernel of "+b.name, got, want)
		})
}

// iBGP is how a node's announcement looks at an iBGP peer: Calico's normal LOCAL_PREF, ORIGIN IGP,
// an empty AS_PATH.
func iBGP(prefix, nextHop string) string { return prefix + " via " + nextHop + " 2147482623 IGP" }
