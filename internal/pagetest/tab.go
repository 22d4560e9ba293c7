package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
)

// patience is how long anything may take on a machine that does much else.
const patience = 20 * time.Second

// screen is what a tab is shown on.
type screen struct {
	width, height int
	dark          bool
}

var (
	desk  = screen{width: 1280, height: 800}
	night = screen{width: 1280, height: 800, dark: true}
	phone = screen{width: 360, height: 740}

	screens = map[string]screen{"light": desk, "dark": night, "phone": phone}
)

// tab is a page in a browser context of its own: with nothing in its cache.
type tab struct {
	b       *browser
	ctx     context.Context
	context string
	session string
	origin  string // of the page that it is to show, and of all that this page may ask for
	axeIn   int    // the world that has axe-core; 0: none yet

	mu        sync.Mutex // guards the following
	findings  []finding
	failing   bool // requests may: they are no finding
	navigated int  // documents loaded in it
}

// open makes a tab that shows nothing yet.
func (b *browser) open(ctx context.Context, s screen) (t *tab, err error) {
	t = &tab{b: b, ctx: ctx}
	var made struct {
		BrowserContextID, TargetID, SessionID string
	}
	if err := b.call(ctx, "", "Target.createBrowserContext", nil, &made); err != nil {
		return nil, err
	}
	t.context = made.BrowserContextID
	err = b.call(ctx, "", "Target.createTarget",
		object{"url": "about:blank", "browserContextId": t.context}, &made)
	if err == nil {
		err = b.call(ctx, "", "Target.attachToTarget",
			object{"targetId": made.TargetID, "flatten": true}, &made)
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.session = made.SessionID
	b.hear(t.session, t.heard)
	for _, method := range []string{"Page.enable", "Runtime.enable", "Log.enable", "Network.enable",
		"Audits.enable", "DOM.enable", "Accessibility.enable"} {
		err = errors.Join(err, t.call(method, nil, nil))
	}
	// Several tabs are open at a time, each with its own focus.
	focus := t.call("Emulation.setFocusEmulationEnabled", object{"enabled": true}, nil)
	if err = errors.Join(err, focus, t.use(s)); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tab) call(method string, params object, out any) error {
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	return t.b.call(ctx, t.session, method, params, out)
}

// use shows the tab on another screen.
func (t *tab) use(s screen) error {
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	return errors.Join(
		t.call("Emulation.setDeviceMetricsOverride", object{"width": s.width, "height": s.height,
			"deviceScaleFactor": 1, "mobile": s.width < 600}, nil),
		t.call("Emulation.setEmulatedMedia", object{"features": []object{
			{"name": "prefers-color-scheme", "value": scheme},
			{"name": "prefers-reduced-motion", "value": "reduce"}, // pictures are of the end
		}}, nil))
}

// close also ends the browser context.
func (t *tab) close() error {
	t.b.hear(t.session, nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), 5*time.Second)
	defer cancel()
	return t.b.call(ctx, "", "Target.disposeBrowserContext",
		object{"browserContextId": t.context}, nil)
}

// heard takes down what a page must not do. The answer to nothing is waited for here.
func (t *tab) heard(m message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f, ok := t.judge(m); ok && !slices.Contains(t.findings, f) {
		t.findings = append(t.findings, f)
	}
}

func (t *tab) judge(m message) (f finding, bad bool) {
	var p struct {
		Type, URL string
		Args      []struct {
			Value       any
			Description string
		}
		Entry            struct{ Source, Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Request struct{ URL string }
		Issue   struct {
			Code    string
			Details struct {
				ContentSecurityPolicyIssueDetails struct{ BlockedURL, ViolatedDirective string }
			}
		}
		Frame struct{ ParentID string }
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		return finding{"console", m.Method + ": " + err.Error()}, true
	}
	switch m.Method {
	case "Page.frameNavigated":
		if p.Frame.ParentID == "" {
			t.navigated++
		}
	case "Runtime.consoleAPICalled":
		var text []string
		for _, a := range p.Args {
			text = append(text, strings.TrimSpace(fmt.Sprint(a.Value, " ", a.Description)))
		}
		return finding{"console", strings.Join(text, " ")}, p.Type == "error" || p.Type == "assert"
	case "Runtime.exceptionThrown":
		return finding{"console", p.ExceptionDetails.Text + " " +
			p.ExceptionDetails.Exception.Description}, true
	case "Log.entryAdded":
		text := p.Entry.Text + " " + p.Entry.URL
		if p.Entry.Source == "network" && t.failing {
			return finding{}, false
		}
		return finding{"console", text}, p.Entry.Level == "error"
	case "Audits.issueAdded":
		csp := p.Issue.Details.ContentSecurityPolicyIssueDetails
		return finding{"CSP", csp.ViolatedDirective + " " + csp.BlockedURL},
			p.Issue.Code == "ContentSecurityPolicyIssue"
	case "Network.requestWillBeSent":
		return finding{"request", p.Request.URL}, !t.own(p.Request.URL)
	case "Network.webSocketCreated":
		return finding{"request", p.URL}, !t.own(p.URL)
	}
	return finding{}, false
}

// own says whether a URL is of the page's origin, or is no request at all.
func (t *tab) own(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == "data" || u.Scheme == "blob" || raw == "about:blank" ||
		u.Scheme+"://"+u.Host == t.origin)
}

// found returns what the page has done so far that it must not, and forgets it.
func (t *tab) found() (all []finding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, t.findings = t.findings, nil
	return all
}

// setFailing says whether requests may fail from now on, which Chromium puts on the console.
func (t *tab) setFailing(may bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failing = may
}

func (t *tab) documents() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.navigated
}

// eval is the value of an expression in the page, or what its promise comes to.
func (t *tab) eval(expression string, out any) error { return t.evalIn(0, expression, out) }

// evalIn evaluates in a world that sees the same document; 0: the page's.
func (t *tab) evalIn(world int, expression string, out any) error {
	raw, err := t.evaluate(expression, world, true)
	if err != nil || out == nil {
		return err
	}
	if raw.Value == nil {
		return fmt.Errorf("%.60s is nothing", expression)
	}
	return json.Unmarshal(raw.Value, out)
}

// remote is a value in the page.
type remote struct {
	Value    json.RawMessage
	ObjectID string
}

func (t *tab) evaluate(expression string, world int, byValue bool) (remote, error) {
	params := object{"expression": expression, "awaitPromise": true, "returnByValue": byValue}
	if world != 0 {
		params["contextId"] = world
	}
	var out struct {
		Result           remote
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := t.call("Runtime.evaluate", params, &out); err != nil {
		return remote{}, err
	}
	if e := out.ExceptionDetails; e != nil {
		return remote{}, fmt.Errorf("%.60s: %s %s", expression, e.Text, e.Exception.Description)
	}
	return out.Result, nil
}

// load opens a view in a new document, and waits until it is painted.
func (t *tab) load(origin, view string) error {
	u, err := url.Parse(origin)
	if err != nil {
		return err
	}
	t.origin, t.axeIn = u.Scheme+"://"+u.Host, 0
	var done struct{ ErrorText string }
	// The same document with another fragment would be no new one.
	if err := t.call("Page.navigate", object{"url": "about:blank"}, nil); err != nil {
		return err
	}
	err = t.call("Page.navigate", object{"url": origin + "/" + view}, &done)
	if err == nil && done.ErrorText != "" {
		err = fmt.Errorf("%s/%s: %s", origin, view, done.ErrorText)
	}
	if err != nil {
		return err
	}
	return t.painted(view)
}

// show changes the view in the same document.
func (t *tab) show(view string) error {
	if err := t.eval("void(location.hash = "+quote(view)+")", nil); err != nil {
		return err
	}
	return t.painted(view)
}

// painted waits until the document says that it shows a view, which is a fragment.
func (t *tab) painted(view string) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(view, "#"), "?")
	return t.await("the view "+name+" is painted",
		"document.documentElement.dataset.view === "+quote(name))
}

// await waits until an expression is true.
func (t *tab) await(what, expression string) error {
	return netlab.Await(t.ctx, patience, what, func(context.Context) error {
		var holds bool
		if err := t.eval("!!("+expression+")", &holds); err != nil {
			return err
		}
		if !holds {
			var text string
			t.eval("document.querySelector('main').innerText", &text) // for people
			return fmt.Errorf("the page says: %.1000s", strings.Join(strings.Fields(text), " "))
		}
		return nil
	})
}

// says is an expression: the page shows a text, wherever its lines break.
func says(text string) string {
	return "document.body.innerText.replace(/\\s+/g, ' ').includes(" +
		quote(strings.Join(strings.Fields(text), " ")) + ")"
}

// quote is a string in JavaScript.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("pagetest: a string that is none: " + err.Error())
	}
	return string(text)
}

// keyCodes are those of the keys that are pressed (UI Events KeyboardEvent key and code values).
var keyCodes = map[string]int{"Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38,
	"ArrowRight": 39, "ArrowDown": 40}

// press types a key that is no character.
func (t *tab) press(key string) error {
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		err := t.call("Input.dispatchKeyEvent", object{"type": kind, "key": key, "code": key,
			"windowsVirtualKeyCode": keyCodes[key]}, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// click presses the mouse on the element that an expression yields.
func (t *tab) click(element string) error {
	var at struct{ X, Y float64 }
	err := t.eval(`(() => {
		const e = `+element+`;
		e.scrollIntoView({block: 'center'});
		const r = e.getBoundingClientRect();
		return {x: r.x + r.width / 2, y: r.y + r.height / 2};
	})()`, &at)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		if err == nil {
			err = t.call("Input.dispatchMouseEvent", object{"type": kind, "x": at.X, "y": at.Y,
				"button": "left", "clickCount": 1}, nil)
		}
	}
	return err
}

// write types text where the focus is.
func (t *tab) write(text string) error {
	return t.call("Input.insertText", object{"text": text}, nil)
}
