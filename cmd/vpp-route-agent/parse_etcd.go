package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/ipam"
)

// legacyEndpoint is etcd's address as the first agent of this kind took it, in three parts.
type legacyEndpoint struct{ scheme, host, port string }

// into makes the three parts the one endpoint, if one of them is given; the others have the defaults of --etcd-endpoints.
func (l legacyEndpoint) into(c *config, given map[string]bool) error {
	if l == (legacyEndpoint{}) {
		return nil
	}
	if given["etcd-endpoints"] {
		return errors.New("--etcd-scheme, --etcd-host and --etcd-port conflict with --etcd-endpoints (ETCD_ENDPOINTS)")
	}
	hostPort := net.JoinHostPort(cmp.Or(strings.Trim(l.host, "[]"), "127.0.0.1"), cmp.Or(l.port, "2379"))
	c.etcdEndpoints = []string{cmp.Or(l.scheme, "http") + "://" + hostPort}
	return nil
}

func parseEtcdPort(c *config, s string) error {
	if n, err := strconv.ParseUint(s, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q is not a port", s)
	}
	c.etcdLegacy.port = s
	return nil
}

// parsePasswordFile reads the password; the file is read once, when the agent starts.
func parsePasswordFile(c *config, path string) error {
	if c.etcdPassword != "" {
		return errors.New("conflicts with ETCD_PASSWORD")
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if c.etcdPassword = strings.TrimRight(line, "\r\n"); c.etcdPassword == "" {
		return fmt.Errorf("%s has no password on its first line: %w", path, cmp.Or(err, errors.New("it is empty")))
	}
	return nil
}

// parseLearn takes etcd as an earlier name of ipam.
func parseLearn(c *config, s string) error {
	for word := range strings.SplitSeq(s, ",") {
		switch {
		case word == "bgp" && !c.learnBGP:
			c.learnBGP = true
		case (word == "ipam" || word == "etcd") && !c.learnIPAM:
			c.learnIPAM = true
		default:
			return fmt.Errorf("%q is not one of bgp, ipam and bgp,ipam", s)
		}
	}
	return nil
}

// learn is what --learn says.
func (c *config) learn() string {
	switch {
	case c.learnBGP && c.learnIPAM:
		return "bgp,ipam"
	case c.learnIPAM:
		return "ipam"
	}
	return "bgp"
}

func parseHostAddress(c *config, s string) error {
	for word := range strings.SplitSeq(s, ",") {
		source := ipam.AddressSource(word)
		if source != ipam.Published && source != ipam.NodeObject || slices.Contains(c.hostAddress, source) {
			return fmt.Errorf("%q is not peerip, node, or both in one order", s)
		}
		c.hostAddress = append(c.hostAddress, source)
	}
	return nil
}

// keyPrefix takes a prefix of keys, with or without the slash at its end.
func keyPrefix(field func(*config) *string) setter {
	return func(c *config, s string) error {
		*field(c) = strings.TrimRight(s, "/") + "/"
		return nil
	}
}

// parseBlocksPrefix also takes what the first agent took: the prefix of the IPv4 blocks.
func parseBlocksPrefix(c *config, s string) error {
	s = strings.TrimRight(s, "/")
	for _, family := range []string{"/ipv4/block", "/ipv6/block"} {
		s = strings.TrimSuffix(s, family)
	}
	c.blocksPrefix = s + "/"
	return nil
}

func parseUplinkAddresses(c *config, s string) error {
	for word := range strings.SplitSeq(s, ",") {
		p, err := netip.ParsePrefix(word)
		if err != nil {
			return fmt.Errorf("%q is not an address with a prefix length, such as 192.168.4.7/24", word)
		}
		a := p.Addr()
		switch {
		case a.Is4In6(), a.IsUnspecified(), a.IsMulticast(), a.IsLoopback(), a.IsLinkLocalUnicast():
			return fmt.Errorf("%s cannot be an uplink's address", p)
		case p.Bits() < 8:
			return fmt.Errorf("%s: a subnet of that size is a mistake", p)
		case a.Is4() && p.Bits() < 31 && (a == p.Masked().Addr() || a == broadcast(p)):
			return fmt.Errorf("%s is the first or last address of its subnet, not a host's", p)
		}
		for _, other := range c.uplinkAddress {
			if other.Addr().Is4() == a.Is4() {
				return fmt.Errorf("%s and %s are of one family; give at most one address per family", other, p)
			}
		}
		c.uplinkAddress = append(c.uplinkAddress, p)
	}
	return nil
}

// broadcast is the last address of an IPv4 subnet.
func broadcast(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

func parseUplinkTTL(c *config, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration like 60s", s)
	}
	if d < 5*time.Second || d > 24*time.Hour || d%time.Second != 0 {
		return errors.New("must be whole seconds between 5s and 24h")
	}
	c.uplinkTTL = d
	return nil
}

// checkLearn refuses what makes no sense together about routes from etcd and the uplink.
func (c *config) checkLearn(given map[string]bool) error {
	if c.learnIPAM && c.dataplane == "none" {
		return fmt.Errorf("--learn %s has no meaning with --dataplane none", c.learn())
	}
	if !c.learnBGP {
		for _, f := range []string{"gobgp-write", "next-hop", "withdraw-without-dataplane"} {
			if given[f] {
				return fmt.Errorf("--%s has no meaning with --learn ipam: there is no BGP", f)
			}
		}
	}
	if given["host-address"] && !c.learnIPAM {
		return errors.New("--host-address has no meaning with --learn bgp")
	}
	if c.uplink != "" && c.dataplane == "none" {
		return errors.New("--uplink has no meaning with --dataplane none")
	}
	if (c.uplink == "") != (len(c.uplinkAddress) == 0) {
		return errors.New("--uplink and --uplink-address must be given together")
	}
	if c.uplink == "" && (given["uplink-publish"] || given["uplink-ttl"]) {
		return errors.New("--uplink-publish and --uplink-ttl have no meaning without --uplink")
	}
	keys := c.needs()
	if c.uplink != "" && c.uplinkPublish != "off" { // who publishes only does not read there, but may not write anywhere either
		keys.Hosts = c.hostsPrefix
	}
	return keys.Check(c.nodeName)
}
