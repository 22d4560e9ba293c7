package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/etcd"
	"vpp-route-agent/internal/calico/lastgood"
)

// readPatience bounds how long readDatastore waits for etcd.
const readPatience = 15 * time.Second

// readDatastore reads Calico's data once, as the agent of a node would.
func readDatastore(ctx context.Context, cfg config, node string) (*calico.Snapshot, error) {
	source, err := etcd.New(cfg.etcd(), node, cfg.needs(), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, usageError{err}
	}
	where := strings.Join(cfg.etcdEndpoints, ",")
	defer sayWhenSlow(func() string {
		return fmt.Sprintf("etcd at %s, for %s at most", where, readPatience)
	})()
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	select {
	case s := <-source.Snapshots():
		return s, nil
	case <-ctx.Done():
	}
	return nil, fmt.Errorf("etcd at %s (--etcd-endpoints, --config): %s", where,
		source.Status().Error)
}

// datastore is etcd and, while that is away, the copy that an earlier run kept on disk.
type datastore struct {
	etcd *etcd.Source
	kept *lastgood.Keeper
}

func (d datastore) Snapshots() <-chan *calico.Snapshot { return d.kept.Snapshots() }

func (d datastore) Status() agent.DatastoreStatus {
	s, k := d.etcd.Status(), d.kept.Status()
	out := agent.DatastoreStatus{
		Endpoints: s.Endpoints, Connected: s.Connected, Synced: s.Synced, Revision: s.Revision,
		Error: s.Error, Relists: max(s.Lists-1, 0),
		Stale: k.Stale, Kept: "ok", KeptBehind: k.Behind,
	}
	if k.Problem != "" {
		out.Kept = "degraded: " + k.Problem
	}
	if k.Stale {
		out.AsOf = &k.AsOf
	}
	if !s.LastContact.IsZero() {
		out.LastContact = &s.LastContact
	}
	return out
}
