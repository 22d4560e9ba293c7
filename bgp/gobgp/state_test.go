package gobgp

import (
	"net/netip"
	"os"
	"testing"

	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
)

// TestSilence: a wrong password looks like silence.
func TestSilence(t *testing.T) {
	password := &calico.SecretKeyRef{Name: "bgp", Key: "tor"}
	for want, p := range map[string]bgp.Peer{
		"the peer has not answered": {},
		"the peer has not dialled":  {Passive: true},
		"the peer has not answered, or not with the password of this session": {
			Password: password},
		"the peer has not dialled, or not with the password of this session": {
			Passive: true, Password: password},
	} {
		if got := waitingFor(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestOwnAddressIsMissing: what a session without an end of ours says of the peer would be wrong.
func TestOwnAddressIsMissing(t *testing.T) {
	const here, missing = "127.0.0.1", "192.0.2.77"
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_nonlocal_bind"); err != nil || b[0] != '0' {
		t.Skipf("this kernel lets a session have any address (%v)", err)
	}
	s := knows(quietLog(), "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5")
	peer := func(address, own string, passive bool) bgp.Peer {
		p := bgp.Peer{Address: netip.MustParseAddr(address), Passive: passive}
		if own != "" {
			p.LocalAddress = netip.MustParseAddr(own)
		}
		return p
	}
	s.view.peers = []bgp.Peer{peer("192.0.2.1", here, false), peer("192.0.2.2", missing, false),
		peer("192.0.2.3", missing, true), peer("192.0.2.4", "", false),
		peer("192.0.2.5", missing, false)}
	s.handleEvent(server.SessionEvent{Peer: named("192.0.2.3"), Kind: server.HoldTimerExpired})
	s.sessions.peers[first("192.0.2.5")].up = true // it notices by its hold timer
	const why = "this host does not have 192.0.2.77, the local address of this session"
	want := []string{"the peer has not answered", why, why, "the peer has not answered", ""}
	for i, st := range s.Peers() {
		if st.LastError != want[i] {
			t.Errorf("%s: %q, want %q", st.ID, st.LastError, want[i])
		}
	}
}
