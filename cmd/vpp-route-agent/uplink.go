package main

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico/etcd"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/uplink"
)

// uplinkParts are the interface that is configured, and the publisher of its addresses.
type uplinkParts struct {
	cfg       config
	uplink    *uplink.Uplink
	publisher *etcd.Publisher // nil: nothing is published
}

func newUplink(cfg config, engine *fib.Engine, want func(fib.Source), log *slog.Logger) (
	*uplinkParts, error) {
	p := &uplinkParts{cfg: cfg, uplink: uplink.New(uplink.Config{
		FIB: engine, Want: want, Dataplane: cfg.dataplane, Interface: cfg.uplink,
		Addresses: cfg.uplinkAddress, StateDir: cfg.stateDir, Log: log,
	})}
	if cfg.uplinkPublish == "off" {
		return p, nil
	}
	what := etcd.Publication{Hosts: cfg.hostsPrefix, Node: cfg.nodeName, When: p.uplink.Ready()}
	if cfg.uplinkPublish == "lease" {
		what.TTL = cfg.uplinkTTL
	}
	for _, a := range cfg.uplinkAddress {
		what.Addresses = append(what.Addresses, a.Addr())
	}
	var err error
	p.publisher, err = etcd.NewPublisher(cfg.etcd(), what, log)
	return p, err
}

// Run runs both until ctx ends.
func (p *uplinkParts) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.uplink.Run(ctx) })
	if p.publisher != nil {
		group.Go(func() error { return p.publisher.Run(ctx) })
	}
	return group.Wait()
}

func (p *uplinkParts) status() agent.UplinkStatus {
	state := p.uplink.State()
	s := agent.UplinkStatus{
		Interface: p.cfg.uplink, Addresses: p.cfg.uplinkAddress, OK: state.OK,
		Problem: state.Problem,
		Publish: p.cfg.uplinkPublish, Published: []netip.Addr{},
	}
	if p.cfg.uplinkPublish == "lease" {
		s.TTLSeconds = int(p.cfg.uplinkTTL / time.Second)
	}
	if p.publisher != nil {
		published := p.publisher.Status()
		s.Published = append(s.Published, published.Published...)
		s.PublishProblem = published.Error
	}
	return s
}
