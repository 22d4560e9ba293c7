package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Leases is the kind of all Leases of a namespace.
func Leases(namespace string) Resource {
	return Resource{Group: "coordination.k8s.io", Version: "v1", Plural: "leases",
		Namespace: namespace}
}

// microTime is the form of a Lease's times.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// Lease is the part of a Lease that matters here.
type Lease struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   LeaseMeta `json:"metadata"`
	Spec       LeaseSpec `json:"spec"`
}

// LeaseMeta is of a Lease. An annotation without a value is removed by a patch.
type LeaseMeta struct {
	Name            string             `json:"name,omitempty"`
	Namespace       string             `json:"namespace,omitempty"`
	ResourceVersion string             `json:"resourceVersion,omitempty"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
	OwnerReferences []Owner            `json:"ownerReferences,omitempty"`
}

// Owner is an object with which another one goes.
type Owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// LeaseSpec says who holds a Lease, and until when.
type LeaseSpec struct {
	Holder  *string `json:"holderIdentity,omitempty"`
	Seconds *int    `json:"leaseDurationSeconds,omitempty"`
	Renewed *string `json:"renewTime,omitempty"`
	Since   *string `json:"acquireTime,omitempty"`
	Changes *int    `json:"leaseTransitions,omitempty"`
}

// HeldBy is the spec of a Lease that is renewed now.
func HeldBy(holder string, duration time.Duration, now time.Time) LeaseSpec {
	seconds, renewed := int(duration/time.Second), now.UTC().Format(microTime)
	return LeaseSpec{Holder: &holder, Seconds: &seconds, Renewed: &renewed}
}

// ParseRenewed reads the time at which a Lease was renewed; zero: it cannot be read.
func ParseRenewed(text string) time.Time {
	t, _ := time.Parse(microTime, text)
	return t
}

// Election has one of several processes lead: the one that holds a Lease. It promises what
// client-go's does, whose clientset is larger than all of this program's use of Kubernetes: who
// has not renewed for two thirds of the duration stops to lead, and nobody else leads before the
// whole duration is over by his own clock. Each write has the version that was read.
type Election struct {
	client   *Client
	lease    Resource
	holder   string
	duration time.Duration

	mu       sync.Mutex // guards what follows
	observed string     // spec of the Lease, and since when it has been so
	since    time.Time
	version  string // of the Lease while it is held; "": it is not
	renewed  time.Time
	unsure   bool // a write was not answered, or with 5xx, and may have been done
}

// errHeld is for a Lease that somebody else holds.
var errHeld = errors.New("another process holds the Lease")

// NewElection returns one for the Lease that is named. The holder's name is this process's alone.
func NewElection(c *Client, lease Resource, holder string, duration time.Duration) *Election {
	return &Election{client: c, lease: lease, holder: holder, duration: duration}
}

// pause is the time between two attempts to get the Lease, or to renew it.
func (e *Election) pause() time.Duration { return e.duration / 8 }

// Acquire waits until this process leads. waiting is called once the API server has answered.
func (e *Election) Acquire(ctx context.Context, waiting func()) error {
	for first := true; ; first = false {
		err := e.renew(ctx)
		switch {
		case err == nil && first:
			waiting()
			return nil
		case err == nil:
			return nil
		case !errors.Is(err, errHeld):
			return err
		case first:
			waiting()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(jitter(e.pause())):
		}
	}
}

// Hold renews until ctx ends, or this process leads no more, and says why.
func (e *Election) Hold(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(e.pause()):
		}
		err := e.renew(ctx)
		switch {
		case errors.Is(err, errHeld):
			return err
		case err != nil && !e.within(e.duration*2/3):
			return fmt.Errorf("the Lease was not renewed for %s: %w", e.duration*2/3, err)
		}
	}
}

// Leads reports whether this process leads, by its own clock.
func (e *Election) Leads() bool { return e.within(e.duration) }

func (e *Election) within(d time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.version != "" && time.Since(e.renewed) < d
}

// renew gets or renews the Lease.
func (e *Election) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.duration/3)
	defer cancel()
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	patch := Lease{Spec: HeldBy(e.holder, e.duration, now)}
	if e.version != "" { // mostly nobody else has written it
		err := e.patch(ctx, patch, now)
		if !IsConflict(err) && !IsNotFound(err) {
			return err
		}
		e.version = ""
	}
	spec, version, err := e.read(ctx)
	if IsNotFound(err) {
		return e.create(ctx, patch, now)
	}
	if err != nil {
		return err
	}
	if holder := valueOf(spec.Holder); holder != e.holder {
		seconds := valueOf(spec.Seconds)
		if holder != "" && time.Since(e.since) < time.Duration(seconds)*time.Second {
			return errHeld
		}
		changes := valueOf(spec.Changes) + 1
		patch.Spec.Since, patch.Spec.Changes = patch.Spec.Renewed, &changes
	}
	e.version = version
	if err := e.patch(ctx, patch, now); err != nil {
		e.version = ""
		if IsConflict(err) {
			return errHeld
		}
		return err
	}
	return nil
}

func valueOf[T any](v *T) (out T) {
	if v != nil {
		out = *v
	}
	return out
}

// read notes since when the Lease has been as it is. It needs e.mu.
func (e *Election) read(ctx context.Context) (spec LeaseSpec, version string, err error) {
	raw, err := e.client.Get(ctx, e.lease)
	if err != nil {
		return spec, "", err
	}
	var l Lease
	if json.Unmarshal(raw, &l) != nil {
		return spec, "", &RequestError{Verb: "get", Resource: e.lease.String(),
			Why: errUnreadable}
	}
	if text, _ := json.Marshal(l.Spec); string(text) != e.observed {
		e.observed, e.since = string(text), time.Now()
	}
	return l.Spec, l.Metadata.ResourceVersion, nil
}

func (e *Election) create(ctx context.Context, l Lease, now time.Time) error {
	l.APIVersion, l.Kind = "coordination.k8s.io/v1", "Lease"
	l.Metadata.Name, l.Metadata.Namespace = e.lease.Name, e.lease.Namespace
	l.Spec.Since = l.Spec.Renewed
	body, _ := json.Marshal(l)
	raw, err := e.client.Create(ctx, e.lease, body)
	if IsConflict(err) {
		return errHeld
	}
	return e.took(raw, err, now)
}

// patch writes what is held at e.version. It needs e.mu.
func (e *Election) patch(ctx context.Context, l Lease, now time.Time) error {
	l.Metadata.ResourceVersion = e.version
	body, _ := json.Marshal(l)
	raw, err := e.client.Patch(ctx, e.lease, body)
	return e.took(raw, err, now)
}

// took notes that the Lease was written, in a request that began at a time.
func (e *Election) took(raw json.RawMessage, err error, at time.Time) error {
	if err != nil {
		status := statusOf(err)
		e.unsure = e.unsure || status == 0 || status >= http.StatusInternalServerError
		return err
	}
	var l Lease
	_ = json.Unmarshal(raw, &l)
	e.version, e.renewed, e.unsure = l.Metadata.ResourceVersion, at, false
	return nil
}

// Annotate writes an annotation of the Lease, if this process leads.
func (e *Election) Annotate(ctx context.Context, name, value string) error {
	for {
		e.mu.Lock()
		if e.version == "" {
			e.mu.Unlock()
			return errHeld
		}
		err := e.patch(ctx, Lease{Metadata: LeaseMeta{
			Annotations: map[string]*string{name: &value}}}, e.renewed)
		e.mu.Unlock()
		if !IsConflict(err) {
			return err
		}
		if err := e.renew(ctx); err != nil {
			return err
		}
	}
}

// Release lets another process lead at once, also where it is not known whether a write was done.
func (e *Election) Release(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	version, unsure := e.version, e.unsure
	e.version, e.unsure = "", false
	for version != "" || unsure {
		if version == "" {
			spec, is, err := e.read(ctx)
			if IsNotFound(err) || err == nil && valueOf(spec.Holder) != e.holder {
				return nil
			}
			if err != nil {
				return err
			}
			version = is
		}
		body := fmt.Sprintf(
			`{"metadata":{"resourceVersion":%q},"spec":{"holderIdentity":null}}`, version)
		_, err := e.client.Patch(ctx, e.lease, []byte(body))
		if !IsConflict(err) {
			return err
		}
		version, unsure = "", true
	}
	return nil
}
