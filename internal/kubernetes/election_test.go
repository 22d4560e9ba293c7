package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
)

const leaseKind = "leases.coordination.k8s.io"

func electionOn(t *testing.T, s *kubetest.Server, holder string,
	duration time.Duration) *kubernetes.Election {
	t.Helper()
	client, err := kubernetes.NewClient(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	lease := kubernetes.Leases("ns")
	lease.Name = "leader"
	return kubernetes.NewElection(client, lease, holder, duration)
}

func leaseOf(t *testing.T, s *kubetest.Server) (l kubernetes.Lease) {
	t.Helper()
	if err := json.Unmarshal(s.Object(leaseKind, "ns/leader"), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

func acquire(t *testing.T, e *kubernetes.Election) {
	t.Helper()
	if err := e.Acquire(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
}

// Of two one leads. The other one leads once the first gives the Lease back, and at the latest when
// it has not been renewed for its whole time.
func TestElection(t *testing.T) {
	t.Attr("part", "Kubernetes API, a stand-in")
	s := kubetest.NewServer(t)
	a, b := electionOn(t, s, "a", 6*time.Second), electionOn(t, s, "b", 6*time.Second)
	acquire(t, a)
	waiting, led := make(chan struct{}), make(chan error, 1)
	go func() { led <- b.Acquire(t.Context(), func() { close(waiting) }) }()
	<-waiting
	if !a.Leads() || b.Leads() || *leaseOf(t, s).Spec.Holder != "a" {
		t.Errorf("a leads: %t, b: %t", a.Leads(), b.Leads())
	}
	if err := a.Annotate(t.Context(), "x/y", "1"); err != nil {
		t.Error(err)
	}
	if err := a.Release(t.Context()); err != nil || a.Leads() {
		t.Errorf("%v, a leads: %t", err, a.Leads())
	}
	if err := <-led; err != nil || !b.Leads() {
		t.Errorf("%v, b leads: %t", err, b.Leads())
	}
	l := leaseOf(t, s)
	if *l.Spec.Holder != "b" || *l.Spec.Changes != 1 || *l.Metadata.Annotations["x/y"] != "1" {
		t.Errorf("the Lease is %+v", l)
	}
	if err := a.Annotate(t.Context(), "x/y", "2"); err == nil {
		t.Error("a annotates what it does not hold")
	}
	acquire(t, a) // b does not renew
	if b.Leads() {
		t.Error("both lead")
	}
	if err := b.Hold(t.Context()); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("b holds on: %v", err)
	}
}

// Who cannot renew stops to lead before anybody else may begin.
func TestElectionWithoutTheAPI(t *testing.T) {
	t.Attr("part", "Kubernetes API, a stand-in")
	t.Parallel()
	s := kubetest.NewServer(t)
	e := electionOn(t, s, "a", 16*time.Second) // it leads for 4 s after the end of Hold
	acquire(t, e)
	held := make(chan error, 1)
	go func() { held <- e.Hold(t.Context()) }()
	s.Refuse(http.StatusServiceUnavailable)
	err := <-held
	if err == nil || !strings.Contains(err.Error(), "503") || !e.Leads() {
		t.Errorf("%v, it leads by its clock: %t", err, e.Leads())
	}
	s.Refuse(0)
	ctx, cancel := context.WithCancel(t.Context())
	acquire(t, e)
	go func() { held <- e.Hold(ctx) }()
	s.DeleteObject(leaseKind, "ns/leader") // it is made again
	for end, made := time.Now().Add(time.Minute), []byte(nil); ; time.Sleep(10 * time.Millisecond) {
		now := s.Object(leaseKind, "ns/leader")
		if made != nil && !bytes.Equal(made, now) { // renewed, so e has heard that it was made
			break
		}
		if made = now; time.Now().After(end) {
			t.Fatal("the Lease is gone")
		}
	}
	cancel()
	if err := <-held; err != context.Canceled || !e.Leads() {
		t.Errorf("%v, it leads: %t", err, e.Leads())
	}
}

// A write has the version that it is told, and an answer that is none is an error.
func TestWrites(t *testing.T) {
	t.Attr("part", "Kubernetes API, a stand-in")
	s := kubetest.NewServer(t)
	client, err := kubernetes.NewClient(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	ctx := t.Context()
	at := kubernetes.Resource{Version: "v1", Plural: "configmaps", Namespace: "ns", Name: "m"}
	object := []byte(`{"metadata":{"namespace":"ns","name":"m"},"data":{"a":"1","b":"2"}}`)
	for what, tc := range map[string]struct {
		do func() error
		is func(error) bool
	}{
		"get": {func() error { _, err := client.Get(ctx, at); return err },
			kubernetes.IsNotFound},
		"delete": {func() error { return client.Delete(ctx, at, "") }, kubernetes.IsNotFound},
		"patch": {func() error { _, err := client.Patch(ctx, at, []byte(`{}`)); return err },
			kubernetes.IsNotFound},
	} {
		if err := tc.do(); !tc.is(err) {
			t.Errorf("%s of what is not there: %v", what, err)
		}
	}
	if _, err := client.Create(ctx, at, object); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(ctx, at, object); !kubernetes.IsConflict(err) {
		t.Errorf("a second one: %v", err)
	}
	old := []byte(`{"metadata":{"resourceVersion":"1"},"data":{"a":"3"}}`)
	if _, err := client.Patch(ctx, at, old); !kubernetes.IsConflict(err) {
		t.Errorf("a patch of another version: %v", err)
	}
	got, err := client.Patch(ctx, at, []byte(`{"data":{"a":null,"b":"3"}}`))
	if err != nil || !strings.Contains(string(got), `"data":{"b":"3"}`) {
		t.Errorf("%v, %s", err, got)
	}
	if err := client.Delete(ctx, at, "1"); !kubernetes.IsConflict(err) {
		t.Errorf("the deletion of another version: %v", err)
	}
	var is struct {
		Metadata struct{ ResourceVersion string }
	}
	_ = json.Unmarshal(got, &is)
	if err := client.Delete(ctx, at, is.Metadata.ResourceVersion); err != nil {
		t.Error(err)
	}
	s.Deny("create configmaps", true)
	_, err = client.Create(ctx, at, object)
	if err == nil || !strings.HasPrefix(err.Error(), "create configmaps: 403 Forbidden: ") {
		t.Errorf("without the right: %v", err)
	}
	s.Deny("create configmaps", false)
	s.OnWrite(func(string, string, string) int { return http.StatusUnprocessableEntity })
	if _, err := client.Create(ctx, at, object); !kubernetes.IsInvalid(err) {
		t.Errorf("an invalid object: %v", err)
	}
}

// A process that ends while it gets the Lease, or writes it, gives it back all the same.
func TestReleaseAfterAWriteWithoutAnAnswer(t *testing.T) {
	t.Attr("part", "Kubernetes API, a stand-in")
	unheard := func(s *kubetest.Server, write func(context.Context) error) {
		t.Helper()
		before := string(s.Object(leaseKind, "ns/leader"))
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		s.OnWrite(func(_, _, _ string) int { cancel(); <-gone; return 0 })
		if err := write(ctx); err == nil {
			t.Error("it was answered")
		}
		close(gone)
		s.OnWrite(nil)
		for string(s.Object(leaseKind, "ns/leader")) == before {
			time.Sleep(time.Millisecond)
		}
	}
	begin := func(e *kubernetes.Election) func(context.Context) error {
		return func(ctx context.Context) error { return e.Acquire(ctx, func() {}) }
	}
	released := func(what string, s *kubetest.Server, e *kubernetes.Election) {
		t.Helper()
		if err := e.Release(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if l := leaseOf(t, s); l.Spec.Holder != nil {
			t.Errorf("%s: %s holds the Lease", what, *l.Spec.Holder)
		}
	}
	s := kubetest.NewServer(t)
	a, b := electionOn(t, s, "a", time.Minute), electionOn(t, s, "b", time.Minute)
	c := electionOn(t, s, "c", time.Minute)
	unheard(s, begin(a))
	released("a new Lease", s, a)
	unheard(s, begin(b))
	released("a free Lease", s, b)
	acquire(t, a)
	unheard(s, func(ctx context.Context) error { return a.Annotate(ctx, "x/y", "1") })
	released("a held Lease", s, a)
	s.OnWrite(func(_, _, _ string) int {
		s.PutObject(leaseKind, []byte(`{"metadata":{"namespace":"ns","name":"leader"},`+
			`"spec":{"holderIdentity":"c"}}`))
		return http.StatusGatewayTimeout
	})
	if err := begin(c)(t.Context()); err == nil {
		t.Error("a write that timed out in the API server is taken as done")
	}
	s.OnWrite(nil)
	released("a write that timed out in the API server", s, c)
	acquire(t, a)
	unheard(s, func(ctx context.Context) error { return a.Annotate(ctx, "x/y", "2") })
	s.PutObject(leaseKind, []byte(`{"metadata":{"namespace":"ns","name":"leader"},`+
		`"spec":{"holderIdentity":"b"}}`))
	if err := a.Release(t.Context()); err != nil || *leaseOf(t, s).Spec.Holder != "b" {
		t.Errorf("%v, %+v", err, leaseOf(t, s))
	}
}
