package etcd

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vpp-route-agent/internal/settle"
)

// watched is a response and its range; over says that the range's watch has ended.
type watched struct {
	rng  *keyRange
	resp clientv3.WatchResponse
	at   time.Time // when it came
	over bool
}

// probed is the outcome of a probe.
type probed struct {
	head  *pb.ResponseHeader
	doubt change
	err   error
}

// widened is what a list of newly wanted ranges found at the revision of head.
type widened struct {
	probed
	revision int64  // before the probe
	term     uint64 // of Raft, before the probe
	found    map[*keyRange][]*mvccpb.KeyValue
}

// watch applies changes of all ranges and probes etcd. It returns when a watch ends or etcd was
// restored, nil when ctx ends; all that it started has ended by then. It requests no progress
// (RequestProgress): the answer may overtake events in etcd before 3.4.25 and 3.5.8, which would be
// lost.
func (f *Follower) watch(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	defer f.publishChanges() // what came in and was to be published in a moment

	responses := make(chan watched)
	watches := map[*keyRange]context.CancelFunc{}
	watchRanges := func() {
		for r, end := range watches {
			if f.known[r.Range] != r {
				end()
				delete(watches, r)
			}
		}
		for _, r := range f.ranges {
			if r.next != 0 && watches[r] == nil {
				ctx, end := context.WithCancel(ctx)
				next := r.next // before the loop changes it
				watches[r] = end
				running.Go(func() { forward(ctx, client, r, next, responses) })
			}
		}
	}
	watchRanges()
	probes, probing, due := make(chan probed), false, time.NewTicker(f.ProbeEvery)
	defer due.Stop()

	// A list of what is newly wanted may take as long as etcd stalls. It runs beside the loop, one
	// at a time, and one that failed waits for the next probe.
	lists, listing, failed := make(chan widened), false, false
	widen := func() {
		f.dropUnwanted()
		watchRanges()
		w := widened{
			revision: f.revision, term: f.term, found: map[*keyRange][]*mvccpb.KeyValue{},
		}
		for _, r := range f.unlisted(nil) {
			w.found[r] = nil
		}
		if listing || failed || len(w.found) == 0 {
			return
		}
		listing = true
		running.Go(func() {
			w.head, w.err = f.listBeside(ctx, client, w.found)
			select {
			case lists <- w:
			case <-ctx.Done():
			}
		})
	}

	burst := settle.New()
	defer burst.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.relist:
			return errRelist
		case w := <-responses:
			if watches[w.rng] == nil { // ended meanwhile
				continue
			}
			if w.over {
				return ErrWatchEnded
			}
			if err := f.take(w.rng, w.resp); err != nil {
				return err
			}
			if f.received.IsZero() {
				f.received = w.at
			}
		case w := <-lists:
			if ctx.Err() != nil {
				return nil
			}
			listing, failed = false, w.err != nil
			if err := f.takeList(w, burst); err != nil {
				return err
			}
		case <-burst.C:
			burst.Rang(time.Now())
			f.publishChanges()
			continue
		case <-f.grace.timer.C:
			f.endGrace()
		case <-due.C:
			if !probing {
				n := f.newest()
				probing = true
				running.Go(func() {
					var p probed
					p.head, p.doubt, p.err = ask(ctx, client, n, f.probeKey)
					select {
					case probes <- p:
					case <-ctx.Done():
					}
				})
			}
			continue
		case p := <-probes:
			if ctx.Err() != nil {
				return nil
			}
			probing, failed = false, false
			if err := f.takeProbe(p, burst); err != nil {
				return err
			}
		}
		if f.data.Changed() {
			widen()
			burst.Start(time.Now())
		} else {
			f.received = time.Time{}
		}
	}
}

// listBeside lists the ranges of found at one revision. It runs beside the loop.
func (f *Follower) listBeside(ctx context.Context, client *clientv3.Client,
	found map[*keyRange][]*mvccpb.KeyValue) (*pb.ResponseHeader, error) {
	head, err := f.probe(ctx, client)
	if err != nil {
		return nil, err
	}
	for r := range found {
		err := f.listRange(ctx, client, r.Range, head.Revision, func(kv *mvccpb.KeyValue) {
			found[r] = append(found[r], kv)
		})
		if err != nil {
			return nil, err
		}
	}
	return head, nil
}

// takeList puts what was listed beside the loop, as far as it is still wanted. A failed list ends
// nothing, as a failed probe.
func (f *Follower) takeList(w widened, burst *settle.Timer) error {
	if w.err == nil {
		w.err = f.sameHistory(w.head, w.revision, w.term)
	}
	switch {
	case errors.Is(w.err, ErrRestored):
		return w.err
	case w.err != nil:
		return f.takeProbe(w.probed, burst)
	}
	f.beginList()
	found := map[*keyRange]int{}
	for r, keys := range w.found {
		if f.known[r.Range] != r {
			continue
		}
		for _, kv := range keys {
			f.put(r, kv)
		}
		found[r] = len(keys)
	}
	f.endList(found, w.head.Revision)
	return nil
}

// takeProbe evaluates a probe. A failed one ends nothing, as the client reconnects its watches.
func (f *Follower) takeProbe(p probed, burst *settle.Timer) error {
	if errors.Is(p.err, ErrRestored) {
		return p.err
	}
	if p.err != nil {
		f.lost(p.err)
		burst.Lost()
		return nil
	}
	err := cmp.Or(f.sameHistory(p.head, f.probed, f.term), f.stillDoubted(p.doubt))
	if err != nil {
		return err
	}
	f.probed = f.revision
	f.term = p.head.RaftTerm
	f.connected()
	f.grace.back(time.Now())
	burst.Back(time.Now())
	return nil
}

// forward sends the responses of the watch on r from revision next on to out until the watch or ctx
// ends. It watches ctx itself: the client may be blocked for long in cancelling another watch while
// etcd is down.
func forward(ctx context.Context, client *clientv3.Client, r *keyRange, next int64,
	out chan<- watched) {
	opts := []clientv3.OpOption{clientv3.WithRev(next), clientv3.WithProgressNotify(),
		clientv3.WithFragment()}
	if !r.Exact {
		opts = append(opts, clientv3.WithPrefix())
	}
	responses := client.Watch(ctx, r.Prefix, opts...) // waits for etcd to accept it
	for over := false; !over; {
		var resp clientv3.WatchResponse
		select {
		case r, open := <-responses:
			resp, over = r, !open
		case <-ctx.Done():
			return
		}
		select {
		case out <- watched{rng: r, resp: resp, at: time.Now(), over: over}:
		case <-ctx.Done():
			return
		}
	}
}
