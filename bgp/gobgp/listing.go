package gobgp

import (
	"sync"
	"time"

	api "github.com/osrg/gobgp/v3/api"

	"vpp-route-agent/bgp"
)

// listing is GoBGP's answer to ListPeer. GoBGP counts a peer's paths by walking them, inside its
// one goroutine.
type listing struct {
	at      time.Time // when it was asked for
	until   time.Time // it is as good as a new one
	peers   map[bgp.PeerID]*api.Peer
	contact map[bgp.PeerID]time.Time // when a list first had a message that the one before had not
}

// noteContacts notes in l which peers have sent something since the listing before it.
func (l *listing) noteContacts(before listing) {
	l.contact = make(map[bgp.PeerID]time.Time, len(l.peers))
	for id, p := range l.peers {
		l.contact[id] = before.contact[id]
		if n := received(p); n > 0 && n != received(before.peers[id]) {
			l.contact[id] = l.at
		}
	}
}

// received counts the messages of a peer, of which a session that lives has one per keepalive time.
func received(p *api.Peer) uint64 { return p.GetState().GetMessages().GetReceived().GetTotal() }

const (
	// listingShare keeps ListPeer at one part in that many of GoBGP's time, however often it is
	// asked for and however many paths there are.
	listingShare = 50
	// listingAge is the end of that: how long it took may have been waiting for GoBGP.
	listingAge = time.Minute
	// listPatience is how long callers wait for an answer. GoBGP can be blocked for as long as a
	// hold time by a peer that takes nothing.
	listPatience = time.Second
)

// lister asks GoBGP about its peers, one question at a time. GoBGP does not return from a question
// while it is blocked, whatever the context, so it is asked in a goroutine that is not waited for
// and ends when GoBGP answers.
type lister struct {
	mu     sync.Mutex
	last   listing
	asking *question // nil: GoBGP is not being asked
}

type question struct {
	at   time.Time
	done chan struct{} // closed when last has the answer, if there was one
}

// list returns an answer that is at most listingShare times as old as it took to ask, and newer
// than the last change of a session, which was at moved; or, when GoBGP does not give one in time,
// the last one.
func (l *lister) list(moved time.Time, ask func() (map[bgp.PeerID]*api.Peer, error)) listing {
	began := time.Now()
	patience := time.NewTimer(listPatience)
	defer patience.Stop()
	for {
		last, q := l.ask(moved, ask)
		// GoBGP is blocked, which others have waited for already
		if q == nil || began.Sub(q.at) >= listPatience {
			return last
		}
		select {
		case <-q.done:
		case <-patience.C:
			return last
		}
		if !q.at.Before(began) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.last
		}
	}
}

// ask returns the last answer and, when that is not good any more, the question whose answer will
// replace it.
func (l *lister) ask(
	moved time.Time, ask func() (map[bgp.PeerID]*api.Peer, error),
) (listing, *question) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.last.until) && moved.Before(l.last.at) {
		return l.last, nil
	}
	if l.asking == nil {
		l.asking = &question{at: now, done: make(chan struct{})}
		go l.answer(l.asking, ask)
	}
	return l.last, l.asking
}

func (l *lister) answer(q *question, ask func() (map[bgp.PeerID]*api.Peer, error)) {
	peers, err := ask()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if err == nil {
		next := listing{
			at: q.at, until: now.Add(min(listingShare*now.Sub(q.at), listingAge)), peers: peers,
		}
		next.noteContacts(l.last)
		l.last = next
	}
	l.asking = nil
	close(q.done)
}
