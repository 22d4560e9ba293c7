package interop

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestPowerCycledPeer cuts a node off without a word and puts another machine in its place, as when
// a node loses its power and boots. BIRD dials before the hold time of the old session is over;
// that is its restart (RFC 4724 §5), and nobody waits for the hold time.
func TestPowerCycledPeer(t *testing.T) {
	t.Parallel()
	l := newLab(t, "power")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	nine := l.birdNode(t, "nine", "10.0.0.9/24", "10.0.0.2")
	ten := l.birdNode(t, "ten", "10.0.0.10/24", "10.0.0.2")
	nine.setBlocks(t, "10.1.0.64/26")
	ten.setBlocks(t, "10.1.0.128/26")
	nine.start(t)
	ten.start(t)
	us.start(t)
	us.awaitFIB(t, "-4", "10.1.0.64/26 via 10.0.0.9", "10.1.0.128/26 via 10.0.0.10")
	before, err := us.session(t.Context(), addr("10.0.0.9"))
	check(t, err)
	other, err := us.session(t.Context(), addr("10.0.0.10"))
	check(t, err)
	time.Sleep(3 * time.Second) // what comes sooner is a collision

	check(t, nine.NS.DeleteLink("eth0"))
	check(t, nine.Stop())
	nine.host = l.host(t, "nine-again", "10.0.0.9/24")
	nine.start(t)
	start := time.Now()
	await(t, "the session is a new one", func(ctx context.Context) error {
		s, err := us.session(ctx, addr("10.0.0.9"))
		if err == nil && s.Since.Equal(*before.Since) {
			err = errors.New("it is the old one")
		}
		return err
	})
	// BIRD's part: 2 s before it dials, and 5 s more each time that fails. The hold time is 90 s.
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("the session came up after %s", took)
	}
	nine.awaitEstablished(t)
	us.awaitFIB(t, "-4", "10.1.0.64/26 via 10.0.0.9", "10.1.0.128/26 via 10.0.0.10")
	s, err := us.session(t.Context(), addr("10.0.0.10"))
	if err != nil || !s.Since.Equal(*other.Since) {
		t.Errorf("the other session did not last: %+v, %v", s, err)
	}
}

// TestBIRDDialsToo: in sessions of BGPPeers BIRD dials beside us. Whoever has the higher router ID,
// one session comes up, and lasts.
func TestBIRDDialsToo(t *testing.T) {
	t.Parallel()
	l := newLab(t, "both")
	us := l.agentNode(t, "us", "10.0.0.9/24") // greater than theirs as text: we dial
	low := l.birdNode(t, "low", "10.0.0.2/24", "10.0.0.9")
	high := l.birdNode(t, "high", "10.0.0.30/24", "10.0.0.9")
	for _, b := range []*birdNode{low, high} {
		b.config.Peers[0].Passive = false
		b.start(t)
	}
	us.start(t)
	us.awaitPeers(t, "10.0.0.2", "10.0.0.30")
	low.awaitEstablished(t)
	high.awaitEstablished(t)
	since := map[*birdNode]string{}
	for _, b := range []*birdNode{low, high} {
		var err error
		since[b], err = b.since(t.Context(), mesh("10.0.0.9"))
		check(t, err)
	}
	time.Sleep(10 * time.Second) // BIRD dials again after 5 s
	for b, before := range since {
		now, err := b.since(t.Context(), mesh("10.0.0.9"))
		check(t, err)
		was, err := time.Parse(time.TimeOnly, before)
		check(t, err)
		is, err := time.Parse(time.TimeOnly, now)
		check(t, err)
		// BIRD counts back from now, and rounds.
		if d := is.Sub(was); d < -2*time.Second || d > 2*time.Second {
			t.Errorf("%s: the session did not last: since %s, then %s", b.name, before, now)
		}
	}
}
