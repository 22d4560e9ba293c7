package fib

import (
	"context"
	"time"

	"vpp-route-agent/internal/route"
)

const (
	// recallPause lets many be recalled at once: where they are many, each time the data plane is listed.
	recallPause   = time.Second
	recallTimeout = 30 * time.Second
)

// recalls are the entries of which a Recaller does not know what was put for them, because an
// earlier process did (the journal has digests only), or that they carry next hops, because
// another origin put the same. They are recalled when somebody wants them, and are compared with
// nothing until then. It is part of table and guarded with it.
type recalls struct {
	due   bool     // the data plane is a Recaller
	queue []*entry // that are isForgotten
	at    time.Time
}

// recallJob has the data plane recall routes.
type recallJob struct {
	entries []*entry
	routes  []route.Route
	life    int
	err     error
}

// forgotten notes that e, which is programmed and wanted, is to be recalled. What differs from
// the wish is put anyway.
func (s *syncer) forgotten(e *entry) {
	needed := s.recalls.due && (e.recurses() || e.is(isStatic))
	if needed && e.actual == e.want.digest && !e.is(isUnsure|isForgotten) {
		e.set(isForgotten)
		s.recalls.queue = append(s.recalls.queue, e)
	}
}

// toRecall returns the next job, nil when there is none to do now. It is asked while nothing is in flight.
func (s *syncer) toRecall() *recallJob {
	r := &s.recalls
	if !s.present || len(r.queue) == 0 || len(s.dirty) > 0 || s.now.Before(r.at) {
		return nil
	}
	j := &recallJob{life: s.life}
	queue := r.queue
	r.queue, r.at = nil, s.now.Add(recallPause)
	for _, e := range queue {
		switch {
		case e.is(isGone) || e.actual == 0:
			e.clear(isForgotten)
		case !e.is(isForgotten): // this process has put it
		case e.want == nil || e.actual != e.want.digest: // it is about to be put or deleted, which may fail
			r.queue = append(r.queue, e)
		default:
			j.entries = append(j.entries, e)
			j.routes = append(j.routes, route.Route{Key: e.key, Kind: e.want.kind, Paths: e.want.paths, Origin: e.origin})
		}
	}
	if len(j.routes) == 0 {
		return nil
	}
	return j
}

// recalled takes the result. What another life had is not there any more. An audit under way has listed how it looked before.
func (s *syncer) recalled(j *recallJob) {
	for _, e := range j.entries {
		if s.audited != nil {
			s.audited[e.key] = struct{}{}
		}
		if j.err != nil && j.life == s.life {
			s.recalls.queue = append(s.recalls.queue, e)
		} else {
			e.clear(isForgotten)
		}
	}
}

func (e *Engine) recall(ctx context.Context, j *recallJob) {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	if j.err = e.dataplane.(Recaller).Recall(ctx, j.routes); j.err != nil && ctx.Err() == nil {
		e.log.Warn("next hops of adopted routes are not followed yet", "routes", len(j.routes), "err", j.err)
	}
}
