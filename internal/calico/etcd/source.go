// Package etcd reads Calico's data from etcd v3 and publishes snapshots. internal/etcd lists and
// watches; internal/calico decodes. It never writes Calico's keys. A Publisher writes a node's own
// addresses outside of them.
package etcd

import (
	"errors"
	"log/slog"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/etcd"
)

// Config says how to reach etcd.
type Config = etcd.Config

// Source delivers snapshots of the Calico data that one node needs. Run does the work; Snapshots
// and Status are safe for concurrent use, before and during Run.
type Source struct {
	*etcd.Follower
	client *etcd.Client
	needs  calico.Needs
	store  *calico.Store
	log    *slog.Logger
	out    chan *calico.Snapshot
	// named are the problems that were logged; owned by Run's goroutine
	named calico.NamedProblems
}

// New checks cfg and returns the source of a node with these needs. It does not connect. An error
// is one sentence about cfg.
func New(cfg Config, node string, needs calico.Needs, log *slog.Logger) (*Source, error) {
	if node == "" {
		return nil, errors.New("no node name is given")
	}
	if err := needs.Check(node); err != nil {
		return nil, err
	}
	client, err := etcd.NewClient(cfg,
		"to read Calico's keys under /calico/, or what hosts publish")
	if err != nil {
		return nil, err
	}
	s := &Source{client: client, needs: needs, store: calico.NewStoreFor(node, needs),
		log: log.With("component", "etcd"), out: make(chan *calico.Snapshot, 1)}
	s.Follower = etcd.NewFollower(client, data{s.store}, s.publish, log)
	return s, nil
}

// data is the store as a Follower sees it.
type data struct{ *calico.Store }

func (d data) Ranges() []etcd.Range {
	all := d.Store.Ranges()
	out := make([]etcd.Range, len(all))
	for i, r := range all {
		out[i] = etcd.Range(r)
	}
	return out
}

// Snapshots delivers the newest snapshot: the first after every kind was listed, then one after
// each burst of changes. A slow reader gets only the newest. There is one reader. The channel is
// never closed.
func (s *Source) Snapshots() <-chan *calico.Snapshot { return s.out }

// publish replaces an unread snapshot by the current one.
func (s *Source) publish(p etcd.Published) {
	snap := s.store.Snapshot(p.Revision)
	snap.Lists, snap.Received = p.Lists, p.Received
	calico.Deliver(s.out, snap)
	s.named.Log(snap.Problems, s.log)
}
