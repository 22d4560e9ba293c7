package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// dependent is Data that wants no pods any more once there is a node.
type dependent struct {
	nodes, changed     bool
	published, dropped chan struct{}
}

var extras = Resource{Group: "example.org", Version: "v1", Plural: "extras", Optional: true}

func (d *dependent) Resources() []Resource {
	all := []Resource{{Version: "v1", Plural: "nodes"}, extras}
	if !d.nodes {
		all = append(all, Resource{Version: "v1", Plural: "pods"})
	}
	return all
}

func (d *dependent) Put(Resource, []byte) {
	d.nodes, d.changed = true, true
}
func (d *dependent) Delete(Resource, []byte) {}
func (d *dependent) BeginList()              {}
func (d *dependent) EndList(r Resource) {
	if d.nodes && r.Plural == "pods" {
		close(d.dropped)
	}
}
func (d *dependent) Changed() bool { return d.changed }

// What is not wanted any more goes, also where that was found out during a list that came to
// nothing.
func TestWhatIsUnwantedDuringAFailedListGoes(t *testing.T) {
	d := &dependent{published: make(chan struct{}), dropped: make(chan struct{})}
	lists, inList := atomic.Int32{}, make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isNode := strings.HasSuffix(r.URL.Path, "/nodes")
		switch {
		case r.URL.Query().Has("watch"):
			_ = http.NewResponseController(w).Flush()
			if isNode {
				<-inList
				fmt.Fprint(w, `{"type":"ADDED","object":`+
					`{"metadata":{"name":"a","resourceVersion":"10"}}}`)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/extras"):
			if lists.Add(1) == 2 {
				close(inList)
				<-d.published
			}
			w.WriteHeader(http.StatusNotFound)
		default:
			fmt.Fprint(w, `{"kind":"List","metadata":{"resourceVersion":"9"}}`)
		}
	}))
	defer api.Close()
	c, err := NewClientFor(ClientConfig{Server: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	published := sync.OnceFunc(func() { close(d.published) })
	f := NewFollower(c, d, nil, func(Published) {
		if d.changed = false; d.nodes {
			published()
		}
	}, testlog.New(t))
	f.AbsentEvery = 2 * time.Second // the third list of extras comes after the end of the test
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	select {
	case <-d.dropped:
	case <-time.After(20 * time.Second):
		t.Fatal("pods are still followed")
	}
}

type roundTrip func() (*http.Response, error)

func (f roundTrip) RoundTrip(*http.Request) (*http.Response, error) { return f() }

// A list that is asked for as a watch ends follows the watch, or ends the next one.
func TestARelistIsNotLostAtTheEndOfAWatch(t *testing.T) {
	// The helper goroutine of a watch runs when that has ended already.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		c, err := NewClientFor(ClientConfig{Server: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		f := NewFollower(c, nothing{}, nil, func(Published) {}, testlog.New(t))
		r := &reflector{Resource: f.data.Resources()[0], f: f, again: make(chan struct{}, 1)}
		c.web = &http.Client{Transport: roundTrip(func() (*http.Response, error) {
			r.again <- struct{}{}
			return nil, errors.New("the API server has gone")
		})}
		for n := range 100 {
			_, err := r.watch(t.Context())
			synctest.Wait()
			select {
			case <-r.again:
			default:
				if !errors.Is(err, errRelist) {
					t.Fatalf("watch %d: %v", n, err)
				}
			}
		}
	})
}
