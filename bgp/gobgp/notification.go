package gobgp

import (
	"errors"
	"fmt"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
	"github.com/osrg/gobgp/v3/pkg/server"
)

// notification describes one in the RFCs' words, such as
// `Cease: Administrative Shutdown (RFC 4486) ("maintenance")`.
func notification(e server.SessionEvent) string {
	n := e.Notification
	text := nameOf(n.ErrorCode, n.ErrorSubcode)
	if e.Communication != "" {
		text += fmt.Sprintf(" (%q)", e.Communication)
	}
	return text
}

// sentBecause says why we ended a session. The check of the peer's AS names both numbers.
func sentBecause(e server.SessionEvent) string {
	var why *packet.MessageError
	n := packet.NewNotificationErrorCode(e.Notification.ErrorCode, e.Notification.ErrorSubcode)
	if n == badPeerAS && errors.As(e.Err, &why) {
		return why.Message
	}
	return "we sent " + notification(e)
}

var badPeerAS = packet.NewNotificationErrorCode(
	packet.BGP_ERROR_OPEN_MESSAGE_ERROR, packet.BGP_ERROR_SUB_BAD_PEER_AS)

// errorName is an error code, or a subcode, and where it is written.
type errorName struct{ name, rfc string }

func nameOf(code, subcode uint8) string {
	c, known := errorCodes[code]
	if !known {
		return fmt.Sprintf("code %d subcode %d", code, subcode)
	}
	s, known := errorSubcodes[[2]uint8{code, subcode}]
	switch {
	case known:
		return fmt.Sprintf("%s: %s (%s)", c.name, s.name, s.rfc)
	case subcode != 0:
		return fmt.Sprintf("%s, subcode %d (%s)", c.name, subcode, c.rfc)
	}
	return fmt.Sprintf("%s (%s)", c.name, c.rfc)
}

// errorCodes and errorSubcodes are the registry "BGP Error (Notification) Codes" of IANA.
var errorCodes = map[uint8]errorName{
	1: {"Message Header Error", "RFC 4271 §6.1"},
	2: {"OPEN Message Error", "RFC 4271 §6.2"},
	3: {"UPDATE Message Error", "RFC 4271 §6.3"},
	4: {"Hold Timer Expired", "RFC 4271 §6.5"},
	5: {"Finite State Machine Error", "RFC 4271 §6.6"},
	6: {"Cease", "RFC 4271 §6.7"},
	7: {"ROUTE-REFRESH Message Error", "RFC 7313"},
	8: {"Send Hold Timer Expired", "RFC 9687"},
}

var errorSubcodes = map[[2]uint8]errorName{
	{1, 1}: {"Connection Not Synchronized", "RFC 4271 §6.1"},
	{1, 2}: {"Bad Message Length", "RFC 4271 §6.1"},
	{1, 3}: {"Bad Message Type", "RFC 4271 §6.1"},

	{2, 1}:  {"Unsupported Version Number", "RFC 4271 §6.2"},
	{2, 2}:  {"Bad Peer AS", "RFC 4271 §6.2"},
	{2, 3}:  {"Bad BGP Identifier", "RFC 4271 §6.2"},
	{2, 4}:  {"Unsupported Optional Parameter", "RFC 4271 §6.2"},
	{2, 6}:  {"Unacceptable Hold Time", "RFC 4271 §6.2"},
	{2, 7}:  {"Unsupported Capability", "RFC 5492 §5"},
	{2, 11}: {"Role Mismatch", "RFC 9234 §4.2"},

	{3, 1}:  {"Malformed Attribute List", "RFC 4271 §6.3"},
	{3, 2}:  {"Unrecognized Well-known Attribute", "RFC 4271 §6.3"},
	{3, 3}:  {"Missing Well-known Attribute", "RFC 4271 §6.3"},
	{3, 4}:  {"Attribute Flags Error", "RFC 4271 §6.3"},
	{3, 5}:  {"Attribute Length Error", "RFC 4271 §6.3"},
	{3, 6}:  {"Invalid ORIGIN Attribute", "RFC 4271 §6.3"},
	{3, 8}:  {"Invalid NEXT_HOP Attribute", "RFC 4271 §6.3"},
	{3, 9}:  {"Optional Attribute Error", "RFC 4271 §6.3"},
	{3, 10}: {"Invalid Network Field", "RFC 4271 §6.3"},
	{3, 11}: {"Malformed AS_PATH", "RFC 4271 §6.3"},

	{5, 1}: {"Receive Unexpected Message in OpenSent State", "RFC 6608"},
	{5, 2}: {"Receive Unexpected Message in OpenConfirm State", "RFC 6608"},
	{5, 3}: {"Receive Unexpected Message in Established State", "RFC 6608"},

	{6, 1}:  {"Maximum Number of Prefixes Reached", "RFC 4486"},
	{6, 2}:  {"Administrative Shutdown", "RFC 4486"},
	{6, 3}:  {"Peer De-configured", "RFC 4486"},
	{6, 4}:  {"Administrative Reset", "RFC 4486"},
	{6, 5}:  {"Connection Rejected", "RFC 4486"},
	{6, 6}:  {"Other Configuration Change", "RFC 4486"},
	{6, 7}:  {"Connection Collision Resolution", "RFC 4486"},
	{6, 8}:  {"Out of Resources", "RFC 4486"},
	{6, 9}:  {"Hard Reset", "RFC 8538"},
	{6, 10}: {"BFD Down", "RFC 9384"},

	{7, 1}: {"Invalid Message Length", "RFC 7313"},
}
