// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"errors"
	"net"
	"net/netip"

	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// SessionEvent is one thing that happened to the session with a peer, or to a connection that did
// not become one.
type SessionEvent struct {
	Peer          netip.AddrPort // as Policy has it
	Kind          SessionEventKind
	Err           error                // nil where the kind says it all
	Notification  *bgp.BGPNotification // of NotificationSent and NotificationReceived
	Communication string               // its text for operators (RFC 9003)
}

// SessionEventKind is what happened, in words.
type SessionEventKind string

// GoBGP does not log these: the receiver decides at which level they are logged.
const (
	PeerUp              SessionEventKind = "peer Up"
	PeerDown            SessionEventKind = "peer Down"
	AttributesDiscarded SessionEventKind = "some attributes were discarded"
	TreatedAsWithdraw   SessionEventKind = "the received Update message was treated as withdraw"
	RouteUnsendable     SessionEventKind = "a route cannot be sent, and is withdrawn at the peer"
	KeyRefused          SessionEventKind = "failed to set md5"
	StrangerRefused     SessionEventKind = "a connection from an address of no peer"
)

// These say why a session ends or does not come up, before PeerDown. GoBGP logs them as well.
const (
	HoldTimerExpired       SessionEventKind = "hold timer expired"
	PeerDoesNotRead        SessionEventKind = "the peer took no data for the hold time"
	NotificationSent       SessionEventKind = "sent notification"
	NotificationReceived   SessionEventKind = "received notification"
	MessageRefused         SessionEventKind = "malformed message"
	PrefixLimitReached     SessionEventKind = "prefix limit reached"
	PeerReconnected        SessionEventKind = "the peer opened a new connection" // RFC 4724 §5
	SessionPanicked        SessionEventKind = "session panicked"
	LocalAddressMismatched SessionEventKind = "mismatched local address"
)

// OnSession registers report, which is called with each event. OnSession is called before Serve.
// GoBGP calls report in any of its goroutines and under its locks: report must not wait, and must
// not call the server.
func (s *BgpServer) OnSession(report func(SessionEvent)) { s.onSession = report }

// sessionEvents returns the function that reports events of the session with a peer.
func (s *BgpServer) sessionEvents(peer netip.AddrPort) func(SessionEvent) {
	return func(e SessionEvent) {
		if s.onSession != nil {
			e.Peer = peer
			s.onSession(e)
		}
	}
}

// refuseStranger closes a connection from an address where no peer is. The port of the event is 0.
func (s *BgpServer) refuseStranger(conn *net.TCPConn) {
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	conn.Close()
	s.sessionEvents(netip.AddrPortFrom(from, 0))(SessionEvent{Kind: StrangerRefused})
}

func (fsm *fsm) tell(kind SessionEventKind, err error) {
	fsm.reportEvent(SessionEvent{Kind: kind, Err: err})
}

// reportSent reports the NOTIFICATION that was sent for an error.
func (fsm *fsm) reportSent(e *bgp.MessageError) {
	fsm.reportEvent(SessionEvent{Kind: NotificationSent, Err: e,
		Notification: bgp.NewBGPNotificationMessage(
			e.TypeCode, e.SubTypeCode, e.Data).Body.(*bgp.BGPNotification)})
}

// reportNotification reports a NOTIFICATION that was sent on request, or received.
func (fsm *fsm) reportNotification(kind SessionEventKind, n *bgp.BGPNotification) {
	e := SessionEvent{Kind: kind, Notification: n}
	switch bgp.NewNotificationErrorCode(n.ErrorCode, n.ErrorSubcode) {
	case shutdown, reset:
		e.Communication, _ = decodeAdministrativeCommunication(n.Data)
	}
	fsm.reportEvent(e)
}

func (fsm *fsm) reportEvent(e SessionEvent) {
	if fsm.onSession != nil { // it is nil where a peer group made the peer
		fsm.onSession(e)
	}
}

// The NOTIFICATIONs that can carry a communication.
var (
	shutdown = bgp.NewNotificationErrorCode(
		bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN)
	reset = bgp.NewNotificationErrorCode(
		bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_ADMINISTRATIVE_RESET)
)

// ErrTakenOut is why a session ended whose peer was deleted, perhaps to be added again at once.
var ErrTakenOut = errors.New("taken out of the configuration")

// why says why a session that was up is down.
func (r *fsmStateReason) why() error {
	switch r.Type {
	case fsmReadFailed, fsmGracefulRestart:
		return errors.New("the connection broke")
	case fsmWriteFailed:
		return errors.New("the connection broke while sending")
	case fsmDying:
		return ErrTakenOut
	}
	return errors.New(r.String())
}
