package bgp

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func TestExport(t *testing.T) {
	p := Policies{
		NoExport:    []netip.Prefix{pfx("10.1.128.0/24"), pfx("10.9.0.0/16")},
		OwnBlocks:   []netip.Prefix{pfx("10.1.0.64/26"), pfx("10.9.0.0/26"), pfx("172.16.0.0/26"), pfx("fd00:1::40/122")},
		ExportPools: []netip.Prefix{pfx("10.1.0.0/16"), pfx("10.9.4.0/24"), pfx("fd00:1::/64")},
	}
	const (
		fromIBGP, fromEBGP = false, true
		toIBGP, toEBGP     = false, true
	)
	for _, tc := range []struct {
		prefix   string
		from, to bool
		reason   string // "" where it is exported
	}{
		{"10.1.2.0/26", fromIBGP, toIBGP, "learned over iBGP, and the peer is an iBGP peer (RFC 4271 §9.2.1)"},
		{"10.1.2.0/26", fromIBGP, toEBGP, ""},
		{"10.1.2.0/26", fromEBGP, toIBGP, ""},
		{"10.1.2.0/26", fromEBGP, toEBGP, ""},
		{"10.1.2.3/32", fromIBGP, toEBGP, ""},
		{"10.1.0.0/16", fromEBGP, toIBGP, ""}, // equal to the pool
		{"10.0.0.0/8", fromEBGP, toIBGP, "outside all pools"},
		{"0.0.0.0/0", fromEBGP, toIBGP, "outside all pools"},
		{"192.0.2.0/24", fromIBGP, toEBGP, "outside all pools"},
		{"10.1.128.0/26", fromIBGP, toEBGP, "inside pool 10.1.128.0/24, which has disableBGPExport"}, // although inside 10.1.0.0/16
		{"10.9.4.0/26", fromIBGP, toEBGP, "inside pool 10.9.0.0/16, which has disableBGPExport"},     // although 10.9.4.0/24 may
		{"10.1.0.64/26", fromIBGP, toEBGP, ""},                                                       // equal to an own block
		{"10.1.0.65/32", fromIBGP, toEBGP, "inside own block 10.1.0.64/26, which is announced as a whole"},
		{"10.9.0.0/26", fromIBGP, toEBGP, "inside pool 10.9.0.0/16, which has disableBGPExport"},
		{"172.16.0.0/26", fromIBGP, toEBGP, ""}, // own block outside all pools
		{"172.16.0.1/32", fromIBGP, toEBGP, "inside own block 172.16.0.0/26, which is announced as a whole"},
		{"fd00:1::1/128", fromIBGP, toEBGP, ""},
		{"fd00:1::41/128", fromIBGP, toEBGP, "inside own block fd00:1::40/122, which is announced as a whole"},
		{"fd00:2::/64", fromIBGP, toEBGP, "outside all pools"},
		{"::/0", fromEBGP, toIBGP, "outside all pools"},
	} {
		ok, reason := p.Export(Learned{Prefix: pfx(tc.prefix), External: tc.from}, tc.to)
		if ok != (tc.reason == "") || reason != tc.reason {
			t.Errorf("%s, external %v → %v: got %v %q, want %q", tc.prefix, tc.from, tc.to, ok, reason, tc.reason)
		}
	}
	if ok, _ := (Policies{}).Export(Learned{Prefix: pfx("10.1.0.0/26"), External: true}, true); ok {
		t.Error("without pools a learned route is exported")
	}
}

// TestExportAgainstAddresses holds Export against the same rule said in addresses: a prefix is inside another when its first and last addresses are.
func TestExportAgainstAddresses(t *testing.T) {
	// Eight bits of address and prefixes inside 10.0.0.0/24: small enough that random prefixes meet.
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, rapid.Byte().Draw(t, "byte")}), rapid.IntRange(24, 32).Draw(t, "bits")).Masked()
	})
	list := rapid.SliceOfN(prefix, 0, 3)
	span := func(p netip.Prefix) (lo, hi int) {
		lo = int(p.Addr().As4()[3])
		return lo, lo + 1<<(32-p.Bits()) - 1
	}
	inside := func(list []netip.Prefix, p netip.Prefix) bool {
		lo, hi := span(p)
		for _, c := range list {
			if first, last := span(c); first <= lo && hi <= last {
				return true
			}
		}
		return false
	}
	rapid.Check(t, func(t *rapid.T) {
		p := Policies{NoExport: list.Draw(t, "noExport"), OwnBlocks: list.Draw(t, "own"), ExportPools: list.Draw(t, "pools")}
		r := Learned{Prefix: prefix.Draw(t, "route"), External: rapid.Bool().Draw(t, "external")}
		to := rapid.Bool().Draw(t, "to")
		equalsOwn := false
		for _, b := range p.OwnBlocks {
			equalsOwn = equalsOwn || b == r.Prefix
		}
		want := (r.External || to) && !inside(p.NoExport, r.Prefix) &&
			(equalsOwn || !inside(p.OwnBlocks, r.Prefix) && inside(p.ExportPools, r.Prefix))
		if got, reason := p.Export(r, to); got != want || got == (reason != "") {
			t.Fatalf("%+v: %+v to external %v: got %v %q, want %v", p, r, to, got, reason, want)
		}
	})
}
