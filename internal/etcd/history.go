package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An etcd restored from a copy of its data keeps its cluster ID and Raft's term. Once others have
// written enough its revision is not lower either, and watches go on there as if nothing had
// happened. So each probe asks for the keys of the newest changes: in the history that we followed
// a key was not changed between its last change and the revision that its watch is at.

// keptPuts is how many puts of a range are kept, since the newest keys may be deleted.
const keptPuts = 8

// change is a put or deletion that was taken in. All up to revision next were, of its range.
type change struct {
	key            string
	revision, next int64
}

// newest are the newest put and deletion of all ranges. A key "" stands for none.
type newest struct{ put, deletion change }

// seePut keeps a put of r, if it is one of the newest.
func (r *keyRange) seePut(kv *mvccpb.KeyValue) {
	if len(r.puts) == keptPuts && kv.ModRevision < r.puts[0].revision {
		return
	}
	r.forgetPut(string(kv.Key))
	if r.deletion.key == string(kv.Key) {
		r.deletion = change{} // it is there again
	}
	at := len(r.puts)
	for at > 0 && r.puts[at-1].revision > kv.ModRevision { // of a list
		at--
	}
	r.puts = slices.Insert(r.puts, at, change{key: string(kv.Key), revision: kv.ModRevision})
	if len(r.puts) > keptPuts {
		r.puts = slices.Delete(r.puts, 0, 1)
	}
}

func (r *keyRange) seeDeletion(kv *mvccpb.KeyValue) {
	r.forgetPut(string(kv.Key))
	r.deletion = change{key: string(kv.Key), revision: kv.ModRevision}
}

func (r *keyRange) forgetPut(key string) {
	r.puts = slices.DeleteFunc(r.puts, func(c change) bool { return c.key == key })
}

// newest returns what a probe asks about now.
func (f *Follower) newest() (n newest) {
	later := func(c *change, than change, next int64) {
		if than.revision > c.revision {
			*c = than
			c.next = next
		}
	}
	for _, r := range f.ranges {
		if r.next == 0 {
			continue
		}
		if len(r.puts) > 0 {
			later(&n.put, r.puts[len(r.puts)-1], r.next)
		}
		later(&n.deletion, r.deletion, r.next)
	}
	return n
}

// ask is a probe that asks for keys that we may read: a Get each, which clientv3 sends to another
// member if one fails, as it does not do with a Txn. It returns ErrRestored if etcd's history is
// not that of n. doubt is a put that etcd cannot tell about.
func ask(ctx context.Context, client *clientv3.Client, n newest, otherwise string) (
	head *pb.ResponseHeader, doubt change, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	key := n.put.key
	if key == "" {
		key = otherwise
	}
	resp, err := client.Get(ctx, key, clientv3.WithKeysOnly())
	if err != nil {
		return nil, change{}, err
	}
	if n.deletion.key != "" {
		// It may have been put again since. One from before says that the deletion is lost.
		deleted, err := client.Get(ctx, n.deletion.key, clientv3.WithKeysOnly())
		if err != nil {
			return nil, change{}, err
		}
		if at := revisionOf(deleted.Kvs); at != 0 && at < n.deletion.next {
			return nil, change{}, fmt.Errorf("%w: %s, which was deleted at revision %d, is of "+
				"revision %d", ErrRestored, n.deletion.key, n.deletion.revision, at)
		}
	}
	if n.put.key == "" {
		return resp.Header, change{}, nil
	}
	at := revisionOf(resp.Kvs)
	if at == 0 { // deleted, which the watch has not told yet, or never put
		at, err = putAt(ctx, client, n.put)
		if errors.Is(err, rpctypes.ErrCompacted) {
			return resp.Header, n.put, nil
		} else if err != nil {
			return nil, change{}, err
		}
	}
	if at != n.put.revision && at < n.put.next {
		return nil, change{}, fmt.Errorf("%w: %s, which was put at revision %d, is of revision %d",
			ErrRestored, n.put.key, n.put.revision, at)
	}
	return resp.Header, change{}, nil
}

// putAt returns the revision that c's key had at the revision of c; 0: there was none, or etcd has
// not come to that revision.
func putAt(ctx context.Context, client *clientv3.Client, c change) (int64, error) {
	resp, err := client.Get(ctx, c.key, clientv3.WithKeysOnly(), clientv3.WithRev(c.revision))
	switch {
	case errors.Is(err, rpctypes.ErrFutureRev):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return revisionOf(resp.Kvs), nil
}

// revisionOf returns the revision of a key that was asked for; 0: there is none.
func revisionOf(found []*mvccpb.KeyValue) int64 {
	if len(found) == 0 {
		return 0
	}
	return found[0].ModRevision
}

// stillDoubted takes the doubt of a probe. Of a key that was deleted the watch tells by the next
// one, after which another put is the newest. One that is in doubt twice counts as of another
// history: a watch that lags that long costs a list.
func (f *Follower) stillDoubted(c change) error {
	was := f.doubt
	f.doubt = c
	if c.key != "" && c.key == was.key && c.revision == was.revision {
		return fmt.Errorf("%w: %s, which was put at revision %d, is not there", ErrRestored, c.key,
			c.revision)
	}
	return nil
}
