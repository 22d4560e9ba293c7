package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"vpp-route-agent/internal/route"
)

// AdminHandler serves the admin API, JSON over HTTP (the log: text) on a unix socket: what its
// patterns say, and what HealthHandler serves, whose listener may be off. Parameters: prefix of
// routes and explain, counters=true of routes, address of match, key of external; level and for of
// log-level; wait, stay and until-idle of drain.
func (a *Agent) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", a.HealthHandler())
	listing := make(chan struct{}, listings) // those whose routes are being listed
	mux.HandleFunc("GET /v1/routes", func(w http.ResponseWriter, r *http.Request) {
		a.serveRoutes(w, r, listing)
	})
	mux.HandleFunc("GET /v1/log", a.serveLog)
	for pattern, answer := range map[string]func(*http.Request) (any, error){
		"GET /v1/status": func(*http.Request) (any, error) { return a.Status(), nil },
		"GET /v1/plan":   func(*http.Request) (any, error) { return a.currentPlan() },
		"GET /v1/tunnels": func(r *http.Request) (any, error) {
			all := a.Tunnels()
			a.countTunnels(r.Context(), all)
			return all, nil
		},
		"GET /v1/next-hops": func(r *http.Request) (any, error) {
			return a.serveNextHops(r.Context()), nil
		},
		"GET /v1/match":   a.serveMatch,
		"GET /v1/explain": a.serveExplain,

		"GET /v1/configuration": func(*http.Request) (any, error) { return a.configuration(), nil },

		"GET /v1/log-level":  func(*http.Request) (any, error) { return a.logLevel(), nil },
		"POST /v1/log-level": a.serveLogLevel,

		"POST /v1/audit": func(r *http.Request) (any, error) { return a.Audit(r.Context()) },

		"GET /v1/external":         a.serveExternal,
		"GET /v1/external/history": a.serveExternalHistory,

		"POST /v1/guard/release": func(*http.Request) (any, error) { return a.releaseGuard() },
		"POST /v1/drain":         a.serveDrain,
		"POST /v1/drain/cancel":  func(*http.Request) (any, error) { return a.CancelDrain() },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, err := answer(r)
			switch err.(type) {
			case nil:
				writeJSON(w, v)
			case badRequest:
				http.Error(w, err.Error(), http.StatusBadRequest)
			default:
				http.Error(w, err.Error(), http.StatusConflict)
			}
		})
	}
	return mux
}

// badRequest is an error in what a client sent. Others say why the agent cannot do it.
type badRequest struct{ error }

// configuration are the settings in force.
func (a *Agent) configuration() map[string]string {
	if a.cfg.Configuration == nil {
		return map[string]string{}
	}
	return a.cfg.Configuration()
}

// MatchStatus is the route, whoever's it is, by which the data plane forwards to an address.
type MatchStatus struct {
	Prefix netip.Prefix `json:"prefix"` // "" when none matches
	Owner  string       `json:"owner"`
	// Forwards is absent where that is not known, of a route of ours.
	Forwards *bool `json:"forwards,omitempty"`
	// Paths are as precise as the data plane's answer: VPP names only the interface.
	Paths []PathStatus `json:"paths"`
}

func (a *Agent) serveMatch(r *http.Request) (any, error) {
	address, err := netip.ParseAddr(r.URL.Query().Get("address"))
	if err != nil {
		return nil, badRequest{err}
	}
	if a.cfg.Resolve == nil {
		return nil, errNoDataplane
	}
	found, err := a.cfg.Resolve(r.Context(), 0, address)
	return matchStatus(found), err
}

func matchStatus(found route.Resolution) MatchStatus {
	m := MatchStatus{Prefix: found.Prefix, Owner: found.Owner, Forwards: &found.Usable,
		Paths: pathStatuses(found.Paths, 0)}
	if len(found.Paths) == 0 && found.Interface != "" {
		m.Paths = append(m.Paths, PathStatus{Interface: found.Interface})
	}
	return m
}

// releaseGuard returns what the mass-delete guard held.
func (a *Agent) releaseGuard() ([]GuardStatus, error) {
	if a.cfg.FIB == nil {
		return nil, errNoDataplane
	}
	held := a.Status().FIB.Guard
	a.cfg.FIB.ReleaseGuard()
	a.mu.Lock()
	a.believe = true
	a.mu.Unlock()
	a.wakeUp()
	return held, nil
}

func (a *Agent) serveDrain(r *http.Request) (any, error) {
	query := r.URL.Query()
	wait, err := time.ParseDuration(query.Get("wait"))
	if err != nil {
		return nil, badRequest{fmt.Errorf("wait: %w", err)}
	}
	o := DrainOptions{Wait: wait, Stay: query.Get("stay") == "true"}
	if text := query.Get("until-idle"); text != "" {
		rate, err := ParseRate(text)
		if err != nil {
			return nil, badRequest{fmt.Errorf("until-idle: %w", err)}
		}
		o.UntilIdle = &rate
	}
	return a.Drain(o)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // fails only if the client is gone
}
