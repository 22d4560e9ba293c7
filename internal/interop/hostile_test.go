package interop

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// A router outside sends attributes made at random: legal, malformed, and such as were never meant for
// unicast. What gets through reaches FRR and BIRD, as iBGP peers and as an eBGP one, and none of them ends
// its session for it. FRR 8.4 does so for anything that it calls malformed.
func TestNeighboursBearWhatComesFromOutside(t *testing.T) {
	t.Parallel()
	l := newLab(t, "hostile")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	inner := l.birdNode(t, "inner", "10.0.0.6/24", "10.0.0.2")
	far := l.rawSpeaker(t, "far", "10.0.0.3/24", 65003, 0)
	inside := l.frrRouter(t, "inside", asNumber, "10.0.0.7/24", frrPeer("10.0.0.2", asNumber)...)
	outside := l.frrRouter(t, "outside", 65008, "10.0.0.8/24", frrPeer("10.0.0.2", asNumber)...)
	l.apply(t, `
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: far}
spec: {peerIP: 10.0.0.3, asNumber: 65003}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: inside}
spec: {peerIP: 10.0.0.7, asNumber: 64512}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: outside}
spec: {peerIP: 10.0.0.8, asNumber: 65008}
`)
	inner.start(t)
	us.start(t)
	peers := []string{"10.0.0.3", "10.0.0.6", "10.0.0.7", "10.0.0.8"}
	us.awaitPeers(t, peers...)
	await(t, "the far speaker says so too", func(context.Context) error {
		conn, err := far.session()
		if err == nil && conn == nil {
			err = errors.New("no session yet")
		}
		return err
	})
	before := us.sessionsOf(t, peers...)

	r := rand.New(rand.NewSource(7606))
	for i := range 4000 {
		attributes := []byte(origin + asPath + nextHop)
		for range 1 + r.Intn(2) {
			attributes = append(attributes, randomAttribute(r)...)
		}
		if _, err := far.session(); err != nil {
			t.Fatalf("%v after %s", err, hex.EncodeToString(attributes))
		}
		prefix := netip.AddrFrom4([4]byte{10, 1, byte(128 + i>>6), byte(i << 2)})
		far.update(t, nil, attributes, netip.PrefixFrom(prefix, 30))
	}
	far.update(t, nil, []byte(origin+asPath+nextHop), pfx("10.1.210.0/26"))
	inner.awaitHas(t, mesh("10.0.0.2"), "10.1.210.0/26")
	for _, r := range []*frrRouter{inside, outside} {
		await(t, r.name+" has them", func(ctx context.Context) error {
			have, err := r.learned(ctx, "ipv4", "10.0.0.2")
			if err == nil && !slices.ContainsFunc(have, func(s string) bool { return strings.HasPrefix(s, "10.1.210.0/26 ") }) {
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
	kinds := "\x01\x02\x03\x04\x06\x07\x08\x09\x0a\x10\x11\x12\x16\x17\x19\x1a\x1d\x20\x23\x28\x63\x80\xff"
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
