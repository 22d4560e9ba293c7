package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestTrafficSteps(t *testing.T) {
	limit := 20.0
	at := func(seconds int) time.Time { return time.Unix(1e9+int64(seconds), 0) }
	broken := errors.New("broken")
	type step struct {
		at      int // seconds
		packets int // of a sample; -1: it failed; noSample
		ask     bool
		unknown error
		idle    bool
	}
	const noSample = -2
	for name, c := range map[string]struct {
		uncounted bool
		steps     []step
	}{
		"quiet for 5 s": {steps: []step{
			{0, noSample, true, nil, false}, {0, 100, false, nil, false},
			{1, noSample, true, nil, false}, {1, 110, false, nil, false},
			{5, noSample, true, nil, false}, {5, 120, false, nil, true}}},
		"a burst starts the wait anew": {steps: []step{
			{0, noSample, true, nil, false}, {0, 100, false, nil, false},
			{4, noSample, true, nil, false}, {4, 900, false, nil, false},
			{8, noSample, true, nil, false}, {8, 900, false, nil, false},
			{9, noSample, true, nil, false}, {9, 900, false, nil, true}}},
		"counters that start anew tell nothing": {steps: []step{
			{0, noSample, true, nil, false}, {0, 100, false, nil, false},
			{5, noSample, true, nil, false}, {5, 0, false, nil, false}}},
		"no second question before the answer": {steps: []step{
			{0, noSample, true, nil, false}, {2, noSample, false, nil, false},
			{3, noSample, false, errNoAnswer, false}, {9, noSample, false, nil, false},
			{10, 100, true, nil, false}, {15, 100, true, nil, true}}},
		"an error is reported once": {steps: []step{
			{0, noSample, true, nil, false}, {0, -1, false, broken, false},
			{1, noSample, true, nil, false}, {1, -1, false, nil, false},
			{9, noSample, true, nil, false}, {9, 100, false, nil, false}}},
		"nobody counts": {uncounted: true, steps: []step{
			{0, noSample, false, errNoTraffic, false}, {9, noSample, false, nil, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			var tr traffic
			for i, s := range c.steps {
				f := trafficFacts{limit: &limit, counted: !c.uncounted}
				switch {
				case s.packets == -1:
					f.sample = &sample{err: broken, at: at(s.at)}
				case s.packets >= 0:
					f.sample = &sample{packets: uint64(s.packets), at: at(s.at)}
				}
				ask, unknown := tr.step(at(s.at), f)
				if ask != s.ask || unknown != s.unknown || tr.idle() != s.idle {
					t.Errorf("step %d: ask %v, unknown %v, idle %v; want %+v",
						i, ask, unknown, tr.idle(), s)
				}
			}
		})
	}
}

// meter is a data plane's counter in a bubble: so many packets a second, or an error.
type meter struct {
	rate    atomic.Int64
	packets atomic.Int64
	broken  atomic.Bool
}

func (m *meter) forwarded() (uint64, error) {
	if m.broken.Load() {
		return 0, errors.New("nobody counts")
	}
	return uint64(m.packets.Load()), nil
}

// run counts until stop is closed.
func (m *meter) run(stop <-chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			m.packets.Add(m.rate.Load() / 10)
		}
	}
}

// drainByTraffic runs f while a node drains until 20 packets a second, for an hour at most, having
// 1000 at first.
func drainByTraffic(t *testing.T, f func(t *testing.T, n *node, m *meter)) {
	m := &meter{}
	inBubble(t, func(t *testing.T, n *node) {
		stop := make(chan struct{})
		go m.run(stop)
		defer close(stop)
		m.rate.Store(1000)
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		limit := 20.0
		if _, err := n.agent.Drain(DrainOptions{Wait: time.Hour, Stay: true,
			UntilIdle: &limit}); err != nil {
			t.Fatal(err)
		}
		f(t, n, m)
	}, func(c *Config) { c.Forwarded = m.forwarded })
}

func (n *node) drained() DrainStatus {
	if d := n.agent.Status().Drain; d != nil {
		return *d
	}
	return DrainStatus{}
}

func TestDrainEndsWhenTrafficDoes(t *testing.T) {
	drainByTraffic(t, func(t *testing.T, n *node, m *meter) {
		time.Sleep(time.Minute)
		if d := n.drained(); d.Phase != Draining || d.PacketsPerSecond == nil ||
			*d.PacketsPerSecond < 500 {
			t.Errorf("with 1000 packets a second: %+v", d)
		}
		for range 5 { // gaps that are too short
			m.rate.Store(0)
			time.Sleep(4 * time.Second)
			m.rate.Store(1000)
			time.Sleep(2 * time.Second)
		}
		if d := n.drained(); d.Phase != Draining {
			t.Errorf("with gaps: %+v", d)
		}
		m.rate.Store(10)
		time.Sleep(10 * time.Second)
		if d := n.drained(); d.Phase != Withdrawn {
			t.Errorf("with 10 packets a second: %+v", d)
		}
	})
}

func TestDrainGoesByTimeWhereTrafficIsUnknown(t *testing.T) {
	drainByTraffic(t, func(t *testing.T, n *node, m *meter) {
		time.Sleep(time.Minute)
		m.broken.Store(true)
		time.Sleep(time.Minute)
		if d := n.drained(); d.Phase != Draining || d.TrafficUnknown != "nobody counts" {
			t.Errorf("%+v", d)
		}
		if c := n.agent.Status().Conditions; !strings.Contains(
			c[len(c)-1].Message, "by time alone (nobody counts)") {
			t.Errorf("conditions %+v", c)
		}
		time.Sleep(time.Hour)
		if d := n.drained(); d.Phase != Withdrawn {
			t.Errorf("after its time: %+v", d)
		}
	})
}

// A VPP that is frozen answers nobody, neither with a count nor with an error.
func TestDrainGoesOnWhileCountingHangs(t *testing.T) {
	var hang chan struct{}
	var asked atomic.Int32
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		limit := 20.0
		o := DrainOptions{Wait: time.Minute, Stay: true, UntilIdle: &limit}
		if _, err := n.agent.Drain(o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if d := n.drained(); d.Phase != Draining ||
			!strings.Contains(d.TrafficUnknown, "not answered") {
			t.Errorf("%+v", d)
		}
		if since := time.Since(n.agent.Turned()); since > 2*time.Second {
			t.Errorf("the loop stands still since %s", since)
		}
		if _, err := n.agent.CancelDrain(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		n.take()
		if _, err := n.agent.Drain(o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if d := n.drained(); d.Phase != Draining || d.TrafficUnknown == "" {
			t.Errorf("drained once more: %+v", d)
		}
		if asked.Load() != 1 {
			t.Errorf("it was asked %d times without an answer", asked.Load())
		}
		time.Sleep(time.Minute)
		if d := n.drained(); d.Phase != Withdrawn {
			t.Errorf("after its time: %+v", d)
		}
		close(hang)
	}, func(c *Config) {
		hang = make(chan struct{})
		c.Forwarded = func() (uint64, error) {
			asked.Add(1)
			<-hang
			return 0, nil
		}
	})
}

func TestDrainKnowsTrafficAgainAfterAHang(t *testing.T) {
	m := &meter{}
	var hang chan struct{}
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		limit := 20.0
		if _, err := n.agent.Drain(DrainOptions{Wait: time.Hour, Stay: true,
			UntilIdle: &limit}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		close(hang)
		time.Sleep(4 * time.Second) // the time without an answer was not idle
		if d := n.drained(); d.Phase != Draining || d.TrafficUnknown != "" ||
			d.PacketsPerSecond == nil {
			t.Errorf("%+v", d)
		}
		time.Sleep(5 * time.Second)
		if d := n.drained(); d.Phase != Withdrawn {
			t.Errorf("without packets: %+v", d)
		}
	}, func(c *Config) {
		hang = make(chan struct{})
		c.Forwarded = func() (uint64, error) {
			<-hang
			return m.forwarded()
		}
	})
}

// A counter that starts anew says nothing about the time before.
func TestDrainAfterCountersStartAnew(t *testing.T) {
	drainByTraffic(t, func(t *testing.T, n *node, m *meter) {
		for range 10 {
			time.Sleep(3 * time.Second)
			m.packets.Store(0)
		}
		if d := n.drained(); d.Phase != Draining {
			t.Errorf("%+v", d)
		}
	})
}

// A drain that stays is not taken back by a restart, though it ended its wait before its time.
func TestIdleIsForGood(t *testing.T) {
	m, file := &meter{}, filepath.Join(t.TempDir(), "drain.json")
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(time.Second)
		limit := 20.0
		if _, err := n.agent.Drain(DrainOptions{Wait: time.Hour, Stay: true,
			UntilIdle: &limit}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if d := n.drained(); d.Phase != Withdrawn {
			t.Errorf("without packets: %+v", d)
		}
		if d, err := readDrainNote(file); err != nil || d.request.Until.After(time.Now()) {
			t.Errorf("the next process would announce again until %s: %v", d.request.Until, err)
		}
	}, func(c *Config) { c.DrainFile, c.Forwarded = file, m.forwarded })
}

// The drain was asked for when there was a data plane, and goes on after a restart without one.
func TestDrainGoesByTimeAfterARestartWithoutDataplane(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drain.json")
	note := `{"phase":"draining","since":"2000-01-01T00:00:00Z",
		"until":"2000-01-01T00:01:00Z","stay":true,"untilIdle":20}`
	if err := os.WriteFile(file, []byte(note), 0o600); err != nil {
		t.Fatal(err)
	}
	inBubble(t, func(t *testing.T, n *node) {
		n.dataplane.facts <- live
		n.snapshots <- cluster()
		time.Sleep(50 * time.Second) // the bubble's clock began at the drain's since
		if d := n.drained(); d.Phase != Draining || d.TrafficUnknown != errNoTraffic.Error() {
			t.Errorf("%+v", d)
		}
		time.Sleep(20 * time.Second)
		if d := n.drained(); d.Phase != Withdrawn {
			t.Errorf("after its time: %+v", d)
		}
	}, func(c *Config) { c.DrainFile = file })
}

func TestLimitOfTrafficThatIsNone(t *testing.T) {
	for _, text := range []string{"", "x", "-1", "NaN", "Inf", "1e999"} {
		rate, err := ParseRate(text)
		if want := fmt.Sprintf("%q is not a number of packets/s, 0 or more",
			text); err == nil || err.Error() != want {
			t.Errorf("%q: got %g, %v", text, rate, err)
		}
	}
	for text, want := range map[string]float64{"0": 0, "0.5": 0.5, "1e6": 1e6} {
		if rate, err := ParseRate(text); err != nil || rate != want {
			t.Errorf("%q: got %g, %v", text, rate, err)
		}
	}
}

func TestNoTrafficToGoBy(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		limit := 1.0
		if _, err := n.agent.Drain(DrainOptions{UntilIdle: &limit}); err == nil {
			t.Error("a drain goes by traffic that nobody counts")
		}
	})
}

// Counters are read as a turn begins, and GoBGP may take long to take a plan in that turn.
func TestDrainCountsByTheTimeOfReading(t *testing.T) {
	drainByTraffic(t, func(t *testing.T, n *node, m *meter) {
		m.rate.Store(100)
		time.Sleep(time.Minute)
		n.speaker.setRefusal(errors.New("not now"))
		c := cluster()
		delete(c.Affinities, pfx("10.1.0.0/26"))
		n.snapshots <- c
		for range 20 {
			n.speaker.setDelay(10 * time.Second)
			time.Sleep(20 * time.Second)
			n.speaker.setDelay(0)
			time.Sleep(10 * time.Second)
			if d := n.drained(); n.agent.drainState() != drainWaiting || d.TrafficUnknown != "" {
				t.Fatalf("with 100 packets a second: %+v", d)
			}
		}
	})
}
