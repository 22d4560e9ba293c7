package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/etcd"
)

// Publication is what a node publishes in etcd, outside of Calico's keys.
type Publication struct {
	Hosts     string // prefix of the keys, see calico.Needs
	Node      string
	Addresses []netip.Addr // at most one per family
	// TTL is the lease of the keys in whole seconds: they expire that long after this node stops.
	// 0: they have no lease and stay.
	TTL time.Duration
	// When is closed once there is something to publish.
	When <-chan struct{}
}

// Publisher keeps a publication in etcd. Run does the work; Status is safe for concurrent use.
type Publisher struct {
	Publication
	client *etcd.Client
	log    *slog.Logger

	lookEvery time.Duration

	// owned by Run's goroutine: the current lease, NoLease before the first
	lease clientv3.LeaseID

	mu     sync.Mutex // guards what follows
	status PublishStatus
}

// PublishStatus is the state of the publication.
type PublishStatus struct {
	// Published is what etcd has acknowledged. It stays while etcd is down, since the lease
	// survives.
	Published []netip.Addr
	Error     string // why it is not kept alive now
}

// lookInterval is how often keys without a lease are checked: no watch reports that a restored etcd
// lacks them. Keep-alives check the others.
const lookInterval = 20 * time.Second

const requestTimeout = 5 * time.Second

var (
	errLeaseLost  = errors.New("the lease has ended")
	errKeyDeleted = errors.New("the key was deleted by another client")
)

// NewPublisher checks cfg and returns a publisher that does nothing until Run.
func NewPublisher(cfg Config, p Publication, log *slog.Logger) (*Publisher, error) {
	client, err := etcd.NewClient(cfg, "to write under "+p.Hosts)
	if err != nil {
		return nil, err
	}
	return &Publisher{Publication: p, client: client,
		log: log.With("component", "publisher"), lookEvery: lookInterval}, nil
}

// Status returns the current status.
func (p *Publisher) Status() PublishStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Run publishes until ctx ends, again after each loss. At its end it deletes nothing: keys with a
// lease expire unless the agent is back in time.
func (p *Publisher) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.When:
	}
	p.client.Run(ctx, p.longestWait(), p.attempt, p.failed)
	return nil
}

// longestWait leaves time for a retry or two before the lease of a recovering etcd expires.
func (p *Publisher) longestWait() time.Duration {
	if p.TTL == 0 {
		return etcd.LastRetry
	}
	return min(etcd.LastRetry, p.TTL/3)
}

func (p *Publisher) failed(err error) {
	why := p.client.Explain(err)
	p.mu.Lock()
	was := p.status.Error
	p.status.Error = why
	p.mu.Unlock()
	if was != why {
		p.log.Warn("our address is not kept in etcd, trying again", "err", why)
	}
}

// attempt publishes and renews the publication until an error.
func (p *Publisher) attempt(ctx context.Context, client *clientv3.Client) error {
	if err := p.grant(ctx, client); err != nil {
		return err
	}
	revision, err := p.put(ctx, client)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		p.lease = clientv3.NoLease // the next attempt has another one
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.status = PublishStatus{Published: slices.Clone(p.Addresses)}
	p.mu.Unlock()
	p.log.Info("our addresses are published", "addresses", p.Addresses, "ttl", p.TTL)
	return p.keep(ctx, client, revision)
}

// grant ensures a lease. It reuses that of an earlier attempt, which would otherwise stay in etcd.
func (p *Publisher) grant(ctx context.Context, client *clientv3.Client) error {
	if p.TTL == 0 || p.lease != clientv3.NoLease {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lease, err := client.Grant(ctx, int64(p.TTL/time.Second))
	if err != nil {
		return err
	}
	p.lease = lease.ID
	return nil
}

// put writes all keys at one revision. Existing keys of an earlier run move to the new lease.
func (p *Publisher) put(ctx context.Context, client *clientv3.Client) (revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var ops []clientv3.Op
	for _, a := range p.Addresses {
		ops = append(ops, clientv3.OpPut(p.key(a), a.String(), clientv3.WithLease(p.lease)))
	}
	resp, err := client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

func (p *Publisher) key(a netip.Addr) string {
	return calico.PeerIP{Host: p.Node, IPv6: a.Is6()}.Key(p.Hosts)
}

// keep returns when the lease is lost, or when the keys of revision are changed by others.
func (p *Publisher) keep(ctx context.Context, client *clientv3.Client, revision int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var alive <-chan *clientv3.LeaseKeepAliveResponse // nil without a lease: never ready
	var look <-chan time.Time                         // nil with a lease
	if p.lease != clientv3.NoLease {
		var err error
		if alive, err = client.KeepAlive(ctx, p.lease); err != nil {
			return err
		}
	} else {
		ticker := time.NewTicker(p.lookEvery)
		defer ticker.Stop()
		look = ticker.C
	}
	changes := client.Watch(clientv3.WithRequireLeader(ctx), p.Hosts+p.Node+"/peerip/",
		clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, ok := <-alive:
			if !ok {
				p.lease = clientv3.NoLease
				return errLeaseLost
			}
		case <-look:
			if err := p.look(ctx, client); err != nil {
				return err
			}
		case resp, ok := <-changes:
			if !ok {
				return etcd.ErrWatchEnded
			}
			if err := resp.Err(); err != nil {
				return err
			}
			for _, ev := range resp.Events {
				if err := p.foreignChange(ev); err != nil {
					return err
				}
			}
		}
	}
}

// look checks that the keys exist.
func (p *Publisher) look(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, a := range p.Addresses {
		resp, err := client.Get(ctx, p.key(a))
		switch {
		case err != nil:
			return err
		case len(resp.Kvs) == 0:
			return fmt.Errorf("%w %s", errKeyDeleted, p.key(a))
		case string(resp.Kvs[0].Value) != a.String():
			return taken(resp.Kvs[0])
		}
	}
	return nil
}

// foreignChange describes what another has done to one of our keys, which makes us write it again.
// A write of ours whose answer was not awaited may come late: it has our lease.
func (p *Publisher) foreignChange(ev *clientv3.Event) error {
	for _, a := range p.Addresses {
		switch {
		case p.key(a) != string(ev.Kv.Key):
		case ev.Type == clientv3.EventTypeDelete:
			return fmt.Errorf("%w %s", errKeyDeleted, ev.Kv.Key)
		case p.lease != clientv3.NoLease && clientv3.LeaseID(ev.Kv.Lease) == p.lease &&
			string(ev.Kv.Value) == a.String():
			return nil
		default:
			return taken(ev.Kv)
		}
	}
	return nil
}

func taken(kv *mvccpb.KeyValue) error {
	return fmt.Errorf(
		"another client put %.64q under our key %s; is there another node of our name?",
		kv.Value, kv.Key)
}
