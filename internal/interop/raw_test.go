package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/testcluster"
)

// rawSpeaker is a BGP speaker that sends bytes as they are: what BIRD's filters cannot make.
type rawSpeaker struct {
	*testcluster.Speaker
	address netip.Addr
}

// rawSpeaker makes a machine with one, gone after the test, that offers a hold time in seconds.
func (l *lab) rawSpeaker(t *testing.T, name, address string, as uint32, hold uint16) *rawSpeaker {
	t.Helper()
	a := pfx(address).Addr()
	open := testcluster.OpenMessage(as, hold, testcluster.RouterID(a), testcluster.Unicast(a)...)
	s, err := testcluster.Listen(l.host(t, name, address).NS, a, open, nil, nil)
	check(t, err)
	t.Cleanup(s.Close)
	return &rawSpeaker{s, a}
}

// awaitSession waits until the speaker, too, says that the session is up.
func (r *rawSpeaker) awaitSession(t *testing.T) {
	t.Helper()
	await(t, "the raw speaker says so too", func(context.Context) error {
		conn, err := r.Session()
		if err == nil && conn == nil {
			err = errors.New("no session yet")
		}
		return err
	})
}

// reach is MP_REACH_NLRI (RFC 4760 §3) of unicast prefixes via the speaker.
func (r *rawSpeaker) reach(nlri ...netip.Prefix) []byte {
	hop := r.address.AsSlice()
	value := append([]byte{0, testcluster.AFI(r.address), 1, byte(len(hop))}, hop...)
	value = testcluster.AppendPrefixes(append(value, 0), nlri...)
	return append([]byte{0x80, 14, byte(len(value))}, value...)
}

// update sends an UPDATE.
func (r *rawSpeaker) update(
	t *testing.T, withdrawn []netip.Prefix, attributes []byte, nlri ...netip.Prefix,
) {
	t.Helper()
	check(t, r.Send(testcluster.UpdateMessage(withdrawn, attributes, nlri...)))
}

// The attributes that every announcement has, from AS 65003 at 10.0.0.3.
const (
	origin  = "\x40\x01\x01\x00"
	asPath  = "\x40\x02\x06\x02\x01\x00\x00\xfd\xeb"
	nextHop = "\x40\x03\x04\x0a\x00\x00\x03"
)

// rawUpdates are legal announcements of a prefix in a pool. All must be programmed and reach BIRD
// on the inside.
var rawUpdates = []struct {
	name, prefix string
	attributes   string
	path         string // AS path at BIRD
	shows        string // among BIRD's lines of the route; with a leading "!" it must not be there
}{
	{"plain", "10.1.210.0/26", origin + asPath + nextHop, "65003", ""},
	{"an optional transitive attribute that nobody knows", "10.1.211.0/26",
		origin + asPath + nextHop + "\xc0\xfa\x03abc", "65003", "BGP.fa [t]: 61 62 63"},
	{"an optional attribute that nobody knows", "10.1.212.0/26",
		origin + asPath + nextHop + "\x80\xfb\x03abc", "65003", "!BGP.fb"},
	{"an AS_SET", "10.1.213.0/26",
		origin + "\x40\x02\x10\x02\x01\x00\x00\xfd\xeb\x01\x02\x00\x00\x00\x01\x00\x00\x00\x02" +
			nextHop, "65003 { 1 2 }", ""},
	{"an aggregate", "10.1.214.0/26",
		origin + asPath + nextHop + "\x40\x06\x00" + "\xc0\x07\x08\x00\x00\xfd\xeb\x0a\x00\x00\x03",
		"65003", "BGP.aggregator: 10.0.0.3 AS65003"},
	{"lengths of two bytes", "10.1.215.0/26",
		"\x50\x01\x00\x01\x00" + "\x50\x02\x00\x06\x02\x01\x00\x00\xfd\xeb" +
			"\x50\x03\x00\x04\x0a\x00\x00\x03", "65003", ""},
	{"attributes in another order", "10.1.216.0/26",
		nextHop + "\xc0\x20\x0c\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03" + asPath + origin,
		"65003", "BGP.large_community: (1, 2, 3)"},
	{"ONLY_TO_CUSTOMER (RFC 9234)", "10.1.218.0/26",
		origin + asPath + nextHop + "\xc0\x23\x04\x00\x00\xfd\xeb", "65003",
		"BGP.23 [t]: 00 00 fd eb"},
}

func TestRawUpdates(t *testing.T) {
	t.Parallel()
	l := newLab(t, "raw")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	inner := l.birdNode(t, "inner", "10.0.0.6/24", "10.0.0.2")
	far := l.rawSpeaker(t, "far", "10.0.0.3/24", 65003, 0)
	l.apply(t, testcluster.Peer("far", "10.0.0.3", 65003, ""))
	inner.start(t)
	us.start(t)
	us.awaitPeers(t, "10.0.0.3", "10.0.0.6")
	before, err := us.session(t.Context(), addr("10.0.0.3"))
	check(t, err)
	far.awaitSession(t)

	var fib, rib []string
	for _, u := range rawUpdates {
		far.update(t, nil, []byte(u.attributes), pfx(u.prefix))
		fib = append(fib, u.prefix+" via 10.0.0.3")
		rib = append(rib, fmt.Sprintf("%s via 10.0.0.3 100 IGP %s", u.prefix, u.path))
	}
	t.Run("all are programmed", func(t *testing.T) { us.awaitFIB(t, "-4", fib...) })
	t.Run("all are passed on", func(t *testing.T) { inner.awaitRIB(t, mesh("10.0.0.2"), rib...) })
	for _, u := range rawUpdates {
		t.Run(u.name, func(t *testing.T) {
			shown, err := inner.Command(t.Context(), "show route all for "+u.prefix)
			check(t, err)
			text := strings.Join(shown, "\n")
			unwanted, no := strings.CutPrefix(u.shows, "!")
			if no && strings.Contains(text, unwanted) || !no && !strings.Contains(text, u.shows) {
				t.Errorf("BIRD shows, want %s:\n%s", u.shows, text)
			}
		})
	}
	t.Run("one prefix twice in one update, one withdrawn and announced in one, and the "+
		"withdrawal of one that is not there", func(t *testing.T) {
		twice := pfx("10.1.219.0/26")
		far.update(t, nil, []byte(origin+asPath+nextHop), twice, twice)
		us.awaitFIB(t, "-4", append(fib, twice.String()+" via 10.0.0.3")...)
		// announced: RFC 4271 §4.3
		far.update(t, []netip.Prefix{twice, pfx("10.1.220.0/26")},
			[]byte(origin+asPath+nextHop), twice)
		far.update(t, []netip.Prefix{pfx("10.1.220.0/26")}, []byte(origin+asPath+nextHop),
			pfx("10.1.221.0/26"))
		us.awaitFIB(t, "-4",
			append(fib, twice.String()+" via 10.0.0.3", "10.1.221.0/26 via 10.0.0.3")...)
		far.update(t, []netip.Prefix{twice, pfx("10.1.221.0/26")}, nil)
		us.awaitFIB(t, "-4", fib...)
	})
	// RFC 7606 §7.1, §7.8
	t.Run("a malformed attribute withdraws its route only", func(t *testing.T) {
		far.update(t, nil, []byte("\x40\x01\x01\x07"+asPath+nextHop), pfx("10.1.210.0/26"))
		far.update(t, nil, []byte(origin+asPath+nextHop+"\xc0\x08\x00"), pfx("10.1.211.0/26"))
		us.awaitFIB(t, "-4", fib[2:]...)
	})
	time.Sleep(time.Second) // a NOTIFICATION would be here by then
	after, err := us.session(t.Context(), addr("10.0.0.3"))
	check(t, err)
	if _, err := far.Session(); err != nil || !after.Since.Equal(*before.Since) {
		t.Errorf("the session did not stay up: %v; since %s, before since %s",
			err, after.Since, before.Since)
	}
}
