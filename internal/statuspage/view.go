package statuspage

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
)

// view is what a look at the agent found. It never changes once it is shown, so that all streams
// read the same one.
type view struct {
	number  uint64 // of this look; 1 is the first
	summary []byte // JSON
	peers   []peer // by the order of Status
	changed uint64 // the look that last found anything changed

	summaryChanged uint64 // the look that last found the summary changed
	peersReplaced  uint64 // the look that last found other peers, or another order
}

// peer is a line of the table of sessions.
type peer struct {
	id      bgp.PeerID
	text    []byte // JSON
	changed uint64 // the look that last found it changed
}

// views hands the newest view to streams.
type views struct {
	opened chan struct{} // of size 1: a stream has come

	mu      sync.Mutex
	running bool
	streams int
	newest  *view         // nil while there is no stream
	looked  time.Time     // when the last look ended
	renewed chan struct{} // closed when newest changes, or streams are to end
	number  uint64
}

// maxStreams bounds the streams of events, and so the pages that are open at a time.
const maxStreams = 16

func newViews() views {
	return views{opened: make(chan struct{}, 1), renewed: make(chan struct{})}
}

func (v *views) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.running = true
}

// end has all streams end.
func (v *views) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.running = false
	close(v.renewed)
	v.renewed = make(chan struct{})
}

// enter counts a stream in, if it may come; else why tells.
func (v *views) enter() (why string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !v.running:
		return "the agent is starting or stopping"
	case v.streams >= maxStreams:
		return "16 pages are open already, which is as many as this agent serves; close one"
	}
	v.streams++
	select {
	case v.opened <- struct{}{}:
	default:
	}
	return ""
}

func (v *views) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.streams--; v.streams == 0 {
		// They are not renewed, and the next page would take them for the present.
		v.newest, v.looked = nil, time.Time{}
	}
}

func (v *views) watched() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.streams > 0
}

// latest returns the newest view, when that was found last, and what is closed when there is
// another; running is false when the stream is to end.
func (v *views) latest() (newest *view, looked time.Time, renewed <-chan struct{}, running bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.newest, v.looked, v.renewed, v.running
}

// show makes a view of what a look found, and wakes streams if that differs.
func (v *views) show(f found) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.streams == 0 {
		return
	}
	v.number++
	v.looked = time.Now()
	next := f.after(v.newest, v.number)
	if v.newest != nil && next.changed == v.newest.changed {
		return
	}
	v.newest = next
	close(v.renewed)
	v.renewed = make(chan struct{})
}

// found is what a look at the agent finds, as JSON.
type found struct {
	summary []byte
	ids     []bgp.PeerID
	peers   [][]byte
}

// after makes the view that follows before, which may be nil, and says what has changed.
func (f found) after(before *view, number uint64) *view {
	if before == nil {
		before = &view{peersReplaced: number}
	}
	next := &view{number: number, summary: f.summary, changed: before.changed,
		summaryChanged: before.summaryChanged, peersReplaced: before.peersReplaced}
	if !bytes.Equal(f.summary, before.summary) {
		next.summaryChanged, next.changed = number, number
	}
	same := slices.EqualFunc(f.ids, before.peers,
		func(id bgp.PeerID, p peer) bool { return id == p.id })
	if !same || next.peersReplaced == number {
		next.peersReplaced, next.changed = number, number
	}
	for i, id := range f.ids {
		p := peer{id: id, text: f.peers[i], changed: number}
		if same && bytes.Equal(p.text, before.peers[i].text) {
			p = before.peers[i]
		} else {
			next.changed = number
		}
		next.peers = append(next.peers, p)
	}
	return next
}

// look asks the agent how it stands.
func (p *Page) look(now time.Time) found {
	s := p.cfg.Agent.Status()
	f := found{}
	for _, peer := range s.BGP.Peers {
		peer.LastContact = nil // it changes with each KEEPALIVE
		f.ids, f.peers = append(f.ids, peer.Peer), append(f.peers, encode(peer))
	}
	f.summary = encode(summarize(s, now, p.cfg.Agent.Turned()))
	return f
}

// summary is a Status whose lists are cut, and what they were cut from. What changes although
// nothing happens is left out.
type summary struct {
	agent.Status
	Counts counts     `json:"counts"`
	Stuck  *time.Time `json:"stuck,omitempty"` // when the loop turned last, if long ago
}

// counts are the lengths of the lists of a Status.
type counts struct {
	Peers         int `json:"peers"`
	Established   int `json:"established"`
	Announcements int `json:"announcements"`
	Withheld      int `json:"withheld"`
	Unrouted      int `json:"unrouted"`
	Problems      int `json:"problems"`
	UnusableHops  int `json:"unusableNextHops"`
}

// maxListed bounds each list that grows with the cluster. The others are short as they are:
// Unsettled has ten (agent.maxUnsettled), Conditions and Degraded what can be said at all, External
// its sources, and the rest what is configured.
const maxListed = 50

// stuckAfter is how long a turn of the agent's loop takes at most without a remark. A turn may wait
// for GoBGP or etcd.
const stuckAfter = 10 * time.Second

func summarize(s agent.Status, now, turned time.Time) summary {
	out := summary{Counts: counts{
		Peers: len(s.BGP.Peers), Announcements: len(s.BGP.Announcements),
		Withheld: len(s.BGP.Withheld), Unrouted: len(s.Unrouted), Problems: len(s.Problems),
		UnusableHops: len(s.FIB.UnusableNextHops),
	}}
	for _, p := range s.BGP.Peers {
		if p.Established {
			out.Counts.Established++
		}
	}
	s.BGP.Peers = []agent.PeerStatus{}
	s.BGP.Announcements = cut(s.BGP.Announcements)
	s.BGP.Withheld = cut(s.BGP.Withheld)
	s.Unrouted, s.Problems = cut(s.Unrouted), cut(s.Problems)
	s.FIB.UnusableNextHops = cut(s.FIB.UnusableNextHops)
	s.FIB.Routes, s.FIB.Guard = cut(s.FIB.Routes), cut(s.FIB.Guard) // null without a data plane
	s.FIB.Drift.Checked = 0
	s.FIB.LastContact = nil
	if s.Datastore.Connected {
		s.Datastore.LastContact = nil
	}
	if !turned.IsZero() && now.Sub(turned) > stuckAfter {
		out.Stuck = &turned
	}
	out.Status = s
	return out
}

// cut never returns nil, which would be null in JSON.
func cut[T any](all []T) []T { return append([]T{}, all[:min(len(all), maxListed)]...) }

// encode escapes <, > and & besides, as encoding/json does.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("statuspage: " + err.Error()) // no field of a status can fail
	}
	return text
}
