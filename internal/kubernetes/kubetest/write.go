package kubetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Writing is called with each write before it is done, which may be refused with a status; 0: it is
// not. It may change objects.
type Writing func(verb, kind, name string) (status int)

// OnWrite has writes go by f; nil: by nobody.
func (s *Server) OnWrite(f Writing) { s.locked(func() { s.faults.writing = f }) }

// Reading is called with each object that a client gets, before it is read. It may wait.
type Reading func(kind, name string)

// OnGet has gets of one object go by f; nil: by nobody.
func (s *Server) OnGet(f Reading) { s.locked(func() { s.faults.reading = f }) }

// write creates, patches or deletes one object.
func (s *Server) write(w http.ResponseWriter, r *http.Request, q request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	name := q.name
	if q.verb == "create" {
		name = headOf(body).Metadata.Name
	}
	refusal := q.unreadable(body)
	switch {
	case refusal != nil:
	case q.verb == "create":
		refusal = q.misnamed(name)
	case q.verb == "patch" && r.Header.Get("Content-Type") != "application/merge-patch+json":
		refusal = noMergePatch()
	}
	if refusal != nil {
		fail(w, refusal)
		return
	}
	if s.refusesWrite(w, q, name) {
		return
	}
	key := strings.Trim(q.namespace+"/"+name, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.state.objects[q.kind][key]
	var asked struct {
		Metadata      struct{ ResourceVersion string }
		Preconditions struct{ ResourceVersion string }
	}
	_ = json.Unmarshal(body, &asked)
	version := cmp.Or(asked.Metadata.ResourceVersion, asked.Preconditions.ResourceVersion)
	var now json.RawMessage
	status := http.StatusOK
	switch {
	case q.verb == "create" && was != nil:
		refusal = apierrors.NewAlreadyExists(q.resource(), name)
	case q.verb == "create":
		now, status = body, http.StatusCreated
	case was == nil:
		refusal = apierrors.NewNotFound(q.resource(), name)
	case q.verb == "delete" && version != "" && version != versionOfObject(was):
		refusal = q.otherVersion(version, versionOfObject(was))
	case version != "" && version != versionOfObject(was):
		refusal = q.modified()
	case q.verb == "patch":
		s.patches = append(s.patches, string(body))
		now = merge(was, body)
	}
	if refusal != nil {
		fail(w, refusal)
		return
	}
	s.put(q.kind, key, now)
	if err := s.keep(); err != nil {
		fail(w, failure(http.StatusInternalServerError, err.Error()))
		return
	}
	s.wrote = append(s.wrote, fmt.Sprintf("%s %s %s", q.verb, q.kind, name))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if q.verb == "delete" {
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusSuccess,
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}})
		return
	}
	_ = json.NewEncoder(w).Encode(s.state.objects[q.kind][key])
}

// refusesWrite asks who wants to know of a write.
func (s *Server) refusesWrite(w http.ResponseWriter, q request, name string) bool {
	var writing Writing
	s.locked(func() { writing = s.faults.writing })
	if writing == nil {
		return false
	}
	status := writing(q.verb, q.kind, name)
	if status != 0 {
		fail(w, q.refused(status))
	}
	return status != 0
}

// Wrote are the writes of clients that were done, "patch nodes edge-7".
func (s *Server) Wrote() (all []string) {
	s.locked(func() { all = slices.Clone(s.wrote) })
	return all
}

// Objects are all of a kind, sorted by name.
func (s *Server) Objects(kind string) (all []json.RawMessage) {
	s.locked(func() {
		for _, key := range slices.Sorted(maps.Keys(s.state.objects[kind])) {
			all = append(all, s.state.objects[kind][key])
		}
	})
	return all
}

func versionOfObject(object []byte) string {
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	_ = json.Unmarshal(object, &o)
	return o.Metadata.ResourceVersion
}

// merge is a JSON merge patch (RFC 7386).
func merge(object, patch json.RawMessage) json.RawMessage {
	var to, from map[string]json.RawMessage
	if json.Unmarshal(patch, &from) != nil || from == nil {
		return patch
	}
	if json.Unmarshal(object, &to) != nil || to == nil {
		to = map[string]json.RawMessage{}
	}
	for name, value := range from {
		if string(value) == "null" {
			delete(to, name)
		} else {
			to[name] = merge(to[name], value)
		}
	}
	out, _ := json.Marshal(to)
	return out
}
