package testcluster

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"vpp-route-agent/internal/calico/calicotest"
)

// confdName is how confd names the protocols that calico-node shows.
var confdName = regexp.MustCompile(`^(Global|Node|Mesh)_(.+)$`)

// What calico-node reads of a line of "show route" (node/pkg/status/populators/route.go).
var (
	routeVia   = regexp.MustCompile(`^(\S*)\s*via\s(\S*)\son\s(\S*)\s\[(\S*)\s.*\]`)
	routeOther = regexp.MustCompile(`^(\S*)\s*(dev|blackhole|unreachable)\s` +
		`(?:(\S*)\s)?\[(\S*)\s.*\]`)
)

// Tables are what calico-node reads of this BIRD for a CalicoNodeStatus. The BIRD of the other
// family runs, too, and has nothing.
func (b *Bird) Tables(ctx context.Context, ipv6 bool) (peers []calicotest.NodePeer,
	routes []calicotest.NodeRoute, err error) {
	if ipv6 != b.ipv6 { // Follow may change Config meanwhile
		return nil, nil, nil
	}
	separator := "."
	if ipv6 {
		separator = ":"
	}
	if peers, err = b.nodePeers(ctx); err != nil {
		return nil, nil, err
	}
	lines, err := b.Command(ctx, "show route")
	if err != nil {
		return nil, nil, err
	}
	routes, err = nodeRoutes(lines, separator)
	return peers, routes, err
}

func (b *Bird) nodePeers(ctx context.Context) (all []calicotest.NodePeer, err error) {
	protocols, err := b.Protocols(ctx)
	if err != nil {
		return nil, err
	}
	types := map[string]string{"Mesh": "NodeMesh", "Node": "NodePeer", "Global": "GlobalPeer"}
	for _, p := range protocols {
		name := confdName.FindStringSubmatch(p.Name)
		if p.Kind != "BGP" || name == nil {
			continue
		}
		details, err := b.Command(ctx, "show protocols all "+p.Name)
		if err != nil {
			return nil, err
		}
		n := calicotest.NodePeer{Type: types[name[1]], Since: p.Since}
		for _, line := range details {
			if state, ok := strings.CutPrefix(strings.TrimSpace(line), "BGP state:"); ok {
				n.State = strings.TrimSpace(state)
			}
			if a, ok := strings.CutPrefix(strings.TrimSpace(line), "Neighbor address:"); ok {
				n.PeerIP = strings.TrimSpace(a)
			}
		}
		if !slices.Contains([]string{"Idle", "Connect", "Active", "OpenSent", "OpenConfirm",
			"Established", "Close"}, n.State) {
			n.State = "" // such as "Passive"
		}
		all = append(all, n)
	}
	return all, nil
}

// nodeRoutes reads "show route". A protocol of another name than confd's fails it.
func nodeRoutes(lines []string, separator string) (all []calicotest.NodeRoute, err error) {
	last := ""
	for _, line := range lines {
		r := calicotest.NodeRoute{Type: "RIB", Gateway: "N/A"}
		from := ""
		if m := routeVia.FindStringSubmatch(line); m != nil {
			r.Destination, r.Gateway, r.Interface, from = m[1], m[2], m[3], m[4]
		} else if m := routeOther.FindStringSubmatch(line); m != nil {
			r.Destination, r.Interface, from = m[1], m[3], m[4]
			if m[2] != "dev" {
				r.Interface = m[2]
			}
		} else {
			continue
		}
		if r.Destination == "" {
			r.Destination = last
		}
		last = r.Destination
		if strings.Contains(line, "] *") {
			r.Type = "FIB"
		}
		source, isOwn := "", false
		for prefix, name := range map[string]string{
			"kernel": "Kernel", "static": "Static", "direct": "Direct",
			"own_blocks": "Static", // BirdConfig's; confd gives it no name
		} {
			if strings.HasPrefix(from, prefix) {
				source, isOwn = name, true
			}
		}
		switch name := confdName.FindStringSubmatch(from); {
		case isOwn:
			r.LearnedFrom.SourceType = source
		case name == nil:
			return nil, fmt.Errorf("session name '%s' is not a correct format", from)
		default:
			r.LearnedFrom.SourceType = "BGPPeer"
			if name[1] == "Mesh" {
				r.LearnedFrom.SourceType = "NodeMesh"
			}
			r.LearnedFrom.PeerIP = strings.ReplaceAll(name[2], "_", separator)
		}
		all = append(all, r)
	}
	return all, nil
}

func sortPrefixes(all []netip.Prefix) { slices.SortFunc(all, netip.Prefix.Compare) }
