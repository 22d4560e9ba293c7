// This file is vpp-route-agent's, not GoBGP's.

package bgp

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

// What Revise leaves of an UPDATE is in order, but for attributes that are missing, and its
// prefixes can be decoded.
func FuzzRevise(f *testing.F) {
	for _, s := range []string{
		"0000 0015 40010100400200400304c000020140050400000064 1a0a010000",
		"0005 1a0a010000 0000",
		"0000 0026 40010103400200 800e 1a 0002 01 10 20010db8000000000000000000000002 " +
			"00 10 fd00 c00800",
		"0000 000a c02806060000370000 c008",
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true, true)
	}
	f.Fuzz(func(t *testing.T, body []byte, four, external bool) {
		families := map[RouteFamily]BGPAddPathMode{RF_IPv4_UC: 0, RF_IPv6_UC: 0}
		s := &Session{Families: families, FourOctetAS: four, External: external}
		before := bytes.Clone(body)
		once, err := s.Revise(body)
		if !bytes.Equal(body, before) {
			t.Fatal("it wrote to its input")
		}
		if err != nil && err.(*MessageError).ErrorHandling == reset {
			return
		}
		twice, err := s.Revise(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%x, and again %x, %v", once, twice, err)
		}
		h := &BGPHeader{Type: BGP_MSG_UPDATE, Len: uint16(BGP_HEADER_LENGTH + len(once))}
		m, err := ParseBGPBody(h, once)
		if e, ok := err.(*MessageError); ok && e.ErrorHandling > withdraw {
			if e.SubTypeCode != BGP_ERROR_SUB_UNRECOGNIZED_WELL_KNOWN_ATTRIBUTE {
				t.Fatalf("%x: %v", once, err)
			}
		} else if err == nil {
			KeepEncoding(m.Body.(*BGPUpdate), once)
		}
	})
}
