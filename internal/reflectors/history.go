package reflectors

import (
	"context"
	"errors"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/bgp/reflector"
)

// errNoSuchHistory means that etcd was restored from a backup: what was read is worth nothing.
var errNoSuchHistory = errors.New("etcd was replaced or restored from older data")

// history is what a controller has seen of etcd's. A restored etcd may have our lease and our key,
// and a watch tells nothing of it before its revision has come to where the watch left off.
type history struct {
	cluster uint64
	newest  atomic.Int64 // revision
}

func newHistory(h *etcdserverpb.ResponseHeader) *history {
	out := &history{cluster: h.ClusterId}
	out.newest.Store(h.Revision)
	return out
}

// saw notes a revision that was read.
func (h *history) saw(revision int64) {
	for {
		newest := h.newest.Load()
		if newest >= revision || h.newest.CompareAndSwap(newest, revision) {
			return
		}
	}
}

// lacks reports whether a response comes from an etcd without what was seen before it was asked.
func (h *history) lacks(head *etcdserverpb.ResponseHeader, seen int64) bool {
	return head.GetClusterId() != h.cluster || head.GetRevision() < seen
}

// ends waits until etcd is another one; false: ctx or the lease has ended. It makes no request of
// its own: each renewal of the lease, every five seconds, says where etcd is. A member that lags
// behind looks the same; then it asks a quorum.
func (h *history) ends(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID) bool {
	renewed, err := client.KeepAlive(ctx, lease)
	if err != nil { // the session says so, too
		return false
	}
	for r := range renewed {
		seen := h.newest.Load()
		if !h.lacks(r.ResponseHeader, seen) {
			h.saw(r.Revision)
			continue
		}
		head, err := func() (*clientv3.GetResponse, error) {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			return client.Get(ctx, reflector.GoalKey, clientv3.WithKeysOnly())
		}()
		if err == nil && h.lacks(head.Header, seen) { // without an answer, the next renewal counts
			return true
		}
	}
	return false
}
