package main

import (
	"context"
	"log/slog"

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

// readOnly is the kernel of a node without data plane, which knows the outgoing interfaces of next
// hops. Nothing in it is ours, and its engine gets no routes, so that nothing is written.
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
	k, err := kernel.New(conf)
	if err != nil {
		return nil, nil, err
	}
	if cfg.dataplane == "none" {
		return readOnly{k}, k.Close, nil
	}
	return k, k.Close, nil
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
