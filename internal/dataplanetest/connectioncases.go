package dataplanetest

import (
	"context"
	"testing"
	"time"

	"vpp-route-agent/internal/route"
)

// connectionCases are about the data plane as a whole: connections, restarts, facts.
var connectionCases = []testCase{
	{"a call ends with its context", "", func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		n := 0
		err := b.Dataplane.Apply(ctx, puts(to("198.18.32.0/24", b.via(0, b.v4(0, 2)))),
			func(int, error) { n++ })
		if err == nil && n != 1 {
			t.Errorf("apply with an ended context: no error, %d ops done", n)
		}
		b.put(t, to("198.18.33.0/24", b.via(0, b.v4(0, 2)))) // and does not spoil the next one
	}},
	{"facts name the interfaces", "", func(t *testing.T, b *bench) {
		f := b.present(t)
		for n, i := range b.Interfaces {
			name, subnet, ok := f.Connected(0, b.v4(n, 5))
			if !ok || name != i.Name || subnet != i.V4.Masked() {
				t.Errorf("%s is connected to %s %s", b.v4(n, 5), name, subnet)
			}
		}
		if f.Version == "" || f.Problem != "" {
			t.Errorf("version %q, problem %q", f.Version, f.Problem)
		}
	}},
	{"a new agent finds the routes of the old one", "", func(t *testing.T, b *bench) {
		r, s := to("198.18.34.0/24", b.via(0, b.v4(0, 2))), sink("2001:db8:34::/122", route.Drop)
		b.put(t, r, s)
		identity := b.facts.last.Identity
		b.use(t, b.Reopen(t))
		if got := b.facts.last.Identity; got != identity {
			t.Errorf("identity was %q, is %q", identity, got)
		}
		b.has(t, r, s)
	}},
	{"a lost connection comes back with the same identity and routes", Connection,
		func(t *testing.T, b *bench) {
			r := to("198.18.35.0/24", b.via(0, b.v4(0, 2)))
			b.put(t, r)
			identity := b.facts.last.Identity
			b.Reconnect(t)
			b.reachable(t)
			if got := b.present(t).Identity; got != identity {
				t.Errorf("identity was %q, is %q", identity, got)
			}
			b.has(t, r)
		}},
	{"a restart gives a new identity and an empty FIB", Connection, func(t *testing.T, b *bench) {
		r := to("198.18.36.0/24", b.via(0, b.v4(0, 2)))
		b.put(t, r)
		identity := b.facts.last.Identity
		b.restart(t)
		if got := b.facts.last.Identity; got == identity {
			t.Errorf("identity is still %q", got)
		}
		b.has(t)
		b.put(t, r)
		b.has(t, r)
	}},
}

// reachable waits until calls work again after a lost connection, and forgets facts from before.
func (b *bench) reachable(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := b.Dataplane.Routes(b.context(t)); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("not reachable again within %s: %v", patience, err)
		}
	}
	select {
	case b.facts.last = <-b.Dataplane.Facts():
	default:
		t.Error("the loss of the connection was not in the facts")
	}
}

// restart restarts the data plane and waits until it is there with another identity.
func (b *bench) restart(t *testing.T) {
	t.Helper()
	identity := b.facts.last.Identity
	b.Restart(t)
	b.facts.await(t, "another identity", func(f route.Facts) bool {
		return f.Identity != "" && f.Identity != identity
	})
	b.present(t)
}
