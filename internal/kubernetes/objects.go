package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// pageSize is how many objects one request lists at most. The first lists firstPage, and
	// pageBytes are about what the next ones have.
	pageSize  = 500
	firstPage = 100
	pageBytes = 16 << 20
	// maxPage bounds an answer. An object has at most 1.5 MiB.
	maxPage = 1 << 30
	// longestAfter bounds what is made of Retry-After.
	longestAfter = 5 * time.Minute
	// watchTime is how long a watch is asked for, half of it random: otherwise a thousand agents
	// would come back at one moment.
	watchTime = 10 * time.Minute
)

// Resource is a kind of objects of one API group, or a part of these.
type Resource struct {
	Group   string // "": Kubernetes' core
	Version string
	Plural  string
	// Namespace, Name and Fields (a field selector) restrict it; "": they do not.
	Namespace, Name, Fields string
	// Optional: there are no such objects where the API server does not know the kind.
	Optional bool
	// Separate: where it is forbidden and nothing of it is known from before, all else is published
	// without it.
	Separate bool
}

// Kind names the resource as rules of RBAC do: "ippools.crd.projectcalico.org".
func (r Resource) Kind() string {
	if r.Group == "" {
		return r.Plural
	}
	return r.Plural + "." + r.Group
}

func (r Resource) String() string {
	if r.Name != "" {
		return r.Kind() + "/" + r.Name
	}
	return r.Kind()
}

// path is where the objects are, after the API server's address.
func (r Resource) path() string {
	path := "/api/" + r.Version
	if r.Group != "" {
		path = "/apis/" + r.Group + "/" + r.Version
	}
	if r.Namespace != "" {
		path += "/namespaces/" + url.PathEscape(r.Namespace)
	}
	return path + "/" + r.Plural
}

// url is where a list or a watch of them is.
func (r Resource) url(query url.Values) string {
	fields := r.Fields
	if r.Name != "" {
		fields = strings.Trim(fields+",metadata.name="+r.Name, ",")
	}
	if fields != "" {
		query.Set("fieldSelector", fields)
	}
	return r.path() + "?" + query.Encode()
}

// RequestError is a request that the API server refused or did not answer.
type RequestError struct {
	Verb     string // of RBAC
	Resource string
	Status   int   // of HTTP; 0: there was no answer
	Why      error // what is known besides
	// RetryAfter is how long the API server wants to be left alone.
	RetryAfter time.Duration
	tooNew     bool // it has not seen the version yet that was asked for
	inStream   bool // a watch that had begun said so
}

func (e *RequestError) Error() string {
	text := fmt.Sprintf("%s %s: ", e.Verb, e.Resource)
	if e.Status != 0 {
		text += fmt.Sprintf("%d %s: ", e.Status, http.StatusText(e.Status))
	}
	return text + e.Why.Error()
}

func (e *RequestError) Unwrap() error { return e.Why }

// statusOf returns the status of HTTP that err is about; 0: none.
func statusOf(err error) int {
	var e *RequestError
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// IsGone reports whether a version has expired, so that a list is due.
func IsGone(err error) bool { return statusOf(err) == http.StatusGone }

// isDenied reports whether the API server knows us not, or denies us a right.
func isDenied(err error) bool {
	s := statusOf(err)
	return s == http.StatusUnauthorized || s == http.StatusForbidden
}

// errUnreadable replaces the errors of the JSON decoder: they may quote what they stumbled over,
// which may be a password.
var errUnreadable = errors.New("the answer cannot be read")

// errGoesRound is for a list whose pages do not end.
var errGoesRound = errors.New("a page is followed by itself")

// errEnded is for a request that ends without a word.
var errEnded = errors.New("the connection ended")

// open sends a GET and returns the body of a good answer. The caller closes it.
func (c *Client) open(ctx context.Context, verb, resource, path string) (io.ReadCloser, error) {
	fail := func(err error) error {
		return &RequestError{Verb: verb, Resource: resource, Why: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, fail(err)
	}
	return c.send(verb, resource, req)
}

// refusal reads what the API server says.
func refusal(verb, resource string, resp *http.Response) *RequestError {
	var s metav1.Status
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(body, &s) != nil || s.Kind != "Status" {
		s = metav1.Status{}
	}
	e := refusedWith(verb, resource, s)
	e.Status = resp.StatusCode
	if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		e.RetryAfter = seconds(after)
	}
	return e
}

func seconds(n int) time.Duration {
	return time.Duration(min(max(n, 0), int(longestAfter/time.Second))) * time.Second
}

// refusedWith is what a Status means, which a watch has among its events.
func refusedWith(verb, resource string, s metav1.Status) *RequestError {
	why := cmp.Or(s.Message, "it says no more")
	if len(why) > 300 {
		why = why[:300] + "…"
	}
	e := &RequestError{Verb: verb, Resource: resource, Status: int(s.Code), Why: errors.New(why)}
	if d := s.Details; d != nil {
		e.RetryAfter = seconds(int(d.RetryAfterSeconds))
		for _, cause := range d.Causes {
			e.tooNew = e.tooNew || cause.Type == metav1.CauseTypeResourceVersionTooLarge
		}
	}
	return e
}

// ListOptions say which list is wanted.
type ListOptions struct {
	// AtLeast is the version that the list must have; "": what etcd has at the moment.
	AtLeast string
	// Whole: in one answer instead of pages.
	Whole bool
}

// List hands over all objects page by page, with the version of the list, and returns that. It
// stops at an error of take.
func (c *Client) List(ctx context.Context, r Resource, o ListOptions,
	take func(version string, objects []json.RawMessage) error) (version string, err error) {
	next := ""
	for limit := int64(firstPage); ; {
		q := url.Values{}
		if !o.Whole {
			q.Set("limit", strconv.FormatInt(limit, 10))
		}
		if next != "" {
			q.Set("continue", next)
		} else if o.AtLeast != "" {
			q.Set("resourceVersion", o.AtLeast)
			q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
		}
		page, err := c.page(ctx, r, q)
		if err != nil {
			return "", err
		}
		if version == "" {
			version = page.Metadata.ResourceVersion
		}
		if err := take(version, page.Items); err != nil {
			return "", err
		}
		limit = page.fitting()
		before := next
		switch next = page.Metadata.Continue; next {
		case "":
			return version, nil
		case before:
			return "", fmt.Errorf("list %s: %w", r, errGoesRound)
		}
	}
}

type page struct {
	Kind     string `json:"kind"`
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// fitting is how many objects of the size that p has would be pageBytes.
func (p *page) fitting() int64 {
	size := int64(1)
	for _, o := range p.Items {
		size += int64(len(o))
	}
	return min(max(pageBytes*int64(len(p.Items))/size, 1), pageSize)
}

func (c *Client) page(ctx context.Context, r Resource, q url.Values) (*page, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	body, err := c.open(ctx, "list", r.String(), r.url(q))
	if err != nil {
		return nil, err
	}
	defer body.Close()
	p := &page{}
	err = json.NewDecoder(io.LimitReader(body, maxPage)).Decode(p)
	// Some other JSON is not an empty list.
	if err != nil || !strings.HasSuffix(p.Kind, "List") || p.Metadata.ResourceVersion == "" {
		return nil, &RequestError{Verb: "list", Resource: r.String(),
			Why: cmp.Or(c.why(ctx.Err()), errUnreadable)}
	}
	return p, nil
}

// version asks for the newest version that etcd has of r. It costs one object.
func (c *Client) version(ctx context.Context, r Resource) (string, error) {
	p, err := c.page(ctx, r, url.Values{"limit": {"1"}})
	if err != nil {
		return "", err
	}
	return p.Metadata.ResourceVersion, nil
}

// Event is a change of an object.
type Event struct {
	Version string
	// Object is as it is now, or was before it was Deleted; nil: nothing but the version is new.
	Object json.RawMessage
	// Added: it was not there before. Deleted: it is there no more.
	Added, Deleted bool
}

// Watch hands over what happens after version until that fails, or the API server ends the watch,
// for which it returns nil. started is called once the API server has taken it.
func (c *Client) Watch(ctx context.Context, r Resource, version string, started func(),
	take func(Event) error) error {
	seconds := (watchTime/2 + rand.N(watchTime/2)) / time.Second
	// Where it does not end then, it is dead.
	ctx, cancel := context.WithTimeout(ctx, seconds*time.Second+c.Timeout)
	defer cancel()
	q := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"},
		"resourceVersion": {version}, "timeoutSeconds": {strconv.Itoa(int(seconds))}}
	late := time.AfterFunc(c.Timeout, cancel)
	body, err := c.open(ctx, "watch", r.String(), r.url(q))
	if err == nil {
		defer body.Close()
	}
	if !late.Stop() { // it may have answered in that moment: the watch has ended nonetheless
		return &RequestError{Verb: "watch", Resource: r.String(), Why: c.noAnswer()}
	}
	if err != nil {
		return err
	}
	started()
	for events := json.NewDecoder(body); ; {
		var e watched
		switch err := events.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() == nil && !isJSON(err):
			return &RequestError{Verb: "watch", Resource: r.String(), Why: errEnded}
		case err != nil:
			return &RequestError{Verb: "watch", Resource: r.String(),
				Why: cmp.Or(ctx.Err(), errUnreadable), inStream: ctx.Err() == nil}
		}
		event, err := e.event(r)
		if err == nil {
			err = take(event)
		}
		if err != nil {
			return err
		}
	}
}

// isJSON reports whether an error is about what was read, not about reading.
func isJSON(err error) bool {
	return errors.As(err, new(*json.SyntaxError)) || errors.As(err, new(*json.UnmarshalTypeError))
}

// watched is what a watch sends.
type watched struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

func (w watched) event(r Resource) (Event, error) {
	unreadable := &RequestError{Verb: "watch", Resource: r.String(), Why: errUnreadable,
		inStream: true}
	if w.Type == "ERROR" {
		var s metav1.Status
		if json.Unmarshal(w.Object, &s) != nil {
			return Event{}, unreadable
		}
		e := refusedWith("watch", r.String(), s)
		e.inStream = true
		return Event{}, e
	}
	var head struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if json.Unmarshal(w.Object, &head) != nil || head.Metadata.ResourceVersion == "" {
		return Event{}, unreadable
	}
	e := Event{Version: head.Metadata.ResourceVersion, Object: w.Object}
	switch w.Type {
	case "ADDED":
		e.Added = true
	case "MODIFIED":
	case "DELETED":
		e.Deleted = true
	default: // a bookmark, or what we do not know
		e.Object = nil
	}
	return e, nil
}

// Groups reports which of some versions of groups there are, "crd.projectcalico.org/v1".
func (c *Client) Groups(ctx context.Context, groupVersions ...string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	body, err := c.open(ctx, "get", "/apis", "/apis")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var all metav1.APIGroupList
	err = json.NewDecoder(io.LimitReader(body, maxPage)).Decode(&all)
	if err != nil || all.Kind != "APIGroupList" {
		return nil, &RequestError{Verb: "get", Resource: "/apis", Why: errUnreadable}
	}
	has := map[string]bool{}
	for _, g := range all.Groups {
		for _, v := range g.Versions {
			for _, wanted := range groupVersions {
				has[wanted] = has[wanted] || v.GroupVersion == wanted
			}
		}
	}
	return has, nil
}
