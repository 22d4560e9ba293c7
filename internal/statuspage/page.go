// Package statuspage serves a page for browsers that shows one agent: its peers, sessions, routes,
// explanations, rates, conditions and drain. It only reads. It belongs on the metrics listener,
// before what serves metrics and health there; who may reach that listener is decided by cmd.
//
// Nothing is computed while no page is open, but for a sample of counters every ten seconds. All
// open pages share one look at the agent, a second at most.
package statuspage

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"vpp-route-agent/internal/agent"
)

// Agent is what the page shows; *agent.Agent is one.
type Agent interface {
	Status() agent.Status
	// Turned is when the agent's loop last completed a turn.
	Turned() time.Time
	Explain(ctx context.Context, asked netip.Prefix) agent.Explanation
	SearchRoutes(agent.RouteQuery) agent.RouteList
	Counters() agent.Counters
}

// Config is what a Page is made of.
type Config struct {
	Agent Agent
	// Named reports whether a name in a request's Host header is one of the listener's, besides
	// localhost and addresses; nil: none is.
	Named func(host string) bool
}

// Page serves the page. Its streams and rates need Run.
type Page struct {
	cfg   Config
	views views
	hour  hour

	searches, explanations queue // apart, since an explanation waits for GoBGP and VPP

	patience time.Duration // with a client that is sent something
}

// New returns a Page that has no streams until Run.
func New(c Config) *Page {
	return &Page{cfg: c, views: newViews(), searches: newQueue(), explanations: newQueue(),
		patience: defaultPatience}
}

// Handler serves the page at / and what it needs below /page/. Everything else is left to rest.
func (p *Page) Handler(rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", rest)
	own := http.NewServeMux()
	addAssets(own)
	own.HandleFunc("GET /page/events", p.serveEvents)
	own.HandleFunc("GET /page/routes", p.answerTo(p.searches.in(p.routes)))
	own.HandleFunc("GET /page/explain", p.answerTo(p.explanations.in(p.explain)))
	own.HandleFunc("GET /page/rates", p.answerTo(p.rates))
	guarded := p.guard(own)
	mux.Handle("/{$}", guarded)
	mux.Handle("/page/", guarded)
	return mux
}

// Refuse says why at / instead of a page.
func Refuse(why string, rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", rest)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, why, http.StatusForbidden)
	})
	return mux
}

// Run takes samples, and looks at the agent while a page is open, until ctx ends. Then all streams
// end, too.
func (p *Page) Run(ctx context.Context) error {
	var looks sync.WaitGroup
	defer looks.Wait()
	defer p.views.end()
	p.views.begin()
	looks.Go(func() { p.watch(ctx) }) // a look may wait for the agent; samples do not
	p.sample()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.sample()
		}
	}
}

// sample has the time at which the counters were read: a tick may be older.
func (p *Page) sample() {
	counters := p.cfg.Agent.Counters()
	p.hour.take(time.Now(), counters)
}

// watch looks at the agent while a page is open, until ctx ends.
func (p *Page) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.views.opened:
		}
		for p.views.watched() {
			began := time.Now()
			p.views.show(p.look(began))
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(max(lookEvery, lookShare*time.Since(began)), lookWait)):
			}
		}
	}
}

const (
	// lookEvery is between two looks at the agent.
	lookEvery = time.Second
	// lookShare bounds the time spent on looks to this part of one core, while a look takes no
	// longer than a third of a second.
	lookShare = 30
	// lookWait is how long a page waits after a look at most: one that took longer has mostly
	// waited for the agent.
	lookWait = 10 * time.Second
)
