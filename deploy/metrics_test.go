package deploy

import (
	"maps"
	"regexp"
	"slices"
	"testing"
)

// quiet are the metrics that nobody is told of, each with the reason.
var quiet = map[string]string{
	"info":                      "says what runs",
	"bgp_peer_paths_received":   "any number may be right",
	"bgp_peer_paths_accepted":   "any number may be right",
	"bgp_announcements":         "any number may be right",
	"fib_routes_desired":        "any number may be right",
	"fib_routes_programmed":     "what is missing is failed, unusable or queued",
	"fib_checks_total":          "counts work",
	"fib_drift_repaired_total":  "the drift itself is told",
	"fib_batches_total":         "counts work",
	"dataplane_refusals_total":  "routes that stay refused are told",
	"etcd_last_contact_seconds": "etcd_connected is told",
	"etcd_revision":             "any number may be right",
	"etcd_relists_total": "compaction is nothing to wake anybody for, and what a list " +
		"lacks is held and told",
}

// TestMetricsAlertsAndDashboardAgree compares the names of metrics in the agent's source with those
// in the alerts and the dashboard: all that are used exist, and all that mean trouble have an
// alert.
func TestMetricsAlertsAndDashboardAgree(t *testing.T) {
	exist := names(t, "../internal/agent/metrics.go", `(?:gauge|counter|routes)\("([a-z_]+)"`)
	alerts := names(t, "prometheus/alerts.yaml", `vpp_route_agent_([a-z_]+)`)
	dashboard := names(t, "grafana/vpp-route-agent.json", `vpp_route_agent_([a-z_]+)`)
	tests := names(t, "prometheus/alerts_test.yaml", `vpp_route_agent_([a-z_]+)`)
	for where, used := range map[string]map[string]bool{
		"an alert": alerts, "the dashboard": dashboard, "a test of alerts": tests,
	} {
		for name := range used {
			if !exist[name] {
				t.Errorf("%s names %s, which does not exist", where, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exist)) {
		if alerts[name] == (quiet[name] != "") {
			t.Errorf("%s: alert %v, reason for none %q", name, alerts[name], quiet[name])
		}
	}
	for name := range quiet {
		if !exist[name] {
			t.Errorf("%s does not exist and needs no reason", name)
		}
	}
}

// names are what a pattern finds in a file.
func names(t *testing.T, file, pattern string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(read(t, file)), -1) {
		found[m[1]] = true
	}
	if len(found) < 3 {
		t.Fatalf("%s has only %d names", file, len(found))
	}
	return found
}
