package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	// firstRetry and lastRetry bound the back-off. Half of it is random, since a thousand agents
	// lose their API server at the same moment.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 15 * time.Second
	// shortWatch is a watch that ends so soon that the API server must be in trouble. After a
	// longer one the next failure is the first.
	shortWatch = 500 * time.Millisecond
	// usualGone is how often a version expires before all is well again: for a watch, for a list in
	// pages, and for a watch from a list of a cache that lags behind.
	usualGone = 3
)

// reflector keeps what the Data have of one resource equal to the API server: it lists, then
// watches from there, and lists again where the history has expired. Its goroutine owns it, but for
// what the Follower's owns.
type reflector struct {
	Resource
	f *Follower

	version    string // what it has; "": nothing
	consistent bool   // the next list asks etcd, not a cache of the API server
	whole      bool   // the next list is not in pages

	end context.CancelFunc
	// again of size one ends a watch; another list follows, which asks etcd.
	again chan struct{}

	// owned by the Follower's goroutine
	listed  bool  // once, completely
	count   int   // of objects, after a list
	due     bool  // it is to be listed before anything is published
	problem error // what keeps it from being followed
}

// news is what was heard. The Follower's goroutine does it, one after the other.
type news struct {
	from *reflector // nil: not by one
	at   time.Time
	do   func()
	done chan struct{}
}

func (r *reflector) tell(ctx context.Context, do func()) error { return r.f.tell(ctx, r, do) }

// run lists and watches until ctx ends.
func (r *reflector) run(ctx context.Context) {
	wait, gone := firstRetry, 0
	for list := true; ctx.Err() == nil; {
		var err error
		lived, listed := time.Duration(0), list
		if list {
			err = r.list(ctx)
		}
		if err == nil {
			list = false
			lived, err = r.watch(ctx)
		}
		pause := jitter(wait)
		if wait = min(2*wait, r.f.LastRetry); lived > shortWatch {
			wait, pause = firstRetry, jitter(firstRetry)
		}
		if gone++; lived > shortWatch || !IsGone(err) {
			gone = 0
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errRelist):
			list, r.consistent, pause = true, true, 0
		case errors.Is(err, errAbsent):
			pause = jitter(r.f.AbsentEvery)
		case err == nil: // the API server ends each watch after a while
		case IsGone(err):
			// What is listed in pages may expire before the last. A list that is expired for a
			// watch came from a cache that lags behind.
			r.whole, r.consistent = list, r.consistent || listed && !list
			list, pause = true, max(pause, rand.N(r.f.RelistSpread))
			if gone > usualGone && r.tell(ctx, func() { r.f.failed(r, err) }) != nil {
				return
			}
		default:
			list = list || mustList(err)
			if r.tell(ctx, func() { r.f.failed(r, err) }) != nil {
				return
			}
			pause = max(pause, retryAfter(err))
		}
		if !r.sleep(ctx, pause) {
			return
		}
	}
}

// mustList reports whether another watch from the same version would fail as well. Without the
// right to watch, lists must do.
func mustList(err error) bool {
	var e *RequestError
	return errors.As(err, &e) && (e.inStream || e.Status/100 == 4 &&
		e.Status != http.StatusUnauthorized && e.Status != http.StatusTooManyRequests)
}

// retryAfter is for how long the API server wants to be left alone, and up to twice that: all
// agents were told the same.
func retryAfter(err error) time.Duration {
	var e *RequestError
	if !errors.As(err, &e) || e.RetryAfter == 0 {
		return 0
	}
	return e.RetryAfter + rand.N(e.RetryAfter)
}

// jitter takes away up to half.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

func (r *reflector) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

var (
	// errAbsent is for a kind that the API server does not know, and never knew.
	errAbsent = errors.New("the API server does not know the kind")
	// errOlder is for a list that is older than what was seen.
	errOlder = errors.New("it is older than what was seen before")
	// errRelist is for a watch that another list is to follow.
	errRelist = errors.New("it is to be listed again")
)

// list reads all objects. One list runs at a time, so that one page is in memory, and the API
// server's load is spread. It deletes nothing before the last page.
func (r *reflector) list(ctx context.Context) error {
	select {
	case r.f.listing <- struct{}{}:
		defer func() { <-r.f.listing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := r.listOnce(ctx)
	var e *RequestError
	if errors.Is(err, errOlder) || errors.As(err, &e) && e.tooNew && !r.consistent {
		// A cache of the API server lags behind, or etcd has another history now: etcd knows.
		r.consistent = true
		err = r.listOnce(ctx)
	}
	if statusOf(err) == http.StatusNotFound && r.Optional {
		err = r.noteAbsent(ctx, err)
	}
	return err
}

func (r *reflector) listOnce(ctx context.Context) error {
	var floor uint64
	if err := r.tell(ctx, func() { floor = r.f.begin(r) }); err != nil {
		return err
	}
	o := ListOptions{Whole: r.whole}
	if floor != 0 && !r.consistent {
		o.AtLeast = strconv.FormatUint(floor, 10)
	}
	count := 0
	version, err := r.f.client.List(ctx, r.Resource, o, func(version string,
		objects []json.RawMessage) error {
		if isOlder(version, floor) && !r.consistent {
			return fmt.Errorf("list %s: version %s: %w", r, version, errOlder)
		}
		count += len(objects)
		return r.tell(ctx, func() { r.f.put(r, objects) })
	})
	if err != nil {
		return err
	}
	err = r.tell(ctx, func() { r.f.end(r, version, count, isOlder(version, floor)) })
	if err == nil {
		r.version, r.consistent, r.whole = version, false, false
	}
	return err
}

// noteAbsent has a kind that is not installed count as empty, unless it has had objects.
func (r *reflector) noteAbsent(ctx context.Context, err error) error {
	had := false
	if e := r.tell(ctx, func() { had = r.f.absent(r) }); e != nil {
		return e
	}
	if had {
		return fmt.Errorf("%w (what it had before stays in use)", err)
	}
	return errAbsent
}

// watch follows changes until that fails, and returns for how long it did.
func (r *reflector) watch(ctx context.Context) (lived time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over, heard := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		select {
		case <-r.again:
			cancel(errRelist)
		case <-over:
		}
	}()
	var began time.Time
	err = r.f.client.Watch(ctx, r.Resource, r.version, func() {
		began = time.Now()
		_ = r.tell(ctx, func() { r.f.watching(r) })
	}, func(e Event) error {
		if err := r.tell(ctx, func() { r.f.take(r, e) }); err != nil {
			return err
		}
		r.version = e.Version
		return nil
	})
	if !began.IsZero() {
		lived = time.Since(began)
	}
	close(over)
	<-heard // what was taken from again is seen below
	if errors.Is(context.Cause(ctx), errRelist) {
		err = errRelist
	}
	return lived, err
}

// isOlder compares versions. They are numbers of etcd's wherever they can be compared.
func isOlder(version string, than uint64) bool {
	n := number(version)
	return n != 0 && n < than
}

// number is a version as a number; 0: it is none.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
