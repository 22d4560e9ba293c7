package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
//
// Which ranges there are depends on the data: an own affinity names a block. A block is listed
// before anything that names it is published.
type follower struct {
	source *Source
	store  *calico.Store
	ranges []*keyRange // those that the store wants, before it is given more data
	lists  int         // that were completed

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
	calico.Range
	next int64
}

func newFollower(s *Source) *follower {
	return &follower{source: s, store: calico.NewStoreFor(s.node, s.needs),
		absences: newAbsences(s.needs.Hosts, s.returnTime)}
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
		if err := f.listAgain(ctx, client, head.Revision); err != nil {
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
	for _, r := range f.ranges {
		r.next = 0
	}
	f.cluster, f.term, f.revision = 0, 0, 0
}

// listAgain lists what has not been listed, or must be again, and publishes.
func (f *follower) listAgain(ctx context.Context, client *clientv3.Client, revision int64) error {
	listed, err := f.list(ctx, client, revision)
	if err != nil || !listed {
		return err
	}
	f.lists++
	f.listed, f.absences.known = true, true
	f.publish()
	return nil
}

// list reads all unlisted ranges at one revision, and reports whether there were any. It deletes
// nothing before the last page.
func (f *follower) list(ctx context.Context, client *clientv3.Client,
	revision int64) (listed bool, err error) {
	var prefixes []string
	var done []*keyRange
	f.store.BeginList()
	for r := f.unlisted(done); r != nil; r = f.unlisted(done) {
		if err := f.listRange(ctx, client, r.Range, revision); err != nil {
			return false, fmt.Errorf("list %s: %w", r.Prefix, err)
		}
		prefixes, done = append(prefixes, r.Prefix), append(done, r)
	}
	if done == nil {
		return false, nil
	}
	f.keepAbsent(prefixes)
	f.store.EndList(prefixes...)
	for _, r := range done {
		r.next = revision + 1
	}
	f.revision = max(f.revision, revision)
	f.dropUnwanted()
	return true, nil
}

// unlisted adds the ranges that the store wants by now, and returns one to be listed that is not
// among done; nil if there is none. Until a list ends the store has old data besides the new, and
// may want too much.
func (f *follower) unlisted(done []*keyRange) *keyRange {
	for _, wanted := range f.store.Ranges() {
		if !slices.ContainsFunc(f.ranges, func(r *keyRange) bool { return r.Range == wanted }) {
			f.ranges = append(f.ranges, &keyRange{Range: wanted})
		}
	}
	for _, r := range f.ranges {
		if r.next == 0 && !slices.Contains(done, r) {
			return r
		}
	}
	return nil
}

// dropUnwanted removes the ranges that the store does not want any more, and their data.
func (f *follower) dropUnwanted() {
	wanted := f.store.Ranges()
	f.ranges = slices.DeleteFunc(f.ranges, func(r *keyRange) bool {
		if slices.Contains(wanted, r.Range) {
			return false
		}
		f.store.BeginList()
		f.store.EndList(r.Prefix)
		return true
	})
}

// widen lists what changes in the store made it want, so that it can be watched as well.
func (f *follower) widen(ctx context.Context, client *clientv3.Client) error {
	f.dropUnwanted()
	if f.unlisted(nil) == nil {
		return nil
	}
	head, err := probe(ctx, client)
	if err == nil {
		err = f.sameHistory(head, f.revision)
	}
	if err == nil {
		_, err = f.list(ctx, client, head.Revision)
	}
	return err
}

func (f *follower) listRange(ctx context.Context, client *clientv3.Client, r calico.Range,
	revision int64) error {
	if r.Names != "" {
		return f.listNames(ctx, client, r, revision)
	}
	from, end := r.Prefix, clientv3.GetPrefixRangeEnd(r.Prefix)
	if r.Exact {
		end = ""
	}
	for {
		page, err := f.page(ctx, client, from, end, revision)
		if err != nil {
			return err
		}
		for _, kv := range page.Kvs {
			f.put(kv)
		}
		if !page.More || len(page.Kvs) == 0 {
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// listNames lists the keys of r, which are few, without reading the values of the others, and of a
// large directory not even the keys.
func (f *follower) listNames(ctx context.Context, client *clientv3.Client, r calico.Range,
	revision int64) error {
	listed := ""
	for from, end := r.Prefix, clientv3.GetPrefixRangeEnd(r.Prefix); ; {
		page, err := f.page(ctx, client, from, end, revision, clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range page.Kvs {
			key := string(kv.Key)
			from = key + "\x00"
			dir, _, found := strings.Cut(key[len(r.Prefix):], "/")
			if !found {
				continue
			}
			dir = r.Prefix + dir + "/"
			own := dir + r.Names
			if strings.HasPrefix(key, own) && listed != dir {
				listed = dir
				err := f.listRange(ctx, client, calico.Range{Prefix: own}, revision)
				if err != nil {
					return err
				}
			}
			// what the page does not have of this directory can be skipped
			if from = clientv3.GetPrefixRangeEnd(dir); key < own {
				from = own
			}
		}
		if !page.More || len(page.Kvs) == 0 {
			return nil
		}
	}
}

// page reads a page of the keys from from to before end, or without end the key from.
func (f *follower) page(ctx context.Context, client *clientv3.Client, from, end string,
	revision int64, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	opts = append(opts, clientv3.WithRev(revision), clientv3.WithLimit(pageSize))
	if end != "" {
		opts = append(opts, clientv3.WithRange(end))
	}
	page, err := client.Get(ctx, from, opts...)
	if err != nil {
		return nil, err
	}
	if page.Header.ClusterId != f.cluster {
		return nil, errRestored
	}
	f.source.heard()
	return page, nil
}

// compacted marks ranges to be listed if their events up to revision may be lost. Recently active
// ranges are spared, which in a large cluster are the large ones.
func (f *follower) compacted(revision int64) {
	for _, r := range f.ranges {
		if r.next < revision {
			r.next = 0
		}
	}
}

// take applies a response of the watch on r to the store.
func (f *follower) take(r *keyRange, resp clientv3.WatchResponse) error {
	if resp.CompactRevision != 0 {
		r.next = 0
		f.compacted(resp.CompactRevision)
		return errCompacted
	}
	if err := resp.Err(); err != nil {
		return fmt.Errorf("watch %s: %w", r.Prefix, err)
	}
	if resp.Header.ClusterId != f.cluster {
		return errRestored
	}
	for _, ev := range resp.Events {
		switch {
		case !r.Holds(string(ev.Kv.Key)):
		case ev.Type == mvccpb.DELETE:
			f.delete(string(ev.Kv.Key))
		default:
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
	snap := f.store.Snapshot(f.revision)
	snap.Lists = f.lists
	f.source.publish(snap)
}
