package deploy

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// quiet are the metrics without an alert, each with the reason.
var quiet = map[string]string{
	"info":                     "says what runs",
	"bgp_peer_paths_received":  "any number may be right",
	"bgp_peer_paths_accepted":  "any number may be right",
	"bgp_announcements":        "any number may be right",
	"fib_routes_desired":       "any number may be right",
	"fib_routes_programmed":    "what is missing is failed, unusable or queued",
	"fib_checks_total":         "counts work",
	"fib_drift_repaired_total": "the drift itself has an alert",
	"fib_batches_total":        "counts work",
	"dataplane_refusals_total": "routes that stay refused have one",
	"etcd_revision":            "any number may be right",
	"external_items":           "clients hear how their items stand",
	"linux_objects":            "clients hear how their items stand",
	"linux_ops_total":          "counts work",

	"reflector_controller_steps_total": "counts work",

	"route_packets_total":    "any number may be right",
	"route_bytes_total":      "any number may be right",
	"next_hop_packets_total": "any number may be right",
	"next_hop_bytes_total":   "any number may be right",
	"counted_left_out":       "says what is not shown",
	"counted_ok":             "forwarding does not depend on it",

	"external_connected": "it is the etcd of Calico's data, which has one",
	"external_stale":     "it is the etcd of Calico's data, which has one",

	"bgp_peer_updates_received_total": "any number may be right",
	"bgp_peer_updates_sent_total":     "any number may be right",

	"etcd_last_contact_timestamp_seconds":      "etcd_connected has an alert",
	"dataplane_last_contact_timestamp_seconds": "dataplane_up has an alert",
	"bgp_peer_last_contact_timestamp_seconds":  "a silent peer's session ends, which has one",

	"fib_step_seconds":               "datastore_event_to_fib_seconds has one",
	"recorder_ok":                    "no packet depends on it",
	"recorder_bytes":                 "has a bound",
	"recorder_records_total":         "counts work",
	"recorder_records_dropped_total": "no packet depends on it",
	"recorder_updates_ok":            "no packet depends on it",
	"recorder_updates_bytes":         "has a bound",
	"recorder_updates_total":         "counts work",
	"recorder_updates_dropped_total": "no packet depends on it",

	"etcd_relists_total": "compaction is nothing to wake anybody for, and what a list " +
		"lacks is held, with an alert",
}

// TestMetricsAlertsAndDashboardAgree compares the names of metrics in the agent's source with those
// in the alerts and the dashboard: all that are used exist, and all that mean trouble have an
// alert.
func TestMetricsAlertsAndDashboardAgree(t *testing.T) {
	exist := names(t, "../internal/agent/metrics.go", `(?:gauge|counter|routes)\("([a-z_]+)"`)
	maps.Copy(exist, names(t, "../internal/agent/metricscounts.go",
		`(?:gauge|counter)\("([a-z_]+)"`))
	for name := range names(t, "../internal/agent/metrics.go", `"vpp_route_agent_([a-z_]+)"`) {
		exist[name] = true // a histogram
	}
	for name := range names(t, "../internal/reflectors/metrics.go",
		`(?s)(?:gauge|counter)\(\s*"([a-z_]+)"`) {
		exist[name] = true
	}
	alerts := names(t, "prometheus/alerts.yaml", `vpp_route_agent_([a-z_]+?)(?:_bucket)?\b`)
	dashboard := names(t, "grafana/vpp-route-agent.json",
		`vpp_route_agent_([a-z_]+?)(?:_bucket)?\b`)
	tests := names(t, "prometheus/alerts_test.yaml", `vpp_route_agent_([a-z_]+?)(?:_bucket)?\b`)
	page, _, _ := strings.Cut(string(read(t, "../docs/monitoring.md")), "\n## Conditions\n")
	documented := found(page, "(?m)^\\| `([a-z_]+)` \\|")
	for where, used := range map[string]map[string]bool{
		"docs/monitoring.md": documented,
		"an alert":           alerts, "the dashboard": dashboard, "a test of alerts": tests,
	} {
		for name := range used {
			if !exist[name] {
				t.Errorf("%s names %s, which does not exist", where, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exist)) {
		if !documented[name] {
			t.Errorf("docs/monitoring.md does not have %s", name)
		}
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
	all := found(string(read(t, file)), pattern)
	if len(all) == 0 {
		t.Fatalf("%s has no %s", file, pattern)
	}
	return all
}

func found(text, pattern string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	return all
}

// Each alert has the address of its own section of the page, and the page has no other sections.
func TestRunbooks(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations struct {
					Runbook string `json:"runbook_url"`
				}
			}
		}
	}
	check(t, yaml.Unmarshal(read(t, "prometheus/alerts.yaml"), &rules))
	const url = "https://example.org/docs/"
	alerts := map[string]bool{}
	for _, r := range rules.Groups[0].Rules {
		page, heading, _ := strings.Cut(strings.TrimPrefix(r.Annotations.Runbook, url), "#")
		if page != "monitoring.md" || heading != strings.ToLower(r.Alert) ||
			!slices.Contains(anchors(string(read(t, "../docs/"+page))), heading) {
			t.Errorf("%s: runbook %q leads nowhere", r.Alert, r.Annotations.Runbook)
		}
		alerts[r.Alert] = true
	}
	for name := range names(t, "../docs/monitoring.md", `(?m)^### (\w+)$`) {
		if !alerts[name] {
			t.Errorf("docs/monitoring.md: there is no alert %s", name)
		}
	}
}

// TestConditionsAreDocumented compares the table of conditions with the agent's list.
func TestConditionsAreDocumented(t *testing.T) {
	_, list, _ := strings.Cut(string(read(t, "../internal/agent/complaints.go")), "var reasons = ")
	list, _, _ = strings.Cut(list, "\n}\n")
	exist, condition := map[string]bool{}, ""
	for _, m := range regexp.MustCompile(`"(\w+)"(:)?`).FindAllStringSubmatch(list, -1) {
		if m[2] != "" {
			condition = m[1]
		} else {
			exist["`"+condition+"` | `"+m[1]+"`"] = true
		}
	}
	_, page, _ := strings.Cut(string(read(t, "../docs/monitoring.md")), "\n## Conditions\n")
	documented := found(page, "(?m)^\\| (`[a-z]+` \\| `[a-z_]+`) \\| \\w")
	if !maps.Equal(exist, documented) || len(exist) < 30 {
		t.Errorf("the agent has\n%v\nand docs/monitoring.md\n%v", exist, documented)
	}
}
