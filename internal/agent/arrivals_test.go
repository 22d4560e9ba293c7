package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

func TestArrivals(t *testing.T) {
	guest := calico.WorkloadEndpoint{Namespace: "vms", Name: "guest", Node: "a",
		Orchestrator: "openstack", Workload: "vm",
		IPNetworks: []netip.Prefix{pfx("10.1.3.9/32"), pfx("10.1.3.0/24"), pfx("fd00::9/128")}}
	migration := func(from, to string) map[string]calico.LiveMigration {
		end := func(host string) calico.MigrationEnd {
			return calico.MigrationEnd{Host: host, Orchestrator: "openstack", Workload: "vms/vm"}
		}
		return map[string]calico.LiveMigration{"vms/m": {Source: end(from), Target: end(to)}}
	}
	with := func(migrations map[string]calico.LiveMigration, felix time.Duration,
		guests ...calico.WorkloadEndpoint) *calico.Snapshot {
		s := &calico.Snapshot{WorkloadEndpoints: map[string]calico.WorkloadEndpoint{},
			LiveMigrations: migrations}
		for _, g := range guests {
			s.WorkloadEndpoints["vms/guest"] = g
		}
		s.Felix = map[string]calico.FelixConfiguration{
			"default": {LiveMigrationRouteConvergenceTime: felix},
		}
		return s
	}
	const both = "[10.1.3.9/32 fd00::9/128]"
	type step struct {
		s    *calico.Snapshot
		at   int // seconds
		want string
	}
	here, came := with(migration("b", "a"), 0, guest), with(nil, 0, guest)
	for name, steps := range map[string][]step{
		"a start after the migration": {{came, 0, "[]"}, {came, 1, "[]"}},
		"elevated for Felix' default": {{here, 0, "[]"}, {came, 7, both},
			{came, 36, both}, {came, 37, "[]"}, {came, 38, "[]"}},
		"elevated for as long as Felix is to": {{here, 0, "[]"},
			{with(nil, 5*time.Second, guest), 1, both}, {with(nil, 5*time.Second, guest), 6, "[]"}},
		"it did not come": {{here, 0, "[]"}, {with(nil, 0), 1, "[]"},
			{came, 2, "[]"}},
		"it goes on at once": {{here, 0, "[]"}, {came, 1, both},
			{with(migration("a", "c"), 0, guest), 2, "[]"}, {came, 3, "[]"}},
		"it goes away and comes back": {{here, 0, "[]"}, {came, 1, both},
			{with(nil, 0), 2, "[]"}, {here, 3, "[]"}, {came, 4, both}},
		"somebody else's migration is none of it": {{with(migration("b", "c"), 0, guest), 0, "[]"},
			{came, 1, "[]"}},
	} {
		var a arrivals
		for i, st := range steps {
			before := maps.Clone(st.s.WorkloadEndpoints)
			if got := fmt.Sprint(a.step(time.Unix(int64(st.at), 0), "a", st.s)); got != st.want {
				t.Errorf("%s, step %d: %s, want %s", name, i, got, st.want)
			}
			if len(before) != len(st.s.WorkloadEndpoints) {
				t.Errorf("%s: the snapshot was changed", name)
			}
		}
	}
}

// A range of service addresses waits for no drop route and gets none; a block that was announced
// keeps its own until it is withdrawn.
func TestServicesNeedNoRoute(t *testing.T) {
	s := cluster()
	s.BGPConfigurations = map[string]calico.BGPConfiguration{
		"default": {ServiceClusterIPs: []string{"10.96.0.0/12"}},
	}
	p := PlanFor("a", s, bgp.Options{}, Facts{Announced: map[netip.Prefix]bool{
		pfx("10.96.0.0/12"): false, pfx("10.1.5.0/26"): true,
	}})
	if got, want := fmt.Sprint(announced(p)),
		"[10.1.0.77/32 10.1.9.9/32 10.96.0.0/12]"; got != want {
		t.Errorf("announced %s, want %s", got, want)
	}
	drops := ""
	for _, r := range p.Own {
		if r.Kind == route.Drop {
			drops += r.Prefix.String() + " "
		}
	}
	if want := "10.1.0.0/26 10.1.5.0/26 "; drops != want {
		t.Errorf("drop routes %s, want %s", drops, want)
	}
}
