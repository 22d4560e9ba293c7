package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

const (
	// pageSize is how many keys one request lists at most. A full block of 64 addresses is about
	// 10 KB. The first lists firstPage, and pageBytes are about what the next ones have: a value
	// may be of 1.5 MiB.
	pageSize  = 500
	firstPage = 50
	pageBytes = 16 << 20

	listTimeout   = 30 * time.Second // for one page of many keys
	probeTimeout  = 5 * time.Second
	probeInterval = 5 * time.Second
)

// Range is a range of keys.
type Range struct {
	// Prefix begins all keys of the range, and is its only key if Exact.
	Prefix string
	Exact  bool
	// Names, if not empty, restricts the range to keys PREFIX DIRECTORY/NAME whose NAME begins with
	// it. They are listed without reading the rest; a watch cannot be restricted.
	Names string
	// Leased says that the keys have leases, which also expire when no node can reach etcd: a key
	// that is missing after a loss of etcd counts as there for a while.
	Leased bool
}

// Holds reports whether key is in the range, given that it begins with Prefix.
func (r Range) Holds(key string) bool {
	_, name, _ := strings.Cut(key[len(r.Prefix):], "/")
	return strings.HasPrefix(name, r.Names)
}

// Data is what the keys mean to whoever reads them. A Follower calls it from one goroutine.
type Data interface {
	// Ranges returns what to read, disjoint, by what has been Put so far. The first is always
	// there.
	Ranges() []Range
	Put(key string, value []byte)
	Delete(key string)
	// BeginList begins a list, after which every existing key is Put. An aborted list has no end
	// and deletes nothing.
	BeginList()
	// EndList ends a complete list of the keys under prefixes: those that were not Put since
	// BeginList are gone.
	EndList(prefixes ...string)
	// Changed reports whether there is something to publish.
	Changed() bool
}

// Dated is implemented by Data that is to know when a key was changed.
type Dated interface {
	// At is called before each Put and Delete that etcd has told of, with its revision. All events
	// of one revision of one range come together, but for those of a list.
	At(revision int64)
}

// Follower keeps Data equal to etcd: it lists all ranges at one revision and watches each from the
// next, so that it survives a lost connection. A range may be newer than another. Ranges may depend
// on data: what an item names is listed before anything is published. Run's goroutine owns it.
type Follower struct {
	client  *Client
	data    Data
	publish func(Published)
	log     *slog.Logger

	// ProbeEvery bounds how late it is noticed that etcd is lost, or restored with other data. It
	// may be changed before Run.
	ProbeEvery time.Duration

	probeKey string
	lastCode codes.Code // of the last error while not connected

	ranges []*keyRange         // those that data wants, before it is given more
	known  map[Range]*keyRange // the same
	lists  int                 // that were completed

	// identity of the history that the ranges belong to; cluster 0: none yet
	cluster  uint64
	term     uint64 // Raft's, as a quorum last answered
	revision int64  // the newest that was taken in
	// revision before the watch's next probe was sent: the answer must not be lower
	probed int64
	doubt  change // a put that the last probe could not find
	listed bool   // a list was taken in and not yet published
	// when the first event came of those that are not published yet; zero: none changed anything
	received time.Time

	grace  *grace
	relist chan struct{} // of size one

	mu     sync.Mutex // guards status
	status Status
}

// Published is what data are as of.
type Published struct {
	Revision int64 // etcd's
	Lists    int   // that were completed
	// Received is when the first event came of those that are new; zero: there is none.
	Received time.Time
}

// keyRange is a range of keys and the revision to watch from; 0: list it first.
type keyRange struct {
	Range
	next int64

	puts     []change // some of the newest, by revision, of keys that were not changed since
	deletion change   // the newest since the list
}

// NewFollower returns a follower that does nothing until Run. publish is called after all ranges
// were listed, then after each burst of changes.
func NewFollower(client *Client, data Data, publish func(Published),
	log *slog.Logger) *Follower {
	return &Follower{client: client, data: data, publish: publish,
		log:      log.With("component", "etcd"),
		probeKey: data.Ranges()[0].Prefix, ProbeEvery: probeInterval, grace: newGrace(gracePeriod),
		known: map[Range]*keyRange{}, relist: make(chan struct{}, 1),
		status: Status{Endpoints: slices.Clone(client.cfg.Endpoints), Error: "not tried yet"}}
}

// Run reads until ctx ends and returns nil. It waits for an absent etcd. After a loss it keeps its
// data, reconnects and catches up. Call it once.
func (f *Follower) Run(ctx context.Context) error {
	f.client.Run(ctx, LastRetry, f.follow, f.lost)
	return nil
}

// Relist has everything listed again soon. It may be called at any time.
func (f *Follower) Relist() {
	select {
	case f.relist <- struct{}{}:
	default:
	}
}

// follow lists, then watches, until an error. It returns nil only when ctx has ended.
func (f *Follower) follow(ctx context.Context, client *clientv3.Client) error {
	for {
		head, doubt, err := ask(ctx, client, f.newest(), f.probeKey)
		if err == nil {
			err = cmp.Or(f.sameHistory(head, f.revision, f.term), f.stillDoubted(doubt))
		}
		if errors.Is(err, ErrRestored) {
			f.log.Warn("etcd has another history than before", "err", err)
			f.forget()
			head, err = f.probe(ctx, client)
		}
		if err != nil {
			return err
		}
		f.cluster, f.term = head.ClusterId, head.RaftTerm
		f.grace.back(time.Now())
		if err := f.listAgain(ctx, client, head.Revision); err != nil {
			return err
		}
		f.connected()
		f.probed = f.revision
		switch err := f.watch(ctx, client); {
		case errors.Is(err, errCompacted):
			f.log.Info("listing again what etcd compacted before it was read")
		case errors.Is(err, errRelist):
			f.log.Info("listing again as requested")
			for _, r := range f.ranges {
				r.next = 0
			}
		default:
			return err
		}
	}
}

// probe is a minimal quorum read of a key that we may read.
func (f *Follower) probe(ctx context.Context, client *clientv3.Client) (*pb.ResponseHeader, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	resp, err := client.Get(ctx, f.probeKey, clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	return resp.Header, nil
}

// sameHistory checks that a quorum still has the history that we followed. After a restore the
// revision or Raft's term is lower; the cluster id may be the same. Both were seen before the head
// was requested.
func (f *Follower) sameHistory(head *pb.ResponseHeader, revision int64, term uint64) error {
	switch {
	case f.cluster == 0:
		return nil
	case head.ClusterId != f.cluster:
		return fmt.Errorf("%w: cluster id %x instead of %x", ErrRestored, head.ClusterId, f.cluster)
	case head.Revision < revision:
		return fmt.Errorf("%w: revision %d after %d", ErrRestored, head.Revision, revision)
	case head.RaftTerm < term:
		return fmt.Errorf("%w: Raft term %d after %d", ErrRestored, head.RaftTerm, term)
	}
	return nil
}

// forget drops the history but not the data, which the next list replaces.
func (f *Follower) forget() {
	for _, r := range f.ranges {
		r.next = 0
	}
	f.cluster, f.term, f.revision, f.doubt = 0, 0, 0, change{}
}

// listAgain lists what has not been listed, or must be again, and publishes.
func (f *Follower) listAgain(ctx context.Context, client *clientv3.Client, revision int64) error {
	listed, err := f.list(ctx, client, revision)
	if err != nil || !listed {
		return err
	}
	f.lists++
	f.listed, f.grace.known = true, true
	f.publishChanges()
	return nil
}

// list reads all unlisted ranges at one revision, and reports whether there were any. It deletes
// nothing before the last page.
func (f *Follower) list(ctx context.Context, client *clientv3.Client,
	revision int64) (listed bool, err error) {
	done := map[*keyRange]int{}
	f.beginList()
	for todo := f.unlisted(done); todo != nil; todo = f.unlisted(done) {
		for _, r := range todo {
			done[r], r.puts, r.deletion = 0, nil, change{}
			err := f.listRange(ctx, client, r.Range, revision, func(kv *mvccpb.KeyValue) {
				f.put(r, kv)
				done[r]++
			})
			if err != nil {
				return false, err
			}
		}
	}
	if len(done) == 0 {
		return false, nil
	}
	f.endList(done, revision)
	return true, nil
}

func (f *Follower) beginList() {
	f.data.BeginList()
	f.grace.round++
}

// endList ends a list of ranges at one revision. found is how many keys of each were put.
func (f *Follower) endList(found map[*keyRange]int, revision int64) {
	var prefixes []string
	for r, keys := range found {
		if !r.Exact {
			prefixes = append(prefixes, r.Prefix)
		} else if keys == 0 {
			f.data.Delete(r.Prefix)
		}
		for key, value := range f.grace.missed(r.Range, time.Now()) {
			f.data.Put(key, value)
		}
		r.next = revision + 1
	}
	f.data.EndList(prefixes...)
	f.revision = max(f.revision, revision)
	f.dropUnwanted()
}

// unlisted adds the ranges that the store wants by now, and returns those to be listed that are not
// done. Until a list ends the store has old data besides the new, and may want too much.
func (f *Follower) unlisted(done map[*keyRange]int) (todo []*keyRange) {
	for _, wanted := range f.data.Ranges() {
		if f.known[wanted] == nil {
			r := &keyRange{Range: wanted}
			f.ranges, f.known[wanted] = append(f.ranges, r), r
		}
	}
	for _, r := range f.ranges {
		if _, listed := done[r]; r.next == 0 && !listed {
			todo = append(todo, r)
		}
	}
	return todo
}

// dropUnwanted removes the ranges that the store does not want any more, and their data.
func (f *Follower) dropUnwanted() {
	wanted := map[Range]bool{}
	for _, r := range f.data.Ranges() {
		wanted[r] = true
	}
	var prefixes []string
	f.ranges = slices.DeleteFunc(f.ranges, func(r *keyRange) bool {
		if wanted[r.Range] {
			return false
		}
		delete(f.known, r.Range)
		if r.Exact && !isCovered(r.Prefix, wanted) {
			f.data.Delete(r.Prefix)
		} else if r.Exact {
			return true // it was listed with the range that takes its place
		} else {
			prefixes = append(prefixes, r.Prefix)
		}
		return true
	})
	if prefixes != nil {
		f.data.BeginList()
		f.data.EndList(prefixes...)
	}
}

func isCovered(key string, by map[Range]bool) bool {
	for r := range by {
		if !r.Exact && strings.HasPrefix(key, r.Prefix) {
			return true
		}
	}
	return false
}

// listRange puts the keys of r. It may run beside the loop, if put may.
func (f *Follower) listRange(ctx context.Context, client *clientv3.Client, r Range,
	revision int64, put func(*mvccpb.KeyValue)) error {
	if r.Names != "" {
		return f.listNames(ctx, client, r, revision, put)
	}
	from, end := r.Prefix, clientv3.GetPrefixRangeEnd(r.Prefix)
	if r.Exact {
		end = ""
	}
	for keys := int64(firstPage); ; {
		page, err := f.page(ctx, client, from, end, revision, clientv3.WithLimit(keys))
		if err != nil {
			return err
		}
		for _, kv := range page.Kvs {
			put(kv)
		}
		if !page.More || len(page.Kvs) == 0 {
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		size := int64((*pb.RangeResponse)(page).Size())
		keys = min(max(pageBytes*int64(len(page.Kvs))/size, 1), pageSize)
	}
}

// listNames lists the keys of r, which are few, without reading the values of the others, and of a
// large directory not even the keys.
func (f *Follower) listNames(ctx context.Context, client *clientv3.Client, r Range,
	revision int64, put func(*mvccpb.KeyValue)) error {
	listed := ""
	for from, end := r.Prefix, clientv3.GetPrefixRangeEnd(r.Prefix); ; {
		page, err := f.page(ctx, client, from, end, revision, clientv3.WithKeysOnly(),
			clientv3.WithLimit(pageSize))
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
				err := f.listRange(ctx, client, Range{Prefix: own}, revision, put)
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
func (f *Follower) page(ctx context.Context, client *clientv3.Client, from, end string,
	revision int64, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	timeout := probeTimeout
	opts = append(opts, clientv3.WithRev(revision))
	if end != "" {
		timeout, opts = listTimeout, append(opts, clientv3.WithRange(end))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	page, err := client.Get(ctx, from, opts...)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", from, err)
	}
	if page.Header.ClusterId != f.cluster {
		return nil, ErrRestored
	}
	f.answered()
	return page, nil
}

// compacted marks ranges to be listed if their events up to revision may be lost. Recently active
// ranges are spared, which in a large cluster are the large ones.
func (f *Follower) compacted(revision int64) {
	for _, r := range f.ranges {
		if r.next < revision {
			r.next = 0
		}
	}
}

// take applies a response of the watch on r to the store.
func (f *Follower) take(r *keyRange, resp clientv3.WatchResponse) error {
	if resp.CompactRevision != 0 {
		r.next = 0
		f.compacted(resp.CompactRevision)
		return errCompacted
	}
	if err := resp.Err(); err != nil {
		return fmt.Errorf("watch %s: %w", r.Prefix, err)
	}
	if resp.Header.ClusterId != f.cluster {
		return ErrRestored
	}
	for _, ev := range resp.Events {
		switch {
		case !r.Holds(string(ev.Kv.Key)):
		case ev.Type == mvccpb.DELETE:
			f.delete(r, ev.Kv)
		default:
			f.put(r, ev.Kv)
		}
		f.revision = max(f.revision, ev.Kv.ModRevision)
		r.next = max(r.next, ev.Kv.ModRevision+1)
	}
	if resp.IsProgressNotify() { // of this one watch, and in order with its events
		r.next = max(r.next, resp.Header.Revision+1)
	}
	f.update(func(st *Status) {
		st.LastContact = time.Now()
		st.Events += int64(len(resp.Events))
	})
	return nil
}

func (f *Follower) at(revision int64) {
	if d, ok := f.data.(Dated); ok {
		d.At(revision)
	}
}

func (f *Follower) put(r *keyRange, kv *mvccpb.KeyValue) {
	f.at(kv.ModRevision)
	r.seePut(kv)
	if r.Leased {
		f.grace.seen(string(kv.Key), kv.Value)
	}
	f.data.Put(string(kv.Key), kv.Value)
}

func (f *Follower) delete(r *keyRange, kv *mvccpb.KeyValue) {
	f.at(kv.ModRevision)
	r.seeDeletion(kv)
	key := string(kv.Key)
	if !r.Leased || !f.grace.holds(key, time.Now()) {
		f.data.Delete(key)
		return
	}
	level := slog.LevelDebug // there may be a thousand of them
	if len(f.grace.missing) == 1 {
		level = slog.LevelWarn
	}
	f.log.Log(context.Background(), level, "keys with a lease are gone from etcd, which was lost; "+
		"they have some time to come back", "key", key, "time", f.grace.period)
}

// endGrace deletes the keys that have not returned.
func (f *Follower) endGrace() {
	for _, key := range f.grace.over(time.Now()) {
		f.log.Warn("a key with a lease has not come back", "key", key)
		f.data.Delete(key)
	}
}

// publishChanges publishes what has changed, if nothing that is wanted remains to be listed.
func (f *Follower) publishChanges() {
	if !f.listed && !f.data.Changed() {
		return
	}
	for _, r := range f.ranges {
		if r.next == 0 {
			return
		}
	}
	f.listed = false
	f.publish(Published{f.revision, f.lists, f.received})
	f.received = time.Time{}
	f.update(func(st *Status) { st.Synced, st.Revision, st.Lists = true, f.revision, f.lists })
}
