package reflector

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"vpp-route-agent/internal/calico"
)

// bird is what a controller knows of a node with BIRD: what its calico-node has answered twice.
func (m *model) bird(s *state, n int) Bird {
	if n == s.dead {
		return Bird{Silent: true}
	}
	var out calico.NodeStatus
	for b, p := range m.planOf(s, n).peers {
		if p == nil {
			continue
		}
		out.Peers = append(out.Peers, calico.NodeStatusPeer{
			Address: p.Address, Type: peerType(p.Scope), Established: s.up[n].has(b),
		})
	}
	if m.lie == "bird applied" {
		out.Peers = nil
		for _, p := range m.world(s.latest).peersOf(m.names[n]) {
			out.Peers = append(out.Peers, calico.NodeStatusPeer{
				Address: p.Address, Type: peerType(p.Scope), Established: true,
			})
		}
	}
	out.Routes = m.birdRoutes(s, n)
	return Bird{Answers: []calico.NodeStatus{out, out}}
}

// birdRoutes is BIRD's table: each prefix from each peer that has sent it, by its owner. The first
// is the one it forwards by.
func (m *model) birdRoutes(s *state, n int) []calico.NodeStatusRoute {
	own := calico.NodeStatusRoute{Prefix: prefixOf(n), Interface: "blackhole", FIB: true}
	all := []calico.NodeStatusRoute{own}
	for owner := range m.names {
		first := true
		for b, p := range m.planOf(s, n).peers {
			at := s.at(n, b)
			sent := b == owner && s.direct[n].has(b) || s.passed[at].has(owner) ||
				s.again[at].has(owner)
			if p == nil || owner == n || !sent {
				continue
			}
			gateway := m.addressOf(owner)
			if s.turnedAt(at).has(owner) {
				gateway = m.addressOf(b)
			}
			all = append(all, calico.NodeStatusRoute{
				Prefix: prefixOf(owner), Gateway: gateway.String(), Interface: "eth0",
				Peer: p.Address, FIB: first,
			})
			first = false
		}
	}
	if m.lie == "bird routes" {
		for _, r := range all[1:] {
			for _, p := range m.world(s.latest).peersOf(m.names[n]) {
				r.Peer, r.FIB = p.Address, false
				all = append(all, r)
			}
		}
	}
	return all
}

func prefixOf(n int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/26", n))
}

func (m *model) addressOf(n int) netip.Addr {
	return m.addresses[n]
}

// birdKey appends all that bird depends on.
func (m *model) birdKey(b []byte, s *state, n int) []byte {
	for _, v := range s.seen[n] {
		b = binary.AppendUvarint(b, uint64(v.id))
	}
	for other := range m.names {
		for _, x := range []set{
			s.up[n], s.direct[n], s.passed[s.at(n, other)], s.again[s.at(n, other)],
			s.turnedAt(s.at(n, other)),
		} {
			b = append(b, byte(len(x)))
			for _, w := range x {
				b = binary.AppendUvarint(b, w)
			}
		}
	}
	return b
}
