package gobgp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/route"
)

// Reflection begins and ends without a reset: what goes to whom changes, and nobody hears of
// anything else. It stays between clients where another reflector is there.
func TestReflectionNeedsNoReset(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	for i := range 4 {
		n.farPeer(fmt.Sprintf("127.0.0.%d", 80+i), 64512)
	}
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	n.announce("10.9.9.0/26", n.addr.String())
	set(t, n)
	var fars []*far
	for i := range 4 { // two clients, a reflector, one that is nothing
		f := dialFar(t, n, fmt.Sprintf("127.0.0.%d", 80+i), 64512, 90, true, gracefulCap(false))
		f.announce(fmt.Sprintf("10.1.%d.0/26", i), fmt.Sprintf("192.0.2.%d", i))
		f.announce(fmt.Sprintf("172.16.%d.0/26", i), fmt.Sprintf("192.0.2.%d", i)) // in no pool
		fars = append(fars, f)
	}
	eventually(t, "routes learned", 8, n.size)
	since := func() (all []time.Time) {
		for _, p := range n.Peers() {
			all = append(all, p.Since)
		}
		return all
	}
	up := since()
	wants := func(what string, want ...string) {
		t.Helper()
		for i, f := range fars {
			eventually(t, fmt.Sprintf("%s: peer %d", what, i), want[i], func() string {
				return fmt.Sprint(f.received())
			})
		}
	}
	reflects := func(yes bool) {
		t.Helper()
		n.plan.Policies.Reflects = yes
		n.plan.Peers = slices.Clone(n.plan.Peers)
		for i, client := range []bool{true, true, true, false} {
			n.plan.Peers[i].Client = yes && client
		}
		n.plan.Peers[2].Reflector = true
		set(t, n)
	}
	counts := func() (out []int) {
		for _, f := range fars {
			out = append(out, f.count())
		}
		return out
	}

	quiet := func() { // nobody has been sent anything for a while
		for last, now := []int(nil), counts(); !slices.Equal(last, now); last, now = now, counts() {
			time.Sleep(200 * time.Millisecond)
		}
	}

	// A route of one iBGP peer comes and goes, and the others hear of neither.
	silent := func() {
		t.Helper()
		quiet()
		before := counts()
		fars[0].announce("10.1.201.0/26", "192.0.2.0")
		n.wantHops("10.1.201.0/26", "192.0.2.0")
		fars[0].withdraw("10.1.201.0/26")
		n.wantHops("10.1.201.0/26")
		quiet()
		if !slices.Equal(counts(), before) {
			t.Errorf("UPDATEs %v, before %v", counts(), before)
		}
	}

	wants("no reflector", "[10.9.9.0/26]", "[10.9.9.0/26]", "[10.9.9.0/26]", "[10.9.9.0/26]")
	silent()
	for range 2 {
		reflects(true)
		wants("reflector", "[10.1.1.0/26 10.1.2.0/26 10.1.3.0/26 10.9.9.0/26]",
			"[10.1.0.0/26 10.1.2.0/26 10.1.3.0/26 10.9.9.0/26]",
			"[10.1.0.0/26 10.1.1.0/26 10.9.9.0/26]", "[10.1.0.0/26 10.1.1.0/26 10.9.9.0/26]")
		quiet()
		before := counts()
		set(t, n)
		fars[0].announce("10.1.200.0/26", "192.0.2.0")
		eventually(t, "a new route", true, func() bool {
			return slices.Contains(fars[3].received(), pfx("10.1.200.0/26"))
		})
		fars[0].withdraw("10.1.200.0/26")
		eventually(t, "and its end", false, func() bool {
			return slices.Contains(fars[3].received(), pfx("10.1.200.0/26"))
		})
		quiet()
		for i, c := range counts() {
			if want := []int{0, 2, 2, 2}[i]; c-before[i] != want {
				t.Errorf("peer %d got %d UPDATEs for one route that came and went, want %d",
					i, c-before[i], want)
			}
		}
		reflects(false)
		wants("no reflector any more", "[10.9.9.0/26]", "[10.9.9.0/26]",
			"[10.9.9.0/26]", "[10.9.9.0/26]")
		silent()
	}
	if !slices.Equal(since(), up) {
		t.Error("a session was reset")
	}
}

// A filter that changes is heard of by the peers that have it, as far as routes concern them, and
// by no other.
func TestFilterTouchesOnlyItsRoutes(t *testing.T) {
	l := newLab(t)
	n := l.node(64512)
	n.farPeer("127.0.0.84", 64512)
	n.farPeer("127.0.0.85", 65001)
	n.farPeer("127.0.0.86", 65002)
	n.plan.Policies.ExportPools = []netip.Prefix{pfx("10.0.0.0/8")}
	n.announce("10.9.0.0/26", n.addr.String())
	n.announce("10.9.0.64/26", n.addr.String())
	set(t, n)
	source := dialFar(t, n, "127.0.0.84", 64512, 90, true, gracefulCap(false))
	filtered := dialFar(t, n, "127.0.0.85", 65001, 90, true, gracefulCap(false))
	plain := dialFar(t, n, "127.0.0.86", 65002, 90, true, gracefulCap(false))
	for i := range 20 {
		source.announce(fmt.Sprintf("10.1.%d.0/26", i), "192.0.2.84")
	}
	eventually(t, "passed on", 22, func() int { return len(filtered.received()) })
	eventually(t, "passed on", 22, func() int { return len(plain.received()) })
	match := func(p string) bgp.Match {
		return bgp.Match{Prefix: pfx(p), Min: pfx(p).Bits(), Max: 32}
	}
	change := func(what string, wantFiltered, wantPlain int, missing []string, rules ...bgp.Rule) {
		t.Helper()
		before, beforePlain := filtered.count(), plain.count()
		n.plan.Peers = slices.Clone(n.plan.Peers)
		n.plan.Peers[1].Filters = []string{"f"}
		n.plan.Policies.Filters = map[string]bgp.Filter{"f": {Export4: rules}}
		for i := range rules {
			rules[i].Name = fmt.Sprintf("f[%d]", i)
		}
		set(t, n)
		eventually(t, what, fmt.Sprint(missing), func() string {
			var gone []string
			have := filtered.received()
			for _, p := range plain.received() {
				if !slices.Contains(have, p) {
					gone = append(gone, p.String())
				}
			}
			return fmt.Sprint(gone)
		})
		time.Sleep(200 * time.Millisecond) // what else there might be
		if c := filtered.count() - before; c > wantFiltered {
			t.Errorf("%s: %d UPDATEs to the peer with the filter, want %d", what, c, wantFiltered)
		}
		if c := plain.count() - beforePlain; c > wantPlain {
			t.Errorf("%s: %d UPDATEs to the other peer, want at most %d", what, c, wantPlain)
		}
		if !slices.IsSortedFunc(plain.received(), route.ComparePrefixes) ||
			len(plain.received()) != 22 {
			t.Errorf("%s: the other peer has %v", what, plain.received())
		}
	}
	withCommunity := func(community string) {
		t.Helper()
		eventually(t, "with the community", fmt.Sprintf(
			"path [64512] pref - med - hop %s communities [%s]", n.addr, community),
			func() string { return filtered.routes()[pfx("10.1.4.0/26")] })
	}
	// The peer that changes its class is sent all that it gets, once. A route whose mark changes is
	// repeated to the others: one of ours, one learned.
	change("the first filter", 2+22, 2, []string{"10.1.3.0/26", "10.9.0.64/26"},
		bgp.Rule{Match: match("10.1.3.0/24")}, bgp.Rule{Match: match("10.9.0.64/26")})
	change("the same again", 0, 0, []string{"10.1.3.0/26", "10.9.0.64/26"},
		bgp.Rule{Match: match("10.1.3.0/24")}, bgp.Rule{Match: match("10.9.0.64/26")})
	change("one route more", 1, 1, []string{"10.1.3.0/26", "10.1.7.0/26", "10.9.0.64/26"},
		bgp.Rule{Match: match("10.1.3.0/24")}, bgp.Rule{Match: match("10.1.7.0/24")},
		bgp.Rule{Match: match("10.9.0.64/26")})
	change("two routes less", 2, 2, []string{"10.1.3.0/26"}, bgp.Rule{Match: match("10.1.3.0/24")})
	change("operations for one route", 1, 1, []string{"10.1.3.0/26"},
		bgp.Rule{Match: match("10.1.3.0/24")},
		bgp.Rule{Match: match("10.1.4.0/24"), Accept: true,
			Operations: []bgp.Operation{{Add: &plainC}}})
	withCommunity("64512:1") // before the next change is counted
	change("another operation for it", 1, 1, []string{"10.1.3.0/26"},
		bgp.Rule{Match: match("10.1.3.0/24")},
		bgp.Rule{Match: match("10.1.4.0/24"), Accept: true,
			Operations: []bgp.Operation{{Add: &largeC}}})
	withCommunity("1:2:3")
	change("no rules", 2, 2, nil)
}
