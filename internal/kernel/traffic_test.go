package kernel

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
)

// Packets between two others count, in both families and both ways; the machine's own do not.
func TestForwardedCountsWhatIsForwarded(t *testing.T) {
	l, node, peer := newNamespaces(t)
	far, err := l.Namespace("far")
	check(t, err)
	check(t, l.Veth(
		netlab.End{Namespace: node, Device: "eth3", Addresses: []netip.Prefix{pfx("10.0.3.1/24"),
			pfx("fd00:3::1/64")}},
		netlab.End{Namespace: far, Device: "eth0", Addresses: []netip.Prefix{pfx("10.0.3.2/24"),
			pfx("fd00:3::2/64")}}))
	check(t, node.Forward())
	check(t, far.AddRoute(pfx("10.0.1.0/24"), addr("10.0.3.1"), "eth0"))
	check(t, far.AddRoute(pfx("fd00:1::/64"), addr("fd00:3::1"), "eth0"))
	check(t, peer.AddRoute(pfx("10.0.3.0/24"), addr("10.0.1.1"), "eth1"))
	check(t, peer.AddRoute(pfx("fd00:3::/64"), addr("fd00:1::1"), "eth1"))
	d := start(t, Config{Namespace: node.Path()})
	count := func(to string) (sent, counted int) {
		t.Helper()
		before, err := d.Forwarded()
		check(t, err)
		f, err := far.StartFlow(netlab.FlowConfig{To: addr(to), Interval: 5 * time.Millisecond,
			Timeout: 10 * time.Second})
		check(t, err)
		time.Sleep(500 * time.Millisecond)
		report := f.Stop()
		if report.Sent < 10 || report.Lost > 0 {
			t.Fatalf("%s: %s", to, report)
		}
		after, err := d.Forwarded()
		check(t, err)
		return report.Sent, int(after - before)
	}
	for _, to := range []string{"10.0.1.2", "fd00:1::2"} {
		// a few neighbours' or multicast's
		if sent, counted := count(to); counted < 2*sent || counted > 2*sent+10 {
			t.Errorf("%s: %d packets sent and answered, %d counted", to, sent, counted)
		}
	}
	if sent, counted := count("10.0.3.1"); counted > 10 {
		t.Errorf("%d packets for the machine itself, %d counted", sent, counted)
	}
}

func TestForwardedReadsOldAndNewKernels(t *testing.T) {
	const v4 = "Ip: Forwarding DefaultTTL InReceives ForwDatagrams InDelivers\nIp: 1 64 7 5 " +
		"2\nIcmp: InMsgs\nIcmp: 3\n"
	for name, tc := range map[string]struct {
		snmp, snmp6 string
		want        uint64
	}{
		"both families":     {v4, "Ip6InReceives 9\nIp6OutForwDatagrams \t4\n", 9},
		"without IPv6":      {v4, "", 5},
		"without the count": {"Ip: Forwarding\nIp: 1\n", "", 0},
		"no values":         {"Ip: Forwarding ForwDatagrams\n", "", 0},
		"IPv6 without it":   {v4, "Ip6InReceives 9\n", 0},
	} {
		dir := t.TempDir()
		snmp, snmp6 := filepath.Join(dir, "snmp"), filepath.Join(dir, "snmp6")
		check(t, os.WriteFile(snmp, []byte(tc.snmp), 0o600))
		if tc.snmp6 != "" {
			check(t, os.WriteFile(snmp6, []byte(tc.snmp6), 0o600))
		}
		if got, err := forwarded(snmp, snmp6); got != tc.want || (err == nil) != (tc.want > 0) {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}
