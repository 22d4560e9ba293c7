// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v3/pkg/config/oc"
	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

const (
	// openTime is how long a connection may take to its OPEN, in seconds. Honest peers send it at
	// once.
	openTime = 10
	// maxSilent bounds the connections that a peer may have opened without sending OPEN on them.
	maxSilent = 4
)

// candidate is a connection that the peer opened and sent a valid OPEN on.
type candidate struct {
	conn     net.Conn
	accepted time.Time
	open     *bgp.BGPMessage
	as       uint32
}

// candidates are the connections that the peer opened and that are not the session's. RFC 4271 §8.1
// has a state machine for each. Here they wait beside the session's connection: a silent one blocks
// nothing.
type candidates struct {
	look chan struct{} // of size 1: opened has to be looked at

	mu     sync.Mutex
	silent []net.Conn // without OPEN, oldest first
	opened *candidate // the newest with OPEN
	closed bool       // the peer is deleted
}

func newCandidates() *candidates { return &candidates{look: make(chan struct{}, 1)} }

// again makes the next state look at what the one before left.
func (cs *candidates) again() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.opened != nil {
		cs.wake()
	}
}

func (cs *candidates) wake() {
	select {
	case cs.look <- struct{}{}:
	default:
	}
}

// add reports whether conn may wait for its OPEN. One too many takes the place of the oldest.
func (cs *candidates) add(conn net.Conn) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return false
	}
	if len(cs.silent) == maxSilent {
		cs.silent[0].Close()
		cs.silent = cs.silent[1:]
	}
	cs.silent = append(cs.silent, conn)
	return true
}

func (cs *candidates) leave(conn net.Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.silent = slices.DeleteFunc(cs.silent, func(c net.Conn) bool { return c == conn })
}

// offer makes c the candidate, and returns the one that is to be closed, if there is one.
func (cs *candidates) offer(c *candidate) (unwanted *candidate) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return c
	}
	unwanted, cs.opened = cs.opened, c
	cs.wake()
	return unwanted
}

// take returns the candidate, if there is one that is wanted, and forgets it.
func (cs *candidates) take(wanted func(*candidate) bool) *candidate {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.opened
	if c == nil || !wanted(c) {
		return nil
	}
	cs.opened = nil
	return c
}

func anyCandidate(*candidate) bool { return true }

func (cs *candidates) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	for _, conn := range cs.silent {
		conn.Close()
	}
	if cs.opened != nil {
		cs.opened.conn.Close()
	}
	cs.silent, cs.opened = nil, nil
}

// openCandidate sends OPEN on a connection that the peer opened, and waits for the peer's beside
// everything else.
func (fsm *fsm) openCandidate(conn *net.TCPConn) {
	fsm.lock.RLock()
	unprotected := fsm.olderThanKey(conn)
	fsm.lock.RUnlock()
	if unprotected || !fsm.candidates.add(conn) {
		conn.Close()
		return
	}
	go func() {
		c, err := guarded(func() (*candidate, error) { return fsm.exchangeOpen(conn) })
		fsm.candidates.leave(conn)
		if err != nil {
			fsm.giveUp(conn, err)
			return
		}
		if unwanted := fsm.sessionFor(c).candidates.offer(c); unwanted != nil {
			fsm.closeConn(unwanted.conn, errCollision)
		}
	}()
}

func (fsm *fsm) exchangeOpen(conn *net.TCPConn) (*candidate, error) {
	c := &candidate{conn: conn, accepted: time.Now()}
	var conf oc.Neighbor
	var localAS uint32
	var routerID net.IP
	prepare := func() ([]byte, error) {
		fsm.lock.Lock()
		defer fsm.lock.Unlock() // also where this panics
		conf = *fsm.pConf
		conf.AfiSafis = slices.Clone(conf.AfiSafis)     // buildopen changes them
		conf.State.SessionState = oc.SESSION_STATE_IDLE // OPEN is of a session to come
		localAS, routerID = fsm.peerInfo.LocalAS, net.ParseIP(fsm.gConf.Config.RouterId)
		open, err := buildopen(fsm.gConf, &conf).Serialize()
		return open, errors.Join(err, setPeerConnTTL(fsm, conn), setPeerConnMSS(fsm, conn),
			conn.SetDeadline(c.accepted.Add(openTime*time.Second)))
	}
	open, err := prepare()
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(open); err != nil {
		return nil, err
	}
	fsm.bgpMessageStateUpdate(bgp.BGP_MSG_OPEN, false)
	if c.open, err = readOpen(conn); err != nil {
		return nil, &errUnread{err}
	}
	fsm.bgpMessageStateUpdate(c.open.Header.Type, true)
	switch body := c.open.Body.(type) {
	case *bgp.BGPNotification:
		return nil, &errNotified{body}
	case *bgp.BGPOpen:
		c.as, err = bgp.ValidateOpenMsg(body, conf.Config.PeerAs, localAS, routerID)
		if err != nil {
			return nil, err
		}
	}
	return c, conn.SetDeadline(time.Time{})
}

// errUnread: OPEN did not come, or was malformed.
type errUnread struct{ error }

func (e *errUnread) Unwrap() error { return e.error }

type errNotified struct{ *bgp.BGPNotification }

func (e *errNotified) Error() string {
	return "NOTIFICATION " + bgp.NewNotificationErrorCode(e.ErrorCode, e.ErrorSubcode).String()
}

// readOpen reads OPEN, or NOTIFICATION instead.
func readOpen(conn net.Conn) (*bgp.BGPMessage, error) {
	head, err := readAll(conn, bgp.BGP_HEADER_LENGTH)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, bgp.NewMessageError(bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, nil, "no OPEN came")
	}
	if err != nil {
		return nil, err
	}
	h := &bgp.BGPHeader{}
	if err := readHeader(h, head); err != nil {
		return nil, err
	}
	if h.Type != bgp.BGP_MSG_OPEN && h.Type != bgp.BGP_MSG_NOTIFICATION { // RFC 6608 §3
		return nil, bgp.NewMessageError(bgp.BGP_ERROR_FSM_ERROR,
			bgp.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_OPENSENT_STATE, []byte{h.Type},
			"no OPEN came first")
	}
	body, err := readAll(conn, int(h.Len)-bgp.BGP_HEADER_LENGTH)
	if err != nil {
		return nil, err
	}
	return bgp.ParseBGPBody(h, body)
}

// giveUp closes a connection that did not become a session. Unless a session is up, the log says
// why.
func (fsm *fsm) giveUp(conn net.Conn, err error) {
	fsm.closeConn(conn, err)
	fsm.lock.RLock()
	fields := log.Fields{"Topic": "Peer", "Key": fsm.pConf.State.NeighborAddress, "Error": err}
	up := fsm.state == bgp.BGP_FSM_ESTABLISHED
	fsm.lock.RUnlock()
	var sent *bgp.MessageError
	var unread *errUnread
	var received *errNotified
	switch {
	case up:
		fsm.logger.Info("Closed an accepted connection", fields)
	case errors.As(err, &sent):
		if errors.As(err, &unread) && sent.TypeCode != bgp.BGP_ERROR_HOLD_TIMER_EXPIRED {
			fsm.tell(MessageRefused, err)
			fsm.logger.Warn("Session will be reset due to malformed BGP message", fields)
		}
		fsm.reportSent(sent)
		fields["Data"] = sent
		fsm.logger.Warn("sent notification", fields)
	case errors.As(err, &received):
		fsm.reportNotification(NotificationReceived, received.BGPNotification)
		fields["Code"], fields["Subcode"] = received.ErrorCode, received.ErrorSubcode
		fsm.logger.Warn("received notification", fields)
	default:
		fsm.logger.Warn("Closed an accepted connection", fields)
	}
}

// toldWhy reports the NOTIFICATION of a peer that gives up in OPENSENT or OPENCONFIRM. That of a
// collision is no reason: the other connection goes on.
func (h *fsmHandler) toldWhy(m *bgp.BGPMessage) {
	n, ok := m.Body.(*bgp.BGPNotification)
	if !ok || n.ErrorCode == bgp.BGP_ERROR_CEASE &&
		n.ErrorSubcode == bgp.BGP_ERROR_SUB_CONNECTION_COLLISION_RESOLUTION {
		return
	}
	h.fsm.reportNotification(NotificationReceived, n)
	h.fsm.logger.Warn("received notification", log.Fields{"Topic": "Peer",
		"Key":  h.fsm.pConf.State.NeighborAddress,
		"Code": n.ErrorCode, "Subcode": n.ErrorSubcode})
}

// closeConn closes a connection that is not the session's, with a NOTIFICATION where err is one.
func (fsm *fsm) closeConn(conn net.Conn, err error) {
	defer conn.Close()
	var e *bgp.MessageError
	if !errors.As(err, &e) {
		return
	}
	b, err := bgp.NewBGPNotificationMessage(e.TypeCode, e.SubTypeCode, e.Data).Serialize()
	if err == nil && conn.SetWriteDeadline(time.Now().Add(time.Second)) == nil {
		conn.Write(b)
		fsm.bgpMessageStateUpdate(bgp.BGP_MSG_NOTIFICATION, false)
	}
}
