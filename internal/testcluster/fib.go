package testcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"vpp-route-agent/internal/netlab"
)

// Route is a route in a data plane, as the kernel or VPP itself says.
type Route struct {
	Prefix   netip.Prefix
	Kind     string // "": it forwards; else what it does, as "blackhole" or "drop"
	NextHops []netip.Addr
	Device   string
	Metric   int
}

// NextHop is the only next hop; the zero Addr where there is none, or several.
func (r Route) NextHop() netip.Addr {
	if len(r.NextHops) != 1 {
		return netip.Addr{}
	}
	return r.NextHops[0]
}

// FIB is what a data plane holds.
type FIB map[netip.Prefix]Route

// Difference names, sorted, what the FIB holds and should not, or the other way round. A wanted
// zero Addr is a blackhole.
func (f FIB) Difference(want map[netip.Prefix]netip.Addr) (wrong []string) {
	for p, via := range want {
		switch r, ok := f[p]; {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("%s is missing", p))
		case r.NextHop() != via:
			wrong = append(wrong,
				fmt.Sprintf("%s is via %s, not %s", p, Hop(r.NextHop()), Hop(via)))
		}
	}
	for p := range f {
		if _, ok := want[p]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s should not be there", p))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// Hop is a next hop for people.
func Hop(a netip.Addr) string {
	if !a.IsValid() {
		return "drop"
	}
	return a.String()
}

// Learned is what the node's data plane holds of its speaker: in the kernel by the routes'
// protocol, in VPP by the name of our FIB source.
func (n *Node) Learned(ctx context.Context, protocol string) (FIB, error) {
	if n.VPP == nil {
		return kernelFIB(ctx, n.NS, "-4", "proto", protocol)
	}
	out, err := n.VPP.Command(ctx, "show ip fib table 0")
	if err != nil {
		return nil, err
	}
	found := FIB{}
	for p := range parseForwarding(out) { // the list does not say whose they are
		r, ok, err := n.Lookup(ctx, protocol, p)
		if err != nil {
			return nil, err
		}
		if ok {
			found[p] = r
		}
	}
	return found, nil
}

// Lookup is Learned for one prefix.
func (n *Node) Lookup(ctx context.Context, protocol string, p netip.Prefix) (Route, bool, error) {
	if n.VPP == nil {
		found, err := kernelFIB(ctx, n.NS, "-4", "exact", p.String(), "proto", protocol)
		r, ok := found[p]
		return r, ok, err
	}
	out, err := n.VPP.Command(ctx, "show ip fib table 0 "+p.String())
	if err != nil {
		return Route{}, false, err
	}
	r, ours := parseEntry(out, p)
	return r, ours, nil
}

// Forwarding is what packets meet: the kernel's routes of the protocol, or all that VPP does but
// for its own entries, those of the underlay and the CNI plugin's.
func (n *Node) Forwarding(ctx context.Context, protocol string) (FIB, error) {
	if n.VPP == nil {
		found, err := kernelFIB(ctx, n.NS, "-4", "proto", protocol)
		if err != nil {
			return nil, err
		}
		six, err := kernelFIB(ctx, n.NS, "-6", "proto", protocol)
		maps.Copy(found, six)
		return found, err
	}
	out, err := n.VPP.Command(ctx, "show ip fib table 0")
	if err != nil {
		return nil, err
	}
	found := FIB{}
	for p, e := range parseForwarding(out) {
		if slices.Contains(vppsOwn, p) || n.Uplink.Address.Overlaps(p) || n.serves(p) {
			continue
		}
		if e.buckets != 1 || len(e.ways) != 1 {
			return nil, fmt.Errorf("show ip fib: %s has %d buckets, of which %v are drops or hops",
				p, e.buckets, e.ways)
		}
		found[p] = Route{Prefix: p, NextHops: e.ways}
	}
	return found, nil
}

// KernelRoutes are the routes of a kernel's main table that `ip route show` selects.
func KernelRoutes(
	ctx context.Context, ns *netlab.Namespace, family string, selector ...string,
) ([]Route, error) {
	args := append([]string{"-json", family, "route", "show"}, selector...)
	out, err := ns.Run(ctx, "ip", args...)
	if err != nil {
		return nil, err
	}
	return parseKernel(out, family)
}

func kernelFIB(
	ctx context.Context, ns *netlab.Namespace, family string, selector ...string,
) (FIB, error) {
	routes, err := KernelRoutes(ctx, ns, family, selector...)
	found := FIB{}
	for _, r := range routes {
		found[r.Prefix] = r
	}
	return found, err
}

// parseKernel reads `ip -json route`.
func parseKernel(out []byte, family string) (routes []Route, err error) {
	type hop struct{ Gateway, Dev string }
	var listed []struct {
		Type, Dst string
		hop
		Metric   int
		Nexthops []hop
	}
	if err := json.Unmarshal(out, &listed); err != nil {
		return nil, fmt.Errorf("ip route: %w", err)
	}
	for _, l := range listed {
		r := Route{Device: l.Dev, Metric: l.Metric}
		if l.Type != "unicast" {
			r.Kind = l.Type
		}
		if r.Prefix, err = parseDst(l.Dst, family); err != nil {
			return nil, fmt.Errorf("ip route: %w", err)
		}
		for _, h := range append([]hop{l.hop}, l.Nexthops...) {
			if h.Gateway == "" {
				continue
			}
			a, err := netip.ParseAddr(h.Gateway)
			if err != nil {
				return nil, fmt.Errorf("ip route: %w", err)
			}
			r.NextHops = append(r.NextHops, a)
		}
		routes = append(routes, r)
	}
	return routes, nil
}

// parseDst reads a destination as iproute2 prints it: without a length it is one address.
func parseDst(s, family string) (netip.Prefix, error) {
	if s == "default" {
		s = map[string]string{"-4": "0.0.0.0/0", "-6": "::/0"}[family]
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(s)
}

// FIBSource is the name of our agent's routes in VPP, its default. The agent adds "@" and a mark of
// its own.
const FIBSource = "vpp-route-agent"

var (
	fibPrefix  = regexp.MustCompile(`(?m)^\d+\.\d+\.\d+\.\d+/\d+`)
	fibBuckets = regexp.MustCompile(`^  \[@0\]: dpo-load-balance: .* buckets:(\d+) `)
	fibBucket  = regexp.MustCompile(
		`^    \[\d+\] \[@\d+\]: (?:dpo-drop|(?:arp-)?ipv4:? via (\d+\.\d+\.\d+\.\d+)) `)
	fibOwner = regexp.MustCompile(`^  (\S.*) refs:\d+ `)
	fibHop   = regexp.MustCompile(`^\s+(?:via )?(\d+\.\d+\.\d+\.\d+) (\S+)`)
)

// vppsOwn are the entries of an empty FIB.
var vppsOwn = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("0.0.0.0/32"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("255.255.255.255/32"),
}

// forwarding is what VPP does with packets to a prefix.
type forwarding struct {
	buckets int
	ways    []netip.Addr // of the buckets: next hops, the zero Addr for a drop; no others
}

// parseForwarding reads `show ip fib`, VPP's list of all entries.
func parseForwarding(text string) map[netip.Prefix]forwarding {
	found := map[netip.Prefix]forwarding{}
	var p netip.Prefix
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if fibPrefix.MatchString(line) {
			p = netip.MustParsePrefix(line)
			found[p] = forwarding{}
			continue
		}
		e := found[p]
		if m := fibBuckets.FindStringSubmatch(line); m != nil {
			e.buckets, _ = strconv.Atoi(m[1]) // digits
		} else if m := fibBucket.FindStringSubmatch(line); m != nil {
			hop, _ := netip.ParseAddr(m[1]) // none for a drop
			e.ways = append(e.ways, hop)
		} else {
			continue
		}
		found[p] = e
	}
	return found
}

// parseEntry finds in `show ip fib PREFIX`, which is about the longest match, what our source has
// for p, also where another source's route for it wins.
func parseEntry(text string, p netip.Prefix) (r Route, ours bool) {
	if fibPrefix.FindString(text) != p.String() {
		return Route{}, false
	}
	inside := false // our source's part
	for line := range strings.Lines(text) {
		if m := fibOwner.FindStringSubmatch(line); m != nil {
			name, _, _ := strings.Cut(m[1], "@")
			if inside = name == FIBSource; inside {
				r, ours = Route{Prefix: p, Kind: "drop"}, true
			}
			continue
		}
		if strings.HasPrefix(line, " forwarding:") {
			break
		}
		if m := fibHop.FindStringSubmatch(line); inside && m != nil {
			hop, _ := netip.ParseAddr(m[1]) // the zero Addr is not a next hop
			r = Route{Prefix: p, NextHops: []netip.Addr{hop}, Device: m[2]}
		}
	}
	return r, ours
}
