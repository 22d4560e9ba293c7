package agent

import (
	"cmp"
	"slices"
	"strings"
)

// complaint is something that status can show, by the name of a condition and a reason. Metrics
// have a series for each, also while it does not hold; docs/monitoring.md says what each means.
type complaint struct{ condition, reason string }

// reasons are all reasons by condition. They are only added to, as the JSON of status.
var reasons = map[string][]string{
	"datastore": {"waiting", "stale", "disconnected", "copy_not_kept", "problems",
		"prefixes_unrouted"},
	"node": {"no_data", "incomplete", "last_known", "locked", "wireguard_key"},
	"bgp": {"off", "port_taken", "not_applied", "not_started", "waiting_for_drops", "new_process",
		"sessions_down", "peers_to_remove", "prefixes_withheld"},
	"dataplane": {"away", "refuses_all", "refuses_learned", "peer_unreachable", "impaired"},
	"fib": {"sweep_waits", "routes_failed", "routes_unusable", "routes_held", "routes_shadowed",
		"routes_drifted", "next_hops_unusable", "deletions_held", "journal_degraded"},
	"uplink": {"down", "not_published", "publishing_fails"},
	"linux": {"impaired", "objects_failed", "objects_held", "objects_shadowed",
		"journal_degraded"},
	"report":   {"not_published", "too_many_questions"},
	"state":    {"not_opened"},
	"recorder": {"not_written", "updates_not_written"},
	"drain":    {"draining", "withdrawn", "not_withdrawn", "not_kept"},
}

// deliberate are those that somebody has asked for: they do not make a node degraded.
var deliberate = map[complaint]bool{{"bgp", "off"}: true, {"bgp", "prefixes_withheld"}: true,
	{"drain", "draining"}: true, {"drain", "withdrawn"}: true}

// The words of Status.Health.
const (
	HealthReady    = "ready"
	HealthDegraded = "degraded" // in service, and something is not as it should be
	HealthNotReady = "not ready"
)

// setHealth sets what follows from the rest of s.
func (s *Status) setHealth() {
	s.Ready = !slices.ContainsFunc(s.Conditions, func(c Condition) bool { return !c.OK })
	s.Degraded = []DegradedStatus{}
	for c, is := range s.complaints() {
		if is && !deliberate[c] {
			s.Degraded = append(s.Degraded, DegradedStatus{c.condition, c.reason})
		}
	}
	slices.SortFunc(s.Degraded, func(a, b DegradedStatus) int {
		return cmp.Or(cmp.Compare(a.Condition, b.Condition), cmp.Compare(a.Reason, b.Reason))
	})
	switch {
	case !s.Ready:
		s.Health = HealthNotReady
	case len(s.Degraded) > 0:
		s.Health = HealthDegraded
	default:
		s.Health = HealthReady
	}
}

// complaints returns what status shows now.
func (s Status) complaints() map[complaint]bool {
	var all RouteCounts
	for _, c := range s.FIB.Routes {
		all.Failed, all.Unusable = all.Failed+c.Failed, all.Unusable+c.Unusable
		all.Held, all.Shadowed = all.Held+c.Held, all.Shadowed+c.Shadowed
		all.Drifted += c.Drifted
	}
	down := false
	for _, p := range s.BGP.Peers {
		down = down || !p.Established
	}
	shown := map[complaint]bool{
		{"datastore", "copy_not_kept"}:     s.Datastore.Kept != "ok",
		{"datastore", "problems"}:          len(s.Problems) > 0,
		{"datastore", "prefixes_unrouted"}: len(s.Unrouted) > 0,
		{"bgp", "sessions_down"}:           down,
		{"bgp", "peers_to_remove"}:         s.BGP.PeersToRemove > 0,
		{"bgp", "prefixes_withheld"}:       len(s.BGP.Withheld) > 0,
		{"fib", "routes_failed"}:           all.Failed > 0,
		{"fib", "routes_unusable"}:         all.Unusable > 0,
		{"fib", "routes_held"}:             all.Held > 0,
		{"fib", "routes_shadowed"}:         all.Shadowed > 0,
		{"fib", "routes_drifted"}:          all.Drifted > 0,
		{"fib", "next_hops_unusable"}:      len(s.FIB.UnusableNextHops) > 0,
		{"fib", "deletions_held"}:          len(s.FIB.Guard) > 0,
		{"fib", "journal_degraded"}:        strings.HasPrefix(s.FIB.Journal, "degraded"),
		{"drain", "not_kept"}:              s.Drain != nil && s.Drain.NotKept != "",
	}
	if l := s.Linux; l != nil {
		shown[complaint{"linux", "impaired"}] = l.Problem != ""
		shown[complaint{"linux", "objects_failed"}] = l.Objects.Failed > 0
		shown[complaint{"linux", "objects_held"}] = l.Objects.Held > 0
		shown[complaint{"linux", "objects_shadowed"}] = l.Objects.Shadowed > 0
		shown[complaint{"linux", "journal_degraded"}] = strings.HasPrefix(l.Journal, "degraded")
	}
	for _, c := range s.Conditions {
		if c.Message != "" || !c.OK {
			shown[complaint{c.Name, c.Reason}] = true
		}
	}
	return shown
}
