package bgp

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A peer may hear another of its family, unless BGP itself forbids it.
func TestMayHearAsAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policies{Reflects: rapid.Bool().Draw(t, "reflects")}
		var peers []Peer
		for i := range rapid.IntRange(1, 4).Draw(t, "peers") {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			if rapid.Bool().Draw(t, "IPv6") {
				a = netip.AddrFrom16([16]byte{0xfd, 15: byte(i)})
			}
			peers = append(peers, Peer{Address: a, LocalAS: 1,
				RemoteAS:  rapid.Uint32Range(1, 2).Draw(t, "AS"),
				Client:    rapid.Bool().Draw(t, "client"),
				Reflector: rapid.Bool().Draw(t, "reflector")})
		}
		all := speakersOf(peers)
		for _, to := range peers {
			want := slices.ContainsFunc(peers, func(from Peer) bool {
				return from.ID() != to.ID() && from.Address.Is4() == to.Address.Is4() &&
					!p.Forbids(&from, &to)
			})
			if got := p.mayHear(to, all[to.Address.Is4()]); got != want {
				t.Fatalf("%+v among %+v: %t", to, peers, got)
			}
		}
	})
}
