package fib

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/route"
)

// listener is a Recorder that prints what it hears.
type listener struct {
	began time.Time

	mu      sync.Mutex // guards what follows
	lines   []string
	batches map[uint64][]BatchOp
	around  Surroundings
	facts   int
}

func newListener() *listener {
	return &listener{began: time.Now().Add(-time.Second), batches: map[uint64][]BatchOp{}}
}

func (l *listener) At(t time.Time) Moment { return Moment(t.Sub(l.began)) }

func (l *listener) say(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *listener) locked() func() {
	l.mu.Lock()
	return l.mu.Unlock
}

// heard returns what was said since it was asked last.
func (l *listener) heard() []string {
	synctest.Wait()
	defer l.locked()()
	out := l.lines
	l.lines = nil
	return out
}

func (l *listener) Candidate(c CandidateChange) {
	defer l.locked()()
	l.say("%v wants %s %s", c.Origin, route.Route{Key: c.Key, Kind: c.Kind, Paths: c.Paths},
		order(c.Received, c.At))
}

func (l *listener) Decided(d Decision) {
	defer l.locked()()
	what := "nothing"
	if d.Programs {
		r := route.Route{Key: d.Key, Kind: d.Kind, Paths: d.Paths}
		if what = r.String(); r.Digest() != d.Digest {
			what += " with another digest"
		}
	}
	l.say("%v: decided %s, waits %t, %q %s", d.Key, what, d.Waiting, d.Reason,
		order(d.Received, d.At))
}

func (l *listener) Sent(b Batch) {
	defer l.locked()()
	ops := slices.Collect(b.Ops)
	l.batches[b.Number] = ops
	for _, op := range ops {
		name := op.Key.String()
		if op.Object != nil {
			name = op.Object.String()
		}
		l.say("sent %s, deletes %t %s", name, op.Digest == 0,
			order(op.Queued, b.At))
	}
}

func (l *listener) Answered(b BatchResult) {
	defer l.locked()()
	l.say("%d answered, failed %v", len(l.batches[b.Number]), b.Failed)
}

func (l *listener) Facts(Moment, route.Facts) {
	defer l.locked()()
	l.facts++
}

func (l *listener) Resolved(at Moment, n NextHop, r route.Resolution) {
	defer l.locked()()
	l.say("%v is reached by %v %s", n.Address, r.Prefix, order(at))
}

func (l *listener) Forgotten(_ Moment, n NextHop) {
	defer l.locked()()
	l.say("%v is forgotten", n.Address)
}

func (l *listener) Settled(Moment) {}

func (l *listener) Surroundings(_ Moment, s Surroundings) {
	defer l.locked()()
	l.around = s
}

func (l *listener) Stands(wants []CandidateChange, d Decision) {
	for _, c := range wants {
		l.Candidate(c)
	}
	l.Decided(d)
}

// order says whether moments are known, and none is before the one before.
func order(all ...Moment) string {
	for i, m := range all {
		if m == 0 || i > 0 && m < all[i-1] {
			return fmt.Sprintf("OUT OF ORDER %v", all)
		}
	}
	return "in order"
}

func recorded(t *testing.T, f func(*testing.T, *running, *listener)) {
	synctest.Test(t, func(t *testing.T) {
		dp, l := newFake(node("a")), newListener()
		r := startOn(starter{dp}, dp, Config{Recorder: l})
		r.Learn(pfx("10.9.0.0/26"), via("10.0.0.2"))
		l.heard()
		f(t, r, l)
		r.stop()
	})
}

// Whoever asks later finds each step of a change, with its time.
func TestRecorderHearsEachStep(t *testing.T) {
	recorded(t, func(t *testing.T, r *running, l *listener) {
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2")) // alone
		check(t, "learned", l.heard(),
			"bgp wants 10.1.0.0/26 via 10.0.0.2 in order",
			`10.1.0.0/26: decided 10.1.0.0/26 via 10.0.0.2 eth0, waits false, "" in order`,
			"sent 10.1.0.0/26, deletes false in order", "1 answered, failed []")

		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		check(t, "the same again", l.heard())

		r.dp.state(func() { r.dp.hang = true })
		r.SetRoutes(route.Own, []route.Route{drop("10.2.0.0/26")})
		synctest.Wait()
		time.Sleep(time.Second)
		r.dp.hangs(false)
		check(t, "an own route", l.heard(),
			"own wants 10.2.0.0/26 drop in order",
			`10.2.0.0/26: decided 10.2.0.0/26 drop, waits false, "" in order`,
			"sent 10.2.0.0/26, deletes false in order", "1 answered, failed []")

		r.Learn(pfx("10.1.0.0/26"), nil)
		check(t, "withdrawn", l.heard(),
			"bgp wants 10.1.0.0/26 via  in order",
			`10.1.0.0/26: decided nothing, waits false, "" in order`,
			"sent 10.1.0.0/26, deletes true in order", "1 answered, failed []")
	})
}

func TestRecorderHearsWhyNothingIsProgrammed(t *testing.T) {
	recorded(t, func(t *testing.T, r *running, l *listener) {
		r.Learn(pfx("10.1.0.0/26"), via("10.77.0.2")) // is looked up
		check(t, "no way to the next hop", l.heard(),
			"bgp wants 10.1.0.0/26 via 10.77.0.2 in order",
			`10.1.0.0/26: decided nothing, waits true, `+
				`"next hop 10.77.0.2 has not been looked up yet" in order`,
			"10.77.0.2 is reached by invalid Prefix in order",
			`10.1.0.0/26: decided nothing, waits false, `+
				`"there is no route to next hop 10.77.0.2" in order`)
	})
}

func TestRecorderHearsWhatTheDataPlaneRefuses(t *testing.T) {
	recorded(t, func(t *testing.T, r *running, l *listener) {
		r.dp.state(func() { r.dp.refuse[key("10.1.0.0/26")] = errors.New("no room") })
		r.Learn(pfx("10.1.0.0/26"), via("10.0.0.2"))
		if got := l.heard(); got[len(got)-1] != "1 answered, failed [{0 no room}]" {
			t.Errorf("heard %q", got)
		}
		r.dp.heal()
		time.Sleep(time.Second)
		if got := l.heard(); got[len(got)-1] != "1 answered, failed []" {
			t.Errorf("heard %q", got)
		}
		r.dp.state(func() { r.dp.sever = 0 })
		r.Learn(pfx("10.1.0.0/26"), nil)
		if got := l.heard(); got[len(got)-1] !=
			"1 answered, failed [{0 not answered: connection lost}]" {
			t.Errorf("heard %q", got)
		}
	})
}

func TestRecorderHearsWhatElseDecides(t *testing.T) {
	recorded(t, func(t *testing.T, r *running, l *listener) {
		facts := l.facts
		if facts == 0 {
			t.Error("no facts")
		}
		r.set(func(w *Wanted) {
			w.Own, w.Peers = []netip.Addr{addr("10.0.0.1")}, []netip.Addr{addr("10.0.0.2")}
			w.Services = []netip.Prefix{pfx("10.96.0.0/12")}
			w.Normal4, w.Converging = 7, true
			w.Encapsulation = &route.Encapsulation{}
		})
		l.heard()
		if s := l.around; len(s.Own) != 1 || len(s.Peers) != 1 || len(s.Services) != 1 ||
			s.Normal != [2]uint32{7, 0} || !s.Converging || s.Encapsulation == nil {
			t.Errorf("heard %+v", s)
		}
		r.dp.tell(node("b"))
		if l.heard(); l.facts != facts+1 {
			t.Errorf("facts were heard %d times instead of %d", l.facts, facts+1)
		}
	})
}
