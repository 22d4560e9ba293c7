// This file is vpp-route-agent's, not GoBGP's.

package bgp

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// parseBody decodes the body of a message. A panic refuses the message as unreadable, which ends
// only the session of its sender. The message returned with the error has the right types: callers
// look at them before they look at the error.
func parseBody(
	h *BGPHeader, data []byte, options ...*MarshallingOption,
) (msg *BGPMessage, err error) {
	defer func() {
		if v := recover(); v != nil {
			msg, err = refused(h, DecoderPanicked(v))
		}
	}()
	return parseBodyUnguarded(h, data, options...)
}

// decodeAttribute decodes one attribute of an UPDATE. A panic makes the attribute malformed, and
// its type decides: most are discarded, some make the message a withdrawal (RFC 7606 §7). So a
// remote router does not end the session with its relay. Attributes with prefixes are not caught
// here.
func decodeAttribute(
	p PathAttributeInterface, data []byte, options ...*MarshallingOption,
) (err error) {
	switch BGPAttrType(data[1]) { // there are two bytes, or there were no p
	case BGP_ATTR_TYPE_MP_REACH_NLRI, BGP_ATTR_TYPE_MP_UNREACH_NLRI:
		return p.DecodeFromBytes(data, options...)
	}
	defer func() {
		if v := recover(); v != nil {
			err = NewMessageError(BGP_ERROR_UPDATE_MESSAGE_ERROR,
				BGP_ERROR_SUB_OPTIONAL_ATTRIBUTE_ERROR, nil, DecoderPanicked(v))
		}
	}()
	return p.DecodeFromBytes(data, options...)
}

// refused returns the error that RFC 4271 §6 has for a message that is malformed in no particular
// way.
func refused(h *BGPHeader, why string) (*BGPMessage, error) {
	msg := &BGPMessage{Header: *h}
	code, subcode := uint8(BGP_ERROR_MESSAGE_HEADER_ERROR), uint8(BGP_ERROR_SUB_BAD_MESSAGE_LENGTH)
	switch h.Type {
	case BGP_MSG_OPEN:
		msg.Body = &BGPOpen{}
		code, subcode = BGP_ERROR_OPEN_MESSAGE_ERROR, 0
	case BGP_MSG_NOTIFICATION:
		msg.Body = &BGPNotification{}
	case BGP_MSG_ROUTE_REFRESH:
		msg.Body = &BGPRouteRefresh{}
	case BGP_MSG_KEEPALIVE:
		msg.Body = &BGPKeepAlive{}
	default:
		msg.Body = &BGPUpdate{}
		code, subcode = BGP_ERROR_UPDATE_MESSAGE_ERROR, BGP_ERROR_SUB_MALFORMED_ATTRIBUTE_LIST
	}
	return msg, NewMessageError(code, subcode, nil, why)
}

const decoderPanicked = "the decoder panicked: "

// DecoderPanicked describes a panic of the decoder and where it was; it is called while the panic
// is being recovered.
func DecoderPanicked(v any) string { return decoderPanicked + DescribePanic(v) }

// IsDecoderPanic tells an error of a decoder that panicked from GoBGP's own.
func IsDecoderPanic(err error) bool { return strings.HasPrefix(err.Error(), decoderPanicked) }

// DescribePanic says the same for what is no decoder.
func DescribePanic(v any) string { return fmt.Sprintf("%v (%s)", v, panicked()) }

// panicked names the function that panicked and its line.
func panicked() string {
	pc := make([]uintptr, 32)
	frames := runtime.CallersFrames(pc[:runtime.Callers(0, pc)])
	// runtime's frames of the panic lie between the recovering function and the one that panicked
	seen := false
	for {
		f, more := frames.Next()
		if f.Function == "runtime.gopanic" {
			seen = true
		} else if seen && !strings.HasPrefix(f.Function, "runtime.") {
			return fmt.Sprintf("%s at %s:%d", f.Function[strings.LastIndexByte(f.Function, '/')+1:],
				filepath.Base(f.File), f.Line)
		}
		if !more {
			return "somewhere"
		}
	}
}
