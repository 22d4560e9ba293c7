package gobgp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/osrg/gobgp/v3/pkg/apiutil"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/reflector"
)

// Without says, by family, what would change for the routes of other Calico nodes if only the paths
// stayed that keeps names. It looks at all paths that were accepted and changes none.
func (s *Speaker) Without(ctx context.Context, keeps reflector.Keeps) (
	ipv4, ipv6 reflector.Change, err error) {
	s.mu.Lock()
	v := s.view
	s.mu.Unlock()
	if v.server == nil {
		return ipv4, ipv6, errStopped
	}
	nodes := map[bgp.PeerID]bool{}
	for _, p := range v.peers {
		nodes[p.ID()] = p.CalicoNode != ""
	}
	// GoBGP may be blocked for as long as a hold time.
	done := make(chan [2]reflector.Change, 1)
	go func() { done <- compare(ctx, v.server, nodes, keeps) }()
	select {
	case both := <-done:
		return both[0], both[1], ctx.Err()
	case <-ctx.Done():
		return ipv4, ipv6, ctx.Err()
	}
}

func compare(ctx context.Context, srv *server.BgpServer, nodes map[bgp.PeerID]bool,
	keeps reflector.Keeps) (both [2]reflector.Change) {
	for i, address := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		c := comparison{nodes: nodes, keeps: keeps, kept: map[bgp.PeerID]bool{}}
		family := apiutil.ToRouteFamily(familyOf(address))
		srv.KnownPaths(family, func(nlri packet.AddrPrefixInterface, all []server.KnownPath) bool {
			c.add(nlri, all)
			return ctx.Err() == nil
		})
		both[i] = c.result()
	}
	return both
}

// comparison adds up what would change.
type comparison struct {
	nodes  map[bgp.PeerID]bool // the peers that are Calico nodes
	keeps  reflector.Keeps
	change reflector.Change
	single netip.Prefix // the first that would have one copy

	// of one prefix, to be used again
	now, then []known
	kept      map[bgp.PeerID]bool // peers with a path that stays
}

// known is a path that can be used.
type known struct {
	server.KnownPath
	bgp.Path
}

// maxExamples bounds the examples of a family.
const maxExamples = 3

// add compares the best paths of a prefix, all of whose paths are given, with those that would be
// best. It passes over own prefixes, and over those that no Calico node has announced.
func (c *comparison) add(nlri packet.AddrPrefixInterface, all []server.KnownPath) {
	prefix, err := prefixOf(nlri)
	if err != nil {
		return
	}
	ofNode := false
	c.now, c.then = c.now[:0], c.then[:0]
	clear(c.kept)
	for _, k := range all {
		w := k.Watched()
		if !w.Peer.IsValid() {
			return
		}
		path, err := pathFrom(prefix, w)
		if w.Withdrawn || err != nil {
			continue
		}
		ofNode = ofNode || c.nodes[path.Peer]
		c.now = append(c.now, known{k, path})
		// What graceful restart keeps may be gone in a moment.
		if path.Stale || !c.keeps(path.Peer, k.Originator(), path.NextHop) {
			continue
		}
		c.then = append(c.then, known{k, path})
		c.kept[path.Peer] = true // with ADD-PATH it may have sent several
	}
	peers := len(c.kept)
	now, then := nextHops(c.now), nextHops(c.then)
	switch {
	case !ofNode || len(now) == 0:
		return
	case len(then) == 0:
		c.change.Missing++
		c.example("%s", prefix)
		return
	case !slices.Equal(now, then):
		c.change.Changed++
		c.example("%s by %s, now by %s", prefix, join(then), join(now))
	}
	c.change.Prefixes++
	if c.change.Prefixes == 1 || peers < c.change.FewestCopies {
		c.change.FewestCopies = peers
		if peers == 1 {
			c.single = prefix
		}
	}
}

func (c *comparison) example(format string, args ...any) {
	if len(c.change.Examples) < maxExamples {
		c.change.Examples = append(c.change.Examples, fmt.Sprintf(format, args...))
	}
}

// result has an example of a prefix with one copy if nothing worse is to be said.
func (c *comparison) result() reflector.Change {
	if len(c.change.Examples) == 0 && c.single.IsValid() {
		c.example("%s, of which there is one copy", c.single)
	}
	return c.change
}

// nextHops are those of the best of paths, which come in the order of GoBGP's choice.
func nextHops(paths []known) []netip.Addr {
	if len(paths) == 0 {
		return nil
	}
	var best []bgp.Path
	for _, p := range paths {
		if p.AsGood(paths[0].KnownPath) {
			best = append(best, p.Path)
		}
	}
	var hops []netip.Addr
	for _, p := range freshOf(best) {
		hops = append(hops, p.NextHop)
	}
	slices.SortFunc(hops, netip.Addr.Compare)
	return slices.Compact(hops)
}

// join names a few next hops.
func join(hops []netip.Addr) string {
	const few = 3
	var out []string
	for _, h := range hops[:min(few, len(hops))] {
		out = append(out, h.String())
	}
	if len(hops) > few {
		out = append(out, "…")
	}
	return strings.Join(out, " ")
}
