package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/statuspage"
)

// crowd is an agent that has very many peers, more than there could be namespaces for, and one
// explanation, of all that an explanation can have.
type crowd struct {
	status      agent.Status
	explanation agent.Explanation
}

// sample is that explanation (answers_test.go).
const sample = "internal/statuspage/testdata/explanation.json"

// crowded is how many nodes the map has a place for.
const crowded = 5000

func newCrowd(peers int) (c crowd, err error) {
	text, err := os.ReadFile(sample)
	if err == nil {
		err = json.Unmarshal(text, &c.explanation)
	}
	c.status.Node, c.status.Health = "node-1", "ready"
	c.status.Conditions, c.status.Degraded = []agent.Condition{}, []agent.DegradedStatus{}
	for i := range peers {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		up := i%100 != 0
		p := agent.PeerStatus{Peer: bgp.PeerID{Address: a}, Address: a, EndOfRIB: up,
			Node: fmt.Sprintf("node-%d", i+2), State: "Active", Established: up}
		if up {
			p.State = "Established"
		}
		c.status.BGP.Peers = append(c.status.BGP.Peers, p)
	}
	return c, err
}

func (c crowd) Status() agent.Status     { return c.status }
func (c crowd) Turned() time.Time        { return time.Now() }
func (c crowd) Counters() agent.Counters { return agent.Counters{} }

func (c crowd) Explain(context.Context, netip.Prefix) agent.Explanation { return c.explanation }

func (c crowd) SearchRoutes(agent.RouteQuery) agent.RouteList { return agent.RouteList{} }

// judgeCrowd draws the map of more nodes than it has places for, and an explanation with all parts.
func (h *harness) judgeCrowd() error {
	l, err := h.browser.listen()
	if err != nil {
		return err
	}
	c, err := newCrowd(crowded + 1)
	if err != nil {
		return err
	}
	page := statuspage.New(statuspage.Config{Agent: c})
	h.browser.wg.Go(func() { page.Run(h.browser.ctx) })
	h.browser.wg.Go(func() {
		agent.Serve(h.browser.ctx, l, page.Handler(http.NotFoundHandler()),
			slog.New(slog.DiscardHandler))
	})
	t, err := h.browser.open(h.ctx, desk)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.load("http://"+l.Addr().String(), "#peers"); err != nil {
		return err
	}
	h.results.step(fmt.Sprintf("a map of %d nodes", crowded+1), func() (
		_ string, bad []string, err error,
	) {
		var drawn int
		err = t.eval("document.querySelectorAll('.map [role=button]').length", &drawn)
		if drawn != crowded {
			bad = append(bad, fmt.Sprintf("%d are drawn", drawn))
		}
		if err == nil {
			err = t.await("it says so", `document.querySelector('.map').textContent.
				replace(/\s/g, ' ').includes('(5 001, 5 000 of them drawn)')`)
		}
		if err == nil {
			err = t.await("the table has all", `document.querySelector('main .total').innerText.
				replace(/\s/g, ' ') === '5 001'`)
		}
		return "", bad, err
	})
	var longest float64
	err = t.eval(`new Promise(done => {
		new PerformanceObserver(list => done(Math.max(...list.getEntries().map(
			e => e.duration)))).observe({type: 'longtask', buffered: true});
		setTimeout(done, 1000, 0); // none was long
	})`, &longest)
	if err != nil {
		return err
	}
	h.results.figure("the longest task while it is drawn", longest, 1000, "ms", "")
	h.results.step("that map, in all looks", func() (string, []string, error) {
		return crowdLooks(t)
	})
	h.results.step("an explanation with all parts", func() (string, []string, error) {
		return c.explained(t)
	})
	return nil
}

// crowdLooks runs the checks on the map. On two cores axe-core takes 6 s for it, which one screen
// is worth, and arrow keys to each peer five minutes: layout.test.mjs has that they reach all.
func crowdLooks(t *tab) (value string, bad []string, err error) {
	value, bad, err = t.checkAll("width", "names", "pointer", "markup")
	if err != nil {
		return value, bad, err
	}
	if err := t.use(desk); err != nil {
		return value, bad, err
	}
	found, err := t.check("axe")
	for _, f := range append(found, t.found()...) {
		bad = append(bad, f.String())
	}
	if err != nil {
		return value, bad, err
	}
	w, err := t.walk()
	if err != nil {
		return value, bad, err
	}
	if len(w.missing) != crowded-1 {
		bad = append(bad, fmt.Sprintf("Tab leads past %d controls, not to all but one of the map",
			len(w.missing)))
	}
	if err := t.eval("document.querySelector('.map [tabindex=\"0\"]').focus()", nil); err != nil {
		return value, bad, err
	}
	tabbed := len(w.reached)
	for _, key := range arrows {
		if _, err := w.press(key); err != nil {
			return value, bad, err
		}
	}
	if len(w.reached) == tabbed {
		bad = append(bad, "no arrow key leads from one peer to another")
	}
	return value, bad, nil
}

// explained runs all checks on the explanation.
func (c crowd) explained(t *tab) (_ string, bad []string, err error) {
	if err := t.show("#explain?q=" + url.QueryEscape(c.explanation.Asked.String())); err != nil {
		return "", nil, err
	}
	if err := t.await("it is there", says(c.explanation.Verdict)); err != nil {
		return "", nil, err
	}
	return t.checkAll()
}

// checkAll runs the checks of these names, or with none all of them, on each screen.
func (t *tab) checkAll(chosen ...string) (value string, bad []string, err error) {
	for name, s := range screens {
		if err := t.use(s); err != nil {
			return "", bad, err
		}
		found, err := t.check(chosen...)
		for _, f := range append(found, t.found()...) {
			bad = append(bad, name+": "+f.String())
		}
		if err != nil {
			return "", bad, err
		}
	}
	return fmt.Sprintf("%d looks", len(screens)), bad, nil
}
