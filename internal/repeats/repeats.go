// Package repeats collapses what a log says again and again: the first line of a condition is
// written at once, and what follows is counted and written once a minute, as its last line with
// the number. It owns nothing but these counts, knows no package of ours, and may wrap any
// slog.Handler.
//
// A condition is a level, a message and attributes. Attributes that name a thing (naming) count as
// they are. Of other texts, such as errors, what is a number, a time or a duration is taken for
// the same, and numbers by themselves do not count. docs/logging.md says it to operators.
package repeats

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	// Window is how long a condition is silent after each of its lines, but for its number.
	Window = time.Minute
	// maxAlike bounds the conditions of a message about one peer and component: a peer that sends
	// a thousand bad prefixes gets as many lines, and one that counts the others.
	maxAlike = 32
	// maxConditions bounds all of them.
	maxConditions = 4096
	// maxText bounds what is kept of a text, in bytes.
	maxText = 1024
)

// about are the attributes that stand for someone or something of our own configuration: each has
// its own share of conditions.
var about = map[string]bool{"component": true, "source": true, "dataplane": true, "peer": true}

// naming are those that name a thing, besides about.
var naming = map[string]bool{"call": true, "interface": true, "key": true, "lease": true,
	"next_hop": true, "node": true, "object": true, "path": true, "prefix": true,
	"resource": true, "secret": true}

// Handler is a slog.Handler in front of another.
type Handler struct {
	next slog.Handler
	all  *conditions // shared by all that are derived from one
	with []slog.Attr // that the logger has
}

// conditions are those of the last Window.
type conditions struct {
	mu     sync.Mutex // held while counted lines are written: their values are texts
	seed   maphash.Seed
	groups map[uint64]*group // by what they are about, as identify has it
	count  int               // of conditions, in all groups
	timer  *time.Timer
	ended  bool
}

// group has the conditions of a level and message about one thing.
type group struct {
	conditions map[uint64]*condition
	others     *condition // what had no room; nil: nothing
	latest     *condition // of which a line came last; nil: it is not known any more
}

// condition is one of which a line was written.
type condition struct {
	written time.Time
	counted int         // lines since
	last    slog.Record // the last of them
	by      slog.Handler
	others  bool // it stands for what had no room
}

// New returns a handler that hands lines on to next.
func New(next slog.Handler) *Handler {
	return &Handler{next: next, all: &conditions{seed: maphash.MakeSeed(),
		groups: map[uint64]*group{}}}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{next: h.next.WithAttrs(attrs), all: h.all,
		with: slices.Concat(h.with, attrs)}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), all: h.all, with: h.with}
}

// Handle implements slog.Handler. Lines of level Debug and below are all written: who asks for them
// wants to see each.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level <= slog.LevelDebug {
		return h.next.Handle(ctx, r)
	}
	// The values of attributes may take locks under which others log: no lock is held for them.
	text := kept(r)
	thing, what := h.identify(text)
	if !h.all.isFirst(thing, what, text, h.next) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// isFirst counts a line of a known condition, and reports whether it is one of another.
func (a *conditions) isFirst(thing, what uint64, text slog.Record, by slog.Handler) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return true
	}
	c, g := a.find(thing, what)
	if c != nil {
		c.counted++
		c.last, c.by = text, by
		g.latest = c
		return false
	}
	if g.latest != nil {
		g.latest.write(time.Now()) // it has changed
	}
	a.add(g, what)
	if a.timer == nil {
		a.timer = time.AfterFunc(Window, a.sweep)
	}
	return true
}

// identify returns what a line is about, and the rest of its condition.
func (h *Handler) identify(r slog.Record) (thing, what uint64) {
	var t, w strings.Builder
	fmt.Fprint(&t, int(r.Level), masked(r.Message))
	add := func(a slog.Attr) bool {
		v := a.Value.Resolve()
		switch {
		case about[a.Key]:
			fmt.Fprintf(&t, "\x00%s=%s", a.Key, bounded(v.String()))
		case naming[a.Key]:
			fmt.Fprintf(&w, "\x00%s=%s", a.Key, bounded(v.String()))
		case v.Kind() == slog.KindString, v.Kind() == slog.KindAny, v.Kind() == slog.KindBool,
			v.Kind() == slog.KindGroup:
			fmt.Fprintf(&w, "\x00%s=%s", a.Key, masked(v.String()))
		}
		return true
	}
	for _, a := range h.with {
		add(a)
	}
	r.Attrs(add)
	return maphash.String(h.all.seed, t.String()), maphash.String(h.all.seed, w.String())
}

// masked has a # for each number, time, duration and IPv4 address of a text. It takes a few
// nanoseconds a byte: others may have written the text.
func masked(text string) string {
	text = bounded(text)
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		end := i
		for end < len(text) && !strings.ContainsRune(" \t\n,;()[]{}<>\"'=", rune(text[end])) {
			end++
		}
		word := strings.TrimRight(text[i:end], ".:")
		switch {
		case word == "", word[0] == ':': // such as that between an IPv6 address and its port
			word = text[i : i+1]
			out = append(out, word...)
		case isNumber(word):
			out = append(out, '#')
		default:
			out = append(out, word...)
		}
		i += len(word)
	}
	return string(out)
}

// isNumber reports whether a word begins with a digit and has few letters, such as those of a unit
// or of a time, or is a duration. A name, such as node-1, is none.
func isNumber(word string) bool {
	if word == "" || word[0] < '0' || word[0] > '9' {
		return false
	}
	letters := 0
	for _, r := range word {
		if unicode.IsLetter(r) {
			letters++
		}
	}
	_, err := time.ParseDuration(word)
	return letters <= 3 || err == nil || strings.HasPrefix(word, "0x")
}

func bounded(text string) string { return text[:min(len(text), maxText)] }

// kept is a record that holds no more than its text.
func kept(r slog.Record) slog.Record {
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if v := a.Value.Resolve(); v.Kind() == slog.KindAny || v.Kind() == slog.KindString {
			a.Value = slog.StringValue(strings.ToValidUTF8(bounded(v.String()), ""))
		}
		out.AddAttrs(a)
		return true
	})
	return out
}

// find returns the condition that counts a line, or none and the group where it is to be.
func (a *conditions) find(thing, what uint64) (*condition, *group) {
	g := a.groups[thing]
	if g == nil && a.count >= maxConditions {
		thing, what = 0, 0 // things without end
		g = a.groups[thing]
	}
	if g == nil {
		g = &group{conditions: map[uint64]*condition{}}
		a.groups[thing] = g
	}
	if c := g.conditions[what]; c != nil {
		return c, g
	}
	if len(g.conditions) >= maxAlike || a.count >= maxConditions {
		return g.others, g
	}
	return nil, g
}

// add notes a condition of which a line is written now.
func (a *conditions) add(g *group, what uint64) {
	c := &condition{written: time.Now()}
	g.latest = c
	if len(g.conditions) >= maxAlike || a.count >= maxConditions {
		c.others, g.others = true, c
		return
	}
	g.conditions[what] = c
	a.count++
}

// sweep writes what was counted for Window, and forgets what did not come again.
func (a *conditions) sweep() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	now := time.Now()
	var next time.Time
	for thing, g := range a.groups {
		for what, c := range g.conditions {
			if !c.due(now) {
				delete(g.conditions, what)
				a.count--
				g.forget(c)
			}
		}
		if c := g.others; c != nil && !c.due(now) {
			g.others = nil
			g.forget(c)
		}
		for _, c := range g.all() {
			if at := c.written.Add(Window); next.IsZero() || at.Before(next) {
				next = at
			}
		}
		if len(g.conditions) == 0 && g.others == nil {
			delete(a.groups, thing)
		}
	}
	a.timer = nil
	if !next.IsZero() {
		a.timer = time.AfterFunc(next.Sub(now), a.sweep)
	}
}

// due writes what was counted for Window, and reports whether the condition may come again.
func (c *condition) due(now time.Time) bool {
	if now.Sub(c.written) < Window {
		return true
	}
	if c.counted == 0 {
		return false
	}
	c.write(now)
	return true
}

// all are the conditions of a group, the one that was written first first.
func (g *group) all() []*condition {
	var all []*condition
	for _, c := range g.conditions {
		all = append(all, c)
	}
	if g.others != nil {
		all = append(all, g.others)
	}
	slices.SortFunc(all, func(a, b *condition) int { return a.written.Compare(b.written) })
	return all
}

func (g *group) forget(c *condition) {
	if g.latest == c {
		g.latest = nil
	}
}

// write writes the last line with its number, if there is one. Its level may be off by now.
func (c *condition) write(now time.Time) {
	if c.counted == 0 {
		return
	}
	ctx := context.Background()
	if c.by.Enabled(ctx, c.last.Level) {
		number := slog.Int("repeated", c.counted)
		if c.others {
			number = slog.Int("others", c.counted)
		}
		c.last.Time = now
		c.last.AddAttrs(number, slog.Duration("during", now.Sub(c.written).Round(time.Second)))
		_ = c.by.Handle(ctx, c.last) // the log is where errors would go
	}
	c.counted, c.written, c.last, c.by = 0, now, slog.Record{}, nil
}

// End writes what was counted so far. Lines that come later are written as they are.
func (h *Handler) End() {
	a := h.all
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended = true; a.timer != nil {
		a.timer.Stop()
	}
	var left []*condition
	for _, g := range a.groups {
		left = append(left, g.all()...)
	}
	slices.SortFunc(left, func(a, b *condition) int { return a.last.Time.Compare(b.last.Time) })
	for _, c := range left {
		c.write(time.Now())
	}
	a.groups = nil
}
