package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
)

const linuxKeys = "/vnf-agent/us/config/linux/"

// linuxItems lead packets from the underlay into the namespace of a tenant and back. The last route
// is one that nothing needs. %s is the path of the namespace.
var linuxItems = map[string]string{
	"interfaces/v2/interface/near": `{"name":"near","type":"VETH","enabled":true,` +
		`"ip_addresses":["198.18.2.1/24"],"veth":{"peer_if_name":"far"}}`,
	"interfaces/v2/interface/far": `{"name":"far","type":"VETH","enabled":true,` +
		`"host_if_name":"eth0","ip_addresses":["198.18.2.2/24"],"veth":{"peer_if_name":"near"},` +
		`"phys_address":"02:fe:00:00:00:22","namespace":{"type":"FD","reference":"%s"}}`,
	"interfaces/v2/interface/inside": `{"name":"inside","type":"EXISTING","host_if_name":"lo",` +
		`"ip_addresses":["192.0.2.1/32"],"namespace":{"type":"FD","reference":"%s"}}`,
	"l3/v2/arp/near/198.18.2.2": `{"interface":"near","ip_address":"198.18.2.2",` +
		`"hw_address":"02:fe:00:00:00:22"}`,
	"l3/v2/route/192.0.2.0/24/near": `{"outgoing_interface":"near","dst_network":"192.0.2.0/24",` +
		`"gw_addr":"198.18.2.2"}`,
	"l3/v2/route/10.0.0.0/24/far": `{"outgoing_interface":"far","dst_network":"10.0.0.0/24",` +
		`"gw_addr":"198.18.2.1"}`,
	unneeded: `{"outgoing_interface":"near","dst_network":"198.51.100.0/24"}`,
}

const unneeded = "l3/v2/route/198.51.100.0/24/near"

// linuxLab is a node with items of Linux, and a client on its underlay that sends by them.
type linuxLab struct {
	*lab
	us             *agentNode
	client, tenant *netlab.Namespace
}

func newLinuxLab(t *testing.T, name string) *linuxLab {
	l := newLab(t, name)
	x := &linuxLab{lab: l, us: l.agentNode(t, "us", "10.0.0.2/24")}
	var err error
	x.client, err = l.Machine("client", pfx("10.0.0.9/24"))
	check(t, err)
	check(t, x.client.AddRoute(pfx("192.0.2.0/24"), addr("10.0.0.2"), "eth0"))
	x.tenant, err = l.Namespace("tenant")
	check(t, err)
	return x
}

// With the kernel as data plane some of the items go to the FIB.
func TestLinuxItemsOnKernel(t *testing.T) {
	t.Parallel()
	x := newLinuxLab(t, "linuxkernel")
	x.overRestarts(t)
	x.unsupported(t)
}

func TestLinuxItemsBesideVPP(t *testing.T) {
	t.Parallel()
	vpp := needVPP(t)
	x := newLinuxLab(t, "linuxvpp")
	v := x.us.startVPP(t, vpp)
	x.us.agent.Dataplane = []string{"--dataplane", "vpp", "--vpp-socket", v.APISocket()}
	x.overRestarts(t)
}

// overRestarts counts packets over the end of the agent by SIGKILL and by SIGTERM, and over changes
// that it misses.
func (x *linuxLab) overRestarts(t *testing.T) {
	us := x.us
	socket := filepath.Join(filepath.Dir(us.agent.Socket), "external.sock")
	us.agent.Flags = []string{"--external", "etcd,grpc", "--external-table-0", "override",
		"--external-grpc-socket", socket}
	us.start(t)
	for key, value := range linuxItems {
		value = strings.ReplaceAll(value, "%s", x.tenant.Path())
		check(t, x.Data.PutRaw(t.Context(), linuxKeys+key, value))
	}
	x.configured(t, len(linuxItems))
	ping(t, x.client, "192.0.2.1")
	before := x.shown(t)
	f := flow(t, x.client, "192.0.2.1")

	check(t, us.agent.Kill())
	us.start(t)
	x.configured(t, len(linuxItems))
	check(t, us.agent.Stop())
	check(t, x.Data.DeleteRaw(t.Context(), linuxKeys+unneeded))
	us.start(t)
	await(t, "what was deleted meanwhile is gone", func(ctx context.Context) error {
		out, err := us.NS.Run(ctx, "ip", "route", "show", "198.51.100.0/24")
		return expectLike(string(out), "", err)
	})
	x.configured(t, len(linuxItems)-1)

	// The agent is killed between commit and answer.
	late := filepath.Join(t.TempDir(), "late.yaml")
	check(t, os.WriteFile(late, []byte("linuxConfig:\n  interfaces:\n  - {name: later, "+
		"type: EXISTING, ipAddresses: [198.51.100.1/32]}\n"), 0o600))
	answer := make(chan error, 1)
	go func() {
		_, err := us.NS.Run(t.Context(), programs.Agent, "external", "put", "--wait", "-f", late,
			"--external-grpc-socket", socket)
		answer <- err
	}()
	await(t, "the call waits", func(ctx context.Context) error {
		return us.itemIs(ctx, "interface/later", "PENDING")
	})
	check(t, us.agent.Kill())
	if err := <-answer; err == nil {
		t.Error("the call was answered")
	}
	us.start(t)
	_, err := us.NS.Run(t.Context(), "ip", "link", "add", "later", "type", "veth")
	check(t, err)
	x.configured(t, len(linuxItems))

	if r := f.Stop(); r.Lost > 0 || r.Received == 0 {
		t.Errorf("%v", r)
	} else {
		t.Logf("%v", r)
	}
	if after := x.shown(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// configured waits until there are n items, all of them CONFIGURED.
func (x *linuxLab) configured(t *testing.T, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d items are CONFIGURED", n), func(ctx context.Context) error {
		items, err := x.us.items(ctx, "")
		if err != nil {
			return err
		}
		if len(items) != n || slices.ContainsFunc(items, func(i agent.ExternalItem) bool {
			return i.State != "CONFIGURED"
		}) {
			return fmt.Errorf("%+v", items)
		}
		return nil
	})
}

// shown prints what the items have made in the agent's namespace, with the interface's index.
func (x *linuxLab) shown(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, c := range []string{"-o link show near", "route show 192.0.2.0/24"} {
		out, err := x.us.NS.Run(t.Context(), "ip", strings.Fields(c)...)
		check(t, err)
		all.Write(out)
	}
	return all.String()
}

// unsupported: with the kernel as data plane, what is not carried out says so.
func (x *linuxLab) unsupported(t *testing.T) {
	const metric = `{"outgoing_interface":"%s","dst_network":"198.51.101.0/24","metric":7}`
	for key, want := range map[string]struct{ value, state string }{
		"linux/l3/v2/route/198.51.101.0/24/near": {fmt.Sprintf(metric, "near"), "UNIMPLEMENTED"},
		"linux/l3/v2/route/198.51.101.0/24/far":  {fmt.Sprintf(metric, "far"), "CONFIGURED"},
		"vpp/v2/vrf-table/id/7/protocol/IPV4":    {`{"id":7}`, "UNIMPLEMENTED"},
		"vpp/v2/interfaces/loop7": {`{"name":"loop7","type":"SOFTWARE_LOOPBACK"}`,
			"UNIMPLEMENTED"},
		"linux/interfaces/v2/interface/tap": {`{"name":"tap","type":"TAP_TO_VPP",` +
			`"tap":{"vpp_tap_if_name":"tap7"}}`, "PENDING"},
		"vpp/v2/route/if/near/vrf/0/dst/198.51.102.0/24/gw/198.18.2.2": {
			`{"dst_network":"198.51.102.0/24","next_hop_addr":"198.18.2.2",` +
				`"outgoing_interface":"near"}`, "CONFIGURED"},
		"vpp/v2/arp/eth0/10.0.0.77": {`{"interface":"eth0","ip_address":"10.0.0.77",` +
			`"phys_address":"02:fe:00:00:00:77","static":true}`, "CONFIGURED"},
	} {
		check(t, x.Data.PutRaw(t.Context(), "/vnf-agent/us/config/"+key, want.value))
		await(t, key+" is "+want.state, func(ctx context.Context) error {
			return x.us.itemIs(ctx, key, want.state)
		})
	}
}

// TestLinuxItemsNeedCapabilities: other network namespaces need one that the unit does not give.
func TestLinuxItemsNeedCapabilities(t *testing.T) {
	t.Parallel()
	x := newLinuxLab(t, "linuxpowers")
	x.us.agent.Flags = []string{"--external", "etcd", "--external-table-0", "override"}
	for key, value := range linuxItems {
		value = strings.ReplaceAll(value, "%s", x.tenant.Path())
		check(t, x.Data.PutRaw(t.Context(), linuxKeys+key, value))
	}
	check(t, x.Data.PutRaw(t.Context(), linuxKeys+"interfaces/v2/interface/eth0",
		`{"name":"eth0","type":"EXISTING","ip_addresses":["198.51.100.1/32"]}`))
	x.us.startUnprivileged(t, "net_bind_service,net_admin", "--dataplane", "kernel")
	await(t, "the agent says what it may not do", func(ctx context.Context) error {
		for _, key := range []string{"interface/far", "interface/inside"} {
			items, err := x.us.items(ctx, key)
			if err != nil {
				return err
			}
			if len(items) != 1 || items[0].State != "PENDING" ||
				!strings.Contains(fmt.Sprint(items[0].Details), "CAP_SYS_ADMIN") {
				return fmt.Errorf("%+v", items)
			}
		}
		return x.us.itemIs(ctx, "interface/eth0", "CONFIGURED")
	})
	check(t, x.us.agent.Stop())
	for i, argument := range x.us.agent.Wrap {
		x.us.agent.Wrap[i] = strings.ReplaceAll(argument, "+net_admin", "+net_admin,+sys_admin")
	}
	x.us.start(t)
	x.configured(t, len(linuxItems)+1)
	ping(t, x.client, "192.0.2.1")
}
