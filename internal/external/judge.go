package external

import (
	"fmt"
	"net/netip"
	"slices"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// mustPrefix is for messages that passed check.
func mustPrefix(text string) netip.Prefix {
	p, _ := route.Normalize(netip.MustParsePrefix(text))
	return p
}

// Facts is how the data plane stands to a plan.
type Facts struct {
	// Away says why the data plane does not answer; "": it does.
	Away string
	// Entries are those of Plan.Keys, in their order; nil: the plan has not been taken in yet.
	Entries []fib.Entry
}

// Judge returns a verdict for each item, by rank of its source, then by key.
func Judge(p Plan, f Facts) []Verdict {
	entries := make(map[route.Key]fib.Entry, len(f.Entries))
	for _, e := range f.Entries {
		k := e.Key
		k.Elevated = false
		entries[k] = e
	}
	out := make([]Verdict, len(p.items))
	for i := range p.items {
		out[i] = p.items[i].judge(f, entries)
	}
	return out
}

func (p *planned) judge(f Facts, entries map[route.Key]fib.Entry) Verdict {
	v := Verdict{Source: p.source, Key: p.item.Key, Revision: p.item.Revision}
	if p.item.Message != nil {
		v.Canonical = canonicalKey(p.item.Message)
	}
	switch {
	case !p.item.Problem.ok():
		v.State, v.LastGood = p.item.Problem.State, p.item.Message != nil
		v.say(p.item.Problem.Detail)
	case !p.problem.ok():
		v.State = p.problem.State
		v.say(p.problem.Detail)
	case len(p.missing) > 0:
		v.State, v.Details = Pending, slices.Clone(p.missing)
	case f.Away != "":
		v.State = Pending
		v.say(f.Away)
	case p.isRoute:
		e, found := entries[p.key]
		p.judgeRoute(&v, e, found)
	}
	return v
}

func (v *Verdict) say(format string, args ...any) {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	v.Details = append(v.Details, format)
}

// judgeRoute goes by what the FIB says of the prefix.
func (p *planned) judgeRoute(v *Verdict, e fib.Entry, found bool) {
	v.State = Pending
	if !found || e.State == fib.Any || e.State == fib.Pending || e.State == fib.Deleting ||
		e.State == fib.Held {
		v.Unfinished = true
		v.say("the data plane has not acknowledged it yet")
		return
	}
	if e.Origin != route.External {
		v.say("a route of origin %v goes first", e.Origin)
		return
	}
	switch e.State {
	case fib.Programmed:
		if e.Reason != (fib.Reason{}) && !p.isAmong(e.Paths) {
			v.refuse(e.Reason)
			return
		}
		v.State = Configured
	case fib.Shadowed:
		v.say("a route of %s goes first in the data plane", e.By)
	case fib.Failed:
		v.State, v.Attempts = Retrying, e.Attempts
		v.say(e.Error)
	case fib.Drifted:
		v.State = Retrying
		v.say("another program changed it in the data plane")
	case fib.Unusable:
		v.refuse(e.Reason)
	}
}

func (v *Verdict) refuse(why fib.Reason) {
	if !why.Waits() {
		v.State = Failed
	}
	v.say(why.String())
}

// isAmong reports whether the path of p is one of those that are programmed. They have interfaces
// where p leaves them open.
func (p *planned) isAmong(paths []route.Path) bool {
	return p.kind != route.Via || slices.ContainsFunc(paths, func(q route.Path) bool {
		return p.path.NextHop == q.NextHop &&
			(p.path.Interface == "" || p.path.Interface == q.Interface)
	})
}
