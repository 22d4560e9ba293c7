package demo

import (
	"context"
	"net"
	"net/netip"
)

// forwarder is what a node forwards with: the kernel or VPP. The demo plays Felix and the CNI plugin on it and asks it what it holds,
// without the agent's help: what is shown is what packets meet.
type forwarder interface {
	name() string // for people: "Linux kernel", "VPP 25.10"
	// portMAC is what the kernel's end of a workload's link shall have.
	portMAC() net.HardwareAddr
	// addWorkload gives the node the route to a workload behind p.
	addWorkload(ctx context.Context, host netip.Prefix, p port) error
	removeWorkload(ctx context.Context, host netip.Prefix, p port) error
	// learned returns the routes that a BGP speaker has programmed, with drop routes, by prefix.
	learned(ctx context.Context) (map[netip.Prefix]entry, error)
	// lookup returns what the same holds for one prefix.
	lookup(ctx context.Context, p netip.Prefix) (entry, bool, error)
	// command shows a person what is programmed.
	command() string
}

// entry is a route in a data plane.
type entry struct {
	nextHop netip.Addr // invalid for a drop
	where   string     // data plane, device, and by what it is known whose it is
}
