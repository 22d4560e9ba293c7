package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/kernel"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

// dataplane is what the parts need of one together.
type dataplane interface {
	fib.Dataplane
	Forwarded() (packets uint64, err error)
	Run(ctx context.Context) error
}

// readOnly is the kernel of a node whose routes are not there: it knows the outgoing interfaces of
// next hops, and has the objects of Linux. No route in its FIB is ours, and its engine gets none.
type readOnly struct{ dataplane }

func (readOnly) Routes(context.Context) ([]route.Route, error) { return nil, nil }

// newDataplane returns a data plane and what releases it if it does not run.
func newDataplane(cfg config, log *slog.Logger) (d dataplane, release func(), err error) {
	if cfg.dataplane == "vpp" {
		return vpp.New(vpp.Config{
			Socket: cfg.vppSocket, StatsSocket: cfg.vppStatsSocket,
			Source: cfg.fibSource, Priority: cfg.fibPriority, Log: log,
		}), func() {}, nil
	}
	conf := kernel.Config{Log: log}
	if cfg.dataplane == "kernel" {
		conf.Table, conf.Protocol = cfg.kernelTable, cfg.kernelProtocol
		conf.Metric, conf.ElevatedMetric = cfg.kernelMetric, cfg.kernelElevated
	}
	k, err := kernel.NewNamespaces(conf, fib.JournalInterfaces(cfg.journal()))
	if err != nil {
		return nil, nil, err
	}
	if cfg.dataplane == "none" {
		return readOnly{k}, k.Close, nil
	}
	return k, k.Close, nil
}

// newLinux returns what keeps the items of Linux where the data plane is another, and the kernel as
// it sees it: with objects alone.
func newLinux(cfg config, log *slog.Logger) (*fib.Engine, *kernel.Namespaces, error) {
	log = log.With("dataplane", "linux")
	journal := filepath.Join(cfg.stateDir, "linux.journal")
	k, err := kernel.NewNamespaces(kernel.Config{Log: log}, fib.JournalInterfaces(journal))
	if err != nil {
		return nil, nil, err
	}
	return fib.New(fib.Config{Dataplane: readOnly{k}, Journal: journal, ListRoutes: true, Log: log,
		Attempts: cfg.attempts()}), k, nil
}

// tunnels are the kinds of tunnels that a data plane has.
func tunnels(dataplane string) []route.Encap {
	if dataplane == "none" {
		return nil
	}
	return []route.Encap{route.IPIP, route.VXLAN}
}

// statsOf returns what reads the counters of dp, nil if it has none.
func statsOf(dp dataplane) func() agent.DataplaneStats {
	v, ok := dp.(*vpp.VPP)
	if !ok {
		return nil
	}
	return func() agent.DataplaneStats {
		s := v.Stats()
		return agent.DataplaneStats{Connections: s.Connections, Refused: s.Refused,
			LastContact: s.LastContact}
	}
}
