package vpp_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

// Each command of the views is one that VPP knows, and its routes are listed while they are few.
func TestCLIRealVPP(t *testing.T) {
	r := startVPP(t)
	c, err := vpp.DialCLI(t.Context(), vpp.Config{Socket: r.relay.path})
	check(t, err)
	defer c.Close()
	for _, v := range vpp.Views {
		text, err := c.Show(t.Context(), v)
		check(t, err)
		if strings.Contains(text, "unknown input") {
			t.Errorf("%s: %s", v.Name, text)
		}
		t.Logf("%s: %d bytes", v.Name, len(text))
	}
	r.cli(t, "ip route add 10.77.0.0/24 via %s %s", testLinks[0].V4.Addr().Next(),
		testLinks[0].Name)
	text, err := c.Routes(t.Context())
	check(t, err)
	if !strings.Contains(text, "\n10.77.0.0/24") || !strings.Contains(text, "show ip6 fib") {
		t.Errorf("few routes: %s", text)
	}
	r.cli(t, "ip route add count 3000 10.80.0.0/32 via %s %s",
		testLinks[0].V4.Addr().Next(), testLinks[0].Name)
	text, err = c.Routes(t.Context())
	check(t, err)
	if !strings.HasPrefix(text, "VPP has 30") {
		t.Errorf("many routes: %.300s", text)
	}
}

// The listing ends where it would hold VPP up.
func TestCLIRoutes(t *testing.T) {
	server := newServer(t)
	c, err := vpp.DialCLI(t.Context(), vpp.Config{Socket: server.Socket()})
	check(t, err)
	defer c.Close()
	text, err := c.Routes(t.Context())
	check(t, err)
	if !strings.Contains(text, "vpp# show ip fib\n") {
		t.Errorf("few routes: %s", text)
	}
	for i := range 3000 {
		a := netip.AddrFrom4([4]byte{10, 80, byte(i >> 8), byte(i)})
		server.InjectForeignRoute("API", route.Route{
			Key: route.Key{Prefix: netip.PrefixFrom(a, 32)}, Kind: route.Drop})
	}
	text, err = c.Routes(t.Context())
	check(t, err)
	if !strings.HasPrefix(text, "VPP has 30") { // those of a VPP without any come to it
		t.Errorf("many routes: %.300s", text)
	}
	server.Stall()
	defer server.Continue()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Run(ctx, "show version"); err == nil {
		t.Error("a VPP that hangs has answered")
	}
}
