package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"vpp-route-agent/internal/netlab"
)

// kernelFIB is the forwarder of a node whose packets the Linux kernel forwards.
type kernelFIB struct {
	ns       *netlab.Namespace
	protocol protocol
	log      *changeLog
}

// protocol is the number that marks the routes of a node's BGP speaker in the kernel.
type protocol struct{ number, name string }

var (
	agentProtocol = protocol{"179", "179"} // our agent's default
	birdProtocol  = protocol{"12", "bird"} // RTPROT_BIRD, linux/rtnetlink.h
)

func (k *kernelFIB) name() string { return "Linux kernel" }

func (k *kernelFIB) portMAC() net.HardwareAddr { return gatewayMAC }

// addWorkload adds the route that Felix would: directly to the device, metric 1024 since Calico 3.32.
func (k *kernelFIB) addWorkload(ctx context.Context, host netip.Prefix, p port) error {
	if err := k.ns.FillChecksums(p.outside); err != nil {
		return err
	}
	if err := k.ns.AddNeighbour(p.outside, host.Addr(), p.mac); err != nil {
		return err
	}
	return k.route(ctx, "add", host, p)
}

func (k *kernelFIB) removeWorkload(ctx context.Context, host netip.Prefix, p port) error {
	return k.route(ctx, "del", host, p)
}

func (k *kernelFIB) route(ctx context.Context, verb string, host netip.Prefix, p port) error {
	_, err := k.ns.Run(ctx, "ip", "route", verb, host.String(), "dev", p.outside, "scope", "link", "proto", "boot", "metric", "1024")
	return err
}

func (k *kernelFIB) learned(ctx context.Context) (map[netip.Prefix]entry, error) {
	return k.routes(ctx, "proto", k.protocol.number)
}

func (k *kernelFIB) lookup(ctx context.Context, p netip.Prefix) (entry, bool, error) {
	found, err := k.routes(ctx, "exact", p.String(), "proto", k.protocol.number)
	e, ok := found[p]
	return e, ok, err
}

// kernelRoute is what `ip -json route` prints of a route.
type kernelRoute struct {
	Type    string `json:"type"`
	Dst     string `json:"dst"`
	Gateway string `json:"gateway"`
	Dev     string `json:"dev"`
}

func (k *kernelFIB) routes(ctx context.Context, selector ...string) (map[netip.Prefix]entry, error) {
	out, err := k.ns.Run(ctx, "ip", append([]string{"-json", "-4", "route", "show"}, selector...)...)
	if err != nil {
		return nil, err
	}
	return k.parse(out)
}

func (k *kernelFIB) parse(out []byte) (map[netip.Prefix]entry, error) {
	var listed []kernelRoute
	if err := json.Unmarshal(out, &listed); err != nil {
		return nil, fmt.Errorf("ip route: %w", err)
	}
	found := map[netip.Prefix]entry{}
	for _, r := range listed {
		p, err := parseDst(r.Dst)
		if err != nil {
			return nil, fmt.Errorf("ip route: %w", err)
		}
		e := entry{where: fmt.Sprintf("kernel, proto %s, %s", k.protocol.name, cmp.Or(r.Type, "dev "+r.Dev))}
		if r.Gateway != "" {
			if e.nextHop, err = netip.ParseAddr(r.Gateway); err != nil {
				return nil, fmt.Errorf("ip route: %w", err)
			}
		}
		found[p] = e
	}
	return found, nil
}

// parseDst reads a destination as iproute2 prints it: without a length it is one address.
func parseDst(s string) (netip.Prefix, error) {
	if s == "default" {
		s = "0.0.0.0/0"
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(s)
}

func (k *kernelFIB) command() string {
	return fmt.Sprintf("ip netns exec %s ip route show proto %s", k.ns.Name(), k.protocol.name)
}
