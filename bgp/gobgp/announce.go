package gobgp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	api "github.com/osrg/gobgp/v3/api"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// announce makes the local paths equal to want, which is as byPrefix returns it, in one step. On
// the wire withdrawals come first, as with BIRD (proto/bgp/packets.c, bgp_create_update).
func (s *Speaker) announce(want []bgp.Announcement) error {
	var errs []error
	var paths []server.OwnPath
	now := make([]bgp.Announcement, 0, len(want))
	withdraw := func(a bgp.Announcement) {
		p, err := pathOf(a)
		if err != nil {
			errs = append(errs, fmt.Errorf("gobgp: withdraw %s: %w", a.Prefix, err))
			now = append(now, a)
			return
		}
		p.IsWithdraw = true
		paths = append(paths, server.OwnPath{Path: p})
	}
	had := s.applied.announced
	for _, a := range want {
		for len(had) > 0 && comparePrefixes(had[0], a) < 0 {
			withdraw(had[0])
			had = had[1:]
		}
		is := len(had) > 0 && had[0].Prefix == a.Prefix
		var was bgp.Announcement
		if is {
			was, had = had[0], had[1:]
		}
		if !is || was != a {
			if p, err := pathOf(a); err == nil {
				paths, was, is = append(paths, ownPath(p, a)), a, true
			} else {
				errs = append(errs, fmt.Errorf("gobgp: announce %s: %w", a.Prefix, err))
			}
		}
		if is {
			now = append(now, was)
		}
	}
	for _, a := range had {
		withdraw(a)
	}
	if err := s.applied.server.ChangePaths(paths); err != nil {
		return errors.Join(append(errs, fmt.Errorf("gobgp: announce: %w", err))...)
	}
	s.applied.announced = now
	s.publish(func(v *view) { v.announced = now })
	return errors.Join(errs...)
}

// ownPath is an announcement with its path. One that is being drained gives way to others.
func ownPath(p *api.Path, a bgp.Announcement) server.OwnPath {
	return server.OwnPath{Path: p, Static: a.Static && !a.GracefulShutdown}
}

// byPrefix returns a sorted copy with one announcement of a prefix, as plans have it.
func byPrefix(all []bgp.Announcement) []bgp.Announcement {
	all = slices.Clone(all)
	slices.SortFunc(all, comparePrefixes)
	return slices.CompactFunc(all, func(a, b bgp.Announcement) bool { return a.Prefix == b.Prefix })
}

func comparePrefixes(a, b bgp.Announcement) int {
	return route.ComparePrefixes(a.Prefix, b.Prefix)
}

// announcementOf returns what is announced of a prefix, of a list that is sorted.
func announcementOf(p netip.Prefix, all []bgp.Announcement) (a bgp.Announcement, ok bool) {
	i, ok := slices.BinarySearchFunc(all, bgp.Announcement{Prefix: p}, comparePrefixes)
	if ok {
		a = all[i]
	}
	return a, ok
}

// deletePath withdraws by path: with neither path nor UUID GoBGP would delete every local path,
// with a UUID it searches the table.
func (s *Speaker) deletePath(ctx context.Context, a bgp.Announcement, identifier uint32) error {
	p, err := pathOf(a)
	if err != nil {
		return err
	}
	p.Identifier = identifier
	return s.applied.server.DeletePath(ctx, &api.DeletePathRequest{
		TableType: api.TableType_GLOBAL, Path: p,
	})
}

// pathOf is an announcement as GoBGP takes it: ORIGIN IGP, empty AS_PATH, explicit NEXT_HOP,
// LOCAL_PREF (which GoBGP removes towards eBGP peers). The wire form costs GoBGP a third less than
// the protobuf one.
func pathOf(a bgp.Announcement) (*api.Path, error) {
	if p, ok := route.Normalize(a.Prefix); !ok || p != a.Prefix {
		return nil, fmt.Errorf("prefix %s has host bits or is IPv4-mapped", a.Prefix)
	}
	if !a.NextHop.IsValid() || a.NextHop.IsUnspecified() || a.NextHop.Is4In6() ||
		a.NextHop.Zone() != "" {
		return nil, fmt.Errorf("next hop %s cannot be announced", a.NextHop)
	}
	if a.NextHop.Is4() && a.Prefix.Addr().Is6() {
		return nil, fmt.Errorf("an IPv6 prefix cannot have the IPv4 next hop %s", a.NextHop)
	}
	bits, addr := uint8(a.Prefix.Bits()), a.Prefix.Addr().String()
	family, nlri := ipv6Unicast, packet.AddrPrefixInterface(packet.NewIPv6AddrPrefix(bits, addr))
	if a.Prefix.Addr().Is4() {
		family = ipv4Unicast
		nlri = packet.NewIPAddrPrefix(uint8(a.Prefix.Bits()), a.Prefix.Addr().String())
	}
	nextHop := packet.PathAttributeInterface(packet.NewPathAttributeMpReachNLRI(a.NextHop.String(),
		[]packet.AddrPrefixInterface{nlri}))
	if a.Prefix.Addr().Is4() && a.NextHop.Is4() {
		nextHop = packet.NewPathAttributeNextHop(a.NextHop.String())
	}
	p := &api.Path{Family: family}
	var err error
	if p.NlriBinary, err = nlri.Serialize(); err != nil {
		return nil, err
	}
	attrs := []packet.PathAttributeInterface{
		packet.NewPathAttributeOrigin(packet.BGP_ORIGIN_ATTR_TYPE_IGP), nextHop,
		packet.NewPathAttributeLocalPref(a.LocalPref),
	}
	if a.GracefulShutdown {
		attrs = append(attrs,
			packet.NewPathAttributeCommunities([]uint32{uint32(packet.COMMUNITY_PLANNED_SHUT)}))
	}
	for _, attr := range attrs {
		b, err := attr.Serialize()
		if err != nil {
			return nil, err
		}
		p.PattrsBinary = append(p.PattrsBinary, b)
	}
	return p, nil
}

var (
	ipv4Unicast = &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	ipv6Unicast = &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}
)

func familyOf(a netip.Addr) *api.Family {
	if a.Is4() {
		return ipv4Unicast
	}
	return ipv6Unicast
}

// Announced returns what is originated now, by prefix. It is not to be changed.
func (s *Speaker) Announced() []bgp.Announcement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.announced
}
