package bgp

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

// ibgp and ebgp are peers of a node in AS 64512.
func ibgp(addr string, change ...func(*Peer)) Peer {
	p := Peer{Address: ip(addr), RemoteAS: 64512, LocalAS: 64512}
	for _, c := range change {
		c(&p)
	}
	return p
}

func ebgp(addr string, change ...func(*Peer)) Peer {
	return ibgp(addr, append([]func(*Peer){func(p *Peer) { p.RemoteAS = 65001 }}, change...)...)
}

func client(p *Peer) { p.Client = true }

func reflector(p *Peer) { p.Client, p.Reflector = true, true }

func from(p Peer) *Peer { return &p }

func TestExport(t *testing.T) {
	p := Policies{
		NoExport: []netip.Prefix{pfx("10.1.128.0/24"), pfx("10.9.0.0/16")},
		OwnBlocks: []netip.Prefix{pfx("10.1.0.64/26"), pfx("10.9.0.0/26"),
			pfx("172.16.0.0/26"), pfx("fd00:1::40/122")},
		ExportPools: []netip.Prefix{pfx("10.1.0.0/16"), pfx("10.9.4.0/24"),
			pfx("fd00:1::/64")},
		ReflectedServices: []netip.Prefix{pfx("192.0.2.0/24")},
		Normal4:           normalPref, Normal6: normalPref,
	}
	in, out := ibgp("172.30.8.1"), ebgp("172.30.9.1")
	toIn, toOut := ibgp("172.30.8.2"), ebgp("172.30.9.2", func(p *Peer) { p.RemoteAS = 65002 })
	const insideOwn = "inside own block 10.1.0.64/26, which is announced as a whole"
	for _, tc := range []struct {
		prefix string
		from   *Peer
		to     Peer
		reason string // with a "+" in front where it is exported
	}{
		{"10.1.2.0/26", &in, toIn,
			"learned over iBGP, and the peer is an iBGP peer (RFC 4271 §9.2.1)"},
		{"10.1.2.0/26", &in, in, "learned from this peer"},
		{"10.1.2.0/26", &in, toOut, "+inside pool 10.1.0.0/16"},
		{"10.1.2.0/26", &out, toIn, "+inside pool 10.1.0.0/16"},
		{"10.1.2.0/26", &out, toOut, "+inside pool 10.1.0.0/16"},
		{"10.1.2.3/32", &in, toOut, "+inside pool 10.1.0.0/16"},
		{"10.1.0.0/16", &out, toIn, "+inside pool 10.1.0.0/16"}, // equal to the pool
		{"10.0.0.0/8", &out, toIn, "outside all pools"},
		{"0.0.0.0/0", &out, toIn, "outside all pools"},
		// we are no reflector
		{"192.0.2.0/24", &in, toOut, "outside all pools"},
		// although inside 10.1.0.0/16
		{"10.1.128.0/26", &in, toOut, "inside pool 10.1.128.0/24, which has disableBGPExport"},
		// although 10.9.4.0/24 may
		{"10.9.4.0/26", &in, toOut, "inside pool 10.9.0.0/16, which has disableBGPExport"},
		{"10.1.0.64/26", &in, toOut, "+own block"}, // equal to an own block
		{"10.1.0.65/32", &in, toOut, insideOwn},
		{"10.9.0.0/26", nil, toOut, "inside pool 10.9.0.0/16, which has disableBGPExport"},
		{"172.16.0.0/26", nil, toIn, "+own block"}, // own block outside all pools
		{"172.16.0.1/32", nil, toIn,
			"inside own block 172.16.0.0/26, which is announced as a whole"},
		{"10.1.7.1/32", nil, toIn, "+inside pool 10.1.0.0/16"},
		{"fd00:1::1/128", &in, toOut, "+inside pool fd00:1::/64"},
		{"fd00:1::41/128", &in, toOut,
			"inside own block fd00:1::40/122, which is announced as a whole"},
		{"fd00:2::/64", &in, toOut, "outside all pools"},
		{"::/0", &out, toIn, "outside all pools"},
	} {
		v := p.Export(Route{Prefix: pfx(tc.prefix), From: tc.from}, tc.to)
		reason, accept := strings.CutPrefix(tc.reason, "+")
		if v.Accept != accept || v.Reason != reason {
			t.Errorf("%s → %v: got %+v, want %q", tc.prefix, tc.to.Address, v, tc.reason)
		}
	}
	elevated := Route{Prefix: pfx("10.1.0.65/32"), LocalPref: normalPref + 512}
	if v := p.Export(elevated, toIn); !v.Accept {
		t.Errorf("a migrating address inside an own block is not announced: %s", v.Reason)
	}
	elevated.From = &out
	if v := p.Export(elevated, toIn); !v.Accept {
		t.Errorf("a learned one that is elevated is not passed on: %s", v.Reason)
	}
	elevated.LocalPref = normalPref
	if v := p.Export(elevated, toIn); v.Reason != insideOwn {
		t.Errorf("a learned one that is not elevated is passed on: %+v", v)
	}
	if v := (Policies{}).Export(Route{Prefix: pfx("10.1.0.0/26"), From: &out}, toOut); v.Accept {
		t.Error("without pools a learned route is exported")
	}
}

// Every pair of roles of the two iBGP peers between which a route would go. A reflector counts as
// no client.
func TestReflection(t *testing.T) {
	pools := []netip.Prefix{pfx("10.1.0.0/16")}
	roles := []struct {
		name string
		role func(*Peer)
	}{{"client", client}, {"non-client", func(*Peer) {}}, {"reflector", reflector}}
	for _, reflects := range []bool{true, false} {
		p := Policies{
			ExportPools: pools, Reflects: reflects,
			ReflectedServices: []netip.Prefix{pfx("192.0.2.0/24")},
		}
		for _, a := range roles {
			for _, b := range roles {
				for _, prefix := range []string{"10.1.0.0/26", "192.0.2.0/28"} {
					r := Route{Prefix: pfx(prefix), From: from(ibgp("172.30.8.1", a.role))}
					want := reflects && (a.name == "client" || b.name == "client")
					if v := p.Export(r, ibgp("172.30.8.2", b.role)); v.Accept != want {
						t.Errorf("reflects %v, %s from %s to %s: %+v",
							reflects, prefix, a.name, b.name, v)
					}
				}
			}
		}
	}
}

func TestWellKnownCommunities(t *testing.T) {
	p := Policies{
		ExportPools: []netip.Prefix{pfx("10.1.0.0/16")},
		Filters:     map[string]Filter{"all": {Export4: []Rule{{Name: "r", Accept: true}}}},
	}
	filtered := func(p *Peer) { p.Filters = []string{"all"} }
	for _, tc := range []struct {
		c       Community
		in, out bool
	}{{NoAdvertise, false, false}, {NoExport, true, false}, {NoExportSubconfed, true, false},
		{Community{Global: 65001, Data1: 65281}, true, true}} {
		r := Route{Prefix: pfx("10.1.0.0/26"), From: from(ebgp("172.30.9.1")),
			Communities: []Community{tc.c}}
		if got := p.Export(r, ibgp("172.30.8.2", filtered)).Accept; got != tc.in {
			t.Errorf("%s to an iBGP peer: %v", tc.c, got)
		}
		tor := Peer{
			Address: ip("172.30.9.2"), RemoteAS: 65002, LocalAS: 64512, Filters: []string{"all"},
		}
		if got := p.Export(r, tor).Accept; got != tc.out {
			t.Errorf("%s to an eBGP peer: %v", tc.c, got)
		}
	}
}

// The literal reading of Calico's export filter, from the resources, in addresses: a prefix is
// inside another when its first and last addresses are.
type literal struct {
	noExport, own, pools, services []netip.Prefix
	announced                      []netip.Prefix // ranges of services, by every node
	felixIPIP                      bool           // programs routes of IPIP pools
	reflector                      bool
	advertised                     []Advertisement
	filters                        map[string]calico.BGPFilter
}

func span(p netip.Prefix) (first, last int) {
	first = int(p.Addr().As4()[3])
	return first, first + 1<<(32-p.Bits()) - 1
}

func within(list []netip.Prefix, p netip.Prefix) bool {
	lo, hi := span(p)
	for _, c := range list {
		if first, last := span(c); first <= lo && hi <= last {
			return true
		}
	}
	return false
}

func (l literal) export(r Route, to Peer) (accepted bool, ops []string) {
	// BGP, before any filter.
	if r.From != nil {
		if r.From.Address == to.Address {
			return false, nil
		}
		if !r.From.External() && !to.External() {
			if !l.reflector {
				return false, nil
			}
			fromClient := r.From.Client && !r.From.Reflector
			toClient := to.Client && !to.Reflector
			if !fromClient && !toClient {
				return false, nil
			}
		}
		for _, c := range r.Communities {
			if c.String() == "65535:65282" ||
				to.External() && (c.String() == "65535:65281" || c.String() == "65535:65283") {
				return false, nil
			}
		}
	}
	// Step 1: the priority that stands for LOCAL_PREF. Step 2: filters.
	path := r.ASPath
	if to.External() {
		path = append([]uint32{to.LocalAS}, path...)
	}
	for _, name := range to.Filters {
		for _, rule := range l.filters[name].ExportV4 {
			if literalMatch(rule, r, path, to) {
				if rule.Action == "Reject" {
					return false, nil
				}
				return true, literalOps(rule.Operations)
			}
		}
	}
	// Steps 3, 4, 6 to 11; 5 needs what is not here.
	if within(l.noExport, r.Prefix) {
		return false, nil
	}
	if to.RemoteAS == to.LocalAS && (strings.HasSuffix(r.Interface, ".cali") ||
		strings.HasSuffix(r.Interface, ".calico") || l.felixIPIP && r.Interface == "tunl0") {
		return false, nil
	}
	seen := map[string]bool{}
	for _, a := range l.advertised {
		if within([]netip.Prefix{a.Prefix}, r.Prefix) {
			for _, c := range a.Communities {
				if !seen[c.String()] {
					seen[c.String()] = true
					ops = append(ops, "add "+c.String())
				}
			}
		}
	}
	for _, b := range l.own {
		if b == r.Prefix {
			return true, ops
		}
	}
	if within(l.own, r.Prefix) {
		if priority := 2147483647 - int(r.LocalPref); priority < 1024 {
			return true, ops
		}
		return false, nil
	}
	if within(l.announced, r.Prefix) {
		return true, ops
	}
	if l.reflector && within(l.services, r.Prefix) {
		return true, ops
	}
	if within(l.pools, r.Prefix) {
		return true, ops
	}
	return false, nil
}

func literalMatch(rule calico.BGPFilterRule, r Route, path []uint32, peer Peer) bool {
	if rule.CIDR != "" {
		c := netip.MustParsePrefix(rule.CIDR)
		least, most := c.Bits(), 32
		if l := rule.PrefixLength; l != nil {
			if l.Min != nil && *l.Min > least {
				least = *l.Min
			}
			if l.Max != nil && *l.Max < most {
				most = *l.Max
			}
		}
		in := within([]netip.Prefix{c}, r.Prefix) && least <= r.Prefix.Bits() &&
			r.Prefix.Bits() <= most
		equal := c == r.Prefix && rule.PrefixLength == nil
		ok := map[string]bool{"In": in, "NotIn": !in, "Equal": equal,
			"NotEqual": !equal}[rule.MatchOperator]
		if !ok {
			return false
		}
	}
	if rule.Source == "RemotePeers" && r.From == nil {
		return false
	}
	// of a learned route nobody knows the interface
	unknown := r.From != nil && rule.Action == "Reject"
	if rule.Interface == "cali*" && !unknown &&
		(len(r.Interface) < 4 || r.Interface[:4] != "cali") {
		return false
	}
	if rule.PeerType == "eBGP" && peer.RemoteAS == peer.LocalAS ||
		rule.PeerType == "iBGP" && peer.RemoteAS != peer.LocalAS {
		return false
	}
	for _, want := range rule.Communities {
		found := false
		for _, c := range r.Communities {
			found = found || c.String() == want
		}
		if !found {
			return false
		}
	}
	for i, as := range rule.ASPathPrefix {
		if i >= len(path) || path[i] != as {
			return false
		}
	}
	return rule.Priority == 0 || int(r.LocalPref) == 2147483647-rule.Priority
}

func literalOps(all []calico.BGPFilterOperation) []string {
	var out []string
	for _, o := range all {
		switch {
		case o.AddCommunity != "":
			out = append(out, "add "+o.AddCommunity)
		case o.SetPriority != 0:
			out = append(out, fmt.Sprint("pref ", 2147483647-o.SetPriority))
		default:
			out = append(out, fmt.Sprint("prepend ", o.PrependASPath))
		}
	}
	return out
}

func opTexts(ops []Operation) []string {
	var out []string
	for _, o := range ops {
		switch {
		case o.Add != nil:
			out = append(out, "add "+o.Add.String())
		case o.LocalPref != 0:
			out = append(out, fmt.Sprint("pref ", o.LocalPref))
		default:
			out = append(out, fmt.Sprint("prepend ", o.Prepend))
		}
	}
	return out
}

var (
	communityTexts = rapid.SampledFrom([]string{"64512:1", "65001:2", "1:2:3"})
	someAS         = rapid.SampledFrom([]uint32{64512, 65001, 65002, 65003})
	// Eight bits of address and prefixes inside 10.0.0.0/24: few enough that random prefixes meet.
	somePrefix = rapid.Custom(func(t *rapid.T) netip.Prefix {
		last := rapid.SampledFrom([]byte{0, 64, 65, 128, 192, 255}).Draw(t, "byte")
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}),
			rapid.SampledFrom([]int{24, 25, 26, 28, 32}).Draw(t, "bits")).Masked()
	})
)

// anyRule draws a rule of the API's making, with few conditions so that it matches now and then.
func anyRule(t *rapid.T) calico.BGPFilterRule {
	r := filterRule{Action: rapid.SampledFrom([]string{"Accept", "Reject"}).Draw(t, "action")}
	for range rapid.IntRange(0, 2).Draw(t, "conditions") {
		switch rapid.IntRange(0, 8).Draw(t, "condition") {
		case 0, 1, 2:
			p := somePrefix.Draw(t, "cidr")
			r.CIDR = p.String()
			r.MatchOperator = rapid.SampledFrom([]string{"Equal", "NotEqual", "In", "NotIn"}).Draw(
				t, "operator")
			if rapid.Bool().Draw(t, "length") {
				length := rapid.Ptr(rapid.IntRange(24, 32), true)
				r.PrefixLength = &lengthRange{
					Min: length.Draw(t, "min"), Max: length.Draw(t, "max"),
				}
			}
		case 3:
			r.Source = "RemotePeers"
		case 4:
			r.Interface = "cali*"
		case 5:
			r.PeerType = rapid.SampledFrom([]string{"eBGP", "iBGP"}).Draw(t, "peerType")
		case 6:
			r.Communities = []string{communityTexts.Draw(t, "community")}
		case 7:
			r.ASPathPrefix = rapid.SliceOfN(someAS, 1, 2).Draw(t, "path")
		default:
			r.Priority = rapid.SampledFrom([]int{512, 1024, 2147483547}).Draw(t, "priority")
		}
	}
	if r.Action == "Accept" {
		for range rapid.IntRange(0, 2).Draw(t, "operations") {
			r.Operations = append(r.Operations, rapid.SampledFrom([]filterOperation{
				{AddCommunity: "64512:9"}, {AddCommunity: "9:9:9"},
				{PrependASPath: []uint32{65007, 65008}}, {SetPriority: 100},
			}).Draw(t, "operation"))
		}
	}
	return r
}

// TestExportAgainstLiteral holds Export against the literal reading.
func TestExportAgainstLiteral(t *testing.T) {
	list := rapid.SliceOfN(somePrefix, 0, 3)
	accepted, rejected := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		l := literal{
			noExport: list.Draw(t, "noExport"), own: list.Draw(t, "own"),
			pools: list.Draw(t, "pools"), services: list.Draw(t, "services"),
			announced: list.Draw(t, "announced"), reflector: rapid.Bool().Draw(t, "reflector"),
			filters: map[string]calico.BGPFilter{},
		}
		p := Policies{
			NoExport: l.noExport, OwnBlocks: l.own, ExportPools: l.pools,
			ReflectedServices: l.services, Reflects: l.reflector,
			Services: route.Disjoint(l.announced), Normal4: normalPref,
			Filters: map[string]Filter{},
			Tunnels: tunnels(bgpConfig{}),
		}
		if l.felixIPIP = rapid.Bool().Draw(t, "felixIPIP"); l.felixIPIP {
			p.Tunnels = tunnels(bgpConfig{ProgramClusterRoutes: "EnabledNoEncapOnly"})
		}
		for _, prefix := range list.Draw(t, "advertised") {
			c, err := ParseCommunity(communityTexts.Draw(t, "value"))
			if err != nil {
				t.Fatal(err)
			}
			l.advertised = append(l.advertised, Advertisement{prefix, []Community{c}})
		}
		p.Advertisements = l.advertised
		for _, name := range []string{"f", "g"} {
			f := calico.BGPFilter{Name: name}
			for range rapid.IntRange(0, 3).Draw(t, "rules") {
				f.ExportV4 = append(f.ExportV4, anyRule(t))
			}
			l.filters[name] = f
			read, _ := readFilter(f)
			if read.Unsafe4 != "" || len(read.Export4) != len(f.ExportV4) {
				t.Fatalf("a proper filter is not read: %+v %+v", f, read)
			}
			p.Filters[name] = read
		}
		peer := rapid.Custom(func(t *rapid.T) Peer {
			role := rapid.SampledFrom([]func(*Peer){client, reflector, func(*Peer) {}}).Draw(t,
				"role")
			names := rapid.SampledFrom([][]string{nil, {"f"}, {"g", "f"}, {"missing", "g"}}).Draw(t,
				"filters")
			as := someAS.Draw(t, "as")
			addr := rapid.SampledFrom([]string{"172.30.8.1", "172.30.8.2", "172.30.8.3"}).Draw(t,
				"peer")
			local := someAS.Draw(t, "local AS")
			return ibgp(addr, role, func(p *Peer) {
				p.Filters, p.RemoteAS, p.LocalAS = names, as, local
			})
		})
		r := Route{Prefix: somePrefix.Draw(t, "route")}
		if rapid.Bool().Draw(t, "learned") {
			r.From = from(peer.Draw(t, "from"))
			r.LocalPref = rapid.SampledFrom([]uint32{100, normalPref, normalPref + 512}).Draw(t,
				"pref")
			r.ASPath = rapid.SliceOfN(someAS, 0, 2).Draw(t, "path")
			wellKnown := rapid.SampledFrom([]string{"65535:65281", "65535:65282"})
			texts := rapid.SliceOfN(rapid.OneOf(communityTexts, wellKnown), 0, 2)
			for _, text := range texts.Draw(t, "communities") {
				c, _ := ParseCommunity(text)
				r.Communities = append(r.Communities, c)
			}
		} else {
			r.LocalPref = rapid.SampledFrom([]uint32{normalPref, normalPref + 512}).Draw(t, "pref")
			r.Interface = rapid.SampledFrom([]string{
				"", "cali123", "tunl0", "vxlan.calico", "wireguard.cali", "calico.0",
			}).Draw(t, "interface")
		}
		to := peer.Draw(t, "to")
		want, ops := l.export(r, to)
		got := p.Export(r, to)
		if got.Accept != want || !slices.Equal(opTexts(got.Operations), ops) || got.Reason == "" {
			t.Fatalf("%+v\nof %+v\nto %+v\nby %+v:\ngot %+v %v, want %v %v",
				r, r.From, to, l, got, opTexts(got.Operations), want, ops)
		}
		if want {
			accepted++
		} else {
			rejected++
		}
	})
	t.Logf("%d accepted, %d rejected", accepted, rejected)
	if accepted == 0 || rejected == 0 {
		t.Error("the draws are one-sided")
	}
}

// TestImportAgainstLiteral holds Import against the literal reading, local and remote AS being
// equal or not.
func TestImportAgainstLiteral(t *testing.T) {
	accepted, rejected := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		f := calico.BGPFilter{Name: "f"}
		for range rapid.IntRange(1, 3).Draw(t, "rules") {
			rule := anyRule(t)
			rule.Interface = "" // nobody knows it of a learned route, see TestSessionsWithFilters
			f.ImportV4 = append(f.ImportV4, rule)
		}
		read, _ := readFilter(f)
		from := ibgp("172.30.8.1", func(p *Peer) {
			p.RemoteAS, p.LocalAS = someAS.Draw(t, "as"), someAS.Draw(t, "local AS")
			p.Filters = []string{"f"}
		})
		r := Route{Prefix: somePrefix.Draw(t, "route"), From: &from}
		r.LocalPref = rapid.SampledFrom([]uint32{100, normalPref, normalPref + 512}).Draw(t, "pref")
		r.ASPath = rapid.SliceOfN(someAS, 0, 2).Draw(t, "path")

		want, wantOps, seen := true, []string(nil), r
		if from.RemoteAS != from.LocalAS {
			seen.LocalPref = 100
		}
		for _, rule := range f.ImportV4 {
			if literalMatch(rule, seen, seen.ASPath, from) {
				want, wantOps = rule.Action == "Accept", literalOps(rule.Operations)
				break
			}
		}
		_, got := Policies{Filters: map[string]Filter{"f": read}}.Import(r)
		if got.Accept != want || !slices.Equal(opTexts(got.Operations), wantOps) {
			t.Fatalf("%+v from %+v: got %+v, want %v %v", r, from, got, want, wantOps)
		}
		if want {
			accepted++
		} else {
			rejected++
		}
	})
	if accepted == 0 || rejected == 0 {
		t.Error("the draws are one-sided")
	}
}

func TestImport(t *testing.T) {
	filter, problems := readFilter(calico.BGPFilter{Name: "f",
		ImportV4: []filterRule{
			{CIDR: "0.0.0.0/0", MatchOperator: "Equal", Action: "Reject"},
			{
				Priority: 2147483547, PeerType: "eBGP", CIDR: "10.2.0.0/16", MatchOperator: "In",
				Action: "Accept", Operations: []filterOperation{{SetPriority: 512}},
			},
			{Communities: []string{"65001:2"}, Action: "Reject"},
			{Priority: 2147478936, Action: "Reject"},
			{
				Priority: 2147483547, Action: "Accept",
				Operations: []filterOperation{{AddCommunity: "64512:1"},
					{PrependASPath: []uint32{65001, 65009}}},
			},
		},
		ImportV6: []filterRule{{Action: "Reject"}},
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	p := Policies{Filters: map[string]Filter{"f": filter}}
	filtered := func(p *Peer) { p.Filters = []string{"f"} }
	for _, tc := range []struct {
		name, prefix string
		from         Peer
		c            []Community
		want         string
	}{
		{"rejected by prefix", "0.0.0.0/0", ebgp("172.30.9.1", filtered), nil,
			"rejected by BGPFilter(f) importV4[0]"},
		{"without filters", "0.0.0.0/0", ebgp("172.30.9.1"), nil, "[]"},
		{"eBGP counts as LOCAL_PREF 100", "10.2.1.0/24", ebgp("172.30.9.1", filtered), nil,
			"[pref 2147483135]"},
		{"the first rule decides", "10.2.1.0/24", ebgp("172.30.9.1", filtered),
			[]Community{{Global: 65001, Data1: 2}}, "[pref 2147483135]"},
		{"rejected by community", "10.3.1.0/24", ebgp("172.30.9.1", filtered),
			[]Community{{Global: 65001, Data1: 2}}, "rejected by BGPFilter(f) importV4[2]"},
		{"operations in order", "10.3.1.0/24", ebgp("172.30.9.1", filtered), nil,
			"[add 64512:1 prepend [65001 65009]]"},
		{"iBGP counts as what it says", "10.3.1.0/24", ibgp("172.30.8.1", filtered), nil,
			"rejected by BGPFilter(f) importV4[3]"},
		{"no rule matches", "10.3.1.0/24", ibgp("172.30.8.1"), nil, "[]"},
		{"the other family", "fd00::/64", ebgp("fd77::1", filtered), nil,
			"rejected by BGPFilter(f) importV6[0]"},
	} {
		_, v := p.Import(Route{
			Prefix: pfx(tc.prefix), From: &tc.from, LocalPref: 4711, Communities: tc.c,
		})
		got := v.Reason
		if v.Accept {
			got = fmt.Sprint(opTexts(v.Operations))
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// RFC 4456 §8: what went through our cluster is ignored when a client says it, and never reflected.
func TestClusterList(t *testing.T) {
	ours, other := netip.MustParseAddr("244.0.0.1"), netip.MustParseAddr("244.0.0.9")
	p := Policies{Reflects: true, ClusterID: ours,
		ExportPools: []netip.Prefix{pfx("10.0.0.0/8")}}
	client := ibgp("172.30.8.1", func(p *Peer) { p.Client = true })
	sibling, outside := ibgp("172.30.8.2"), ebgp("172.30.9.1")
	const round = "its CLUSTER_LIST has 244.0.0.1, this node's cluster: it went round (RFC 4456 §8)"
	for _, tc := range []struct {
		name           string
		from, to       Peer
		clusters       []netip.Addr
		inward, onward string // why not; "": it is accepted
	}{
		{"from a client", client, sibling, []netip.Addr{other, ours}, round, round},
		{"from a reflector of our cluster", sibling, client, []netip.Addr{ours}, "", round},
		{"and on to an eBGP peer", sibling, outside, []netip.Addr{ours}, "", ""},
		{"through another cluster", client, sibling, []netip.Addr{other}, "", ""},
		{"never reflected", client, sibling, nil, "", ""},
	} {
		r := Route{Prefix: pfx("10.1.0.0/26"), From: &tc.from, ClusterList: tc.clusters}
		_, in := p.Import(r)
		if out := p.Export(r, tc.to); in.Accept != (tc.inward == "") ||
			out.Accept != (tc.onward == "") || !in.Accept && in.Reason != tc.inward ||
			!out.Accept && out.Reason != tc.onward {
			t.Errorf("%s: import %+v, export %+v", tc.name, in, out)
		}
	}
}

func TestApply(t *testing.T) {
	c := Community{Global: 64512, Data1: 1}
	r := Route{ASPath: []uint32{65001}, Communities: []Community{c}}
	got := r.Apply([]Operation{
		{Add: &c}, {Prepend: []uint32{1, 2}}, {Add: &Community{Large: true, Global: 1}},
		{Prepend: []uint32{3}}, {LocalPref: 7},
	})
	want := Route{
		ASPath:      []uint32{3, 1, 2, 65001},
		Communities: []Community{c, {Large: true, Global: 1}}, LocalPref: 7,
	}
	if !reflect.DeepEqual(got, want) || len(r.ASPath) != 1 || len(r.Communities) != 1 {
		t.Errorf("got %+v of %+v", got, r)
	}
}
