package gobgp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// policy is all that GoBGP's policies are made from.
type policy struct {
	// pass is who may pass on learned routes. It matters, and is applied, only with an eBGP peer: GoBGP itself sends nothing from
	// iBGP to iBGP (RFC 4271 §9.2.1).
	pass    bgp.Policies
	outside []netip.Addr // the eBGP peers, sorted
	own     []netip.Addr // our own next hops, sorted: what leads back to us is rejected
	dead    []netip.Addr // sorted; see RejectNextHops
}

func policyOf(p bgp.Plan) policy {
	pol := policy{pass: bgp.Policies{
		NoExport:    slices.Clone(p.Policies.NoExport),
		OwnBlocks:   slices.Clone(p.Policies.OwnBlocks),
		ExportPools: slices.Clone(p.Policies.ExportPools),
	}}
	own := slices.Clone(p.Speaker.ListenAddresses)
	for _, peer := range p.Peers {
		if peer.External() {
			pol.outside = append(pol.outside, peer.Address)
		}
		own = append(own, peer.LocalAddress)
	}
	for _, a := range p.Announcements {
		own = append(own, a.NextHop)
	}
	pol.own, pol.outside = sortedAddrs(own), sortedAddrs(pol.outside)
	return pol
}

// external reports whether there is an eBGP peer at all.
func (p policy) external() bool { return len(p.outside) > 0 }

func (p policy) equal(o policy) bool {
	return slices.Equal(p.outside, o.outside) && slices.Equal(p.own, o.own) && slices.Equal(p.dead, o.dead) &&
		slices.Equal(p.pass.NoExport, o.pass.NoExport) && slices.Equal(p.pass.OwnBlocks, o.pass.OwnBlocks) &&
		slices.Equal(p.pass.ExportPools, o.pass.ExportPools)
}

// setPolicy makes GoBGP's policies equal to p and takes through them again what was received before and may fare differently now. Where
// that fails, the next call does it for all peers: some paths met the new policy meanwhile, and others did not.
func (s *Speaker) setPolicy(ctx context.Context, p policy) error {
	p.dead = s.applied.dead
	a := &s.applied
	if a.policySet && a.policy.equal(p) && !a.behind {
		return nil
	}
	reviewed, err := s.changeDead(ctx, a.policy.dead, p.dead)
	if err != nil {
		return err
	}
	// SetPolicies exchanges all sets, statements and policies in one step; editing a set in place does not reach the statements that use it.
	if err := a.server.SetPolicies(ctx, p.api()); err != nil {
		return fmt.Errorf("gobgp: policies: %w", err)
	}
	if !a.policySet {
		// Set, never deleted: a deleted assignment rejects everything. The default action is said, too.
		for _, d := range []api.PolicyDirection{api.PolicyDirection_IMPORT, api.PolicyDirection_EXPORT} {
			if err := a.server.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
				Name: "global", Direction: d, DefaultAction: api.RouteAction_ACCEPT, Policies: []*api.Policy{{Name: policyName(d)}},
			}}); err != nil {
				return fmt.Errorf("gobgp: policy assignment: %w", err)
			}
		}
	}
	old := a.policy
	a.policy, a.policySet = p, true
	if err := s.again(ctx, old, p, reviewed()); err != nil {
		a.behind = true
		return err
	}
	a.behind = false
	return nil
}

func policyName(d api.PolicyDirection) string {
	if d == api.PolicyDirection_IMPORT {
		return "import"
	}
	return "export"
}

// again takes received paths through the import policy again: of all peers when our own next hops changed or it failed before, else of
// those that a changed dead next hop concerns, and of those with a path whose verdict about passing on changed.
func (s *Speaker) again(ctx context.Context, old, now policy, concerned []netip.Addr) error {
	var peers []netip.Addr
	for addr := range s.applied.peers {
		peers = append(peers, addr)
	}
	if len(peers) == 0 {
		return nil
	}
	if !s.applied.behind && slices.Equal(old.own, now.own) {
		passing, err := s.concerned(ctx, old, now)
		if err != nil {
			return err
		}
		peers = sortedAddrs(append(concerned, passing...))
	}
	return s.review(ctx, peers)
}

// review takes what these peers have sent through the import policy again.
func (s *Speaker) review(ctx context.Context, peers []netip.Addr) error {
	s.deadHops.screen(peers...)
	var errs []error
	for _, addr := range peers {
		if _, ok := s.applied.peers[addr]; !ok {
			continue
		}
		s.log.Debug("paths meet the import policy again", "peer", addr)
		err := s.applied.server.ResetPeer(ctx, &api.ResetPeerRequest{
			Address: addr.String(), Soft: true, Direction: api.ResetPeerRequest_IN,
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("gobgp: peer %s: policies again: %w", addr, err))
		}
	}
	return errors.Join(errs...)
}

// concerned returns the peers that sent a path which now has to be passed on and was not, or the other way. Only paths inside prefixes
// that entered or left the policy can be such; GoBGP is asked for those.
func (s *Speaker) concerned(ctx context.Context, old, now policy) ([]netip.Addr, error) {
	found := map[netip.Addr]bool{}
	for _, within := range changedPrefixes(old, now) {
		req := &api.ListPathRequest{
			TableType: api.TableType_GLOBAL,
			Family:    familyOf(within.Addr()),
			Prefixes:  []*api.TableLookupPrefix{{Prefix: within.String(), Type: api.TableLookupPrefix_LONGER}},
		}
		err := s.applied.server.ListPath(ctx, req, func(d *api.Destination) {
			for _, p := range d.Paths {
				prefix, err := prefixOf(p)
				if err != nil || old.passes(prefix) == now.passes(prefix) {
					continue
				}
				if addr, err := netip.ParseAddr(p.NeighborIp); err == nil {
					found[addr] = true
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

// passes is the verdict of the policy on a learned route: whether an eBGP peer gets it.
func (p policy) passes(prefix netip.Prefix) bool {
	if !p.external() {
		return true // not asked
	}
	ok, _ := p.pass.Export(bgp.Learned{Prefix: prefix}, true)
	return ok
}

// changedPrefixes returns what is in a list of only one of the two policies: everything, when only one of them is applied at all.
func changedPrefixes(old, now policy) []netip.Prefix {
	if old.external() != now.external() {
		return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	if !now.external() {
		return nil
	}
	var out []netip.Prefix
	for _, l := range [][2][]netip.Prefix{
		{old.pass.NoExport, now.pass.NoExport}, {old.pass.OwnBlocks, now.pass.OwnBlocks}, {old.pass.ExportPools, now.pass.ExportPools},
	} {
		for _, p := range l[0] {
			if !slices.Contains(l[1], p) {
				out = append(out, p)
			}
		}
		for _, p := range l[1] {
			if !slices.Contains(l[0], p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// Communities of RFC 1997. GoBGP does not act on them by itself.
const (
	noAdvertise       = "65535:65282" // to nobody
	noExport          = "65535:65281" // not out of the AS
	noExportSubconfed = "65535:65283" // the same where there are no confederations
)

// api makes GoBGP's policies. What may not be passed on is decided on import, by the mark NO_ADVERTISE, and export looks at the mark
// alone. That is because GoBGP never withdraws what a new export policy rejects, but it does withdraw a path that is replaced by one
// that is rejected: with the mark, a policy that becomes stricter or laxer needs a soft reset in, and nobody notices but the
// peers that lose or get a route. The mark never leaves this node.
func (p policy) api() *api.SetPoliciesRequest {
	r := &api.SetPoliciesRequest{DefinedSets: []*api.DefinedSet{
		communitySet("not-passed-on", noAdvertise), communitySet("not-outside", noExport, noExportSubconfed),
	}}
	accept := &api.Actions{RouteAction: api.RouteAction_ACCEPT}
	reject := &api.Actions{RouteAction: api.RouteAction_REJECT}
	mark := &api.Actions{
		RouteAction: api.RouteAction_ACCEPT,
		Community:   &api.CommunityAction{Type: api.CommunityAction_ADD, Communities: []string{noAdvertise}},
	}
	// Our own routes pass both policies untouched. It also keeps the next hops below away from them.
	local := &api.Statement{
		Name: "own", Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL}, Actions: accept,
	}
	in := &api.Policy{Name: "import", Statements: []*api.Statement{local}}
	if hops := append(slices.Clone(p.own), p.dead...); len(hops) > 0 { // an empty list would match everything
		in.Statements = append(in.Statements, &api.Statement{
			Name: "unusable-next-hop", Conditions: &api.Conditions{NextHopInList: addrStrings(hops)}, Actions: reject,
		})
	}
	if p.external() {
		// The order is that of bgp.Policies.Export.
		for _, list := range []struct {
			name     string
			prefixes []netip.Prefix
			longer   bool
			actions  *api.Actions
		}{
			{"no-export-pool", p.pass.NoExport, true, mark},
			{"own-block", p.pass.OwnBlocks, false, accept},
			{"inside-own-block", p.pass.OwnBlocks, true, mark},
			{"export-pool", p.pass.ExportPools, true, accept},
		} {
			for _, set := range prefixSets(list.name, list.prefixes, list.longer) {
				r.DefinedSets = append(r.DefinedSets, set)
				in.Statements = append(in.Statements, &api.Statement{
					Name: set.Name, Conditions: &api.Conditions{PrefixSet: &api.MatchSet{Name: set.Name}}, Actions: list.actions,
				})
			}
		}
		in.Statements = append(in.Statements, &api.Statement{Name: "outside-all-pools", Conditions: &api.Conditions{}, Actions: mark})
	}
	out := &api.Policy{Name: "export", Statements: []*api.Statement{
		{Name: "own-export", Conditions: local.Conditions, Actions: accept},
		{Name: "not-passed-on", Conditions: &api.Conditions{CommunitySet: &api.MatchSet{Name: "not-passed-on"}}, Actions: reject},
	}}
	if p.external() { // a neighbour set must not be empty
		r.DefinedSets = append(r.DefinedSets, neighbourSet("outside", p.outside))
		out.Statements = append(out.Statements, &api.Statement{
			Name:       "not-outside",
			Conditions: &api.Conditions{CommunitySet: &api.MatchSet{Name: "not-outside"}, NeighborSet: &api.MatchSet{Name: "outside"}},
			Actions:    reject,
		})
	}
	r.Policies = []*api.Policy{in, out}
	return r
}

func communitySet(name string, communities ...string) *api.DefinedSet {
	set := &api.DefinedSet{DefinedType: api.DefinedType_COMMUNITY, Name: name}
	for _, c := range communities {
		set.List = append(set.List, "^"+c+"$")
	}
	return set
}

func neighbourSet(name string, peers []netip.Addr) *api.DefinedSet {
	set := &api.DefinedSet{DefinedType: api.DefinedType_NEIGHBOR, Name: name}
	for _, a := range peers {
		set.List = append(set.List, route.HostPrefix(a).String())
	}
	return set
}

// prefixSets makes one set per family, because GoBGP's sets know one family only, and none where it would be empty.
func prefixSets(name string, prefixes []netip.Prefix, longer bool) []*api.DefinedSet {
	v4 := &api.DefinedSet{DefinedType: api.DefinedType_PREFIX, Name: name + "-ipv4"}
	v6 := &api.DefinedSet{DefinedType: api.DefinedType_PREFIX, Name: name + "-ipv6"}
	for _, p := range prefixes {
		set := v6
		if p.Addr().Is4() {
			set = v4
		}
		most := p.Bits()
		if longer {
			most = p.Addr().BitLen()
		}
		set.Prefixes = append(set.Prefixes, &api.Prefix{IpPrefix: p.String(), MaskLengthMin: uint32(p.Bits()), MaskLengthMax: uint32(most)})
	}
	return slices.DeleteFunc([]*api.DefinedSet{v4, v6}, func(s *api.DefinedSet) bool { return len(s.Prefixes) == 0 })
}

func addrStrings(addrs []netip.Addr) []string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a.String()
	}
	return out
}
