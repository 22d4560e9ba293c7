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
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	name := q.name
	if q.verb == "create" {
		name = headOf(body).Metadata.Name
	}
	var writing Writing
	s.locked(func() { writing = s.faults.writing })
	if writing != nil {
		if status := writing(q.verb, q.kind, name); status != 0 {
			fail(w, status, fmt.Sprintf("%s %s is refused", q.verb, q.kind))
			return
		}
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
	switch {
	case q.verb == "create" && was != nil:
		fail(w, http.StatusConflict, fmt.Sprintf("%s %q already exists", q.kind, name))
		return
	case q.verb == "create":
		now = body
	case was == nil:
		fail(w, http.StatusNotFound, fmt.Sprintf("%s %q not found", q.kind, name))
		return
	case version != "" && version != versionOfObject(was):
		fail(w, http.StatusConflict, "the object has been modified")
		return
	case q.verb == "patch":
		if r.Header.Get("Content-Type") != "application/merge-patch+json" {
			fail(w, http.StatusUnsupportedMediaType, "not a merge patch")
			return
		}
		s.patches = append(s.patches, string(body))
		now = merge(was, body)
	}
	s.put(q.kind, key, now)
	s.wrote = append(s.wrote, fmt.Sprintf("%s %s %s", q.verb, q.kind, name))
	if now = s.state.objects[q.kind][key]; now == nil {
		now = was
	}
	answer(w, now)
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
