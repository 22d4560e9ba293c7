// This file is vpp-route-agent's, not GoBGP's.

package bgp

import (
	"strings"
	"testing"
)

// What the decoder panics on is refused, whatever was to keep it away from the decoder.
func TestDecoderPanicIsRefused(t *testing.T) {
	for _, body := range []string{
		// MP_REACH_NLRI that ends after its family, a route of EVPN and one of VPLS that are cut
		// short
		"\x00\x00\x00\x06\x80\x0e\x03\x00\x01\x01",
		"\x00\x00\x00\x1a\x80\x0f\x17\x00\x19\x46\x02\x12\x00\x10\x17\x39" +
			"\x00\x99\x00\x0a\x00\x00\x00\xe4\x05\x00\x00\x02\x01\x00",
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

// RFC 9252 §2: a sub-TLV of an unknown type is passed over, and the attribute goes on as it came.
func TestSRv6ServiceWithUnknownSubTLV(t *testing.T) {
	for service, faulty := range map[string]bool{
		"\x05\x00\x05\x00\x09\x00\x01\xff": false, // L3, a sub-TLV of type 9
		"\x06\x00\x05\x00\x09\x00\x01\xff": false, // L2
		"\x05\x00\x04\x00\x09\x00\x00":     false, // an empty one
		"\x05\x00\x00":                     true,  // no reserved byte
		"\x06\x00\x00":                     true,
	} {
		value := string([]byte{0xc0, 40, byte(len(service))}) + service
		body := "\x00\x00\x00" + string([]byte{byte(len(value))}) + value
		h := &BGPHeader{Type: BGP_MSG_UPDATE, Len: uint16(BGP_HEADER_LENGTH + len(body))}
		m, err := ParseBGPBody(h, []byte(body))
		if err != nil {
			t.Errorf("%x: %v", service, err)
			continue
		}
		if faulty {
			continue // it is discarded before it comes to the decoder
		}
		u := m.Body.(*BGPUpdate)
		KeepEncoding(u, []byte(body))
		if again, err := u.PathAttributes[0].Serialize(); err != nil || string(again) != value {
			t.Errorf("%x goes on as %x, %v", value, again, err)
		}
	}
}
