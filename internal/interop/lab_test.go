package interop

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
	"vpp-route-agent/internal/testlog"
)

const asNumber = testcluster.AS // the agent's side of every lab

// patience is how long something may take that is bound to happen. BIRD waits 2 s before it dials,
// 5 s after a failure, up to 30 s after an error.
const patience = 90 * time.Second

// lab is one cluster: an underlay 10.0.0.0/24 and fd00::/64 with nodes, and an etcd with Calico's
// data. Addresses of workloads are in 10.1.0.0/16 and fd01::/48, unless the lab says otherwise.
type lab struct{ *testcluster.Cluster }

// pools is what every lab starts with.
var pools = testcluster.Resource("IPPool", "four",
	"cidr: 10.1.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never") +
	testcluster.Resource("IPPool", "six",
		`cidr: "fd01::/48", blockSize: 122, ipipMode: Never, vxlanMode: Never`)

// newLab makes a lab that is gone after the test. When the test failed, it shows the end of every
// log first.
func newLab(t *testing.T, name string) *lab {
	t.Helper()
	if programs.missing != nil {
		t.Skip(programs.missing)
	}
	t.Attr("part", "BIRD "+programs.Bird.Version)
	c, err := testcluster.New(name, programs.Programs, testlog.New(t))
	check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(testcluster.Tails(c.Lab, 60))
		}
		check(t, c.Close())
	})
	l := &lab{c}
	etcd, err := l.Machine("etcd", pfx("10.0.0.250/24"))
	check(t, err)
	check(t, l.StartEtcd(t.Context(), etcd, addr("10.0.0.250")))
	l.apply(t, pools)
	return l
}

// apply is `calicoctl apply -f`.
func (l *lab) apply(t *testing.T, yaml string) {
	t.Helper()
	check(t, l.Apply(t.Context(), yaml))
}

// host is a machine on the underlay.
type host struct {
	*testcluster.Node
	lab  *lab
	name string
}

// host makes a router with these addresses on its eth0.
func (l *lab) host(t *testing.T, name string, addresses ...string) *host {
	t.Helper()
	n, err := l.KernelNode(name, prefixes(addresses...)...)
	check(t, err)
	return &host{n, l, name}
}

// workload makes a namespace with one address behind the host, which gets a route to it. Calico's
// data is not touched.
func (h *host) workload(t *testing.T, name, address string) *netlab.Namespace {
	t.Helper()
	w, err := h.lab.Workload(name, addr(address))
	check(t, err)
	port, err := h.Link(w, "eth0", "cali"+name)
	check(t, err)
	check(t, w.Use(t.Context(), port)) // what comes for it can be answered
	check(t, h.Deliver(t.Context(), port))
	return w.NS
}

// pod is workload, and tells Calico's data of it.
func (h *host) pod(t *testing.T, name, address string) *netlab.Namespace {
	t.Helper()
	w := h.workload(t, name, address)
	h.lab.attach(t, h.name, name, address)
	return w
}

// ping sends packets until one is answered.
func ping(t *testing.T, from *netlab.Namespace, to string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := from.Ping(ctx, addr(to))
	check(t, err)
}

// await asks until holds has no objection, and fails the test with the last one when patience is
// over.
func await(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	start := time.Now()
	// most questions start a process or two, and the labs share two processors
	check(t, netlab.AwaitEvery(t.Context(), patience, 100*time.Millisecond, what, holds))
	t.Logf("%s: %.1f s", what, time.Since(start).Seconds())
}

// same compares lists; order counts.
func same[E comparable](what string, got, want []E) error {
	if len(got) == len(want) {
		i := 0
		for i < len(got) && got[i] == want[i] {
			i++
		}
		if i == len(got) {
			return nil
		}
	}
	return fmt.Errorf("%s:\ngot  %v\nwant %v", what, lines(got), lines(want))
}

func lines[E any](list []E) string {
	var b strings.Builder
	for _, e := range list {
		fmt.Fprintf(&b, "\n\t%v", e)
	}
	return b.String()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, pfx(s))
	}
	return all
}

// listenPort is a node's BGPConfiguration with a port of its own.
func listenPort(node string, port int) string {
	return testcluster.Resource("BGPConfiguration", "node."+node, fmt.Sprint("listenPort: ", port))
}
