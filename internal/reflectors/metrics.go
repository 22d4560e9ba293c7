package reflectors

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// HealthHandler serves /metrics, /healthz (the process runs) and /readyz (it leads, or waits for
// the one that does).
func (c *Controller) HealthHandler() http.Handler {
	registry := prometheus.NewRegistry() // etcd registers its own in the default one
	registry.MustRegister(metrics{c}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s := c.Status()
		switch {
		case !s.Connected:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "[-]%s: %s\n", c.store, s.Problem)
		case s.Leads:
			fmt.Fprintln(w, "[+]leads")
		default:
			fmt.Fprintln(w, "[+]waits to lead")
		}
	})
	return mux
}

type metrics struct{ c *Controller }

// Describe says nothing, so that the registry does not check what Collect finds.
func (metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	metric := func(kind prometheus.ValueType, name, help string) func(float64) {
		return func(v float64) {
			ch <- prometheus.MustNewConstMetric(
				prometheus.NewDesc("vpp_route_agent_"+name, help, nil, nil), kind, v)
		}
	}
	gauge := func(name, help string) func(float64) {
		return metric(prometheus.GaugeValue, name, help)
	}
	counter := func(name, help string) func(float64) {
		return metric(prometheus.CounterValue, name, help)
	}
	oneIf := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	s := m.c.Status()
	waited := 0.0
	if !s.Waiting.IsZero() {
		waited = time.Since(s.Waiting).Seconds()
	}
	gauge("reflector_controller_connected",
		"1 while this controller is connected to the datastore.")(oneIf(s.Connected))
	gauge("reflector_controller_leads", "1 while this controller leads; of several one does.")(
		oneIf(s.Leads))
	gauge("reflector_controller_waiting_seconds",
		"How long the next step has waited; 0: there is none, or this controller does not lead.")(
		waited)
	gauge("reflector_controller_needs_person",
		"1 while only a person can change what the next step waits for.")(
		oneIf(s.Leads && s.State.Person))
	gauge("reflector_controller_undone",
		"1 while the goal is given up, since a gate has stayed shut for its limit.")(
		oneIf(s.Leads && s.Undone))
	gauge("reflector_controller_kubernetes_away",
		"1 while Kubernetes, whose Nodes count, does not answer; 0, too, if none is consulted.")(
		oneIf(m.c.kubernetes != nil && !m.c.kubernetes.Known().Away.IsZero()))
	counter("reflector_controller_steps_total", "Steps that this controller has taken.")(
		float64(s.Steps))
}
