package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

var reflectorFaults = []fault{
	{name: "reflector-kill", kind: kernelNodes, long: true, fresh: true, allowed: "0",
		what: "the mesh gives way to two reflectors (BIRD), then they are killed in turn, each " +
			"as soon as the other is back",
		run: func(ctx context.Context, t *trial) error {
			return t.alternate(ctx, (*netlab.Bird).Kill)
		}},
	{name: "reflector-stop", kind: kernelNodes, long: true, fresh: true, allowed: "0",
		what: "the mesh gives way to two reflectors (BIRD), then they leave with CEASE in turn, " +
			"each as soon as the other is back",
		run: func(ctx context.Context, t *trial) error {
			return t.alternate(ctx, (*netlab.Bird).Stop)
		}},
}

// reflector is a route reflector with BIRD on a machine of its own.
type reflector struct {
	name    string
	address netip.Addr
	bird    *netlab.Bird
}

// alternate replaces the mesh by two reflectors, and twice ends the one and then the other.
func (t *trial) alternate(ctx context.Context, end func(*netlab.Bird) error) error {
	if err := t.reflect(ctx); err != nil {
		return err
	}
	t.happened("the mesh is gone")
	t.note("reflectors instead of the mesh after %.1f s", time.Since(t.start).Seconds())
	const times = 2
	written, err := t.writesDuring(ctx, func() error {
		for i := range times * len(t.reflectors) {
			r := t.reflectors[i%len(t.reflectors)]
			t.happened(r.name + " ends")
			if err := errors.Join(end(r.bird), testcluster.Pause(ctx, 2*time.Second)); err != nil {
				return err
			}
			if err := r.bird.Restart(ctx); err != nil {
				return err
			}
			if err := t.converged(ctx, recovery); err != nil {
				return err
			}
			if err := t.awaitReflected(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	t.must(written.deleted == 0, "%d routes were deleted", written.deleted)
	t.must(written.put == 0, "%d routes were put: the other reflector's paths were not there",
		written.put)
	t.note("each ended %d times; FIB writes: %d put, %d deleted",
		times, written.put, written.deleted)
	return err
}

// reflect makes both reflectors, has every node peer with them beside the mesh, and ends the mesh.
func (t *trial) reflect(ctx context.Context) error {
	for i := range 2 {
		if err := t.addReflector(ctx, i); err != nil {
			return err
		}
	}
	b := t.nodes[2].speaker.(*testcluster.Bird)
	mesh := b.Config.Peers
	for _, r := range t.reflectors {
		peer := netlab.BirdPeer{
			Name: "Global_" + fmt.Sprint(r.address.As4()[3]), Address: r.address,
			AS: testcluster.AS,
		}
		b.Config.Peers = append(b.Config.Peers, peer)
	}
	if err := b.Reconfigure(ctx, b.Config); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	// A session that is up says nothing yet: BIRD keeps what it knows to itself until all its
	// clients have sent their routes.
	if err := t.awaitReflected(ctx); err != nil {
		return err
	}
	b.Config.Peers = b.Config.Peers[len(mesh):]
	err := t.Apply(ctx, testcluster.NoMesh)
	if err := errors.Join(err, b.Reconfigure(ctx, b.Config)); err != nil {
		return err
	}
	if err := netlab.Await(ctx, recovery, "the mesh ends", t.meshEnded); err != nil {
		return err
	}
	if err := t.converged(ctx, recovery); err != nil {
		return err
	}
	return t.awaitReflected(ctx)
}

// addReflector makes reflector i, 0 or 1, whose clients are all nodes. Calico knows it as a peer
// only, not as a node.
func (t *trial) addReflector(ctx context.Context, i int) error {
	r := &reflector{
		name:    fmt.Sprintf("reflector-%d", i+1),
		address: netip.AddrFrom4([4]byte{192, 168, 4, byte(71 + i)}),
	}
	ns, err := t.machine(r.name, r.address)
	if err != nil {
		return err
	}
	config := testcluster.BirdConfig(r.address)
	config.Cluster = netip.AddrFrom4([4]byte{192, 168, 4, 70})
	for _, n := range t.nodes {
		config.Peers = append(config.Peers, netlab.BirdPeer{
			Name: "Node_" + fmt.Sprint(n.Address.As4()[3]), Address: n.Address,
			AS: testcluster.AS, Client: true,
		})
	}
	if r.bird, err = t.StartBird(ctx, t.Bird, ns, r.name, config); err != nil {
		return err
	}
	t.reflectors = append(t.reflectors, r)
	return t.Apply(ctx, testcluster.Peer(r.name, r.address.String(), testcluster.AS, ""))
}

// meshEnded sees that the agents peer with the reflectors only.
func (t *trial) meshEnded(ctx context.Context) error {
	for _, n := range t.agents() {
		s, err := n.agent().Status(ctx)
		if err != nil {
			return err
		}
		if len(s.BGP.Peers) != len(t.reflectors) {
			return fmt.Errorf("%s has %d peers", n.Name, len(s.BGP.Peers))
		}
	}
	return nil
}

func (t *trial) awaitReflected(ctx context.Context) error {
	return netlab.Await(ctx, recovery, "both reflectors have sent all routes", t.reflected)
}

// reflected sees that every node has everything from each reflector. A session that is up is not
// enough: BIRD waits for its other clients then.
func (t *trial) reflected(ctx context.Context) error {
	for _, n := range t.agents() {
		s, err := n.agent().Status(ctx)
		if err != nil {
			return err
		}
		for _, p := range s.BGP.Peers {
			if !slices.ContainsFunc(t.reflectors, func(r *reflector) bool {
				return r.address == p.Address
			}) {
				continue // of the mesh
			}
			if !p.EndOfRIB || p.Received < len(t.nodes)-1 {
				return fmt.Errorf("%s has %d routes of %s", n.Name, p.Received, p.Address)
			}
		}
	}
	b := t.nodes[2].speaker.(*testcluster.Bird)
	for _, r := range t.reflectors {
		routes, err := b.Routes(ctx, "protocol "+b.Session(r.address))
		if err != nil {
			return err
		}
		if len(routes) < len(t.nodes)-1 {
			return fmt.Errorf("BIRD has %d routes of %s", len(routes), r.name)
		}
	}
	return nil
}
