package bgp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/selector"
)

// given is a BGPPeer, read. It has one of three forms: peerIP, peerSelector, localWorkloadSelector.
type given struct {
	calico.BGPPeer
	key  string     // as calicoctl names it
	addr netip.Addr // peerIP form only
	port uint16     // 0: not given

	// Of the selectors those count whose field is not empty.
	nodes, peers, workloads selector.Selector
}

// scope is global for a BGPPeer that names no nodes, whichever nodes it ends up at.
func (g given) scope() Scope {
	if g.Node == "" && g.NodeSelector == "" {
		return ScopeGlobal
	}
	return ScopeNode
}

// isFor reports whether n is one of the nodes that shall have the peers of g.
func (g given) isFor(n calico.Node) bool {
	switch {
	case g.Node != "":
		return n.Name == g.Node
	case g.NodeSelector != "":
		return g.nodes.Matches(n.Labels)
	}
	return true
}

// readBGPPeers returns the BGPPeers that can be followed, by name, and a problem for each other.
func (p *peering) readBGPPeers() []given {
	var all []given
	for _, name := range slices.Sorted(maps.Keys(p.s.BGPPeers)) {
		g := given{BGPPeer: p.s.BGPPeers[name]}
		g.Name, g.key = name, "BGPPeer("+name+")"
		if err := g.read(); err != nil {
			p.problem(g.key, "%s", err)
			continue
		}
		if g.PeerSelector != "" && g.ASNumber != 0 {
			p.problem(g.key, "asNumber is ignored: with peerSelector it is each node's own")
		}
		for label := range g.workloads.Labels() {
			if calico.IsInherited(label) {
				p.problem(g.key, "localWorkloadSelector: the label %s would come from a profile, "+
					"and profiles are not read", label)
				break
			}
		}
		all = append(all, g)
	}
	return all
}

// read fills in what is parsed, or says why the BGPPeer cannot be followed. The combinations are
// those that calicoctl refuses.
func (g *given) read() error {
	switch {
	case g.Node != "" && g.NodeSelector != "":
		return errors.New("both node and nodeSelector are given")
	case g.PeerIP != "" && g.PeerSelector != "":
		return errors.New("both peerIP and peerSelector are given")
	case g.LocalWorkloadSelector != "" && g.PeerIP+g.PeerSelector != "":
		return errors.New("localWorkloadSelector is given beside peerIP or peerSelector")
	case g.PeerIP+g.PeerSelector+g.LocalWorkloadSelector == "":
		return errors.New("neither peerIP nor peerSelector nor localWorkloadSelector is given")
	case g.LocalWorkloadSelector != "" && g.ASNumber == 0:
		return errors.New("asNumber is missing, which localWorkloadSelector needs")
	}
	if g.PeerIP != "" {
		var err error
		if g.addr, g.port, err = parsePeerIP(g.PeerIP); err != nil {
			return err
		}
	}
	return cmp.Or( // one line: the first
		readSelector("nodeSelector", g.NodeSelector, &g.nodes),
		readSelector("peerSelector", g.PeerSelector, &g.peers),
		readSelector("localWorkloadSelector", g.LocalWorkloadSelector, &g.workloads),
	)
}

func readSelector(field, text string, into *selector.Selector) (err error) {
	if *into, err = selector.Parse(text); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// parsePeerIP reads "a.b.c.d", "a.b.c.d:port", "v6" and "[v6]:port"; port is 0 where none is given.
func parsePeerIP(text string) (addr netip.Addr, port uint16, err error) {
	if strings.HasPrefix(text, "[") || strings.Count(text, ":") == 1 {
		var ap netip.AddrPort
		ap, err = netip.ParseAddrPort(text)
		addr, port = ap.Addr(), ap.Port()
		if err == nil && port == 0 {
			err = errors.New("port 0")
		}
	} else {
		addr, err = netip.ParseAddr(text)
	}
	addr = addr.Unmap()
	if err != nil || !isRouter(addr) {
		return netip.Addr{}, 0, fmt.Errorf(
			"peerIP %q is not the address of a router, or address:port, or [IPv6 address]:port",
			text)
	}
	return addr, port, nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// isRouter reports whether a router could have the address.
func isRouter(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() &&
		a != broadcast
}
