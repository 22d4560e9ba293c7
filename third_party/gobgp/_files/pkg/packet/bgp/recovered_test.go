// This file is vpp-route-agent's, not GoBGP's.

package bgp

import (
	"strings"
	"testing"
)

// What the decoder panics on is refused, whatever was to keep it away from the decoder.
func TestDecoderPanicIsRefused(t *testing.T) {
	for _, body := range []string{
		// MP_REACH_NLRI that ends after its family, a route of EVPN and one of VPLS that are cut short
		"\x00\x00\x00\x06\x80\x0e\x03\x00\x01\x01",
		"\x00\x00\x00\x1a\x80\x0f\x17\x00\x19\x46\x02\x12\x00\x10\x17\x39\x00\x99\x00\x0a\x00\x00\x00" +
			"\xe4\x05\x00\x00\x02\x01\x00",
		"\x00\x00\x00\x09\x80\x0f\x06\x00\x19\x41\x00\x01\x00",
	} {
		h := &BGPHeader{Type: BGP_MSG_UPDATE, Len: uint16(BGP_HEADER_LENGTH + len(body))}
		m, err := ParseBGPBody(h, []byte(body))
		e, ok := err.(*MessageError)
		if !ok || e.ErrorHandling != reset || e.TypeCode != BGP_ERROR_UPDATE_MESSAGE_ERROR ||
			!strings.HasPrefix(e.Message, "the decoder panicked: ") {
			t.Errorf("%x: %v", body, err)
		}
		if _, ok := m.Body.(*BGPUpdate); !ok {
			t.Errorf("%x: %T", body, m.Body)
		}
	}
}
