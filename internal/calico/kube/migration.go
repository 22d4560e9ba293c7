package kube

import (
	"slices"

	"vpp-route-agent/internal/calico"
)

// migrationPhases are those of a migration under way: from the one in which its target gets a Pod,
// until it has succeeded. One that failed stays one, as its target may still be there.
var migrationPhases = []string{"Scheduling", "Scheduled", "PreparingTarget", "TargetReady",
	"Running", "Failed"}

// migrationItem is the LiveMigration that a VirtualMachineInstanceMigration stands for
// (libcalico-go lib/backend/k8s/resources/livemigration.go).
func migrationItem(name string, o object) calico.Item {
	var m struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
		Spec struct {
			VMIName string `json:"vmiName"`
		} `json:"spec"`
		Status struct {
			Phase          string `json:"phase"`
			MigrationState struct {
				SourcePod string `json:"sourcePod"`
			} `json:"migrationState"`
		} `json:"status"`
	}
	if err := unmarshal(o.json, &m); err != nil {
		return calico.Item{Name: name, Err: err}
	}
	if m.Spec.VMIName == "" || m.Metadata.UID == "" ||
		!slices.Contains(migrationPhases, m.Status.Phase) {
		return calico.Item{}
	}
	value := calico.LiveMigration{Namespace: o.namespace, Name: o.name,
		Target: calico.MigrationEnd{Machine: m.Spec.VMIName, Job: m.Metadata.UID}}
	if pod := m.Status.MigrationState.SourcePod; pod != "" { // it is known only later
		value.Source = calico.MigrationEnd{Orchestrator: calico.OrchestratorKubernetes,
			Workload: o.namespace + "/" + pod}
	}
	return calico.Item{Name: name, Value: value, Key: calico.Key{
		Kind: calico.KindLiveMigration, Namespace: o.namespace, Name: o.name}}
}
