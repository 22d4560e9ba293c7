package interop

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"vpp-route-agent/internal/netlab"
)

// sixLab is a full mesh of three of our nodes and three with BIRD, each with a block and a
// workload. The addresses are such that the order of their strings is not that of their numbers,
// and each kind of node dials each kind.
type sixLab struct {
	*lab
	ours  []*agentNode
	birds []*birdNode
	nodes []sixNode
}

type sixNode struct {
	*host
	address, block, pod string
	workload            *netlab.Namespace
}

func TestMeshOfSix(t *testing.T) {
	t.Parallel()
	m := &sixLab{lab: newLab(t, "six")}
	addresses := map[string]string{
		"a1": "10.0.0.2", "a2": "10.0.0.30", "a3": "10.0.0.111", "b1": "10.0.0.4",
		"b2": "10.0.0.20", "b3": "10.0.0.101",
	}
	for i, name := range []string{"a1", "b1", "a2", "b2", "a3", "b3"} {
		n := sixNode{
			address: addresses[name], block: fmt.Sprintf("10.1.%d.0/26", i),
			pod: fmt.Sprintf("10.1.%d.1", i),
		}
		if name[0] == 'a' {
			a := m.agentNode(t, name, n.address+"/24")
			m.ours, n.host = append(m.ours, a), a.host
			check(t, m.Data.ClaimBlock(t.Context(), name, pfx(n.block)))
		} else {
			var peers []string
			for other, address := range addresses {
				if other != name {
					peers = append(peers, address)
				}
			}
			b := m.birdNode(t, name, n.address+"/24", peers...)
			m.birds, n.host = append(m.birds, b), b.host
			b.setBlocks(t, n.block)
		}
		n.workload = n.host.pod(t, "pod"+name, n.pod)
		m.nodes = append(m.nodes, n)
	}
	for _, b := range m.birds {
		b.start(t)
	}
	for _, a := range m.ours {
		a.start(t)
	}
	t.Run("all sessions come up", m.sessions)
	t.Run("all RIBs are complete", func(t *testing.T) { m.complete(t, m.nodes) })
	t.Run("everybody reaches everybody", m.everybody)
	t.Run("one of ours and one of BIRD leave", m.leave)
}

func (m *sixLab) sessions(t *testing.T) {
	for _, a := range m.ours {
		var peers []string
		for _, n := range m.nodes {
			if n.host != a.host {
				peers = append(peers, n.address)
			}
		}
		a.awaitPeers(t, peers...)
	}
	for _, b := range m.birds {
		b.awaitEstablished(t)
	}
}

// complete: each of the nodes has from each other exactly its block, and in its kernel exactly the
// blocks of all.
func (m *sixLab) complete(t *testing.T, nodes []sixNode) {
	for _, a := range m.ours {
		if !slices.ContainsFunc(nodes, func(n sixNode) bool { return n.host == a.host }) {
			continue
		}
		var fib []string
		for _, n := range nodes {
			if n.host == a.host {
				fib = append(fib, n.block+" blackhole")
			} else {
				fib = append(fib, n.block+" via "+n.address)
			}
		}
		a.awaitFIB(t, "-4", fib...)
	}
	for _, b := range m.birds {
		if !slices.ContainsFunc(nodes, func(n sixNode) bool { return n.host == b.host }) {
			continue
		}
		for _, n := range nodes {
			if n.host != b.host {
				b.awaitRIB(t, mesh(n.address), iBGP(n.block, n.address))
			}
		}
	}
}

func (m *sixLab) everybody(t *testing.T) {
	for _, from := range m.nodes {
		for _, to := range m.nodes {
			if from.host != to.host {
				ping(t, from.workload, to.pod)
			}
		}
	}
}

// leave has the Node objects go, as when machines are taken out: the others forget them at once,
// and nothing else is touched.
func (m *sixLab) leave(t *testing.T) {
	stay := []sixNode{m.nodes[0], m.nodes[1], m.nodes[3], m.nodes[4]} // not a2, b3
	since := m.ours[0].sessionsOf(t, m.nodes[1].address, m.nodes[3].address, m.nodes[4].address)
	control := flow(t, m.nodes[0].workload, m.nodes[1].pod)
	watched := flow(t, m.nodes[4].workload, m.nodes[3].pod)
	check(t, m.birds[2].Stop())
	check(t, m.ours[1].agent.Stop())
	for _, n := range []sixNode{m.nodes[2], m.nodes[5]} {
		_, err := m.Data.ReleaseBlock(t.Context(), pfx(n.block))
		check(t, err)
		check(t, m.Data.Delete(t.Context(), "Node", n.name))
	}
	for _, b := range m.birds[:2] {
		b.config.Peers = slices.DeleteFunc(b.config.Peers, func(p netlab.BirdPeer) bool {
			return p.Address == addr(m.nodes[2].address) || p.Address == addr(m.nodes[5].address)
		})
		b.reconfigure(t)
	}
	m.complete(t, stay)
	for _, a := range []*agentNode{m.ours[0], m.ours[2]} {
		await(t, a.name+" has three peers", func(ctx context.Context) error {
			s, err := a.agent.Status(ctx)
			if err == nil && len(s.BGP.Peers) != 3 {
				err = fmt.Errorf("%d peers", len(s.BGP.Peers))
			}
			return err
		})
	}
	m.ours[0].sameSessions(t, since)
	noneLost(t, control, watched)
}
