package gobgp

import (
	"fmt"
	"strings"

	"github.com/osrg/gobgp/v3/pkg/apiutil"
	packet "github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// poison are the bodies of UPDATEs on which GoBGP 3.37 panics, each at another place. Found with random bytes.
var poison = []struct {
	name   string
	update string
	ends   bool // the session of the sender; else its route is taken, with or without the attribute
}{
	{"MP_REACH_NLRI that ends after its family", "\x00\x00\x00\x06\x80\x0e\x03\x00\x01\x01", true},
	{"MP_UNREACH_NLRI with an EVPN route cut short", "\x00\x00\x00\x1a\x80\x0f\x17\x00\x19\x46\x02\x12\x00\x10\x17\x39\x00\x99\x00\x0a\x00\x00\x00\xe4\x05\x00\x00\x02\x01\x00", true},
	{"MP_UNREACH_NLRI with a VPLS route cut short", "\x00\x00\x00\x09\x80\x0f\x06\x00\x19\x41\x00\x01\x00", true},
	{"Prefix-SID whose service is cut short", "\x00\x00\x00\x1f" + poisonedPath + "\xc0\x28\x07\x05\x00\x04\x06\x01\x00\x00" + poisonedPrefix, false},
	{"SR policy without a binding SID, which is legal", "\x00\x00\x00\x20" + poisonedPath + "\xc0\x17\x08\x00\x0f\x00\x04\x0d\x02\x00\x00" + poisonedPrefix, false},
}

const (
	poisonedPath   = "\x40\x01\x01\x00\x40\x02\x00\x40\x03\x04\xc0\x00\x02\x4e\x40\x05\x04\x00\x00\x00\x64" // ORIGIN, AS_PATH, NEXT_HOP 192.0.2.78, LOCAL_PREF
	poisonedPrefix = "\x1a\x0a\x4e\x01\x00"                                                                 // 10.78.1.0/26
)

// Guarded reports whether this binary's GoBGP survives such messages, as the one does that make builds
// (docs/decisions/0011-gobgp-guard.md). In another each of them ends the process.
func Guarded() bool {
	for _, p := range poison {
		if !survives([]byte(p.update)) {
			return false
		}
	}
	return true
}

// survives does with a message what GoBGP does with it in goroutines of its own.
func survives(update []byte) (ok bool) {
	defer func() { ok = recover() == nil }()
	m, _ := packet.ParseBGPBody(&packet.BGPHeader{Type: packet.BGP_MSG_UPDATE, Len: packet.BGP_HEADER_LENGTH + uint16(len(update))}, update)
	_, _ = apiutil.MarshalPathAttributes(m.Body.(*packet.BGPUpdate).PathAttributes)
	return true
}

// decoderPanicked tells an error of the guard (internal/gobgpguard/decoder.go.txt) from GoBGP's own.
func decoderPanicked(err any) bool {
	return strings.HasPrefix(fmt.Sprint(err), "the decoder panicked: ")
}
