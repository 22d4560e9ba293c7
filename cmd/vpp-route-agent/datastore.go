package main

import (
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/etcd"
	"vpp-route-agent/internal/calico/lastgood"
)

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
