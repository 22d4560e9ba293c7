package vpp_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/vpp"
)

var _ fib.Starter = (*vpp.VPP)(nil)

// start is apply by Start; ok is what that returned.
func (a *agent) start(t *testing.T, ops ...route.Op) (
	calls []int, errs []error, ok bool, err error) {
	t.Helper()
	calls, errs = make([]int, len(ops)), make([]error, len(ops))
	ended := make(chan error, 2)
	ok = a.Start(ops, func(i int, err error) { calls[i]++; errs[i] = err },
		func(err error) { ended <- err })
	if !ok {
		return calls, errs, false, nil
	}
	select {
	case err = <-ended:
	case <-time.After(patience):
		t.Fatal("a started batch did not end")
	}
	t.Cleanup(func() {
		if len(ended) > 0 {
			t.Error("a started batch ended twice")
		}
	})
	return calls, errs, true, err
}

func TestStartedOpsAreAnswered(t *testing.T) {
	s := newServer(t)
	r := &relay{path: filepath.Join(t.TempDir(), "s"), piece: 1}
	r.serve(t, s.Socket())
	t.Cleanup(r.close)
	a := runAgent(t, vpp.Config{Socket: r.path, Window: 5})
	if _, _, ok, _ := a.start(t, hostRoutes(1)...); ok {
		t.Error("started without a connection")
	}
	a.await(t, "connection", present)
	s.Refuse(func(m api.Message) int32 {
		if isRoute("198.18.0.1/32")(m) {
			return -171
		}
		return 0
	})
	calls, errs, ok, err := a.start(t, hostRoutes(3)...)
	check(t, errors.Join(err, errs[0], errs[2]))
	if !ok || fmt.Sprint(calls) != "[1 1 1]" {
		t.Errorf("started: %v, results: %v", ok, calls)
	}
	if got, want := fmt.Sprint(errs[1]),
		"vpp: put 198.18.0.1/32: invalid prefix length (VPP error -171)"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	if got := len(s.Routes("vpp-route-agent")); got != 2 {
		t.Errorf("VPP has %d routes, want 2", got)
	}
	// what Apply has to do
	if _, _, ok, _ := a.start(t, hostRoutes(6)...); ok {
		t.Error("more was started than may be outstanding")
	}
	bad := hostRoutes(2)
	bad[1].Route.Paths = []route.Path{{Interface: "none", Weight: 1}}
	if calls, _, ok, _ := a.start(t, bad...); ok || fmt.Sprint(calls) != "[0 0]" {
		t.Errorf("a route over no interface: started %v, results %v", ok, calls)
	}
	a.mustApply(t, hostRoutes(1)...)
}

// A connection that ends, or whose replies no longer belong to requests, ends the batch, too.
func TestStartedOpsAreNotAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		dropped int // op; -1: none
		cut     int // replies after which the connection ends
		stalls  bool
		known   int // ops of 5
		says    string
	}{
		"first dropped":  {dropped: 0, known: 0, says: "unanswered"},
		"middle dropped": {dropped: 2, known: 2, says: "unanswered"},
		"last dropped":   {dropped: 4, known: 4, says: "unanswered"},
		"cut":            {dropped: -1, cut: 3, known: 3, says: "closed the connection"},
		"silent":         {dropped: -1, stalls: true, known: 0, says: "silent"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			a := runAgent(t, vpp.Config{Socket: s.Socket(), ReplyTimeout: time.Second})
			a.await(t, "connection", present)
			ops := hostRoutes(5)
			switch {
			case c.dropped >= 0:
				s.Swallow(isRoute(ops[c.dropped].Route.Prefix.String()))
			case c.stalls:
				s.Stall()
			default:
				s.CutAfter(c.cut)
			}
			calls, errs, ok, err := a.start(t, ops...)
			if !ok || err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("started: %v, %v", ok, err)
			}
			for i, n := range calls {
				if i < c.known && (n != 1 || errs[i] != nil) || i >= c.known && n != 0 {
					t.Errorf("op %d: done %d times, %v", i, n, errs[i])
				}
			}
			s.Swallow(nil)
			s.Continue()
			a.await(t, "a new connection", present)
			a.mustApply(t, ops...)
		})
	}
}
