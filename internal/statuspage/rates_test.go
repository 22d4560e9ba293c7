package statuspage

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vpp-route-agent/internal/agent"
)

// An hour is kept, however long the agent runs.
func TestTheHourIsBounded(t *testing.T) {
	var h hour
	start := time.Unix(1_700_000_000, 0)
	var c agent.Counters
	const n = 3 * samples
	for i := range n {
		c.Put += 20
		c.UpdatesReceived = uint64(i%7) * 10 // a peer is removed now and then
		c.Delays.Counts[3]++
		c.Delays.Sum += time.Millisecond
		h.take(start.Add(time.Duration(i)*sampleEvery), c)
	}
	end := start.Add(n * sampleEvery)
	got := h.read(end, c)
	if len(got.At) != samples || len(got.Put) != samples || len(got.OpsQueued) != samples {
		t.Fatalf("%d samples", len(got.At))
	}
	if last := got.At[samples-1]; last != end.Add(-sampleEvery).UnixMilli() ||
		!slices.IsSorted(got.At) {
		t.Errorf("the last is of %d", last)
	}
	for i := range samples {
		if got.Put[i] != 2 || got.UpdatesReceived[i] < 0 || got.UpdatesReceived[i] > 1 {
			t.Fatalf("sample %d: %v put, %v received", i, got.Put[i], got.UpdatesReceived[i])
		}
	}
	age := end.Sub(time.UnixMilli(got.Since))
	if age < time.Hour || age > time.Hour+copyEvery*sampleEvery {
		t.Errorf("histograms of %s", age)
	}
	if d := got.Delays; d.Counts[3] != uint64(age/sampleEvery)-1 ||
		d.Sum != float64(d.Counts[3])/1000 || len(d.Bounds) != len(d.Counts)-1 {
		t.Errorf("%d events in %s, %v s", d.Counts[3], age, d.Sum)
	}
}

func TestTheFirstSampleHasNoRate(t *testing.T) {
	var h hour
	if empty := h.read(time.Now(), agent.Counters{}); len(empty.At) != 0 {
		t.Errorf("%+v", empty)
	}
	h.take(time.Now(), agent.Counters{Put: 1_000_000, Established: 7})
	if got := h.read(time.Now(), agent.Counters{}); got.Put[0] != 0 || got.Established[0] != 7 {
		t.Errorf("%+v", got)
	}
}

// The counters of an answer may be older than the first sample, which is taken meanwhile.
func TestTheFirstSampleComesBeforeAnAnswer(t *testing.T) {
	var h hour
	asked := time.Unix(1_700_000_000, 0)
	var before, after agent.Counters
	before.Delays.Counts[3], before.Delays.Sum = 4, time.Second
	after.Delays.Counts[3], after.Delays.Sum = 6, 3*time.Second
	h.take(asked.Add(time.Millisecond), after)
	got := h.read(asked, before)
	if d := got.Delays; d.Counts[3] != 0 || d.Sum != 0 || got.Since != asked.UnixMilli() {
		t.Errorf("since %d: %d events, %v s", got.Since, d.Counts[3], d.Sum)
	}
}

// Samples are taken whether a page is open or not, and nothing else is asked of the agent.
func TestSamplesAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := withPeers(3)
		p := New(Config{Agent: f})
		go p.Run(t.Context())
		time.Sleep(time.Minute + time.Second)
		got := p.hour.read(time.Now(), agent.Counters{})
		if len(got.At) != 7 || got.At[6]-got.At[0] != time.Minute.Milliseconds() {
			t.Errorf("after a minute: %v", got.At)
		}
		if f.looked() > 0 {
			t.Errorf("%d looks for nobody", f.looked())
		}
	})
}

// A look that takes long, as of an agent that struggles, neither delays samples nor bends them.
func TestSamplesDoNotWaitForALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := withPeers(3)
		f.wait = func() { time.Sleep(28 * time.Second) }
		began := time.Now()
		f.counters = func() agent.Counters {
			return agent.Counters{Put: uint64(100 * time.Since(began).Seconds())}
		}
		p := New(Config{Agent: f})
		go p.Run(t.Context())
		time.Sleep(25 * time.Second)
		if why := p.views.enter(); why != "" {
			t.Fatal(why)
		}
		time.Sleep(36 * time.Second)
		if f.looked() != 1 {
			t.Fatalf("%d looks", f.looked())
		}
		got := p.hour.read(time.Now(), agent.Counters{})
		if want := []float64{0, 100, 100, 100, 100, 100, 100}; !slices.Equal(got.Put, want) {
			t.Errorf("100 a second: %v", got.Put)
		}
	})
}

// After a look that took long because the agent hung, the page is true again soon.
func TestASlowLookDoesNotPutOffTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := withPeers(3)
		const hang = 28 * time.Second
		var hangs atomic.Bool
		hangs.Store(true)
		f.wait = func() {
			if hangs.Load() {
				time.Sleep(hang)
			}
		}
		p := New(Config{Agent: f})
		go p.Run(t.Context())
		synctest.Wait()
		if why := p.views.enter(); why != "" {
			t.Fatal(why)
		}
		time.Sleep(hang)
		synctest.Wait()
		hangs.Store(false)
		time.Sleep(lookWait + time.Second)
		if n := f.looked(); n < 2 {
			t.Errorf("%d looks in %s after one of 28 s", n, lookWait+time.Second)
		}
	})
}
