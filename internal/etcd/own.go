package etcd

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// MaxBatch bounds in bytes the keys and values of a transaction, unless one is larger by itself.
// etcd's limit is 1.5 MiB.
const MaxBatch = 512 << 10

// OwnKeys are the keys below Prefix, which this process alone writes, as etcd has them. One
// goroutine owns it.
type OwnKeys struct {
	Prefix string

	lease    clientv3.LeaseID
	written  map[string]written
	cluster  uint64 // of etcd, as the revisions
	revision int64  // of the last list or write
}

// written is a key of ours as etcd has it. Value is "" if it is not known, or not under our lease.
type written struct {
	value    string
	revision int64
}

// Listed takes all keys that are there. What is not under lease will be written again. It returns
// what another client has put since the last list or write, as Take does: a watch may have ended
// before it told.
func (o *OwnKeys) Listed(h *pb.ResponseHeader, keys []*mvccpb.KeyValue,
	lease clientv3.LeaseID) (err error) {
	was, goesOn := *o, o.follows(h)
	o.lease, o.cluster, o.revision = lease, h.ClusterId, h.Revision
	o.written = map[string]written{}
	for _, kv := range keys {
		w := written{revision: kv.ModRevision}
		if kv.Lease == int64(lease) {
			w.value = string(kv.Value)
		}
		o.written[string(kv.Key)] = w
		// A write of ours that was not acknowledged has a lease of ours.
		others := kv.Lease != int64(lease) && kv.Lease != int64(was.lease)
		if goesOn && others && kv.ModRevision > was.since(string(kv.Key)) {
			err = errPut(kv)
		}
	}
	return err
}

// since is the revision of what is known of a key.
func (o *OwnKeys) since(key string) int64 {
	if w, ours := o.written[key]; ours {
		return w.revision
	}
	return o.revision
}

func errPut(kv *mvccpb.KeyValue) error {
	return fmt.Errorf("another client put %.64q under our key %s; "+
		"is there another node of our name?", kv.Value, kv.Key)
}

// Watch watches from the last list or write on.
func (o *OwnKeys) Watch(ctx context.Context, client *clientv3.Client,
	opts ...clientv3.OpOption) clientv3.WatchChan {
	opts = append(opts, clientv3.WithPrefix(), clientv3.WithRev(o.revision+1))
	return client.Watch(clientv3.WithRequireLeader(ctx), o.Prefix, opts...)
}

// SameHistory finds by the answer to a keepalive a restored etcd, which may know our lease and have
// an older value under it, and returns ErrRestored. An answer that was on its way during a write
// looks alike, and so does one of a member that lags behind: then a quorum is asked.
func (o *OwnKeys) SameHistory(ctx context.Context, client *clientv3.Client,
	h *pb.ResponseHeader) error {
	if o.follows(h) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	head, err := client.Get(ctx, o.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err == nil && !o.follows(head.Header) {
		err = ErrRestored
	}
	return err
}

// follows reports whether etcd has what it had at the last list or write.
func (o *OwnKeys) follows(h *pb.ResponseHeader) bool {
	return h.GetClusterId() == o.cluster && h.GetRevision() >= o.revision
}

// Take returns what another has done to our keys, which has them listed and written again. The
// channel of the watch says whether it is open.
func (o *OwnKeys) Take(resp clientv3.WatchResponse, open bool) error {
	if err := endOf(resp, open); err != nil {
		return err
	}
	for _, ev := range resp.Events {
		key := string(ev.Kv.Key)
		switch {
		case ev.Kv.ModRevision <= o.since(key): // our own
		case ev.Type == clientv3.EventTypeDelete:
			return fmt.Errorf("the key %s was deleted by another client, or its lease has ended",
				key)
		default:
			o.written[key] = written{revision: ev.Kv.ModRevision} // a list does not name it again
			return errPut(ev.Kv)
		}
	}
	return nil
}

// Write brings etcd up to what is wanted, a key last if it is not "", and reports whether there was
// anything to write.
func (o *OwnKeys) Write(ctx context.Context, client *clientv3.Client, wanted map[string]string,
	last string) (wrote bool, err error) {
	var ops []clientv3.Op
	for key := range o.written {
		if _, is := wanted[key]; !is {
			ops = append(ops, clientv3.OpDelete(key))
		}
	}
	put := func(key, value string) {
		if o.written[key].value != value {
			ops = append(ops, clientv3.OpPut(key, value, clientv3.WithLease(o.lease)))
		}
	}
	for key, value := range wanted {
		if key != last {
			put(key, value)
		}
	}
	if last != "" {
		put(last, wanted[last])
	}
	for rest := ops; len(rest) > 0; {
		n := fitting(rest)
		if err := o.commit(ctx, client, rest[:n]); err != nil {
			return true, err
		}
		rest = rest[n:]
	}
	return len(ops) > 0, nil
}

// fitting returns how many of ops, at least one, go into a transaction.
func fitting(ops []clientv3.Op) (n int) {
	for size := 0; n < min(len(ops), batchSize); n++ {
		size += len(ops[n].KeyBytes()) + len(ops[n].ValueBytes())
		if n > 0 && size > MaxBatch {
			break
		}
	}
	return n
}

// commit carries out ops, after which written is what etcd has.
func (o *OwnKeys) commit(ctx context.Context, client *clientv3.Client, ops []clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return err
	}
	o.revision = resp.Header.Revision
	for _, op := range ops {
		key := string(op.KeyBytes())
		if op.IsDelete() {
			delete(o.written, key)
		} else {
			o.written[key] = written{string(op.ValueBytes()), o.revision}
		}
	}
	return nil
}
