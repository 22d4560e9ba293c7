package gobgp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	api "github.com/osrg/gobgp/v3/api"
	"github.com/osrg/gobgp/v3/pkg/server"

	"vpp-route-agent/bgp"
)

// Peers returns the state of every peer of the plan, in its order. What the sweep needs
// (Established, EndOfRIB, LastUpdate, Since) is current; counters may be older, and Peers waits for
// them for at most listPatience. Advertised counts only our own announcements: counting others
// means running export.
func (s *Speaker) Peers() []bgp.PeerState {
	listed := s.listPeers()
	facts := s.sessions.snapshot()
	s.mu.Lock()
	v := s.view
	s.mu.Unlock()
	announced := map[bool]int{}
	for _, a := range v.announced {
		announced[a.Prefix.Addr().Is4()]++
	}
	out := make([]bgp.PeerState, 0, len(v.peers))
	missing := map[netip.Addr]bool{}
	for _, p := range v.peers {
		st := stateOf(p, facts[p.ID()], listed)
		if own := p.LocalAddress; !st.Established && own.IsValid() {
			if _, asked := missing[own]; !asked {
				missing[own] = isMissing(own)
			}
			if missing[own] {
				st.LastError = fmt.Sprintf("this host does not have %s, the local address of "+
					"this session", own)
			}
		}
		if why, ok := v.problems[p.ID()]; ok {
			st.LastError, st.Problem = why, why
		}
		if st.Established && !st.Deferring {
			st.Advertised = announced[p.Address.Is4()]
		}
		out = append(out, st)
	}
	return out
}

// listPeers returns what GoBGP says about its peers.
func (s *Speaker) listPeers() listing {
	s.mu.Lock()
	srv := s.view.server
	s.mu.Unlock()
	if srv == nil {
		return listing{}
	}
	return s.lister.list(s.sessions.lastMoved(), func() (map[bgp.PeerID]*api.Peer, error) {
		peers := map[bgp.PeerID]*api.Peer{}
		// Without EnableAdvertised: that would run every peer's export over the whole table.
		err := srv.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) {
			if id, ok := parsePeer(p.GetState().GetNeighborAddress()); ok {
				peers[id] = p
			}
		})
		return peers, err
	})
}

// stateOf joins what we noted about a session with what GoBGP lists, which does not have the peer
// while it is not configured.
func stateOf(p bgp.Peer, f session, listed listing) bgp.PeerState {
	l := listed.peers[p.ID()]
	st := bgp.PeerState{
		ID:          p.ID(),
		State:       "Idle",
		Since:       f.since,
		LastError:   f.lastError,
		Established: f.up,
		EndOfRIB:    f.endOfRIB,
		LastUpdate:  f.lastUpdate,
		Flaps:       f.flaps,
		LastContact: listed.contact[p.ID()],
	}
	if l != nil {
		st.State = stateNames[l.State.SessionState]
		st.UpdatesReceived = l.State.GetMessages().GetReceived().GetUpdate()
		st.UpdatesSent = l.State.GetMessages().GetSent().GetUpdate()
		for _, a := range l.AfiSafis {
			st.Received += int(a.GetState().GetReceived())
			st.Accepted += int(a.GetState().GetAccepted())
		}
	}
	switch {
	case f.up:
		st.State = stateNames[api.PeerState_ESTABLISHED]
		st.GR = true
		if !listed.at.Before(f.since) { // an older list is of an earlier session
			st.GR, st.Restarting = gracefulRestart(l)
			st.Deferring = deferring(l.GetGracefulRestart(), time.Since(f.since))
			st.RouterID, _ = netip.ParseAddr(l.GetState().GetRouterId())
		}
	case st.State == stateNames[api.PeerState_ESTABLISHED]:
		st.State = stateNames[api.PeerState_OPENCONFIRM] // our notes come a moment after GoBGP's
	}
	isBack := !f.out && st.LastError == server.ErrTakenOut.Error()
	if !f.up && (st.LastError == "" || isBack) {
		st.LastError = waitingFor(p)
	}
	return st
}

// deferring reports whether UPDATEs still wait for a peer whose session has been up for that long.
// GoBGP's timer ends the wait without telling us, and the list may be from before.
func deferring(listed *api.GracefulRestart, up time.Duration) bool {
	return listed.GetLocalRestarting() &&
		up < time.Duration(listed.GetDeferralTime())*time.Second
}

// waitingFor says what a session waits for that never was up and of which GoBGP reported no error.
// GoBGP has failed dials only in its debug log. What has another password, or none, is dropped
// without a response (RFC 2385 §2).
func waitingFor(p bgp.Peer) string {
	silence := "the peer has not answered"
	if p.Passive {
		silence = "the peer has not dialled"
	}
	if p.Password != nil {
		silence += ", or not with the password of this session"
	}
	return silence
}

// isMissing reports whether this host lacks an address: no peer is dialled from there, and none can
// dial us. The kernel is asked as for a session: it may allow addresses that no interface has.
func isMissing(a netip.Addr) bool {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.EADDRNOTAVAIL)
}

// gracefulRestart reads the peer's capability (RFC 4724 §3): whether it came at all, which promises
// an End-of-RIB, and its R bit.
func gracefulRestart(l *api.Peer) (negotiated, restarting bool) {
	for _, c := range l.GetState().GetRemoteCap() {
		var gr api.GracefulRestartCapability
		if c.MessageIs(&gr) && c.UnmarshalTo(&gr) == nil {
			negotiated = true
			restarting = restarting || gr.Flags&0x8 != 0
		}
	}
	return negotiated, restarting
}

var stateNames = map[api.PeerState_SessionState]string{
	api.PeerState_UNKNOWN:     "Idle",
	api.PeerState_IDLE:        "Idle",
	api.PeerState_CONNECT:     "Connect",
	api.PeerState_ACTIVE:      "Active",
	api.PeerState_OPENSENT:    "OpenSent",
	api.PeerState_OPENCONFIRM: "OpenConfirm",
	api.PeerState_ESTABLISHED: "Established",
}

// Counters returns what was counted since the start.
func (s *Speaker) Counters() bgp.Counters {
	c := bgp.Counters{
		Dropped: int(s.learned.dropped.Load()), Foreign: int(s.learned.foreign.Load()),
	}
	s.sessions.count(&c)
	c.Removing = int(s.removing.Load())
	return c
}
