package netlab

import (
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
