package kube

import (
	"fmt"
	"reflect"
	"testing"

	"vpp-route-agent/internal/calico"
)

// A migration of KubeVirt is one of Calico's while it is under way, and knows its source only after
// its target.
func TestMigrations(t *testing.T) {
	wants := calico.LiveMigration{Namespace: "vms", Name: "m",
		Target: calico.MigrationEnd{Machine: "db", Job: "1-2"}}
	withSource := wants
	withSource.Source = calico.MigrationEnd{Orchestrator: "k8s", Workload: "vms/launcher-a"}
	for text, want := range map[string]any{
		`"status":{"phase":"Pending"}`:       nil,
		`"status":{"phase":"Scheduling"}`:    wants,
		`"status":{"phase":"TargetReady"}`:   wants,
		`"status":{"phase":"Failed"}`:        wants,
		`"status":{"phase":"Succeeded"}`:     nil,
		`"status":{"phase":"SomethingElse"}`: nil,
		`"status":{}`:                        nil,
		`"status":{"phase":"Running","migrationState":{"sourcePod":"launcher-a"}}`: withSource,
	} {
		o := object{namespace: "vms", name: "m", json: fmt.Appendf(nil,
			`{"metadata":{"uid":"1-2"},"spec":{"vmiName":"db"},%s}`, text)}
		item := one(t, machineMigrations, converter{}, o)
		if item.Err != nil || !reflect.DeepEqual(item.Value, want) {
			t.Errorf("%s: %+v, %v", text, item.Value, item.Err)
		}
	}
	for _, text := range []string{
		`{"metadata":{"uid":"1-2"},"spec":{},"status":{"phase":"Running"}}`,
		`{"metadata":{},"spec":{"vmiName":"db"},"status":{"phase":"Running"}}`,
	} {
		o := object{namespace: "vms", name: "m", json: []byte(text)}
		if item := one(t, machineMigrations, converter{}, o); item.Value != nil {
			t.Errorf("%s: %+v", text, item.Value)
		}
	}
	bad := one(t, machineMigrations, converter{}, object{namespace: "vms", name: "m",
		json: []byte(`{"status":7}`)})
	if bad.Err == nil || bad.Name != "VirtualMachineInstanceMigration(vms/m)" {
		t.Errorf("%+v", bad)
	}
}
