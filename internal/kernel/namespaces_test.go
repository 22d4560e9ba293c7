package kernel

import (
	"context"
	"errors"
	"testing"

	"vpp-route-agent/internal/route"
	"vpp-route-agent/internal/testlog"
)

// namespacesBed is the kernel of one namespace, and an address in it and in one that objects name.
type namespacesBed struct {
	*Namespaces
	t    *testing.T
	path string // of the named one
	own  route.Address
	far  route.Address
}

func newNamespacesBed(t *testing.T) *namespacesBed {
	t.Helper()
	_, node, peer := newNamespaces(t)
	far := route.InNamespace(peer.Path(), "eth1")
	n, err := NewNamespaces(Config{Namespace: node.Path(), Log: testlog.New(t)}, []string{far})
	check(t, err)
	return &namespacesBed{n, t, peer.Path(),
		route.Address{Interface: "eth1", Address: pfx("10.0.1.1/24")},
		route.Address{Interface: far, Address: pfx("10.0.1.2/24")}}
}

// finds is for addresses that are there all the time.
func (b *namespacesBed) finds(all ...route.Address) {
	b.t.Helper()
	for _, a := range all {
		found, err := b.Object(context.Background(), a.Key())
		if err != nil || found != a {
			b.t.Errorf("%s: found %v, %v", a.Key(), found, err)
		}
	}
}

// Whoever still works on objects when Run ends works in their namespaces, until Close.
func TestObjectsOutliveRun(t *testing.T) {
	b := newNamespacesBed(t)
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	<-b.Facts()
	b.finds(b.own, b.far)
	cancel()
	for running := true; running; {
		b.finds(b.own, b.far)
		select {
		case err := <-ended:
			check(t, err)
			running = false
		default:
		}
	}
	b.finds(b.own, b.far)
}

// A namespace whose events fail is opened again; until then nothing is done in its place.
func TestNamespaceWhoseEventsFail(t *testing.T) {
	b := newNamespacesBed(t)
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	defer func() { cancel(); check(t, <-ended) }()
	<-b.Facts()
	s := b.at(b.path)
	plane := func() *Dataplane {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.plane
	}
	first := plane()
	first.watch.Close()
	eventually(t, "the namespace is opened again", func() bool {
		if found, err := b.Object(t.Context(), b.far.Key()); err == nil && found != b.far {
			t.Errorf("found %v", found)
		}
		now := plane()
		return now != nil && now != first
	})
	b.finds(b.far, b.own)
}

// Between two namespaces at a path nothing is done, and nothing is said to be.
func TestNamespaceBetweenTwo(t *testing.T) {
	b := newNamespacesBed(t)
	defer b.Close()
	b.at(b.path).close(nil)
	if _, err := b.Object(t.Context(), b.far.Key()); !errors.Is(err, route.ErrNoLink) {
		t.Errorf("a look-up: %v", err)
	}
	if err := b.PutObject(t.Context(), b.far); !errors.Is(err, route.ErrNoLink) {
		t.Errorf("a put: %v", err)
	}
}
