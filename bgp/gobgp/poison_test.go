package gobgp

import (
	"fmt"
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// poison are the bodies of UPDATEs on which GoBGP 3.37 panics, each at another place. Found with
// random bytes.
var poison = []struct {
	name   string
	update string
	// the NOTIFICATION that ends the sender's session; else its route is taken, with or without the
	// attribute
	notification string
}{
	{"MP_REACH_NLRI that ends after its family", "\x00\x00\x00\x06\x80\x0e\x03\x00\x01\x01", "3/9"},
	{"MP_UNREACH_NLRI with an EVPN route cut short",
		"\x00\x00\x00\x2f" + poisonedPath +
			"\x80\x0f\x17\x00\x19\x46\x02\x12\x00\x10\x17\x39\x00\x99\x00\x0a\x00\x00\x00" +
			"\xe4\x05\x00\x00\x02\x01\x00" + poisonedPrefix, ""},
	{"MP_UNREACH_NLRI with a VPLS route cut short",
		"\x00\x00\x00\x1e" + poisonedPath + "\x80\x0f\x06\x00\x19\x41\x00\x01\x00" + poisonedPrefix,
		""},
	{"Prefix-SID whose service is cut short",
		"\x00\x00\x00\x1f" + poisonedPath + "\xc0\x28\x07\x05\x00\x04\x06\x01\x00\x00" +
			poisonedPrefix, ""},
	{"Prefix-SID with a service of layer 2 that is empty",
		"\x00\x00\x00\x1e" + poisonedPath + "\xc0\x28\x06\x06\x00\x00\x37\x00\x00" + poisonedPrefix,
		""},
	{"SR policy without a binding SID, which is legal",
		"\x00\x00\x00\x20" + poisonedPath + "\xc0\x17\x08\x00\x0f\x00\x04\x0d\x02\x00\x00" +
			poisonedPrefix, ""},
}

const (
	// ORIGIN, AS_PATH, NEXT_HOP 192.0.2.78, LOCAL_PREF
	poisonedPath = "\x40\x01\x01\x00\x40\x02\x00" +
		"\x40\x03\x04\xc0\x00\x02\x4e\x40\x05\x04\x00\x00\x00\x64"
	poisonedPrefix = "\x1a\x0a\x4e\x01\x00" // 10.78.1.0/26
)

// Peers send what GoBGP cannot bear. Where prefixes are concerned the sender loses its session with
// a NOTIFICATION, and is named; where an attribute is, which may come from far away, the route is
// taken. All are counted, nobody else notices.
func TestPoison(t *testing.T) {
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
		if p.notification == "" {
			n.wantHops("10.78.1.0/26", "192.0.2.78")
			if s := n.farState(peer); !s.Established || bad.notification() != "" {
				t.Errorf("%s: NOTIFICATION %s, state %+v", p.name, bad.notification(), s)
			}
			bad.close()
			n.wantHops("10.78.1.0/26")
			continue
		}
		ended++
		n.wantHops("10.78.0.0/26")
		eventually(t, p.name+": the peer gets a NOTIFICATION (RFC 4760 §7)", p.notification,
			bad.notification)
		n.wantDown(peer, "malformed message: ")
	}
	c := n.Counters()
	if c.Malformed != ended || c.Panicked != 0 || c.Revised != len(poison)-ended-1 {
		t.Errorf("counted %+v, not %d ends", c, ended)
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
	// withdrawn routes that overrun the message
	f.bytes(packet.BGP_MSG_UPDATE, []byte("\x00\x01\x00\x00"))
	eventually(t, "malformed messages", 1, func() int { return n.Counters().Malformed })
	eventually(t, "the NOTIFICATION", "3/1", f.notification)
	if c := n.Counters(); c.Panicked != 0 {
		t.Errorf("counted %+v", c)
	}
}
