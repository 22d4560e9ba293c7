package vpp_test

import (
	"net/netip"
	"slices"
	"testing"

	"vpp-route-agent/internal/dataplanetest"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
	"vpp-route-agent/vpp/vpptest"
)

var testLinks = [2]dataplanetest.Interface{
	{Name: "loop0", V4: netip.MustParsePrefix("10.0.1.1/24"),
		V6: netip.MustParsePrefix("fd00:1::1/64")},
	{Name: "loop1", V4: netip.MustParsePrefix("10.0.2.1/24"),
		V6: netip.MustParsePrefix("fd00:2::1/64")},
}

const (
	hostLink    = "lo"
	memifSocket = "/run/tenant/memif.sock"
	otherSocket = 5 // the number that another program has given it
)

// newServer is an in-memory VPP with two interfaces and one more table.
func newServer(t testing.TB) *vpptest.Server {
	t.Helper()
	s, err := vpptest.New()
	check(t, err)
	t.Cleanup(s.Close)
	equip(s)
	return s
}

func equip(s *vpptest.Server) {
	s.AddTable(otherTable)
	s.AddHostInterface(hostLink)
	s.AddMemifSocket(otherSocket, memifSocket)
	for _, l := range testLinks {
		s.AddInterface(l.Name, l.V4, l.V6)
	}
}

// TestDataplaneVPPTest runs the conformance suite on the in-memory VPP.
func TestDataplaneVPPTest(t *testing.T) {
	s := newServer(t)
	check(t, s.ServeStats())
	cfg := vpp.Config{Socket: s.Socket(), StatsSocket: s.StatsSocket()}
	a := runAgent(t, cfg)
	dataplanetest.Run(t, dataplanetest.Setup{
		Name:         "vpptest",
		Dataplane:    a.VPP,
		Interfaces:   testLinks,
		OtherTable:   otherTable,
		MissingTable: missingTable,
		AddForeign: func(_ *testing.T, r route.Route) (remove func()) {
			s.InjectForeignRoute("API", r)
			return func() { s.RemoveForeignRoute("API", r.Key) }
		},
		AddWorkload: func(_ *testing.T, r route.Route) (remove func()) {
			s.InjectForeignRoute("API", r)
			return func() { s.RemoveForeignRoute("API", r.Key) }
		},
		Dump:        func(*testing.T) map[route.Key]string { return s.Dump() },
		Egress:      func(_ *testing.T, k route.Key) map[string]int { return s.Egress(k) },
		Send:        func(_ *testing.T, k route.Key, packets int) { s.Forward(k, packets) },
		CountByHop:  func(_ *testing.T, on bool) { s.CountByHop(on) },
		NoHopCounts: vpp.ErrNoHopCounts,
		SetLink:     func(_ *testing.T, name string, up bool) { s.SetLink(name, up) },
		AddLink: func(_ *testing.T, table uint32) (string, func()) {
			name := "bare"
			if slices.Contains(s.Interfaces(), name) {
				name = "bare2"
			}
			s.AddInterface(name)
			s.Bind(name, table)
			return name, func() { s.RemoveInterface(name) }
		},
		Made:         func(_ *testing.T, name string) (string, uint32) { return s.Made(name) },
		HostLink:     hostLink,
		MemifSocket:  memifSocket,
		MemifSockets: func(*testing.T) map[uint32]string { return s.MemifSockets() },

		Tables: func(*testing.T) []uint32 { return s.Tables() },
		Reopen: func(*testing.T) fib.Dataplane {
			a.stop()
			a = runAgent(t, cfg)
			return a.VPP
		},
		Reconnect: func(*testing.T) { s.DropConnections() },
		Restart: func(ct *testing.T) {
			check(ct, s.Restart(equip))
		},
	})
}
