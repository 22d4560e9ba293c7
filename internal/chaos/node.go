package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"vpp-route-agent/internal/testcluster"
	"vpp-route-agent/vpp/vpptest"
)

// node is one machine of a cluster.
type node struct {
	*testcluster.Node
	cluster  *cluster
	address6 netip.Addr      // the zero Addr: IPv4 only
	api      *vpptest.Server // in place of a VPP, without packets; nil: none
	speaker  speaker
	workload *testcluster.Workload // nil: the node forwards nothing
	port     testcluster.Port      // of the workload
	reflects bool                  // as the controllers have chosen, when they were last asked
	wanted   []netip.Addr          // its peers then, in a layout with groups
}

// speaker is a node's BGP daemon, a process of its own.
type speaker interface {
	Start(ctx context.Context) error
	Kill() error
	Stop() error
	// Ready returns what is missing before the speaker is as it should be: sessions with all
	// others, and for ours a finished sweep.
	Ready(ctx context.Context, peers []netip.Addr) error
	Protocol() string // of its routes in the kernel
}

// agent is the node's speaker, which is ours.
func (n *node) agent() *testcluster.Agent { return n.speaker.(*testcluster.Agent) }

// runsBird reports a node whose speaker is not ours.
func (n *node) runsBird() bool {
	_, ours := n.speaker.(*testcluster.Agent)
	return !ours
}

// dataplane are the agent's flags for what the node forwards with.
func (n *node) dataplane() []string {
	switch {
	case n.workload == nil:
		return []string{"--dataplane", "none"}
	case n.VPP == nil && n.api != nil:
		return []string{"--dataplane", "vpp", "--vpp-socket", n.api.Socket()}
	}
	return n.Dataplane()
}

// objection is what is wrong with a node, nil when all is as it should be.
func (n *node) objection(ctx context.Context) error {
	if err := n.speaker.Ready(ctx, n.peers()); err != nil || n.workload == nil {
		return err
	}
	have, err := n.programmed(ctx)
	if err != nil {
		return err
	}
	delete(have, beyond) // has several next hops: who makes routers looks at it
	if err := difference(n.cluster.wanted(n), have); err != nil || n.VPP == nil {
		return err
	}
	if n.cluster.layout.overlay {
		return n.tunnelsObjection(ctx)
	}
	if have, err = n.inFIB(ctx); err != nil {
		return err
	}
	if err := difference(n.cluster.wanted(n), have); err != nil {
		return fmt.Errorf("VPP forwards otherwise than the agent says: %w", err)
	}
	return nil
}

// peers are those that n must have a session with: all other nodes in the mesh, else the
// reflectors, and a reflector's clients; and the router of its rack.
func (n *node) peers() (all []netip.Addr) {
	if n.cluster.layout.overlay {
		return nil
	}
	if n.cluster.layout.groups {
		return n.wanted
	}
	for _, r := range n.cluster.reflectors {
		all = append(all, r.address)
	}
	if len(all) == 0 {
		for _, other := range n.cluster.nodes {
			if other == n || n.cluster.meshOff && !n.reflects && !other.reflects {
				continue
			}
			all = append(all, other.Address)
			if n.address6.IsValid() && other.address6.IsValid() {
				all = append(all, other.address6)
			}
		}
	}
	if n.cluster.rack.serves(n) {
		all = append(all, n.cluster.rack.address)
	}
	return all
}

// programmed is what the data plane of n has of its speaker: asked of the kernel, or listed by the
// agent out of VPP.
func (n *node) programmed(ctx context.Context) (testcluster.FIB, error) {
	if a, ok := n.speaker.(*testcluster.Agent); ok && (n.VPP != nil || n.api != nil) {
		return a.Audited(ctx)
	}
	return n.inFIB(ctx)
}

// inFIB is what the data plane itself has of n's speaker; the agent has no part in it.
func (n *node) inFIB(ctx context.Context) (testcluster.FIB, error) {
	return n.Forwarding(ctx, n.speaker.Protocol())
}

// addWorkload makes the workload of n. An address inside the node's block needs no Calico data.
func (n *node) addWorkload(ctx context.Context, address netip.Addr) (err error) {
	if n.workload, err = n.cluster.Workload("w-"+n.Name, address); err != nil {
		return err
	}
	if n.port, err = n.Link(n.workload, "eth0", "cali"+n.Name); err != nil {
		return err
	}
	return errors.Join(n.workload.Use(ctx, n.port), n.Deliver(ctx, n.port))
}

// addUplink gives a VPP API server the interface of a node on the underlay.
func addUplink(s *vpptest.Server) {
	s.AddInterface("uplink", onUnderlay(111))
}
