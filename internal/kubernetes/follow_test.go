package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vpp-route-agent/internal/testlog"
)

// nothing is Data that keeps nothing.
type nothing struct{}

func (nothing) Resources() []Resource {
	return []Resource{{Version: "v1", Plural: "nodes"}, {Version: "v1", Plural: "pods"}}
}
func (nothing) Put(Resource, []byte)    {}
func (nothing) Delete(Resource, []byte) {}
func (nothing) BeginList()              {}
func (nothing) EndList(Resource)        {}
func (nothing) Changed() bool           { return false }

// A kind that cannot be listed is named, also where the API server says each time that it need only
// be listed again, or where its pages never end. The others are followed, and so is that kind once
// the API server is well again.
func TestAListThatNeverEndsIsNamed(t *testing.T) {
	list := func(next string) string {
		return fmt.Sprintf(`{"kind":"List","metadata":{"resourceVersion":"9","continue":%q}}`, next)
	}
	for why, pods := range map[string]http.HandlerFunc{
		"list pods: 410 Gone: it says no more": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusGone)
		},
		"list pods: a page is followed by itself": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, list("again"))
		},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			var well atomic.Bool
			api := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.URL.Query().Has("watch"):
						_ = http.NewResponseController(w).Flush()
						<-r.Context().Done()
					case strings.HasSuffix(r.URL.Path, "/pods") && !well.Load():
						pods(w, r)
					default:
						fmt.Fprint(w, list(""))
					}
				}))
			defer api.Close()
			c, err := NewClientFor(ClientConfig{Server: api.URL})
			if err != nil {
				t.Fatal(err)
			}
			f := NewFollower(c, nothing{}, nil, func(Published) {}, testlog.New(t))
			f.RelistSpread, f.LastRetry = time.Millisecond, time.Second
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- f.Run(ctx) }()
			defer func() { cancel(); <-ended }()
			until := func(what string, is func(Status) bool) {
				t.Helper()
				for end := time.Now().Add(20 * time.Second); !is(f.Status()); {
					if time.Now().After(end) {
						t.Fatalf("%s: %+v", what, f.Status())
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			until("named", func(s Status) bool { return !s.Connected && s.Error == why })
			well.Store(true)
			until("well again", func(s Status) bool { return s.Connected && s.Error == "" })
		})
	}
}
