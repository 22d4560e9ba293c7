package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// reflectorNode is a Node with a cluster ID and a label.
func reflectorNode(name, address string) string {
	return testcluster.ReflectorNode(name, "10.0.0.100", "ipv4Address: "+address)
}

// TestReflectors has a cluster with two reflectors, one of ours and one with BIRD, and clients of
// both kinds. First one reflector dies, then the other.
func TestReflectors(t *testing.T) {
	t.Parallel()
	l := newLab(t, "reflectors")
	rr1 := l.agentNode(t, "rr1", "10.0.0.2/24")
	rr2 := l.birdNode(t, "rr2", "10.0.0.9/24")
	a := l.agentNode(t, "a", "10.0.0.30/24")
	b := l.birdNode(t, "b", "10.0.0.4/24")
	l.apply(t, reflectorNode("rr1", "10.0.0.2/24")+reflectorNode("rr2", "10.0.0.9/24")+
		testcluster.NoMesh+testcluster.ToReflectors)
	peer := func(name, address string, client bool) netlab.BirdPeer {
		return netlab.BirdPeer{Name: name, Address: addr(address), AS: asNumber, Client: client}
	}
	rr2.config.Cluster = addr("10.0.0.100")
	rr2.config.Peers = []netlab.BirdPeer{
		peer("Rr1", "10.0.0.2", false), peer("A", "10.0.0.30", true), peer("B", "10.0.0.4", true),
	}
	b.config.Peers = []netlab.BirdPeer{
		peer("Rr1", "10.0.0.2", false), peer("Rr2", "10.0.0.9", false),
	}
	check(t, l.Data.ClaimBlock(t.Context(), "a", pfx("10.1.0.0/26")))
	b.setBlocks(t, "10.1.0.64/26")
	check(t, l.Data.ClaimBlock(t.Context(), "rr1", pfx("10.1.1.0/26")))
	rr2.setBlocks(t, "10.1.1.64/26")
	podA, podB := a.workload(t, "poda", "10.1.0.1"), b.workload(t, "podb", "10.1.0.65")
	l.attach(t, "a", "poda", "10.1.0.1")
	for _, n := range []*birdNode{rr2, b} {
		n.start(t)
	}
	for _, n := range []*agentNode{rr1, a} {
		n.start(t)
	}
	rr1.awaitPeers(t, "10.0.0.4", "10.0.0.9", "10.0.0.30")
	a.awaitPeers(t, "10.0.0.2", "10.0.0.9")
	rr2.awaitEstablished(t)
	b.awaitEstablished(t)

	fibOfA := []string{
		"10.1.0.0/26 blackhole", "10.1.0.64/26 via 10.0.0.4", "10.1.1.0/26 via 10.0.0.2",
		"10.1.1.64/26 via 10.0.0.9",
	}
	// By ADD-PATH BIRD's reflector also passes on what it has from the other one: the same once
	// more.
	hears := func(t *testing.T, from, block, origin string) {
		t.Helper()
		await(t, fmt.Sprintf("b has %s by %s", block, from), func(ctx context.Context) error {
			routes, err := b.Routes(ctx, "for "+block+" protocol "+from)
			for _, r := range routes {
				if r.String() != iBGP(block, origin) {
					return fmt.Errorf("%+v", routes)
				}
			}
			if err == nil && len(routes) == 0 {
				err = errors.New("it has none")
			}
			return err
		})
	}
	t.Run("everybody has everything", func(t *testing.T) {
		a.awaitFIB(t, "-4", fibOfA...)
		rr1.awaitFIB(t, "-4", "10.1.0.0/26 via 10.0.0.30", "10.1.0.64/26 via 10.0.0.4",
			"10.1.1.0/26 blackhole", "10.1.1.64/26 via 10.0.0.9")
		for _, from := range []string{"Rr1", "Rr2"} {
			hears(t, from, "10.1.0.0/26", "10.0.0.30")
		}
		hears(t, "Rr1", "10.1.1.0/26", "10.0.0.2")
		hears(t, "Rr2", "10.1.1.64/26", "10.0.0.9")
		rr2.awaitKernel(t, "-4", kernelRoute{"10.1.0.0/26 via 10.0.0.30", 1024},
			kernelRoute{"10.1.0.64/26 via 10.0.0.4", 1024},
			kernelRoute{"10.1.1.0/26 via 10.0.0.2", 1024}, kernelRoute{"10.1.1.64/26 blackhole", 0})
		ping(t, podA, "10.1.0.65")
		ping(t, podB, "10.1.0.1")
	})
	t.Run("what is reflected says where it comes from", func(t *testing.T) {
		shown, err := b.Command(t.Context(), "show route all for 10.1.0.0/26 protocol Rr1")
		check(t, err)
		text := strings.Join(shown, "\n")
		if !strings.Contains(text, "BGP.originator_id: 10.0.0.30") ||
			!strings.Contains(text, "BGP.cluster_list: ") || strings.Contains(text, "community") {
			t.Errorf("b has:\n%s", text)
		}
	})
	t.Run("it is quiet", func(t *testing.T) {
		// what one reflector passes on of the other's may still be under way
		await(t, "nothing happens", func(context.Context) error {
			before := updates(t, b)
			time.Sleep(3 * time.Second)
			if after := updates(t, b); after != before {
				return fmt.Errorf("b has heard %d updates, then %d", before, after)
			}
			return nil
		})
	})
	t.Run("our reflector dies", func(t *testing.T) {
		watchA, watchB, gaps := a.watchRoutes(t), b.watchRoutes(t), watchGaps(t, b)
		control := flow(t, a.NS, "10.0.0.4")
		there := flow(t, podA, "10.1.0.65")
		back := flow(t, podB, "10.1.0.1")
		check(t, rr1.agent.Kill())
		await(t, "a notices", func(ctx context.Context) error {
			if s, err := a.session(ctx, addr("10.0.0.2")); err == nil {
				return fmt.Errorf("the session is up since %s", s.Since)
			}
			return nil
		})
		time.Sleep(time.Second)
		rr1.start(t)
		await(t, "a has heard all from it", func(ctx context.Context) error {
			s, err := a.session(ctx, addr("10.0.0.2"))
			if err == nil && !s.EndOfRIB {
				err = errors.New("no End-of-RIB")
			}
			return err
		})
		hears(t, "Rr1", "10.1.0.0/26", "10.0.0.30")
		a.awaitFIB(t, "-4", fibOfA...)
		noneLostThrough(t, gaps, addr("10.1.0.1"), control, there, back)
		for _, m := range []*routeMonitor{watchA, watchB} {
			if changes := append(m.stop(t, agentProtocol, ""), []string{}...); len(changes) > 0 {
				t.Errorf("kernel of %s:%s", m.h.name, lines(changes))
			}
		}
	})
	t.Run("BIRD's reflector goes", func(t *testing.T) {
		gaps := watchGaps(t, b)
		control := flow(t, a.NS, "10.0.0.4")
		there := flow(t, podA, "10.1.0.65")
		back := flow(t, podB, "10.1.0.1")
		check(t, rr2.Stop())
		a.awaitFIB(t, "-4", fibOfA[:3]...) // its own block goes with it, the clients' do not
		b.awaitRIB(t, "Rr2")
		hears(t, "Rr1", "10.1.0.0/26", "10.0.0.30")
		ping(t, podA, "10.1.0.65")
		noneLostThrough(t, gaps, addr("10.1.0.1"), control, there, back)
	})
	t.Run("a client withdraws", func(t *testing.T) {
		check(t, a.agent.Stop())
		check(t, l.Data.Delete(t.Context(), "Node", "a"))
		rr1.awaitFIB(t, "-4", "10.1.0.64/26 via 10.0.0.4", "10.1.1.0/26 blackhole")
		b.awaitRIB(t, "Rr1", iBGP("10.1.1.0/26", "10.0.0.2"))
	})
}

// updates counts the routes that BIRD has heard in all its sessions, again and again.
func updates(t *testing.T, b *birdNode) (n int) {
	t.Helper()
	shown, err := b.Command(t.Context(), "show protocols all")
	check(t, err)
	for _, line := range shown {
		words := strings.Fields(line)
		if len(words) > 2 && words[0] == "Import" && words[1] == "updates:" {
			var count int
			_, err := fmt.Sscan(words[2], &count)
			check(t, err)
			n += count
		}
	}
	return n
}
