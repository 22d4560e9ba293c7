package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/settle"
)

const (
	probeInterval  = 30 * time.Second
	absentInterval = time.Minute
	relistSpread   = time.Second
)

// Data is what objects mean to whoever reads them. A Follower calls it from one goroutine.
type Data interface {
	// Resources returns what to follow, disjoint, by what has been Put so far. The first is always
	// there; it is probed, so it should be small.
	Resources() []Resource
	Put(r Resource, object []byte)
	Delete(r Resource, object []byte)
	// BeginList begins a list, after which every existing object is Put. An aborted list has no end
	// and deletes nothing.
	BeginList()
	// EndList ends a complete list of r: what was not Put since BeginList is gone.
	EndList(r Resource)
	// Changed reports whether there is something to publish.
	Changed() bool
}

// Kept is what is to be known of a kind after a restart.
type Kept struct {
	// Version is the newest that was seen. No list that is older is taken.
	Version uint64 `json:"version"`
	// Objects: there were some, so that it must be a mistake where the kind is unknown.
	Objects bool `json:"objects,omitzero"`
}

// Follower keeps Data equal to the API server. A resource may be newer than another. Resources may
// depend on data: what an object names is listed before anything is published. Run's goroutine owns
// it.
type Follower struct {
	client  *Client
	data    Data
	publish func(Published)
	log     *slog.Logger

	// ProbeEvery bounds how late it is noticed that the API server is lost, or that its etcd was
	// restored. AbsentEvery is how long a kind is left alone that the API server does not know.
	// RelistSpread is how long at most a list waits that follows upon an expired watch. LastRetry
	// bounds the back-off. All may be changed before Run.
	ProbeEvery, AbsentEvery, RelistSpread, LastRetry time.Duration

	news    chan news
	listing chan struct{} // of size one: who has put something in lists
	look    chan struct{} // of size one: the data want other resources

	reflectors map[Resource]*reflector
	kept       map[string]Kept // by Resource.Kind
	inList     *reflector      // whose objects are being put
	toEnd      bool            // reflectors that are not wanted are to end, once inList is nil
	lists      int             // that were completed
	isListed   bool            // a list was taken in and not yet published
	synced     bool
	// when the first event came of those that are not published yet; zero: none changed anything
	received time.Time
	burst    *settle.Timer
	others   bool            // changes came since then of resources that are not Separate
	probed   error           // why the last probe failed
	named    map[string]bool // problems that were logged

	mu     sync.Mutex // guards status
	status Status
}

// Published is what data are as of.
type Published struct {
	Version uint64 // the newest of all
	Kept    map[string]Kept
	Lists   int // that were completed
	// Received is when the first event came of those that are new; zero: there is none.
	Received time.Time
	// Lacking are the kinds of Separate resources that could not be read.
	Lacking []string
}

// Lacks reports whether r, which is Separate, could not be read.
func (p Published) Lacks(r Resource) bool { return slices.Contains(p.Lacking, r.Kind()) }

// Status is the state of a Follower, for people and metrics.
type Status struct {
	Server string
	// Connected: the last exchange succeeded, and everything is followed.
	Connected bool
	// Synced: data have been published. It stays true while the API server is away.
	Synced bool
	// Version is the newest that was seen.
	Version uint64
	// LastContact is when the API server last answered, zero if never.
	LastContact time.Time
	// Error says why Connected is false: each verb and resource that failed; empty when it is true.
	Error string
	// Lists counts complete lists of everything, or of a resource after that.
	Lists int
	// Failures counts requests that failed, Events changes that watches told.
	Failures int
	Events   int64
}

// NewFollower returns a follower that does nothing until Run. kept is what an earlier run
// published; nil: nothing. publish is called after all resources were listed, then after each burst
// of changes.
func NewFollower(client *Client, data Data, kept map[string]Kept, publish func(Published),
	log *slog.Logger) *Follower {
	f := &Follower{client: client, data: data, publish: publish,
		log: log.With("component", "kubernetes"), ProbeEvery: probeInterval,
		AbsentEvery: absentInterval, RelistSpread: relistSpread, LastRetry: lastRetry,
		named: map[string]bool{}, news: make(chan news),
		listing: make(chan struct{}, 1), look: make(chan struct{}, 1),
		reflectors: map[Resource]*reflector{}, kept: maps.Clone(kept),
		status: Status{Server: client.server, Error: "not tried yet"}}
	if f.kept == nil {
		f.kept = map[string]Kept{}
	}
	return f
}

// Status returns the current status. It is safe for concurrent use.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

func (f *Follower) update(change func(*Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.status)
}

// Retry calls do, which asks the API server before Run can, until it succeeds or ctx ends.
func (f *Follower) Retry(ctx context.Context, do func(context.Context, *Client) error) {
	for wait := firstRetry; ctx.Err() == nil; wait = min(2*wait, f.LastRetry) {
		err := do(ctx, f.client)
		if ctx.Err() != nil {
			return
		}
		if f.probed = err; err == nil {
			f.answered()
			return
		}
		f.heard(err)
		f.show()
		select {
		case <-ctx.Done():
		case <-time.After(max(jitter(wait), retryAfter(err))):
		}
	}
}

// Look has Resources asked for again, for a reason that does not come from the API server. It is
// safe for concurrent use.
func (f *Follower) Look() {
	select {
	case f.look <- struct{}{}:
	default:
	}
}

// Run follows until ctx ends and returns nil. Call it once.
func (f *Follower) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	defer f.client.Close()
	f.match(ctx, &running)
	first := f.data.Resources()[0]
	running.Go(func() { f.probeRegularly(ctx, first) })
	f.burst = settle.New()
	defer f.burst.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.burst.C:
			f.burst.Rang(time.Now())
			f.others = false
			f.publishChanges()
			continue
		case <-f.look:
			f.match(ctx, &running)
		case n := <-f.news:
			// one that is not known has ended meanwhile
			if n.from == nil || f.reflectors[n.from.Resource] == n.from {
				n.do()
			}
			close(n.done)
			if f.received.IsZero() {
				f.received = n.at
			}
		}
		if f.toEnd && f.inList == nil {
			f.match(ctx, &running)
		}
		if !f.data.Changed() && !f.isListed {
			f.received = time.Time{}
			continue
		}
		f.match(ctx, &running)
		if f.synced && f.others {
			f.burst.Start(time.Now())
		} else if f.synced {
			f.burst.Prompt(time.Now())
		} else {
			f.publishChanges()
		}
	}
}

// tell has Run's goroutine do something, and waits for that.
func (f *Follower) tell(ctx context.Context, from *reflector, do func()) error {
	n := news{from: from, at: time.Now(), do: do, done: make(chan struct{})}
	select {
	case f.news <- n:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-n.done
	return nil
}

// match starts and ends reflectors, so that what the data want is followed. While a list is under
// way the data have old objects besides the new, and want too much: none ends.
func (f *Follower) match(ctx context.Context, running *sync.WaitGroup) {
	wanted := map[Resource]bool{}
	for _, r := range f.data.Resources() {
		wanted[r] = true
		if f.reflectors[r] != nil {
			continue
		}
		ctx, end := context.WithCancel(ctx)
		n := &reflector{Resource: r, f: f, end: end, again: make(chan struct{}, 1)}
		f.reflectors[r] = n
		running.Go(func() { n.run(ctx) })
	}
	if f.toEnd = f.inList != nil; f.toEnd {
		return
	}
	for r, n := range f.reflectors {
		if !wanted[r] {
			n.end()
			delete(f.reflectors, r)
			if r.Name == "" { // what there was is not wanted: it is not missing later
				f.kept[r.Kind()] = Kept{Version: f.kept[r.Kind()].Version}
			}
			f.data.BeginList()
			f.data.EndList(r)
		}
	}
}

// begin begins a list. It returns the version that the list must have at least.
func (f *Follower) begin(r *reflector) uint64 {
	f.inList = r
	f.data.BeginList()
	return f.kept[r.Kind()].Version
}

func (f *Follower) put(r *reflector, objects []json.RawMessage) {
	f.answered()
	for _, o := range objects {
		f.data.Put(r.Resource, o)
	}
}

// end ends a complete list. restored: it is older than what was seen, and etcd says so itself.
func (f *Follower) end(r *reflector, version string, count int, restored bool) {
	f.inList = nil
	if restored {
		f.log.Warn("the API server's etcd was replaced or restored from older data, "+
			"which are taken as they are", "resource", r.String(), "version", version,
			"before", f.kept[r.Kind()].Version)
		f.kept[r.Kind()] = Kept{}
		f.relist(number(version))
	}
	f.data.EndList(r.Resource)
	r.count = count
	k := f.kept[r.Kind()]
	f.kept[r.Kind()] = Kept{max(k.Version, number(version)), count > 0 ||
		k.Objects && r.Name != ""}
	f.noteListed(r)
}

// noteListed counts a list: the first ones together as one, and none of what became wanted later.
func (f *Follower) noteListed(r *reflector) {
	if r.listed && f.synced {
		f.lists++
	}
	r.listed, r.due, f.isListed = true, false, true
	f.others = f.others || !r.Separate
}

// relist has everything listed that is newer than a version, since etcd has another history.
// Nothing is published before all of it is there.
func (f *Follower) relist(version uint64) {
	for _, r := range f.reflectors {
		if f.kept[r.Kind()].Version > version {
			r.due = true
			select {
			case r.again <- struct{}{}:
			default:
			}
		}
	}
}

// absent notes that the API server does not know a kind, and reports whether it has had objects.
func (f *Follower) absent(r *reflector) (had bool) {
	f.inList = nil
	if f.kept[r.Kind()].Objects {
		return true
	}
	f.answered()
	if !r.listed || r.due {
		f.log.Info("the API server does not know a kind, which counts as empty", "resource",
			r.String())
		f.noteListed(r)
	}
	r.problem = nil
	f.show()
	return false
}

// watching notes that r is followed.
func (f *Follower) watching(r *reflector) {
	r.problem = nil
	f.answered()
	f.show()
}

// failed notes why r is not followed.
func (f *Follower) failed(r *reflector, err error) {
	if f.inList == r {
		f.inList = nil
	}
	f.heard(err)
	r.problem = err
	f.show()
}

// heard counts a failure, which may be an answer.
func (f *Follower) heard(err error) {
	f.update(func(st *Status) {
		st.Failures++
		if statusOf(err) != 0 {
			st.LastContact = time.Now()
		}
	})
}

func (f *Follower) answered() {
	f.update(func(st *Status) { st.LastContact = time.Now() })
}

// show brings the status up to date, and logs what is new in it.
func (f *Follower) show() {
	now, waiting := map[string]bool{}, false
	add := func(err error) {
		if err == nil {
			return
		}
		if e := (*RequestError)(nil); statusOf(err) == 0 && errors.As(err, &e) {
			err = e.Why // an API server that is away is one problem
		}
		now[err.Error()] = true
	}
	add(f.probed)
	for _, r := range f.reflectors {
		add(r.problem)
		waiting = waiting || !r.listed || r.due
	}
	all := slices.Sorted(maps.Keys(now))
	for _, p := range all {
		if !f.named[p] {
			f.log.Warn("not all of Kubernetes' API can be followed; what was read before stays "+
				"in use", "err", p)
		}
	}
	if len(all) == 0 && len(f.named) > 0 {
		f.log.Info("all of Kubernetes' API can be followed again")
	}
	f.named = now
	text := strings.Join(all, "; ")
	f.update(func(st *Status) {
		st.Connected, st.Error = text == "" && !waiting, text
		st.Synced, st.Version, st.Lists = f.synced, f.newest(), f.lists
	})
}

// newest is the newest version of all kinds.
func (f *Follower) newest() (n uint64) {
	for _, k := range f.kept {
		n = max(n, k.Version)
	}
	return n
}

// take takes a change.
func (f *Follower) take(r *reflector, e Event) {
	k := f.kept[r.Kind()]
	if n := number(e.Version); n != 0 {
		k.Version = max(k.Version, n)
	}
	f.others = f.others || e.Object != nil && !r.Separate
	switch {
	case e.Object == nil:
	case e.Deleted:
		f.data.Delete(r.Resource, e.Object)
		// Who deletes a kind deletes its objects first. Once all are, it is no mistake.
		r.count--
		k.Objects = r.count > 0 || r.Name != ""
	default:
		if e.Added {
			r.count++
		}
		f.data.Put(r.Resource, e.Object)
		k.Objects = true
	}
	f.kept[r.Kind()] = k
	f.update(func(st *Status) {
		st.LastContact, st.Version = time.Now(), max(st.Version, k.Version)
		if e.Object != nil {
			st.Events++
		}
	})
}

// publishChanges publishes what has changed, if nothing that is wanted remains to be listed.
func (f *Follower) publishChanges() {
	if !f.isListed && !f.data.Changed() {
		return
	}
	var lacking []string
	for _, r := range f.reflectors {
		switch {
		case r.listed && !r.due:
		case f.isForbidden(r):
			lacking = append(lacking, r.Kind())
		default:
			return
		}
	}
	if !f.synced {
		f.lists++
	}
	f.isListed, f.synced = false, true
	f.publish(Published{f.newest(), maps.Clone(f.kept), f.lists, f.received, lacking})
	f.received = time.Time{}
	f.show()
}

// isForbidden reports whether nothing can be known of r and nothing was known.
func (f *Follower) isForbidden(r *reflector) bool {
	return r.Separate && !r.listed && statusOf(r.problem) == http.StatusForbidden &&
		!f.kept[r.Kind()].Objects
}

// probeRegularly asks for etcd's newest version of r.
func (f *Follower) probeRegularly(ctx context.Context, r Resource) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(f.ProbeEvery)):
		}
		before := uint64(0) // what is seen meanwhile may be newer than the answer
		_ = f.tell(ctx, nil, func() { before = f.newestOf(r) })
		version, err := f.client.version(ctx, r)
		_ = f.tell(ctx, nil, func() { f.takeProbe(before, version, err) })
	}
}

// newestOf is the newest version that was seen of r, or of another custom resource: all of them are
// in one etcd, and other kinds may be in another (--etcd-servers-overrides).
func (f *Follower) newestOf(r Resource) uint64 {
	newest := f.kept[r.Kind()].Version
	for kind, kept := range f.kept {
		if r.Group != "" && strings.HasSuffix(kind, "."+r.Group) {
			newest = max(newest, kept.Version)
		}
	}
	return newest
}

// takeProbe finds a lost API server, which a silent watch does not tell, and an etcd with another
// history: what a watch waits for there may never come.
func (f *Follower) takeProbe(before uint64, version string, err error) {
	if isDenied(err) || statusOf(err) == http.StatusNotFound {
		err = nil // the API server is there, and a reflector tells the rest
	}
	if f.probed = err; err != nil {
		f.heard(err)
		f.burst.Lost()
	} else {
		f.answered()
		f.burst.Back(time.Now())
	}
	if isOlder(version, before) {
		f.log.Warn("the API server's etcd has another history than before; everything is listed",
			"version", version, "before", before)
		f.relist(number(version))
	}
	f.show()
}
