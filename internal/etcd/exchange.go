package etcd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// writePause is the shortest time between two writes of an Exchange.
	writePause = time.Second
	// batchSize is below etcd's limit of 128 operations in a transaction.
	batchSize      = 100
	requestTimeout = 5 * time.Second
	revokeTimeout  = time.Second
)

var (
	errLeaseLost = errors.New("the lease has ended")
	errRoom      = errors.New("there is room for requests that were not heard")
)

// Request is a key that others have written, as of etcd's revision of its last change.
type Request struct {
	Key      string
	Value    []byte
	Revision int64
}

// ExchangeConfig says which keys are ours, and which are others'.
type ExchangeConfig struct {
	// Own begins the keys that this process alone writes. What else is there is deleted.
	Own string
	// TTL is the lease of these keys, in whole seconds: they end that long after a process that was
	// killed.
	TTL time.Duration
	// Requests begins the keys that are read, and Take is handed all of them whenever they change,
	// but not more than the first MaxRequests. It is called from one goroutine.
	Requests    string
	MaxRequests int
	Take        func([]Request)
	// RevokeTimeout is what the end of a process may wait for an etcd that is away; zero: 1 s.
	RevokeTimeout time.Duration
	Log           *slog.Logger
}

// Exchange keeps keys of ours in etcd under a lease, equal to what is wanted, and reads keys of
// others, on one connection. Without changes it costs etcd a lease and nothing else.
type Exchange struct {
	ExchangeConfig
	client *Client
	wake   chan struct{} // of size 1: wanted was changed

	// owned by Run's goroutine
	lease    clientv3.LeaseID
	own      OwnKeys   // what is under Own
	paused   time.Time // no write before
	requests map[string]Request
	more     bool      // there are more than these
	listed   time.Time // last

	mu     sync.Mutex        // guards what follows
	wanted map[string]string // nil: nothing is known yet, and nothing is written
	status ExchangeStatus
}

// ExchangeStatus is how an Exchange stands.
type ExchangeStatus struct {
	// Written: etcd has, or had before it was lost, all that was wanted then.
	Written bool
	Problem string // why etcd has not what is wanted now, or will not keep it
	// TooMany: there are more than MaxRequests, and the others are not heard.
	TooMany bool
}

// NewExchange returns an Exchange that does nothing until Run.
func NewExchange(client *Client, c ExchangeConfig) *Exchange {
	c.RevokeTimeout = cmp.Or(c.RevokeTimeout, revokeTimeout)
	return &Exchange{ExchangeConfig: c, client: client, own: OwnKeys{Prefix: c.Own},
		wake: make(chan struct{}, 1)}
}

// Want makes these keys, all below Own, the wanted ones. It returns at once.
func (x *Exchange) Want(keys map[string]string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.wanted != nil && maps.Equal(x.wanted, keys) {
		return
	}
	x.wanted = maps.Clone(keys)
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Status returns the current status.
func (x *Exchange) Status() ExchangeStatus {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.status
}

// Run works until ctx ends, and then ends the lease and with it the keys.
func (x *Exchange) Run(ctx context.Context) error {
	x.client.Run(ctx, min(LastRetry, x.TTL/3), x.attempt, x.failed)
	if x.lease == clientv3.NoLease {
		return nil
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.RevokeTimeout)
	defer cancel()
	err := x.client.Once(end, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Revoke(ctx, x.lease)
		return err
	})
	if err != nil {
		x.Log.Warn("our keys stay in etcd until their lease ends", "keys", x.Own, "ttl", x.TTL,
			"err", x.client.Explain(err))
	}
	return nil
}

func (x *Exchange) failed(err error) {
	why := x.client.Explain(err)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.status.Problem != why {
		x.Log.Warn("our keys are not kept in etcd, trying again", "keys", x.Own, "err", why)
	}
	x.status.Problem = why
}

// attempt works until an error.
func (x *Exchange) attempt(ctx context.Context, client *clientv3.Client) error {
	if x.lease == clientv3.NoLease {
		grant, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		lease, err := client.Grant(grant, int64(x.TTL/time.Second))
		if err != nil {
			return err
		}
		x.lease = lease.ID
	}
	for {
		err := x.exchange(ctx, client)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound), errors.Is(err, errLeaseLost):
			x.lease = clientv3.NoLease // the next attempt has another one
		case errors.Is(err, ErrRestored), errors.Is(err, errRoom): // what is there is read again
			select {
			case <-time.After(time.Until(x.listed.Add(writePause))):
				continue
			case <-ctx.Done():
			}
		}
		return err
	}
}

// exchange reads what is there, and then writes and reads changes until an error.
func (x *Exchange) exchange(ctx context.Context, client *clientv3.Client) error {
	if err := x.list(ctx, client); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alive, err := client.KeepAlive(ctx, x.lease)
	if err != nil {
		return err
	}
	own := x.own.Watch(ctx, client)
	others := client.Watch(clientv3.WithRequireLeader(ctx), x.Requests, clientv3.WithPrefix(),
		clientv3.WithRev(x.own.revision+1))
	due := time.NewTimer(time.Until(x.paused))
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case resp, ok := <-alive:
			if !ok {
				return cmp.Or(ctx.Err(), errLeaseLost) // it is closed when ctx ends, too
			}
			err = x.own.SameHistory(ctx, client, resp.ResponseHeader)
		case resp, ok := <-own:
			err = x.own.Take(resp, ok)
		case resp, ok := <-others:
			err = x.takeRequests(resp, ok)
		case <-x.wake:
			due.Reset(time.Until(x.paused))
		case <-due.C:
			err = x.write(ctx, client)
		}
		if err != nil {
			return err
		}
	}
}

// list reads all keys at one revision.
func (x *Exchange) list(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := client.Txn(ctx).Then(clientv3.OpGet(x.Own, clientv3.WithPrefix()),
		clientv3.OpGet(x.Requests, clientv3.WithPrefix(),
			clientv3.WithLimit(int64(x.MaxRequests)))).Commit()
	if err != nil {
		return err
	}
	err = x.own.Listed(resp.Header, resp.Responses[0].GetResponseRange().Kvs, x.lease)
	x.requests = map[string]Request{}
	requests := resp.Responses[1].GetResponseRange()
	for _, kv := range requests.Kvs {
		x.requests[string(kv.Key)] = requestOf(kv)
	}
	x.more, x.listed = requests.More, time.Now()
	x.tell()
	return err
}

func requestOf(kv *mvccpb.KeyValue) Request {
	return Request{string(kv.Key), kv.Value, kv.ModRevision}
}

// tell hands over the requests.
func (x *Exchange) tell() {
	x.mu.Lock()
	if x.more && !x.status.TooMany {
		x.Log.Warn("there are more requests than are heard", "keys", x.Requests,
			"heard", x.MaxRequests)
	}
	x.status.TooMany = x.more
	x.mu.Unlock()
	x.Take(slices.SortedFunc(maps.Values(x.requests), compareRequests))
}

func compareRequests(a, b Request) int { return strings.Compare(a.Key, b.Key) }

// takeRequests returns errRoom if one goes while there are more: it takes a list to tell what is
// heard then.
func (x *Exchange) takeRequests(resp clientv3.WatchResponse, ok bool) error {
	if err := endOf(resp, ok); err != nil {
		return err
	}
	changed := false
	for _, ev := range resp.Events {
		switch {
		case ev.Type != clientv3.EventTypeDelete:
			changed = x.keep(requestOf(ev.Kv)) || changed
		case x.more:
			return errRoom
		default:
			delete(x.requests, string(ev.Kv.Key))
			changed = true
		}
	}
	if changed {
		x.tell()
	}
	return nil
}

// keep takes a request in, unless there are enough before it.
func (x *Exchange) keep(r Request) (changed bool) {
	x.requests[r.Key] = r
	if len(x.requests) <= x.MaxRequests {
		return true
	}
	last := slices.MaxFunc(slices.Collect(maps.Values(x.requests)), compareRequests)
	delete(x.requests, last.Key)
	changed, x.more = last.Key != r.Key || !x.more, true
	return changed
}

func endOf(resp clientv3.WatchResponse, ok bool) error {
	if !ok {
		return ErrWatchEnded
	}
	return resp.Err()
}

// write brings etcd up to date.
func (x *Exchange) write(ctx context.Context, client *clientv3.Client) error {
	x.mu.Lock()
	wanted := x.wanted
	x.mu.Unlock()
	if wanted == nil {
		return nil
	}
	wrote, err := x.own.Write(ctx, client, wanted, "")
	if err != nil {
		return err
	}
	if wrote {
		x.paused = time.Now().Add(writePause)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.status.Written || x.status.Problem != "" {
		x.Log.Info("our keys are in etcd", "keys", x.Own, "ttl", x.TTL)
	}
	x.status.Written, x.status.Problem = true, ""
	return nil
}
