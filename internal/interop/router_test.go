package interop

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// Routers outside the cluster run FRR or BIRD 2. Their packages are unpacked by the first test that
// wants them.
var (
	findFRR   = sync.OnceValues(func() (netlab.FRRPrograms, error) { return find(netlab.FindFRR) })
	findBird2 = sync.OnceValues(func() (netlab.BirdPrograms, error) {
		return find(netlab.FindBird2)
	})
)

func find[P any](in func(context.Context, string) (P, error)) (P, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return in(ctx, packages)
}

// frrRouter is a router with FRR.
type frrRouter struct {
	*host
	*netlab.FRR
	as uint32
}

// frrRouter makes a machine with FRR that Calico does not know, and starts it. Lines are put behind
// "router bgp".
func (l *lab) frrRouter(
	t *testing.T, name string, as uint32, address string, lines ...string,
) *frrRouter {
	t.Helper()
	programs, err := findFRR()
	if err != nil {
		t.Skip(err)
	}
	t.Attr("part", "FRR "+programs.Version)
	r := &frrRouter{host: l.host(t, name, address), as: as}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r.FRR, err = l.StartFRR(ctx, programs, r.NS, name, netlab.FRRConfig{BGP: fmt.Sprintf(`
router bgp %d
 bgp router-id %s
 no bgp ebgp-requires-policy
 no bgp network import-check
 timers bgp 3 9
`, as, testcluster.RouterID(pfx(address).Addr())) + " " + strings.Join(lines, "\n ") + "\n"})
	check(t, err)
	return r
}

// frrPeer are the lines for a session with peer.
func frrPeer(peer string, as uint32, options ...string) []string {
	lines := []string{
		fmt.Sprintf("neighbor %s remote-as %d", peer, as),
		fmt.Sprintf("neighbor %s timers connect 1", peer),
	}
	for _, o := range options {
		lines = append(lines, fmt.Sprintf("neighbor %s %s", peer, o))
	}
	return lines
}

// awaitRIB waits until the router has from a peer exactly these routes: "10.1.0.0/26 via 10.0.0.2
// 64512".
func (r *frrRouter) awaitRIB(t *testing.T, family, peer string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	await(t, fmt.Sprintf("%s has exactly %d routes of %s", r.name, len(want), peer),
		func(ctx context.Context) error {
			got, err := r.learned(ctx, family, peer)
			if err != nil {
				return err
			}
			return same("RIB of "+r.name, got, want)
		})
}

func (r *frrRouter) learned(ctx context.Context, family, peer string) (got []string, err error) {
	paths, err := r.Paths(ctx, family)
	for _, p := range paths {
		if p.Peer == peer {
			got = append(got, p.String())
		}
	}
	slices.Sort(got)
	return got, err
}

// bird2Router makes a machine with BIRD 2 that Calico does not know, and starts it with a
// configuration in its own language.
func (l *lab) bird2Router(t *testing.T, name, address, text string) *birdNode {
	t.Helper()
	programs, err := findBird2()
	if err != nil {
		t.Skip(err)
	}
	t.Attr("part", "BIRD "+programs.Version)
	b := &birdNode{host: l.host(t, name, address)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b.Bird, err = l.StartBirdText(ctx, programs, b.NS, name+"-bird2",
		bird2Text(pfx(address).Addr(), text))
	check(t, err)
	return b
}

// bird2Text is a configuration with what every router has.
func bird2Text(address netip.Addr, text string) string {
	return fmt.Sprintf("log stderr all;\nrouter id %s;\nprotocol device { scan time 2; }\n",
		testcluster.RouterID(address)) + text
}

// sameSessions fails when one of the sessions is not the one that it was when since was made by
// sessionsOf.
func (n *agentNode) sameSessions(t *testing.T, since map[string]time.Time) {
	t.Helper()
	for peer, before := range since {
		s, err := n.session(t.Context(), addr(peer))
		check(t, err)
		if !s.Since.Equal(before) {
			t.Errorf("the session of %s with %s was reset", n.name, peer)
		}
	}
}

func (n *agentNode) sessionsOf(t *testing.T, peers ...string) map[string]time.Time {
	t.Helper()
	since := map[string]time.Time{}
	for _, p := range peers {
		s, err := n.session(t.Context(), addr(p))
		check(t, err)
		since[p] = *s.Since
	}
	return since
}
