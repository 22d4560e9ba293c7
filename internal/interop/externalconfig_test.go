package interop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
)

// externalPlane is what the test of external configuration asks of a data plane.
type externalPlane struct {
	// has returns an error unless the data plane forwards packets to prefix like this; "": not at
	// all.
	has func(ctx context.Context, prefix, like string) error
	// neighbour prints what the data plane knows about a neighbour that is to have been configured.
	neighbour func(ctx context.Context, address string) (string, error)
	// link is the name of an interface that add makes and remove takes away.
	link        string
	add, remove func(t *testing.T)
}

func TestExternalConfigurationOnKernel(t *testing.T) {
	t.Parallel()
	l := newLab(t, "extkernel")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	run := func(t *testing.T, command string) {
		t.Helper()
		words := strings.Fields(command)
		_, err := us.NS.Run(t.Context(), words[0], words[1:]...)
		check(t, err)
	}
	us.configuredFromOutside(t, externalPlane{
		has: func(ctx context.Context, prefix, like string) error {
			out, err := us.NS.Run(ctx, "ip", "route", "show", "proto", agentProtocol, prefix)
			return expectLike(string(out), like, err)
		},
		neighbour: func(ctx context.Context, address string) (string, error) {
			out, err := us.NS.Run(ctx, "ip", "neigh", "show", "nud", "permanent", address)
			return strings.ReplaceAll(string(out), ":", ""), err
		},
		link: "later",
		add: func(t *testing.T) {
			run(t, "ip link add later type veth peer name other")
			run(t, "ip link set other up")
			run(t, "ip link set later up")
		},
		remove: func(t *testing.T) { run(t, "ip link del later") },
	})
}

func TestExternalConfigurationOnVPP(t *testing.T) {
	t.Parallel()
	vpp := needVPP(t)
	l := newLab(t, "extvpp")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	v := us.startVPP(t, vpp)
	us.agent.Dataplane = []string{"--dataplane", "vpp", "--vpp-socket", v.APISocket()}
	us.configuredFromOutside(t, externalPlane{
		has: func(ctx context.Context, prefix, like string) error {
			out, err := v.Command(ctx, "show ip fib "+prefix)
			if !strings.Contains(out, prefix) { // the longest match is another
				out = ""
			}
			return expectLike(out, like, err)
		},
		neighbour: func(ctx context.Context, address string) (string, error) {
			return v.Command(ctx, "show ip fib "+address+"/32")
		},
		link: "loop0",
		add: func(t *testing.T) {
			_, err := v.Command(t.Context(), "create loopback interface") // it prints its name
			check(t, err)
			check(t, v.Configure(t.Context(), "set interface state loop0 up",
				"set interface ip address loop0 10.77.0.1/24"))
		},
		remove: func(t *testing.T) {
			check(t, v.Configure(t.Context(), "delete loopback interface intfc loop0"))
		},
	})
}

func expectLike(out, like string, err error) error {
	if err == nil && (like == "" && out != "" || !strings.Contains(out, like)) {
		err = fmt.Errorf("it has %q, want %q", out, like)
	}
	return err
}

const vppKeys = "/vnf-agent/us/config/vpp/v2/"

// startExternal starts an agent that takes configuration from outside.
func (n *agentNode) startExternal(t *testing.T) {
	t.Helper()
	n.agent.Flags = []string{"--external", "etcd", "--external-table-0", "override"}
	n.start(t)
}

func (n *agentNode) putItem(t *testing.T, key, value string) {
	t.Helper()
	check(t, n.lab.Data.PutRaw(t.Context(), vppKeys+key, value))
}

func (n *agentNode) deleteItem(t *testing.T, key string) {
	t.Helper()
	check(t, n.lab.Data.DeleteRaw(t.Context(), vppKeys+key))
}

// items are those whose keys have key in them.
func (n *agentNode) items(ctx context.Context, key string) (all []agent.ExternalItem, err error) {
	err = n.agent.Admin.Get(ctx, "/v1/external", url.Values{"key": {key}}, &all)
	return slices.DeleteFunc(all, func(i agent.ExternalItem) bool {
		return i.State == "REMOVED"
	}), err
}

// itemIs returns an error unless the item whose key has key in it is in state; "": there is none.
func (n *agentNode) itemIs(ctx context.Context, key, state string) error {
	items, err := n.items(ctx, key)
	if err != nil {
		return err
	}
	if state == "" && len(items) > 0 ||
		state != "" && (len(items) != 1 || items[0].State != state) {
		return fmt.Errorf("%+v", items)
	}
	return nil
}

// TestTwoTenantsOnVPP: two VRFs have equal addresses, and packets from outside reach the one that a
// look-up in table 0 leads to.
func TestTwoTenantsOnVPP(t *testing.T) {
	t.Parallel()
	vpp := needVPP(t)
	l := newLab(t, "tenants")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	v := us.startVPP(t, vpp)
	us.agent.Dataplane = []string{"--dataplane", "vpp", "--vpp-socket", v.APISocket()}
	client, err := l.Machine("client", pfx("10.0.0.9/24"))
	check(t, err)
	check(t, client.AddRoute(pfx("192.0.2.0/24"), addr("10.0.0.102"), "eth0"))
	us.startExternal(t)
	is := func(key, state string) {
		t.Helper()
		await(t, key+" is "+state, func(ctx context.Context) error {
			return us.itemIs(ctx, key, state)
		})
	}
	pings := func(want bool) {
		t.Helper()
		await(t, fmt.Sprintf("ping: %v", want), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if _, err := client.Ping(ctx, addr("192.0.2.1")); (err == nil) != want {
				return fmt.Errorf("ping: %v", err)
			}
			return nil
		})
	}
	tenants := map[int]*netlab.Namespace{}
	for id, name := range map[int]string{7: "red", 8: "blue"} {
		tenant, err := l.Namespace(name)
		check(t, err)
		tenants[id] = tenant
		check(t, l.Veth(netlab.End{Namespace: us.NS, Device: name},
			netlab.End{Namespace: tenant, Device: "eth0", Addresses: prefixes("10.50.0.2/24")}))
		check(t, tenant.FillChecksums("eth0"))
		check(t, tenant.AddAddress("lo", pfx("192.0.2.1/32")))
		check(t, tenant.AddRoute(pfx("10.0.0.0/24"), addr("10.50.0.1"), "eth0"))

		vrf := fmt.Sprintf("route/vrf/%d/dst/", id)
		us.putItem(t, vrf+"192.0.2.0/24/gw/10.50.0.2", fmt.Sprintf(
			`{"vrf_id":%d,"dst_network":"192.0.2.0/24","next_hop_addr":"10.50.0.2"}`, id))
		us.putItem(t, vrf+"10.0.0.0/24", fmt.Sprintf(
			`{"vrf_id":%d,"dst_network":"10.0.0.0/24","type":"INTER_VRF"}`, id))
		is(vrf+"192.0.2.0/24", "PENDING")
		table := fmt.Sprintf("vrf-table/id/%d/protocol/IPV4", id)
		us.putItem(t, table, fmt.Sprintf(`{"id":%d,"label":"%s"}`, id, name))
		is(table, "CONFIGURED")
		is(vrf+"10.0.0.0/24", "CONFIGURED")
		check(t, v.CreateHost(t.Context(), name, nil))
		check(t, v.Configure(t.Context(),
			fmt.Sprintf("set interface ip table host-%s %d", name, id),
			"set interface ip address host-"+name+" 10.50.0.1/24",
			"set interface state host-"+name+" up"))
		is(vrf+"192.0.2.0/24", "CONFIGURED")
	}
	const into = "route/vrf/0/dst/192.0.2.1/32"
	lookUp := func(table int) {
		us.putItem(t, into, fmt.Sprintf(`{"dst_network":"192.0.2.1/32","type":"INTER_VRF",`+
			`"via_vrf_id":%d}`, table))
		is(into, "CONFIGURED")
	}
	lookUp(7)
	pings(true)
	check(t, tenants[7].SetLink("eth0", false))
	pings(false)
	lookUp(8)
	pings(true)

	// A table that goes takes its routes along; what leads there waits.
	us.deleteItem(t, "vrf-table/id/8/protocol/IPV4")
	is(into, "PENDING")
	pings(false)
	us.putItem(t, "vrf-table/id/8/protocol/IPV4", `{"id":8,"label":"blue"}`)
	pings(true)

	_, err = v.Command(t.Context(), "ip table add 9")
	check(t, err)
	us.putItem(t, "vrf-table/id/9/protocol/IPV4", `{"id":9,"label":"ours"}`)
	is("vrf-table/id/9/protocol/IPV4", "FAILED")

	check(t, us.agent.Kill())
	check(t, us.agent.Start(t.Context()))
	is(into, "CONFIGURED")
	for _, id := range []int{7, 8} {
		us.deleteItem(t, fmt.Sprintf("vrf-table/id/%d/protocol/IPV4", id))
		us.deleteItem(t, fmt.Sprintf("route/vrf/%d/dst/192.0.2.0/24/gw/10.50.0.2", id))
		us.deleteItem(t, fmt.Sprintf("route/vrf/%d/dst/10.0.0.0/24", id))
	}
	us.deleteItem(t, into)
	check(t, v.Configure(t.Context(), "delete host-interface name red",
		"delete host-interface name blue"))
	await(t, "no table of ours", func(ctx context.Context) error {
		out, err := v.Command(ctx, "show ip fib summary")
		if err == nil && (strings.Contains(out, "red") || strings.Contains(out, "blue")) {
			err = errors.New(out)
		}
		return err
	})
}

// TestCrossConnectsOnVPP: packets go from one machine to another by the interface that they came in
// by, without a route.
func TestCrossConnectsOnVPP(t *testing.T) {
	t.Parallel()
	vpp := needVPP(t)
	l := newLab(t, "crossed")
	us := l.agentNode(t, "us", "10.0.0.2/24")
	v := us.startVPP(t, vpp)
	us.agent.Dataplane = []string{"--dataplane", "vpp", "--vpp-socket", v.APISocket()}
	us.startExternal(t)
	machine := func(name string, addresses ...string) *netlab.Namespace {
		m, err := l.Namespace(name)
		check(t, err)
		check(t, l.Veth(netlab.End{Namespace: us.NS, Device: name},
			netlab.End{Namespace: m, Device: "eth0", Addresses: prefixes(addresses...)}))
		check(t, m.FillChecksums("eth0"))
		check(t, v.CreateHost(t.Context(), name, nil))
		check(t, v.Configure(t.Context(), "set interface state host-"+name+" up"))
		return m
	}
	pings := func(from *netlab.Namespace, to string, want bool) {
		t.Helper()
		await(t, fmt.Sprintf("ping %s: %v", to, want), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if _, err := from.Ping(ctx, addr(to)); (err == nil) != want {
				return fmt.Errorf("ping: %v", err)
			}
			return nil
		})
	}
	is := func(key, state string) {
		t.Helper()
		await(t, key+" is "+state, func(ctx context.Context) error {
			return us.itemIs(ctx, key, state)
		})
	}
	put := func(key, value string) {
		t.Helper()
		check(t, l.Data.PutRaw(t.Context(), "/vnf-agent/us/config/vpp/"+key, value))
	}
	del := func(key string) {
		t.Helper()
		check(t, l.Data.DeleteRaw(t.Context(), "/vnf-agent/us/config/vpp/"+key))
	}

	one := machine("one", "10.60.0.1/24")
	pair := func(from, to string) string {
		return `{"receive_interface":"` + from + `","transmit_interface":"` + to + `"}`
	}
	put("l2/v2/xconnect/host-one", pair("host-one", "host-two"))
	put("l2/v2/xconnect/host-two", pair("host-two", "host-one"))
	is("l2/v2/xconnect/host-one", "PENDING")
	is("l2/v2/xconnect/host-two", "PENDING")
	machine("two", "10.60.0.2/24")
	is("l2/v2/xconnect/host-one", "CONFIGURED")
	is("l2/v2/xconnect/host-two", "CONFIGURED")
	pings(one, "10.60.0.2", true)
	del("l2/v2/xconnect/host-two")
	pings(one, "10.60.0.2", false)

	three := machine("three", "10.63.0.2/24")
	four := machine("four", "10.64.0.2/24")
	for m, name := range map[*netlab.Namespace]string{three: "10.63.0.1", four: "10.64.0.1"} {
		check(t, m.AddRoute(pfx("10.96.0.0/11"), addr(name), "eth0"))
	}
	check(t, v.Configure(t.Context(), "set interface ip address host-three 10.63.0.1/24",
		"set interface ip address host-four 10.64.0.1/24"))
	check(t, three.AddAddress("lo", pfx("10.96.3.1/32")))
	check(t, four.AddAddress("lo", pfx("10.96.4.1/32")))
	to := func(from, name, hop string) string {
		return fmt.Sprintf(`{"interface":"host-%s","paths":[{"outgoing_interface":"host-%s",`+
			`"next_hop_addr":"%s"}]}`, from, name, hop)
	}
	put("v2/l3xconnect/host-three/protocol/IPV4", to("three", "two", "10.60.0.2"))
	put("v2/l3xconnect/host-four/protocol/IPV4", to("four", "three", "10.63.0.2"))
	is("v2/l3xconnect/host-four/protocol/IPV4", "CONFIGURED")
	pingsFrom := func(want bool) {
		t.Helper()
		await(t, fmt.Sprintf("packets from a loopback: %v", want), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := three.Run(ctx, "ping", "-c1", "-W1", "-I", "10.96.3.1", "10.96.4.1")
			if (err == nil) != want {
				return fmt.Errorf("ping: %v", err)
			}
			return nil
		})
	}
	pingsFrom(false)
	put("v2/l3xconnect/host-three/protocol/IPV4", to("three", "four", "10.64.0.2")) // is changed
	pingsFrom(true)
	del("v2/l3xconnect/host-four/protocol/IPV4")
	pingsFrom(false)
}

// configuredFromOutside has routes made, changed, deleted, pending and back, over a restart too.
func (n *agentNode) configuredFromOutside(t *testing.T, p externalPlane) {
	n.startExternal(t)
	const keys = "route/"
	put := func(key, value string) { t.Helper(); n.putItem(t, keys+key, value) }
	del := func(key string) { t.Helper(); n.deleteItem(t, keys+key) }
	expect := func(what, key, state, prefix, like string) {
		t.Helper()
		await(t, what, func(ctx context.Context) error {
			if err := n.itemIs(ctx, key, state); err != nil {
				return err
			}
			return p.has(ctx, prefix, like)
		})
	}
	const seven, eight = "vrf/0/dst/10.20.1.0/24/gw/10.0.0.7", "vrf/0/dst/10.20.1.0/24/gw/10.0.0.8"
	put(seven, `{"dst_network":"10.20.1.0/24","next_hop_addr":"10.0.0.7"}`)
	expect("made", seven, "CONFIGURED", "10.20.1.0/24", "10.0.0.7")
	put(eight, `{"dst_network":"10.20.1.0/24","next_hop_addr":"10.0.0.8"}`)
	expect("a second path", eight, "CONFIGURED", "10.20.1.0/24", "10.0.0.8")
	del(seven)
	expect("changed", eight, "CONFIGURED", "10.20.1.0/24", "10.0.0.8")

	const drop = "vrf/0/dst/10.20.2.0/24"
	put(drop, `{"dst_network":"10.20.2.0/24","type":"DROP"}`)
	expect("dropped", drop, "CONFIGURED", "10.20.2.0/24", "10.20.2.0/24")

	waits := "if/" + p.link + "/vrf/0/dst/10.20.3.0/24"
	put(waits, `{"dst_network":"10.20.3.0/24","outgoing_interface":"`+p.link+`"}`)
	const neighbour, mac = "10.77.0.5", "02fe00000005"
	onLink := "arp/" + p.link + "/" + neighbour
	n.putItem(t, onLink, fmt.Sprintf(
		`{"interface":"%s","ip_address":"%s","phys_address":"02:fe:00:00:00:05","static":true}`,
		p.link, neighbour))
	isPut := func(there bool, state string) {
		t.Helper()
		await(t, "the neighbour is "+state, func(ctx context.Context) error {
			out, err := p.neighbour(ctx, neighbour)
			if err == nil && there != strings.Contains(out, mac) {
				err = errors.New(out)
			}
			return cmp.Or(err, n.itemIs(ctx, onLink, state))
		})
	}
	expect("pending", waits, "PENDING", "10.20.3.0/24", "")
	isPut(false, "PENDING")
	p.add(t)
	expect("the interface is there", waits, "CONFIGURED", "10.20.3.0/24", p.link)
	isPut(true, "CONFIGURED")
	p.remove(t)
	expect("pending again", waits, "PENDING", "10.20.3.0/24", "")
	isPut(false, "PENDING")
	p.add(t)
	expect("and back", waits, "CONFIGURED", "10.20.3.0/24", p.link)
	isPut(true, "CONFIGURED")

	check(t, n.agent.Kill())
	del(drop)
	n.start(t)
	expect("what was deleted meanwhile is swept", drop, "", "10.20.2.0/24", "")
	expect("the rest is there", eight, "CONFIGURED", "10.20.1.0/24", "10.0.0.8")
	del(eight)
	del(waits)
	isPut(true, "CONFIGURED")
	n.deleteItem(t, onLink)
	isPut(false, "")
	expect("deleted", eight, "", "10.20.1.0/24", "")
	expect("deleted", waits, "", "10.20.3.0/24", "")
}
