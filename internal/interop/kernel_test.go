package interop

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testcluster"
)

// kernelRoute is a route in the kernel's main table.
type kernelRoute struct {
	text   string // "10.1.0.64/26 via 10.0.0.9", or "10.1.0.0/26 blackhole"
	metric int
}

// kernel returns the routes of one family ("-4", "-6") that a protocol has put there, sorted.
func (h *host) kernel(ctx context.Context, family, protocol string) ([]kernelRoute, error) {
	routes, err := testcluster.KernelRoutes(ctx, h.NS, family, "proto", protocol)
	if err != nil {
		return nil, err
	}
	var all []kernelRoute
	for _, r := range routes {
		text := r.Prefix.String() + " " + r.Kind
		if r.Kind == "" {
			text = r.Prefix.String() + " via"
		}
		for _, hop := range r.NextHops {
			text += " " + hop.String()
		}
		all = append(all, kernelRoute{text, r.Metric})
	}
	slices.SortFunc(all, func(a, b kernelRoute) int { return strings.Compare(a.text, b.text) })
	return all, nil
}

func stripMetric(routes []kernelRoute) (texts []string) {
	for _, r := range routes {
		texts = append(texts, r.text)
	}
	return texts
}

// connections returns the established BGP connections of h with peer on either port, as "dialled"
// or "accepted".
func (h *host) connections(ctx context.Context, peer netip.Addr, port string) ([]string, error) {
	out, err := h.NS.Run(ctx, "ss", "-Htn", "state", "established", "dst",
		route.HostPrefix(peer).String(), "( sport = :"+port+" or dport = :"+port+" )")
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line) // queues, local, peer
		if len(words) < 4 {
			return nil, fmt.Errorf("ss: %q", line)
		}
		if strings.HasSuffix(words[2], ":"+port) {
			all = append(all, "accepted")
		} else {
			all = append(all, "dialled")
		}
	}
	return all, nil
}

// routeMonitor notes what changes in a kernel's routes.
type routeMonitor struct {
	*netlab.RouteMonitor
	h *host
}

// watchRoutes starts a monitor and returns when it notes every change.
func (h *host) watchRoutes(t *testing.T) *routeMonitor {
	t.Helper()
	m, err := h.lab.WatchRoutes(t.Context(), h.NS, h.name+"-monitor")
	check(t, err)
	return &routeMonitor{m, h}
}

// stop ends the monitor and returns the changes that it saw of those routes of a protocol, named as
// ip does ("114", "bird"), whose line contains a text: "Deleted 10.1.1.0/26 via 10.0.0.9".
func (m *routeMonitor) stop(t *testing.T, protocol, text string) (changes []string) {
	t.Helper()
	all, err := m.Changes(t.Context(), protocol)
	check(t, err)
	check(t, m.Stop())
	for _, line := range all {
		if strings.Contains(line, text) {
			change, _, _ := strings.Cut(line, " dev ")
			changes = append(changes, change)
		}
	}
	return changes
}
