package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/etcd"
	"vpp-route-agent/internal/external"
)

const (
	// statusDir replaces "config/" in the key of an item's status, as in Ligato.
	statusDir = "config-status/"
	// summaryName is the key of the summary below it. No model has this name.
	summaryName = "summary"

	// leaseTime is how long the status outlives the agent.
	leaseTime = 15 * time.Second
	// writePause is the shortest time between two rounds of writing.
	writePause = 50 * time.Millisecond
	// unfinishedTime bounds how long an answer waits for the data plane's.
	unfinishedTime = 2 * time.Second
	// readTimeout is for all statuses, which may be some MiB, and rereadPause before the next time.
	readTimeout = 30 * time.Second
	rereadPause = time.Second

	// maxDetails bounds in bytes what the status of an item quotes.
	maxDetails = 4 << 10
)

var errLeaseLost = errors.New("the lease has ended")

// itemStatus is the status of an item: Ligato's ValueStatus in JSON, and fields of our own.
type itemStatus struct {
	Key           string   `json:"key"`
	State         string   `json:"state"`
	Error         string   `json:"error,omitempty"`
	LastOperation string   `json:"last_operation,omitempty"`
	Details       []string `json:"details,omitempty"`
	// Source is who wants the item.
	Source string `json:"source"`
	// ConfigRevision is etcd's revision when the value that this is about was read.
	ConfigRevision int64 `json:"config_revision"`
	Attempts       int   `json:"attempts,omitempty"`
	LastGood       bool  `json:"last_good_in_use,omitempty"`
}

// summary is the answer to all clients of the node.
type summary struct {
	// ObservedRevision: the statuses are those of this revision of etcd, and of all before it.
	ObservedRevision int64 `json:"observed_revision"`
	// ResyncID is the last request under the key "resync" that is done.
	ResyncID     string         `json:"resync_id,omitempty"`
	Items        int            `json:"items"`
	States       map[string]int `json:"states"`
	AgentStarted time.Time      `json:"agent_started"`
}

func statusOf(v external.Verdict) itemStatus {
	s := itemStatus{
		Key: v.Key, State: v.State.String(), Source: v.Source, ConfigRevision: v.Revision,
		Attempts: v.Attempts, LastGood: v.LastGood,
	}
	if v.Canonical != "" && !v.LastGood {
		s.Key = v.Canonical
	}
	details := shorten(v.Details)
	switch v.State {
	case external.Configured:
		s.LastOperation = "CREATE"
	case external.Removed:
		s.LastOperation = "DELETE"
	case external.Pending:
		s.Details = details
	case external.Invalid, external.Unimplemented:
		s.LastOperation, s.Error = "VALIDATE", strings.Join(details, "; ")
	default:
		s.LastOperation, s.Error = "CREATE", strings.Join(details, "; ")
	}
	return s
}

// shorten returns the first details, and how many there are besides.
func shorten(details []string) []string {
	left := maxDetails
	for i, d := range details {
		if left -= len(d); left >= 0 {
			continue
		}
		short := append(details[:i:i], strings.ToValidUTF8(d[:len(d)+left], "")+"…")
		if more := len(details) - i - 1; more > 0 {
			short = append(short, fmt.Sprintf("and %d more", more))
		}
		return short
	}
	return details
}

// statusKey is the key of an item's status.
func statusKey(base, key string) string {
	return base + statusDir + strings.TrimPrefix(key, "config/")
}

// answers writes to etcd how items stand, under a lease. run owns all but what mu guards.
type answers struct {
	client  *etcd.Client
	base    string
	log     *slog.Logger
	started time.Time
	wake    chan struct{} // of size one
	reread  chan struct{} // of size one: what etcd has may be older than what was written

	lease clientv3.LeaseID
	own   etcd.OwnKeys

	mu       sync.Mutex // guards what follows
	newest   *external.Answer
	since    time.Time // the newest revision is unfinished since then
	revision int64     // of newest, when since was set
	observed int64
	resynced string
	err      string
}

func newAnswers(client *etcd.Client, base string, log *slog.Logger) *answers {
	return &answers{client: client, base: base, log: log, started: time.Now().UTC(),
		own:  etcd.OwnKeys{Prefix: base + statusDir},
		wake: make(chan struct{}, 1), reread: make(chan struct{}, 1)}
}

func (a *answers) state() (observed int64, problem string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.observed, a.err
}

// set takes a new answer.
func (a *answers) set(to external.Answer) {
	a.mu.Lock()
	a.newest = &to
	if to.Revision != a.revision {
		a.revision, a.since = to.Revision, time.Now()
	}
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// readAgain has what etcd has read again soon.
func (a *answers) readAgain() {
	select {
	case a.reread <- struct{}{}:
	default:
	}
}

// run writes until ctx ends. The lease then keeps the status for an agent that is back soon.
func (a *answers) run(ctx context.Context) {
	a.client.Run(ctx, leaseTime/3, a.attempt, a.failed)
}

func (a *answers) failed(err error) {
	if why := a.client.Explain(err); a.say(why) {
		a.log.Warn("the status of items is not written to etcd, trying again", "err", why)
	}
}

// say notes what is wrong, and reports whether it was not known yet.
func (a *answers) say(problem string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.err == problem
	a.err = problem
	return !known
}

// attempt writes until an error.
func (a *answers) attempt(ctx context.Context, client *clientv3.Client) error {
	for {
		err := a.keep(ctx, client)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound), errors.Is(err, errLeaseLost):
			a.lease = clientv3.NoLease // the next attempt has another one
		case errors.Is(err, etcd.ErrRestored): // what is there is read again
			select {
			case <-time.After(rereadPause): // a member that lags behind says the same at once
				continue
			case <-ctx.Done():
			}
		}
		return err
	}
}

// keep reads what is there, and writes until an error, or until it is to be read again.
func (a *answers) keep(ctx context.Context, client *clientv3.Client) error {
	if err := a.prepare(ctx, client); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alive, err := client.KeepAlive(ctx, a.lease)
	if err != nil {
		return err
	}
	deleted := a.own.Watch(ctx, client, clientv3.WithFilterPut())
	timer := time.NewTimer(0)
	defer timer.Stop()
	wake := a.wake // nil while a round is due, which later answers do not put off
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case resp, ok := <-alive:
			if !ok {
				return cmp.Or(ctx.Err(), errLeaseLost) // it is closed when ctx ends, too
			}
			err = a.own.SameHistory(ctx, client, resp.ResponseHeader)
		case resp, ok := <-deleted:
			err = a.own.Take(resp, ok)
		case <-a.reread:
			err = etcd.ErrRestored
		case <-wake:
			wake = nil
			timer.Reset(writePause)
		case <-timer.C:
			wake = a.wake
			var again time.Duration
			if again, err = a.write(ctx, client); again > 0 {
				timer.Reset(again)
			}
		}
		if err != nil {
			return err
		}
	}
}

// prepare ensures a lease, and reads which keys an earlier run or connection has left.
func (a *answers) prepare(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if a.lease == clientv3.NoLease {
		lease, err := client.Grant(ctx, int64(leaseTime/time.Second))
		if err != nil {
			return err
		}
		a.lease = lease.ID
	}
	there, err := client.Get(ctx, a.own.Prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	return a.own.Listed(there.Header, there.Kvs, a.lease)
}

// write brings etcd up to date, the summary last. again is when to look once more; 0: when
// something changes.
func (a *answers) write(ctx context.Context, client *clientv3.Client) (
	again time.Duration, err error) {
	wanted, all, again := a.wanted()
	if wanted == nil {
		return again, nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return 0, err
	}
	last := a.own.Prefix + summaryName
	wanted[last] = string(text)
	problem := dropLarge(wanted)
	if _, err := a.own.Write(ctx, client, wanted, last); err != nil {
		return 0, err
	}
	a.mu.Lock()
	a.observed, a.resynced = all.ObservedRevision, all.ResyncID
	a.mu.Unlock()
	if a.say(problem) && problem != "" {
		a.log.Warn(problem)
	}
	return again, nil
}

// dropLarge leaves out items whose keys are too long for a status, which has the key twice.
func dropLarge(wanted map[string]string) (problem string) {
	large := 0
	for key, text := range wanted {
		if len(key)+len(text) > etcd.MaxBatch {
			delete(wanted, key)
			large++
		}
	}
	switch large {
	case 0:
		return ""
	case 1:
		return "the status of 1 item is too large for etcd"
	}
	return fmt.Sprintf("the status of %d items is too large for etcd", large)
}

// wanted is what etcd is to have; nil: nothing is known yet. A revision counts as observed when the
// data plane has answered for every item, or has had time to.
func (a *answers) wanted() (items map[string]string, all summary, again time.Duration) {
	a.mu.Lock()
	newest, observed, waited := a.newest, a.observed, time.Since(a.since)
	resynced := a.resynced
	a.mu.Unlock()
	if newest == nil {
		return nil, summary{}, 0
	}
	switch {
	case newest.Finished() || waited >= unfinishedTime:
		observed = newest.Revision // lower than before where etcd was restored
		resynced = newest.Resync
	case observed != newest.Revision:
		again = unfinishedTime - waited
	}
	items = make(map[string]string, len(newest.Verdicts)+1)
	all = summary{ObservedRevision: observed, ResyncID: resynced,
		States: map[string]int{}, AgentStarted: a.started}
	for _, v := range newest.Verdicts {
		all.States[v.State.String()]++
		if v.State != external.Removed {
			all.Items++
		}
		text, err := json.Marshal(statusOf(v))
		if err != nil {
			panic("external/etcd: " + err.Error()) // it is made of texts and numbers
		}
		items[statusKey(a.base, v.Key)] = string(text)
	}
	return items, all, again
}
