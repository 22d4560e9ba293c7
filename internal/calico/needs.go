package calico

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Needs says which keys a node reads. The zero value is that of a node with BGP.
type Needs struct {
	// NoBGP omits what only BGP needs: its resources, and workload endpoints, which are most of a
	// cluster's changes.
	NoBGP bool
	// Hosts is the prefix, with a final slash, under which hosts publish their addresses (PeerIP);
	// "": they are not read, and only blocks that concern this node are, unless NoBGP.
	Hosts string
	// Blocks is the prefix, with a final slash, of IPAM's blocks; "": Calico's own.
	Blocks string
	// VXLAN: the data plane has tunnels for pools with vxlanMode, whose routes come from blocks.
	// All blocks are read as soon as there is such a pool.
	VXLAN bool
}

const (
	// DefaultHosts is where the predecessor of this agent published next hops.
	DefaultHosts = "/vpp-calico/hosts/"
	// DefaultBlocks is Calico's prefix.
	DefaultBlocks = blockPath
)

// PeerIP identifies an address that a host publishes as its next hop: the key HOST/peerip/ipv4/1 or
// HOST/peerip/ipv6/1 under Needs.Hosts, whose value is the address. It lies outside /calico/, which
// Calico's tools clean up.
type PeerIP struct {
	Host string
	IPv6 bool
}

// Key returns the key under the prefix hosts.
func (p PeerIP) Key(hosts string) string {
	if p.IPv6 {
		return hosts + p.Host + "/peerip/ipv6/1"
	}
	return hosts + p.Host + "/peerip/ipv4/1"
}

// MarshalText encodes a key of a JSON map: "edge-7/peerip/ipv4/1".
func (p PeerIP) MarshalText() ([]byte, error) { return []byte(p.Key("")), nil }

// UnmarshalText is the inverse of MarshalText.
func (p *PeerIP) UnmarshalText(text []byte) (err error) {
	*p, err = parsePeerIP(string(text))
	return err
}

// Range is a range of keys; see package internal/etcd.
type Range struct {
	Prefix string
	Exact  bool
	Names  string
	Leased bool
}

// Ranges returns the ranges to read from the start, disjoint if Check returns nil. Store.Ranges
// adds the blocks that a node with BGP needs, which depend on what is read.
func (n Needs) Ranges(node string) []Range {
	under := func(prefix string) Range { return Range{Prefix: prefix} }
	all := []Range{
		under(resourcePath + KindNode.plural() + "/"),
		under(resourcePath + KindClusterInformation.plural() + "/"),
		under(resourcePath + KindIPPool.plural() + "/"),
		under(resourcePath + KindFelixConfiguration.plural() + "/"),
		under(hostPath + node + "/"), // the slash matters: edge-1 is not edge-10
	}
	if n.AllBlocks() {
		all = append(all, under(n.blocks()))
	} else {
		for _, id := range tunnelHandles(node) {
			all = append(all, Range{Prefix: handlePath + id, Exact: true})
		}
	}
	if !n.NoBGP {
		all = append(all,
			// bgpconfigurations, bgpfilters and bgppeers: operators change them together, so one
			// range keeps their order
			under(resourcePath+"bgp"),
			Range{Prefix: resourcePath + KindWorkloadEndpoint.plural() + "/",
				Names: workloadPrefix(node)},
			under(resourcePath+KindLiveMigration.plural()+"/"),
		)
	}
	if n.Hosts != "" {
		all = append(all, Range{Prefix: n.Hosts, Leased: true})
	}
	return all
}

// AllBlocks reports whether routes to other nodes come from their blocks, whatever pools there are.
func (n Needs) AllBlocks() bool { return n.NoBGP || n.Hosts != "" }

func (n Needs) blocks() string { return cmp.Or(n.Blocks, blockPath) }

// Check returns one sentence about invalid prefixes.
func (n Needs) Check(node string) error {
	for _, x := range []struct{ flag, prefix string }{
		{"--hosts-prefix", n.Hosts}, {"--blocks-prefix", n.Blocks},
	} {
		p := x.prefix
		if p != "" && (!strings.HasPrefix(p, "/") || !strings.HasSuffix(p, "/") || len(p) < 3 ||
			strings.Contains(p, "//")) {
			return fmt.Errorf("%s: %q is no prefix of keys such as %s", x.flag, p, DefaultHosts)
		}
	}
	if strings.HasPrefix(n.Hosts, "/calico/") {
		return fmt.Errorf("--hosts-prefix: %q lies under /calico/, which belongs to Calico's "+
			"own tools", n.Hosts)
	}
	all := n.Ranges(node)
	if !n.AllBlocks() {
		all = append(all, Range{Prefix: n.blocks()})
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			if strings.HasPrefix(a.Prefix, b.Prefix) || strings.HasPrefix(b.Prefix, a.Prefix) {
				return fmt.Errorf("the prefixes %s and %s overlap", a.Prefix, b.Prefix)
			}
		}
	}
	return nil
}

// errOthers is for foreign keys under Needs.Hosts, a shared prefix.
var errOthers = errors.New("not an address of a host")

// parse is ParseKey with the prefixes of n.
func (n Needs) parse(key string) (Key, error) {
	if rest, ok := strings.CutPrefix(key, n.Hosts); ok && n.Hosts != "" {
		p, err := parsePeerIP(rest)
		return Key{Kind: KindPeerIP, Name: p.Host, IPv6: p.IPv6}, err
	}
	if rest, ok := strings.CutPrefix(key, n.blocks()); ok {
		key = blockPath + rest
	}
	return ParseKey(key)
}

// parsePeerIP parses a key without Needs.Hosts.
func parsePeerIP(rest string) (PeerIP, error) {
	host, rest, _ := strings.Cut(rest, "/")
	what, index, ok := strings.Cut(rest, "/")
	if !ok || what != "peerip" {
		return PeerIP{}, errOthers
	}
	switch {
	case host == "":
		return PeerIP{}, errors.New("key: names no host")
	case !IsPrintable(host):
		return PeerIP{}, errOddKey
	case index == "ipv4/1":
		return PeerIP{Host: host}, nil
	case index == "ipv6/1":
		return PeerIP{Host: host, IPv6: true}, nil
	}
	return PeerIP{}, fmt.Errorf("key: peerip/%s is neither peerip/ipv4/1 nor peerip/ipv6/1", index)
}

// decodePeerIP reads the value. It trims white space, as people write the value with echo.
func decodePeerIP(k Key, value []byte) (netip.Addr, error) {
	text := strings.TrimSpace(string(value))
	a, err := netip.ParseAddr(text)
	if err != nil {
		if len(text) > 64 {
			text = text[:64] + "…"
		}
		return netip.Addr{}, fmt.Errorf("%q is not an address", text)
	}
	a = a.Unmap()
	switch {
	case a.Is6() != k.IPv6:
		return netip.Addr{}, fmt.Errorf("%s is of the other address family", a)
	case unfitNextHop(a):
		return netip.Addr{}, fmt.Errorf("%s cannot be the next hop of another host", a)
	}
	return a, nil
}

// unfitNextHop reports an address that other hosts cannot reach.
func unfitNextHop(a netip.Addr) bool {
	return a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() ||
		a.IsLinkLocalUnicast()
}
