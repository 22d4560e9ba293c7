package route

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestNormalize(t *testing.T) {
	for in, want := range map[netip.Prefix]string{
		pfx("10.0.0.0/8"):                  "10.0.0.0/8",
		pfx("10.1.2.3/8"):                  "10.0.0.0/8",
		pfx("0.0.0.0/0"):                   "0.0.0.0/0",
		pfx("10.1.2.3/32"):                 "10.1.2.3/32",
		pfx("fd00::1/64"):                  "fd00::/64",
		pfx("::/0"):                        "::/0",
		pfx("::ffff:10.1.2.3/104"):         "10.0.0.0/8",
		pfx("::ffff:10.1.2.3/128"):         "10.1.2.3/32",
		pfx("::ffff:0:0/96"):               "0.0.0.0/0",
		pfx("::ffff:10.1.2.3/95"):          "",
		pfx("::ffff:10.1.2.3/0"):           "",
		{}:                                 "",
		netip.PrefixFrom(addr("::1"), 129): "",
	} {
		got, ok := Normalize(in)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("Normalize(%s) = %s, %v; want %q", in, got, ok, want)
		}
	}
}

func TestHostPrefix(t *testing.T) {
	for in, want := range map[string]string{"10.1.2.3": "10.1.2.3/32", "fd00::1": "fd00::1/128",
		"::ffff:10.1.2.3": "10.1.2.3/32", "fe80::1%eth0": "fe80::1/128"} {
		if got := HostPrefix(addr(in)); got.String() != want {
			t.Errorf("HostPrefix(%s) = %s", in, got)
		}
	}
}

func TestCanonicalPaths(t *testing.T) {
	a, b := addr("10.0.0.1"), addr("10.0.0.2")
	for _, tc := range []struct {
		name     string
		in, want []Path
	}{
		{"none", []Path{}, nil},
		{"weight 0 is 1", []Path{{NextHop: a}}, []Path{{NextHop: a, Weight: 1}}},
		{"sorted by next hop", []Path{{NextHop: b, Weight: 1}, {NextHop: a, Weight: 1}},
			[]Path{{NextHop: a, Weight: 1}, {NextHop: b, Weight: 1}}},
		{"preference before next hop", []Path{{NextHop: a, Weight: 1, Preference: 1},
			{NextHop: b, Weight: 1}},
			[]Path{{NextHop: b, Weight: 1}, {NextHop: a, Weight: 1, Preference: 1}}},
		{"the same twice", []Path{{NextHop: a}, {NextHop: a, Weight: 1}},
			[]Path{{NextHop: a, Weight: 1}}},
		{"the heaviest of three", []Path{{NextHop: a, Weight: 2}, {NextHop: a, Weight: 9},
			{NextHop: a}}, []Path{{NextHop: a, Weight: 9}}},
		{"one next hop on two interfaces",
			[]Path{{NextHop: a, Interface: "y"}, {NextHop: a, Interface: "x"}},
			[]Path{{NextHop: a, Interface: "x", Weight: 1},
				{NextHop: a, Interface: "y", Weight: 1}}},
		{"one next hop in two tables", []Path{{NextHop: a, Table: 7}, {NextHop: a}},
			[]Path{{NextHop: a, Weight: 1}, {NextHop: a, Table: 7, Weight: 1}}},
		{"interface alone", []Path{{Interface: "x"}}, []Path{{Interface: "x", Weight: 1}}},
		{"mapped next hop and zone", []Path{{NextHop: addr("::ffff:10.0.0.1")},
			{NextHop: addr("fe80::1%x"), Interface: "x"}},
			[]Path{{NextHop: a, Weight: 1}, {NextHop: addr("fe80::1"), Interface: "x", Weight: 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := slices.Clone(tc.in)
			if got := CanonicalPaths(tc.in); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if !slices.Equal(before, tc.in) {
				t.Errorf("the input became %v", tc.in)
			}
		})
	}
}

// genPath draws from few values, so that paths coincide often.
func genPath() *rapid.Generator[Path] {
	hops := []netip.Addr{{}, addr("10.0.0.1"), addr("::ffff:10.0.0.1"), addr("10.0.0.2"),
		addr("fe80::1"), addr("fe80::1%eth0")}
	return rapid.Custom(func(t *rapid.T) Path {
		return Path{
			NextHop:    rapid.SampledFrom(hops).Draw(t, "next hop"),
			Interface:  rapid.SampledFrom([]string{"", "eth0", "eth1"}).Draw(t, "interface"),
			Table:      rapid.Uint32Range(0, 1).Draw(t, "table"),
			Preference: rapid.Uint8Range(0, 1).Draw(t, "preference"),
			Weight:     rapid.Uint8Range(0, 3).Draw(t, "weight"),
		}
	})
}

func TestCanonicalPathsIsOneFormPerSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(genPath(), 0, 8).Draw(t, "paths")
		got := CanonicalPaths(in)
		if again := CanonicalPaths(got); !slices.Equal(again, got) {
			t.Fatalf("not stable: %v, then %v", got, again)
		}
		shuffled := rapid.Permutation(in).Draw(t, "order")
		doubled := append(shuffled, in...)
		if other := CanonicalPaths(doubled); !slices.Equal(other, got) {
			t.Fatalf("order or repetition matters: %v, %v", got, other)
		}
		// Against a map: the heaviest weight of everything else.
		want := map[Path]uint8{}
		for _, p := range in {
			if p.NextHop.IsValid() {
				p.NextHop = p.NextHop.Unmap().WithZone("")
			}
			w := max(p.Weight, 1)
			p.Weight = 0
			want[p] = max(want[p], w)
		}
		if len(want) != len(got) {
			t.Fatalf("%d paths, want %d", len(got), len(want))
		}
		for i, p := range got {
			w := p.Weight
			p.Weight = 0
			if want[p] != w {
				t.Fatalf("path %v has weight %d, want %d", p, w, want[p])
			}
			if i > 0 && comparePaths(got[i-1], got[i]) >= 0 {
				t.Fatalf("not sorted: %v", got)
			}
		}
	})
}

func TestDigestTellsForwardingApart(t *testing.T) {
	a := addr("10.0.0.1")
	via := func(p ...Path) Route {
		return Route{Key: Key{Prefix: pfx("10.1.0.0/26")}, Paths: CanonicalPaths(p)}
	}
	routes := []Route{
		via(Path{NextHop: a}), via(Path{NextHop: a, Weight: 2}),
		via(Path{NextHop: a, Preference: 1}), via(Path{NextHop: a, Table: 1}),
		via(Path{NextHop: a, Interface: "eth0"}), via(Path{Interface: "eth0"}),
		via(Path{Interface: "eth01"}),
		via(Path{NextHop: a}, Path{NextHop: addr("10.0.0.2")}), via(Path{NextHop: addr("::a00:1")}),
		{Kind: Drop}, {Kind: Unreachable}, {Kind: Prohibit},
	}
	seen := map[uint64]Route{}
	for _, r := range routes {
		d := r.Digest()
		if other, ok := seen[d]; ok || d == 0 {
			t.Errorf("%s and %s have digest %x", r, other, d)
		}
		seen[d] = r
	}
	// The journal keeps digests on disk: these values may change only together with its version.
	if got := via(Path{NextHop: a, Interface: "eth0"}).Digest(); got != 0x8fe23c720ca23e08 {
		t.Errorf("digest of a route via changed to %#x", got)
	}
	if got := (Route{Kind: Drop}).Digest(); got != 0xaf63bc4c8601b62c {
		t.Errorf("digest of a drop route changed to %#x", got)
	}
}

func TestDigestAgreesWithSameForwarding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) Route {
			return Route{
				Key:    Key{Prefix: pfx("10.1.0.0/26")},
				Kind:   Kind(rapid.Uint8Range(0, 1).Draw(t, label)),
				Paths:  CanonicalPaths(rapid.SliceOfN(genPath(), 0, 2).Draw(t, label)),
				Origin: Origin(rapid.Uint8Range(0, 4).Draw(t, label)),
			}
		}
		a, b := draw("a"), draw("b")
		if a.SameForwarding(b) != (a.Digest() == b.Digest()) {
			t.Fatalf("%s and %s: same %v, digests %x %x", a, b, a.SameForwarding(b), a.Digest(),
				b.Digest())
		}
	})
}

func TestCompareKeysIsTheOrderOfPrintedTables(t *testing.T) {
	want := []Key{
		{0, false, pfx("0.0.0.0/0")}, {0, false, pfx("10.0.0.0/8")}, {0, false, pfx("10.0.0.0/26")},
		{0, false, pfx("10.0.0.64/26")},
		{0, true, pfx("10.0.0.65/32")}, {0, false, pfx("10.0.0.65/32")}, {0, false, pfx("::/0")},
		{0, false, pfx("fd00::/64")},
		{7, false, pfx("0.0.0.0/0")},
	}
	rapid.Check(t, func(t *rapid.T) {
		got := rapid.Permutation(want).Draw(t, "order")
		slices.SortFunc(got, CompareKeys)
		if !slices.Equal(got, want) {
			t.Fatal(got)
		}
	})
}

func TestStrings(t *testing.T) {
	r := Route{Key: Key{Table: 7, Prefix: pfx("10.1.0.64/26")}, Paths: CanonicalPaths([]Path{
		{NextHop: addr("10.0.0.4"), Interface: "eth0", Weight: 3},
		{NextHop: addr("10.0.0.3"), Table: 2, Preference: 1}})}
	if got := r.String(); got != "10.1.0.64/26 table 7 via 10.0.0.4 eth0 weight 3, 10.0.0.3 "+
		"table 2 preference 1" {
		t.Error(got)
	}
	if got := (Route{Key: Key{Prefix: pfx("10.1.0.1/32"), Elevated: true},
		Kind: Drop}).String(); got != "10.1.0.1/32 elevated drop" {
		t.Error(got)
	}
	if got := (Route{Key: Key{Prefix: pfx("10.1.0.0/26")},
		Kind: Drop}).String(); got != "10.1.0.0/26 drop" {
		t.Error(got)
	}
}

func TestTablesAreKnownByTheirKeys(t *testing.T) {
	for _, want := range []Table{
		{TableID{7, false}, "red"}, {TableID{1<<32 - 1, true}, "a name with blanks "},
		{TableID{1, false}, ""},
	} {
		if got, err := TableOf(want.Key()); err != nil || got != want {
			t.Errorf("%v: %v, %v", want.Key(), got, err)
		}
	}
	for _, k := range []ObjectKey{
		{}, Up{"eth0"}.Key(), {Kind: VRFTable}, {Kind: VRFTable, Name: "x IPv4 y"},
		{Kind: VRFTable, Name: "7 IPv4"},
	} {
		if got, err := TableOf(k); err == nil {
			t.Errorf("%v is %v", k, got)
		}
	}
}
