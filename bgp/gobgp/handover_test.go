package gobgp

import (
	"fmt"
	"testing"
)

// TestWithdrawnAlsoWhereAnotherNodeAnnouncesIt has a block move from us to another node of the mesh, which is quicker to announce it than we
// are to withdraw it. Everybody has to hear that ours is gone, or half of the packets go on coming to us.
func TestWithdrawnAlsoWhereAnotherNodeAnnouncesIt(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	for i := range 2 {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 80+i), 64512)
	}
	n.announce("10.9.8.0/26", n.addr.String())
	n.announce("10.9.9.0/26", n.addr.String())
	set(t, n)
	var fars []*far
	for i := range 2 {
		fars = append(fars, dialFar(t, n, fmt.Sprintf("127.0.0.%d", 80+i), 64512, 90, true, gracefulCap(false)))
	}
	wants := func(want string) {
		t.Helper()
		for i, f := range fars {
			eventually(t, fmt.Sprintf("what peer %d has of us", i), want, func() string { return fmt.Sprint(f.received()) })
		}
	}
	wants("[10.9.8.0/26 10.9.9.0/26]")
	fars[0].announce("10.9.9.0/26", "192.0.2.1")
	fars[0].announce("10.9.7.0/26", "192.0.2.1")
	n.wantHops("10.9.7.0/26", "192.0.2.1") // so that the one before it has been taken in too
	n.withdraw("10.9.9.0/26")
	set(t, n)
	n.wantHops("10.9.9.0/26", "192.0.2.1")
	wants("[10.9.8.0/26]")

	// And back.
	n.announce("10.9.9.0/26", n.addr.String())
	set(t, n)
	wants("[10.9.8.0/26 10.9.9.0/26]")
	fars[0].withdraw("10.9.9.0/26")
	n.withdraw("10.9.8.0/26")
	set(t, n)
	wants("[10.9.9.0/26]")
}
