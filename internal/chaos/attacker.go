package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

const attackerAS = 65099

var attackerAddress = netip.MustParseAddr("192.168.4.99")

// attackerPeer is what makes node 1 peer with the attacker, in calicoctl's YAML.
var attackerPeer = testcluster.Peer("attacker", attackerAddress.String(), attackerAS,
	"node: node-1")

// attacker is a BGP speaker that sends what a fault gives it, right or wrong.
type attacker struct{ *testcluster.Speaker }

// newAttacker makes the attacker's machine on the underlay, once for each cluster, and has it
// listen until Close.
func newAttacker(c *cluster) (x attacker, err error) {
	if c.outside == nil {
		if c.outside, err = c.machine("attacker", attackerAddress); err != nil {
			return x, err
		}
	}
	open := testcluster.OpenMessage(attackerAS, 90, attackerAddress,
		testcluster.Unicast(attackerAddress)...)
	x.Speaker, err = testcluster.Listen(c.outside, attackerAddress, open, nil, nil)
	return x, err
}

// session is the one that is up, nil while none is.
func (x attacker) session() net.Conn {
	conn, _ := x.Session()
	return conn
}

// wait waits for the session.
func (x attacker) wait(ctx context.Context) error {
	return netlab.Await(ctx, recovery, "the session with the attacker",
		func(context.Context) error {
			if x.session() == nil {
				return errors.New("it is not up")
			}
			return nil
		})
}

// send writes UPDATEs. That the other end has had enough is no error.
func (x attacker) send(updates ...[]byte) { x.Send(updates...) }

// update is an UPDATE with these attributes, right or wrong, for these prefixes.
func update(attributes []byte, prefixes ...netip.Prefix) []byte {
	return testcluster.UpdateMessage(nil, attributes, prefixes...)
}

// Attributes of a well-formed path, RFC 4271 §4.3: flags, type, length, value.
var (
	origin  = []byte{0x40, 1, 1, 0}
	asPath  = []byte{0x40, 2, 6, 2, 1, 0, 0, attackerAS >> 8, attackerAS & 0xff}
	nextHop = []byte{0x40, 3, 4, 192, 168, 4, 99}
	good    = slices.Concat(origin, asPath, nextHop)
)

// malformed are attributes that RFC 7606 has treated as a withdrawal, not answered by the end of
// the session.
var malformed = map[string][]byte{
	"ORIGIN 9 (§7.1)":            slices.Concat([]byte{0x40, 1, 1, 9}, asPath, nextHop),
	"ORIGIN of two bytes (§7.1)": slices.Concat([]byte{0x40, 1, 2, 0, 0}, asPath, nextHop),
	"AS_PATH cut short (§7.2)": slices.Concat(origin,
		[]byte{0x40, 2, 6, 2, 9, 0, 0, 1, 1}, nextHop),
	"NEXT_HOP of three bytes (§7.3)": slices.Concat(origin, asPath, []byte{
		0x40, 3, 3, 192, 168, 4,
	}),
	"MED of three bytes (§7.4)":   slices.Concat(good, []byte{0x80, 4, 3, 0, 0, 1}),
	"COMMUNITY of 5 bytes (§7.8)": slices.Concat(good, []byte{0xc0, 8, 5, 0, 1, 0, 1, 0}),
	"no ORIGIN (§3 d)":            slices.Concat(asPath, nextHop),
	"no AS_PATH (§3 d)":           slices.Concat(origin, nextHop),
	"no NEXT_HOP (§3 d)":          slices.Concat(origin, asPath),
}
