package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// sound is a page that passes all checks, with places for what breaks it.
const sound = `<!DOCTYPE html>
<html lang="en"><head><title>Sound</title><link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="/style.css"></head>
<body><main><h1>Sound</h1><a href="#there">There</a> <button>Press</button>
<label>Search <input type="search"></label> BROKEN
</main><script src="/script.js"></script></body></html>`

// soundPolicy is what the agent's page has at least.
var soundPolicy = []string{"default-src 'none'", "script-src 'self'", "style-src 'self'",
	"connect-src 'self'", "img-src 'self' data:", "base-uri 'none'", "form-action 'none'",
	"frame-ancestors 'none'"}

// broken are pages each of which one check alone must find; with "" none must.
var broken = []struct {
	check, html, style, script string
	lax                        bool // without the policy, which would keep a request from going out
}{
	{check: ""},
	{check: "axe", html: `<p class="pale">pale</p>`, style: ".pale {color: #aaa}"},
	{check: "width", html: `<p class="wide">wide</p>`, style: ".wide {width: 400px}"},
	{check: "names", html: `<span tabindex="0" role="treeitem"></span>`},
	{check: "keyboard", html: `<button tabindex="-1">Apart</button>`},
	{check: "pointer", html: `<span class="click">Click</span>`, style: ".click {cursor: pointer}"},
	{check: "console", script: `console.error("oops")`},
	{check: "console", script: `setTimeout(() => { throw new Error("oops") })`},
	{check: "CSP", html: `<p style="color: black">inline</p>`},
	{check: "request", script: `fetch("http://127.0.0.2:9/").catch(() => {})`, lax: true},
	{check: "markup", html: `<img src=x alt="" onerror="void 0">`},
}

// selfTest has the checks find what is wrong with broken pages, and nothing wrong with a sound one.
func (b *browser) selfTest(ctx context.Context) error {
	l, err := b.listen()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	served := http.Server{Handler: mux}
	b.wg.Go(func() { served.Serve(l) })
	defer served.Close()
	origin := "http://" + l.Addr().String()
	var errs []error
	for i, page := range broken {
		at := fmt.Sprintf("/%d", i)
		mux.HandleFunc(at+"/", func(w http.ResponseWriter, r *http.Request) {
			text, kind := strings.ReplaceAll(sound, "BROKEN", page.html), "text/html; charset=utf-8"
			switch r.URL.Path {
			case at + "/style.css":
				text, kind = page.style, "text/css"
			case at + "/script.js":
				text, kind = "document.documentElement.dataset.view = 'peers';"+page.script,
					"text/javascript"
			case at + "/":
				text = strings.ReplaceAll(text, `="/s`, `="`+at+`/s`)
				if !page.lax {
					w.Header().Set("Content-Security-Policy", strings.Join(soundPolicy, "; "))
				}
			default:
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, text)
		})
		found, err := b.look(ctx, origin+at)
		kinds := map[string]bool{}
		for _, f := range found {
			kinds[f.check] = true
		}
		if err == nil && (page.check != "" && !kinds[page.check] ||
			page.check == "" && len(found) > 0) {
			err = fmt.Errorf("found %v", found)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("self-test, page %d, which %q must find: %w", i,
				page.check, err))
		}
	}
	return errors.Join(errs...)
}

// look runs all checks on one page.
func (b *browser) look(ctx context.Context, origin string) (found []finding, err error) {
	t, err := b.open(ctx, phone)
	if err != nil {
		return nil, err
	}
	defer t.close()
	if err := t.load(origin, "#peers"); err != nil {
		return nil, err
	}
	found, err = t.check()
	return append(found, t.found()...), err
}
