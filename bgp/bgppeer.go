package bgp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/calico"
)

// given is a BGPPeer of the peerIP form, read.
type given struct {
	calico.BGPPeer
	addr netip.Addr
	port uint16 // 0: not given
}

func (g given) key() string { return "BGPPeer(" + g.Name + ")" }

// readBGPPeers returns the BGPPeers that can be followed, by name, and a problem for each other.
func (p *peering) readBGPPeers() []given {
	var all []given
	for _, name := range slices.Sorted(maps.Keys(p.s.BGPPeers)) {
		g := given{BGPPeer: p.s.BGPPeers[name]}
		g.Name = name
		if err := g.read(); err != nil {
			p.problem(g.key(), "%s", err)
			continue
		}
		all = append(all, g)
	}
	return all
}

// read fills in addr and port, or says why the BGPPeer cannot be followed.
func (g *given) read() error {
	switch {
	case g.Node != "" && g.NodeSelector != "":
		return errors.New("both node and nodeSelector are given")
	case g.PeerIP != "" && g.PeerSelector != "":
		return errors.New("both peerIP and peerSelector are given")
	case g.LocalWorkloadSelector != "":
		return errors.New("localWorkloadSelector is not supported yet")
	case g.NodeSelector != "":
		return errors.New("nodeSelector is not supported yet")
	case g.PeerSelector != "":
		return errors.New("peerSelector is not supported yet")
	case g.PeerIP == "":
		return errors.New("neither peerIP nor peerSelector is given")
	case g.ASNumber == 0:
		return errors.New("asNumber is missing, which a peerIP needs")
	}
	var err error
	g.addr, g.port, err = parsePeerIP(g.PeerIP)
	return err
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
	if err != nil || addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() {
		return netip.Addr{}, 0, fmt.Errorf("peerIP %q is not the address of a router, or address:port, or [IPv6 address]:port", text)
	}
	return addr, port, nil
}

// forward returns the sessions to the peerIPs of the BGPPeers of one scope that this node has.
func (p *peering) forward(all []given, scope Scope) []wish {
	var out []wish
	for _, g := range all {
		if (g.Node == "") != (scope == ScopeGlobal) || g.Node != "" && g.Node != p.node.Name {
			continue
		}
		own, ok := addressOf(p.node, familyOf(g.addr))
		if !ok {
			if scope == ScopeNode { // a global peer may well be meant for other nodes
				p.problem(g.key(), "no session to %s: Node(%s) has no %s address", g.addr, p.node.Name, familyOf(g.addr))
			}
			continue
		}
		if g.addr == own {
			continue
		}
		session := p.session(own, g.addr, g.ASNumber)
		session.Scope = scope
		session.Port = cmp.Or(g.port, p.portOf(g.addr, g.ASNumber))
		session.LocalAS = cmp.Or(g.LocalASNumber, session.LocalAS)
		session.AllowLocalAS = g.NumAllowedLocalASNumbers
		out = append(out, p.apply(g, session))
	}
	return out
}

// portOf returns the port to dial at addr where none is given: a Calico node of that address and AS listens where its
// BGPConfiguration says, all others on 179.
func (p *peering) portOf(addr netip.Addr, as uint32) uint16 {
	for _, n := range p.nodes {
		if a, ok := addressOf(n, familyOf(addr)); ok && a == addr && nodeAS(n, p.s) == as {
			return listenPort(n.Name, p.s)
		}
	}
	return defaultPort
}

// reverse returns the other ends of peerings: where a BGPPeer makes other nodes peer with this one by its address, this one peers with them.
func (p *peering) reverse(all []given) []wish {
	var out []wish
	for _, g := range all {
		f := familyOf(g.addr)
		own, ok := addressOf(p.node, f)
		if !ok || g.ReversePeering == "Manual" || !p.isMeant(g, own) {
			continue
		}
		for _, n := range p.nodes {
			addr, ok := addressOf(n, f)
			if !ok || g.Node != "" && g.Node != n.Name || addr == own {
				continue
			}
			session := p.session(own, addr, nodeAS(n, p.s))
			session.Scope = ScopeNode
			session.Port = listenPort(n.Name, p.s)
			out = append(out, p.apply(g, session))
		}
	}
	return out
}

// isMeant reports whether the peerIP, AS and port of g are those of this node.
func (p *peering) isMeant(g given, own netip.Addr) bool {
	return g.addr == own && g.ASNumber == nodeAS(p.node, p.s) && (g.port == 0 || g.port == listenPort(p.node.Name, p.s))
}

// apply gives a session what its BGPPeer says for both directions, and reports what we do not honour.
func (p *peering) apply(g given, session Peer) wish {
	session.Source = g.key()
	session.Password = g.Password
	session.TTLSecurity = g.TTLSecurity
	session.RestartTime = p.restartTime(g.key(), "maxRestartTime", g.MaxRestartTime)
	session.KeepaliveTime = max(g.KeepaliveTime.Round(time.Second), 0)
	if g.SourceAddress == "None" {
		session.LocalAddress = netip.Addr{}
	}
	w := wish{Peer: session}
	if len(g.Filters) > 0 {
		w.refused = "filters are not supported yet, and without them it would pass routes that it must not"
	}
	if g.NextHopMode != "" && g.NextHopMode != "Auto" {
		p.problem(g.key(), "nextHopMode %s is not supported yet: Auto is used", g.NextHopMode)
	} else if g.NextHopMode == "" && g.KeepOriginalNextHop && session.External() {
		p.problem(g.key(), "keepOriginalNextHop is not supported yet: our address is announced as next hop")
	}
	if g.ReachableBy != "" {
		p.problem(g.key(), "reachableBy is not supported yet: no route to %s via %s is added", g.addr, g.ReachableBy)
	}
	return w
}
