package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/calico"
)

func TestParseCommunity(t *testing.T) {
	for text, want := range map[string]Community{
		"64512:77":       {Global: 64512, Data1: 77},
		"65535:65535":    {Global: 65535, Data1: 65535},
		"4200000000:0:1": {Large: true, Global: 4200000000, Data2: 1},
		"0:0:4294967295": {Large: true, Data2: 4294967295},
		"4294967295:1:1": {Large: true, Global: 4294967295, Data1: 1, Data2: 1},
	} {
		c, err := ParseCommunity(text)
		if err != nil || c != want || c.String() != text {
			t.Errorf("%s: %+v %v", text, c, err)
		}
	}
	for _, text := range []string{
		"", "1", "65536:1", "1:2:3:4", "-1:2", "a:b", "1:4294967296:1", ":", "1: 2",
	} {
		if c, err := ParseCommunity(text); err == nil {
			t.Errorf("%q is taken for %v", text, c)
		}
	}
}

func intp(i int) *int { return &i }

// One rule, and the prefixes among a few that it matches.
func TestMatchPrefix(t *testing.T) {
	universe := []string{
		"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "11.0.0.0/8",
	}
	length := func(min, max *int) *lengthRange { return &lengthRange{Min: min, Max: max} }
	for _, tc := range []struct {
		rule   calico.BGPFilterRule
		want   string
		remark string
	}{
		{filterRule{}, "0.0.0.0/0 10.0.0.0/8 10.1.0.0/16 10.1.2.0/24 10.1.2.3/32 11.0.0.0/8", ""},
		// calicoctl refuses these, an API server does not; confd looks at both beside cidr alone.
		{filterRule{MatchOperator: "NotIn"},
			"0.0.0.0/0 10.0.0.0/8 10.1.0.0/16 10.1.2.0/24 10.1.2.3/32 11.0.0.0/8",
			"matchOperator without cidr has no effect"},
		{filterRule{PrefixLength: length(intp(8), intp(8))},
			"0.0.0.0/0 10.0.0.0/8 10.1.0.0/16 10.1.2.0/24 10.1.2.3/32 11.0.0.0/8",
			"prefixLength without cidr has no effect"},
		{filterRule{CIDR: "10.0.0.0/8", MatchOperator: "In"},
			"10.0.0.0/8 10.1.0.0/16 10.1.2.0/24 10.1.2.3/32", ""},
		{filterRule{CIDR: "10.0.0.0/8", MatchOperator: "NotIn"}, "0.0.0.0/0 11.0.0.0/8", ""},
		{filterRule{CIDR: "10.1.0.0/16", MatchOperator: "Equal"}, "10.1.0.0/16", ""},
		{filterRule{CIDR: "10.1.0.0/16", MatchOperator: "NotEqual"},
			"0.0.0.0/0 10.0.0.0/8 10.1.2.0/24 10.1.2.3/32 11.0.0.0/8", ""},
		{filterRule{CIDR: "0.0.0.0/0", MatchOperator: "Equal"}, "0.0.0.0/0", ""},
		{filterRule{CIDR: "10.0.0.0/8", MatchOperator: "In",
			PrefixLength: length(intp(16), intp(24))},
			"10.1.0.0/16 10.1.2.0/24", ""},
		{filterRule{CIDR: "10.0.0.0/8", MatchOperator: "In", PrefixLength: length(intp(0), nil)},
			"10.0.0.0/8 10.1.0.0/16 10.1.2.0/24 10.1.2.3/32", ""},
		{filterRule{CIDR: "10.0.0.0/8", MatchOperator: "In", PrefixLength: length(nil, intp(8))},
			"10.0.0.0/8", ""},
		{filterRule{CIDR: "10.0.0.0/8", MatchOperator: "NotIn",
			PrefixLength: length(intp(32), nil)},
			"0.0.0.0/0 10.0.0.0/8 10.1.0.0/16 10.1.2.0/24 11.0.0.0/8", ""},
		{filterRule{CIDR: "10.0.0.0/8", MatchOperator: "In",
			PrefixLength: length(intp(20), intp(18))},
			"", "no prefix length is inside 10.0.0.0/8 and prefixLength"},
		{filterRule{CIDR: "10.1.0.0/16", MatchOperator: "Equal",
			PrefixLength: length(intp(16), nil)},
			"", "prefixLength with Equal matches no route"},
		{filterRule{CIDR: "10.1.0.0/16", MatchOperator: "NotEqual",
			PrefixLength: length(intp(16), nil)},
			"0.0.0.0/0 10.0.0.0/8 10.1.0.0/16 10.1.2.0/24 10.1.2.3/32 11.0.0.0/8",
			"prefixLength with NotEqual matches every route"},
		{filterRule{CIDR: "10.1.2.3", MatchOperator: "Equal"}, "",
			"cidr 10.1.2.3 has no length, and Equal matches no route"},
		{filterRule{CIDR: "10.1.2.3", MatchOperator: "NotEqual"},
			"0.0.0.0/0 10.0.0.0/8 10.1.0.0/16 10.1.2.0/24 10.1.2.3/32 11.0.0.0/8",
			"cidr 10.1.2.3 has no length, and NotEqual matches every route"},
	} {
		tc.rule.Action = "Accept"
		r, remark, err := readRule(tc.rule, ipv4)
		if err != nil {
			t.Errorf("%+v: %v", tc.rule, err)
			continue
		}
		var got []string
		for _, p := range universe {
			if r.Match.holds(Route{Prefix: pfx(p)}, ibgp("172.30.8.1")) {
				got = append(got, p)
			}
		}
		if text := strings.Join(got, " "); text != tc.want || remark != tc.remark {
			t.Errorf("%s %s %v: got %s, want %s; remark %q", tc.rule.CIDR, tc.rule.MatchOperator,
				tc.rule.PrefixLength, text, tc.want, remark)
		}
	}
}

// An address cannot be asked for what is inside it: BIRD then rejects whatever comes to the rule.
func TestInsideAnAddress(t *testing.T) {
	for _, operator := range []string{"In", "NotIn"} {
		for _, action := range []string{"Accept", "Reject"} {
			f, problems := readFilter(calico.BGPFilter{Name: "f", ExportV6: []filterRule{
				{CIDR: "fd00::1", MatchOperator: operator, PeerType: "eBGP", Priority: 5,
					Action: action, Operations: []filterOperation{{SetPriority: 7}}},
			}})
			want := "BGPFilter(f): exportV6[0]: cidr fd00::1 has no length, and with " + operator +
				" every route that comes to the rule is rejected"
			if got := problemsText(problems); got != want || f.Unsafe6 != "" {
				t.Errorf("%s %s: %s\nwant %s; unsafe %q", operator, action, got, want, f.Unsafe6)
			}
			if got := fmt.Sprint(f.Export6); got != "[reject if eBGP]" {
				t.Errorf("%s %s: %s", operator, action, got)
			}
		}
	}
}

// BIRD asks for the prefix first, and comes to no interface.
func TestInsideAnAddressOnNoInterface(t *testing.T) {
	f, _ := readFilter(calico.BGPFilter{Name: "f", ImportV4: []filterRule{{CIDR: "10.0.0.1",
		MatchOperator: "In", Interface: "eth**", Action: "Accept"}}})
	if got := fmt.Sprint(f.Import4); got != "[reject]" {
		t.Error(got)
	}
}

// A pattern that matches no interface is named, and the rules behind it go on.
func TestInterfaceOfNoRoute(t *testing.T) {
	for _, action := range []string{"Accept", "Reject"} {
		f, problems := readFilter(calico.BGPFilter{Name: "f", ImportV6: []filterRule{
			{Interface: "eth**", Communities: []string{"1:2"}, Action: action},
		}})
		want := `BGPFilter(f): importV6[0]: interface "eth**" matches no route`
		if got := problemsText(problems); got != want || f.Unsafe6 != "" {
			t.Errorf("%s: got %q, want %q; unsafe %q", action, got, want, f.Unsafe6)
		}
		r := Route{Prefix: pfx("::/0"), Interface: "eth0",
			Communities: []Community{{Global: 1, Data1: 2}}}
		if len(f.Import6) != 1 || f.Import6[0].Match.holds(r, ibgp("fd77::1")) {
			t.Errorf("%s: %v", action, f.Import6)
		}
	}
}

func TestMatchOthers(t *testing.T) {
	in, out := ibgp("172.30.8.1"), ebgp("172.30.9.1")
	c := Community{Global: 64512, Data1: 7}
	large := Community{Large: true, Global: 1, Data1: 2, Data2: 3}
	for _, tc := range []struct {
		name string
		rule calico.BGPFilterRule
		r    Route
		peer Peer
		want bool
	}{
		{"own route, RemotePeers", filterRule{Source: "RemotePeers"}, Route{}, in, false},
		{"learned route, RemotePeers", filterRule{Source: "RemotePeers"},
			Route{From: &in}, out, true},
		{"interface by pattern", filterRule{Interface: "cali*"},
			Route{Interface: "cali12"}, in, true},
		{"another interface", filterRule{Interface: "cali*"}, Route{Interface: "tunl0"}, in, false},
		{"a route without interface", filterRule{Interface: "cali*"}, Route{}, in, false},
		{"a route without interface, any interface", filterRule{Interface: "*"}, Route{}, in, true},
		{"a learned route, any interface", filterRule{Interface: "*"},
			Route{From: &in}, out, true},
		{"two asterisks", filterRule{Interface: "**"}, Route{}, in, false},
		{"two asterisks in a name", filterRule{Interface: "ca**", CIDR: "10.0.0.0/8",
			MatchOperator: "NotIn"}, Route{Prefix: pfx("11.0.0.0/8"), Interface: "cali12"}, in,
			false},
		{"a learned route, two asterisks", filterRule{Interface: "**"},
			Route{From: &in}, out, false},
		{"an asterisk and a question mark", filterRule{Interface: "cali*?"},
			Route{Interface: "cali12"}, in, false},
		{"one character of none", filterRule{Interface: "?*"}, Route{}, in, false},
		{"one character", filterRule{Interface: "eth?"}, Route{Interface: "eth0"}, in, true},
		{"eBGP", filterRule{PeerType: "eBGP"}, Route{}, out, true},
		{"eBGP asked of iBGP", filterRule{PeerType: "eBGP"}, Route{}, in, false},
		{"iBGP", filterRule{PeerType: "iBGP"}, Route{}, in, true},
		{"community", filterRule{Communities: []string{"64512:7"}},
			Route{Communities: []Community{large, c}}, in, true},
		{"large community", filterRule{Communities: []string{"1:2:3"}},
			Route{Communities: []Community{large}}, in, true},
		{"another community", filterRule{Communities: []string{"64512:8"}},
			Route{Communities: []Community{c}}, in, false},
		{"path prefix", filterRule{ASPathPrefix: []uint32{1, 2}},
			Route{ASPath: []uint32{1, 2, 3}}, in, true},
		{"path too short", filterRule{ASPathPrefix: []uint32{1, 2}},
			Route{ASPath: []uint32{1}}, in, false},
		{"path in the middle", filterRule{ASPathPrefix: []uint32{2}},
			Route{ASPath: []uint32{1, 2}}, in, false},
		{"one of an AS_SET", filterRule{ASPathPrefix: []uint32{1, 3}},
			Route{ASPath: []uint32{1, 2, 3}, ASSet: 2}, in, true},
		{"an AS_SET is one place in the path", filterRule{ASPathPrefix: []uint32{1, 2, 3}},
			Route{ASPath: []uint32{1, 2, 3}, ASSet: 2}, in, false},
		{"in front of an AS_SET", filterRule{ASPathPrefix: []uint32{2}},
			Route{ASPath: []uint32{1, 2, 3}, ASSet: 2}, in, false},
		{"priority", filterRule{Priority: 1024}, Route{LocalPref: normalPref}, in, true},
		{"another priority", filterRule{Priority: 512}, Route{LocalPref: normalPref}, in, false},
		{"LOCAL_PREF not known", filterRule{Priority: 512}, Route{}, in, false},
		{"all conditions", filterRule{PeerType: "iBGP", CIDR: "10.0.0.0/8", MatchOperator: "In"},
			Route{Prefix: pfx("11.0.0.0/8")}, in, false},
	} {
		tc.rule.Action = "Reject"
		if !tc.r.Prefix.IsValid() {
			tc.r.Prefix = pfx("10.1.0.0/26")
		}
		r, _, err := readRule(tc.rule, ipv4)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		} else if got := r.Match.holds(tc.r, tc.peer); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// That a Reject matches nothing goes before what its operations are good for.
func TestRemarkOnARejectWithOperations(t *testing.T) {
	r := filterRule{Action: "Reject", Operations: []filterOperation{{SetPriority: 9}}}
	_, of, err := readRule(r, ipv4)
	r.CIDR, r.MatchOperator = "10.1.2.3", "Equal"
	_, remark, err2 := readRule(r, ipv4)
	if err != nil || err2 != nil || of != "operations of a Reject have no effect" ||
		!strings.Contains(remark, "matches no route") {
		t.Errorf("%q, %v; %q, %v", of, err, remark, err2)
	}
}

// A route must not leave without the community that the rule adds, so the rule is not left out.
func TestOperationWithSeveralFields(t *testing.T) {
	for want, o := range map[string]filterOperation{
		"[add community 1:2]": {AddCommunity: "1:2", PrependASPath: []uint32{7}, SetPriority: 9},
		"[prepend 7]":         {PrependASPath: []uint32{7}, SetPriority: 9},
	} {
		f, problems := readFilter(calico.BGPFilter{Name: "f",
			ExportV4: []filterRule{{Action: "Accept", Operations: []filterOperation{o}}}})
		const named = "BGPFilter(f): exportV4[0]: of operations[0] the first of addCommunity, " +
			"prependASPath and setPriority counts"
		if got := problemsText(problems); got != named || len(f.Export4) != 1 {
			t.Errorf("got  %s\nwant %s; %+v", got, named, f.Export4)
		} else if got := fmt.Sprint(f.Export4[0].Operations); got != want {
			t.Errorf("%+v: got %s, want %s", o, got, want)
		}
	}
}

// What makes no sense is named and left out, and a filter that lacks a Reject is not run.
func TestBadRules(t *testing.T) {
	accept := func(r calico.BGPFilterRule) calico.BGPFilterRule { r.Action = "Accept"; return r }
	add := func(c string) []calico.BGPFilterOperation {
		return []filterOperation{{AddCommunity: c}}
	}
	for _, tc := range []struct {
		rule calico.BGPFilterRule
		want string
	}{
		{filterRule{}, `action "" is neither Accept nor Reject`},
		{accept(filterRule{CIDR: "10.0.0.0/8"}), "cidr without matchOperator"},
		{accept(filterRule{CIDR: "10.0.0.0/8", MatchOperator: "Inside"}),
			`matchOperator "Inside" is none of Equal, NotEqual, In, NotIn`},
		{accept(filterRule{CIDR: "10.0.0.1/8", MatchOperator: "In"}),
			"cidr 10.0.0.1/8 has host bits set"},
		{accept(filterRule{CIDR: "ten", MatchOperator: "In"}), `cidr "ten" is not a prefix`},
		{accept(filterRule{CIDR: "fd00::/64", MatchOperator: "In"}), "cidr fd00::/64 is not IPv4"},
		{accept(filterRule{CIDR: "fd00::1", MatchOperator: "In"}), "cidr fd00::1/128 is not IPv4"},
		{accept(filterRule{CIDR: "fe80::1%eth0", MatchOperator: "In"}),
			`cidr "fe80::1%eth0" is not a prefix`},
		{accept(filterRule{CIDR: "10.0.0.1", MatchOperator: "In", PrefixLength: &lengthRange{}}),
			`cidr "10.0.0.1" is not a prefix`}, // as confd
		{accept(filterRule{Source: "LocalPeers"}), `source "LocalPeers" is not RemotePeers`},
		{accept(filterRule{PeerType: "cBGP"}), `peerType "cBGP" is neither eBGP nor iBGP`},
		{accept(filterRule{Interface: "[a"}), `interface "[a" is not a pattern`},
		{accept(filterRule{Communities: []string{}}), "communities has no value"},
		{accept(filterRule{Communities: []string{"1:2", "1:3"}}),
			"communities has more than one value"},
		{accept(filterRule{Communities: []string{"x"}}),
			`community "x" is neither aa:nn nor aa:nn:mm`},
		{accept(filterRule{Priority: 2147483647}), "priority 2147483647 is not in 1…2147483646"},
		{accept(filterRule{Operations: add("x")}),
			`operations[0]: community "x" is neither aa:nn nor aa:nn:mm`},
		{accept(filterRule{Operations: []filterOperation{{SetPriority: -1}}}),
			"operations[0]: priority -1 is not in 1…2147483646"},
		{accept(filterRule{Operations: []filterOperation{{}}}), "operations[0] is empty"},
	} {
		good := accept(filterRule{CIDR: "10.0.0.0/8", MatchOperator: "In"})
		f, problems := readFilter(calico.BGPFilter{
			Name: "f", ImportV4: []filterRule{good, tc.rule, good},
		})
		want := "BGPFilter(f): importV4[1] is left out: " + tc.want
		if got := problemsText(problems); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		if len(f.Import4) != 2 || f.Import4[1].Name != "BGPFilter(f) importV4[2]" {
			t.Errorf("%s: the others do not go on: %+v", tc.want, f.Import4)
		}
		if unsafe := tc.rule.Action != "Accept"; (f.Unsafe4 != "") != unsafe || f.Unsafe6 != "" {
			t.Errorf("%s: unsafe %q and %q", tc.want, f.Unsafe4, f.Unsafe6)
		}
		tc.rule.Action = "Reject"
		f, _ = readFilter(calico.BGPFilter{Name: "f", ImportV4: []filterRule{tc.rule}})
		if len(f.Import4) == 0 && !strings.Contains(f.Unsafe4, "importV4[0]") {
			t.Errorf("%s: a Reject is passed over", tc.want)
		}
	}
}

func filtered(filters ...calico.BGPFilter) snapshotEdit {
	return func(s *calico.Snapshot) {
		s.BGPFilters = map[string]calico.BGPFilter{}
		for _, f := range filters {
			s.BGPFilters[f.Name] = f
		}
	}
}

// The session to a peer stays down if a Reject of its filters cannot be carried out, whoever else
// would have it.
func TestSessionsWithFilters(t *testing.T) {
	const tor = "192.0.2.1"
	rule := func(change func(*calico.BGPFilterRule)) calico.BGPFilter {
		r := filterRule{Action: "Reject"}
		change(&r)
		return calico.BGPFilter{Name: "f", ExportV4: []filterRule{r}}
	}
	in := func(f calico.BGPFilter) calico.BGPFilter {
		f.ImportV4, f.ExportV4 = f.ExportV4, nil
		return f
	}
	priority := rule(func(r *calico.BGPFilterRule) { r.Priority = 512 })
	accepting := rule(func(r *calico.BGPFilterRule) { r.Interface, r.Action = "eth0", "Accept" })
	byInterface := rule(func(r *calico.BGPFilterRule) { r.Interface = "eth0" })
	r := func(f calico.BGPFilter) calico.BGPFilterRule { return f.ExportV4[0] }
	all := filterRule{Action: "Accept"}
	behind := func(rules ...calico.BGPFilterRule) calico.BGPFilter {
		return calico.BGPFilter{Name: "f", ExportV4: rules}
	}
	beside := func(address string, as uint32) snapshotEdit {
		return func(s *calico.Snapshot) {
			s.BGPPeers["beside"] = bgpPeer{Name: "beside", PeerIP: address, ASNumber: as}
		}
	}
	and := func(changes ...snapshotEdit) snapshotEdit {
		return func(s *calico.Snapshot) {
			for _, change := range changes {
				change(s)
			}
		}
	}
	for _, tc := range []struct {
		name, peer string
		as         uint32
		filters    snapshotEdit
		up         bool
		problem    string
	}{
		{"a plain Reject", tor, 64900, filtered(rule(func(*calico.BGPFilterRule) {})), true, ""},
		{"a filter that does not exist", tor, 64900, filtered(), true,
			"BGPPeer(x): BGPFilter(f) does not exist and is passed over, as Calico does"},
		{"a filter that cannot be read", tor, 64900, func(s *calico.Snapshot) {
			s.Problems = []calico.Problem{{Resource: "BGPFilter(f)", Err: "bad"}}
		}, false,
			"BGPPeer(x): the session to 192.0.2.1 is not brought up: BGPFilter(f) cannot be read"},
		{"a Reject that makes no sense", tor, 64900,
			filtered(rule(func(r *calico.BGPFilterRule) { r.CIDR = "x" })), false,
			"BGPFilter(f): exportV4[0] is left out: cidr without matchOperator\n" +
				"BGPPeer(x): the session to 192.0.2.1 is not brought up: BGPFilter(f) " +
				"exportV4[0] cannot be carried out: cidr without matchOperator"},
		{"a Reject that makes no sense in the other family", tor, 64900,
			filtered(calico.BGPFilter{Name: "f",
				ExportV6: []filterRule{{CIDR: "x", Action: "Reject"}}}),
			true,
			"BGPFilter(f): exportV6[0] is left out: cidr without matchOperator"},
		{"priority towards the only peer", tor, 64900, filtered(priority), true, ""},
		{"priority towards eBGP beside eBGP", tor, 64900,
			and(filtered(priority), beside("192.0.2.2", 64901)), true, ""},
		{"priority towards eBGP beside iBGP", tor, 64900,
			and(filtered(priority), beside("172.30.8.10", 64512)), true, ""},
		{"priority from eBGP", tor, 64900, filtered(in(priority)), true, ""},
		{"priority towards iBGP", "172.30.8.10", 64512, filtered(priority), true, ""},
		{"priority from iBGP", "172.30.8.10", 64512, filtered(in(priority)), true, ""},
		{"an Accept of interface", tor, 64900,
			and(filtered(accepting), beside("172.30.8.10", 64512)), true,
			"BGPFilter(f): exportV4[0]: " + noInterface},
		{"interface towards the only peer", tor, 64900, filtered(accepting), true, ""},
		{"a Reject of interface in a mesh", "172.30.8.10", 64512,
			and(filtered(byInterface), beside("172.30.8.11", 64512)), true, ""},
		{"a Reject of interface beside eBGP", "172.30.8.10", 64512,
			and(filtered(byInterface), beside("192.0.2.2", 64901)), true,
			"BGPFilter(f): exportV4[0]: " + allRejected},
		{"a Reject of interface from a peer", tor, 64900, filtered(in(byInterface)), true,
			"BGPFilter(f): importV4[0]: " + allYet},
		{"an Accept of interface from a peer", tor, 64900, filtered(in(accepting)), true,
			"BGPFilter(f): importV4[0]: " + noneYet},
		{"interface behind a rule for all", tor, 64900,
			filtered(in(behind(all, r(byInterface)))), true, ""},
		{"interface behind one for all of the family", tor, 64900, filtered(in(behind(
			filterRule{CIDR: "0.0.0.0/0", MatchOperator: "In", Action: "Reject"}, r(byInterface)))),
			true, ""},
		{"interface behind one for all of this kind of peer", tor, 64900, filtered(in(behind(
			filterRule{PeerType: "eBGP", Source: "RemotePeers", Action: "Accept"},
			r(byInterface)))),
			true, ""},
		{"interface behind one for the other kind of peer", tor, 64900, filtered(in(behind(
			filterRule{PeerType: "iBGP", Action: "Accept"}, r(byInterface)))), true,
			"BGPFilter(f): importV4[1]: " + allYet},
		{"interface behind one for some", tor, 64900, filtered(in(behind(
			filterRule{CIDR: "0.0.0.0/0", MatchOperator: "Equal", Action: "Reject"},
			r(byInterface)))),
			true,
			"BGPFilter(f): importV4[1]: " + allYet},
		{"an Accept of interface behind a Reject that takes all for it", tor, 64900,
			and(filtered(behind(r(byInterface), r(accepting))), beside("172.30.8.10", 64512)), true,
			"BGPFilter(f): exportV4[0]: " + allRejected},
		{"the other way round", tor, 64900,
			and(filtered(behind(r(accepting), r(byInterface))), beside("172.30.8.10", 64512)), true,
			"BGPFilter(f): exportV4[0]: " + noInterface + "\nBGPFilter(f): exportV4[1]: " +
				allRejected},
		{"any interface", tor, 64900,
			filtered(in(rule(func(r *calico.BGPFilterRule) { r.Interface = "*" }))), true, ""},
		{"a rule for the other kind of peer", tor, 64900,
			filtered(rule(func(r *calico.BGPFilterRule) { r.PeerType, r.Priority = "iBGP", 512 })),
			true, ""},
		{"interface in a rule for the other kind of peer", tor, 64900,
			filtered(
				in(rule(func(r *calico.BGPFilterRule) {
					r.PeerType, r.Interface = "iBGP", "eth0"
				}))), true, ""},
	} {
		s := cluster(meshOff, tc.filters,
			peered(bgpPeer{Name: "x", PeerIP: tc.peer, ASNumber: tc.as, Filters: []string{"f"}}))
		plan := PlanFor("a", s, Options{})
		up := slices.ContainsFunc(plan.Peers, func(p Peer) bool { return p.Address == ip(tc.peer) })
		if got := problemsText(plan.Problems); up != tc.up || got != tc.problem {
			t.Errorf("%s: up %v, problems\n%s\nwant %v\n%s", tc.name, up, got, tc.up, tc.problem)
		}
	}
}

// What a filter lets out and nothing else would: more specific routes, pools with disableBGPExport,
// addresses outside all pools.
func TestAnnouncementsLetOut(t *testing.T) {
	f := calico.BGPFilter{
		Name: "f", ExportV4: []filterRule{{Interface: "cali1*", Action: "Accept"},
			{CIDR: "10.9.0.0/16", MatchOperator: "In", Action: "Accept"}},
	}
	s := cluster(meshOff, filtered(f), owns("10.1.0.64/26", "10.9.0.0/26"),
		pools(calico.IPPool{Name: "p", CIDR: pfx("10.1.0.0/16")},
			calico.IPPool{Name: "off", CIDR: pfx("10.9.0.0/16"), DisableBGPExport: true}),
		func(s *calico.Snapshot) {
			for i, a := range []string{"10.1.0.65", "10.1.0.66", "10.2.0.1"} {
				s.WorkloadEndpoints[a] = calico.WorkloadEndpoint{
					Node: "a", InterfaceName: fmt.Sprintf("cali%d", i),
					IPNetworks: []netip.Prefix{netip.PrefixFrom(ip(a), 32)},
				}
			}
		})
	list := func() string {
		var out []string
		for _, a := range PlanFor("a", s, Options{}).Announcements {
			text := a.Prefix.String()
			if a.OnlyByFilter {
				text += "!"
			}
			out = append(out, text)
		}
		return strings.Join(out, " ")
	}
	if got, want := list(), "10.1.0.64/26"; got != want {
		t.Errorf("without filters: %s, want %s", got, want)
	}
	peered(bgpPeer{Name: "x", PeerIP: "192.0.2.1", ASNumber: 64900, Filters: []string{"f"}})(s)
	if got, want := list(), "10.1.0.64/26 10.1.0.66/32! 10.9.0.0/26!"; got != want {
		t.Errorf("with a filter: %s, want %s", got, want)
	}
}

// BIRD's ifname of a blackhole is empty, which "*" matches (filter/filter.c, SA_IFNAME).
func TestRejectOfAnyInterfaceHoldsBlocks(t *testing.T) {
	reject := calico.BGPFilter{
		Name: "f", ExportV4: []filterRule{{Interface: "*", Action: "Reject"}},
	}
	p := PlanFor("a", cluster(meshOff, filtered(reject), owns("10.1.0.64/26"), peered(
		bgpPeer{Name: "x", PeerIP: "192.0.2.1", ASNumber: 64900, Filters: []string{"f"}},
	)), Options{})
	if v := p.Policies.Export(Route{Prefix: pfx("10.1.0.64/26")}, p.Peers[0]); v.Accept {
		t.Errorf("a block leaves: %s", v.Reason)
	}
	learned := Route{Prefix: pfx("10.1.0.0/26"), From: &p.Peers[0]}
	other := p.Peers[0]
	other.Address = ip("192.0.2.2")
	if v := p.Policies.Export(learned, other); v.Accept || v.Rule == "" {
		t.Errorf("a learned route: %+v", v)
	}
}

func TestAdvertisements(t *testing.T) {
	global := bgpConfig{
		Communities: []calico.Community{{Name: "site-a", Value: "64512:77"},
			{Name: "site-a", Value: "64512:78"}}, // the first counts, as in confd
		PrefixAdvertisements: []calico.PrefixAdvertisement{
			{CIDR: "10.1.0.0/16", Communities: []string{"site-a", "64512:1:2"}},
			{CIDR: "10.1.0.0/16", Communities: []string{"64512:77", "site-b"}},
			{CIDR: "10.1", Communities: []string{"site-a"}},
		},
	}
	s := cluster(configured(global))
	text := func() string {
		plan := PlanFor("a", s, Options{})
		return fmt.Sprint(plan.Policies.Advertisements, "\n", problemsText(plan.Problems))
	}
	want := "[{10.1.0.0/16 [64512:77 64512:1:2]}]\n" +
		`BGPConfiguration(default): prefixAdvertisements of 10.1.0.0/16: "site-b" is neither a ` +
		`community nor the name of one` + "\n" +
		`BGPConfiguration(default): prefixAdvertisements: cidr "10.1" is not a prefix`
	if got := text(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	s.BGPConfigurations["node.a"] = bgpConfig{
		PrefixAdvertisements: []calico.PrefixAdvertisement{
			{CIDR: "10.2.0.0/16", Communities: []string{"1:1", "site-a"}},
		},
	}
	want = "[{10.2.0.0/16 [1:1]}]\n" +
		`BGPConfiguration(node.a): prefixAdvertisements of 10.2.0.0/16: "site-a" is neither a ` +
		`community nor the name of one`
	if got := text(); got != want {
		t.Errorf("the node's own list: got %s\nwant %s", got, want)
	}
	s.BGPConfigurations["node.a"] = bgpConfig{
		PrefixAdvertisements: []calico.PrefixAdvertisement{},
	}
	if got := text(); got != "[]\n" {
		t.Errorf("the node's own list is empty: got %s", got)
	}
}

func TestNotProgrammed(t *testing.T) {
	s := cluster(configured(bgpConfig{
		ServiceClusterIPs:      []string{"10.96.0.0/12"},
		ServiceExternalIPs:     []string{"192.0.2.7/32", "192.0.2.64/27"},
		ServiceLoadBalancerIPs: []string{"192.0.2.128/25", "x"},
	}))
	want := "[10.96.0.0/12 192.0.2.64/27 192.0.2.128/25]"
	if got := fmt.Sprint(PlanFor("a", s, Options{}).NotProgrammed); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want = "[192.0.2.7/32 192.0.2.64/27 192.0.2.128/25]"
	if got := fmt.Sprint(PlanFor("r", s, Options{}).Policies.ReflectedServices); got != want {
		t.Errorf("a reflector passes on %s, want %s", got, want)
	}
}
