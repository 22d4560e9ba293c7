package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics reads the owners' state at each scrape; nothing is counted twice and nothing is kept here.
type metrics struct{ a *Agent }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("vpp_route_agent_"+name, help, labels, nil)
}

var (
	descInfo         = desc("info", "Always 1; tells the agent's version and data plane.", "version", "dataplane", "dataplane_version")
	descReady        = desc("ready", "1 when every condition of /readyz holds.")
	descDrain        = desc("drain", "1 while this node is drained: announced as the worst choice, or withdrawn.", "phase")
	descPeerUp       = desc("bgp_peer_established", "1 while the session is established.", "peer", "type")
	descPeerReceived = desc("bgp_peer_paths_received", "Paths received from the peer, before import policy.", "peer")
	descPeerAccepted = desc("bgp_peer_paths_accepted", "Paths accepted from the peer.", "peer")
	descAnnounced    = desc("bgp_announcements", "Prefixes that this node originates.")
	descDropped      = desc("bgp_paths_dropped_total", "Received paths that make no sense for forwarding and were left out.")
	descForeign      = desc("bgp_foreign_paths_removed_total", "Paths that somebody put into GoBGP over its API and that were removed.")
	descMalformed    = desc("bgp_malformed_messages_total", "Messages that could not be read and ended the session of the peer that sent them.")
	descRevised      = desc("bgp_revised_messages_total", "Malformed UPDATEs that cost a route or an attribute, and no session (RFC 7606).")
	descOverLimit    = desc("bgp_prefix_limits_reached_total", "Times that a peer was cut off because it sent more prefixes than it may.")
	descPanics       = desc("bgp_decoder_panics_total", "Messages on which GoBGP panicked while it decoded or sent them; each cost an attribute, a route or the peer's session.")
	descUnsendable   = desc("bgp_unsendable_paths_total", "Routes that had no room in a message to a peer, which had them withdrawn.")
	descDesired      = desc("fib_routes_desired", "Routes that should be in the data plane.", "family", "origin")
	descProgrammed   = desc("fib_routes_programmed", "Routes that the data plane has acknowledged.", "family", "origin")
	descShadowed     = desc("fib_routes_shadowed", "Acknowledged routes that another owner's route for the same prefix hides.", "family", "origin")
	descDrifted      = desc("fib_routes_drifted", "Acknowledged routes that were found missing or different and are not repaired.", "family", "origin")
	descChecked      = desc("fib_checks_total", "Routes compared with the data plane by spot checks and audits.")
	descDrift        = desc("fib_drift_total", "Routes that the data plane did not have as it had acknowledged them.", "kind")
	descRepaired     = desc("fib_drift_repaired_total", "Routes put right after drift.")
	descGuard        = desc("fib_guard_held", "Deletions that the mass-delete guard holds.", "origin")
	descAPILacks     = desc("dataplane_api_messages_lacking", "Messages of ours that the data plane's API lacks or has in another form.", "outcome")
	descQueued       = desc("fib_ops_queued", "Operations that wait for the data plane or its answer.")
	descFailed       = desc("fib_routes_failed", "Routes that the data plane refused; they are tried again.", "family", "origin")
	descUnusable     = desc("fib_routes_unusable", "Prefixes that are not programmed because no next hop is usable or a guard refuses them.", "family", "origin")
	descHeld         = desc("fib_routes_held", "Routes of an earlier run that wait for the sweep.", "family", "origin")
	descJournal      = desc("fib_journal_ok", "1 while the journal of programmed routes is written as it should; absent where none is kept.")
	descOps          = desc("fib_ops_total", "Operations that the data plane answered.", "result")
	descBatches      = desc("fib_batches_total", "Batches in which operations were handed to the data plane.")
	descConnections  = desc("dataplane_connections_total", "Connections to the data plane that were made ready for use.")
	descRefused      = desc("dataplane_refusals_total", "Operations that the data plane refused.", "reason")
	descDataplaneUp  = desc("dataplane_up", "1 while the data plane answers.")
	descEtcdUp       = desc("etcd_connected", "1 while etcd answers.")
	descEtcdAge      = desc("etcd_last_contact_seconds", "Seconds since etcd last answered.")
	descStale        = desc("datastore_stale", "1 while the data in use are those that an earlier run kept on disk.")
	descKept         = desc("datastore_copy_ok", "1 while the copy of Calico's data on disk is written as it should.")
	descEtcdRevision = desc("etcd_revision", "Revision of the data in use.")
	descEtcdRelists  = desc("etcd_relists_total", "How often all of Calico's data was listed again.")
	descUnrouted     = desc("etcd_prefixes_unrouted", "Blocks and borrowed addresses of other hosts that yield no route from etcd.")
	descPublished    = desc("uplink_published", "1 while etcd has acknowledged this node's address; absent where it is not to be published.")
	descUplink       = desc("uplink_ok", "1 while the uplink is up and has its addresses.")
	descProblems     = desc("datastore_problems", "Pieces of Calico's data that cannot be used and are skipped.")
)

// Describe sends nothing: an unchecked collector, since Collect decides which series exist.
func (metrics) Describe(chan<- *prometheus.Desc) {}

func (m metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	s := m.a.Status()
	gauge(descInfo, 1, s.Version, s.FIB.Dataplane, s.FIB.Version)
	gauge(descReady, oneIf(s.Ready))
	for _, phase := range []DrainPhase{Draining, Withdrawn} {
		gauge(descDrain, oneIf(s.Drain != nil && s.Drain.Phase == phase), string(phase))
	}
	for _, p := range s.BGP.Peers {
		gauge(descPeerUp, oneIf(p.Established), p.Peer.String(), p.Type)
		gauge(descPeerReceived, float64(p.Received), p.Peer.String())
		gauge(descPeerAccepted, float64(p.Accepted), p.Peer.String())
	}
	gauge(descAnnounced, float64(len(s.BGP.Announcements)))
	counter(descDropped, float64(s.BGP.PathsDropped))
	counter(descForeign, float64(s.BGP.PathsForeign))
	counter(descMalformed, float64(s.BGP.MessagesMalformed))
	counter(descRevised, float64(s.BGP.MessagesRevised))
	counter(descOverLimit, float64(s.BGP.PrefixLimitsReached))
	counter(descPanics, float64(s.BGP.DecoderPanics))
	counter(descUnsendable, float64(s.BGP.PathsUnsendable))
	gauge(descProblems, float64(len(s.Problems)))
	if m.a.cfg.EtcdRoutes != nil {
		gauge(descUnrouted, float64(len(s.Unrouted)))
	}
	if s.Uplink != nil {
		gauge(descUplink, oneIf(s.Uplink.OK))
		if s.Uplink.Publish != "off" {
			gauge(descPublished, oneIf(len(s.Uplink.Published) > 0))
		}
	}
	gauge(descEtcdUp, oneIf(s.Datastore.Connected))
	gauge(descStale, oneIf(s.Datastore.Stale))
	gauge(descKept, oneIf(s.Datastore.Kept == "ok"))
	gauge(descEtcdRevision, float64(s.Datastore.Revision))
	counter(descEtcdRelists, float64(s.Datastore.Relists))
	if s.Datastore.LastContact != nil {
		gauge(descEtcdAge, time.Since(*s.Datastore.LastContact).Seconds())
	}
	if m.a.cfg.FIB == nil {
		return
	}
	gauge(descDataplaneUp, oneIf(s.FIB.Identity != ""))
	for _, c := range s.FIB.Routes {
		gauge(descDesired, float64(c.Desired), c.Family, c.Origin)
		gauge(descProgrammed, float64(c.Programmed), c.Family, c.Origin)
		gauge(descFailed, float64(c.Failed), c.Family, c.Origin)
		gauge(descUnusable, float64(c.Unusable), c.Family, c.Origin)
		gauge(descHeld, float64(c.Held), c.Family, c.Origin)
		gauge(descShadowed, float64(c.Shadowed), c.Family, c.Origin)
		gauge(descDrifted, float64(c.Drifted), c.Family, c.Origin)
	}
	for origin, n := range guarded(s.FIB) {
		gauge(descGuard, float64(n), origin)
	}
	counter(descChecked, float64(s.FIB.Drift.Checked))
	counter(descDrift, float64(s.FIB.Drift.Missing), "missing")
	counter(descDrift, float64(s.FIB.Drift.Different), "different")
	counter(descDrift, float64(s.FIB.Drift.Extra), "extra")
	counter(descRepaired, float64(s.FIB.Drift.Repaired))
	if s.FIB.API != "" {
		gauge(descAPILacks, float64(len(s.FIB.APILacks)), s.FIB.API)
	}
	if s.FIB.Journal != "off" {
		gauge(descJournal, oneIf(s.FIB.Journal == "ok"))
	}
	gauge(descQueued, float64(s.FIB.OpsQueued))
	counter(descOps, float64(s.FIB.OpsPut), "put")
	counter(descOps, float64(s.FIB.OpsDeleted), "delete")
	counter(descOps, float64(s.FIB.OpsFailed), "refused")
	counter(descBatches, float64(s.FIB.Batches))
	if m.a.cfg.DataplaneStats == nil {
		return
	}
	d := m.a.cfg.DataplaneStats()
	counter(descConnections, float64(d.Connections))
	for reason, n := range d.Refused {
		counter(descRefused, float64(n), reason)
	}
}

// guarded counts the held deletions of every origin, also where there are none: an alert cannot see a series that comes and goes.
func guarded(s FIBStatus) map[string]int {
	held := map[string]int{}
	for _, c := range s.Routes {
		held[c.Origin] = 0
	}
	for _, g := range s.Guard {
		held[g.Origin] = g.Held
	}
	return held
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
