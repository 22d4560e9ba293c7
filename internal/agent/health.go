package agent

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapes bounds the requests for /metrics, and for /readyz, that are answered at a time: each
// gathers the whole state. Of metrics others get 503, since a client may be slow to read.
const scrapes = 8

// HealthHandler serves /metrics, /healthz (the loop turns), /readyz (every condition of Status
// holds) and /debug/pprof. It belongs on a loopback address: pprof shows memory.
func (a *Agent) HealthHandler() http.Handler {
	registry := prometheus.NewRegistry() // etcd and GoBGP register theirs in the default one
	registry.MustRegister(metrics{a}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: scrapes,
	}))
	mux.HandleFunc("GET /healthz", a.serveLive)
	mux.HandleFunc("GET /readyz", inTurn(make(chan struct{}, scrapes),
		http.HandlerFunc(a.serveReady)))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// stuckAfter is how long the loop may take to a turn: as long as the unit's watchdog has patience
// (deploy/systemd). GoBGP can be blocked for a hold time, 90 s.
const stuckAfter = 2 * time.Minute

// serveLive answers 200 while the loop turns, else 503. It waits for nobody.
func (a *Agent) serveLive(w http.ResponseWriter, _ *http.Request) {
	turned := a.Turned()
	if turned.Before(a.started) {
		turned = a.started
	}
	if stuck := time.Since(turned); stuck > stuckAfter {
		http.Error(w, fmt.Sprintf("the agent's loop has not turned for %s",
			stuck.Round(time.Second)), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// serveReady answers 200 or 503, with a line per condition as kube-apiserver does.
func (a *Agent) serveReady(w http.ResponseWriter, _ *http.Request) {
	s := a.Status()
	if !s.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	for _, c := range s.Conditions {
		mark := "[+]"
		if !c.OK {
			mark = "[-]"
		}
		fmt.Fprintf(w, "%s%s", mark, c.Name)
		if c.Message != "" {
			fmt.Fprintf(w, ": %s", c.Message)
		}
		fmt.Fprintln(w)
	}
	for _, d := range s.Degraded {
		fmt.Fprintf(w, "[~]%s: %s\n", d.Condition, d.Reason)
	}
}
