package etcd

import (
	"context"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"vpp-route-agent/internal/calico"
)

const (
	// firstRetry and lastRetry bound the back-off. Half of it is random, since a thousand nodes
	// lose their etcd at the same moment.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// Run reads until ctx ends and returns nil. It waits for an absent etcd. After a loss it keeps its
// data, reconnects and catches up. Call it once.
func (s *Source) Run(ctx context.Context) error {
	f := newFollower(s)
	wait := firstRetry
	for {
		began := time.Now()
		err := s.attempt(ctx, f)
		if ctx.Err() != nil {
			return nil
		}
		f.absences.lose(s.Status().LastContact)
		s.lost(s.cfg.diagnose(ctx, err))
		if time.Since(began) > lastRetry {
			wait = firstRetry
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		wait = min(2*wait, lastRetry)
	}
}

// attempt connects and follows until an error. Each attempt has a new client, without dead
// connections and with renewed certificates.
func (s *Source) attempt(ctx context.Context, f *follower) error {
	cfg := s.client
	cfg.Context = ctx
	client, err := clientv3.New(cfg) // logs in, if there is a user
	if err != nil {
		return err
	}
	defer client.Close()
	return f.follow(ctx, client)
}

// heard records an answer of etcd.
func (s *Source) heard() {
	s.update(func(st *Status) { st.LastContact = time.Now() })
}

// connected records that etcd is connected, and logs the change.
func (s *Source) connected() {
	was := false
	s.update(func(st *Status) {
		was = st.Connected
		st.Connected, st.Error, st.LastContact = true, "", time.Now()
	})
	s.lastCode = codes.OK
	if !was {
		s.log.Info("etcd is connected")
	}
}

// lost records err, and logs it unless the attempt before failed in the same way: an outage is one
// line.
func (s *Source) lost(err error) {
	why, code := explain(err, s.client.Username), codeOf(err)
	var was Status
	s.update(func(st *Status) {
		was = *st
		st.Connected, st.Error = false, why
		st.Failures++
	})
	if !was.Connected && code == s.lastCode {
		return
	}
	s.lastCode = code
	if was.Synced {
		s.log.Warn("etcd is not usable, what was read before stays in use", "err", why)
	} else {
		s.log.Warn("etcd is not usable, waiting for it", "err", why)
	}
}

// publish replaces an unread snapshot by snap.
func (s *Source) publish(snap *calico.Snapshot) {
	select {
	case <-s.out:
	default:
	}
	s.out <- snap // there is room: nobody else sends
	s.update(func(st *Status) {
		st.Synced, st.Revision, st.Lists, st.Problems = true, snap.Revision, snap.Lists,
			len(snap.Problems)
	})
	s.nameProblems(snap.Problems)
}

// nameProblems logs each problem when it appears, changes or is gone.
func (s *Source) nameProblems(problems []calico.Problem) {
	now := make(map[string]string, len(problems))
	for _, p := range problems {
		now[p.Key] = p.Err
		if s.named[p.Key] != p.Err {
			s.log.Warn("an item of Calico's data cannot be used", "key", p.Key, "err", p.Err)
		}
	}
	for key := range s.named {
		if _, still := now[key]; !still {
			s.log.Info("an item of Calico's data is in order again, or gone", "key", key)
		}
	}
	s.named = now
}
