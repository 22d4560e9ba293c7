package calico

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// LiveMigrations as upstream's Go type is written, without JSON tags, and in the form of all other
// resources.
func TestLiveMigrations(t *testing.T) {
	s := NewStore("edge-5")
	key := func(name string) string {
		return Key{Kind: KindLiveMigration, Namespace: "openstack", Name: name}.String()
	}
	if got, want := key("m"),
		"/calico/resources/v3/projectcalico.org/livemigrations/openstack/m"; got != want {
		t.Fatalf("key %s, want %s", got, want)
	}
	s.Put(key("go"), []byte(`{"kind":"LiveMigration","spec":{
		"Source":{"Workload":null,"WorkloadEndpoint":{"Hostname":"edge-3",
		"OrchestratorID":"openstack","WorkloadID":"openstack/vm","EndpointID":"p"}},
		"Target":{"Selector":null,"WorkloadEndpoint":{"Hostname":"edge-5",
		"OrchestratorID":"openstack","WorkloadID":"openstack/vm","EndpointID":"p"}}}}`))
	s.Put(key("lower"),
		[]byte(
			`{"spec":{"source":{"workload":{"hostname":"edge-5","orchestratorID":"openstack",
				"workloadID":"openstack/other"}}}}`))
	s.Put(key("others"),
		[]byte(
			`{"spec":{"Target":{"WorkloadEndpoint":{"Hostname":"edge-50",
				"OrchestratorID":"openstack","WorkloadID":"openstack/vm"}}}}`))
	s.Put(key("selected"), []byte(`{"spec":{"Target":{"Selector":"all()"}}}`))
	s.Put(key("bad"), []byte(`{"spec":{"Target":7}}`))
	got := s.Snapshot(1)
	if len(got.LiveMigrations) != 2 || len(got.Problems) != 1 || got.Problems[0].Key != key("bad") {
		t.Fatalf("%+v %+v", got.LiveMigrations, got.Problems)
	}
	there := got.LiveMigrations["openstack/go"]
	endpoint := WorkloadEndpoint{Namespace: "openstack", Node: "edge-5", Orchestrator: "openstack",
		Workload: "vm", Endpoint: "p"}
	if !there.Target.Is(endpoint) || there.Source.Is(endpoint) {
		t.Errorf("%+v does not come here, or goes away", there)
	}
	away := got.LiveMigrations["openstack/lower"]
	endpoint.Workload = "other"
	if !away.Source.Is(endpoint) || away.Target.Is(endpoint) {
		t.Errorf("%+v comes here, or does not go away", away)
	}
	s.Delete(key("go"))
	if got := s.Snapshot(2); len(got.LiveMigrations) != 1 {
		t.Errorf("still %+v", got.LiveMigrations)
	}
}

func TestMigrationEnd(t *testing.T) {
	w := WorkloadEndpoint{Namespace: "ns", Node: "a", Orchestrator: "openstack", Workload: "vm",
		Endpoint: "p"}
	end := func(host, orchestrator, workload, endpoint string) MigrationEnd {
		return MigrationEnd{Host: host, Orchestrator: orchestrator, Workload: workload,
			Endpoint: endpoint}
	}
	for name, tc := range map[string]struct {
		end  MigrationEnd
		want bool
	}{
		"the endpoint":           {end("a", "openstack", "ns/vm", "p"), true},
		"without namespace":      {end("a", "openstack", "vm", "p"), true},
		"the whole workload":     {end("a", "openstack", "ns/vm", ""), true},
		"on another host":        {end("b", "openstack", "ns/vm", "p"), false},
		"another endpoint":       {end("a", "openstack", "ns/vm", "q"), false},
		"another orchestrator":   {end("a", "k8s", "ns/vm", "p"), false},
		"nothing names anything": {MigrationEnd{}, false},
	} {
		if got := tc.end.Is(w); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if (MigrationEnd{Host: "a"}).Is(WorkloadEndpoint{Node: "a"}) {
		t.Error("an end without a workload names a workload without a name")
	}
}

// A Pod is named without its node, and a target of KubeVirt by labels (convertVMIMToLiveMigration).
func TestMigrationEndOfAPod(t *testing.T) {
	pod := func(labels ...string) WorkloadEndpoint {
		w := WorkloadEndpoint{Namespace: "ns", Node: "a", Orchestrator: "k8s", Workload: "p",
			Endpoint: "eth0", Labels: map[string]string{}}
		for i := 0; i < len(labels); i += 2 {
			w.Labels[labels[i]] = labels[i+1]
		}
		return w
	}
	const job, id, name = "kubevirt.io/migrationJobUID", "vmi.kubevirt.io/id", "vm.kubevirt.io/name"
	source := MigrationEnd{Orchestrator: "k8s", Workload: "ns/p"}
	target := MigrationEnd{Machine: "m", Job: "1-2"}
	for text, tc := range map[string]struct {
		end  MigrationEnd
		pod  WorkloadEndpoint
		want bool
	}{
		"the source":           {source, pod(), true},
		"another Pod":          {MigrationEnd{Orchestrator: "k8s", Workload: "ns/q"}, pod(), false},
		"of another namespace": {MigrationEnd{Orchestrator: "k8s", Workload: "x/p"}, pod(), false},
		"the target":           {target, pod(job, "1-2", id, "m"), true},
		"of an older KubeVirt": {target, pod(job, "1-2", name, "m"), true},
		"of another migration": {target, pod(job, "3-4", id, "m"), false},
		"of another machine":   {target, pod(job, "1-2", id, "n", name, "n"), false},
		"without labels":       {target, pod(), false},
	} {
		if got := tc.end.Is(tc.pod); got != tc.want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestFelixConfigurations(t *testing.T) {
	s := NewStore("edge-5")
	key := func(name string) string {
		return Key{Kind: KindFelixConfiguration, Name: name}.String()
	}
	s.Put(key("default"),
		[]byte(
			`{"spec":{"programClusterRoutes":"Enabled","ipv4ElevatedRoutePriority":300,
				"liveMigrationRouteConvergenceTime":"10s","bpfEnabled":true,
				"vxlanPort":4790,"vxlanVNI":7,"vxlanMTU":1400,"vxlanMTUV6":1380,
				"ipipEnabled":true,"wireguardEnabledV6":true}}`))
	s.Put(key("node.edge-5"), []byte(`{"spec":{"ipv6NormalRoutePriority":2000,
		"ipipEnabled":false,"vxlanEnabled":false}}`))
	s.Put(key("node.edge-50"), []byte(`{"spec":{"ipv6NormalRoutePriority":2000}}`))
	got := s.Snapshot(1)
	want := FelixConfiguration{Name: "default", ProgramClusterRoutes: "Enabled",
		IPv4ElevatedRoutePriority: 300, LiveMigrationRouteConvergenceTime: 10 * time.Second,
		VXLANPort: 4790, VXLANVNI: 7, VXLANMTU: 1400, VXLANMTUV6: 1380,
		IPIPEnabled: new(true), WireguardEnabledV6: new(true)}
	both := want
	both.Name, both.IPv6NormalRoutePriority = "", 2000
	both.IPIPEnabled, both.VXLANEnabled = new(false), new(false)
	if on := got.FelixOn("edge-5"); !reflect.DeepEqual(on, both) {
		t.Errorf("on the node %+v, want %+v", on, both)
	}
	if !reflect.DeepEqual(got.Felix["default"], want) ||
		got.Felix["node.edge-5"].IPv6NormalRoutePriority != 2000 || len(got.Felix) != 2 ||
		len(got.Problems) != 0 {
		t.Errorf("%+v %v", got.Felix, got.Problems)
	}
}

// A FelixConfiguration with a nodeSelector goes before that of all nodes and after the node's own.
func TestFelixConfigurationsBySelector(t *testing.T) {
	s := NewStore("edge-5")
	put := func(name, created, spec string) {
		s.Put(Key{Kind: KindFelixConfiguration, Name: name}.String(), []byte(
			`{"metadata":{"creationTimestamp":`+created+`},"spec":`+spec+`}`))
	}
	label := func(metadata string) {
		s.Put(Key{Kind: KindNode, Name: "edge-5"}.String(),
			[]byte(`{"metadata":{`+metadata+`},"spec":{}}`))
	}
	mtuIs := func(what string, mtu int, by string, problems ...string) {
		t.Helper()
		got := s.Snapshot(1)
		if on := got.FelixOn("edge-5"); on.VXLANMTU != mtu {
			t.Errorf("%s: vxlanMTU %d, want %d", what, on.VXLANMTU, mtu)
		}
		set := func(f FelixConfiguration) int { return f.VXLANMTU }
		if with := FelixWith(got, "edge-5", set); with != "FelixConfiguration("+by+")" {
			t.Errorf("%s: by %s, want %s", what, with, by)
		}
		var said []string
		for _, p := range slices.Concat(got.Problems, got.UnusedFelix("edge-5")) {
			said = append(said, p.String())
		}
		if !slices.EqualFunc(said, problems, strings.HasPrefix) {
			t.Errorf("%s: problems %q, want %q", what, said, problems)
		}
	}
	const day = `"2026-11-01T00:00:00Z"`
	put("default", "null", `{"vxlanMTU":1400,"vxlanVNI":7}`)
	put("rack", day, `{"nodeSelector":"rack == 'r1'","vxlanMTU":8900}`)
	put("all", `"2026-11-02T00:00:00Z"`, `{"nodeSelector":"all()","vxlanMTU":1300}`)
	put("none", "null", `{"vxlanMTU":1}`)
	mtuIs("no Node", 1400, "default")
	label("")
	mtuIs("a Node without labels", 1400, "default")
	label(`"labels":{"rack":"r2"}`)
	mtuIs("one", 1300, "all")
	label(`"labels":{"rack":"r1"}`)
	mtuIs("the oldest", 8900, "rack", "FelixConfiguration(all): nodeSelector selects this node")
	if on := s.Snapshot(1).FelixOn("edge-5"); on.VXLANVNI != 7 {
		t.Errorf("vxlanVNI %d: the default has it", on.VXLANVNI)
	}
	put("almost", day, `{"nodeSelector":"has(rack)","vxlanMTU":1200}`)
	mtuIs("by name", 1200, "almost", "FelixConfiguration(rack): ", "FelixConfiguration(all): ")
	put("almost", day, `{"nodeSelector":"has(rack","vxlanMTU":1200}`)
	mtuIs("no selector", 8900, "rack",
		`FelixConfiguration(almost): spec.nodeSelector: selector "has(rack"`,
		"FelixConfiguration(all): ")
	put("node.edge-5", "null", `{"nodeSelector":"all()","vxlanMTU":1100}`)
	put("node.edge-6", "null", `{"nodeSelector":"all()","vxlanMTU":1000}`)
	mtuIs("its own", 1100, "node.edge-5", "FelixConfiguration(almost): ",
		"FelixConfiguration(all): ")
	put("node.edge-6", "null", `{"vxlanMTU":"of another node"}`)
	mtuIs("another node's", 1100, "node.edge-5", "FelixConfiguration(almost): ",
		"FelixConfiguration(all): ")
	kept := slices.Sorted(maps.Keys(s.Snapshot(1).Felix))
	if want := []string{"all", "almost", "default", "node.edge-5", "rack"}; !slices.Equal(kept,
		want) {
		t.Errorf("%v are kept, want %v", kept, want)
	}
}

// Felix takes an annotation in place of a field. It is named where the field is read here.
func TestFelixAnnotations(t *testing.T) {
	s := NewStore("edge-5")
	put := func(name, annotations, spec string) {
		s.Put(Key{Kind: KindFelixConfiguration, Name: name}.String(),
			[]byte(`{"metadata":{"annotations":{`+annotations+`}},"spec":`+spec+`}`))
	}
	put("default", `"config.projectcalico.org/vxlanport":"8472",
		"config.projectcalico.org/IpInIpMtu":"1400","config.projectcalico.org/BPFLogLevel":"info",
		"example.org/VXLANVNI":"7"`, `{}`)
	put("node.edge-6", `"config.projectcalico.org/VXLANVNI":"7"`, `{}`)
	put("rack", `"config.projectcalico.org/VXLANVNI":"7"`, `{"nodeSelector":"has(rack)"}`)
	put("other", `"config.projectcalico.org/VXLANMTU":"7"`, `{"nodeSelector":"!has(rack)"}`)
	s.Put(Key{Kind: KindNode, Name: "edge-5"}.String(),
		[]byte(`{"metadata":{"labels":{"rack":"r1"}},"spec":{}}`))
	const why = ": Felix takes this in place of a field of the spec, and the agent does not"
	want := []Problem{
		{Resource: "FelixConfiguration(rack)", Harmless: true,
			Err: "annotation config.projectcalico.org/VXLANVNI" + why},
		{Resource: "FelixConfiguration(default)", Harmless: true,
			Err: "annotation config.projectcalico.org/IpInIpMtu" + why},
		{Resource: "FelixConfiguration(default)", Harmless: true,
			Err: "annotation config.projectcalico.org/vxlanport" + why},
	}
	if got := s.Snapshot(1).AnnotatedFelix("edge-5"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
