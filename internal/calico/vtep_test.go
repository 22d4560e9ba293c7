package calico

import (
	"strings"
	"testing"
)

// The computed ones are "66" and what `printf NAME | sha1sum` prints.
func TestVTEPMAC(t *testing.T) {
	for _, c := range []struct {
		written string
		v6      bool
		want    string
	}{
		{"", false, "66:7d:15:74:ab:ba"},
		{"", true, "66:92:c8:23:fd:60"},
		{"66:1A:2b:3c:4d:5e", false, "66:1a:2b:3c:4d:5e"},
		{"66-1a-2b-3c-4d-5e", true, "66:1a:2b:3c:4d:5e"},
		{"66:1a:2b:3c:4d.5e", false, "is not a MAC address"},
		{"66:1a:2b:3c:4d:+5", false, "is not a MAC address"},
		{"66:1a:2b:3c:4d:5", false, "is not a MAC address"},
		{"x", false, `spec.vxlanTunnelMACAddr: "x"`},
		{"x", true, `spec.vxlanTunnelMACAddrV6: "x"`},
		{"02:00:5e:10:00:00:00:01", false, "is not a MAC address"},
		{"01:00:5e:00:00:01", false, "is not the address of one device"},
		{"00:00:00:00:00:00", false, "is not the address of one device"},
	} {
		n := Node{Name: "edge-5", VXLANTunnelMACAddr: c.written, VXLANTunnelMACAddrV6: c.written}
		got, err := n.VTEPMAC(c.v6)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%q %t: %s, want %s", c.written, c.v6, got, c.want)
		}
	}
}
