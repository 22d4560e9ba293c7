package kernel

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"testing"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/route"
)

// newBenchPlane returns a data plane with interface eth1.
func newBenchPlane(b *testing.B) *Dataplane {
	if _, err := exec.LookPath("ip"); err != nil || netlab.Available() != nil {
		b.Skip("needs root")
	}
	l, err := netlab.New("kernelbench", slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	node, err := l.Namespace("node")
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Veth(netlab.End{Namespace: node, Device: "eth1",
		Addresses: []netip.Prefix{pfx("10.0.1.1/24"), pfx("fd00:1::1/64")}},
		netlab.End{Namespace: node, Device: "eth2"}); err != nil {
		b.Fatal(err)
	}
	d, err := New(Config{Namespace: node.Path(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(d.Close)
	return d
}

// BenchmarkApply compares one batch of 10 000 routes with one Apply per route.
func BenchmarkApply(b *testing.B) {
	d := newBenchPlane(b)
	const count = 10000
	b.Run("Routes", func(b *testing.B) { benchmarkRoutes(b, d) })
	for _, family := range []string{"IPv4", "IPv6"} {
		ops := make([]route.Op, count)
		for i := range ops {
			r := via(fmt.Sprintf("198.18.%d.%d/32", i/256, i%256), "10.0.1.2 eth1")
			if family == "IPv6" {
				r = via(fmt.Sprintf("2001:db8::%x/128", i), "fd00:1::2 eth1")
			}
			ops[i].Route = r
		}
		done := func(_ int, err error) {
			if err != nil {
				b.Fatal(err)
			}
		}
		b.Run(family+"/batch", func(b *testing.B) {
			for b.Loop() {
				if err := d.Apply(b.Context(), ops, done); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(count*b.N)/b.Elapsed().Seconds(), "routes/s")
		})
		b.Run(family+"/single", func(b *testing.B) {
			for b.Loop() {
				for i := range ops {
					if err := d.Apply(b.Context(), ops[i:i+1], done); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(count*b.N)/b.Elapsed().Seconds(), "routes/s")
		})
	}
}

// benchmarkRoutes reads 100 000 routes, and looks one up that discards: the kernel does not answer
// that, so the table is searched.
func benchmarkRoutes(b *testing.B, d *Dataplane) {
	const count = 100_000
	ops := put(kind("198.17.0.0/26", route.Drop))
	for i := range count {
		ops = append(ops, put(via(fmt.Sprintf("198.%d.%d.%d/32", 18+i>>16, i>>8&255, i&255),
			"10.0.1.2 eth1"))...)
	}
	if err := d.Apply(b.Context(), ops, func(_ int, err error) {
		if err != nil {
			b.Fatal(err)
		}
	}); err != nil {
		b.Fatal(err)
	}
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if routes, err := d.Routes(b.Context()); err != nil || len(routes) != count+1 {
				b.Fatal(len(routes), err)
			}
		}
	})
	for name, key := range map[string]route.Key{"lookup": ops[77].Route.Key,
		"lookup drop": ops[0].Route.Key} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, ok, err := d.Lookup(b.Context(), key); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
	for i := range ops {
		ops[i].Delete = true
	}
	if err := d.Apply(b.Context(), ops, func(int, error) {}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLinuxRoute puts a route as an object, beside 10 000 others.
func BenchmarkLinuxRoute(b *testing.B) {
	d := newBenchPlane(b)
	const count = 10000
	ops := make([]route.Op, count)
	for i := range ops {
		ops[i].Route = via(fmt.Sprintf("198.18.%d.%d/32", i/256, i%256), "10.0.1.2 eth1")
	}
	fatal := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	fatal(d.Apply(b.Context(), ops, func(_ int, err error) { fatal(err) }))
	r := route.LinuxRoute{Interface: "eth1", Network: pfx("203.0.113.0/24"), Metric: 7,
		Gateway: addr("10.0.1.2")}
	for b.Loop() {
		found, err := d.Object(b.Context(), r.Key())
		if fatal(err); found != nil {
			b.Fatal("it is there")
		}
		fatal(d.PutObject(b.Context(), r))
		fatal(d.DeleteObject(b.Context(), r.Key()))
	}
}
