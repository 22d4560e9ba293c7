package interop

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/testcluster"
)

// A router outside sends attributes made at random: legal, malformed, and such as were never meant
// for unicast. What gets through reaches FRR and BIRD, as iBGP peers and as an eBGP one, and none
// of them ends its session for it. FRR 8.4 does so for anything that it calls malformed.
func TestNeighboursBearWhatComesFromOutside(t *testing.T) {
	for family, c := range map[string]struct{ net, bits, pool, activate string }{
		"ipv4": {"10.0.0.", "/24", "10.1.210.0/26", ""},
		"ipv6": {"fd00::", "/64", "fd01::1:0/122",
			"address-family ipv6 unicast\nneighbor fd00::2 activate"},
	} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			bearWhatComesFromOutside(t, family, c.net, c.bits, pfx(c.pool), c.activate)
		})
	}
}

func bearWhatComesFromOutside(
	t *testing.T, family, net, bits string, last netip.Prefix, activate string,
) {
	l := newLab(t, "hostile"+family[3:])
	addresses := []string{"10.0.0.2/24"}
	if family == "ipv6" {
		addresses = append(addresses, net+"2"+bits)
	}
	us := l.agentNode(t, "us", addresses...)
	inner := l.birdNode(t, "inner", net+"6"+bits, net+"2")
	far := l.rawSpeaker(t, "far", net+"3"+bits, 65003, 0)
	peering := append(frrPeer(net+"2", asNumber), activate)
	inside := l.frrRouter(t, "inside", asNumber, net+"7"+bits, peering...)
	outside := l.frrRouter(t, "outside", 65008, net+"8"+bits, peering...)
	l.apply(t, testcluster.Peer("far", net+"3", 65003, "")+
		testcluster.Peer("inside", net+"7", asNumber, "")+
		testcluster.Peer("outside", net+"8", 65008, ""))
	inner.start(t)
	us.start(t)
	peers := []string{net + "3", net + "6", net + "7", net + "8"}
	us.awaitPeers(t, peers...)
	far.awaitSession(t)
	before := us.sessionsOf(t, peers...)

	announce := func(prefix netip.Prefix, more ...byte) {
		if family == "ipv6" {
			far.update(t, nil, slices.Concat([]byte(origin+asPath), far.reach(prefix), more))
		} else {
			far.update(t, nil, append([]byte(origin+asPath+nextHop), more...), prefix)
		}
	}
	r := rand.New(rand.NewSource(7606))
	for i := range 4000 {
		var attributes []byte
		for range 1 + r.Intn(2) {
			attributes = append(attributes, randomAttribute(r)...)
		}
		if _, err := far.Session(); err != nil {
			t.Fatalf("%v after %s", err, hex.EncodeToString(attributes))
		}
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(128 + i>>6), byte(i << 2)}),
			30)
		if family == "ipv6" {
			prefix = pfx(fmt.Sprintf("fd01::2:%x/126", i<<2))
		}
		announce(prefix, attributes...)
	}
	announce(last)
	inner.awaitHas(t, mesh(net+"2"), last.String())
	for _, r := range []*frrRouter{inside, outside} {
		await(t, r.name+" has them", func(ctx context.Context) error {
			have, err := r.learned(ctx, family, net+"2")
			has := func(s string) bool { return strings.HasPrefix(s, last.String()+" ") }
			if err == nil && !slices.ContainsFunc(have, has) {
				err = fmt.Errorf("%d routes", len(have))
			}
			t.Logf("%s has %d routes", r.name, len(have))
			return err
		})
	}
	us.sameSessions(t, before)
}

// randomAttribute is of a type that somebody decodes, mostly with the right flags.
func randomAttribute(r *rand.Rand) []byte {
	kinds := "\x01\x02\x03\x04\x06\x07\x08\x09\x0a\x10\x11\x12\x16\x17\x19\x1a\x1d\x20" +
		"\x23\x28\x63\x80\xff"
	kind := kinds[r.Intn(len(kinds))]
	flags := byte(0xc0)
	switch kind {
	case 1, 2, 3, 6:
		flags = 0x40
	case 4, 9, 10, 26, 29:
		flags = 0x80
	}
	if r.Intn(10) == 0 && kind < 0x23 {
		flags ^= 0x20 << r.Intn(3)
	}
	lengths := []int{0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 16, 20, 24, 40}
	value := make([]byte, lengths[r.Intn(len(lengths))])
	for i := range value {
		switch r.Intn(4) {
		case 0:
			value[i] = byte(r.Intn(256))
		case 1, 2:
			value[i] = byte(r.Intn(8))
		}
	}
	return append([]byte{flags, kind, byte(len(value))}, value...)
}
