package agent

import (
	"cmp"
	"fmt"
	"net/netip"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

func (x *explainer) checkDataplane() (string, bool) {
	name := map[string]string{"vpp": "VPP", "kernel": "Linux"}[x.dataplane]
	switch {
	case x.noFIB:
		return "none (--dataplane none): nothing is programmed", true
	case x.facts.Identity == "":
		return fmt.Sprintf("%s is away: %s", name, cmp.Or(x.facts.Problem, "it has not answered")),
			false
	}
	return cmp.Or(x.facts.Problem, x.facts.Version+" is there"), true
}

// wanted returns the longest route that a source wants for what is asked, nil if there is none.
func (x *explainer) wanted() *fib.Account {
	for i := range x.accounts {
		if len(x.accounts[i].Claims) > 0 || x.accounts[i].State == fib.Pending {
			return &x.accounts[i]
		}
	}
	return nil
}

// checkRejected is about paths that are accepted and not chosen, since the data plane cannot use
// their next hops.
func (x *explainer) checkRejected() (string, bool) {
	h := x.unheard()
	if h == nil {
		return "", true
	}
	for _, r := range h.Received {
		if r.Accepted == nil {
			continue
		}
		for _, hop := range x.unusable {
			in := hop.Pool == nil || route.Inside(h.Prefix, *hop.Pool)
			if r.Rejected && in && hop.Address == r.Accepted.NextHop {
				return hop.Reason + x.downInterface(hop.Address), false
			}
		}
		if r.Rejected {
			return fmt.Sprintf("next hop %s cannot be used", r.Accepted.NextHop), false
		}
	}
	return "", true
}

// downInterface names an interface that is down and would lead to a next hop.
func (x *explainer) downInterface(hop netip.Addr) string {
	for _, i := range x.facts.Interfaces {
		for _, a := range i.Addresses {
			if !i.Up && a.Masked().Contains(hop) {
				return fmt.Sprintf("; interface %s, which has %s, is down", i.Name, a.Masked())
			}
		}
	}
	return ""
}

// checkTunnel is about the tunnels that a pool needs.
func (x *explainer) checkTunnel() (string, bool) {
	pool := x.plan.Encapsulation.PoolOf(x.asked)
	if pool == nil || pool.Encap == route.Plain || pool.Felix {
		return "", true
	}
	for _, t := range x.tunnels {
		text := fmt.Sprintf("the %s tunnel to %s (%s) is %s", t.Encapsulation,
			cmp.Or(t.Node, "a node"), t.OuterDestination, t.State)
		if t.Encapsulation != pool.Encap {
			continue
		}
		if t.Reason != "" {
			text += ": " + t.Reason
		}
		return text, t.State == fib.Programmed.String()
	}
	return "", true
}

// checkLeftOver is about what an earlier run left, and no source has wanted since.
func (x *explainer) checkLeftOver() (string, bool) {
	w := x.wanted()
	for _, a := range x.accounts {
		if a.State == fib.Held && (w == nil || w.Key.Prefix.Bits() < a.Key.Prefix.Bits()) {
			text := fmt.Sprintf("an earlier run left %s, no source wants it now, and the sweep "+
				"will delete it: %s", a.Key, cmp.Or(x.sweepWaits, "in a moment"))
			return text + x.downSessions(), false
		}
	}
	return "", true
}

func (x *explainer) checkGuard() (string, bool) {
	if w := x.wanted(); w != nil && w.Reason.Kept() {
		return w.Reason.String(), false
	}
	return "", true
}

func (x *explainer) checkSelection() (string, bool) {
	w := x.wanted()
	switch {
	case x.noFIB:
		return "", true
	case w == nil && x.match != nil && x.match.Usable:
		return "", true // conclusion says whose route it follows
	case w == nil:
		return "no source has a route that covers it", false
	case w.State == fib.Unusable, w.State == fib.Pending && w.Reason != (fib.Reason{}):
		return fmt.Sprintf("%s of %s: %s%s", w.Key, w.Origin, w.Reason, x.downBehind(w)), false
	}
	text := fmt.Sprintf("%s of %s", w.Key, w.Origin)
	for _, c := range w.Claims {
		if !c.Chosen && c.Origin != w.Origin {
			text += fmt.Sprintf("; it goes before that of %s", c.Origin)
		}
	}
	if w.Reason != (fib.Reason{}) {
		text += "; " + w.Reason.String()
	}
	return text, true
}

// downBehind is downInterface of the next hops of a route.
func (x *explainer) downBehind(a *fib.Account) string {
	for _, c := range a.Claims {
		for _, w := range c.Paths {
			if text := x.downInterface(w.Path.NextHop); text != "" {
				return text
			}
		}
	}
	return ""
}

func (x *explainer) checkProgrammed() (string, bool) {
	w := x.wanted()
	if x.noFIB || w == nil {
		return "", true
	}
	return x.programmed(w)
}

func (x *explainer) programmed(w *fib.Account) (string, bool) {
	since := ""
	if !w.Since.IsZero() {
		since = " since " + w.Since.UTC().Format("2006-01-02 15:04:05") + " UTC"
	}
	switch w.State {
	case fib.Failed:
		return fmt.Sprintf("%s is refused: %s", w.Key, w.Error), false
	case fib.Shadowed:
		return fmt.Sprintf("%s is hidden by a route of %s", w.Key, w.By), false
	case fib.Drifted:
		return fmt.Sprintf("%s was acknowledged, and then found %s", w.Key, w.Drift), false
	case fib.Programmed:
		return fmt.Sprintf("%s is acknowledged%s", w.Key, since), true
	}
	return fmt.Sprintf("%s is %s: the data plane has not acknowledged it", w.Key, w.State), false
}

// checkNow is what the data plane says at this moment.
func (x *explainer) checkNow() (string, bool) {
	if x.noFIB {
		return "", true
	}
	w := x.wanted()
	if x.found != nil && w != nil && x.found.key == w.Key {
		if text := x.contradiction(w); text != "" {
			return text, false
		}
	}
	m := x.match
	switch {
	case x.matchError != "":
		return "the data plane does not say: " + x.matchError, true
	case m == nil:
		return "", true
	case !m.Prefix.IsValid():
		return "the data plane has no route to it", w == nil
	case m.Prefix.Bits() > x.asked.Bits():
		return fmt.Sprintf("%s hides a part of it and %s", whose(*m), forwards(*m)),
			m.Usable || m.Ours || !x.owner.Expected.IsValid()
	case w != nil && m.Prefix.Bits() > w.Key.Prefix.Bits():
		return fmt.Sprintf("packets follow %s, which is longer than %s and %s", whose(*m), w.Key,
			forwards(*m)), m.Usable && !x.owner.Expected.IsValid()
	}
	return "the data plane matches " + whose(*m), true
}

// contradiction is what the exact look-up of w's route says, if that is not what was acknowledged.
func (x *explainer) contradiction(w *fib.Account) string {
	text := x.found.differs(*w)
	if text == "" {
		return ""
	}
	return fmt.Sprintf("asked for %s, the data plane answers: %s", w.Key, text)
}

func forwards(r route.Resolution) string {
	if r.Usable {
		return "forwards"
	}
	return "does not forward"
}

// whose names a route of the data plane, for people.
func whose(r route.Resolution) string {
	if r.Ours {
		return "our " + r.Prefix.String()
	}
	return fmt.Sprintf("%s of %s", r.Prefix, r.Owner)
}
