// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
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
		read := *newfsmStateReason(fsmReadFailed, nil, nil)
		if r := h.endedBy(t.Context(), read); r.Type != fsmNotificationSent {
			t.Errorf("%s: the session ended with %s when reading fails first", name, &r)
		}
		if !f.lock.TryLock() {
			t.Errorf("%s: the lock is held", name)
		}
	}
}

// brokenConn is a connection that cannot be written to, if told, and says when our side closes it.
type brokenConn struct {
	net.Conn
	refuses error
	once    sync.Once
	closed  chan struct{}
}

func (c *brokenConn) Write(b []byte) (int, error) {
	if c.refuses != nil {
		return 0, c.refuses
	}
	return c.Conn.Write(b)
}

func (c *brokenConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// brokenSession is an established session with graceful restart, and the peer's end of it.
func brokenSession(refuses error) (*fsmHandler, *brokenConn, net.Conn) {
	conf := &oc.Neighbor{}
	conf.Timers.State.KeepaliveInterval = 30
	conf.Timers.State.NegotiatedHoldTime = 90
	conf.GracefulRestart.State.Enabled = true
	conf.GracefulRestart.State.PeerRestartTime = 120
	ours, theirs := net.Pipe()
	conn := &brokenConn{Conn: ours, refuses: refuses, closed: make(chan struct{})}
	f := newFSM(&oc.Global{}, conf, log.NewDefaultLogger())
	f.state, f.conn, f.gracefulRestartTimer = bgp.BGP_FSM_ESTABLISHED, conn,
		time.NewTimer(time.Hour)
	f.h = &fsmHandler{fsm: f, conn: conn, stateReasonCh: make(chan fsmStateReason, 2),
		outgoing: channels.NewInfiniteChannel(), incoming: channels.NewInfiniteChannel()}
	return f.h, conn, theirs
}

func anUpdate() queued {
	to := &outPeer{name: netip.MustParseAddrPort("192.0.2.1:179")}
	return queued{&updates{messages: []message{{wire: []byte{1}}}, size: 1}, to}
}

// A peer closes the connection when it gets a NOTIFICATION. Reading fails then, maybe before the
// one that sent it has said so.
func TestReadFailsAfterOurNotification(t *testing.T) {
	for _, c := range []struct {
		code, subcode uint8
		want          fsmStateReasonType
	}{
		{bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED,
			fsmNotificationSent},
		{bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, fsmGracefulRestart}, // RFC 8538 §4
	} {
		h, conn, theirs := brokenSession(nil)
		h.fsm.onSession = func(e SessionEvent) {
			if e.Kind == NotificationSent {
				<-conn.closed // because reading failed
			}
		}
		h.end(bgp.NewBGPNotificationMessage(c.code, c.subcode, nil))
		go func() {
			theirs.Read(make([]byte, bgp.BGP_MAX_MESSAGE_LENGTH))
			theirs.Close()
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if next, why := h.established(ctx); next != bgp.BGP_FSM_IDLE || why.Type != c.want {
			t.Errorf("NOTIFICATION %d/%d: the session goes to %s for %s", c.code, c.subcode, next,
				why)
		}
	}
}

// The server decides on a NOTIFICATION just as the connection breaks, while we wait for the peer's
// last words, or as the hold timer expires. The session ends because of it each time.
func TestOurNotificationCounts(t *testing.T) {
	cease := func(h *fsmHandler) {
		sendfsmOutgoingMsg(&peer{fsm: h.fsm}, nil, bgp.NewBGPNotificationMessage(
			bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED, nil), true)
	}
	expired := bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, nil)
	for name, say := range map[string]func(*fsmHandler){
		"same moment": func(h *fsmHandler) {
			cease(h)
			h.stateReasonCh <- *newfsmStateReason(fsmReadFailed, nil, nil)
		},
		"last words": func(h *fsmHandler) {
			h.stateReasonCh <- *newfsmStateReason(fsmWriteFailed, nil, nil)
			time.AfterFunc(lastWords/20, func() { cease(h) })
		},
		"after the hold timer": func(h *fsmHandler) {
			h.end(expired)
			cease(h)
			h.stateReasonCh <- *newfsmStateReason(fsmReadFailed, nil, nil)
		},
		"before the hold timer": func(h *fsmHandler) {
			cease(h)
			h.end(expired)
			h.stateReasonCh <- *newfsmStateReason(fsmReadFailed, nil, nil)
		},
	} {
		h, _, _ := brokenSession(nil)
		say(h)
		_, why := h.established(context.Background())
		if why.Type != fsmNotificationSent || h.fsm.adminState != adminStatePfxCt {
			t.Errorf("%s: the session ends for %s, the peer is %s", name, why, h.fsm.adminState)
		}
	}
}

// A session that is not up is not ended, and neither is the next one.
func TestNoNotificationForLater(t *testing.T) {
	for state := bgp.BGP_FSM_IDLE; state < bgp.BGP_FSM_ESTABLISHED; state++ {
		h, _, _ := brokenSession(nil)
		h.fsm.state = state
		cease := bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, 0, nil)
		sendfsmOutgoingMsg(&peer{fsm: h.fsm}, nil, cease, true)
		if h.ending.Load() != nil || h.outgoing.Len() != 0 || h.fsm.adminState != adminStateUp {
			t.Errorf("%s: %d messages are queued, the peer is %s", state, h.outgoing.Len(),
				h.fsm.adminState)
		}
	}
}

// A NOTIFICATION overtakes everything but the message that is being written. The server may decide
// on it before the session has taken the connection.
func TestNotificationGoesFirst(t *testing.T) {
	h, _, theirs := brokenSession(nil)
	for range 10 {
		h.outgoing.In() <- anUpdate()
	}
	last := bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, 0, nil)
	want, err := last.Serialize()
	if err != nil {
		t.Fatal(err)
	}
	h.conn = nil
	h.end(last)
	go h.established(t.Context())
	got, err := io.ReadAll(theirs)
	if before, ok := bytes.CutSuffix(got, want); !ok || len(before) > 1 || err != nil {
		t.Errorf("the peer reads %x, %v; want %x, after one byte at most", got, err, want)
	}
}

// A peer sends a NOTIFICATION and closes the connection. Writing fails then, maybe before the one
// that reads it has said so.
func TestWriteFailsAfterTheirNotification(t *testing.T) {
	for read, want := range map[fsmStateReasonType]fsmStateReasonType{
		fsmNotificationRecv: fsmNotificationRecv,
		fsmHardReset:        fsmHardReset,
		fsmReadFailed:       fsmGracefulRestart,
	} {
		h, _, _ := brokenSession(nil)
		h.stateReasonCh <- *newfsmStateReason(fsmWriteFailed, nil, nil)
		h.stateReasonCh <- *newfsmStateReason(read,
			bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, 0, nil), nil)
		if _, why := h.established(context.Background()); why.Type != want {
			t.Errorf("reason %d after a failed write: the session ends for %s", read, why)
		}
	}
}

// A Hard Reset from the peer, or any NOTIFICATION without the N bit (RFC 8538 §2), rules out a
// graceful restart even if our hold timer has expired. Any other NOTIFICATION of ours takes
// precedence over the peer's.
func TestTheirsAndOurs(t *testing.T) {
	cease := bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, 0, nil)
	for _, theirs := range []fsmStateReasonType{fsmHardReset, fsmNotificationRecv} {
		for code, want := range map[uint8]fsmStateReasonType{
			bgp.BGP_ERROR_HOLD_TIMER_EXPIRED: theirs,
			bgp.BGP_ERROR_CEASE:              fsmNotificationSent,
		} {
			h, _, _ := brokenSession(nil)
			h.ending.Store(bgp.NewBGPNotificationMessage(code, 0, nil))
			h.stateReasonCh <- *newfsmStateReason(theirs, cease, nil)
			if _, why := h.established(context.Background()); why.Type != want {
				t.Errorf("our NOTIFICATION %d, their reason %d: the session ends for %s", code,
					theirs, why)
			}
		}
	}
}

// A session ends for its hold timer, or for a failed write, though the peer says nothing and keeps
// the connection. It is closed, and nobody waits for more to be read.
func TestSilentPeerThatIsNotWrittenTo(t *testing.T) {
	for name, c := range map[string]struct {
		hold     float64
		graceful bool
		say      any
		want     fsmStateReasonType
	}{
		"hold timer":           {1, false, nil, fsmHoldTimerExpired},
		"hold timer, graceful": {1, true, nil, fsmGracefulRestart},
		"UPDATE":               {90, true, anUpdate(), fsmGracefulRestart},
	} {
		h, conn, _ := brokenSession(syscall.EPIPE)
		h.fsm.pConf.GracefulRestart.State.Enabled = c.graceful
		h.fsm.pConf.Timers.State.NegotiatedHoldTime = c.hold
		if c.say != nil {
			h.outgoing.In() <- c.say
		}
		ended := make(chan *fsmStateReason, 1)
		go func() {
			_, why := h.established(context.Background())
			ended <- why
		}()
		select {
		case why := <-ended:
			if why.Type != c.want {
				t.Errorf("%s: the session ends for %s", name, why)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: the session does not end", name)
		}
		select {
		case <-conn.closed:
		default:
			t.Errorf("%s: the connection stays open", name)
		}
	}
}

// A peer that is removed gets its NOTIFICATION even if we have sent nothing for an hour. If it does
// not read, the connection is closed anyway.
func TestNoticeOfAQuietSession(t *testing.T) {
	for _, reads := range []bool{true, false} {
		h, conn, theirs := brokenSession(nil)
		conn.SetWriteDeadline(time.Now().Add(-time.Hour)) // that of the last write
		h.fsm.notification = make(chan *bgp.BGPMessage, 1)
		h.fsm.notification <- bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, 0, nil)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		go h.established(ctx)
		if reads {
			b := make([]byte, 21)
			theirs.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := theirs.Read(b); err != nil || b[18] != bgp.BGP_MSG_NOTIFICATION {
				t.Errorf("the peer reads %x, %v", b, err)
			}
		}
		select {
		case <-conn.closed:
		case <-time.After(10 * time.Second):
			t.Errorf("reads %t: the connection stays open", reads)
		}
	}
}

// A peer that is taken out is not waited for, as another one is.
func TestNoLastWordsOfAPeerThatIsTakenOut(t *testing.T) {
	failed := *newfsmStateReason(fsmWriteFailed, nil, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, ctx := range []context.Context{context.Background(), ctx} {
		began := time.Now()
		why := (&fsmHandler{}).endedBy(ctx, failed)
		took := time.Since(began)
		if waited := took >= lastWords; waited != (ctx.Err() == nil) || why.Type != fsmWriteFailed {
			t.Errorf("the session ends for %s after %s; taken out: %v", &why, took, ctx.Err())
		}
	}
}

// The peer's last words are read after our hold timer has expired, too.
func TestLastWordsAfterTheHoldTimer(t *testing.T) {
	cease := bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, 0, nil)
	expired := bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, nil)
	for ours, want := range map[*bgp.BGPMessage]fsmStateReasonType{
		expired: fsmNotificationRecv,
		cease:   fsmNotificationSent,
	} {
		h, _, _ := brokenSession(nil)
		h.ending.Store(ours)
		h.stateReasonCh <- *newfsmStateReason(fsmWriteFailed, nil, nil)
		h.stateReasonCh <- *newfsmStateReason(fsmNotificationRecv, cease, nil)
		if _, why := h.established(context.Background()); why.Type != want {
			t.Errorf("the session ends for %s", why)
		}
	}
}

// What the peer said last can be read after writing has failed.
func TestFailedWriteDoesNotClose(t *testing.T) {
	for name, m := range map[string]any{
		"KEEPALIVE": &fsmOutgoingMsg{Notification: bgp.NewBGPKeepAliveMessage()},
		"UPDATE":    anUpdate(),
	} {
		h, conn, _ := brokenSession(syscall.EPIPE)
		var wg sync.WaitGroup
		wg.Add(1)
		h.outgoing.In() <- m
		h.sendMessageloop(context.Background(), &wg)
		if why := <-h.stateReasonCh; why.Type != fsmWriteFailed {
			t.Errorf("%s: the session ended for %s", name, why)
		}
		select {
		case <-conn.closed:
			t.Errorf("%s: the connection is closed", name)
		default:
		}
	}
}
