package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IsNotFound reports whether there is no such object, or no such kind.
func IsNotFound(err error) bool { return statusOf(err) == http.StatusNotFound }

// IsConflict reports whether another has written the object meanwhile, or has created it.
func IsConflict(err error) bool { return statusOf(err) == http.StatusConflict }

// IsInvalid reports whether the API server will never take the request as it is.
func IsInvalid(err error) bool {
	s := statusOf(err)
	return s == http.StatusBadRequest || s == http.StatusUnprocessableEntity
}

// Get returns the object that r names.
func (c *Client) Get(ctx context.Context, r Resource) (json.RawMessage, error) {
	return c.do(ctx, "get", http.MethodGet, r, "", nil)
}

// Create makes an object, whose name it has itself.
func (c *Client) Create(ctx context.Context, r Resource, object []byte) (json.RawMessage, error) {
	r.Name = ""
	return c.do(ctx, "create", http.MethodPost, r, "application/json", object)
}

// Patch merges a patch into the object that r names (RFC 7386), and returns what it is then. With a
// metadata.resourceVersion it fails if the object has another one.
func (c *Client) Patch(ctx context.Context, r Resource, patch []byte) (json.RawMessage, error) {
	return c.do(ctx, "patch", http.MethodPatch, r, string(types.MergePatchType), patch)
}

// Delete removes the object that r names, if that has this version; "": any.
func (c *Client) Delete(ctx context.Context, r Resource, version string) error {
	var body []byte
	if version != "" {
		body, _ = json.Marshal(metav1.DeleteOptions{
			TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
			Preconditions: &metav1.Preconditions{ResourceVersion: &version},
		})
	}
	_, err := c.do(ctx, "delete", http.MethodDelete, r, "application/json", body)
	return err
}

// do makes a request for one object, or to create one.
func (c *Client) do(ctx context.Context, verb, method string, r Resource, contentType string,
	body []byte) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	fail := func(err error) error {
		return &RequestError{Verb: verb, Resource: r.String(), Why: c.why(err)}
	}
	path := r.path()
	if r.Name != "" {
		path += "/" + url.PathEscape(r.Name)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fail(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	answer, err := c.send(verb, r.String(), req)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	object, err := io.ReadAll(io.LimitReader(answer, maxPage))
	switch {
	case err != nil:
		return nil, fail(err)
	case !json.Valid(object):
		return nil, fail(errUnreadable)
	}
	return object, nil
}

// send sends a request and returns the body of a good answer. The caller closes it.
func (c *Client) send(verb, resource string, req *http.Request) (io.ReadCloser, error) {
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", userAgent)
	resp, err := c.web.Do(req)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) { // without the long URL
			err = e.Err
		}
		return nil, &RequestError{Verb: verb, Resource: resource, Why: c.why(err)}
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, refusal(verb, resource, resp)
}
