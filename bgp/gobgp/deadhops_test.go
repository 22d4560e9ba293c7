package gobgp

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"vpp-route-agent/bgp"
)

// reviews keeps a speaker's log and tells whose paths met the policy again since it was last asked.
type reviews struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (r *reviews) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *reviews) config(c *Config) {
	c.Log = slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (r *reviews) take() (peers []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "paths meet the import policy again") {
			_, peer, _ := strings.Cut(strings.TrimSpace(line), "peer=")
			peers = append(peers, peer)
		}
	}
	r.log.Reset()
	slices.Sort(peers)
	return peers
}

func (n *node) reject(hops ...string) {
	n.t.Helper()
	var all []netip.Addr
	for _, h := range hops {
		all = append(all, addr(h))
	}
	if err := n.RejectNextHops(n.t.Context(), all); err != nil {
		n.t.Fatal(err)
	}
}

// One node of many goes away: the paths of the others are left alone.
func TestDeadNextHopConcernsItsPeersOnly(t *testing.T) {
	l := newLab(t)
	r := &reviews{}
	c := l.node(64512, r.config)
	var others []*node
	for i := range 4 {
		n := l.node(64512)
		connect(n, c)
		n.announce(fmt.Sprintf("10.1.%d.0/26", i), fmt.Sprintf("192.0.2.%d", i+1))
		others = append(others, n)
	}
	set(t, append(others, c)...)
	for i := range others {
		c.wantHops(fmt.Sprintf("10.1.%d.0/26", i), fmt.Sprintf("192.0.2.%d", i+1))
	}
	r.take()
	want := func(what string, peers ...string) {
		t.Helper()
		if got := r.take(); !slices.Equal(got, peers) {
			t.Errorf("%s: paths of %v met the policy again, want those of %v", what, got, peers)
		}
	}
	first, second, third := others[0].addr.String(), others[1].addr.String(), others[2].addr.String()
	c.reject("192.0.2.1")
	c.wantHops("10.1.0.0/26")
	want("the first dies", first)
	c.reject("192.0.2.1", "192.0.2.77")
	want("a next hop that nobody announces dies")
	c.reject("192.0.2.2", "192.0.2.77")
	c.wantHops("10.1.0.0/26", "192.0.2.1")
	c.wantHops("10.1.1.0/26")
	want("the first lives, the second dies", first, second)

	// Behind a next hop that is dead already: GoBGP tells nothing of a path that its policy rejects.
	others[2].announce("10.1.9.0/26", "192.0.2.2")
	set(t, others[2])
	eventually(t, "the path has come", 2, func() int { return c.state(others[2]).Received })
	c.reject()
	c.wantHops("10.1.1.0/26", "192.0.2.2")
	c.wantHops("10.1.9.0/26", "192.0.2.2")
	want("all live", first, second, third) // the first was reviewed while others were dead: its paths may have been rejected then
	c.reject("192.0.2.4")
	c.wantHops("10.1.3.0/26")
	want("the fourth dies", others[3].addr.String())
}

// GoBGP has accepted the second best path before its next hop died, and nothing told us of it then.
func TestDeadNextHopBehindABetterPath(t *testing.T) {
	l := newLab(t)
	a, b, d, c := l.node(64512), l.node(64512), l.node(64512), l.node(64512)
	for i, n := range []*node{a, b, d} {
		connect(n, c)
		n.announce("10.1.0.0/26", fmt.Sprintf("192.0.2.%d", i+1), func(x *bgp.Announcement) { x.LocalPref = uint32(300 - i) })
	}
	set(t, a, b, d, c)
	c.wantHops("10.1.0.0/26", "192.0.2.1")
	for _, n := range []*node{b, d} {
		eventually(t, "all paths have come", 1, func() int { return c.state(n).Received })
	}
	c.reject("192.0.2.2")
	a.withdraw("10.1.0.0/26")
	set(t, a)
	c.wantHops("10.1.0.0/26", "192.0.2.3")
	c.reject()
	c.wantHops("10.1.0.0/26", "192.0.2.2")
}

// A peer that comes back while a next hop is dead has all of its paths checked; when the hop lives again they must be found.
func TestDeadNextHopOfAPeerThatComesBack(t *testing.T) {
	l := newLab(t)
	a, c := l.node(64512), l.node(64512)
	connect(a, c)
	a.announce("10.1.0.0/26", "192.0.2.1")
	set(t, a, c)
	c.wantHops("10.1.0.0/26", "192.0.2.1")
	c.reject("192.0.2.1")
	c.wantHops("10.1.0.0/26")
	peers := c.plan.Peers
	c.plan.Peers = nil
	set(t, c)
	c.plan.Peers = peers
	set(t, c)
	eventually(t, "back", 1, func() int { return c.state(a).Received })
	c.wantHops("10.1.0.0/26")
	c.reject()
	c.wantHops("10.1.0.0/26", "192.0.2.1")
}
