// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"

	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// recvMessageWithError reads a message, decodes it, validates it and makes its paths. A panic in
// any of that concerns the message alone, which nobody else has seen yet: its sender loses the
// session.
func (h *fsmHandler) recvMessageWithError() (m *fsmMsg, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = bgp.NewMessageError(bgp.BGP_ERROR_UPDATE_MESSAGE_ERROR,
				bgp.BGP_ERROR_SUB_MALFORMED_ATTRIBUTE_LIST, nil, bgp.DecoderPanicked(v))
			peer := h.fsm.pConf.State.NeighborAddress
			m = &fsmMsg{fsm: h.fsm, MsgType: fsmMsgBGPMessage, MsgSrc: peer, MsgData: err}
			h.fsm.tell(MessageRefused, err)
			h.fsm.logger.Warn("Session will be reset due to malformed BGP message",
				log.Fields{"Topic": "Peer", "Key": peer, "Error": err})
		}
	}()
	return h.recvMessageUnguarded()
}

// reader is what messages are read from. States before Established leave nothing in a buffer for
// the next one.
func (h *fsmHandler) reader() io.Reader {
	if h.buffered != nil {
		return h.buffered
	}
	return h.conn
}

// synchronized is the marker of a header (RFC 4271 §4.1).
var synchronized = bytes.Repeat([]byte{0xff}, 16)

// readHeader checks what RFC 4271 §6.1 has checked before a body is read.
func readHeader(h *bgp.BGPHeader, b []byte) error {
	refuse := func(subcode uint8, data []byte, why string) error {
		return bgp.NewMessageError(bgp.BGP_ERROR_MESSAGE_HEADER_ERROR, subcode, data, why)
	}
	h.Len, h.Type = binary.BigEndian.Uint16(b[16:18]), b[18]
	if !bytes.Equal(b[:16], synchronized) {
		return refuse(bgp.BGP_ERROR_SUB_CONNECTION_NOT_SYNCHRONIZED, nil,
			"the marker is not all ones")
	}
	shortest, longest := bgp.BGP_HEADER_LENGTH, bgp.BGP_MAX_MESSAGE_LENGTH
	switch h.Type {
	case bgp.BGP_MSG_OPEN:
		shortest = 29
	case bgp.BGP_MSG_UPDATE:
		shortest = 23
	case bgp.BGP_MSG_NOTIFICATION:
		shortest = 21
	case bgp.BGP_MSG_KEEPALIVE:
		longest = bgp.BGP_HEADER_LENGTH
	case bgp.BGP_MSG_ROUTE_REFRESH: // a wrong length is error 7/1 (RFC 7313 §5)
	default:
		return refuse(bgp.BGP_ERROR_SUB_BAD_MESSAGE_TYPE, b[18:19], "unknown message type")
	}
	if int(h.Len) < shortest || int(h.Len) > longest {
		return refuse(bgp.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, b[16:18], "bad message length")
	}
	return nil
}

var twoOctetAS = &bgp.MarshallingOption{TwoOctetAS: true}

// decode decodes a message that has its place in the state of the session. The error says what
// becomes of it.
func (h *fsmHandler) decode(
	hd *bgp.BGPHeader, body []byte, o *bgp.MarshallingOption,
) (*bgp.BGPMessage, error) {
	if subcode := h.misplaced(hd.Type); subcode != 0 {
		const why = "a message of this type has no place in the state of the session"
		return &bgp.BGPMessage{Header: *hd},
			bgp.NewMessageError(bgp.BGP_ERROR_FSM_ERROR, subcode, []byte{hd.Type}, why)
	}
	if hd.Type != bgp.BGP_MSG_UPDATE {
		return bgp.ParseBGPBody(hd, body, o)
	}
	session := h.session()
	revised, err := session.Revise(body)
	if handlingOf(err) == bgp.ERROR_HANDLING_SESSION_RESET {
		return &bgp.BGPMessage{Header: *hd}, err
	}
	hd.Len = uint16(bgp.BGP_HEADER_LENGTH + len(revised))
	var width *bgp.MarshallingOption
	if !session.FourOctetAS {
		width = twoOctetAS
	}
	m, err2 := bgp.ParseBGPBody(hd, revised, o, width)
	if handlingOf(err2) > handlingOf(err) {
		err = err2
	}
	if handlingOf(err) == bgp.ERROR_HANDLING_AFISAFI_DISABLE { // GoBGP would pass over the prefixes
		err.(*bgp.MessageError).ErrorHandling = bgp.ERROR_HANDLING_SESSION_RESET
	}
	if handlingOf(err) < bgp.ERROR_HANDLING_TREAT_AS_WITHDRAW {
		bgp.KeepEncoding(m.Body.(*bgp.BGPUpdate), revised)
	}
	changed := err != nil || len(revised) != len(body)
	if !changed || handlingOf(err) > bgp.ERROR_HANDLING_ATTRIBUTE_DISCARD {
		return m, err
	}
	if empty, _ := m.Body.(*bgp.BGPUpdate).IsEndOfRib(); empty {
		// An UPDATE of which nothing is left is no End-of-RIB. It says that the peer lives.
		if err != nil {
			h.handlingError(m, err, true)
		}
		return bgp.NewBGPKeepAliveMessage(), nil
	}
	return m, err
}

// handlingOf is what an error in an UPDATE asks for.
func handlingOf(err error) bgp.ErrorHandling {
	if err == nil {
		return bgp.ERROR_HANDLING_NONE
	}
	return err.(*bgp.MessageError).ErrorHandling
}

// session is what the peer's UPDATEs are read by.
func (h *fsmHandler) session() *bgp.Session {
	h.fsm.lock.RLock()
	defer h.fsm.lock.RUnlock()
	confederation := h.fsm.pConf.IsConfederationMember(h.fsm.gConf)
	loopback := func(a net.IP) bool { return a.To4() != nil && a.IsLoopback() }
	return &bgp.Session{
		Families:      h.fsm.rfMap,
		External:      h.fsm.pConf.IsEBGPPeer(h.fsm.gConf) && !confederation,
		Confederation: h.fsm.gConf.Confederation.Config.Enabled,
		FourOctetAS:   !h.fsm.twoByteAsTrans,
		Loopback:      loopback(h.fsm.peerInfo.LocalAddress) && loopback(h.fsm.peerInfo.Address),
	}
}

// misplaced returns the subcode for a message that is not allowed in the state of the session, 0 if
// it is allowed (RFC 4271 §8.2.2, RFC 6608 §3).
func (h *fsmHandler) misplaced(kind uint8) uint8 {
	h.fsm.lock.RLock()
	state := h.fsm.state
	h.fsm.lock.RUnlock()
	switch {
	case kind == bgp.BGP_MSG_NOTIFICATION:
	case state == bgp.BGP_FSM_OPENSENT && kind != bgp.BGP_MSG_OPEN:
		return bgp.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_OPENSENT_STATE
	case state == bgp.BGP_FSM_OPENCONFIRM && kind != bgp.BGP_MSG_KEEPALIVE:
		return bgp.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_OPENCONFIRM_STATE
	case state == bgp.BGP_FSM_ESTABLISHED && kind == bgp.BGP_MSG_OPEN:
		return bgp.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_ESTABLISHED_STATE
	}
	return 0
}

// announces reports whether u names a route. If it does not, what is wrong with it may have hidden
// those that it was to name, and none would be withdrawn (RFC 7606 §5.2).
func announces(u *bgp.BGPUpdate) bool {
	for _, a := range u.PathAttributes {
		if reach, ok := a.(*bgp.PathAttributeMpReachNLRI); ok && len(reach.Value) > 0 {
			return true
		}
	}
	return len(u.NLRI) > 0
}
