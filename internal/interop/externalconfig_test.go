package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
)

// externalPlane is what the test of external configuration asks of a data plane.
type externalPlane struct {
	// has returns an error unless the data plane forwards packets to prefix like this; "": not at
	// all.
	has func(ctx context.Context, prefix, like string) error
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
	vpp, err := netlab.FindVPP()
	if errors.Is(err, netlab.ErrNoVPP) {
		t.Skip(err)
	}
	check(t, err)
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

// configuredFromOutside has routes made, changed, deleted, pending and back, over a restart too.
func (n *agentNode) configuredFromOutside(t *testing.T, p externalPlane) {
	n.agent.Flags = []string{"--external", "etcd", "--external-table-0", "override"}
	n.start(t)
	const keys = "/vnf-agent/us/config/vpp/v2/route/"
	put := func(key, value string) { check(t, n.lab.Data.PutRaw(t.Context(), keys+key, value)) }
	del := func(key string) { check(t, n.lab.Data.DeleteRaw(t.Context(), keys+key)) }
	expect := func(what, key, state, prefix, like string) {
		t.Helper()
		await(t, what, func(ctx context.Context) error {
			var items []agent.ExternalItem
			if err := n.ask(ctx, &items, "external", "get", key); err != nil {
				return err
			}
			if state == "" && len(items) > 0 ||
				state != "" && (len(items) != 1 || items[0].State != state) {
				return fmt.Errorf("%+v", items)
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
	expect("pending", waits, "PENDING", "10.20.3.0/24", "")
	p.add(t)
	expect("the interface is there", waits, "CONFIGURED", "10.20.3.0/24", p.link)
	p.remove(t)
	expect("pending again", waits, "PENDING", "10.20.3.0/24", "")
	p.add(t)
	expect("and back", waits, "CONFIGURED", "10.20.3.0/24", p.link)

	check(t, n.agent.Kill())
	del(drop)
	n.start(t)
	expect("what was deleted meanwhile is swept", drop, "", "10.20.2.0/24", "")
	expect("the rest is there", eight, "CONFIGURED", "10.20.1.0/24", "10.0.0.8")
	del(eight)
	del(waits)
	expect("deleted", eight, "", "10.20.1.0/24", "")
	expect("deleted", waits, "", "10.20.3.0/24", "")
}
