package agent

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/recorder"
)

// metrics reads the owners' state at each scrape, and keeps none itself.
type metrics struct{ a *Agent }

// Describe sends nothing: an unchecked collector, since Collect decides which series exist.
func (metrics) Describe(chan<- *prometheus.Desc) {}

// series adds one series to a metric.
type series func(v float64, labels ...string)

// Collect implements prometheus.Collector.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	metric := func(kind prometheus.ValueType, name, help string, labels []string) series {
		desc := prometheus.NewDesc("vpp_route_agent_"+name, help, labels, nil)
		return func(v float64, values ...string) {
			ch <- prometheus.MustNewConstMetric(desc, kind, v, values...)
		}
	}
	gauge := func(name, help string, labels ...string) series {
		return metric(prometheus.GaugeValue, name, help, labels)
	}
	counter := func(name, help string, labels ...string) series {
		return metric(prometheus.CounterValue, name, help, labels)
	}
	s := m.a.Status()
	gauge("info", "Always 1; labels have the agent's version and data plane.",
		"version", "dataplane", "dataplane_version")(1, s.Version, s.FIB.Dataplane, s.FIB.Version)
	gauge("ready", "1 when every condition of /readyz holds.")(oneIf(s.Ready))
	condition := gauge("condition", "1 while `vpp-route-agent status` says so; there is a series "+
		"for all that it can say.", "condition", "reason")
	shown := s.complaints()
	for name, all := range reasons {
		for _, reason := range all {
			condition(oneIf(shown[complaint{name, reason}]), name, reason)
		}
	}
	drain := gauge("drain",
		"1 while this node is drained: announced as the worst choice, or withdrawn.", "phase")
	for _, phase := range []DrainPhase{Draining, Withdrawn} {
		drain(oneIf(s.Drain != nil && s.Drain.Phase == phase), string(phase))
	}

	up := gauge("bgp_peer_established", "1 while the session is established.", "peer", "type")
	received := gauge("bgp_peer_paths_received",
		"Paths received from the peer, before import policy.", "peer")
	accepted := gauge("bgp_peer_paths_accepted", "Paths accepted from the peer.", "peer")
	flaps := counter("bgp_peer_flaps_total", "Times that the session was lost.", "peer")
	updatesReceived := counter("bgp_peer_updates_received_total",
		"UPDATE messages received from the peer.", "peer")
	updatesSent := counter("bgp_peer_updates_sent_total", "UPDATE messages sent to the peer.",
		"peer")
	contact := gauge("bgp_peer_last_contact_timestamp_seconds",
		"When a message of the peer was last seen, in Unix time; absent before the first.", "peer")
	for _, p := range s.BGP.Peers {
		peer := p.Peer.String()
		up(oneIf(p.Established), peer, p.Type)
		received(float64(p.Received), peer)
		accepted(float64(p.Accepted), peer)
		flaps(float64(p.Flaps), peer)
		updatesReceived(float64(p.UpdatesReceived), peer)
		updatesSent(float64(p.UpdatesSent), peer)
		timestamp(contact, p.LastContact, peer)
	}
	gauge("bgp_announcements",
		"Prefixes that this node originates.")(float64(len(s.BGP.Announcements)))
	counter("bgp_strangers_refused_total", "Connections from addresses where no peer is.")(
		float64(s.BGP.StrangersRefused))
	counter("bgp_paths_dropped_total", "Received paths that make no sense for forwarding "+
		"and were left out.")(float64(s.BGP.PathsDropped))
	counter("bgp_foreign_paths_removed_total", "Paths that were added to GoBGP over its API "+
		"and that were removed.")(float64(s.BGP.PathsForeign))
	counter("bgp_malformed_messages_total", "Messages that could not be read and ended "+
		"the session of the peer that sent them.")(float64(s.BGP.MessagesMalformed))
	counter("bgp_revised_messages_total", "Malformed UPDATEs that cost a route or an attribute, "+
		"and no session (RFC 7606).")(float64(s.BGP.MessagesRevised))
	counter("bgp_prefix_limits_reached_total", "Times that a peer was cut off because it sent "+
		"more prefixes than it may.")(float64(s.BGP.PrefixLimitsReached))
	counter("bgp_decoder_panics_total", "Messages on which GoBGP panicked while it decoded or "+
		"sent them; each cost an attribute, a route or the peer's session.",
	)(float64(s.BGP.DecoderPanics))
	counter("bgp_unsendable_paths_total", "Routes that had no room in a message to a peer, "+
		"which had them withdrawn.")(float64(s.BGP.PathsUnsendable))

	gauge("datastore_problems", "Pieces of Calico's data that cannot be used and are skipped.")(
		float64(len(s.Problems)))
	gauge("datastore_stale", "1 while the data in use are those that an earlier run kept on disk.")(
		oneIf(s.Datastore.Stale))
	gauge("datastore_copy_ok", "1 while the copy of Calico's data on disk is written "+
		"as it should.")(
		oneIf(s.Datastore.Kept == "ok"))
	gauge("etcd_connected", "1 while etcd, or the Kubernetes API that has Calico's data, "+
		"answers.")(oneIf(s.Datastore.Connected))
	gauge("etcd_revision", "Revision of the data in use.")(float64(s.Datastore.Revision))
	counter("etcd_relists_total", "How often all of Calico's data was listed again.")(
		float64(s.Datastore.Relists))
	timestamp(gauge("etcd_last_contact_timestamp_seconds",
		"When the datastore last answered, in Unix time; absent before it first did."),
		s.Datastore.LastContact)
	if r := m.a.cfg.Recorder; r != nil {
		collectRecorder(r.Stats(), gauge, counter)
		if s, isOn := r.UpdateStats(); isOn {
			collectUpdates(s, gauge, counter)
		}
		times := r.Times()
		ch <- m.a.step("decide", times.Decide)
		ch <- m.a.step("wait", times.Send)
		ch <- m.a.step("answer", times.Answer)
	}
	if m.a.cfg.EtcdRoutes != nil {
		gauge("etcd_prefixes_unrouted", "Blocks and borrowed addresses of other hosts that yield "+
			"no route from etcd; absent without --learn ipam.")(float64(len(s.Unrouted)))
	}
	if len(s.External) > 0 {
		collectExternal(s.External, gauge)
	}
	if s.Linux != nil {
		collectLinux(*s.Linux, gauge, counter)
	}
	if s.Uplink != nil {
		gauge("uplink_ok", "1 while the uplink is up and has its addresses; absent without "+
			"--uplink.")(oneIf(s.Uplink.OK))
		if s.Uplink.Publish != "off" {
			gauge("uplink_published", "1 while etcd has acknowledged this node's address; "+
				"absent where it is not to be published.")(oneIf(len(s.Uplink.Published) > 0))
		}
	}
	if m.a.cfg.FIB != nil {
		collectFIB(s.FIB, gauge, counter)
		m.a.collectCounts(gauge, counter)
		ch <- delays(m.a.cfg.FIB.Stats().Delays)
		if m.a.cfg.DataplaneStats != nil {
			d := m.a.dataplaneStats()
			counter("dataplane_connections_total",
				"Connections to the data plane that were made ready for use.",
			)(float64(d.Connections))
			refused := counter("dataplane_refusals_total",
				"Operations that the data plane refused; absent before the first.", "reason")
			for reason, n := range d.Refused {
				refused(float64(n), reason)
			}
		}
	}
}

// delays is how long the data plane lagged behind the datastore.
func delays(h fib.Histogram) prometheus.Metric {
	buckets, count := map[float64]uint64{}, uint64(0)
	for i, n := range h.Counts {
		count += n
		if i < len(fib.HistogramBounds) {
			buckets[fib.HistogramBounds[i].Seconds()] = count
		}
	}
	return prometheus.MustNewConstHistogram(prometheus.NewDesc(
		"vpp_route_agent_datastore_event_to_fib_seconds", "Time from an event of etcd's until the "+
			"data plane had acknowledged all routes that it changed.", nil, nil),
		count, h.Sum.Seconds(), buckets)
}

// timestamp adds a series for a time that may not have come yet.
func timestamp(add series, at *time.Time, labels ...string) {
	if at != nil {
		add(float64(at.UnixMilli())/1000, labels...)
	}
}

func (a *Agent) dataplaneStats() DataplaneStats {
	if a.cfg.DataplaneStats == nil {
		return DataplaneStats{}
	}
	return a.cfg.DataplaneStats()
}

var stepDesc = prometheus.NewDesc("vpp_route_agent_fib_step_seconds",
	"Time that steps of changes took: until the decision (decide), until the data plane was "+
		"asked (wait), until it had answered (answer); absent with --recorder-size 0.",
	[]string{"step"}, nil)

// step is a histogram with native buckets, and with others for who does not scrape these.
func (a *Agent) step(name string, h recorder.Histogram) prometheus.Metric {
	native, err := prometheus.NewConstNativeHistogram(stepDesc, h.Count, h.Sum.Seconds(),
		h.Buckets(), nil, 0, recorder.Schema, 0, a.started, name)
	if err != nil {
		return prometheus.NewInvalidMetric(stepDesc, err)
	}
	return bothBuckets{native, h.Cumulative()}
}

// bothBuckets is a native histogram that has classic buckets besides.
type bothBuckets struct {
	prometheus.Metric
	classic map[float64]uint64 // cumulative, by upper bound
}

func (b bothBuckets) Write(to *dto.Metric) error {
	if err := b.Metric.Write(to); err != nil {
		return err
	}
	for _, bound := range slices.Sorted(maps.Keys(b.classic)) {
		to.Histogram.Bucket = append(to.Histogram.Bucket, &dto.Bucket{
			CumulativeCount: new(b.classic[bound]), UpperBound: new(bound)})
	}
	return nil
}

func collectRecorder(s recorder.Stats,
	gauge, counter func(name, help string, labels ...string) series) {
	gauge("recorder_ok", "1 while the recorder can write; absent with --recorder-size 0, as what "+
		"follows.")(oneIf(s.Problem == ""))
	gauge("recorder_bytes", "Bytes of the recorder's segments.")(float64(s.Bytes))
	counter("recorder_records_total", "Records that were written.")(float64(s.Written))
	counter("recorder_records_dropped_total", "Records for which there was no room, since the "+
		"disk was full or too slow.")(float64(s.Dropped))
}

func collectUpdates(s recorder.Stats,
	gauge, counter func(name, help string, labels ...string) series) {
	gauge("recorder_updates_ok", "1 while the recorder can write what BGP peers send; absent with "+
		"--recorder-updates-size 0, as what follows.")(oneIf(s.Problem == ""))
	gauge("recorder_updates_bytes", "Bytes of these segments.")(float64(s.Bytes))
	counter("recorder_updates_total", "Messages, and changes of sessions, that were written.")(
		float64(s.Written))
	counter("recorder_updates_dropped_total", "Those for which there was no room, since the disk "+
		"was full or too slow.")(float64(s.Dropped))
}

func collectExternal(all []ExternalSource,
	gauge func(name, help string, labels ...string) series) {
	connected := gauge("external_connected",
		"1 while the source of external configuration answers.", "source")
	stale := gauge("external_stale", "1 while what is in use of the source is the copy on disk.",
		"source")
	items := gauge("external_items", "Items of external configuration by state.", "source", "state")
	for _, e := range all {
		connected(oneIf(e.Connected), e.Name)
		stale(oneIf(e.Stale), e.Name)
		for state, n := range e.States {
			items(float64(n), e.Name, state)
		}
	}
}

func collectLinux(l LinuxStatus,
	gauge, counter func(name, help string, labels ...string) series) {
	objects := gauge("linux_objects", "What external configuration is to have in Linux beside "+
		"VPP, in all (desired) and by state; absent without.", "state")
	objects(float64(l.Objects.Desired), "desired")
	objects(float64(l.Objects.Programmed), "programmed")
	objects(float64(l.Objects.Failed), "failed")
	objects(float64(l.Objects.Held), "held")
	objects(float64(l.Objects.Shadowed), "shadowed")
	gauge("linux_journal_ok", "1 while the journal of what is in Linux is written as it should; "+
		"absent without.")(oneIf(l.Journal == "ok"))
	ops := counter("linux_ops_total", "Operations that Linux answered; absent without.", "result")
	ops(float64(l.OpsPut), "put")
	ops(float64(l.OpsDeleted), "delete")
	ops(float64(l.OpsFailed), "refused")
}

func collectFIB(s FIBStatus, gauge, counter func(name, help string, labels ...string) series) {
	gauge("dataplane_up", "1 while the data plane answers.")(oneIf(s.Identity != ""))
	timestamp(gauge("dataplane_last_contact_timestamp_seconds", "When the data plane last sent "+
		"anything, in Unix time; absent before it first did, and for Linux."), s.LastContact)
	routes := func(name, help string, count func(RouteCounts) int) {
		add := gauge(name, help, "family", "origin")
		for _, c := range s.Routes {
			add(float64(count(c)), c.Family, c.Origin)
		}
	}
	routes("fib_routes_desired", "Routes that should be in the data plane.",
		func(c RouteCounts) int { return c.Desired })
	routes("fib_routes_programmed", "Routes that the data plane has acknowledged.",
		func(c RouteCounts) int { return c.Programmed })
	routes("fib_routes_failed", "Routes that the data plane refused; they are tried again.",
		func(c RouteCounts) int { return c.Failed })
	routes("fib_routes_unusable", "Prefixes that are not programmed because no next hop is "+
		"usable, a guard refuses them, or BGP covers those of IPAM.",
		func(c RouteCounts) int { return c.Unusable })
	routes("fib_routes_held", "Routes of an earlier run that wait for the sweep.",
		func(c RouteCounts) int { return c.Held })
	routes("fib_routes_shadowed", "Acknowledged routes that another owner's route for the same "+
		"prefix hides.", func(c RouteCounts) int { return c.Shadowed })
	routes("fib_routes_drifted", "Acknowledged routes that were found missing or different and "+
		"are not repaired.", func(c RouteCounts) int { return c.Drifted })
	var tunnels TunnelCounts
	if s.Tunnels != nil {
		tunnels = *s.Tunnels
	}
	gauge("fib_tunnels_desired", "Nodes to which there should be a tunnel.")(
		float64(tunnels.Desired))
	gauge("fib_tunnels_programmed", "Nodes to which the data plane has acknowledged a tunnel.")(
		float64(tunnels.Programmed))
	guard := gauge("fib_guard_held", "Deletions that the mass-delete guard holds.", "origin")
	for origin, n := range guarded(s) {
		guard(float64(n), origin)
	}
	counter("fib_checks_total", "Routes compared with the data plane by spot checks and audits.")(
		float64(s.Drift.Checked))
	drift := counter("fib_drift_total",
		"Routes that the data plane did not have as it had acknowledged them.", "kind")
	drift(float64(s.Drift.Missing), "missing")
	drift(float64(s.Drift.Different), "different")
	drift(float64(s.Drift.Extra), "extra")
	counter("fib_drift_repaired_total", "Routes put right after drift.")(float64(s.Drift.Repaired))
	if s.API != "" {
		gauge("dataplane_api_messages_lacking", "Messages of ours that the data plane's API lacks "+
			"or has in another form.", "outcome")(float64(len(s.APILacks)), s.API)
	}
	if s.Journal != "off" {
		gauge("fib_journal_ok", "1 while the journal of programmed routes is written as it "+
			"should; absent where none is kept.")(oneIf(s.Journal == "ok"))
	}
	gauge("fib_ops_queued", "Operations that wait for the data plane or its answer.")(
		float64(s.OpsQueued))
	ops := counter("fib_ops_total", "Operations that the data plane answered.", "result")
	ops(float64(s.OpsPut), "put")
	ops(float64(s.OpsDeleted), "delete")
	ops(float64(s.OpsFailed), "refused")
	counter("fib_batches_total", "Batches in which operations were handed to the data plane.")(
		float64(s.Batches))
}

// guarded counts the held deletions of every origin, also where there are none: an alert cannot see
// a series that comes and goes.
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
