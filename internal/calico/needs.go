package calico

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Needs says which keys a node reads. The zero value is that of a node with BGP.
type Needs struct {
	// NoBGP omits what only BGP needs: its resources, pools, and workload endpoints, which are most
	// of a cluster's changes.
	NoBGP bool
	// Hosts is the prefix, with a final slash, under which hosts publish their addresses (PeerIP);
	// "": they are not read.
	Hosts string
	// Blocks is the prefix, with a final slash, of IPAM's blocks; "": Calico's own.
	Blocks string
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

// Prefixes returns the ranges of keys to read, disjoint if Check returns nil.
func (n Needs) Prefixes(node string) []string {
	blocks := n.Blocks
	if blocks == "" {
		blocks = blockPath
	}
	all := []string{
		resourcePath + KindNode.plural() + "/",
		resourcePath + KindClusterInformation.plural() + "/",
		blocks,
		hostPath + node + "/", // the slash matters: edge-1 is not edge-10
	}
	if !n.NoBGP {
		all = append(all,
			// bgpconfigurations, bgpfilters and bgppeers: operators change them together, so one
			// range keeps their order
			resourcePath+"bgp",
			resourcePath+KindIPPool.plural()+"/",
			resourcePath+KindFelixConfiguration.plural()+"/",
			// the key has the namespace before the node, so all are read
			resourcePath+KindWorkloadEndpoint.plural()+"/",
			resourcePath+KindLiveMigration.plural()+"/",
		)
	}
	if n.Hosts != "" {
		all = append(all, n.Hosts)
	}
	return all
}

// Check returns one sentence about invalid prefixes.
func (n Needs) Check(node string) error {
	for _, p := range []string{n.Hosts, n.Blocks} {
		if p != "" && (!strings.HasPrefix(p, "/") || !strings.HasSuffix(p, "/") || len(p) < 3 ||
			strings.Contains(p, "//")) {
			return fmt.Errorf("%q is no prefix of keys such as %s", p, DefaultHosts)
		}
	}
	if strings.HasPrefix(n.Hosts, "/calico/") {
		return fmt.Errorf("%q lies under /calico/, which belongs to Calico's own tools", n.Hosts)
	}
	all := n.Prefixes(node)
	for i, a := range all {
		for _, b := range all[i+1:] {
			if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
				return fmt.Errorf("the prefixes %s and %s overlap", a, b)
			}
		}
	}
	return nil
}

// errOthers is for foreign keys under Needs.Hosts, a shared prefix.
var errOthers = errors.New("not an address of a host")

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
	case index == "ipv4/1":
		return PeerIP{Host: host}, nil
	case index == "ipv6/1":
		return PeerIP{Host: host, IPv6: true}, nil
	}
	return PeerIP{}, fmt.Errorf("key: peerip/%s is neither peerip/ipv4/1 nor peerip/ipv6/1", index)
}

// decodePeerIP reads the value. It trims white space, as people write the value with echo.
func decodePeerIP(k PeerIP, value []byte) (netip.Addr, error) {
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
