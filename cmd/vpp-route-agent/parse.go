package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/bgp"
	"vpp-route-agent/vpp"
)

// The functions of this file make the set functions of settings: text in, a field of config out, or
// an error that says what is allowed.

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
		for _, other := range c.nextHops {
			if other.Is4() == a.Is4() {
				return fmt.Errorf("%s and %s are of one family; give at most one "+
					"address per family",
					other, a)
			}
		}
		c.nextHops = append(c.nextHops, a)
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

// parsePriority leaves out 0, VPP's class of special entries.
func parsePriority(c *config, s string) error {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a whole number from 1 to 255", s)
	}
	c.fibPriority = uint8(n)
	return nil
}

// reservedProtocols are the route protocols with an owner that we would fight (linux/rtnetlink.h;
// 80 is Felix).
var reservedProtocols = map[uint64]string{
	0: "unspec", 1: "redirect", 2: "kernel", 3: "boot", 4: "static", 8: "gated", 9: "ra", 10: "mrt",
	11: "zebra", 12: "bird", 13: "dnrouted",
	14: "xorp", 15: "ntk", 16: "dhcp", 17: "mrouted", 18: "keepalived", 42: "babel", 80: "Felix",
	186: "bgp", 187: "isis", 188: "ospf", 189: "rip", 192: "eigrp",
}

// parseTable leaves out 0, which the kernel reads as main, and the table of local addresses.
func parseTable(c *config, s string) error {
	n, err := strconv.ParseUint(s, 10, 32)
	switch {
	case err != nil || n == 0:
		return fmt.Errorf("%q is not a whole number from 1 to %d", s, uint32(math.MaxUint32))
	case n == unix.RT_TABLE_LOCAL:
		return errors.New("table 255 belongs to the kernel (local)")
	}
	c.kernelTable = uint32(n)
	return nil
}

// parseMetric leaves out 0: connected routes have it, and IPv6 turns it into 1024.
func parseMetric(field func(*config) *uint32) setter {
	return func(c *config, s string) error {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is not a whole number from 1 to %d", s, uint32(math.MaxUint32))
		}
		*field(c) = uint32(n)
		return nil
	}
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

func parseStateDir(c *config, s string) error {
	if info, err := os.Stat(s); err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a directory", s)
	}
	c.stateDir = s
	return nil
}

func parseProtocol(c *config, s string) error {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return fmt.Errorf("%q is not a whole number from 1 to 255", s)
	}
	if owner, taken := reservedProtocols[n]; taken {
		return fmt.Errorf("protocol %d belongs to %s", n, owner)
	}
	c.kernelProtocol = uint8(n)
	return nil
}

func parseSpotChecks(c *config, s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n > 1000 {
		return fmt.Errorf("%q is not a whole number from 0 to 1000", s)
	}
	c.spotChecks = int(n)
	return nil
}

func parseGuardShare(c *config, s string) error {
	share, err := strconv.ParseFloat(s, 64)
	if err != nil || !(share >= 0 && share <= 1) {
		return fmt.Errorf("%q is not a number from 0 to 1", s)
	}
	c.guardShare = share
	return nil
}

func parseGuardMinimum(c *config, s string) error {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", s)
	}
	c.guardMinimum = int(n)
	return nil
}

// limitClasses are the names of scopes that are short enough to type.
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
			return fmt.Errorf("%q: want a whole number greater than 0 after the =", part)
		}
		if _, twice := c.prefixLimits[scope]; twice {
			return fmt.Errorf("%s has two limits", class)
		}
		c.prefixLimits[scope] = uint32(n)
	}
	return nil
}

func parseLimitRetry(c *config, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration like 5m", s)
	}
	if d < time.Second || d > 24*time.Hour {
		return errors.New("must lie between 1s and 24h")
	}
	c.limitRetry = d
	return nil
}

func parseDeferral(c *config, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration like 30s", s)
	}
	if d < 0 || d > time.Hour {
		return errors.New("must lie between 0s and 1h")
	}
	c.deferral = d
	return nil
}
