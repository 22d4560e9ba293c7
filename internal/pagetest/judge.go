package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
)

// views are the fragments of the page, with something to show of the small scene.
var views = []string{"#peers", "#routes", "#explain?q=10.1.0.64%2F26", "#rates", "#conditions"}

// heardOf are the checks of what a page does, beside those of what is on the screen.
var heardOf = []string{"console", "CSP", "request"}

// judge proves the page. The agent of the large scene is measured while the small one is looked at;
// first paints come after both.
func (h *harness) judge(small, large, empty *scene) error {
	var group errgroup.Group
	group.Go(func() error { return h.judgeSmall(small) })
	group.Go(func() error { return h.judgeLarge(large) })
	if err := group.Wait(); err != nil {
		return err
	}
	return errors.Join(h.judgeCrowd(), h.firstPaint(large, empty), h.pictures(small))
}

func (h *harness) judgeSmall(s *scene) error {
	h.results.step("broken pages are found out", func() (string, []string, error) {
		return fmt.Sprintf("%d pages", len(broken)), nil, h.browser.selfTest(h.ctx)
	})
	origin, err := h.browser.reach(s.agent)
	if err != nil {
		return err
	}
	if err := h.look(origin); err != nil {
		return err
	}
	return h.use(s, origin)
}

// look runs all checks on each view, in light, dark and on a phone.
func (h *harness) look(origin string) error {
	found, looks := map[string][]string{}, 0
	for name, s := range screens {
		t, err := h.browser.open(h.ctx, s)
		if err != nil {
			return err
		}
		for i, view := range views {
			where := name + " " + view + ": "
			if i == 0 {
				err = t.load(origin, view)
			} else {
				err = t.show(view)
			}
			if err != nil {
				found["every view is painted"] = append(found["every view is painted"],
					where+err.Error())
				continue
			}
			looks++
			all, err := t.check()
			if err != nil {
				return errors.Join(fmt.Errorf("%s%w", where, err), t.close())
			}
			for _, f := range append(all, t.found()...) {
				found[f.check] = append(found[f.check], where+f.text)
			}
		}
		if err := t.close(); err != nil {
			return err
		}
	}
	names := append([]string{"every view is painted"}, heardOf...)
	for _, c := range checks {
		names = append(names, c.name)
	}
	for _, name := range names {
		h.results.add(result{name: name, value: fmt.Sprintf("%d looks", looks), bad: found[name]})
	}
	return nil
}

// use does what people do with the page, in one document.
func (h *harness) use(s *scene, origin string) error {
	t, err := h.browser.open(h.ctx, desk)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.load(origin, "#peers"); err != nil {
		return err
	}
	before := t.documents()
	for _, x := range []struct {
		name string
		do   func(*tab, *scene) (string, []string, error)
	}{
		{"headers", headers},
		{"a peer's hostile text is text", hostileText},
		{"a hostile search is text", hostileSearch},
		{"a dialog is for everybody", dialog},
		{"a click explains as the command does", h.explains},
		{"an address that names no view changes nothing", noView},
		{"a question that failed is asked again", askedAgain},
		{"a tab that was hidden is live again", hiddenTab},
		{"a new peer leaves the focus on the map", h.newPeer},
		{"a peer that is lost is shown", h.peerLost},
		{"a drain is shown", h.drained},
		{"an agent that is gone is shown, and is back", h.agentGone},
	} {
		h.results.step(x.name, func() (string, []string, error) {
			value, bad, err := x.do(t, s)
			for _, f := range t.found() {
				bad = append(bad, f.String())
			}
			return value, bad, err
		})
	}
	h.results.step("nothing was loaded anew", func() (value string, bad []string, err error) {
		if n := t.documents() - before; n != 0 {
			bad = append(bad, fmt.Sprintf("%d times", n))
		}
		return "", bad, nil
	})
	return nil
}

// headers are those of the page itself.
func headers(t *tab, _ *scene) (_ string, bad []string, err error) {
	got := map[string]string{}
	if err := t.eval("fetch('/').then(r => Object.fromEntries(r.headers))", &got); err != nil {
		return "", nil, err
	}
	for _, directive := range soundPolicy {
		policy := "; " + got["content-security-policy"] + ";"
		if !strings.Contains(policy, "; "+directive+";") {
			bad = append(bad, fmt.Sprintf("the policy lacks %s: %s", directive, policy))
		}
	}
	for name, want := range map[string]string{
		"x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
	} {
		if got[name] != want {
			bad = append(bad, fmt.Sprintf("%s is %q", name, got[name]))
		}
	}
	return "", bad, nil
}

// hostileText: what a peer says of itself, and what Calico's data say, is shown as it is.
func hostileText(t *tab, _ *scene) (_ string, bad []string, err error) {
	for _, view := range []string{"#peers", "#conditions"} {
		if err := t.show(view); err != nil {
			return "", bad, err
		}
		if err := t.await(view+" has the hostile text", says(hostile)); err != nil {
			return "", bad, err
		}
		found, err := markup(t)
		if bad = append(bad, found...); err != nil {
			return "", bad, err
		}
	}
	return "", bad, nil
}

// hostileSearch: the agent may refuse it.
func hostileSearch(t *tab, _ *scene) (_ string, bad []string, err error) {
	t.setFailing(true)
	defer t.setFailing(false)
	for _, view := range []string{"#routes", "#explain"} {
		if err := t.show(view + "?q=" + url.QueryEscape(hostile)); err != nil {
			return "", bad, err
		}
		found, err := markup(t)
		if bad = append(bad, found...); err != nil {
			return "", bad, err
		}
	}
	return "", bad, nil
}

// dialog: what a click on a peer opens passes the checks, and a key closes it.
func dialog(t *tab, _ *scene) (_ string, bad []string, err error) {
	if err := t.show("#peers"); err != nil {
		return "", nil, err
	}
	if err := t.click("document.querySelector('main tbody button')"); err != nil {
		return "", nil, err
	}
	if err := t.await("a dialog is open", "document.querySelector('dialog[open]')"); err != nil {
		return "", nil, err
	}
	found, err := t.check("axe", "names", "keyboard")
	for _, f := range found {
		bad = append(bad, f.String())
	}
	if err == nil {
		err = t.press("Escape")
	}
	if err == nil {
		err = t.await("the dialog is closed", "!document.querySelector('dialog[open]')")
	}
	return "", bad, err
}

// explained is a prefix of the small scene.
const explained = "10.1.0.64/26"

// explains: a click on a route shows the verdict of the command.
func (h *harness) explains(t *tab, s *scene) (string, []string, error) {
	said, err := exec.CommandContext(h.ctx, s.agent.Binary, "explain", explained,
		"--admin-socket", s.agent.Socket).Output()
	if err != nil {
		return "", nil, err
	}
	verdict := firstLine(string(said))
	if err := t.show("#routes"); err != nil {
		return "", nil, err
	}
	route := `[...document.querySelectorAll('main a, main button')].find(e => e.textContent.trim()
		=== ` + quote(explained) + ")"
	if err := t.await("the route is listed", route); err != nil {
		return "", nil, err
	}
	if err := t.click(route); err != nil {
		return "", nil, err
	}
	if err := t.painted("#explain"); err != nil {
		return "", nil, err
	}
	return verdict, nil, t.await("the page has the verdict "+verdict, says(verdict))
}

// noView: a fragment may have the name of what every object in JavaScript has.
func noView(t *tab, _ *scene) (_ string, bad []string, err error) {
	if err := t.show("#conditions"); err != nil {
		return "", nil, err
	}
	var view string
	err = t.eval(`new Promise(done => {
		addEventListener("hashchange", () => done(document.documentElement.dataset.view),
			{once: true});
		location.hash = "#constructor";
	})`, &view)
	if view != "conditions" {
		bad = append(bad, "it shows "+view)
	}
	return "", bad, err
}

// askedAgain loses the answer to a search.
func askedAgain(t *tab, _ *scene) (string, []string, error) {
	t.setFailing(true)
	defer t.setFailing(false)
	again := `[...document.querySelectorAll('main button')].find(b =>
		b.innerText === 'Ask again' && b.checkVisibility())`
	block := func(urls ...string) error {
		return t.call("Network.setBlockedURLs", object{"urls": append([]string{}, urls...)}, nil)
	}
	err := t.show("#routes")
	if err == nil {
		err = block("*/page/routes*")
	}
	if err == nil {
		err = t.eval(`void(location.hash = "#routes?q=`+url.QueryEscape(explained)+`")`, nil)
	}
	if err == nil {
		err = t.await("the page says that there is no answer", again)
	}
	if err == nil {
		err = block()
	}
	if err == nil {
		err = t.click(again)
	}
	if err == nil {
		err = t.await("the answer is there", "!"+again+` &&
			document.activeElement.id === 'routes-title' &&
			document.querySelectorAll('main tbody tr').length === 1`)
	}
	return "", nil, err
}

// hiddenTab: its link is let go, and comes back as soon as it is seen.
func hiddenTab(t *tab, s *scene) (string, []string, error) {
	turn := func(to string) error {
		return t.eval(`Object.defineProperty(document, 'visibilityState',
			{value: `+quote(to)+`, configurable: true}),
			void(document.dispatchEvent(new Event('visibilitychange')))`, nil)
	}
	link := "document.getElementById('link-text').innerText === "
	err := t.await("the agent answers", link+"'Live'")
	if err == nil {
		err = turn("hidden")
	}
	if err == nil {
		err = t.await("the link is let go", link+"'Connecting'")
	}
	if err == nil {
		err = turn("visible")
	}
	if err == nil {
		err = t.await("the agent answers again", link+"'Live'")
	}
	return "", nil, err
}

// newPeer has the map drawn anew while one on it has the focus.
func (h *harness) newPeer(t *tab, s *scene) (string, []string, error) {
	if err := t.show("#peers"); err != nil {
		return "", nil, err
	}
	focus := `document.activeElement.getAttribute('aria-label')?.startsWith('node-3,')`
	err := t.eval(`document.querySelector('.map [aria-label^="node-3,"]').focus()`, nil)
	if err == nil {
		err = t.await("it has the focus", focus)
	}
	if err == nil {
		err = s.Data.AddNode(h.ctx, "node-5", pfx("192.168.4.15/24"))
	}
	if err != nil {
		return "", nil, err
	}
	return "", nil, t.await("the new peer is on the map, and the focus where it was",
		`document.querySelector('.map [aria-label^="node-5,"]') && `+focus)
}

// sessionOf is the text of a peer's row.
func sessionOf(address string) string {
	return `[...document.querySelectorAll('main tbody tr')].find(r => r.innerText.split(/\s+/).
		includes(` + quote(address) + `)).innerText`
}

// peerLost kills a BIRD, and starts it again. The row that has the focus moves, and keeps it.
func (h *harness) peerLost(t *tab, s *scene) (string, []string, error) {
	const lost = "192.168.4.13"
	if err := t.show("#peers"); err != nil {
		return "", nil, err
	}
	up := `/^\s*Up/.test(` + sessionOf(lost) + ")"
	down := `/Idle|Active|Connect/.test(` + sessionOf(lost) + ")"
	if err := t.await("the session is up", up); err != nil {
		return "", nil, err
	}
	const held = "192.168.4.12"
	err := t.eval(`[...document.querySelectorAll('main tbody button')].find(b =>
		b.innerText === '`+held+`').focus()`, nil)
	if err != nil {
		return "", nil, err
	}
	if err := s.birds["node-3"].Kill(); err != nil {
		return "", nil, err
	}
	killed := time.Now()
	if err := t.await("the session is down", down); err != nil {
		return "", nil, err
	}
	value := fmt.Sprintf("after %.1f s", time.Since(killed).Seconds())
	rows := `[...document.querySelectorAll('main tbody tr')].map(r => r.innerText)`
	err = t.await("the row that has the focus has moved with it", `(() => {
		const rows = `+rows+`;
		const at = (address) => rows.findIndex(r => r.split(/\s+/).includes(address));
		return document.activeElement.innerText === '`+held+`' && at('`+lost+`') < at('`+held+`');
	})()`)
	if err != nil {
		return value, nil, err
	}
	if err := s.birds["node-3"].Start(h.ctx); err != nil {
		return value, nil, err
	}
	return value, nil, t.await("the session is up again", up)
}

// drained begins a drain and cancels it.
func (h *harness) drained(t *tab, s *scene) (string, []string, error) {
	if err := t.show("#conditions"); err != nil {
		return "", nil, err
	}
	shown := `/\bdraining\b/.test(document.querySelector('main').innerText)`
	var d agent.DrainStatus
	err := s.agent.Post(h.ctx, "/v1/drain", url.Values{"wait": {"10m"}}, &d)
	if err != nil {
		return "", nil, err
	}
	if err := t.await("the drain goes on", shown); err != nil {
		return "", nil, err
	}
	if err := s.agent.Post(h.ctx, "/v1/drain/cancel", nil, &d); err != nil {
		return "", nil, err
	}
	return "", nil, t.await("the drain is over", "!"+shown)
}

// agentGone kills the agent, so that it cannot say good-bye, and starts it again.
func (h *harness) agentGone(t *tab, s *scene) (string, []string, error) {
	gone := `/has not answered/.test(document.body.innerText)`
	if err := t.show("#peers"); err != nil {
		return "", nil, err
	}
	if err := t.await("the agent answers", "!"+gone); err != nil {
		return "", nil, err
	}
	t.setFailing(true)
	if err := s.agent.Signal(syscall.SIGKILL); err != nil {
		return "", nil, err
	}
	killed := time.Now()
	<-s.agent.Done()
	if err := t.await("the page says that the agent is gone", gone); err != nil {
		return "", nil, err
	}
	value := fmt.Sprintf("after %.1f s", time.Since(killed).Seconds())
	if err := s.agent.Start(h.ctx); err != nil {
		return value, nil, err
	}
	started := time.Now()
	err := t.await("the page has the agent again",
		"!"+gone+` && /^\s*Up/.test(`+sessionOf("192.168.4.12")+")")
	t.setFailing(false)
	return fmt.Sprintf("%s, %.1f s", value, time.Since(started).Seconds()), nil, err
}

// judgeLarge takes the agent's time without a page and with one, and searches.
func (h *harness) judgeLarge(s *scene) error {
	origin, err := h.browser.reach(s.agent)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(h.ctx)
	defer stop()
	churn := make(chan error, 1)
	go func() { churn <- s.churn(ctx) }()
	closed, err := h.usage(s)
	if err != nil {
		return err
	}
	t, err := h.browser.open(h.ctx, desk)
	if err != nil {
		return err
	}
	if err := t.load(origin, "#peers"); err != nil {
		return err
	}
	open, err := h.usage(s)
	if err != nil {
		return err
	}
	h.results.step(fmt.Sprintf("search finds one of %d routes", h.routes), func() (
		string, []string, error,
	) {
		return h.search(t)
	})
	if err := t.close(); err != nil {
		return err
	}
	if !h.short { // what the agent does after its start is in the first
		after, err := h.usage(s)
		if err != nil {
			return err
		}
		closed = (closed + after) / 2
	}
	h.results.figure("the agent's time for an open page", open-closed, 5, "% of a core",
		fmt.Sprintf(" (%.3g with, %.3g without)", open, closed))
	stop()
	return <-churn
}

// usage is the share of a core that the agent uses, in per cent.
func (h *harness) usage(s *scene) (float64, error) {
	before, err := s.agent.CPUSeconds()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	select {
	case <-h.ctx.Done():
		return 0, h.ctx.Err()
	case <-time.After(time.Duration(h.pick(30, 15)) * time.Second):
	}
	after, err := s.agent.CPUSeconds()
	return (after - before) / time.Since(began).Seconds() * 100, err
}

// search types a prefix from the middle of all routes, and looks at what else the page does then.
func (h *harness) search(t *tab) (value string, bad []string, err error) {
	want := largeBlock(h.routes/2 + 7).String()
	if err := t.show("#routes"); err != nil {
		return "", nil, err
	}
	if err := t.click("document.querySelector('main input[type=search]')"); err != nil {
		return "", nil, err
	}
	if err := t.write(want); err != nil {
		return "", nil, err
	}
	began := time.Now()
	err = t.await(want+" is listed", `[...document.querySelectorAll('main tbody tr')].
		some(r => r.innerText.split(/\s+/).includes(`+quote(want)+"))")
	if err != nil {
		return "", nil, err
	}
	value = fmt.Sprintf("%s after %.1f s", want, time.Since(began).Seconds())
	if err := t.use(phone); err != nil {
		return value, nil, err
	}
	for _, view := range []string{"#routes", "#peers"} {
		if err := t.show(view); err != nil {
			return value, bad, err
		}
		found, err := t.check("axe", "width", "names")
		for _, f := range append(found, t.found()...) {
			bad = append(bad, view+": "+f.String())
		}
		if err != nil {
			return value, bad, err
		}
	}
	return value, bad, nil
}

// firstPaint compares how long after the address was entered the first data are painted, with
// nothing in the cache, in turn.
func (h *harness) firstPaint(large, empty *scene) error {
	var origins [2]string
	for i, s := range []*scene{large, empty} {
		var err error
		if origins[i], err = h.browser.reach(s.agent); err != nil {
			return err
		}
	}
	for _, view := range []string{"#peers", "#routes"} {
		var times [2][]float64
		for range h.pick(9, 5) {
			for i, origin := range origins {
				took, err := h.paint(origin, view)
				if err != nil {
					return err
				}
				times[i] = append(times[i], took)
			}
		}
		full, none := median(times[0]), median(times[1])
		h.results.figure("first paint of "+view+", against an empty page", full/none, 3, "times",
			fmt.Sprintf(" (%.0f ms, %.0f ms empty)", full, none))
	}
	return nil
}

// paint is the time to the first data, in milliseconds.
func (h *harness) paint(origin, view string) (took float64, err error) {
	t, err := h.browser.open(h.ctx, desk)
	if err != nil {
		return 0, err
	}
	defer t.close()
	if err := t.load(origin, view); err != nil {
		return 0, err
	}
	err = netlab.Await(h.ctx, patience, "the page is painted", func(context.Context) error {
		return t.eval("performance.getEntriesByName('painted')[0].startTime", &took)
	})
	return took, err
}
