// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eapache/channels"

	"github.com/osrg/gobgp/v3/internal/pkg/table"
	"github.com/osrg/gobgp/v3/pkg/config/oc"
	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// A panic while messages are packed, or serialized under the lock, ends the session with a
// NOTIFICATION.
func TestSendingPanics(t *testing.T) {
	update := bgp.NewBGPUpdateMessage(nil, []bgp.PathAttributeInterface{nil}, nil)
	for name, poison := range map[string]*fsmOutgoingMsg{
		"packing":     {Paths: []*table.Path{nil}},
		"serializing": {Notification: update},
	} {
		conf := &oc.Neighbor{}
		conf.Timers.State.KeepaliveInterval = 30
		conf.Timers.State.NegotiatedHoldTime = 90
		f := newFSM(&oc.Global{}, conf, log.NewDefaultLogger())
		events := make(chan SessionEvent, 10)
		f.onSession = func(e SessionEvent) { events <- e }
		ours, theirs := net.Pipe()
		h := &fsmHandler{fsm: f, conn: ours, stateReasonCh: make(chan fsmStateReason, 2)}
		h.outgoing = channels.NewInfiniteChannel()
		var wg sync.WaitGroup
		wg.Add(1)
		go h.sendMessageloop(context.Background(), &wg)
		h.outgoing.In() <- poison
		theirs.SetReadDeadline(time.Now().Add(30 * time.Second))
		b := make([]byte, 21)
		_, err := theirs.Read(b)
		if err != nil || b[18] != bgp.BGP_MSG_NOTIFICATION || b[19] != bgp.BGP_ERROR_CEASE {
			t.Errorf("%s: the peer reads %x, %v", name, b, err)
		}
		if n, err := theirs.Read(b); err == nil {
			t.Errorf("%s: the connection stays open: %x", name, b[:n])
		}
		wg.Wait()
		close(events)
		if e := <-events; e.Kind != SessionPanicked ||
			!strings.HasPrefix(e.Err.Error(), "while sending: ") {
			t.Errorf("%s: the event is %+v", name, e)
		}
		if r := <-h.stateReasonCh; r.Type != fsmNotificationSent {
			t.Errorf("%s: the session ended with %s", name, r)
		}
		if !f.lock.TryLock() {
			t.Errorf("%s: the lock is held", name)
		}
	}
}
