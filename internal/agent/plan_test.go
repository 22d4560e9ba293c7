package agent

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/route"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }
func key(s string) route.Key    { return route.Key{Prefix: pfx(s)} }

// cluster is two nodes of a mesh; a has the block 10.1.0.0/26, the single-address block 10.1.9.9/32
// and a borrowed address.
func cluster() *calico.Snapshot {
	return &calico.Snapshot{
		Revision: 7, ClusterInformation: true,
		Nodes: map[string]calico.Node{
			"a": {Name: "a", IPv4: pfx("192.168.4.2/24")},
			"b": {Name: "b", IPv4: pfx("192.168.4.3/24")},
		},
		IPPools: map[string]calico.IPPool{"pool": {Name: "pool", CIDR: pfx("10.1.0.0/16"),
			BlockSize: 26}},
		Affinities: map[netip.Prefix]calico.AffinityState{pfx(
			"10.1.0.0/26"): calico.AffinityConfirmed, pfx("10.1.9.9/32"): calico.AffinityConfirmed},
		Blocks: map[netip.Prefix]calico.Block{
			pfx("10.1.0.0/26"): {CIDR: pfx("10.1.0.0/26"), Owner: calico.Owner{Host: "a"}},
			pfx("10.1.9.9/32"): {CIDR: pfx("10.1.9.9/32"), Owner: calico.Owner{Host: "a"}},
		},
		WorkloadEndpoints: map[string]calico.WorkloadEndpoint{
			"default/w": {Namespace: "default", Name: "w", Node: "a",
				IPNetworks: []netip.Prefix{pfx("10.1.0.77/32"), pfx("10.1.9.9/32")}},
		},
	}
}

func announced(p Plan) []string {
	var out []string
	for _, a := range p.BGP.Announcements {
		out = append(out, a.Prefix.String())
	}
	return out
}

func TestBlockWaitsForItsDropRoute(t *testing.T) {
	hosts := []string{"10.1.0.77/32", "10.1.9.9/32"}
	all := []string{"10.1.0.0/26", "10.1.0.77/32", "10.1.9.9/32"}
	for name, tc := range map[string]struct {
		facts    Facts
		want     []string
		deferred []netip.Prefix
	}{
		"nothing acknowledged: addresses only": {Facts{}, hosts,
			[]netip.Prefix{pfx("10.1.0.0/26")}},
		"announced as a service's address": {Facts{Announced: map[netip.Prefix]bool{
			pfx("10.1.0.0/26"): false}}, hosts, []netip.Prefix{pfx("10.1.0.0/26")}},
		"drop acknowledged": {Facts{Programmed: map[route.Key]bool{key(
			"10.1.0.0/26"): true}}, all, nil},
		"data plane absent: nothing to wait for": {Facts{NoDataplane: true}, all, nil},
		"announced already: not taken back": {Facts{Announced: map[netip.Prefix]bool{pfx(
			"10.1.0.0/26"): true}}, all, nil},
		"another prefix acknowledged is no grant": {Facts{Programmed: map[route.Key]bool{key(
			"10.1.0.64/26"): true}}, hosts, []netip.Prefix{pfx("10.1.0.0/26")}},
	} {
		t.Run(name, func(t *testing.T) {
			p := PlanFor("a", cluster(), bgp.Options{}, tc.facts)
			if got := announced(p); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("announced %v, want %v", got, tc.want)
			}
			if !reflect.DeepEqual(p.Deferred, tc.deferred) {
				t.Errorf("deferred %v, want %v", p.Deferred, tc.deferred)
			}
		})
	}
}

func TestNothingIsAnnouncedWithoutDataplaneWhenAsked(t *testing.T) {
	p := PlanFor("a", cluster(), bgp.Options{}, Facts{NoDataplane: true, Withdraw: true})
	if len(p.BGP.Announcements) > 0 || len(p.BGP.Withheld) != 3 || len(p.BGP.Peers) != 1 {
		t.Errorf("announced %v, withheld %v, peers %v; want all three prefixes withheld and the "+
			"session kept", p.BGP.Announcements, p.BGP.Withheld, p.BGP.Peers)
	}
}

func TestDropRoutes(t *testing.T) {
	want := func(t *testing.T, p Plan, prefixes ...string) {
		t.Helper()
		var routes []route.Route
		for _, s := range prefixes {
			routes = append(routes, route.Route{Key: key(s), Kind: route.Drop, Origin: route.Own})
		}
		if len(p.Own) != len(routes) || len(routes) > 0 && !reflect.DeepEqual(p.Own, routes) {
			t.Errorf("own routes %v, want %v", p.Own, routes)
		}
	}
	t.Run("one for the block, none for the single address", func(t *testing.T) {
		want(t, PlanFor("a", cluster(), bgp.Options{}, Facts{}), "10.1.0.0/26")
	})
	t.Run("kept while a block that is no longer ours is still announced", func(t *testing.T) {
		c := cluster()
		delete(c.Affinities, pfx("10.1.0.0/26"))
		p := PlanFor("a", c, bgp.Options{}, Facts{Announced: map[netip.Prefix]bool{pfx(
			"10.1.0.0/26"): true, pfx("10.1.9.9/32"): true}})
		want(t, p, "10.1.0.0/26")
		for _, a := range p.BGP.Announcements {
			if a.Prefix == pfx("10.1.0.0/26") {
				t.Error("a block that is not ours is announced")
			}
		}
		want(t, PlanFor("a", c, bgp.Options{}, Facts{}))
	})
	t.Run("none while the node is unknown", func(t *testing.T) {
		c := cluster()
		delete(c.Nodes, "a")
		p := PlanFor("a", c, bgp.Options{}, Facts{NoDataplane: true})
		if p.BGP.Waiting == "" || len(p.BGP.Announcements) > 0 || len(p.BGP.Peers) > 0 {
			t.Errorf("plan without own node: %+v", p.BGP)
		}
	})
}

func TestRoutesToPeers(t *testing.T) {
	c := cluster()
	c.BGPPeers = map[string]calico.BGPPeer{
		"tor":  {PeerIP: "9.0.0.1", ASNumber: 64900},
		"tor2": {PeerIP: "9.0.0.2", ASNumber: 64900},
		// one route for the sessions to all ports of an address
		"tor3": {PeerIP: "9.0.0.1:1790", ASNumber: 64900, ReachableBy: "192.168.4.254"},
		"tor4": {PeerIP: "9.0.0.1:1791", ASNumber: 64900, ReachableBy: "192.168.4.254"},
		"tor5": {PeerIP: "9.0.0.1:1792", ASNumber: 64900, ReachableBy: "192.168.4.253"},
	}
	p := PlanFor("a", c, bgp.Options{}, Facts{})
	var got []string
	for _, r := range p.Own {
		got = append(got, r.String())
		if r.Origin != route.Own {
			t.Errorf("%s is of origin %s", r, r.Origin)
		}
	}
	if want := []string{"9.0.0.1/32 via 192.168.4.254", "10.1.0.0/26 drop"}; !reflect.DeepEqual(
		got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	problem := "BGPPeer(tor5): reachableBy 192.168.4.253 is ignored: 9.0.0.1 is reached by " +
		"192.168.4.254 of BGPPeer(tor3), whatever the port"
	if got := p.BGP.Problems; len(got) != 1 || got[0].Name()+": "+got[0].Err != problem {
		t.Errorf("problems %v, want %s", got, problem)
	}
}

// With ServicesVia an address of a service waits for its route, and the route for the withdrawal.
func TestServicesWaitForTheirRoute(t *testing.T) {
	c := cluster()
	c.BGPConfigurations = map[string]calico.BGPConfiguration{"default": {
		ServiceClusterIPs: []string{"10.96.0.0/12", "fd96::/108"}}}
	via := ServicesVia{Interface: "tap0", NextHops: []netip.Addr{addr("10.0.0.1")}}
	const r, r6 = "10.96.0.0/12 via 10.0.0.1 tap0", "fd96::/108 via tap0"
	for name, tc := range map[string]struct {
		facts  Facts
		routes []string
		waits  bool
	}{
		"not configured": {Facts{}, nil, false},
		"no route yet":   {Facts{ServicesVia: via}, []string{r}, true},
		"no data plane":  {Facts{ServicesVia: via, NoDataplane: true}, []string{r}, false},
		"acknowledged": {Facts{ServicesVia: via,
			Programmed: map[route.Key]bool{key("10.96.0.0/12"): true}}, []string{r}, false},
		"announced before": {Facts{ServicesVia: via, Announced: map[netip.Prefix]bool{
			pfx("10.96.0.0/12"): false}}, []string{r}, false},
		"a former one": {Facts{ServicesVia: via, Announced: map[netip.Prefix]bool{
			pfx("fd96::/108"): false}}, []string{r, r6}, true},
		"a drained node": {Facts{ServicesVia: via, Drain: Withdrawn}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := PlanFor("a", c, bgp.Options{}, tc.facts)
			var routes []string
			for _, own := range p.Own {
				if own.Kind == route.Via {
					routes = append(routes, own.String())
				}
			}
			if !slices.Equal(routes, tc.routes) {
				t.Errorf("routes %v, want %v", routes, tc.routes)
			}
			isAnnounced := slices.Contains(announced(p), "10.96.0.0/12")
			if slices.Contains(p.Deferred, pfx("10.96.0.0/12")) != tc.waits ||
				isAnnounced == (tc.waits || tc.facts.Drain == Withdrawn) {
				t.Errorf("deferred %v, announced %v", p.Deferred, announced(p))
			}
		})
	}
}

func TestGuardedAddresses(t *testing.T) {
	p := PlanFor("a", cluster(), bgp.Options{}, Facts{})
	if want := []netip.Addr{addr("192.168.4.2")}; !reflect.DeepEqual(p.OwnAddresses, want) {
		t.Errorf("own %v", p.OwnAddresses)
	}
	if want := []netip.Addr{addr("192.168.4.3")}; !reflect.DeepEqual(p.PeerAddresses, want) {
		t.Errorf("peers %v", p.PeerAddresses)
	}
}

func TestPlanLeavesItsInputsAlone(t *testing.T) {
	c, f := cluster(), Facts{Announced: map[netip.Prefix]bool{pfx("10.2.0.0/26"): true}}
	first := PlanFor("a", c, bgp.Options{}, f)
	if !reflect.DeepEqual(c, cluster()) || len(f.Announced) != 1 {
		t.Fatal("an input changed")
	}
	if second := PlanFor("a", c, bgp.Options{}, f); !reflect.DeepEqual(first, second) {
		t.Fatalf("equal inputs, different plans:\n%+v\n%+v", first, second)
	}
}
