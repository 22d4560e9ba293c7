package kubernetes

import (
	"fmt"
	"testing"

	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/kubernetes"
	"vpp-route-agent/internal/kubernetes/kubetest"
	"vpp-route-agent/ipam"
)

const migrationKind = "virtualmachineinstancemigrations.kubevirt.io"

func putMigration(s *kubetest.Server, phase string) {
	s.PutObject(migrationKind, fmt.Appendf(nil, `{"metadata":{"name":"m","namespace":"vms",`+
		`"uid":"1-2"},"spec":{"vmiName":"db"},"status":{"phase":%q}}`, phase))
}

// A machine of KubeVirt is on its way to a node as long as its migration is, also where KubeVirt
// came after the agent, and has arrived when that has succeeded.
func TestMachinesOfKubeVirt(t *testing.T) {
	s := newServer(t)
	s.PutObject("pods", []byte(`{"metadata":{"name":"launcher-b","namespace":"vms","labels":{`+
		`"kubevirt.io/migrationJobUID":"1-2","vmi.kubevirt.io/id":"db"}},"spec":{"nodeName":`+
		`"edge-7"},"status":{"phase":"Running","podIP":"10.77.1.5"}}`))
	r := run(t, s)
	coming := func(x *calico.Snapshot) bool { return len(ipam.Arriving("edge-7", x)) == 1 }
	if x := r.until(t, "the first", any1); coming(x) || len(x.Problems) > 0 {
		t.Fatalf("without KubeVirt %+v", x)
	}
	s.Install("kubevirt.io/v1", "virtualmachineinstancemigrations")
	putMigration(s, "Scheduling")
	r.until(t, "it is on its way", coming)
	putMigration(s, "Succeeded")
	r.until(t, "it has arrived", func(x *calico.Snapshot) bool { return !coming(x) })

	putMigration(s, "Running")
	client, err := kubernetes.NewClient(s.Kubeconfig())
	must(t, err)
	defer client.Close()
	all, err := ReadCluster(t.Context(), client, Config{Group: GroupV1})
	if must(t, err); len(all.Migrations) != 1 {
		t.Errorf("of the cluster %+v", all.Migrations)
	}
}

// Without the right to read migrations all else is published, Services too.
func TestMigrationsForbidden(t *testing.T) {
	s := newServiceServer(t)
	configure(s, ranges)
	all := rights(t)
	s.Allow(all)
	s.Deny("list "+migrationKind, true)
	r := run(t, s)
	if x := r.until(t, "the first", any1); !hasService(x) || len(x.Endpoints) != 1 {
		t.Errorf("%+v", x)
	}
	r.untilStatus(t, "named", says("list "+migrationKind+": 403 Forbidden"))
	client, err := kubernetes.NewClient(s.Kubeconfig())
	must(t, err)
	defer client.Close()
	whole, err := ReadCluster(t.Context(), client, Config{Group: GroupV1})
	if must(t, err); len(whole.Endpoints) != 2 {
		t.Errorf("of the cluster %+v", whole.Endpoints)
	}
}
