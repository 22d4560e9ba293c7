package gobgp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	api "github.com/osrg/gobgp/v3/api"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"vpp-route-agent/bgp"
)

// six is the image of an IPv4 address in IPv6; order and containment are the same there.
func six(a netip.Addr) netip.Addr {
	b := pfx("2001:db8::/96").Addr().As16()
	four := a.As4()
	copy(b[12:], four[:])
	return netip.AddrFrom16(b)
}

func sixPrefix(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(six(p.Addr()), p.Bits()+96) }

func sixPrefixes(all []netip.Prefix) (out []netip.Prefix) {
	for _, p := range all {
		out = append(out, sixPrefix(p))
	}
	return out
}

func sixRules(rules []bgp.Rule) (out []bgp.Rule) {
	for _, r := range rules {
		if r.Match.Prefix.IsValid() {
			r.Match.Prefix, r.Match.Min, r.Match.Max = sixPrefix(r.Match.Prefix), r.Match.Min+96, r.Match.Max+96
		}
		out = append(out, r)
	}
	return out
}

// sixPlan is a plan with all of it moved from IPv4 to IPv6.
func sixPlan(p bgp.Plan) bgp.Plan {
	p.Peers = slices.Clone(p.Peers)
	for i := range p.Peers {
		p.Peers[i].Address, p.Peers[i].LocalAddress = six(p.Peers[i].Address), six(p.Peers[i].LocalAddress)
	}
	pass := &p.Policies
	pass.NoExport, pass.OwnBlocks, pass.ExportPools = sixPrefixes(pass.NoExport), sixPrefixes(pass.OwnBlocks), sixPrefixes(pass.ExportPools)
	pass.Services, pass.ReflectedServices, pass.Elevated = sixPrefixes(pass.Services), sixPrefixes(pass.ReflectedServices), sixPrefixes(pass.Elevated)
	pass.Advertisements = slices.Clone(pass.Advertisements)
	for i := range pass.Advertisements {
		pass.Advertisements[i].Prefix = sixPrefix(pass.Advertisements[i].Prefix)
	}
	filters := map[string]bgp.Filter{}
	for name, f := range pass.Filters {
		filters[name] = bgp.Filter{Export6: sixRules(f.Export4), Import6: sixRules(f.Import4)}
	}
	pass.Filters = filters
	return p
}

// sixRequest is what GoBGP is told, moved in the same way.
func sixRequest(r *api.SetPoliciesRequest) {
	name := func(s string) string { return strings.ReplaceAll(s, "-ipv4", "-ipv6") }
	host := func(text string) string { return sixPrefix(pfx(text)).String() }
	for _, d := range r.DefinedSets {
		d.Name = name(d.Name)
		for _, p := range d.Prefixes {
			p.IpPrefix, p.MaskLengthMin, p.MaskLengthMax = host(p.IpPrefix), p.MaskLengthMin+96, p.MaskLengthMax+96
		}
		if d.DefinedType == api.DefinedType_NEIGHBOR {
			for i := range d.List {
				d.List[i] = host(d.List[i])
			}
		}
	}
	for _, p := range r.Policies {
		for _, s := range p.Statements {
			c := s.Conditions
			if c.PrefixSet != nil {
				c.PrefixSet.Name = name(c.PrefixSet.Name)
			}
			if c.AfiSafiIn != nil {
				c.AfiSafiIn = []*api.Family{ipv6Unicast}
			}
			for i, hop := range c.NextHopInList {
				c.NextHopInList[i] = six(addr(hop)).String()
			}
		}
	}
}

// IPv6 is treated as IPv4: a plan that is moved there gives GoBGP's policies moved there. So what TestAgreesWithTheEvaluator finds out about IPv4, on the
// wire, holds for both.
func TestBothFamiliesAreTreatedAlike(t *testing.T) {
	prefixes := []netip.Prefix{pfx("0.0.0.0/0"), pfx("10.0.0.0/8"), pfx("10.1.0.0/16"), pfx("10.1.0.0/26"), pfx("10.1.0.9/32"), pfx("10.2.0.0/24")}
	statements := 0
	rapid.Check(t, func(t *rapid.T) {
		n := &node{as: 64512, addr: addr("127.0.0.1")}
		for i, as := range []uint32{64512, 64512, 65001, 65002} {
			n.plan.Peers = append(n.plan.Peers, bgp.Peer{
				Address: netip.AddrFrom4([4]byte{127, 0, 0, byte(10 + i)}), RemoteAS: as, LocalAS: 64512, LocalAddress: n.addr,
			})
		}
		n.plan.Speaker.AS = 64512
		drawPolicies(t, n, prefixes)
		n.plan.Policies.Elevated = rapid.SampledFrom([][]netip.Prefix{nil, {pfx("10.1.0.9/32")}}).Draw(t, "elevated")
		requestOf := func(p bgp.Plan) *api.SetPoliciesRequest {
			pol := policyOf(p, numbers{})
			pol.pass.Elevated = p.Policies.Elevated
			var c classes
			pol.classes = c.assign(pol.peerList, pol.pass, func(netip.Addr) bool { return false }, false)
			return pol.api()
		}
		got, want := requestOf(sixPlan(n.plan)), requestOf(n.plan)
		sixRequest(want)
		if !proto.Equal(got, want) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
		statements += len(got.Policies[0].Statements)
	})
	if statements < 500 {
		t.Errorf("only %d statements were compared", statements)
	}
}
