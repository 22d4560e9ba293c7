package netlab

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestStoppedFlowKnowsItsLastPacket stops flows at moments when a packet is about to be sent: also
// that one's answer is waited for.
func TestStoppedFlowKnowsItsLastPacket(t *testing.T) {
	l := newLab(t)
	a, _, _ := line(t, l)
	for range 300 {
		flow, err := a.StartFlow(FlowConfig{To: addr("10.0.2.2"), Interval: 100 * time.Microsecond})
		check(t, err)
		time.Sleep(time.Millisecond)
		if r := flow.Stop(); r.Sent != r.Received || r.Pending != 0 {
			t.Fatalf("nothing was in the way, got %+v", r)
		}
	}
}

// TestReaderThatIsLate: how long a packet took is known to the kernel, also while nobody reads.
func TestReaderThatIsLate(t *testing.T) {
	l := newLab(t)
	a, _, _ := line(t, l)
	const late = 200 * time.Millisecond
	var slowest []time.Duration
	for range 5 { // the machine may stall as long
		for _, to := range []netip.Addr{addr("10.0.2.2"), addr("fd00:2::2")} {
			flow, err := a.StartFlow(FlowConfig{To: to, Interval: time.Hour})
			check(t, err)
			flow.mu.Lock() // which the reader needs after the first answer
			for range 3 {
				seq := len(flow.sent)
				flow.sent, flow.rtt = append(flow.sent, time.Now()), append(flow.rtt, 0)
				_, err := flow.conn.WriteToIP(flow.request(uint64(seq)),
					&net.IPAddr{IP: to.AsSlice()})
				check(t, err)
			}
			time.Sleep(late)
			flow.mu.Unlock()
			r := flow.Stop()
			if r.Received < 3 {
				t.Fatalf("%+v", r)
			}
			slowest = append(slowest, r.Slowest)
		}
		if slices.Max(slowest[len(slowest)-2:]) < late/2 {
			return
		}
	}
	t.Errorf("read %v late, the slowest packets took %v", late, slowest)
}

// TestTimeline: each packet is counted once, in the slot in which it was sent, and a time without
// packets has slots, too.
func TestTimeline(t *testing.T) {
	start := time.Now().Add(-time.Minute).Truncate(SlotLength)
	var sent []time.Time
	var took []time.Duration
	for _, p := range []struct{ at, took time.Duration }{
		{10, 1}, {50, 0}, {99, 1}, {100, 0}, {101, 0}, {350, 1},
	} {
		sent = append(sent, start.Add(p.at*time.Millisecond))
		took = append(took, p.took*time.Millisecond)
	}
	got := report(sent, took, 0, time.Second).Timeline
	want := []Slot{{start, 3, 1}, {start.Add(SlotLength), 2, 2}, {start.Add(2 * SlotLength), 0, 0},
		{start.Add(3 * SlotLength), 1, 0}}
	if !slices.EqualFunc(got, want, func(a, b Slot) bool {
		return a.From.Equal(b.From) && a.Sent == b.Sent && a.Lost == b.Lost
	}) {
		t.Errorf("%v, want %v", got, want)
	}
}
