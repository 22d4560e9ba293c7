package calico

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Needs says which keys a node reads. The zero value is what a node with BGP reads of Calico.
type Needs struct {
	// NoBGP leaves out what only BGP asks for: its resources, pools, and workload endpoints, which are most of a cluster's changes.
	NoBGP bool
	// Hosts is the prefix, ending in a slash, under which hosts publish their own addresses (see PeerIP); "": they are not read.
	Hosts string
	// Blocks replaces the prefix, ending in a slash, under which IPAM keeps its blocks; "": Calico's own.
	Blocks string
}

const (
	// DefaultHosts is where the first agent of this kind published next hops.
	DefaultHosts = "/vpp-calico/hosts/"
	// DefaultBlocks is Calico's own.
	DefaultBlocks = blockPath
)

// PeerIP names an address that a host publishes for others to use as next hop: the key HOST/peerip/ipv4/1 or HOST/peerip/ipv6/1
// under Needs.Hosts. Its value is the bare address. It is not Calico's: it lies outside /calico/, which Calico's tools clean up.
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

// MarshalText and UnmarshalText let snapshots be written as JSON: "edge-7/peerip/ipv4/1".
func (p PeerIP) MarshalText() ([]byte, error) { return []byte(p.Key("")), nil }

// UnmarshalText is the inverse of MarshalText.
func (p *PeerIP) UnmarshalText(text []byte) (err error) {
	*p, err = parsePeerIP(string(text))
	return err
}

// Prefixes are the ranges of keys to read. Each is complete in itself, and if Check is nil no key is in two.
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
			resourcePath+"bgp", // bgpconfigurations, bgpfilters, bgppeers: an operator changes them together, one range keeps their order
			resourcePath+KindIPPool.plural()+"/",
			resourcePath+KindFelixConfiguration.plural()+"/",
			resourcePath+KindWorkloadEndpoint.plural()+"/", // the namespace comes before the node, so all of them
			resourcePath+KindLiveMigration.plural()+"/",
		)
	}
	if n.Hosts != "" {
		all = append(all, n.Hosts)
	}
	return all
}

// Check says in one sentence what is wrong with the prefixes that can be set.
func (n Needs) Check(node string) error {
	for _, p := range []string{n.Hosts, n.Blocks} {
		if p != "" && (!strings.HasPrefix(p, "/") || !strings.HasSuffix(p, "/") || len(p) < 3 || strings.Contains(p, "//")) {
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

// errOthers is for keys under Needs.Hosts that are no address of a host: the prefix is shared.
var errOthers = errors.New("not an address of a host")

// parsePeerIP reads the part of a key behind Needs.Hosts.
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

// decodePeerIP reads the value. White space around it comes from people who write it with echo.
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

// unfitNextHop reports an address by which no other host can be reached.
func unfitNextHop(a netip.Addr) bool {
	return a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast()
}
