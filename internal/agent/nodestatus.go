package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
)

// applied is what the speaker has taken whole, as a reflector controller asks about it. It does not
// change.
type applied struct {
	snapshot *calico.Snapshot // nil: nothing yet
	digest   string
	peers    []bgp.Peer               // that the snapshot asks for, also those that are not served
	since    map[bgp.PeerID]time.Time // when each was first wanted
}

// next is what follows once the speaker has taken the plan that was made of s.
func (a applied) next(node string, s *calico.Snapshot, now time.Time) applied {
	peers, _ := bgp.Peers(node, s)
	n := applied{s, reflector.Digest(node, s), peers, make(map[bgp.PeerID]time.Time, len(peers))}
	for _, p := range peers {
		since, ok := a.since[p.ID()]
		if !ok {
			since = now
		}
		n.since[p.ID()] = since
	}
	return n
}

// stepReport tells a reflector controller how this node stands. While the speaker refuses a plan,
// that is by the plan before.
func (a *Agent) stepReport(now time.Time) {
	if a.cfg.Report == nil || a.sessions.configured.IsZero() {
		return
	}
	if a.setError == nil && a.inputs.snapshot != a.applied.snapshot {
		a.applied = a.applied.next(a.cfg.Node, a.inputs.snapshot, now)
	}
	if a.applied.snapshot == nil {
		return
	}
	s := sessionsStatus(a.applied, a.cfg.Speaker.Peers())
	s.Format, s.Version, s.Digest = reflector.StatusFormat, a.cfg.Version, a.applied.digest
	s.Draining = a.drainState() != drainNone
	s.Dataplane = a.cfg.Dataplane
	if a.cfg.FIB != nil {
		for _, c := range a.cfg.FIB.Stats().Routes {
			s.Drifted += c.Drifted
			s.Refused += c.Failed
		}
	}
	a.cfg.Report(s)
}

// sessionsStatus are the sessions with Calico nodes.
func sessionsStatus(a applied, states []bgp.PeerState) (s reflector.Status) {
	byID := make(map[bgp.PeerID]bgp.PeerState, len(states))
	for _, st := range states {
		byID[st.ID] = st
	}
	var down []reflector.Down // of no reflector
	for _, p := range a.peers {
		if p.CalicoNode == "" {
			continue
		}
		st, known := byID[p.ID()]
		session := s.Wanted
		s.Wanted++
		if p.Reflector {
			s.Reflectors = append(s.Reflectors, reflector.Session{
				Node: p.CalicoNode, IPv6: p.Address.Is6(), Up: st.Established,
				EndOfRIB: st.EndOfRIB,
			})
		}
		if st.Established {
			s.Up++
			continue
		}
		s.SetDown(session)
		d := reflector.Down{Node: p.CalicoNode, Since: a.since[p.ID()]}
		if known && st.Since.After(d.Since) {
			d.Since = st.Since
		}
		d.Since = d.Since.UTC().Truncate(time.Second)
		if p.Reflector {
			s.Down = append(s.Down, d)
		} else {
			down = append(down, d)
		}
	}
	s.Down = slices.Concat(s.Down, down)
	return s
}

// Answer says what the answer to a question is, by what the speaker has taken.
func (a *Agent) Answer(ctx context.Context, q reflector.Question) (reflector.Answer, error) {
	for {
		by := a.shownApplied()
		if by.snapshot == nil {
			return reflector.Answer{}, errors.New("the speaker has taken no plan yet")
		}
		left := q.Left(a.cfg.Node, by.snapshot)
		ipv4, ipv6, err := a.cfg.Speaker.Without(ctx, left.Keeps)
		if err != nil {
			return reflector.Answer{}, err
		}
		if a.shownApplied().digest == by.digest { // else it is of neither
			return reflector.Answer{
				Format: reflector.StatusFormat, Version: a.cfg.Version, Question: q,
				Digest: by.digest, IPv4: ipv4, IPv6: ipv6,
			}, nil
		}
	}
}

func (a *Agent) shownApplied() applied {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.shown.applied
}
