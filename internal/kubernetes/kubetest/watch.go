package kubetest

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sent is an event as a client sees it.
type sent struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

// seenBy is an event as a client sees it whose fields select objects; nil: it does not.
func (e event) seenBy(q request) *sent {
	was, is := q.matches(e.was), q.matches(e.now)
	switch {
	case e.kind != q.kind:
		return nil
	case is && was:
		return &sent{"MODIFIED", e.now}
	case is:
		return &sent{"ADDED", e.now}
	case was && e.now != nil: // it is there, and not for this client
		return &sent{"DELETED", withVersion(e.was, e.version)}
	case was:
		return &sent{"DELETED", e.was}
	}
	return nil
}

func bookmark(q request, version int, notes map[string]string) sent {
	return sent{"BOOKMARK", map[string]any{"apiVersion": q.apiVersion, "kind": singular(q),
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(version),
			"creationTimestamp": nil, "annotations": notes}}}
}

// since needs s.mu. It returns the events after a version.
func (s *Server) since(version int) []event {
	return s.events[sort.Search(len(s.events), func(i int) bool {
		return s.events[i].version > version
	}):]
}

// watch sends what has changed since the version that the client has, or all there is and a mark.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, q request) {
	v := r.URL.Query()
	var first []sent
	s.mu.Lock()
	initial, ended := v.Get("sendInitialEvents") == "true", s.ended
	from, _ := strconv.Atoi(v.Get("resourceVersion"))
	wantsMarks := v.Get("allowWatchBookmarks") == "true"
	var refusal *apierrors.StatusError
	switch {
	case initial && v.Get("resourceVersionMatch") != "NotOlderThan":
		refusal = wrongOptions("resourceVersionMatch",
			"sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
	case initial && s.faults.stalls:
		from = math.MaxInt
	case initial && !s.faults.streams:
		refusal = wrongOptions("sendInitialEvents", "sendInitialEvents is forbidden for watch "+
			"unless the WatchList feature gate is enabled")
	case initial:
		s.lists[q.kind]++
		from = s.state.version
		for _, key := range slices.Sorted(maps.Keys(s.state.objects[q.kind])) {
			if o := s.state.objects[q.kind][key]; q.matches(o) {
				first = append(first, sent{"ADDED", o})
			}
		}
		first = append(first, bookmark(q, from,
			map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
	}
	gone, oldest := !initial && from < s.oldest, s.oldest
	life := s.faults.life
	s.mu.Unlock()
	if refusal != nil {
		fail(w, refusal)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	send := func(e sent) { _ = json.NewEncoder(w).Encode(e) }
	for _, e := range first {
		send(e)
	}
	if gone { // a watch says so in its stream
		why := tooOld(from, oldest).ErrStatus
		why.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		send(sent{"ERROR", why})
		return
	}
	var over <-chan time.Time
	if life != 0 {
		over = time.After(life)
	}
	for {
		select {
		case <-ended: // it goes before what has changed meanwhile
			return
		default:
		}
		s.mu.Lock()
		events, changed, now := s.since(from), s.changed, s.state.version
		silent, marks := s.faults.silent, s.faults.bookmarks && wantsMarks
		garbled, known := s.faults.garbled, s.knows(q)
		s.mu.Unlock()
		for _, e := range events {
			if silent {
				break
			}
			from = e.version
			switch seen := e.seenBy(q); {
			case seen != nil && garbled != nil:
				_, _ = w.Write(garbled)
			case seen != nil:
				send(*seen)
			}
		}
		if marks && !silent && from <= now {
			send(bookmark(q, now, nil))
		}
		w.(http.Flusher).Flush()
		if !known {
			return
		}
		select {
		case <-changed:
		case <-over:
			return
		case <-ended:
			return
		case <-r.Context().Done():
			return
		}
	}
}
