package calico

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

func TestBlocksAround(t *testing.T) {
	pool := func(cidr string, size int) IPPool { return IPPool{CIDR: pfx(cidr), BlockSize: size} }
	s := &Snapshot{IPPools: map[string]IPPool{
		"a": pool("10.1.0.0/16", 26), "b": pool("10.0.0.0/8", 26), "c": pool("10.1.2.0/28", 26),
		"d": pool("fd00::/64", 122),
	}}
	for p, want := range map[string]string{
		"10.1.2.3/32": "[10.1.2.0/26 10.1.2.0/28]", "10.1.2.0/27": "[10.1.2.0/26]",
		"10.1.2.0/25": "[]", "192.0.2.1/32": "[]", "fd00::41/128": "[fd00::40/122]",
	} {
		got := s.BlocksAround(pfx(p))
		slices.SortFunc(got, netip.Prefix.Compare)
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", p, got, want)
		}
	}
}
