package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/bgp"
	"vpp-route-agent/ipam"
	"vpp-route-agent/vpp"
)

// The functions of this file are, or return, the set functions of settings: they parse a text into
// a field of config. Errors say what is allowed.

type setter = func(c *config, s string) error

func text(field func(*config) *string) setter {
	return func(c *config, s string) error { *field(c) = s; return nil }
}

func oneOf(field func(*config) *string, allowed ...string) setter {
	return func(c *config, s string) error {
		if !slices.Contains(allowed, s) {
			return fmt.Errorf("%q is not one of %s", s, strings.Join(allowed, ", "))
		}
		*field(c) = s
		return nil
	}
}

func truth(field func(*config) *bool) setter {
	return func(c *config, s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", s)
		}
		*field(c) = v
		return nil
	}
}

// listener takes address:port, an address alone, which gets the port of the default, or "off",
// which YAML reads as false.
func listener(field func(*config) *string, byDefault string) setter {
	return func(c *config, s string) error {
		if s == "off" || s == "false" {
			*field(c) = ""
			return nil
		}
		if _, err := netip.ParseAddr(s); err == nil {
			_, port, _ := net.SplitHostPort(byDefault)
			s = net.JoinHostPort(s, port)
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return fmt.Errorf("%q is neither an address nor address:port", s)
		}
		if _, err := netip.ParseAddr(host); err != nil && host != "" {
			return fmt.Errorf("%q: %q is not an IP address", s, host)
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return fmt.Errorf("%q: %q is not a port", s, port)
		}
		*field(c) = s
		return nil
	}
}

// number takes a whole number from least to most.
func number[T uint8 | uint32 | int](field func(*config) *T, least, most uint64) setter {
	return func(c *config, s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a whole number from %d to %d", s, least, most)
		}
		*field(c) = T(n)
		return nil
	}
}

// duration takes one from least to most.
func duration(field func(*config) *time.Duration, least, most string) setter {
	from, _ := time.ParseDuration(least)
	to, _ := time.ParseDuration(most)
	return func(c *config, s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 30s or 5m", s)
		}
		if d < from || d > to {
			return fmt.Errorf("must lie between %s and %s", least, most)
		}
		*field(c) = d
		return nil
	}
}

const oneFamily = "%s and %s are of one family; give at most one address per family"

func parseNextHops(c *config, s string) error {
	for part := range strings.SplitSeq(s, ",") {
		a, err := netip.ParseAddr(part)
		if err != nil || a.Zone() != "" {
			return fmt.Errorf("%q is not an IP address", part)
		}
		a = a.Unmap()
		if a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() {
			return fmt.Errorf("%s cannot be a next hop", a)
		}
		if err := addOfFamily(&c.nextHops, a); err != nil {
			return err
		}
	}
	return nil
}

// addOfFamily adds the one address of its family.
func addOfFamily(all *[]netip.Addr, a netip.Addr) error {
	for _, other := range *all {
		if other.Is4() == a.Is4() {
			return fmt.Errorf(oneFamily, other, a)
		}
	}
	*all = append(*all, a)
	return nil
}

// parseServicesVia takes an interface and addresses behind it.
func parseServicesVia(c *config, s string) error {
	via := &c.servicesVia
	for part := range strings.SplitSeq(s, ",") {
		a, err := netip.ParseAddr(part)
		a = a.Unmap()
		switch {
		case part == "":
			return errors.New("a name is empty")
		case err != nil && via.Interface != "":
			return fmt.Errorf("%q is not an IP address, and the interface is %s", part,
				via.Interface)
		case err != nil:
			via.Interface = part
			continue
		case a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
			return fmt.Errorf("%s cannot be a next hop", part)
		}
		if err := addOfFamily(&via.NextHops, a); err != nil {
			return err
		}
	}
	return nil
}

func parseRouterID(c *config, s string) error {
	if _, err := bgp.ChooseRouterID(s, c.nodeName, netip.Addr{}); err != nil {
		return err
	}
	c.routerID = s
	return nil
}

func parseClusterIPs(c *config, s string) error {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return fmt.Errorf("%q is not a prefix", s)
	}
	c.clusterIPs = p.Masked()
	return nil
}

// parseSourceName bounds the name by VPP's field of 64 bytes (vnet/fib/fib.api, fib_source) less
// what package vpp puts behind it.
func parseSourceName(c *config, s string) error {
	if len(s) > vpp.MaxSourceName {
		return fmt.Errorf("%q is longer than %d bytes", s, vpp.MaxSourceName)
	}
	c.fibSource = s
	return nil
}

// reservedProtocols are the route protocols of other programs (linux/rtnetlink.h; 80 is Felix).
var reservedProtocols = map[uint8]string{
	0: "unspec", 1: "redirect", 2: "kernel", 3: "boot", 4: "static", 8: "gated", 9: "ra", 10: "mrt",
	11: "zebra", 12: "bird", 13: "dnrouted",
	14: "xorp", 15: "ntk", 16: "dhcp", 17: "mrouted", 18: "keepalived", 42: "babel", 80: "Felix",
	186: "bgp", 187: "isis", 188: "ospf", 189: "rip", 192: "eigrp",
}

// parseTable leaves out 0, which the kernel reads as main, and the table of local addresses.
func parseTable(c *config, s string) error {
	if s == strconv.Itoa(unix.RT_TABLE_LOCAL) {
		return errors.New("table 255 belongs to the kernel (local)")
	}
	return number(func(c *config) *uint32 { return &c.kernelTable }, 1, math.MaxUint32)(c, s)
}

// parseSocket takes a path that fits into a socket address (unix(7), sun_path).
func parseSocket(field func(*config) *string) setter {
	return func(c *config, s string) error {
		if len(s) >= len(unix.RawSockaddrUnix{}.Path) {
			return fmt.Errorf("%q is longer than the %d bytes that a unix socket's path can have",
				s, len(unix.RawSockaddrUnix{}.Path)-1)
		}
		*field(c) = s
		return nil
	}
}

// parseOwnSocket takes the path of a socket that the agent makes. Abstract ones (unix(7)) have no
// permissions: every user could connect.
func parseOwnSocket(field func(*config) *string) setter {
	return func(c *config, s string) error {
		if strings.HasPrefix(s, "@") {
			return fmt.Errorf("%q is an abstract socket, which has no permissions; give a path", s)
		}
		return parseSocket(field)(c, s)
	}
}

// parseDir takes a directory, which may be made later.
func parseDir(field func(*config) *string) setter {
	return func(c *config, s string) error {
		if info, err := os.Stat(s); err == nil && !info.IsDir() {
			return fmt.Errorf("%s is not a directory", s)
		}
		*field(c) = s
		return nil
	}
}

// regularFile takes a file that is read more than once, which may be made later.
func regularFile(field func(*config) *string) setter {
	return func(c *config, s string) error {
		if info, err := os.Stat(s); err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file", s)
		}
		*field(c) = s
		return nil
	}
}

// namespaceForm is that of a DNS label (RFC 1123).
var namespaceForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func parseNamespace(c *config, s string) error { return checkNamespace(s, &c.secretsIn) }

// defaultReflectorNamespace is that of deploy/kubernetes-datastore.
const defaultReflectorNamespace = "vpp-route-agent"

func parseReflectorNamespace(c *config, s string) error {
	return checkNamespace(s, &c.reflectorsIn)
}

func checkNamespace(s string, into *string) error {
	if !namespaceForm.MatchString(s) {
		return fmt.Errorf("%q is no name of a Kubernetes namespace", s)
	}
	*into = s
	return nil
}

func parseProtocol(c *config, s string) error {
	err := number(func(c *config) *uint8 { return &c.kernelProtocol }, 0, math.MaxUint8)(c, s)
	if owner, taken := reservedProtocols[c.kernelProtocol]; taken && err == nil {
		return fmt.Errorf("protocol %s belongs to %s", s, owner)
	}
	return err
}

func parseGuardShare(c *config, s string) error {
	share, err := strconv.ParseFloat(s, 64)
	if err != nil || !(share >= 0 && share <= 1) {
		return fmt.Errorf("%q is not a number from 0 to 1", s)
	}
	c.guardShare = share
	return nil
}

// recorderSize: a ring of less would lose its records within seconds of a change.
func recorderSize(field func(*config) *int64) func(*config, string) error {
	return func(c *config, s string) error {
		mebibytes, err := strconv.ParseUint(s, 10, 20)
		if err != nil || mebibytes > 0 && mebibytes < 8 {
			return fmt.Errorf("%q is neither 0 nor a number of MiB from 8 to %d", s, 1<<20-1)
		}
		*field(c) = int64(mebibytes) << 20
		return nil
	}
}

// limitClasses are short names of scopes.
var limitClasses = map[string]bgp.Scope{
	"mesh": bgp.ScopeMesh, "global": bgp.ScopeGlobal, "node": bgp.ScopeNode,
	"local-workload": bgp.ScopeLocalWorkload,
}

func parsePrefixLimits(c *config, s string) error {
	c.prefixLimits = map[bgp.Scope]uint32{}
	for part := range strings.SplitSeq(s, ",") {
		class, text, _ := strings.Cut(part, "=")
		scope, ok := limitClasses[class]
		if !ok {
			return fmt.Errorf("%q is not one of mesh, global, node, local-workload, followed by "+
				"=NUMBER", part)
		}
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || n == 0 {
			return fmt.Errorf("%q: want a whole number greater than 0, and at most %d, after "+
				"the =", part, math.MaxInt32)
		}
		if _, twice := c.prefixLimits[scope]; twice {
			return fmt.Errorf("%s has two limits", class)
		}
		c.prefixLimits[scope] = uint32(n)
	}
	return nil
}

func parseEndpoints(c *config, s string) error {
	c.etcdEndpoints = strings.Split(s, ",")
	return nil
}

func parseK8sEndpoint(c *config, s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		return errors.New("want a URL such as https://192.0.2.10:6443")
	}
	c.kube.Server = s
	return nil
}

// legacyEndpoint is etcd's address as the first agent of this kind took it, in three parts.
type legacyEndpoint struct{ scheme, host, port string }

// into makes the parts the endpoint if one of them is given; the others have the defaults of
// --etcd-endpoints.
func (l legacyEndpoint) into(c *config, given map[string]bool) error {
	if l == (legacyEndpoint{}) {
		return nil
	}
	if given["etcd-endpoints"] {
		return errors.New("--etcd-scheme, --etcd-host and --etcd-port conflict with " +
			"--etcd-endpoints (ETCD_ENDPOINTS)")
	}
	hostPort := net.JoinHostPort(cmp.Or(strings.Trim(l.host, "[]"), "127.0.0.1"),
		cmp.Or(l.port, "2379"))
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
	const most = 4096
	line, err := bufio.NewReader(io.LimitReader(f, most)).ReadString('\n')
	if len(line) == most {
		return fmt.Errorf("the first line of %s is too long for a password", path)
	}
	if c.etcdPassword = strings.TrimRight(line, "\r\n"); c.etcdPassword == "" {
		return fmt.Errorf("%s has no password on its first line: %w", path,
			cmp.Or(err, errors.New("it is empty")))
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

// learn is the canonical value of --learn.
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
		if source != ipam.Published && source != ipam.NodeObject ||
			slices.Contains(c.hostAddress, source) {
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
			return fmt.Errorf("%q is not an address with a prefix length, such as 192.168.4.7/24",
				word)
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
				return fmt.Errorf(oneFamily, other, p)
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

// checkLearn refuses settings of routes from etcd and of the uplink that contradict each other.
func (c *config) checkLearn(given map[string]bool) error {
	if c.learnIPAM && c.dataplane == "none" {
		return fmt.Errorf("--learn %s has no meaning with --dataplane none", c.texts["--learn"])
	}
	if c.dataplane != "vpp" && given["services-via"] {
		return fmt.Errorf("--services-via has no meaning with --dataplane %s", c.dataplane)
	}
	if given["services-via"] && c.servicesVia.Interface == "" {
		return errors.New("--services-via names no interface")
	}
	if !c.learnBGP {
		for _, f := range []string{"gobgp-write", "next-hop", "services-via",
			"withdraw-without-dataplane", "publish-status"} {
			if given[f] {
				return fmt.Errorf("--%s has no meaning with --learn %s: there is no BGP", f,
					c.texts["--learn"])
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
	if c.uplinkTTL%time.Second != 0 {
		return errors.New("--uplink-ttl must be whole seconds")
	}
	keys := c.needs()
	if c.uplink != "" && c.uplinkPublish != "off" {
		keys.Hosts = c.hostsPrefix // the rules for a prefix that is read hold for a written one
	}
	return keys.Check(c.nodeName)
}
