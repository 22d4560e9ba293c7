package gobgp

import (
	"fmt"
	"strings"

	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// poison are the bodies of UPDATEs on which the decoder of GoBGP 3.37 panics, each at another place. Found by fuzzing.
var poison = []struct{ name, update string }{
	{"MP_REACH_NLRI that ends after its family", "\x00\x00\x00\x06\x80\x0e\x03\x00\x01\x01"},
}

// Guarded reports whether this binary's GoBGP refuses such messages, as the one does that make builds
// (docs/decisions/0011-gobgp-guard.md). In another each of them ends the process.
func Guarded() bool {
	for _, p := range poison {
		if !survives([]byte(p.update)) {
			return false
		}
	}
	return true
}

func survives(update []byte) (ok bool) {
	defer func() { ok = recover() == nil }()
	_, _ = packet.ParseBGPBody(&packet.BGPHeader{Type: packet.BGP_MSG_UPDATE, Len: packet.BGP_HEADER_LENGTH + uint16(len(update))}, update)
	return true
}

// decoderPanicked reports whether an error of GoBGP's decoder is of the guard (internal/gobgpguard/guarded.go.txt).
func decoderPanicked(err any) bool {
	return strings.HasPrefix(fmt.Sprint(err), "the decoder panicked: ")
}
