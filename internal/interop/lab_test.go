package interop

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/netlab"
)

const asNumber = 64512 // Calico's default, and the agent's side of every lab

// patience is how long something may take that is bound to happen. BIRD waits 2 s before it dials, 5 s after a failure, up to 30 s
// after an error.
const patience = 30 * time.Second

// lab is one cluster: an underlay 10.0.0.0/24 and fd00::/64 with nodes, and an etcd with Calico's data. Addresses of workloads are in
// 10.1.0.0/16 and fd01::/48, unless the lab says otherwise.
type lab struct {
	*netlab.Lab
	underlay *netlab.Namespace
	etcd     string // URL for agents
	cluster  *calicotest.Cluster
}

// pools is what every lab starts with.
const pools = `
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: four}
spec: {cidr: 10.1.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: six}
spec: {cidr: "fd01::/48", blockSize: 122, ipipMode: Never, vxlanMode: Never}
`

// newLab makes a lab that is gone after the test. When the test failed, it shows the end of every log first.
func newLab(t *testing.T, name string) *lab {
	t.Helper()
	if programs.missing != nil {
		t.Skip(programs.missing)
	}
	t.Attr("part", "BIRD "+programs.bird.Version)
	l := &lab{}
	var err error
	l.Lab, err = netlab.New(name, slog.New(slog.NewTextHandler(t.Output(), nil)))
	check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, l.Dir())
		}
		if l.cluster != nil {
			l.cluster.Close()
		}
		check(t, l.Close())
	})
	l.underlay, err = l.Segment("underlay")
	check(t, err)
	l.startEtcd(t)
	l.apply(t, pools)
	return l
}

func showLogs(t *testing.T, dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, path := range logs {
		text, _ := os.ReadFile(path)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		t.Logf("%s:\n%s", filepath.Base(path), strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}

// startEtcd runs an etcd at 10.0.0.250. The test is in no namespace and reaches it by a unix socket.
func (l *lab) startEtcd(t *testing.T) {
	t.Helper()
	h := l.host(t, "etcd", "10.0.0.250/24")
	l.etcd = "http://10.0.0.250:2379"
	socket := filepath.Join(l.Dir(), "etcd.sock")
	_, err := l.Start(netlab.Spec{Name: "etcd", Namespace: h.ns, Path: programs.agent, Args: []string{
		"lab", "etcd", "--listen", "10.0.0.250:2379", "--data-dir", filepath.Join(l.Dir(), "etcd"), "--socket", socket,
	}})
	check(t, err)
	await(t, "etcd answers", func(ctx context.Context) (err error) {
		if _, err = os.Stat(socket); err == nil {
			l.cluster, err = calicotest.Connect(ctx, "unix://"+socket, nil)
		}
		return err
	})
}

// apply is `calicoctl apply -f`.
func (l *lab) apply(t *testing.T, yaml string) {
	t.Helper()
	_, err := l.cluster.Apply(t.Context(), []byte(yaml))
	check(t, err)
}

// host is a machine on the underlay.
type host struct {
	lab  *lab
	name string
	ns   *netlab.Namespace
}

// host makes a router with these addresses on its eth0.
func (l *lab) host(t *testing.T, name string, addresses ...string) *host {
	t.Helper()
	h := &host{lab: l, name: name}
	var err error
	h.ns, err = l.Namespace(name)
	check(t, err)
	relaxSourceChecks(t, h.ns)
	check(t, h.ns.Forward())
	end := netlab.End{Namespace: h.ns, Device: "eth0"}
	for _, a := range addresses {
		end.Addresses = append(end.Addresses, pfx(a))
	}
	check(t, l.Attach(l.underlay, end))
	return h
}

// relaxSourceChecks lets packets in by another way than their answers would go. Distributions turn this check on, and new namespaces
// take it over from the host.
func relaxSourceChecks(t *testing.T, ns *netlab.Namespace) {
	t.Helper()
	for _, key := range []string{"net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter"} {
		check(t, ns.Sysctl(key, "0"))
	}
}

// workload plays the CNI plugin and Felix: it makes a namespace with one address behind the host, which gets a route to it. Calico's
// data is not touched.
func (h *host) workload(t *testing.T, name, address string) *netlab.Namespace {
	t.Helper()
	a := addr(address)
	w, err := h.lab.Namespace(name)
	check(t, err)
	relaxSourceChecks(t, w)
	device := "cali" + name
	check(t, h.lab.Veth(
		netlab.End{Namespace: w, Device: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}},
		netlab.End{Namespace: h.ns, Device: device}))
	mac, err := h.ns.MAC(device)
	check(t, err)
	gateway, everything := addr("169.254.1.1"), pfx("0.0.0.0/0")
	if a.Is6() {
		gateway, everything = addr("fe80::1:1"), pfx("::/0")
	}
	check(t, w.AddNeighbour("eth0", gateway, mac))
	check(t, w.AddRoute(everything, gateway, "eth0"))
	// Last, as CNI plugins do: what comes for it can be answered. The metric is Felix'.
	check(t, h.ns.AddRouteMetric(netip.PrefixFrom(a, a.BitLen()), netip.Addr{}, device, 1024))
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

// await asks until holds has no objection, and fails the test with the last one when patience is over.
func await(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	start := time.Now()
	var last error
	for {
		err := holds(ctx)
		if err == nil {
			t.Logf("%s: %.1f s", what, time.Since(start).Seconds())
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not after %s: %v", what, patience, last)
		case <-time.After(20 * time.Millisecond):
		}
	}
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
	return fmt.Sprintf(`
apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: node.%s}
spec: {listenPort: %d}
`, node, port)
}
