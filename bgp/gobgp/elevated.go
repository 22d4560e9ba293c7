package gobgp

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// elevated knows which host routes inside own blocks were learned with a LOCAL_PREF above the normal one (live migrations). They are passed on,
// where others inside an own block are not. GoBGP's policies cannot ask for LOCAL_PREF, so it is read off the best paths, and the
// policies name the prefixes. Between the path and the policy lies a moment in which others still send packets for the address here, by the
// block, and those are forwarded.
//
// It has nothing where nobody is told of best paths (Config.Sink), which is where nothing is forwarded and so no block is owned.
type elevated struct {
	changed chan struct{} // of size 1: hosts is another

	mu     sync.Mutex
	blocks []netip.Prefix // own ones; empty: nothing is kept
	normal [2]uint32      // LOCAL_PREF of normal routes, of IPv4 and IPv6
	hosts  map[netip.Prefix]struct{}
	heard  map[netip.Prefix]struct{} // since a listing began; nil: there is none
}

func newElevated() *elevated {
	return &elevated{changed: make(chan struct{}, 1), hosts: map[netip.Prefix]struct{}{}}
}

// note takes the best paths of a prefix; it is called in GoBGP's order.
func (e *elevated) note(prefix netip.Prefix, paths []bgp.Path) {
	if !prefix.IsSingleIP() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.heard != nil {
		e.heard[prefix] = struct{}{}
	}
	e.set(prefix, slices.ContainsFunc(paths, func(p bgp.Path) bool { return p.LocalPref > e.normalOf(prefix) }))
}

// set is called with mu held.
func (e *elevated) set(prefix netip.Prefix, is bool) {
	is = is && slices.ContainsFunc(e.blocks, func(b netip.Prefix) bool { return b.Contains(prefix.Addr()) && b != prefix })
	if _, was := e.hosts[prefix]; is == was {
		return
	}
	if is {
		e.hosts[prefix] = struct{}{}
	} else {
		delete(e.hosts, prefix)
	}
	wake(e.changed)
}

func (e *elevated) normalOf(p netip.Prefix) uint32 {
	if p.Addr().Is4() {
		return e.normal[0]
	}
	return e.normal[1]
}

// list returns what is elevated, sorted.
func (e *elevated) list() []netip.Prefix {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.hosts) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Keys(e.hosts), route.ComparePrefixes)
}

// begin says what counts from now on, and reports whether that is something else than before. Then those in GoBGP must be listed anew, which ends with end.
func (e *elevated) begin(blocks []netip.Prefix, normal [2]uint32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Equal(e.blocks, blocks) && e.normal == normal {
		return false
	}
	e.blocks, e.normal = slices.Clone(blocks), normal
	clear(e.hosts)
	e.heard = map[netip.Prefix]struct{}{}
	return true
}

// end takes the LOCAL_PREFs that a listing found. What was heard of meanwhile is newer.
func (e *elevated) end(found map[netip.Prefix]uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for prefix, preference := range found {
		if _, newer := e.heard[prefix]; !newer {
			e.set(prefix, preference > e.normalOf(prefix))
		}
	}
	e.heard = nil
}

// forget has the next begin list anew.
func (e *elevated) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.blocks, e.heard = nil, nil
	clear(e.hosts)
}

// elevatedFor returns the host routes that p passes on though they are inside own blocks.
func (s *Speaker) elevatedFor(ctx context.Context, p policy) ([]netip.Prefix, error) {
	if !p.passes() {
		s.elevated.forget()
		return nil, nil
	}
	if s.elevated.begin(p.pass.OwnBlocks, [2]uint32{p.pass.Normal4, p.pass.Normal6}) {
		found, err := s.hostsIn(ctx, p.pass.OwnBlocks)
		if err != nil {
			s.elevated.forget()
			return nil, err
		}
		s.elevated.end(found)
	}
	return s.elevated.list(), nil
}

// hostsIn returns LOCAL_PREF of the best learned paths of host routes inside blocks.
func (s *Speaker) hostsIn(ctx context.Context, blocks []netip.Prefix) (map[netip.Prefix]uint32, error) {
	found := map[netip.Prefix]uint32{}
	for _, b := range blocks {
		req := &api.ListPathRequest{TableType: api.TableType_GLOBAL, Family: familyOf(b.Addr()), Prefixes: lookupsOf(b)}
		err := s.applied.server.ListPath(ctx, req, func(d *api.Destination) {
			for _, p := range d.Paths {
				w := pathOfAPI(p)
				if prefix, err := prefixOf(w.NLRI); err == nil && p.Best && w.Peer.IsValid() && prefix.IsSingleIP() {
					found[prefix] = attributesOf(w.Attributes).localPref
				}
			}
		})
		if err != nil {
			return nil, fmt.Errorf("gobgp: list host routes in %s: %w", b, err)
		}
	}
	return found, nil
}

// lookupsOf asks for the host routes inside block. Asked for what lies in a prefix, GoBGP builds a tree of its whole table first, so each address is asked
// for, of which Calico's blocks have at most 4096.
func lookupsOf(block netip.Prefix) (all []*api.TableLookupPrefix) {
	if block.Addr().BitLen()-block.Bits() > 12 {
		return []*api.TableLookupPrefix{{Prefix: block.String(), Type: api.TableLookupPrefix_LONGER}}
	}
	for a := block.Addr(); block.Contains(a); a = a.Next() {
		all = append(all, &api.TableLookupPrefix{Prefix: route.HostPrefix(a).String()})
	}
	return all
}

// passElevated has the policies name what is elevated now.
func (s *Speaker) passElevated(ctx context.Context) {
	if !s.applied.policySet || slices.Equal(s.elevated.list(), s.applied.policy.pass.Elevated) {
		return
	}
	if err := s.setPolicy(ctx, s.applied.policy); err != nil {
		s.log.Warn("elevated host routes inside own blocks are not passed on, or those that were are; it is tried again each second", "err", err)
	}
}
