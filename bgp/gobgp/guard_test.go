package gobgp

import (
	"fmt"
	"strings"
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// Peers send what GoBGP's decoder cannot bear. Each loses its session with a NOTIFICATION, is counted and named; nobody else notices.
func TestPoisonEndsTheSendersSessionOnly(t *testing.T) {
	if !Guarded() {
		t.Fatal("this GoBGP is not guarded: one UPDATE of a peer would end the process. make builds and tests one that is; " +
			"by hand: go run ./internal/gobgpguard build/guard, then go test -modfile=$PWD/build/guard/go.mod ./bgp/gobgp")
	}
	l := newLab(t)
	n := l.unset(64512)
	n.farPeer("127.0.0.79", 64512)
	for i := range poison {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 80+i), 64512)
	}
	set(t, n)
	good := dialFar(t, n, "127.0.0.79", 64512, 90, true, gracefulCap(false))
	good.announce("10.79.0.0/26", "192.0.2.79")
	n.wantHops("10.79.0.0/26", "192.0.2.79")
	since := n.farState("127.0.0.79").Since

	for i, p := range poison {
		peer := fmt.Sprintf("127.0.0.%d", 80+i)
		bad := dialFar(t, n, peer, 64512, 90, true)
		bad.announce("10.78.0.0/26", "192.0.2.78")
		n.wantHops("10.78.0.0/26", "192.0.2.78")
		bad.bytes(packet.BGP_MSG_UPDATE, []byte(p.update))
		n.wantHops("10.78.0.0/26")
		eventually(t, p.name+": the peer is told of a malformed attribute list (RFC 4271 §6.3)", "3/1", bad.told)
		if s := n.farState(peer); s.Established || !strings.Contains(s.LastError, "the decoder panicked: ") {
			t.Errorf("%s: state %+v", p.name, s)
		}
	}
	if c := n.Counters(); c.Malformed != len(poison) || c.Panicked != len(poison) {
		t.Errorf("counted %+v after %d messages", c, len(poison))
	}
	good.announce("10.79.1.0/26", "192.0.2.79")
	n.wantHops("10.79.1.0/26", "192.0.2.79")
	if s := n.farState("127.0.0.79"); !s.Established || s.Since != since {
		t.Errorf("another peer suffered: %+v", s)
	}
}

// What is refused in order is counted apart from what GoBGP is at fault for.
func TestMalformedMessageIsNoPanic(t *testing.T) {
	l := newLab(t)
	n := l.unset(64512)
	n.farPeer("127.0.0.79", 64512)
	set(t, n)
	f := dialFar(t, n, "127.0.0.79", 64512, 90, true)
	f.bytes(packet.BGP_MSG_UPDATE, []byte("\x00"))
	eventually(t, "malformed messages", 1, func() int { return n.Counters().Malformed })
	eventually(t, "the peer is told", "3/1", f.told)
	if c := n.Counters(); c.Panicked != 0 {
		t.Errorf("counted %+v", c)
	}
}
