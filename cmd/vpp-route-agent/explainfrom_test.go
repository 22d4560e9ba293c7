package main

import (
	"net/netip"
	"strings"
	"testing"

	"vpp-route-agent/internal/agent"
)

// end is an end of a path: fails is the step that does, "" for none, "away" or "refuses" for an
// agent that has not answered.
func end(node, fails string, exports ...agent.ExportStatus) pathEnd {
	switch fails {
	case "away", "refuses":
		return pathEnd{Node: node, Problem: "it " + fails, away: fails == "away"}
	case "":
		return pathEnd{Node: node, Explanation: &agent.Explanation{OK: true, Verdict: "all is well",
			Exports: exports}}
	}
	return pathEnd{Node: node, Explanation: &agent.Explanation{Fails: fails,
		Verdict: fails + " fails", Exports: exports}}
}

// The end that is broken is named, and none where that cannot be known.
func TestJudge(t *testing.T) {
	sent := agent.ExportStatus{Node: "a", Established: true, Accept: true}
	down := agent.ExportStatus{Node: "a", Accept: true}
	deferring := agent.ExportStatus{Node: "a", Established: true, Deferring: true, Accept: true}
	kept := agent.ExportStatus{Node: "a", Established: true, Rule: "rejected by BGPFilter(f)"}
	for name, x := range map[string]struct {
		ends   []pathEnd // from a to b
		ok     bool
		broken string
		want   string // a part of the verdict
	}{
		"well": {[]pathEnd{end("a", ""), end("b", "")}, true, "",
			"get there: a says"},
		"here": {[]pathEnd{end("a", "programmed"), end("b", "")}, false, "a",
			"a is broken: programmed"},
		"there": {[]pathEnd{end("a", ""), end("b", "delivery")}, false, "b",
			"b is broken: delivery"},
		"both": {[]pathEnd{end("a", "now"), end("b", "delivery")}, false, "a",
			"so is b: delivery"},
		"it does not say": {[]pathEnd{end("a", "announcement"), end("b", "withheld")}, false, "b",
			"b is broken: withheld"},
		"not exported": {[]pathEnd{end("a", "ipam"), end("b", "withheld")}, false, "b",
			"b is broken: withheld"},
		"session": {[]pathEnd{end("a", "session"), end("b", "session")}, false, between,
			"the session between the two is down"},
		"one session": {[]pathEnd{end("a", "session"), end("b", "", down)}, false, between,
			"the session between the two is down"},
		"not sent": {[]pathEnd{end("a", "announcement"), end("b", "", kept)}, false, "b",
			"b does not send it to a: rejected by"},
		"not received": {[]pathEnd{end("a", "announcement"), end("b", "", sent)}, false, "a",
			"b sends it, and a does not have it"},
		"restart": {[]pathEnd{end("a", "announcement"), end("b", "", deferring)}, false, "b",
			"b has restarted, and sends it to a once all its peers have sent what they have"},
		"by a reflector": {[]pathEnd{end("a", "announcement"), end("b", "")}, false, between,
			"who should pass it on"},
		"a path elsewhere": {[]pathEnd{end("a", "destination"), end("b", "rival")}, false, "b",
			"b is broken: rival"},
		"far end away": {[]pathEnd{end("a", "session"), end("b", "away")}, false, "b",
			"b is away: a says: session fails"},
		"away, else by what": {[]pathEnd{end("a", "announcement"), end("b", "away")}, false, "",
			"do not get there: a says: announcement fails; b cannot be asked"},
		"only its agent": {[]pathEnd{end("a", ""), end("b", "away")}, false, "",
			"leave as they should, and b cannot be asked"},
		"far end refuses": {[]pathEnd{end("a", "session"), end("b", "refuses")}, false, "",
			"do not get there: a says"},
		"here, and away": {[]pathEnd{end("a", "now"), end("b", "away")}, false, "a",
			"a is broken: now"},
		"near end away": {[]pathEnd{end("a", "away"), end("b", "session")}, false, "a",
			"a is away"},
		"near end refuses": {[]pathEnd{end("a", "refuses"), end("b", "session")}, false, "",
			"do not get there: b says"},
		"near, far broken": {[]pathEnd{end("a", "away"), end("b", "delivery")}, false, "b",
			"b is broken: delivery"},
		"near away, far ok": {[]pathEnd{end("a", "away"), end("b", "")}, false, "",
			"would be taken, and a cannot be asked"},
		"neither": {[]pathEnd{end("a", "away"), end("b", "refuses")}, false, "",
			"a cannot be asked: it away; b cannot"},
		"one node": {[]pathEnd{end("a", "")}, true, "",
			"a says: all is well"},
		"one node, broken": {[]pathEnd{end("a", "delivery")}, false, "a",
			"a is broken: delivery"},
		"one node, away": {[]pathEnd{end("a", "away")}, false, "",
			"a cannot be asked"},
	} {
		p := pathExplanation{Asked: netip.MustParsePrefix("10.1.3.7/32"), From: "a", To: "b",
			Ends: x.ends}
		if len(x.ends) == 1 {
			p.To = ""
		}
		p.judge()
		if p.OK != x.ok || p.Broken != x.broken || !strings.Contains(p.Verdict, x.want) ||
			!strings.HasPrefix(p.Verdict, "packets from a to 10.1.3.7") {
			t.Errorf("%s: %t, %q: %s; want %t, %q: …%s…", name, p.OK, p.Broken, p.Verdict, x.ok,
				x.broken, x.want)
		}
	}
}

// Agents of two versions are named: the older one tells less.
func TestVersionsOfAPath(t *testing.T) {
	a, b := end("a", ""), end("b", "")
	a.Explanation.Version, b.Explanation.Version = "v0.9", "v0.8"
	out := &strings.Builder{}
	p := pathExplanation{From: "a", To: "b", Ends: []pathEnd{a, b}}
	if err := printPath(out, p); err != nil ||
		!strings.Contains(out.String(), "different versions: v0.8, v0.9") {
		t.Errorf("%v:\n%s", err, out)
	}
	b.Explanation.Version, out = "v0.9", &strings.Builder{}
	if err := printPath(out, p); err != nil || strings.Contains(out.String(), "versions") {
		t.Errorf("%v:\n%s", err, out)
	}
}
