package gobgp

import (
	"testing"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// A peer that refuses our OPEN says why, before its own OPEN or after it.
func TestPeerRefusesOurOpen(t *testing.T) {
	refuse := packet.NewBGPNotificationMessage(
		packet.BGP_ERROR_OPEN_MESSAGE_ERROR, packet.BGP_ERROR_SUB_BAD_PEER_AS, nil)
	for name, tc := range map[string]struct{ dialled, open bool }{
		"without its own":                {dialled: true},
		"after its own":                  {dialled: true, open: true},
		"without its own, when it dials": {},
		"after its own, when it dials":   {open: true},
	} {
		t.Run(name, func(t *testing.T) {
			var n *node
			var b *bare
			if tc.dialled {
				m, l := newLab(t).activeNode("127.0.0.92")
				n, b = m, acceptBare(t, l, higher)
			} else {
				n = newLab(t).node(64512)
				n.farPeer("127.0.0.92", 64512)
				set(t, n)
				b = dialBare(t, n, "127.0.0.92", higher)
			}
			b.expect("OPEN")
			if tc.open {
				b.open(64512)
				b.expect("KEEPALIVE")
			}
			b.send(refuse)
			eventually(t, "status says why",
				"peer sent OPEN Message Error: Bad Peer AS (RFC 4271 §6.2)",
				func() string { return n.farState("127.0.0.92").LastError })
		})
	}
}

// The end of a connection that lost a collision is no error of the peer.
func TestCollisionIsNoError(t *testing.T) {
	n, l := newLab(t).activeNode("127.0.0.92")
	b := acceptBare(t, l, higher)
	b.expect("OPEN")
	b.open(64512)
	b.expect("KEEPALIVE")
	b.send(packet.NewBGPNotificationMessage(packet.BGP_ERROR_CEASE,
		packet.BGP_ERROR_SUB_CONNECTION_COLLISION_RESOLUTION, nil))
	b.expect("closed")
	if s := n.farState("127.0.0.92"); s.LastError != "the peer has not answered" {
		t.Errorf("state %+v", s)
	}
}
