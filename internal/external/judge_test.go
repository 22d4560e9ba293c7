package external

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// reason is why the FIB leaves this path out on a node with nothing but eth0.
func reason(p route.Path) fib.Reason {
	facts := fib.Facts{Facts: route.Facts{Interfaces: []route.Interface{{
		Name: "eth0", Up: true, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")},
	}}}}
	k := route.Key{Prefix: netip.MustParsePrefix("10.9.1.0/24")}
	_, why := fib.Select(k, []fib.Candidate{
		{Origin: route.External, Paths: []route.Path{p}},
	}, facts)
	return why
}

func TestJudgeTables(t *testing.T) {
	table := route.Table{TableID: route.TableID{ID: 7}, Name: "seven"}
	in := route.Key{Table: 7, Prefix: netip.MustParsePrefix("10.9.1.0/24")}
	for _, c := range []struct {
		name  string
		table fib.Entry
		want  string // of the route, then of the table
	}{
		{name: "there", table: fib.Entry{State: fib.Programmed}, want: "CONFIGURED; CONFIGURED"},
		{name: "another's", table: fib.Entry{State: fib.Shadowed, By: `VRF table 7 (IPv4) "x"`},
			want: `PENDING there is no VRF table 7 (IPv4) yet; FAILED another program has made ` +
				`VRF table 7 (IPv4) "x"`},
		{name: "refused", table: fib.Entry{State: fib.Failed, Error: "no memory", Attempts: 2},
			want: "PENDING there is no VRF table 7 (IPv4) yet; RETRYING no memory"},
		{name: "given up", table: fib.Entry{State: fib.Failed, Error: "no memory", Attempts: 2,
			GivenUp: true}, want: "PENDING there is no VRF table 7 (IPv4) yet; " +
			"FAILED no memory (refused 2 times, and tried again when " +
			"it is changed, or deleted and put again)"},
		{name: "on its way", table: fib.Entry{State: fib.Pending}, want: "PENDING there is no " +
			"VRF table 7 (IPv4) yet; PENDING " + notAcknowledged},
		{name: "renamed", table: fib.Entry{State: fib.Pending, Error: "waits for x"},
			want: "PENDING there is no VRF table 7 (IPv4) yet; PENDING waits for x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := Merge([]Source{source(t, "etcd", in7, table7)}, allowed)
			c.table.Object = table.Key()
			all := Judge(plan, Facts{Objects: []fib.Entry{c.table}, Entries: []fib.Entry{
				{Key: in, State: fib.Programmed, Origin: route.External}}})
			for i, want := range strings.Split(c.want, "; ") {
				got := all[i].State.String() + " " + strings.Join(all[i].Details, ", ")
				if strings.TrimSpace(got) != want {
					t.Errorf("%s: %q, want %q", all[i].Key, got, want)
				}
				if late := strings.Contains(c.want, notAcknowledged); all[i].Unfinished != late {
					t.Errorf("%s: unfinished %v", all[i].Key, all[i].Unfinished)
				}
			}
		})
	}
}

func TestTablesGetANameFromLigato(t *testing.T) {
	plan := Merge([]Source{source(t, "etcd", table7,
		`config/vpp/v2/vrf-table/id/7/protocol/IPV6 = {"id":7,"protocol":"IPV6"}`)}, allowed)
	got := fmt.Sprint(plan.Objects[0].Key(), "; ", plan.Objects[1].Key())
	if want := `VRF table 7 (IPv4) "seven"; VRF table 7 (IPv6) "ipv6-VRF:7"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestJudge(t *testing.T) {
	key := route.Key{Prefix: netip.MustParsePrefix("10.9.1.0/24")}
	two, three := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	hop := func(a netip.Addr) route.Path {
		return route.Path{NextHop: a, Interface: "eth0", Weight: 1}
	}
	own := reason(route.Path{NextHop: netip.MustParseAddr("10.0.0.1")})
	noLink := reason(route.Path{Interface: "memif1"})
	elevated := key
	elevated.Elevated = true
	for _, c := range []struct {
		name  string
		entry fib.Entry
		away  string
		want  string // of one, then of other
	}{
		{name: "acknowledged", entry: fib.Entry{Key: key, State: fib.Programmed,
			Origin: route.External, Paths: []route.Path{hop(two), hop(three)}},
			want: "CONFIGURED; CONFIGURED"},
		{name: "one path is left out", entry: fib.Entry{Key: key, State: fib.Programmed,
			Origin: route.External, Paths: []route.Path{hop(two)}, Reason: noLink},
			want: "CONFIGURED; PENDING there is no interface memif1"},
		{name: "an interface is missing", entry: fib.Entry{Key: key, State: fib.Unusable,
			Origin: route.External, Reason: noLink}, want: "PENDING there is no interface memif1"},
		{name: "refused by the guard", entry: fib.Entry{Key: key, State: fib.Unusable,
			Origin: route.External, Reason: own},
			want: "FAILED next hop 10.0.0.1 is an address of this node"},
		{name: "refused by the data plane", entry: fib.Entry{Key: key, State: fib.Failed,
			Origin: route.External, Error: "no such table", Attempts: 3},
			want: "RETRYING no such table"},
		{name: "given up", entry: fib.Entry{Key: key, State: fib.Failed, Origin: route.External,
			Error: "no such table", Attempts: 3, GivenUp: true},
			want: "FAILED no such table (refused 3 times, and tried again when it " +
				"is changed, or deleted and put again)"},
		{name: "BGP goes first", entry: fib.Entry{Key: key, State: fib.Programmed,
			Origin: route.BGP}, want: "PENDING a route of origin bgp goes first"},
		{name: "BGP goes first, elevated", entry: fib.Entry{Key: elevated, State: fib.Programmed,
			Origin: route.BGP}, want: "PENDING a route of origin bgp goes first"},
		{name: "hidden", entry: fib.Entry{Key: key, State: fib.Shadowed, Origin: route.External,
			By: "API"}, want: "PENDING a route of API goes first in the data plane"},
		{name: "drifted", entry: fib.Entry{Key: key, State: fib.Drifted, Origin: route.External},
			want: "RETRYING another program changed it"},
		{name: "on its way", entry: fib.Entry{Key: key, State: fib.Pending,
			Origin: route.External}, want: "PENDING the data plane has not acknowledged it yet"},
		{name: "away", away: "VPP does not answer", want: "PENDING VPP does not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := Merge([]Source{source(t, "etcd", one, other)}, allowed)
			f := Facts{Away: c.away, Entries: []fib.Entry{c.entry}}
			verdicts := Judge(plan, f)
			for i, want := range strings.Split(c.want, "; ") {
				v := verdicts[i]
				got := v.State.String() + " " + strings.Join(v.Details, ", ")
				if !strings.HasPrefix(got, want) || v.Unfinished != (c.entry.State == fib.Pending) {
					t.Errorf("%s: %q (unfinished: %v), want %q", v.Key, got, v.Unfinished, want)
				}
			}
		})
	}
}
