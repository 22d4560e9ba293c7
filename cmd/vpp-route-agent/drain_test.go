package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"vpp-route-agent/internal/agent"
)

// draining answers on a socket as an agent does that cannot write to its state folder, and whose
// speaker withdraws after the third question.
func draining(t *testing.T) (socket string) {
	socket = filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	const notKept = "open drain.json.new: read-only file system"
	answer := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(v) }
	}
	asked := 0
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/drain", answer(agent.DrainStatus{Phase: agent.Draining, Stay: true,
		NotKept: notKept}))
	mux.HandleFunc("POST /v1/drain/cancel", answer(agent.DrainStatus{NotKept: notKept}))
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		d := agent.DrainStatus{Phase: agent.Draining, Stay: true, NotWithdrawn: "not today"}
		if asked++; asked > 2 {
			d = agent.DrainStatus{Phase: agent.Withdrawn, Stay: true}
		}
		answer(agent.Status{Drain: &d})(w, r)
	})
	s := http.Server{Handler: mux}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return socket
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
			c.SetArgs(append(strings.Fields(tc.args), "--admin-socket", draining(t)))
			if e := c.Execute(); e != nil {
				t.Error(e)
			}
			if !strings.HasSuffix(out.String(), tc.out) || err.String() != tc.err {
				t.Errorf("it says\n%sand\n%s", &out, &err)
			}
		})
	}
}
