package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico"
)

const (
	// pageSize is how many keys one request lists. A full block of 64 addresses is about 10 KB.
	pageSize = 500

	listTimeout  = 30 * time.Second // for one page
	probeTimeout = 5 * time.Second
	// probeInterval bounds how late we detect that etcd is lost, or restored with other data.
	probeInterval = 5 * time.Second
)

// follower survives a lost connection: it has the store and each range's revision. Run's goroutine
// owns it.
//
// The ranges are watched separately, on one stream: a common range would carry other nodes'
// affinities, handles and policies to every node. A snapshot may therefore be newer in one range
// than in another. Calico promises no order across keys either, each range is in order, and settle
// makes it rare. Resources that are changed together are in one range.
type follower struct {
	source *Source
	store  *calico.Store
	ranges []keyRange

	// identity of the history that the ranges belong to; cluster 0: none yet
	cluster  uint64
	term     uint64 // Raft's, as last heard from a quorum
	revision int64  // the newest that was taken in
	// revision before the watch's next probe was sent: the answer must not be lower
	probed int64
	listed bool // a list was taken in and not yet published

	absences *absences
}

// keyRange is a range of keys and the revision to watch from; 0: list it first.
type keyRange struct {
	prefix string
	next   int64
}

func newFollower(s *Source) *follower {
	f := &follower{source: s, store: calico.NewStoreFor(s.node, s.needs),
		absences: newAbsences(s.needs.Hosts, s.returnTime)}
	for _, p := range s.needs.Prefixes(s.node) {
		f.ranges = append(f.ranges, keyRange{prefix: p})
	}
	return f
}

// follow lists, then watches, until an error. It returns nil only when ctx has ended.
func (f *follower) follow(ctx context.Context, client *clientv3.Client) error {
	for {
		head, err := probe(ctx, client)
		if err != nil {
			return err
		}
		if err := f.sameHistory(head, f.revision); err != nil {
			f.source.log.Warn("etcd has another history than before", "err", err)
			f.forget()
		}
		f.cluster, f.term = head.ClusterId, head.RaftTerm
		f.absences.back(time.Now())
		if err := f.list(ctx, client, head.Revision); err != nil {
			return err
		}
		f.source.connected()
		f.probed = f.revision
		if err := f.watch(ctx, client); !errors.Is(err, errCompacted) {
			return err
		}
		f.source.log.Info("listing again what etcd compacted before it was read")
	}
}

// probe is a minimal quorum read of a key that we may read.
func probe(ctx context.Context, client *clientv3.Client) (*pb.ResponseHeader, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	key := calico.Key{Kind: calico.KindClusterInformation, Name: "default"}.String()
	resp, err := client.Get(ctx, key, clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	return resp.Header, nil
}

// sameHistory checks that a quorum still has the history that we followed. After a restore the
// revision or Raft's term is lower; the cluster id may be the same. atLeast is the revision seen
// before the head was requested.
func (f *follower) sameHistory(head *pb.ResponseHeader, atLeast int64) error {
	switch {
	case f.cluster == 0:
		return nil
	case head.ClusterId != f.cluster:
		return fmt.Errorf("%w: cluster id %x instead of %x", errRestored, head.ClusterId, f.cluster)
	case head.Revision < atLeast:
		return fmt.Errorf("%w: revision %d after %d", errRestored, head.Revision, atLeast)
	case head.RaftTerm < f.term:
		return fmt.Errorf("%w: Raft term %d after %d", errRestored, head.RaftTerm, f.term)
	}
	return nil
}

// forget drops the history but not the data, which the next list replaces.
func (f *follower) forget() {
	for i := range f.ranges {
		f.ranges[i].next = 0
	}
	f.cluster, f.term, f.revision = 0, 0, 0
}

// list reads all unlisted ranges at one revision and publishes. It deletes nothing before the last
// page.
func (f *follower) list(ctx context.Context, client *clientv3.Client, revision int64) error {
	var prefixes []string
	f.store.BeginList()
	for _, r := range f.ranges {
		if r.next != 0 {
			continue
		}
		prefixes = append(prefixes, r.prefix)
		if err := f.listRange(ctx, client, r.prefix, revision); err != nil {
			return err
		}
	}
	if prefixes == nil {
		return nil
	}
	f.keepAbsent(prefixes)
	f.store.EndList(prefixes...)
	for i := range f.ranges {
		if f.ranges[i].next == 0 {
			f.ranges[i].next = revision + 1
		}
	}
	f.revision = max(f.revision, revision)
	f.listed, f.absences.known = true, true
	f.publish()
	return nil
}

func (f *follower) listRange(ctx context.Context, client *clientv3.Client, prefix string,
	revision int64) error {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		page, err := getPage(ctx, client, from, clientv3.WithRange(end), clientv3.WithRev(revision),
			clientv3.WithLimit(pageSize))
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		if page.Header.ClusterId != f.cluster {
			return errRestored
		}
		f.source.heard()
		for _, kv := range page.Kvs {
			f.put(kv)
		}
		if !page.More || len(page.Kvs) == 0 {
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

func getPage(ctx context.Context, client *clientv3.Client, from string,
	opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return client.Get(ctx, from, opts...)
}

// compacted marks ranges to be listed if their events up to revision may be lost. Recently active
// ranges are spared, which in a large cluster are the large ones.
func (f *follower) compacted(revision int64) {
	for i := range f.ranges {
		if f.ranges[i].next < revision {
			f.ranges[i].next = 0
		}
	}
}

// take applies a response of the watch on range i to the store.
func (f *follower) take(i int, resp clientv3.WatchResponse) error {
	r := &f.ranges[i]
	if resp.CompactRevision != 0 {
		r.next = 0
		f.compacted(resp.CompactRevision)
		return errCompacted
	}
	if err := resp.Err(); err != nil {
		return fmt.Errorf("watch %s: %w", r.prefix, err)
	}
	if resp.Header.ClusterId != f.cluster {
		return errRestored
	}
	for _, ev := range resp.Events {
		if ev.Type == mvccpb.DELETE {
			f.delete(string(ev.Kv.Key))
		} else {
			f.put(ev.Kv)
		}
		f.revision = max(f.revision, ev.Kv.ModRevision)
		r.next = max(r.next, ev.Kv.ModRevision+1)
	}
	if resp.IsProgressNotify() { // of this one watch, and in order with its events
		r.next = max(r.next, resp.Header.Revision+1)
	}
	f.source.update(func(st *Status) {
		st.LastContact = time.Now()
		st.Events += int64(len(resp.Events))
	})
	return nil
}

func (f *follower) put(kv *mvccpb.KeyValue) {
	f.absences.seen(string(kv.Key))
	f.store.Put(string(kv.Key), kv.Value)
}

func (f *follower) delete(key string) {
	if f.absences.holds(key, time.Now()) {
		level := slog.LevelDebug // there may be a thousand of them
		if len(f.absences.keys) == 1 {
			level = slog.LevelWarn
		}
		f.source.log.Log(context.Background(), level,
			"addresses of hosts are gone from etcd, which was lost; they have some time "+
				"to come back", "key", key, "time", f.absences.wait)
		return
	}
	f.store.Delete(key)
}

// keepAbsent remembers hosts' addresses that a list lacks, before they are deleted.
func (f *follower) keepAbsent(prefixes []string) {
	if !slices.Contains(prefixes, f.absences.hosts) {
		return
	}
	for _, key := range f.store.Unseen(f.absences.hosts) {
		if f.absences.holds(key, time.Now()) {
			f.store.See(key)
		}
	}
}

// endAbsences deletes the addresses that have not returned.
func (f *follower) endAbsences() {
	for _, key := range f.absences.over(time.Now()) {
		f.source.log.Warn("a host's address has not come back", "key", key)
		f.store.Delete(key)
	}
}

// publish publishes a snapshot if it differs.
func (f *follower) publish() {
	if !f.listed && !f.store.Changed() {
		return
	}
	for _, r := range f.ranges {
		if r.next == 0 {
			return
		}
	}
	f.listed = false
	f.source.publish(f.store.Snapshot(f.revision))
}
