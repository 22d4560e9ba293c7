package agent

import (
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// HealthHandler serves /metrics, /healthz (the process runs), /readyz (every condition of Status
// holds) and /debug/pprof. It belongs on a loopback address: pprof shows memory.
func (a *Agent) HealthHandler() http.Handler {
	registry := prometheus.NewRegistry() // etcd and GoBGP register theirs in the default one
	registry.MustRegister(metrics{a}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", a.serveReady)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
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
}
