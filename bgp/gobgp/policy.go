package gobgp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// policy is all that GoBGP's policies are made from.
type policy struct {
	pass     bgp.Policies
	as       uint32     // our own
	peerList []bgp.Peer // by address; of each what policies ask for
	classes  []class
	numbers  numbers // shared by all policies of a Speaker

	outside              []netip.Addr // the eBGP peers, sorted
	unserved, reflectors []netip.Addr // iBGP peers that are no clients; those of them that are reflectors
	own                  []netip.Addr // our own next hops, sorted: what leads back to us is rejected
	dead                 []netip.Addr // sorted; see RejectNextHops
	// hush keeps GoBGP from asking for each iBGP peer whether it gets what another one said, and from telling all of them when that
	// is withdrawn, where no learned route goes to anybody. See importer.build.
	hush bool
	// announced are the prefixes of our own routes, sorted: of those hush makes an exception, since a path that takes the place of our own
	// must be weighed for each peer, or ours would never be withdrawn from it.
	announced []netip.Prefix
}

// policyOf keeps nothing that the owner of the plan may edit.
func policyOf(p bgp.Plan, n numbers) policy {
	pass := p.Policies
	pass.NoExport, pass.OwnBlocks, pass.ExportPools = slices.Clone(pass.NoExport), slices.Clone(pass.OwnBlocks), slices.Clone(pass.ExportPools)
	pass.Services, pass.Tunnels = slices.Clone(pass.Services), slices.Clone(pass.Tunnels)
	pass.ReflectedServices, pass.Advertisements = slices.Clone(pass.ReflectedServices), slices.Clone(pass.Advertisements)
	pass.Filters = maps.Clone(pass.Filters)
	pol := policy{pass: pass, as: p.Speaker.AS, numbers: n}
	own := slices.Clone(p.Speaker.ListenAddresses)
	for _, peer := range p.Peers {
		pol.peerList = append(pol.peerList, bgp.Peer{
			Address: peer.Address, RemoteAS: peer.RemoteAS, LocalAS: peer.LocalAS,
			NextHop: peer.NextHop, SessionNextHop: peer.SessionNextHop,
			Filters: slices.Clone(peer.Filters), Client: peer.Client, Reflector: peer.Reflector,
		})
		switch {
		case peer.External():
			pol.outside = append(pol.outside, peer.Address)
		case !peer.Served():
			pol.unserved = append(pol.unserved, peer.Address)
			if peer.Reflector {
				pol.reflectors = append(pol.reflectors, peer.Address)
			}
		}
		own = append(own, peer.LocalAddress)
	}
	for _, a := range p.Announcements {
		own = append(own, a.NextHop)
		pol.announced = append(pol.announced, a.Prefix)
	}
	pol.own, pol.outside, pol.unserved, pol.reflectors = sortedAddrs(own), sortedAddrs(pol.outside), sortedAddrs(pol.unserved), sortedAddrs(pol.reflectors)
	return pol
}

// passes reports whether any learned route may go to any peer: without eBGP peers and as no reflector, BGP itself forbids all of it.
func (p policy) passes() bool { return len(p.outside) > 0 || p.pass.Reflects }

func (p policy) equal(o policy) bool { return reflect.DeepEqual(p, o) }

// peer returns what policies know of a peer.
func (p policy) peer(addr netip.Addr) (bgp.Peer, bool) {
	i, ok := slices.BinarySearchFunc(p.peerList, addr, func(p bgp.Peer, a netip.Addr) int { return p.Address.Compare(a) })
	if !ok {
		return bgp.Peer{}, false
	}
	return p.peerList[i], true
}

// class returns the number of the class of a peer.
func (p policy) class(addr netip.Addr) uint32 {
	for _, c := range p.classes {
		if slices.Contains(c.members, addr) {
			return c.number
		}
	}
	return 0
}

// setPolicy makes GoBGP's policies equal to p and takes through them again what was received before and may fare differently now. Where
// that fails, the next call does it for all peers: some paths met the new policy meanwhile, and others did not.
func (s *Speaker) setPolicy(ctx context.Context, p policy) error {
	p.dead = s.applied.dead
	a := &s.applied
	var err error
	if p.pass.Elevated, err = s.elevatedFor(ctx, p); err != nil {
		return err
	}
	p.classes = a.classes.assign(p.peerList, p.pass, func(addr netip.Addr) bool { _, ok := a.peers[addr]; return ok }, a.policy.pass.Reflects)
	p.hush = !p.passes() && len(p.peerList) > 1 // it costs memory for each path, and a single peer has nobody to be told
	p.announced = s.everAnnounced(p)
	if a.policySet && a.policy.equal(p) && !a.behind {
		return nil
	}
	if a.policySet && p.hush && a.policy.passes() { // first what must go is withdrawn, aloud
		aloud := p
		aloud.hush = false
		if err := s.applyPolicy(ctx, aloud); err != nil {
			return err
		}
	}
	return s.applyPolicy(ctx, p)
}

// everAnnounced are the prefixes that are announced now or will be: a prefix comes in before it is announced and goes after it was withdrawn.
func (s *Speaker) everAnnounced(p policy) []netip.Prefix {
	if !p.hush {
		return nil
	}
	all := slices.AppendSeq(slices.Clone(p.announced), maps.Keys(s.applied.announced))
	slices.SortFunc(all, route.ComparePrefixes)
	return slices.Compact(all)
}

// hushes reports whether learned paths of prefix are kept from being weighed for other iBGP peers.
func (p policy) hushes(prefix netip.Prefix) bool {
	return p.hush && !slices.Contains(p.announced, prefix)
}

func (s *Speaker) applyPolicy(ctx context.Context, p policy) error {
	a := &s.applied
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
// those that a changed dead next hop concerns, and of those with a path that fares differently. Then peers to which more may go than before, or other next
// hops, are sent what they get; no mark says that. Where that failed before, all are.
func (s *Speaker) again(ctx context.Context, old, now policy, concerned []netip.Addr) error {
	var peers []netip.Addr
	for addr := range s.applied.peers {
		peers = append(peers, addr)
	}
	if len(peers) == 0 {
		return nil
	}
	if !s.applied.behind && slices.Equal(old.own, now.own) && old.hush == now.hush && !exportChanged(old, now) {
		passing, err := s.concerned(ctx, old, now)
		if err != nil {
			return err
		}
		peers = sortedAddrs(slices.Concat(concerned, passing, importChanged(old, now)))
	}
	return errors.Join(s.review(ctx, peers), s.sendAgain(ctx, old, now))
}

// sendAgain has GoBGP send all that it should have sent to the peers of which no path tells that.
func (s *Speaker) sendAgain(ctx context.Context, old, now policy) error {
	var errs []error
	for addr := range s.applied.peers {
		before, known := old.peer(addr)
		after, ok := now.peer(addr)
		becomesClient := old.pass.Reflects && now.pass.Reflects && !before.Served() && after.Served()
		otherCluster := old.pass.ClusterID != now.pass.ClusterID && now.pass.Reflects && !after.External()
		leaves := old.pass.Leaving != now.pass.Leaving && after.External()
		same := before.NextHop == after.NextHop && !becomesClient && !otherCluster && !leaves && old.class(addr) == now.class(addr)
		if !known || !ok || same && !s.applied.behind {
			continue
		}
		err := s.applied.server.ResetPeer(ctx, &api.ResetPeerRequest{Address: addr.String(), Soft: true, Direction: api.ResetPeerRequest_OUT})
		if err != nil {
			errs = append(errs, fmt.Errorf("gobgp: peer %s: send again: %w", addr, err))
		}
	}
	return errors.Join(errs...)
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

// api makes GoBGP's policies.
func (p policy) api() *api.SetPoliciesRequest {
	r := &api.SetPoliciesRequest{}
	shared := statements{sets: &r.DefinedSets, names: map[string]int{}}
	in, out := importer{shared, p}, exporter{shared, p}
	in.build()
	out.build()
	r.Policies = []*api.Policy{{Name: "import", Statements: in.all}, {Name: "export", Statements: out.all}}
	return r
}

func addrStrings(addrs []netip.Addr) []string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a.String()
	}
	return out
}
