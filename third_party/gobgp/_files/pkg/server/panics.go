// This file is vpp-route-agent's, not GoBGP's.

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"
)

// OnPanic registers report, which is called before a panic ends the process, with the peer whose
// message or state was being handled. It is called before Serve.
func (s *BgpServer) OnPanic(report func(peer, what string)) { s.onPanic = report }

// reportPanic is deferred where the server's goroutine handles a message. The panic goes on: the
// tables may have been half changed.
func (s *BgpServer) reportPanic(e *fsmMsg) {
	if v := recover(); v != nil {
		if s.onPanic != nil {
			s.onPanic(e.MsgSrc, bgp.DescribePanic(v))
		}
		panic(v)
	}
}

// guarded runs what changes nothing, such as a conversion. A panic in it is an error.
func guarded[T any](convert func() (T, error)) (out T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("GoBGP panicked: %s", bgp.DescribePanic(v))
		}
	}()
	return convert()
}

// reading is guarded for a management operation that only reads.
func reading(f func() error) func() error {
	return func() error {
		_, err := guarded(func() (struct{}, error) { return struct{}{}, f() })
		return err
	}
}

// confined runs a state of the session. A panic in it ends the session as if its connection had
// broken, and nothing else.
func (h *fsmHandler) confined(
	ctx context.Context, state bgp.FSMState,
) (next bgp.FSMState, reason *fsmStateReason) {
	defer func() {
		if v := recover(); v != nil {
			h.noteStatePanic(v)
			next, reason = h.afterPanic(ctx, state)
		}
	}()
	switch state {
	case bgp.BGP_FSM_IDLE:
		return h.idle(ctx)
	case bgp.BGP_FSM_ACTIVE:
		return h.active(ctx)
	case bgp.BGP_FSM_OPENSENT:
		return h.opensent(ctx)
	case bgp.BGP_FSM_OPENCONFIRM:
		return h.openconfirm(ctx)
	case bgp.BGP_FSM_ESTABLISHED:
		return h.established(ctx)
	}
	return -1, nil
}

// noteStatePanic notes the first panic: the one that brought it here may be the same, on its way.
func (h *fsmHandler) noteStatePanic(v any) {
	if h.panicked == "" {
		h.panicked = bgp.DescribePanic(v)
	}
}

// endGoroutines is deferred by states that wait for their goroutines in the end.
func (h *fsmHandler) endGoroutines() {
	if v := recover(); v != nil {
		h.noteStatePanic(v)
		h.conn.Close()
		h.outgoing.In() <- v // no message, which ends the one that sends
		panic(v)
	}
}

// lockPatience is how long others hold the lock of a session at most. Who panicked holds it for
// ever.
const lockPatience = 5 * time.Second

func (h *fsmHandler) afterPanic(
	ctx context.Context, state bgp.FSMState,
) (bgp.FSMState, *fsmStateReason) {
	fsm := h.fsm
	for start := time.Now(); !fsm.lock.TryLock(); time.Sleep(time.Millisecond) {
		if time.Since(start) > lockPatience { // something was being changed
			if fsm.onPanic != nil {
				fsm.onPanic(fsm.pConf.State.NeighborAddress, h.panicked)
			}
			panic(h.panicked)
		}
	}
	conn, restart := fsm.conn, fsm.pConf.GracefulRestart.State
	fsm.lock.Unlock()
	fsm.logPanic(h.panicked)
	if conn != nil {
		conn.Close()
	}
	reason := newfsmStateReason(fsmReadFailed, nil, nil)
	if state == bgp.BGP_FSM_ESTABLISHED && restart.Enabled {
		fsm.gracefulRestartTimer.Reset(time.Duration(restart.PeerRestartTime) * time.Second)
		reason.Type = fsmGracefulRestart
	}
	fsm.backoff.sessionEnded(time.Now()) // too short, whatever it was
	select {
	case <-ctx.Done():
		return -1, newfsmStateReason(fsmDying, nil, nil)
	case <-time.After(fsm.backoff.idle()):
	}
	return bgp.BGP_FSM_IDLE, reason
}

func (fsm *fsm) logPanic(what string) {
	fsm.tell(SessionPanicked, errors.New(what))
	fsm.logger.Error("session panicked",
		log.Fields{"Topic": "Peer", "Key": fsm.pConf.State.NeighborAddress, "Error": what})
}

// dialPanicked is deferred by the goroutine that dials. The state that waits for it begins anew.
func (h *fsmHandler) dialPanicked() {
	if v := recover(); v != nil {
		h.fsm.logPanic(bgp.DescribePanic(v))
		select {
		case h.stateReasonCh <- *newfsmStateReason(fsmReadFailed, nil, nil):
		default: // it ends already
		}
	}
}
