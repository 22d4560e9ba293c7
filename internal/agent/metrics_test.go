package agent

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/recorder"
)

// metrics checks that /metrics has these lines.
func (n *node) metrics(t *testing.T, want ...string) {
	t.Helper()
	answer := httptest.NewRecorder()
	n.agent.HealthHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range want {
		if !strings.Contains(answer.Body.String(), "\nvpp_route_agent_"+line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", answer.Body)
	}
}

// What came by an event is measured until the data plane has it, what was listed at the start is
// not.
func TestDelaysAreMeasured(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		c := cluster()
		n.snapshots <- c
		n.expect(t, time.Second, "put 10.1.0.0/26 drop", "announce 10.1.0.0/26",
			"announce 10.1.0.77/32", "announce 10.1.9.9/32")
		n.metrics(t, "datastore_event_to_fib_seconds_count 0")

		c = cluster()
		c.Affinities[pfx("10.1.1.0/26")] = c.Affinities[pfx("10.1.0.0/26")]
		c.Blocks[pfx("10.1.1.0/26")] = c.Blocks[pfx("10.1.0.0/26")]
		c.Received = time.Now()
		n.snapshots <- c
		n.expect(t, 2*time.Second, "put 10.1.1.0/26 drop", "announce 10.1.1.0/26")
		n.metrics(t, "datastore_event_to_fib_seconds_count 1",
			`datastore_event_to_fib_seconds_bucket{le="0.005"} 0`,
			`datastore_event_to_fib_seconds_bucket{le="0.05"} 1`,
			`datastore_event_to_fib_seconds_bucket{le="300"} 1`)

		c = cluster()
		c.Received = time.Now()
		n.snapshots <- c
		n.expect(t, 2*time.Second, "withdraw 10.1.1.0/26", "delete 10.1.1.0/26")
		n.metrics(t, "datastore_event_to_fib_seconds_count 2")
	})
}

// The steps of changes have native buckets for whoever scrapes these, and others.
func TestStepsAreMeasured(t *testing.T) {
	r := recorder.New(recorder.Config{})
	inBubble(t, func(t *testing.T, n *node) {
		second := fib.Moment(time.Second)
		r.Decided(fib.Decision{Received: second, At: second + second/1000})
		r.Decided(fib.Decision{Received: second, At: 2 * second})
		n.metrics(t, `fib_step_seconds_bucket{step="decide",le="0.000244140625"} 0`,
			`fib_step_seconds_bucket{step="decide",le="0.00390625"} 1`,
			`fib_step_seconds_bucket{step="decide",le="1"} 2`,
			`fib_step_seconds_count{step="decide"} 2`, `fib_step_seconds_count{step="wait"} 0`,
			`fib_step_seconds_count{step="answer"} 0`, "recorder_ok 1", "recorder_bytes 0")

		registry := prometheus.NewRegistry()
		registry.MustRegister(metrics{n.agent})
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		native := map[string]uint32{}
		for _, f := range families {
			if f.GetName() != "vpp_route_agent_fib_step_seconds" {
				continue
			}
			for _, m := range f.Metric {
				for _, s := range m.Histogram.PositiveSpan {
					native[m.Label[0].GetValue()] += s.GetLength()
				}
			}
		}
		if native["decide"] != 2 {
			t.Errorf("native buckets %v", native)
		}
	}, func(c *Config) { c.Recorder = r })
}

// A peer's counters and each thing that status can say have series that are there all the time.
func TestSeriesOfPeersAndConditions(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.metrics(t, `condition{condition="dataplane",reason="away"} 1`,
			`condition{condition="node",reason="no_data"} 1`,
			`condition{condition="drain",reason="draining"} 0`,
			`condition{condition="fib",reason="sweep_waits"} 1`,
			`condition{condition="uplink",reason="down"} 0`)
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		peer := n.speaker.current().Peers[0].ID()
		heard := time.Now()
		n.speaker.setStates(bgp.PeerState{ID: peer, Established: true, Flaps: 2,
			UpdatesReceived: 7, UpdatesSent: 5, LastContact: heard})
		label := fmt.Sprintf(`{peer="%s"}`, peer)
		at := strconv.FormatFloat(float64(heard.UnixMilli())/1000, 'g', -1, 64)
		n.metrics(t, "bgp_peer_flaps_total"+label+" 2",
			"bgp_peer_updates_received_total"+label+" 7", "bgp_peer_updates_sent_total"+label+" 5",
			"bgp_peer_last_contact_timestamp_seconds"+label+" "+at,
			"bgp_strangers_refused_total 3",
			`condition{condition="dataplane",reason="away"} 0`,
			`condition{condition="node",reason="no_data"} 0`)
	})
}
