package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/recorder"
)

// Each reason is one of something that status says, and each thing that it says has its reason.
func TestEachComplaintHasItsReason(t *testing.T) {
	asOf, why := time.Now(), "why"
	configured := sessions{configured: asOf}
	known := Plan{OwnAddresses: []netip.Addr{addr("192.168.4.2")}}
	routes := func(c RouteCounts) Status { return Status{FIB: FIBStatus{Routes: []RouteCounts{c}}} }
	condition := func(c Condition) Status { return Status{Conditions: []Condition{c}} }
	nothing := &state{}
	seen := 0
	for want, s := range map[complaint]Status{
		{"datastore", "waiting"}: condition(nothing.datastoreCondition(
			DatastoreStatus{Error: why})),
		{"datastore", "stale"}: condition(nothing.datastoreCondition(
			DatastoreStatus{Stale: true, AsOf: &asOf})),
		{"datastore", "disconnected"}: condition(nothing.datastoreCondition(
			DatastoreStatus{Synced: true, Error: why})),
		{"datastore", "copy_not_kept"}: {Datastore: DatastoreStatus{Kept: "degraded: full"}},
		{"datastore", "problems"}:      {Problems: []ProblemStatus{{Key: "k"}}},
		{"datastore", "prefixes_unrouted"}: {
			Unrouted: []UnroutedStatus{{Prefix: pfx("10.1.0.0/26")}}},
		{"node", "no_data"}:    condition((&state{}).nodeCondition()),
		{"node", "incomplete"}: condition((&state{waitingForNode: why}).nodeCondition()),
		{"node", "last_known"}: condition((&state{waitingForNode: why,
			sessions: configured}).nodeCondition()),
		{"node", "locked"}: condition((&state{locked: why}).nodeCondition()),
		{"node", "wireguard_key"}: condition((&state{plan: Plan{
			CannotRead: why}}).nodeCondition()),
		{"bgp", "off"}: condition((&state{noBGP: true}).speakerCondition()),
		{"bgp", "port_taken"}: condition((&state{
			setError: fmt.Errorf("listen: %w", syscall.EADDRINUSE)}).speakerCondition()),
		{"bgp", "not_applied"}: condition((&state{
			setError: errors.New(why)}).speakerCondition()),
		{"bgp", "not_started"}: condition((&state{}).speakerCondition()),
		{"bgp", "waiting_for_drops"}: condition((&state{plan: Plan{
			Deferred: []netip.Prefix{pfx("10.1.0.0/26")}}}).speakerCondition()),
		{"bgp", "new_process"}: condition((&state{
			setError: bgp.ErrSpeakerChanged}).speakerCondition()),
		{"bgp", "sessions_down"}:     {BGP: BGPStatus{Peers: []PeerStatus{{}}}},
		{"bgp", "peers_to_remove"}:   {BGP: BGPStatus{PeersToRemove: 1}},
		{"bgp", "prefixes_withheld"}: {BGP: BGPStatus{Withheld: []WithheldStatus{{}}}},
		{"dataplane", "away"}:        condition(dataplaneCondition(FIBStatus{Problem: why}, "")),
		{"dataplane", "refuses_all"}: condition(dataplaneCondition(FIBStatus{Identity: "boot",
			Routes: []RouteCounts{{Desired: 1, Failed: 1}}}, "")),
		{"dataplane", "refuses_learned"}: condition(dataplaneCondition(FIBStatus{Identity: "boot",
			Routes: []RouteCounts{{Origin: "own", Desired: 1},
				{Origin: "bgp", Desired: 1, Failed: 1}}}, "")),
		{"dataplane", "peer_unreachable"}: condition(dataplaneCondition(
			FIBStatus{Identity: "boot"}, why)),
		{"dataplane", "impaired"}: condition(dataplaneCondition(
			FIBStatus{Identity: "boot", Problem: why}, "")),
		{"fib", "sweep_waits"}:     condition(sweepCondition(why)),
		{"fib", "routes_failed"}:   routes(RouteCounts{Failed: 1}),
		{"fib", "routes_unusable"}: routes(RouteCounts{Unusable: 1}),
		{"fib", "routes_held"}:     routes(RouteCounts{Held: 1}),
		{"fib", "routes_shadowed"}: routes(RouteCounts{Shadowed: 1}),
		{"fib", "routes_drifted"}:  routes(RouteCounts{Drifted: 1}),
		{"fib", "next_hops_unusable"}: {FIB: FIBStatus{
			UnusableNextHops: []NextHopStatus{{}}}},
		{"fib", "deletions_held"}:     {FIB: FIBStatus{Guard: []GuardStatus{{}}}},
		{"fib", "journal_degraded"}:   {FIB: FIBStatus{Journal: "degraded: full"}},
		{"linux", "impaired"}:         {Linux: &LinuxStatus{Problem: why}},
		{"linux", "objects_failed"}:   {Linux: &LinuxStatus{Objects: ObjectCounts{Failed: 1}}},
		{"linux", "objects_held"}:     {Linux: &LinuxStatus{Objects: ObjectCounts{Held: 1}}},
		{"linux", "objects_shadowed"}: {Linux: &LinuxStatus{Objects: ObjectCounts{Shadowed: 1}}},
		{"linux", "journal_degraded"}: {Linux: &LinuxStatus{Journal: "degraded: full"}},
		{"uplink", "down"}:            condition(uplinkCondition(UplinkStatus{Problem: why})),
		{"uplink", "not_published"}:   condition(uplinkCondition(UplinkStatus{OK: true})),
		{"uplink", "publishing_fails"}: condition(uplinkCondition(UplinkStatus{OK: true,
			Published: []netip.Addr{addr("192.0.2.1")}, PublishProblem: why})),
		{"report", "not_published"}: condition(reportCondition(ReportStatus{Problem: why})),
		{"report", "too_many_questions"}: condition(reportCondition(
			ReportStatus{TooManyQuestions: true})),

		{"drain", "draining"}:  condition(drainCondition(DrainStatus{Phase: Draining})),
		{"drain", "withdrawn"}: condition(drainCondition(DrainStatus{Phase: Withdrawn})),
		{"drain", "not_withdrawn"}: condition(drainCondition(DrainStatus{Phase: Draining,
			NotWithdrawn: why})),
		{"state", "not_opened"}: condition(stateCondition(errors.New(why))),
		{"recorder", "not_written"}: condition(recorderCondition(recorder.Stats{Problem: why},
			recorder.Stats{})),
		{"recorder", "updates_not_written"}: condition(recorderCondition(recorder.Stats{},
			recorder.Stats{Problem: why})),
		{"drain", "not_kept"}: condition(drainCondition(DrainStatus{NotKept: why})),
	} {
		if s.Datastore.Kept == "" {
			s.Datastore.Kept = "ok"
		}
		shown := s.complaints()
		maps.DeleteFunc(shown, func(_ complaint, is bool) bool { return !is })
		if len(shown) != 1 || !shown[want] {
			t.Errorf("%v: got %v", want, shown)
		}
		if !slices.Contains(reasons[want.condition], want.reason) {
			t.Errorf("%v is in no list, so that metrics do not have it", want)
		}
		seen++
	}
	for _, all := range reasons {
		seen -= len(all)
	}
	if seen != 0 {
		t.Errorf("%d more complaints than reasons", seen)
	}
	quiet := Status{Datastore: DatastoreStatus{Kept: "ok"}, Conditions: []Condition{
		nothing.datastoreCondition(DatastoreStatus{Synced: true, Connected: true}),
		(&state{plan: known}).nodeCondition(), (&state{sessions: configured}).speakerCondition(),
		dataplaneCondition(FIBStatus{Identity: "boot"}, ""), sweepCondition(""),
		uplinkCondition(UplinkStatus{OK: true, Publish: "off"}), reportCondition(ReportStatus{}),
	}}
	for c, is := range quiet.complaints() {
		if is {
			t.Errorf("all is well, and %v", c)
		}
	}
}
