// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/osrg/gobgp/v3/pkg/config/oc"
	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// A panic between a message's header and its paths is the error that ends the sender's session.
func TestReceivingPanics(t *testing.T) {
	f := newFSM(&oc.Global{}, &oc.Neighbor{}, log.NewDefaultLogger())
	f.state = bgp.BGP_FSM_ESTABLISHED
	events := make(chan SessionEvent, 1)
	f.onSession = func(e SessionEvent) { events <- e }
	f.peerInfo = nil // what nobody expects
	ours, theirs := net.Pipe()
	h := &fsmHandler{fsm: f, conn: ours, stateReasonCh: make(chan fsmStateReason, 2)}
	prefix := bgp.NewIPAddrPrefix(26, "10.1.0.0")
	b, err := bgp.NewBGPUpdateMessage(nil, nil, []*bgp.IPAddrPrefix{prefix}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	go theirs.Write(b)
	m, err := h.recvMessageWithError()
	if err == nil || !strings.HasPrefix(err.Error(), "the decoder panicked: ") || m.MsgData != err {
		t.Errorf("received %+v, %v", m, err)
	}
	close(events)
	if e := <-events; e.Kind != MessageRefused || e.Err != err {
		t.Errorf("the event is %+v", e)
	}
	if !f.lock.TryLock() {
		t.Error("the lock is held")
	}
}

// countedReads is a connection that has all there is to read at once.
type countedReads struct {
	net.Conn
	from  *bytes.Reader
	reads int
}

func (c *countedReads) Read(b []byte) (int, error) {
	c.reads++
	return c.from.Read(b)
}

// Messages that have arrived take one system call together, not two each.
func TestOneReadForManyMessages(t *testing.T) {
	keepalive, err := bgp.NewBGPKeepAliveMessage().Serialize()
	if err != nil {
		t.Fatal(err)
	}
	conn := &countedReads{from: bytes.NewReader(bytes.Repeat(keepalive, 100))}
	f := newFSM(&oc.Global{}, &oc.Neighbor{}, log.NewDefaultLogger())
	f.state = bgp.BGP_FSM_ESTABLISHED
	h := &fsmHandler{fsm: f, conn: conn, stateReasonCh: make(chan fsmStateReason, 2)}
	var wg sync.WaitGroup
	wg.Add(1)
	h.recvMessageloop(context.Background(), &wg)
	if n := f.pConf.State.Messages.Received.Keepalive; n != 100 || conn.reads > 2 {
		t.Errorf("%d messages in %d reads, the end included", n, conn.reads)
	}
}

// A panic before OPEN goes out ends the connection, and leaves no lock behind.
func TestGreetingPanics(t *testing.T) {
	f := newFSM(&oc.Global{}, &oc.Neighbor{}, log.NewDefaultLogger())
	f.peerInfo = nil // what nobody expects
	if c, err := guarded(func() (*candidate, error) { return f.exchangeOpen(nil) }); err == nil {
		t.Errorf("earlyOpen %+v", c)
	}
	if !f.lock.TryLock() {
		t.Error("the lock is held")
	}
}
