package interop

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"vpp-route-agent/internal/testcluster"
)

// What GoBGP alone would die of comes from a router outside: an attribute that is legal and that
// GoBGP cannot convert, one that is malformed, and prefixes that nobody can read. The first reaches
// BIRD on the inside with its route, the second does not, the last costs that router its session;
// the process and the session with BIRD live on.
func TestPoison(t *testing.T) {
	t.Parallel()
	l := newLab(t, "poison")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	inner := l.birdNode(t, "inner", "10.0.0.6/24", "10.0.0.2")
	// with 0, GoBGP gives what it sends no time at all
	far := l.rawSpeaker(t, "far", "10.0.0.3/24", 65003, 90)
	l.apply(t, testcluster.Peer("far", "10.0.0.3", 65003, ""))
	inner.start(t)
	us.start(t)
	us.awaitPeers(t, "10.0.0.3", "10.0.0.6")
	far.awaitSession(t)
	before := us.sessionsOf(t, "10.0.0.6")

	// an SR policy without a binding SID (RFC 9830 §2.4.2)
	const unbound = "\xc0\x17\x08\x00\x0f\x00\x04\x0d\x02\x00\x00"
	far.update(t, nil, []byte(origin+asPath+nextHop+unbound), pfx("10.1.210.0/26"))
	us.awaitFIB(t, "-4", "10.1.210.0/26 via 10.0.0.3")
	inner.awaitRIB(t, mesh("10.0.0.2"), "10.1.210.0/26 via 10.0.0.3 100 IGP 65003")
	shown, err := inner.Command(t.Context(), "show route all for 10.1.210.0/26")
	check(t, err)
	text, want := strings.Join(shown, "\n"), "BGP.17 [t]: 00 0f 00 04 0d 02 00 00"
	if !strings.Contains(text, want) {
		t.Errorf("BIRD shows, want %s:\n%s", want, text)
	}

	// a Prefix-SID with a service of layer 2 that is empty
	const service = "\xc0\x28\x06\x06\x00\x00\x37\x00\x00"
	far.update(t, nil, []byte(origin+asPath+nextHop+service), pfx("10.1.211.0/26"))
	inner.awaitRIB(t, mesh("10.0.0.2"), "10.1.210.0/26 via 10.0.0.3 100 IGP 65003",
		"10.1.211.0/26 via 10.0.0.3 100 IGP 65003")

	// MP_REACH_NLRI that ends after its family
	far.update(t, nil, []byte("\x80\x0e\x03\x00\x01\x01"))
	await(t, "the far speaker is told of a malformed attribute", func(context.Context) error {
		_, err := far.Session()
		if err == nil || err.Error() != "NOTIFICATION [3 9 128 14 3 0 1 1]" {
			return fmt.Errorf("its session: %v", err)
		}
		return nil
	})
	us.awaitFIB(t, "-4")
	status, err := us.agent.Status(t.Context())
	check(t, err)
	if status.BGP.MessagesMalformed != 1 || status.BGP.DecoderPanics != 0 {
		t.Errorf("%d malformed messages, %d panics of the decoder",
			status.BGP.MessagesMalformed, status.BGP.DecoderPanics)
	}
	s, _ := us.session(t.Context(), addr("10.0.0.3"))
	if !strings.HasPrefix(s.LastError, "malformed message: attribute BGP_ATTR_TYPE_MP_REACH_NLRI") {
		t.Errorf("the agent says %q", s.LastError)
	}
	us.sameSessions(t, before)
}
