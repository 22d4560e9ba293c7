package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/agent"
)

// serve has s answer on an admin socket until the end of the test.
func serve(t *testing.T, s *http.Server) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return socket
}

// draining answers on a socket as an agent does that cannot write to its state folder, and whose
// drain is, from one question to the next, as these say. With the last of them it ends.
func draining(t *testing.T, statuses ...agent.DrainStatus) (socket string) {
	const notKept = "open drain.json.new: read-only file system"
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(v) }
	}
	asked := 0
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/drain", answer(agent.DrainStatus{Phase: agent.Draining, Stay: true,
		NotKept: notKept}))
	mux.HandleFunc("POST /v1/drain/cancel", answer(agent.DrainStatus{NotKept: notKept}))
	s := &http.Server{Handler: mux}
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		answer(agent.Status{Drain: &statuses[asked]})(w, r)
		if asked++; asked == len(statuses) {
			go s.Shutdown(t.Context())
		}
	})
	return serve(t, s)
}

func TestDrainSaysWhatIsNotAsItShouldBe(t *testing.T) {
	for _, tc := range []struct{ args, out, err string }{
		{"--stay --wait 0s", "ends that\nnot everything is withdrawn yet: not today\nwithdrawn\n",
			"warning: a restart would forget the drain: open drain.json.new: read-only file " +
				"system\n"},
		{"--cancel", "as before\n", "warning: a restart would drain again: open drain.json.new: " +
			"read-only file system\n"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			var out, err bytes.Buffer
			c := drainCommand()
			c.SetOut(&out)
			c.SetErr(&err)
			c.SetArgs(append(strings.Fields(tc.args), "--admin-socket", draining(t,
				agent.DrainStatus{Phase: agent.Draining, Stay: true, NotWithdrawn: "not today"},
				agent.DrainStatus{Phase: agent.Draining, Stay: true, NotWithdrawn: "not today"},
				agent.DrainStatus{Phase: agent.Withdrawn, Stay: true})))
			if e := c.Execute(); e != nil {
				t.Error(e)
			}
			if !strings.HasSuffix(out.String(), tc.out) || err.String() != tc.err {
				t.Errorf("it says\n%sand\n%s", &out, &err)
			}
		})
	}
}

// TestDrainSaysWhatItWaitsFor from its beginning to its end, and each thing once.
func TestDrainSaysWhatItWaitsFor(t *testing.T) {
	waiting := agent.DrainStatus{Phase: agent.Draining, TrafficUnknown: "no such file"}
	peer := agent.DrainStatus{Phase: agent.Draining, NotWithdrawn: "waiting for 10.0.0.9"}
	withdrawn := agent.DrainStatus{Phase: agent.Withdrawn}
	ending := agent.DrainStatus{Phase: agent.Withdrawn, Ending: "BGP ends with CEASE"}
	var out bytes.Buffer
	err := followDrain(t.Context(), &out,
		draining(t, waiting, waiting, peer, withdrawn, withdrawn, ending, ending))
	const want = `packets cannot be counted, so only time counts: no such file
not everything is withdrawn yet: waiting for 10.0.0.9
withdrawn
the agent ends when that has had time to reach every node
the agent ends: BGP ends with CEASE
drained: the agent has stopped
`
	if err != nil || out.String() != want {
		t.Errorf("%v, and it says\n%s", err, &out)
	}
}

// A supervisor may start the agent again between two looks: a drain that is over was not cancelled.
func TestDrainOverAndTheAgentStartedAgain(t *testing.T) {
	withdrawn := &agent.DrainStatus{Phase: agent.Withdrawn}
	first, again := time.Unix(1e9, 0), time.Unix(1e9+60, 0)
	for _, tc := range []struct {
		started time.Time
		want    string // of the error
	}{{again, ""}, {first, "the drain was cancelled"}} {
		statuses := []agent.Status{{Started: first, Drain: withdrawn}, {Started: tc.started}}
		mux := http.NewServeMux()
		mux.HandleFunc("/v1/status", func(w http.ResponseWriter, r *http.Request) {
			json.NewEncoder(w).Encode(statuses[0])
			statuses = statuses[1:]
		})
		out, got := &strings.Builder{}, ""
		socket := serve(t, &http.Server{Handler: mux})
		if err := followDrain(t.Context(), out, socket); err != nil {
			got = err.Error()
		}
		said := strings.Contains(out.String(), "drained: the agent has stopped")
		if got != tc.want || said != (tc.want == "") {
			t.Errorf("started again %t: %q: %s", tc.started == again, got, out)
		}
	}
}

// TestWaitingSaysForWhat: the agent is asked what it does instead of answering.
func TestWaitingSaysForWhat(t *testing.T) {
	away := agent.Status{Conditions: []agent.Condition{
		{Name: "dataplane", Message: "VPP is away"},
	}}
	well := agent.Status{Conditions: []agent.Condition{{Name: "dataplane", OK: true}}}
	for _, tc := range []struct {
		path, want string
		status     agent.Status
	}{
		{"/v1/audit", "it needs the data plane: VPP is away", away},
		{"/v1/audit", "the data plane lists its routes", well},
		{"/v1/drain/cancel", "it writes the drain to its state directory", well},
		{"/v1/routes", "it lists its routes, for one command at a time", well},
	} {
		if got := occupation(tc.path, tc.status); got != tc.want {
			t.Errorf("%s: %s", tc.path, got)
		}
	}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	silent, err := net.Listen("unix", socket) // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	got := awaited(t.Context(), socket, "/v1/status")
	if !strings.HasSuffix(got, "agent.sock, for 1m0s at most: it answers nothing") {
		t.Errorf("of an agent that hangs: %s", got)
	}
	if slow+askingTime >= 2*time.Second {
		t.Error("it is said too late")
	}
}

// Whoever ends the wait for an agent that hangs must not read that it has stopped.
func TestDrainInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/status", func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked > 1 {
			cancel()
			<-r.Context().Done()
			return
		}
		json.NewEncoder(w).Encode(agent.Status{Drain: &agent.DrainStatus{Phase: agent.Withdrawn}})
	})
	out := &strings.Builder{}
	err := followDrain(ctx, out, serve(t, &http.Server{Handler: mux}))
	if err == nil || !strings.Contains(err.Error(), "the drain goes on") ||
		strings.Contains(out.String(), "stopped") {
		t.Errorf("%v: %s", err, out)
	}
}
