package reflectors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/etcd"
)

const (
	// requestTimeout is for a request of a few keys.
	requestTimeout = 5 * time.Second
	// endTimeout is what the end of a process may wait for a datastore that is away.
	endTimeout = time.Second
)

var errLeaseLost = errors.New("the lease of this controller has ended")

// etcdStore is a store in etcd: a step is one transaction.
type etcdStore struct {
	client   *etcd.Client
	leadTime time.Duration
	// watched is called with a connection and may replace what writes and reads through it.
	watched func(clientv3.KV) clientv3.KV

	lease clientv3.LeaseID // of the last attempt; owned by compete
}

func newEtcdStore(c etcd.Config, purpose string) (*etcdStore, error) {
	client, err := etcd.NewClient(c, purpose)
	if err != nil {
		return nil, err
	}
	return &etcdStore{client: client, leadTime: leadTime}, nil
}

func (*etcdStore) String() string { return "etcd" }

func (s *etcdStore) explain(err error) string { return s.client.Explain(err) }

func (s *etcdStore) compete(ctx context.Context, c *Controller) {
	s.client.Run(ctx, etcd.LastRetry, func(ctx context.Context, client *clientv3.Client) error {
		return s.attempt(ctx, client, c)
	}, func(err error) { c.failed(s.explain(err)) })
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if s.lease != clientv3.NoLease {
		if err := s.client.Once(end, s.revoke); err != nil {
			c.log.Warn("no other controller leads until our lease ends", "ttl", s.leadTime,
				"err", s.explain(err))
		}
	}
}

// revoke ends the lease of the last attempt, and with it what that has put.
func (s *etcdStore) revoke(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := client.Revoke(ctx, s.lease)
	return err
}

// attempt waits to lead, and leads, until an error.
func (s *etcdStore) attempt(ctx context.Context, client *clientv3.Client, c *Controller) error {
	if s.lease != clientv3.NoLease {
		_ = s.revoke(ctx, client) // or it ends by itself
		s.lease = clientv3.NoLease
	}
	granted, err := func() (*clientv3.LeaseGrantResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return client.Grant(ctx, int64(s.leadTime/time.Second))
	}()
	if err != nil {
		return err
	}
	s.lease = granted.ID
	inHistory, end := context.WithCancelCause(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer end(nil)
	seen := newHistory(granted.ResponseHeader)
	following.Go(func() {
		if seen.ends(inHistory, client, s.lease) {
			end(errNoSuchHistory)
		}
	})
	session, err := concurrency.NewSession(client, concurrency.WithLease(s.lease),
		concurrency.WithContext(inHistory))
	if err != nil {
		return err
	}
	defer session.Orphan()
	err = s.leadInTurn(session, client, c, seen)
	switch {
	case errors.Is(context.Cause(inHistory), errNoSuchHistory):
		return errNoSuchHistory
	case session.Ctx().Err() != nil && ctx.Err() == nil:
		return errLeaseLost
	}
	return err
}

// leadInTurn waits until all older controllers have gone, and then leads.
func (s *etcdStore) leadInTurn(session *concurrency.Session, client *clientv3.Client,
	c *Controller, seen *history) error {
	ctx := session.Ctx() // it ends with the lease
	election := concurrency.NewElection(session, reflector.LeaderPrefix)
	c.waits()
	if err := election.Campaign(ctx, c.state().encode()); err != nil {
		return err
	}
	t := &etcdTerm{client: client, kv: client.KV, lease: session.Lease(), key: election.Key(),
		created: election.Rev(), seen: seen}
	if s.watched != nil {
		t.kv = s.watched(t.kv)
	}
	return c.leads(ctx, t)
}

func (s *etcdStore) look(ctx context.Context, version string) (r *reading, err error) {
	err = s.client.Once(ctx, func(ctx context.Context, client *clientv3.Client) error {
		r, err = read(ctx, client, version)
		return err
	})
	return r, err
}

func (s *etcdStore) change(ctx context.Context, r *reading, c Changes) (done bool, err error) {
	err = s.client.Once(ctx, func(ctx context.Context, client *clientv3.Client) error {
		done, err = c.write(ctx, client, r)
		return err
	})
	return done, err
}

func (c Changes) write(ctx context.Context, client *clientv3.Client, r *reading) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var same []clientv3.Cmp
	var ops []clientv3.Op
	put := func(key string, revision int64, value []byte) {
		same = append(same, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
		ops = append(ops, clientv3.OpPut(key, string(value)))
	}
	if c.Goal != nil {
		put(reflector.GoalKey, r.goalRevision, c.Goal.Encode())
	}
	if c.Node != nil {
		put(c.Node.Key.String(), c.Node.Revision, c.Node.Value)
	}
	for _, w := range c.Adopted {
		ops = append(ops, clientv3.OpPut(w.Key.String(), string(w.Value)))
	}
	if len(c.Adopted) > 0 {
		same = append(same, unchangedSince(r.revision)...)
	}
	if c.Noted != nil {
		put(reflector.AgentsKey, r.agentsRevision, encodeAgents(c.Noted))
	}
	resp, err := client.Txn(ctx).If(same...).Then(ops...).Commit()
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}

// etcdTerm is a term by a key under a lease, which every write compares.
type etcdTerm struct {
	client *clientv3.Client
	kv     clientv3.KV
	lease  clientv3.LeaseID
	// key is that of the leader, created at a revision
	key     string
	created int64
	seen    *history
}

func (t *etcdTerm) id() string { return fmt.Sprintf("%x", t.lease) }

func (t *etcdTerm) read(ctx context.Context, version string) (*reading, error) {
	r, err := read(ctx, t.kv, version)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(r.states, func(s State) bool {
		return s.key == t.key && s.created == t.created
	}) {
		return nil, errLeadLost
	}
	t.seen.saw(r.revision)
	return r, nil
}

// follow: a watch that begins tells of a change, too: what it has missed is then read.
func (t *etcdTerm) follow(ctx context.Context, changed func()) {
	prefixes := []string{reflector.NodesPrefix}
	for _, kind := range calicoKinds {
		prefixes = append(prefixes, calicoPrefix(kind))
	}
	var all sync.WaitGroup
	defer all.Wait()
	follow := func(key string, more ...clientv3.OpOption) {
		all.Go(func() {
			for ctx.Err() == nil {
				watch := t.client.Watch(clientv3.WithRequireLeader(ctx), key,
					append(more, clientv3.WithCreatedNotify())...)
				for range watch {
					changed()
				}
				select {
				case <-ctx.Done():
				case <-time.After(lookAgain):
				}
			}
		})
	}
	for _, p := range prefixes {
		follow(p, clientv3.WithPrefix())
	}
	follow(reflector.GoalKey)
	follow(reflector.AgentsKey)
	follow(t.key, clientv3.WithFilterPut()) // its end alone: what is told there is our own
}

func (t *etcdTerm) note(ctx context.Context, r *reading, agents []string) error {
	_, _, err := t.write(ctx, []clientv3.Cmp{clientv3.Compare(
		clientv3.ModRevision(reflector.AgentsKey), "=", r.agentsRevision)},
		clientv3.OpPut(reflector.AgentsKey, string(encodeAgents(agents))))
	return err
}

func (t *etcdTerm) take(ctx context.Context, r *reading, s *reflector.Step) (bool, error) {
	same := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(reflector.GoalKey), "=",
		r.goalRevision)}
	for _, o := range s.Compare {
		same = append(same, clientv3.Compare(clientv3.ModRevision(o.Key.String()), "=",
			o.Revision))
	}
	same = append(same, unchangedSince(r.revision)...) // a change may close a gate
	ops := []clientv3.Op{clientv3.OpPut(reflector.GoalKey, string(s.Goal.Encode()))}
	for _, w := range s.Writes {
		if w.Value == nil {
			ops = append(ops, clientv3.OpDelete(w.Key.String()))
		} else {
			ops = append(ops, clientv3.OpPut(w.Key.String(), string(w.Value)))
		}
	}
	taken, _, err := t.write(ctx, same, ops...)
	return taken, err
}

// unchangedSince compares that nothing that sessions follow from has come or changed.
func unchangedSince(revision int64) (same []clientv3.Cmp) {
	for _, kind := range calicoKinds {
		all := clientv3.ModRevision(calicoPrefix(kind)).WithPrefix()
		same = append(same, clientv3.Compare(all, "<", revision+1))
	}
	return same
}

// write commits ops if this controller leads and same holds; done is false if same does not.
func (t *etcdTerm) write(ctx context.Context, same []clientv3.Cmp, ops ...clientv3.Op) (done bool,
	revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	leads := clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.created)
	resp, err := t.kv.Txn(ctx).If(append(same, leads)...).Then(ops...).
		Else(clientv3.OpGet(t.key)).Commit()
	if err != nil {
		return false, 0, err
	}
	t.seen.saw(resp.Header.Revision)
	if !resp.Succeeded {
		kvs := resp.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 || kvs[0].CreateRevision != t.created {
			return false, 0, errLeadLost
		}
	}
	return resp.Succeeded, resp.Header.Revision, nil
}

func (t *etcdTerm) tell(ctx context.Context, s State) error {
	_, err := t.putLeased(ctx, t.key, s.encode())
	return err
}

// putLeased writes what ends with the term.
func (t *etcdTerm) putLeased(ctx context.Context, key, value string) (revision int64, err error) {
	_, revision, err = t.write(ctx, nil, clientv3.OpPut(key, value, clientv3.WithLease(t.lease)))
	return revision, err
}

func (t *etcdTerm) ask(ctx context.Context, q reflector.Question) (int64, error) {
	return t.putLeased(ctx, reflector.QuestionKey(t.id()), string(q.Encode()))
}

func (t *etcdTerm) endQuestion(ctx context.Context) error {
	_, _, err := t.write(ctx, nil, clientv3.OpDelete(reflector.QuestionKey(t.id())))
	return err
}

func (t *etcdTerm) birds(ctx context.Context) (map[string][]byte, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	resp, err := t.kv.Get(ctx, reflector.BirdQuestionPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, err
	}
	all := map[string][]byte{}
	for _, kv := range resp.Kvs {
		all[string(kv.Key)] = kv.Value
	}
	return all, resp.Header.Revision, nil
}

// askBird: the lease ends with the controller; an answer frees the key of it.
func (t *etcdTerm) askBird(ctx context.Context, key string, question []byte) (int64, error) {
	return t.putLeased(ctx, key, string(question))
}

func (t *etcdTerm) endBirds(ctx context.Context, keys []string) error {
	var ops []clientv3.Op
	for _, key := range keys {
		ops = append(ops, clientv3.OpDelete(key))
	}
	_, _, err := t.write(ctx, nil, ops...)
	return err
}

// read reads all at one revision, as a controller of a version understands it.
func read(ctx context.Context, kv clientv3.KV, version string) (*reading, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ops := []clientv3.Op{
		clientv3.OpGet(reflector.GoalKey),
		clientv3.OpGet(reflector.AgentsKey),
		clientv3.OpGet(reflector.NodesPrefix, clientv3.WithPrefix()),
		clientv3.OpGet(reflector.LeaderPrefix+"/", clientv3.WithPrefix(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
	}
	for _, kind := range calicoKinds {
		ops = append(ops, clientv3.OpGet(calicoPrefix(kind), clientv3.WithPrefix()))
	}
	resp, err := kv.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, err
	}
	r := newReading(resp.Header.Revision)
	r.cluster = resp.Header.ClusterId
	for i, take := range []func(*mvccpb.KeyValue){
		func(kv *mvccpb.KeyValue) { r.takeGoal(string(kv.Key), kv.Value, kv.ModRevision) },
		func(kv *mvccpb.KeyValue) { r.takeAgents(string(kv.Key), kv.Value, kv.ModRevision) },
		func(kv *mvccpb.KeyValue) { r.hear(string(kv.Key), kv.Value, kv.ModRevision, version) },
		func(kv *mvccpb.KeyValue) {
			s := decodeState(kv.Value)
			s.key, s.created, s.leased = string(kv.Key), kv.CreateRevision, kv.Lease != 0
			r.states = append(r.states, s)
		},
	} {
		for _, kv := range resp.Responses[i].GetResponseRange().Kvs {
			take(kv)
		}
	}
	for i, kind := range calicoKinds {
		for _, kv := range resp.Responses[len(ops)-len(calicoKinds)+i].GetResponseRange().Kvs {
			// A key that names nothing is no resource.
			if k, err := calico.ParseKey(string(kv.Key)); err == nil && k.Kind == kind {
				r.add(reflector.Object{Key: k, Value: kv.Value, Revision: kv.ModRevision})
			}
		}
	}
	return r, nil
}
