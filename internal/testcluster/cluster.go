// Package testcluster runs small Calico clusters in network namespaces, for whatever shows, breaks,
// measures or tests the agent: an etcd with Calico's data, nodes with our agent or with BIRD as
// calico-node configures it, workloads, and what each kernel and each VPP forwards by.
//
// It plays the rest of a cluster (Felix, the CNI plugin, confd) and decides nothing about routes:
// agents are the real binary in processes of their own. Namespaces, links and the programs of
// others are netlab's; closing a cluster removes them all. Production code does not import it.
package testcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/netlab"
)

// AS is Calico's default, and that of every cluster.
const AS = 64512

// Programs are what a cluster runs.
type Programs struct {
	Agent string // our binary
	Bird  netlab.BirdPrograms
	VPP   *netlab.VPPPrograms // nil: there is none
}

// Cluster is a segment with an etcd and nodes on it.
type Cluster struct {
	*netlab.Lab
	Programs
	Underlay  *netlab.Namespace
	Endpoints []string // of etcd, for agents and others
	// Kubeconfig is the file by which agents find the data in the Kubernetes API; empty: they find
	// them in etcd.
	Kubeconfig string
	Data       *calicotest.Cluster // writes Calico's data; nil before StartEtcd

	ctx     context.Context // ends with the cluster
	cancel  context.CancelFunc
	running sync.WaitGroup // what goes on in the background

	mu    sync.Mutex // guards ended
	ended error
}

// New makes a cluster with nothing but its segment.
func New(name string, p Programs, log *slog.Logger) (*Cluster, error) {
	lab, err := netlab.New(name, log)
	if err != nil {
		return nil, err
	}
	c := In(lab, p)
	if c.Underlay, err = lab.Segment("underlay"); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// In returns an empty cluster in a lab. Closing the cluster closes the lab.
func In(lab *netlab.Lab, p Programs) *Cluster {
	c := &Cluster{Lab: lab, Programs: p}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends every process and removes everything that the cluster has made.
func (c *Cluster) Close() error {
	c.cancel()
	c.running.Wait()
	if c.Data != nil {
		c.Data.Close()
	}
	return c.Lab.Close()
}

// StartEtcd runs an etcd at an address of ns. This process, which is in no namespace, reaches it by
// a unix socket.
func (c *Cluster) StartEtcd(
	ctx context.Context, ns *netlab.Namespace, address netip.Addr,
) error {
	return c.startEtcd(ctx, ns, address)
}

// StartKubernetes does so, and has a stand-in for the Kubernetes API mirror it for agents.
func (c *Cluster) StartKubernetes(
	ctx context.Context, ns *netlab.Namespace, address netip.Addr,
) error {
	c.Kubeconfig = filepath.Join(c.Dir(), "kubeconfig")
	return c.startEtcd(ctx, ns, address, "--kubeconfig-dir", c.Dir(),
		"--kubernetes", netip.AddrPortFrom(address, 6443).String())
}

func (c *Cluster) startEtcd(ctx context.Context, ns *netlab.Namespace, address netip.Addr,
	more ...string) error {
	listen := netip.AddrPortFrom(address, 2379).String()
	args := append([]string{"lab", "etcd", "--listen", listen, "--socket", c.EtcdSocket(),
		"--data-dir", filepath.Join(c.Dir(), "etcd")}, more...)
	p, err := c.Start(netlab.Spec{Name: "etcd", Namespace: ns, Path: c.Agent, Args: args})
	if err != nil {
		return err
	}
	c.Endpoints = []string{"http://" + listen}
	err = netlab.Await(ctx, 30*time.Second, "etcd answers", func(ctx context.Context) (err error) {
		if _, err = os.Stat(c.EtcdSocket()); err == nil {
			c.Data, err = calicotest.Connect(ctx, "unix://"+c.EtcdSocket(), nil)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, Tail(p.LogPath(), 15))
	}
	return nil
}

// EtcdSocket is where this machine reaches the etcd of StartEtcd.
func (c *Cluster) EtcdSocket() string { return filepath.Join(c.Dir(), "etcd.sock") }

// Apply is `calicoctl apply -f`.
func (c *Cluster) Apply(ctx context.Context, yaml string) error {
	_, err := c.Data.Apply(ctx, []byte(yaml))
	return err
}

// Machine makes a namespace with an interface eth0 on the underlay.
func (c *Cluster) Machine(name string, addresses ...netip.Prefix) (*netlab.Namespace, error) {
	ns, err := c.namespace(name)
	if err != nil {
		return nil, err
	}
	return ns, c.connect(netlab.End{Namespace: ns, Device: "eth0", Addresses: addresses})
}

// connect attaches an end to the underlay. VPPs there want checksums that are filled in.
func (c *Cluster) connect(end netlab.End) error {
	if err := c.Attach(c.Underlay, end); err != nil {
		return err
	}
	return end.Namespace.FillChecksums(end.Device)
}

// namespace makes one that takes packets by another way than their answers go. Distributions turn
// this check on, and new namespaces take it over from the host.
func (c *Cluster) namespace(name string) (*netlab.Namespace, error) {
	ns, err := c.Namespace(name)
	if err != nil {
		return nil, err
	}
	return ns, sysctls(ns, "0", "net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter")
}

func sysctls(ns *netlab.Namespace, value string, keys ...string) error {
	for _, key := range keys {
		if err := ns.Sysctl(key, value); err != nil {
			return err
		}
	}
	return nil
}

// Tails are the last lines of every log of a lab, for people.
func Tails(l *netlab.Lab, lines int) string {
	var b strings.Builder
	for _, path := range logs(l) {
		fmt.Fprintf(&b, "%s:\n%s\n", filepath.Base(path), Tail(path, lines))
	}
	return b.String()
}

// SaveLogs copies all logs of a lab to a folder.
func SaveLogs(l *netlab.Lab, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, path := range logs(l) {
		text, err := os.ReadFile(path)
		errs = append(errs, err)
		errs = append(errs, os.WriteFile(filepath.Join(folder, filepath.Base(path)), text, 0o644))
	}
	return errors.Join(errs...)
}

func logs(l *netlab.Lab) []string {
	found, _ := filepath.Glob(filepath.Join(l.Dir(), "*.log")) // the pattern is well formed
	return found
}

// Tail is the end of a log.
func Tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Pause lets time pass in which something is observed.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// ClearSettings removes from our environment what agents, which inherit it, would take for
// configuration.
func ClearSettings() error {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		for _, prefix := range []string{
			"VPP_ROUTE_AGENT_", "CALICO_", "ETCD_", "NODENAME", "DATASTORE_TYPE",
		} {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			if err := os.Unsetenv(name); err != nil {
				return fmt.Errorf("testcluster: %w", err)
			}
		}
	}
	return nil
}

// AgentPackage is the program that clusters run.
const AgentPackage = "vpp-route-agent/cmd/vpp-route-agent"

// Build builds programs into a folder, with the flags of `make build`, so that each package is
// compiled once for both, and without symbols, which take a third of the time to link.
func Build(ctx context.Context, dir string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go",
		append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", dir + "/"}, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}
