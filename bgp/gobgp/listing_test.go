package gobgp

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
)

// slowPeers is a GoBGP that takes its time, and has one peer more with each answer.
type slowPeers struct {
	takes       atomic.Int64 // a time.Duration
	asked, most atomic.Int32 // most: at once
	now         atomic.Int32
	block       chan struct{}
}

func (s *slowPeers) ask() (map[bgp.PeerID]*api.Peer, error) {
	n := s.asked.Add(1)
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	if s.block != nil {
		<-s.block
	}
	time.Sleep(time.Duration(s.takes.Load()))
	peers := map[bgp.PeerID]*api.Peer{}
	for a := addr("192.0.2.1"); n > 0; n, a = n-1, a.Next() {
		peers[bgp.PeerID{Address: a}] = nil
	}
	return peers, nil
}

func TestAnswersAreSharedWhileTheyAreGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lister
		s := &slowPeers{}
		s.takes.Store(int64(10 * time.Millisecond))
		var moved time.Time
		want := func(n int) {
			t.Helper()
			if got := len(l.list(moved, s.ask).peers); got != n {
				t.Errorf("the answer is number %d, want %d", got, n)
			}
		}
		want(1)
		want(1)
		time.Sleep(listingShare*10*time.Millisecond - time.Millisecond)
		want(1)
		time.Sleep(time.Millisecond)
		want(2)
		moved = time.Now()
		want(3) // whatever it costs
		s.takes.Store(int64(100 * time.Second))
		moved = time.Now()
		time.Sleep(time.Millisecond)
		want(3) // for lack of a better one
		time.Sleep(100 * time.Second)
		s.takes.Store(0)
		want(4)
		time.Sleep(listingAge)
		want(5)
	})
}

// An answer that was asked for before a session came up does not do for who asks after.
func TestAnswerOnTheWayMayBeTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lister
		s := &slowPeers{}
		s.takes.Store(int64(400 * time.Millisecond))
		go l.list(time.Time{}, s.ask)
		time.Sleep(100 * time.Millisecond)
		if got := len(l.list(time.Now(), s.ask).peers); got != 2 {
			t.Errorf("got answer %d", got)
		}
	})
}

func TestOneQuestionWhileGoBGPIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lister
		s := &slowPeers{}
		l.list(time.Time{}, s.ask)
		s.block = make(chan struct{})
		moved := time.Now().Add(time.Nanosecond)
		time.Sleep(time.Second)
		for i := range 100 {
			start := time.Now()
			if got := l.list(moved, s.ask); len(got.peers) != 1 {
				t.Fatalf("got %v, want the last answer", got.peers)
			}
			if took := time.Since(start); i == 0 && took != listPatience || i > 0 && took != 0 {
				t.Fatalf("question %d took %s", i, took)
			}
		}
		close(s.block)
		synctest.Wait()
		if got := len(l.list(moved, s.ask).peers); got < 2 {
			t.Errorf("got answer %d after GoBGP is free again", got)
		}
		if most := s.most.Load(); most != 1 {
			t.Errorf("%d questions at once", most)
		}
	})
}

// blocking is a log that GoBGP hangs in, and with it its one goroutine, at one message.
type blocking struct {
	slog.Handler
	at      string
	blocked chan struct{}
	free    <-chan struct{}
}

func (b blocking) Enabled(context.Context, slog.Level) bool { return true }

func (b blocking) WithAttrs([]slog.Attr) slog.Handler { return b }

func (b blocking) Handle(_ context.Context, r slog.Record) error {
	if r.Message == b.at {
		b.blocked <- struct{}{}
		<-b.free
	}
	return nil
}

// The states of all peers are there while GoBGP is blocked, though not its counters.
func TestPeersWhileGoBGPIsBlocked(t *testing.T) {
	l := newLabAlone(t)
	free := make(chan struct{})
	b := blocking{
		Handler: slog.DiscardHandler, at: "gobgp: delete a peer configuration",
		blocked: make(chan struct{}, 1), free: free,
	}
	n := l.unset(64512, func(c *Config) { c.Log = slog.New(b) })
	n.farPeer("127.0.0.63", 64512)
	n.farPeer("127.0.0.64", 64512)
	set(t, n)
	dialFar(t, n, "127.0.0.63", 64512, 90, true, gracefulCap(false))
	eventually(t, "session", true, func() bool { return n.farState("127.0.0.63").Established })

	plan := n.plan
	plan.Peers = plan.Peers[:1]
	removed := make(chan error, 1)
	go func() { removed <- n.Set(context.Background(), plan) }()
	<-b.blocked
	start := time.Now()
	for range 20 {
		if got := n.Peers(); len(got) != 2 || !got[0].Established || !got[0].GR {
			t.Errorf("states %+v", got)
		}
	}
	if took := time.Since(start); took > 10*listPatience { // each for itself would take twice that
		t.Errorf("20 questions took %s", took)
	}
	close(free)
	if err := <-removed; err != nil {
		t.Error(err)
	}
	eventually(t, "the peer that is left", 1, func() int { return len(n.Peers()) })
}

// Of a session that came up since GoBGP answered last it is not known whether it promised
// End-of-RIB: it must not count as finished.
func TestStateOfASessionNewerThanTheList(t *testing.T) {
	now := time.Now()
	peer := bgp.Peer{Address: addr("192.0.2.1")}
	listed := listing{
		at:    now.Add(-time.Minute),
		peers: map[bgp.PeerID]*api.Peer{peer.ID(): {State: &api.PeerState{RouterId: "192.0.2.9"}}},
	}
	for _, c := range []struct {
		since    time.Time
		finished bool
	}{{now.Add(-30 * time.Second), false}, {now.Add(-2 * time.Minute), true}} {
		st := stateOf(peer, session{up: true, since: c.since}, listed)
		if st.State != "Established" || st.Finished(now) != c.finished ||
			st.RouterID.IsValid() != c.finished {
			t.Errorf("up since %s: %+v", now.Sub(c.since), st)
		}
	}
}
