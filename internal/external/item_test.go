package external

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// What is wrong may be as long as a client likes. What is said of it is not.
func TestWhatIsQuotedIsCut(t *testing.T) {
	long := strings.Repeat("ä", 100<<10)
	const route = "config/vpp/v2/route/vrf/0/dst/10.0.0.0/8"
	for _, tc := range []struct{ key, text string }{
		{route, `{"dst_network":"LONG"}`},
		{route, `{"dst_network":"10.0.0.0/8","next_hop_addr":"LONG"}`},
		{route, `{"dst_network":"10.0.0.0/8","outgoing_interface":"LONG"}`},
		{route, `{"LONG":1}`},
		{route, `{"weight":"LONG"}`},
		{"config/LONG", "{}"},
		{"config/vpp/v2/vrf-table/id/1/protocol/IPV4", `{"id":1,"label":"LONG"}`},
		{"config/vpp/v2/arp/e/10.0.0.1",
			`{"interface":"e","static":true,"ip_address":"LONG"}`},
		{"config/vpp/v2/arp/e/10.0.0.1",
			`{"interface":"e","static":true,"ip_address":"10.0.0.1","phys_address":"LONG"}`},
		{"config/vpp/l2/v2/xconnect/e",
			`{"receive_interface":"LONG","transmit_interface":"f"}`},
	} {
		key := strings.ReplaceAll(tc.key, "LONG", long)
		i := DecodeJSON(key, []byte(strings.ReplaceAll(tc.text, "LONG", long)), Item{})
		if d := i.Problem.Detail; d == "" || len(d) > 1100 || !utf8.ValidString(d) {
			t.Errorf("%s %s: %d bytes: %.200s", tc.key, tc.text, len(d), d)
		}
	}
}
