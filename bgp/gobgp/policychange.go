package gobgp

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
)

// exportChanged reports whether filters decide differently about what any peer gets. That takes an operator, so who sent such a path is not looked up:
// it concerns everybody.
func exportChanged(old, now policy) bool {
	if !old.passes() && !now.passes() {
		return false
	}
	before := decisions(old)
	for number, d := range decisions(now) { // nobody looks at the marks of a class that has ended
		if !reflect.DeepEqual(before[number], d) {
			return true
		}
	}
	return false
}

// decisions are what the marks of classes depend on, the common verdict aside.
func decisions(p policy) map[uint32][]any {
	out := map[uint32][]any{}
	for _, c := range p.classes {
		if c.number != 0 {
			out[c.number] = []any{p.pass.Rules(c.peer, false), c.peer.External(), c.peer.LocalAS, c.nonClient, p.pass.Reflects}
		}
	}
	return out
}

// importChanged returns the peers whose routes are accepted, changed or reflected differently.
func importChanged(old, now policy) []netip.Addr {
	var out []netip.Addr
	for _, p := range now.peerList {
		before, ok := old.peer(p.Address)
		if ok && !(reflect.DeepEqual(old.pass.Rules(before, true), now.pass.Rules(p, true)) && before.External() == p.External() &&
			old.source(before) == now.source(p)) {
			out = append(out, p.Address)
		}
	}
	return out
}

// source says what routes of an iBGP peer are marked with when they may be reflected.
func (p policy) source(peer bgp.Peer) (kind struct{ reflected, served, reflector bool }) {
	if p.pass.Reflects && !peer.External() {
		kind.reflected, kind.served, kind.reflector = true, peer.Served(), peer.Reflector
	}
	return kind
}

// concerned returns the peers that sent a path whose common marks change, or that must be heard now that we announce its prefix too. Only paths inside prefixes that entered or left the policy
// can be such; GoBGP is asked for those.
func (s *Speaker) concerned(ctx context.Context, old, now policy) ([]netip.Addr, error) {
	found := map[netip.Addr]bool{}
	for _, within := range changedPrefixes(old, now) {
		req := &api.ListPathRequest{
			TableType: api.TableType_GLOBAL,
			Family:    familyOf(within.Addr()),
			Prefixes:  []*api.TableLookupPrefix{{Prefix: within.String(), Type: api.TableLookupPrefix_LONGER}},
		}
		if within.IsSingleIP() {
			req.Prefixes[0].Type = api.TableLookupPrefix_EXACT // LONGER builds a tree of the whole table
		}
		err := s.applied.server.ListPath(ctx, req, func(d *api.Destination) {
			for _, p := range d.Paths {
				w := pathOfAPI(p)
				prefix, err := prefixOf(w.NLRI)
				if err != nil || slices.Equal(old.common(prefix), now.common(prefix)) && old.hushes(prefix) == now.hushes(prefix) {
					continue
				}
				if w.Peer.IsValid() {
					found[w.Peer] = true
				}
			}
		})
		if err != nil {
			return nil, fmt.Errorf("gobgp: list paths in %s: %w", within, err)
		}
	}
	var out []netip.Addr
	for addr := range found {
		if _, ok := s.applied.peers[addr]; ok {
			out = append(out, addr)
		}
	}
	return out, nil
}

// common are the marks of a learned route that do not depend on the peer that gets it.
func (p policy) common(prefix netip.Prefix) []mark {
	if !p.passes() {
		return nil // not asked
	}
	var out []mark
	for _, a := range p.pass.Advertisements {
		if a.Covers(prefix) {
			out = append(out, p.numbers.advertisement(a))
		}
	}
	if !p.pass.Common(bgp.Route{Prefix: prefix, From: &bgp.Peer{}}).Accept {
		out = append(out, markRejected)
	}
	return out
}

// changedPrefixes returns what is in a list of only one of the two policies: everything, when only one of them passes routes on at all.
func changedPrefixes(old, now policy) []netip.Prefix {
	if old.passes() != now.passes() {
		return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	if !now.passes() {
		return onlyIn(now.announced, old.announced) // what we announce no more may be heard as before
	}
	var out []netip.Prefix
	before, after := listed(old.pass), listed(now.pass)
	for i := range before {
		out = append(out, onlyIn(before[i], after[i])...)
		out = append(out, onlyIn(after[i], before[i])...)
	}
	oldMarks, newMarks := old.advertised(), now.advertised()
	for p, m := range oldMarks {
		if newMarks[p] != m {
			out = append(out, p)
		}
	}
	for p := range newMarks {
		if _, ok := oldMarks[p]; !ok {
			out = append(out, p)
		}
	}
	return out
}

func (p policy) advertised() map[netip.Prefix]mark {
	out := map[netip.Prefix]mark{}
	for _, a := range p.pass.Advertisements {
		out[a.Prefix] = p.numbers.advertisement(a)
	}
	return out
}

func listed(p bgp.Policies) [6][]netip.Prefix {
	out := [6][]netip.Prefix{p.NoExport, p.OwnBlocks, p.ExportPools, p.Elevated, p.Services}
	if p.Reflects {
		out[5] = p.ReflectedServices
	}
	return out
}

// onlyIn returns what is in a and not in b.
func onlyIn(a, b []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range a {
		if !slices.Contains(b, p) {
			out = append(out, p)
		}
	}
	return out
}
