package agent

import (
	"cmp"
	"errors"
	"fmt"
	"syscall"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/recorder"
	"vpp-route-agent/internal/route"
)

// Condition is one thing that must hold for the node to be ready.
type Condition struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Reason  string `json:"reason,omitempty"` // for programs: one of reasons; "" without Message
	Message string `json:"message,omitempty"`
}

// uplinkCondition stays true while etcd refuses what was published before: others know the address
// until its lease ends.
func uplinkCondition(u UplinkStatus) Condition {
	switch {
	case !u.OK:
		return Condition{Name: "uplink", Reason: "down", Message: u.Problem}
	case u.Publish != "off" && len(u.Published) == 0:
		return Condition{Name: "uplink", Reason: "not_published",
			Message: "not published yet: " + u.PublishProblem}
	case u.PublishProblem != "":
		return Condition{Name: "uplink", OK: true, Reason: "publishing_fails",
			Message: u.PublishProblem}
	}
	return Condition{Name: "uplink", OK: true}
}

// reportCondition always holds: the node works without, and to a controller it is one of which
// nothing is known.
func reportCondition(r ReportStatus) Condition {
	c := Condition{Name: "report", OK: true}
	switch {
	case r.Problem != "":
		c.Reason = "not_published"
		c.Message = "a reflector controller is not told how this node stands: " + r.Problem
	case r.TooManyQuestions:
		c.Reason = "too_many_questions"
		c.Message = "etcd has more questions than an agent answers; it answers the first"
	}
	return c
}

// datastoreCondition stays true while etcd is away after a first sync, and with data that an
// earlier run kept.
func (s *state) datastoreCondition(d DatastoreStatus) Condition {
	c := Condition{Name: "datastore", OK: d.Synced || d.Stale}
	what := "etcd"
	if d.Type == "kubernetes" {
		what = "the Kubernetes API"
	}
	switch {
	case d.Stale && d.AsOf != nil:
		why := d.Error
		if d.Synced {
			why = cmp.Or(s.locked, "what it has now is being read")
		}
		c.Reason = "stale"
		c.Message = fmt.Sprintf("working with the data kept on disk at %s, which may be stale: %s",
			d.AsOf.UTC().Format(time.RFC3339), why)
	case !d.Synced && d.Error == "":
		c.Reason, c.Message = "waiting", "waiting for "+what
	case !d.Synced:
		c.Reason, c.Message = "waiting", "waiting for "+what+": "+d.Error
	case !d.Connected:
		c.Reason, c.Message = "disconnected", "working with the last known data: "+d.Error
	}
	return c
}

// nodeCondition holds without BGP, unless the node cannot read what others send: they find it by
// what it publishes.
func (s *state) nodeCondition() Condition {
	c, configured := Condition{Name: "node"}, !s.sessions.configured.IsZero()
	switch {
	case s.locked != "":
		c.OK, c.Reason = configured, "locked"
		c.Message = s.locked + "; nothing is changed"
	case s.plan.CannotRead != "":
		c.Reason, c.Message = "wireguard_key", s.plan.CannotRead
	case s.noBGP:
		c.OK = true
	case s.waitingForNode != "" && configured:
		c.Reason = "last_known"
		c.Message = s.waitingForNode + "; until then its last known address and AS are used"
	case s.waitingForNode != "":
		c.Reason, c.Message = "incomplete", s.waitingForNode
	case len(s.plan.OwnAddresses) == 0:
		c.Reason, c.Message = "no_data", "waiting for Calico's data"
	default:
		c.OK = true
	}
	return c
}

func (s *state) speakerCondition() Condition {
	c := Condition{Name: "bgp"}
	switch {
	case errors.Is(s.setError, bgp.ErrSpeakerChanged):
		c.OK, c.Reason = true, "new_process"
		c.Message = s.setError.Error() + "; a new process takes over in a moment"
	case s.noBGP:
		c.OK, c.Reason, c.Message = true, "off", "off, routes come from IPAM alone"
	case errors.Is(s.setError, syscall.EADDRINUSE):
		c.Reason = "port_taken"
		c.Message = fmt.Sprintf("%v; another BGP speaker has the port, such as BIRD or FRR: only "+
			"one may run on a node, and `ss -ltnp 'sport = :%d'` names it", s.setError,
			s.plan.BGP.Speaker.ListenPort)
	case s.setError != nil:
		c.Reason, c.Message = "not_applied", s.setError.Error()
	case !s.sessions.configured.IsZero():
		c.OK = true
	case len(s.plan.Deferred) > 0:
		c.Reason = "waiting_for_drops"
		c.Message = "sessions wait for the drop routes of own blocks, 5 s at most"
	default:
		c.Reason, c.Message = "not_started", "sessions are not started yet"
	}
	return c
}

// stateCondition always holds: the node works without, until the agent is started again.
func stateCondition(err error) Condition {
	return Condition{Name: "state", OK: true, Reason: "not_opened", Message: fmt.Sprintf(
		"the state directory could not be opened at the start: %v; a restart remembers nothing "+
			"without it; repair it, then restart the agent", err)}
}

// recorderCondition always holds: the node works without. updates is about what peers send.
func recorderCondition(records, updates recorder.Stats) Condition {
	c := Condition{Name: "recorder", OK: true}
	say := func(what string, s recorder.Stats) string {
		return fmt.Sprintf("%s is not recorded since %s: %s", what,
			s.Since.UTC().Format(time.RFC3339), s.Problem)
	}
	switch {
	case records.Problem != "":
		c.Reason, c.Message = "not_written", say("what happens", records)
	case updates.Problem != "":
		c.Reason, c.Message = "updates_not_written", say("what BGP peers send", updates)
	}
	return c
}

// drainCondition holds, and is a mere remark, when the drain is cancelled.
func drainCondition(d DrainStatus) Condition {
	c := Condition{Name: "drain"}
	switch {
	case d.Phase == NotDraining:
		return Condition{Name: "drain", OK: true, Reason: "not_kept", Message: d.AfterRestart()}
	case d.NotWithdrawn != "":
		c.Reason = "not_withdrawn"
		c.Message = fmt.Sprintf("the wait is over, but not everything is withdrawn yet: %s; "+
			"`drain --cancel` ends that", d.NotWithdrawn)
	case d.Phase == Draining:
		c.Reason = "draining"
		c.Message = fmt.Sprintf("what this node announces is the worst choice, "+
			"and is withdrawn %s%s; `drain --cancel` ends that",
			untilIdle(d), d.Until.UTC().Format(time.RFC3339))
	default:
		c.Reason = "withdrawn"
		c.Message = "everything is withdrawn; `drain --cancel` announces it again"
	}
	if after := d.AfterRestart(); after != "" {
		c.Message += "; " + after
	}
	return c
}

// untilIdle says what a drain waits for besides a point in time, which follows.
func untilIdle(d DrainStatus) string {
	switch {
	case d.UntilIdle == nil:
		return "at "
	case d.TrafficUnknown != "":
		return fmt.Sprintf("by time alone (%s), at ", d.TrafficUnknown)
	case d.PacketsPerSecond == nil:
		return fmt.Sprintf("at %g packets/s or fewer, at the latest at ", *d.UntilIdle)
	}
	return fmt.Sprintf("at %g packets/s or fewer (now %.0f), at the latest at ",
		*d.UntilIdle, *d.PacketsPerSecond)
}

// dataplaneCondition fails if the data plane refuses every single route, or every learned one, and
// while unreachable says something. Other refused routes do not take a node out of service.
func dataplaneCondition(f FIBStatus, unreachable string) Condition {
	c := Condition{Name: "dataplane"}
	var all, learned RouteCounts
	for _, r := range f.Routes {
		if r.Origin == route.External.String() {
			continue // what outside processes want never takes a node out of service
		}
		all.Desired, all.Failed = all.Desired+r.Desired, all.Failed+r.Failed
		if r.Origin != route.Own.String() {
			learned.Desired += r.Desired
			learned.Failed += r.Failed
		}
	}
	switch refused := "it refuses all %d %s, the last one with: %v"; {
	case f.Identity == "":
		c.Reason, c.Message = "away", f.Problem
	case all.Failed > 0 && all.Failed == all.Desired:
		c.Reason = "refuses_all"
		c.Message = fmt.Sprintf(refused, all.Failed, "routes", f.refusal)
	case learned.Failed > 0 && learned.Failed == learned.Desired:
		c.Reason = "refuses_learned"
		c.Message = fmt.Sprintf(refused, learned.Failed, "learned routes", f.refusal)
	case unreachable != "":
		c.Reason, c.Message = "peer_unreachable", unreachable
	case f.Problem != "":
		c.OK, c.Reason, c.Message = true, "impaired", f.Problem
	default:
		c.OK = true
	}
	return c
}

// sweepCondition fails until what an earlier run left may be deleted.
func sweepCondition(waits string) Condition {
	c := Condition{Name: "fib", OK: waits == "", Message: waits}
	if !c.OK {
		c.Reason = "sweep_waits"
	}
	return c
}

// unreachablePeer names a peer with reachableBy that is Established while no route via it is
// programmed: they all depend on the host route to it. Other sessions take the way of their routes,
// so that the session itself shows whether the peer can be reached.
func unreachablePeer(peers []bgp.Peer, s Status, e *fib.Engine) string {
	for i, p := range peers { // s.BGP.Peers has the same order
		st := s.BGP.Peers[i]
		if !p.ReachableBy.IsValid() || !st.Established || st.Received == 0 {
			continue
		}
		why := ""
		if n, err := e.RefusedVia(p.Address); n > 0 {
			why = fmt.Sprintf("it refuses all %d, one with: %v", n, err)
		}
		for _, hop := range s.FIB.UnusableNextHops {
			if hop.Address == p.Address {
				why = hop.Reason
			}
		}
		if why != "" {
			return fmt.Sprintf("no route via %s, reachable by %s, is programmed: %s",
				p.Address, p.ReachableBy, why)
		}
	}
	return ""
}
