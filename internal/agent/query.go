package agent

import "net/http"

// queries bounds the requests from other hosts that are answered at a time. Others wait for as long
// as their client does.
const queries = 4

// QueryHandler serves the part of the admin API that changes nothing, for other hosts: GET
// /v1/status, /v1/plan, /v1/tunnels, /v1/routes and /v1/explain?prefix=P. Local clients have turns
// of their own: another host may be slow to read. Who may ask is decided by the listener.
func (a *Agent) QueryHandler() http.Handler {
	admin, mux, turn := a.AdminHandler(), http.NewServeMux(), make(chan struct{}, queries)
	for _, path := range []string{"/v1/status", "/v1/plan", "/v1/tunnels", "/v1/routes",
		"/v1/explain"} {
		mux.HandleFunc("GET "+path, inTurn(turn, admin))
	}
	return mux
}

// inTurn has as many requests served at a time as turn has room. Others wait for as long as their
// client does.
func inTurn(turn chan struct{}, h http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
			h.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}
}
