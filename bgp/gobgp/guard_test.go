package gobgp

import (
	"fmt"
	"strings"
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// Peers send what GoBGP cannot bear. Where prefixes are concerned the sender loses its session with a NOTIFICATION, and is named; where an attribute
// is, which may come from far away, the route is taken. All are counted, nobody else notices.
func TestPoison(t *testing.T) {
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

	ended := 0
	for i, p := range poison {
		peer := fmt.Sprintf("127.0.0.%d", 80+i)
		bad := dialFar(t, n, peer, 64512, 90, true)
		bad.announce("10.78.0.0/26", "192.0.2.78")
		n.wantHops("10.78.0.0/26", "192.0.2.78")
		bad.bytes(packet.BGP_MSG_UPDATE, []byte(p.update))
		if !p.ends {
			n.wantHops("10.78.1.0/26", "192.0.2.78")
			if s := n.farState(peer); !s.Established || bad.told() != "" {
				t.Errorf("%s: NOTIFICATION %s, state %+v", p.name, bad.told(), s)
			}
			bad.close()
			n.wantHops("10.78.1.0/26")
			continue
		}
		ended++
		n.wantHops("10.78.0.0/26")
		eventually(t, p.name+": the peer is told of a malformed attribute list (RFC 4271 §6.3)", "3/1", bad.told)
		if s := n.farState(peer); s.Established || !strings.Contains(s.LastError, "the decoder panicked: ") {
			t.Errorf("%s: state %+v", p.name, s)
		}
	}
	panicked := len(poison) - 1 // the legal one is read, but not converted
	if c := n.Counters(); c.Malformed != ended || c.Panicked != panicked {
		t.Errorf("counted %+v, not %d ends and %d panics", c, ended, panicked)
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
