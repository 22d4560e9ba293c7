package recorder

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// dumped returns a dump as lines, without the times of day and what depends on them.
func dumped(t *testing.T, dir string, s Selection) (lines []string, problems []error) {
	t.Helper()
	times := regexp.MustCompile(`"(at|process|began)":"[^"]*",?`)
	problems, err := Dump(dir, s, func(d Dumped) error {
		text, err := json.Marshal(d)
		lines = append(lines, times.ReplaceAllString(string(text), ""))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, problems
}

// Each object of a dump is as docs/recorder.md says.
func TestDumpOfPrefix(t *testing.T) {
	dir := t.TempDir()
	incident(t, dir)
	about := Selection{About: func(k route.Key) bool { return k == host(1) }}
	got, problems := dumped(t, dir, about)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	key := `"prefix":"10.0.0.1/32",`
	via := `"paths":[{"nextHop":"10.0.0.2","interface":"tap0","weight":1}]`
	digest := `"digest":"` + regexp.MustCompile(`[0-9a-f]{16}`).FindString(got[3]) + `"}}`
	want := []string{
		`{"record":"segment","data":{"number":1,"node":"node-1","version":"v1",}}`,
		`{"moment":11000000,"record":"wanted","data":{` + key +
			`"received":10000000,"origin":"bgp","kind":"via",` + via + `,"localPreference":100}}`,
		`{"moment":12000000,"record":"decided","data":{` + key +
			`"received":10000000,"programs":false,"waiting":true,"origin":"bgp"}}`,
		`{"moment":15000000,"record":"decided","data":{` + key +
			`"received":14000000,"programs":true,"origin":"bgp","kind":"via",` + via + `,` + digest,
		`{"moment":16000000,"record":"sent","data":{"batch":1,"operations":[{"index":1,` + key +
			`"digest":"0000000000000001","queued":15000000}]}}`,
		`{"moment":17000000,"record":"answered","data":{"batch":1,"failed":[{"index":1,` +
			`"error":"no room"}]}}`,
		`{"moment":216000000,"record":"sent","data":{"batch":2,"operations":[{"index":1,` + key +
			`"digest":"0000000000000001","queued":215000000}]}}`,
		`{"moment":217000000,"record":"answered","data":{"batch":2,"failed":[]}}`,
		`{"moment":300000000,"record":"wanted","data":{` + key +
			`"received":300000000,"origin":"bgp","kind":"via","paths":[]}}`,
		`{"moment":301000000,"record":"decided","data":{` + key +
			`"received":300000000,"programs":false,"origin":"unknown"}}`,
		`{"moment":301000000,"record":"sent","data":{"batch":3,"operations":[{"index":1,` + key +
			`"deletes":true,"queued":301000000}]}}`,
		`{"moment":302000000,"record":"answered","data":{"batch":3,"failed":[]}}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the dump is\n%s\ninstead of\n%s", strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
	about.Since = time.Now().Add(time.Hour)
	if got, _ := dumped(t, dir, about); len(got) > 0 {
		t.Errorf("later than now there was %v", got)
	}
}

// All that is recorded is in a dump, with what a segment begins with as what it is, and where
// records are missing.
func TestDumpHasAll(t *testing.T) {
	dir := t.TempDir()
	incident(t, dir)
	r := newRecorder(t, dir, 1<<20)
	hop := fib.NextHop{Table: 7, Address: netip.MustParseAddr("10.9.9.9")}
	r.Facts(1, route.Facts{Identity: "boot 1"})
	r.Resolved(1, hop, route.Resolution{Usable: true, Interface: "tap0"})
	r.Surroundings(1, fib.Surroundings{})
	w := writer{Recorder: r, inputs: r.inputs} // what a segment begins with
	r.queue = queue{dropped: 3}
	r.Settled(1)
	r.Forgotten(1, fib.NextHop{Address: hop.Address})
	r.Sent(fib.Batch{Number: 1, At: 2, Ops: slices.Values([]fib.BatchOp{
		{Object: &route.ObjectKey{Kind: route.AdminUp, Interface: "tap0"}, Digest: 6}})})
	r.Stands([]fib.CandidateChange{{Key: host(1), Origin: route.Own, Kind: route.Drop, At: 4}},
		fib.Decision{Key: host(1), Programs: true, Kind: route.Drop, At: 5})
	e := r.begin(kindComplete, 6)
	e.uint(2)
	e.uint(1)
	r.end()
	w.ring = newRing(w.cfg, w.began, create)
	w.ring.preamble = w.preamble
	defer w.ring.close()
	waiting := w.take(nil)
	w.block(waiting.block, waiting.records)
	lines, problems := dumped(t, dir, Selection{})
	all := strings.Join(lines, "\n")
	for _, want := range []string{
		`"record":"segment","data":{"number":2,`,
		`"record":"facts","state":true,"data":{"Identity":"boot 1",`,
		`"record":"resolved","state":true,"data":{"table":7,"address":"10.9.9.9",`,
		`"record":"surroundings","state":true,"data":{`,
		`"record":"dropped","data":{"records":3}}`,
		`"record":"settled","data":{}}`,
		`"record":"forgotten","data":{"address":"10.9.9.9"}}`,
		`"record":"sent","data":{"batch":1,"operations":[{"index":0,"object":"` +
			route.ObjectKey{Kind: route.AdminUp, Interface: "tap0"}.String() +
			`","digest":"0000000000000006"}]}}`,
		`"record":"wantedStands","data":{"prefix":"10.0.0.1/32","origin":"own","kind":"drop",`,
		`"record":"decidedStands","data":{"prefix":"10.0.0.1/32","programs":true,`,
		`"record":"complete","data":{"segment":2,"keys":1}}`,
		`"record":"datastore","data":{"set":{"`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is not in the dump:\n%s", want, all)
		}
	}
	if len(problems) > 0 || strings.Contains(all, `"missing"`) {
		t.Errorf("problems %v in\n%s", problems, all)
	}

	path := filepath.Join(dir, "0000000001.rec")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole[len(whole)-1] ^= 1
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged, problems := dumped(t, dir, Selection{})
	i := slices.Index(damaged, `{"record":"missing"}`)
	if len(problems) != 1 || i < 1 || !strings.Contains(damaged[i+1], `"number":2`) {
		t.Errorf("problems %v, line %d says that records are missing", problems, i)
	}
	enough := errors.New("enough")
	if _, err := Dump(dir, Selection{}, func(Dumped) error { return enough }); err != enough {
		t.Errorf("an error of the reader became %v", err)
	}
}
