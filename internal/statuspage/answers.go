package statuspage

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

const (
	// questions bounds those of one kind that are answered at a time. Others wait for as long as
	// their client does.
	questions = 4
	// maxWaiting bounds those of one kind that wait.
	maxWaiting = 64
	// perPage is how many routes an answer has.
	perPage = 100
	// maxText bounds what is searched for, in bytes.
	maxText = 200
)

// queue bounds the questions of one kind.
type queue struct {
	turns  chan struct{} // of size questions: those that are being answered
	places chan struct{} // of size questions + maxWaiting: those, and those that wait
}

func newQueue() queue {
	return queue{make(chan struct{}, questions), make(chan struct{}, questions+maxWaiting)}
}

var errBusy = fmt.Errorf("%d such questions wait for their turn already; ask again later",
	maxWaiting)

// in has ask answered when its turn has come.
func (q queue) in(ask question) question {
	return func(r *http.Request) (any, error) {
		select {
		case q.places <- struct{}{}:
			defer func() { <-q.places }()
		default:
			return nil, errBusy
		}
		select {
		case q.turns <- struct{}{}:
			defer func() { <-q.turns }()
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		return ask(r)
	}
}

// question makes an answer, which becomes JSON, of a request.
type question func(*http.Request) (any, error)

// answerTo serves what ask makes of a request. The answer is complete before any of it is sent: a
// client that reads slowly holds up nobody.
func (p *Page) answerTo(ask question) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := ask(r)
		if r.Context().Err() != nil {
			return
		}
		// Time in the queue is not the client's. A writer that is no connection has no deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(p.patience))
		switch {
		case errors.Is(err, errBusy):
			w.Header().Set("Retry-After", "10")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(encode(answer)) // fails only if the client is gone
		}
	}
}

func (p *Page) explain(r *http.Request) (any, error) {
	asked, err := agent.ParsePrefixOrAddr(strings.TrimSpace(r.URL.Query().Get("prefix")))
	if err != nil {
		return nil, err
	}
	return p.cfg.Agent.Explain(r.Context(), asked), nil
}

// routesFound is an answer about routes.
type routesFound struct {
	Count  int                   `json:"count"` // of all that fit
	Routes []agent.RouteStatus   `json:"routes"`
	Nodes  map[netip.Addr]string `json:"nodes"` // those that are next hops, by address
	// Next is ?after= of the next page; absent if there is none.
	Next string `json:"next,omitempty"`
}

func (p *Page) routes(r *http.Request) (any, error) {
	query := r.URL.Query()
	text := query.Get("q")
	if len(text) > maxText {
		return nil, fmt.Errorf("at most %d bytes can be searched for", maxText)
	}
	after, err := parseKey(query.Get("after"))
	if err != nil {
		return nil, err
	}
	asked := agent.RouteQuery{Words: strings.Fields(text), After: after, Most: perPage + 1}
	if name := query.Get("state"); name != "" {
		if asked.State, err = fib.ParseState(name); err != nil {
			return nil, err
		}
	}
	if name := query.Get("origin"); name != "" {
		origin, err := route.ParseOrigin(name)
		if err != nil {
			return nil, err
		}
		asked.Origin = &origin
	}
	found := p.cfg.Agent.SearchRoutes(asked)
	out := routesFound{Count: found.Count, Routes: found.Routes, Nodes: found.Nodes}
	if len(out.Routes) > perPage {
		out.Routes = out.Routes[:perPage]
		last := out.Routes[perPage-1]
		out.Next = fmt.Sprintf("%d,%t,%s", last.Table, last.Elevated, last.Prefix)
	}
	return out, nil
}

// parseKey reads what routesFound.Next has; "" is the zero Key.
func parseKey(text string) (k route.Key, err error) {
	if text == "" {
		return k, nil
	}
	wrong := fmt.Errorf("after=%q is no place in the list of routes", text)
	parts := strings.Split(text, ",")
	if len(parts) != 3 {
		return k, wrong
	}
	table, err1 := strconv.ParseUint(parts[0], 10, 32)
	elevated, err2 := strconv.ParseBool(parts[1])
	prefix, err3 := netip.ParsePrefix(parts[2])
	if err1 != nil || err2 != nil || err3 != nil {
		return k, wrong
	}
	return route.Key{Table: uint32(table), Elevated: elevated, Prefix: prefix}, nil
}
