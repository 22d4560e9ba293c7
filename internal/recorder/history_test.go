package recorder

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

const ms = fib.Moment(time.Millisecond)

// an incident: host 1 comes, is refused once, and goes; host 2 has no usable next hop.
func incident(t *testing.T, dir string) {
	t.Helper()
	r := newRecorder(t, dir, 1<<20)
	stop := start(t, r)
	block := netip.MustParsePrefix("10.0.0.0/26")
	r.Datastore(time.Now(), &calico.Snapshot{Revision: 7, Blocks: map[netip.Prefix]calico.Block{
		block: {}, netip.MustParsePrefix("10.7.0.0/26"): {}}})
	r.Datastore(time.Now(), &calico.Snapshot{Revision: 8,
		Blocks: map[netip.Prefix]calico.Block{}})
	until(t, func() bool { return r.Stats().Written > 1 })
	one, two := host(1), host(2)
	via := []route.Path{{NextHop: netip.MustParseAddr("10.0.0.2"), Interface: "tap0", Weight: 1}}
	batch := uint64(0)
	ask := func(at, queued fib.Moment, err string, k route.Key, digest uint64) {
		batch++
		r.Sent(fib.Batch{Number: batch, At: at, Ops: slices.Values([]fib.BatchOp{
			{Key: host(9), Digest: 1, Queued: at}, {Key: k, Digest: digest, Queued: queued}})})
		b := fib.BatchResult{Number: batch, At: at + ms}
		if err != "" {
			b.Failed = []fib.FailedOp{{Index: 1, Error: err}}
		}
		r.Answered(b)
	}
	r.Candidate(fib.CandidateChange{Key: one, Origin: route.BGP, Paths: via, Preference: 100,
		Received: 10 * ms, At: 11 * ms})
	r.Decided(fib.Decision{Key: one, Origin: route.BGP, Waiting: true, Received: 10 * ms,
		At: 12 * ms})
	r.Decided(fib.Decision{Key: one, Programs: true, Origin: route.BGP, Paths: via,
		Received: 14 * ms, At: 15 * ms})
	ask(16*ms, 15*ms, "no room", one, 1)
	ask(216*ms, 215*ms, "", one, 1)
	r.Candidate(fib.CandidateChange{Key: one, Origin: route.BGP, Received: 300 * ms, At: 300 * ms})
	r.Decided(fib.Decision{Key: one, Received: 300 * ms, At: 301 * ms})
	r.Decided(fib.Decision{Key: two, Origin: route.BGP, Received: 300 * ms, At: 301 * ms})
	ask(301*ms, 301*ms, "", one, 0)
	stop()
}

func TestHistory(t *testing.T) {
	dir := t.TempDir()
	incident(t, dir)
	var got []string
	problems, err := History(dir, host(1).Prefix, func(k route.Key) bool { return k == host(1) },
		func(s Step) error {
			got = append(got, fmt.Sprintf("%s %.3f %s", s.Step, s.Seconds, s.Text))
			return nil
		})
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	want := []string{
		"start 0.000 vpp-route-agent v1 starts on node-1",
		"datastore 0.000 block 10.0.0.0/26: {",
		"datastore 0.000 block 10.0.0.0/26 is gone",
		"wanted 0.001 bgp: via 10.0.0.2 tap0 local-pref 100",
		"decided 0.002 stays as it is",
		"decided 0.001 via 10.0.0.2 tap0 of bgp",
		"sent 0.001 put", "answered 0.001 no room",
		"sent 0.001 put", "answered 0.001 done",
		"wanted 0.000 bgp: nothing", "decided 0.001 nothing",
		"sent 0.000 delete", "answered 0.001 done",
	}
	if !slices.EqualFunc(got, want, func(a, b string) bool {
		return a == b || strings.HasSuffix(b, "{") && strings.HasPrefix(a, b)
	}) {
		t.Errorf("history is\n%s\ninstead of\n%s", strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
}

// The history of a prefix that flaps takes no more memory than that of another.
func TestHistoryOfFlaps(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir, 64<<20)
	stop := start(t, r)
	const flaps = 200_000
	for i := range flaps {
		r.Decided(fib.Decision{Key: host(1), Programs: i%2 == 0, Kind: route.Drop,
			At: fib.Moment(i + 1)})
		if i%10_000 == 0 {
			until(t, written(r, uint64(i+1)))
		}
	}
	stop()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	n, before, most := 0, heap(), int64(0)
	for _, read := range []func() error{
		func() error {
			_, err := History(dir, host(1).Prefix, func(route.Key) bool { return true },
				func(Step) error {
					if n++; n%50_000 == 0 {
						most = max(most, heap()-before)
					}
					return nil
				})
			return err
		},
		func() error {
			_, err := Dump(dir, Selection{}, func(Dumped) error {
				if n++; n%50_000 == 0 {
					most = max(most, heap()-before)
				}
				return nil
			})
			return err
		},
	} {
		if err := read(); err != nil || n < flaps || most > 4<<20 {
			t.Errorf("%d of %d were read with %d bytes, %v", n, flaps, most, err)
		}
		n = 0
	}
}

func TestTrace(t *testing.T) {
	dir := t.TempDir()
	incident(t, dir)
	all, problems, err := Trace(dir, 2, time.Now().Add(-time.Hour))
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	var got []string
	for _, c := range all {
		got = append(got, fmt.Sprintf("%v %.3f = %.3f + %.3f + %.3f, %t, %d %q", c.Prefix,
			c.Seconds, c.Decide, c.Wait, c.Answer, c.Deletes, c.Tries, c.Refuse))
	}
	want := []string{
		`10.0.0.1/32 0.207 = 0.005 + 0.201 + 0.001, false, 2 "no room"`,
		`10.0.0.1/32 0.002 = 0.001 + 0.000 + 0.001, true, 1 ""`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if all, _, _ := Trace(dir, 2, time.Now().Add(time.Hour)); len(all) > 0 {
		t.Errorf("later than now there was %v", all)
	}
}

// A change begins with its own decision: not with one that was refused and given up, nor with one
// that came after it was sent, nor before a gap.
func TestTraceOfWhatWasGivenUp(t *testing.T) {
	dir := t.TempDir()
	r := newRecorder(t, dir, 1<<20)
	stop := start(t, r)
	hour := fib.Moment(time.Hour)
	decide := func(at fib.Moment, programs bool) {
		r.Decided(fib.Decision{Key: host(1), Programs: programs, Kind: route.Drop,
			Received: at - ms, At: at})
	}
	send := func(number uint64, at fib.Moment) {
		r.Sent(fib.Batch{Number: number, At: at, Ops: slices.Values([]fib.BatchOp{
			{Key: host(1), Digest: 1, Queued: at}})})
	}
	decide(10*ms, true)
	send(1, 11*ms)
	r.Answered(fib.BatchResult{Number: 1, At: 12 * ms,
		Failed: []fib.FailedOp{{Error: "no room"}}})
	decide(20*ms, false) // nothing is to be done
	decide(hour, true)
	send(2, hour+ms)
	decide(hour+2*ms, true)
	r.Answered(fib.BatchResult{Number: 2, At: hour + 4*ms})
	send(3, hour+5*ms)
	r.Answered(fib.BatchResult{Number: 3, At: hour + 6*ms})
	decide(hour+7*ms, true)
	r.mu.Lock()
	r.queue.dropped = 1
	r.mu.Unlock()
	send(4, 2*hour)
	r.Answered(fib.BatchResult{Number: 4, At: 2*hour + ms})
	stop()
	all, _, err := Trace(dir, 9, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range all {
		got = append(got, fmt.Sprintf("%.3f + %.3f + %.3f, %d %q", c.Decide, c.Wait, c.Answer,
			c.Tries, c.Refuse))
	}
	want := []string{`0.001 + 0.001 + 0.003, 1 ""`, `0.001 + 0.003 + 0.001, 1 ""`,
		`0.000 + 0.000 + 0.001, 1 ""`}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}
