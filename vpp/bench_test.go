package vpp_test

import (
	"context"
	"fmt"
	"testing"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/core"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

// BenchmarkProgram adds and deletes host routes on a real VPP: this package, GoVPP's stream with a
// bounded window, and one call per route. Report in routes per second; run with -benchtime 100000x
// or so.
func BenchmarkProgram(b *testing.B) {
	r := startVPP(b)
	a := runAgent(b, vpp.Config{Socket: r.path("api.sock")})
	a.await(b, "connection", present)
	programs := map[string]func(b *testing.B, ops []route.Op){
		"agent": func(b *testing.B, ops []route.Op) { a.mustApply(b, ops...) },
	}
	plain, err := core.Connect(socketclient.NewVppClient(r.path("api.sock")))
	check(b, err)
	defer plain.Disconnect()
	programs["govpp stream"] = func(b *testing.B, ops []route.Op) {
		throughStream(b, plain, ops, 256)
	}
	programs["govpp calls"] = func(b *testing.B, ops []route.Op) {
		for _, op := range ops {
			_, err := ip.NewServiceClient(plain).IPRouteAddDelV2(b.Context(), message(op))
			check(b, err)
		}
	}
	// VPP's pools grow before the first one is measured
	throughStream(b, plain, hostRoutes(100_000), 256)
	for _, name := range []string{"agent", "govpp stream", "govpp calls"} {
		program := programs[name]
		b.Run(name, func(b *testing.B) {
			puts := hostRoutes(b.N)
			deletes := make([]route.Op, len(puts))
			for i, op := range puts {
				deletes[i] = route.Op{Delete: true, Route: op.Route}
			}
			b.ResetTimer()
			program(b, puts)
			added := b.Elapsed()
			program(b, deletes)
			b.ReportMetric(float64(b.N)/added.Seconds(), "adds/s")
			b.ReportMetric(float64(b.N)/(b.Elapsed()-added).Seconds(), "dels/s")
		})
	}
}

// message is op, of a route over the first interface, under the API source.
func message(op route.Op) *ip.IPRouteAddDelV2 {
	m := &ip.IPRouteAddDelV2{IsAdd: !op.Delete}
	m.Route.Prefix = ip_types.Prefix{Len: uint8(op.Route.Prefix.Bits()),
		Address: ip_types.Address{Un: ip_types.AddressUnionIP4(op.Route.Prefix.Addr().As4())}}
	if m.IsAdd {
		p := fib_types.FibPath{SwIfIndex: 1, Weight: 1}
		p.Nh.Address = ip_types.AddressUnionIP4(op.Route.Paths[0].NextHop.As4())
		m.Route.Paths = []fib_types.FibPath{p}
	}
	return m
}

func throughStream(b *testing.B, c *core.Connection, ops []route.Op, window int) {
	s, err := c.NewStream(context.Background(), core.WithReplySize(window),
		core.WithRequestSize(window))
	check(b, err)
	defer s.Close()
	receive := func() {
		m, err := s.RecvMsg()
		check(b, err)
		if r, ok := m.(*ip.IPRouteAddDelV2Reply); !ok || r.Retval != 0 {
			b.Fatal(fmt.Sprint(m, api.RetvalToVPPApiError(r.Retval)))
		}
	}
	for i, op := range ops {
		check(b, s.SendMsg(message(op)))
		if i >= window-1 {
			receive()
		}
	}
	for range min(len(ops), window-1) {
		receive()
	}
}
