package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vpp-route-agent/internal/adminclient"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/netlab"
)

const (
	localAS   = 64512
	torAS     = 65001
	foreignAS = 65099 // of attackers with eBGP
	perKind   = 12    // attackers of each kind: after a session the reflector rests for 5 s
)

var (
	reflectorID = netip.MustParseAddr("10.0.0.1")
	honestID    = netip.MustParseAddr("10.0.0.11")
	hop4        = netip.MustParseAddr("10.0.0.99")
	hop6        = netip.MustParseAddr("fd00::99")
	wild4       = netip.MustParsePrefix("10.66.0.0/16") // what attackers announce
	wild6       = netip.MustParsePrefix("fd66::/32")
)

// resources has all nodes peer with the reflector. What attackers announce is passed on to
// everybody, but for what honest speakers announce and what they need to reach each other.
const resources = `
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: honest4}
spec: {cidr: 10.1.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: honest6}
spec: {cidr: "fd01::/48", blockSize: 122, ipipMode: Never, vxlanMode: Never}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: wild4}
spec: {cidr: 10.66.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: wild6}
spec: {cidr: "fd66::/32", blockSize: 122, ipipMode: Never, vxlanMode: Never}
---
apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: false}
---
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: reflector, labels: {role: rr}}
spec: {bgp: {ipv4Address: 10.0.0.1/24, ipv6Address: "fd00::1/64", routeReflectorClusterID: 10.0.0.100}}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: to-reflector}
spec: {nodeSelector: "all()", peerSelector: "role == 'rr'"}
---
apiVersion: projectcalico.org/v3
kind: BGPFilter
metadata: {name: attackers}
spec:
  importV4:
  - {cidr: 10.0.0.0/24, matchOperator: In, action: Reject}
  - {cidr: 10.1.0.0/16, matchOperator: In, action: Reject}
  importV6:
  - {cidr: "fd00::/64", matchOperator: In, action: Reject}
  - {cidr: "fd01::/48", matchOperator: In, action: Reject}
  - {cidr: "fe80::/10", matchOperator: In, action: Reject}
`

// peer is a BGPPeer of the reflector's that Calico does not know as a node.
func peer(name string, address netip.Addr, as int, more string) string {
	return fmt.Sprintf(`---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: %s}
spec: {node: reflector, peerIP: %q, asNumber: %d%s}
`, name, address, as, more)
}

// programs are what a cluster runs.
type programs struct {
	agent, gobgp string
	bird         netlab.BirdPrograms
	frr          netlab.FRRPrograms
}

func findPrograms(ctx context.Context, build string) (p programs, err error) {
	if build, err = filepath.Abs(build); err != nil {
		return p, err
	}
	p.agent, p.gobgp = filepath.Join(build, "vpp-route-agent"), filepath.Join(build, "gobgp")
	for _, file := range []string{p.agent, p.gobgp} {
		if _, err := os.Stat(file); err != nil {
			return p, err
		}
	}
	packages := filepath.Join(build, "packages")
	if p.bird, err = netlab.FindBird(ctx, packages); err != nil {
		return p, err
	}
	p.frr, err = netlab.FindFRR(ctx, packages)
	return p, err
}

// agent is one of ours: the reflector, which everybody talks to, or a node behind it.
type agent struct {
	*netlab.Process
	ns    *netlab.Namespace
	admin *adminclient.Client
}

// cluster is the topology: a reflector, honest speakers, and the machine that all attackers share.
type cluster struct {
	programs
	lab       *netlab.Lab
	underlay  *netlab.Namespace
	data      *calicotest.Cluster
	reflector *agent
	inner     *agent
	honest    []honest
	tor       *frrSpeaker
	bird      *birdSpeaker
	wild      *netlab.Namespace
	free      map[string]chan netip.Addr // attackers that are in no scenario, by kind

	attackers map[netip.Addr]bool
	baseline  [][]string // what each honest speaker had before the first attack
	since     map[netip.Addr]time.Time
	firstSize int // of the reflector, in bytes
}

func newCluster(ctx context.Context, p programs, log *slog.Logger) (c *cluster, err error) {
	c = &cluster{programs: p, free: map[string]chan netip.Addr{}, attackers: map[netip.Addr]bool{}}
	if c.lab, err = netlab.New("bgpfuzz", log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.underlay, err = c.lab.Segment("underlay"); err != nil {
		return nil, err
	}
	if err := c.startEtcd(ctx); err != nil {
		return nil, err
	}
	yaml, err := c.addAttackers()
	if err != nil {
		return nil, err
	}
	for i, name := range []string{"frr", "tor"} {
		as := []int{localAS, torAS}[i]
		for _, a := range []string{"10.0.0.1%d", "fd00::1%d"} {
			address := netip.MustParseAddr(fmt.Sprintf(a, 3+i))
			yaml += peer(fmt.Sprintf("%s-%d", name, address.BitLen()), address, as, "")
		}
	}
	if _, err := c.data.Apply(ctx, []byte(resources+yaml)); err != nil {
		return nil, err
	}
	if err := c.startHonest(ctx); err != nil {
		return nil, err
	}
	return c, c.settle(ctx)
}

func (c *cluster) close() error {
	if c.data != nil {
		c.data.Close()
	}
	return c.lab.Close()
}

// machine makes one on the underlay.
func (c *cluster) machine(name string, addresses ...netip.Prefix) (*netlab.Namespace, error) {
	ns, err := c.lab.Namespace(name)
	if err != nil {
		return nil, err
	}
	end := netlab.End{Namespace: ns, Device: "eth0", Addresses: addresses}
	return ns, c.lab.Attach(c.underlay, end)
}

func (c *cluster) dualStack(name string, last int) (*netlab.Namespace, []netip.Prefix, error) {
	addresses := []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", last)),
		netip.MustParsePrefix(fmt.Sprintf("fd00::%d/64", last)),
	}
	ns, err := c.machine(name, addresses...)
	return ns, addresses, err
}

// startEtcd runs an etcd, which this process, in no namespace, reaches by a unix socket.
func (c *cluster) startEtcd(ctx context.Context) error {
	ns, err := c.machine("etcd", netip.MustParsePrefix("10.0.0.250/24"))
	if err != nil {
		return err
	}
	socket := filepath.Join(c.lab.Dir(), "etcd.sock")
	_, err = c.lab.Start(netlab.Spec{Name: "etcd", Namespace: ns, Path: c.agent, Args: []string{
		"lab", "etcd", "--listen", "10.0.0.250:2379",
		"--data-dir", filepath.Join(c.lab.Dir(), "etcd"), "--socket", socket,
	}})
	if err != nil {
		return err
	}
	return netlab.Await(ctx, 30*time.Second, "etcd answers", func(ctx context.Context) (err error) {
		if _, err = os.Stat(socket); err == nil {
			c.data, err = calicotest.Connect(ctx, "unix://"+socket, nil)
		}
		return err
	})
}

// addAttackers gives each an address and a session with the reflector.
func (c *cluster) addAttackers() (yaml string, err error) {
	addresses := []netip.Prefix{netip.PrefixFrom(hop4, 24), netip.PrefixFrom(hop6, 64)}
	for k, kind := range kinds {
		c.free[kind] = make(chan netip.Addr, perKind)
		as := map[byte]int{'i': localAS, 'e': foreignAS}[kind[0]]
		for i := range perKind {
			last := byte(100 + k*perKind + i)
			address, bits := netip.AddrFrom4([4]byte{10, 0, 0, last}), 24
			if kind[1] == '6' {
				address, bits = netip.AddrFrom16([16]byte{0xfd, 15: last}), 64
			}
			addresses = append(addresses, netip.PrefixFrom(address, bits))
			yaml += peer(fmt.Sprintf("%s-%d", kind, i+1), address, as, ", filters: [attackers]")
			c.free[kind] <- address
			c.attackers[address] = true
		}
	}
	c.wild, err = c.machine("wild", addresses...)
	return yaml, err
}

func (c *cluster) startAgent(
	name string, ns *netlab.Namespace, dataplane string,
) (a *agent, err error) {
	socket := filepath.Join(c.lab.Dir(), name+".sock")
	a = &agent{ns: ns, admin: adminclient.New(socket)}
	a.Process, err = c.lab.Start(netlab.Spec{Name: name, Namespace: ns, Path: c.agent, Args: []string{
		"run", "--node-name", name, "--etcd-endpoints", "http://10.0.0.250:2379",
		"--dataplane", dataplane, "--admin-socket", socket,
		"--state-dir", filepath.Join(c.lab.Dir(), name+".state"),
	}})
	return a, err
}

// startHonest starts BIRD for each family, FRR inside and outside, a node of ours, and the
// reflector.
func (c *cluster) startHonest(ctx context.Context) error {
	ns, addresses, err := c.dualStack("bird", 11)
	if err != nil {
		return err
	}
	if err := c.data.AddNode(ctx, "bird", addresses...); err != nil {
		return err
	}
	for i, block := range []string{"10.1.1.0/26", "fd01::1:0/122"} {
		b, err := c.startBird(ctx, ns, addresses[i].Addr(), netip.MustParsePrefix(block))
		if err != nil {
			return err
		}
		if i == 0 {
			c.bird = b
		}
	}
	for i, name := range []string{"frr", "tor"} {
		if c.tor, err = c.startFRR(ctx, name, 13+i, []int{localAS, torAS}[i]); err != nil {
			return err
		}
	}
	for last, name := range map[int]string{1: "reflector", 12: "inner"} {
		ns, addresses, err := c.dualStack(name, last)
		if err != nil {
			return err
		}
		dataplane := "kernel"
		if name == "inner" {
			dataplane = "none"
			if err := c.data.AddNode(ctx, name, addresses...); err != nil {
				return err
			}
		}
		for _, block := range []string{"10.1.%d.64/26", "fd01::%d:0/122"} {
			block := netip.MustParsePrefix(fmt.Sprintf(block, 100+last))
			if err := c.data.ClaimBlock(ctx, name, block); err != nil {
				return err
			}
		}
		a, err := c.startAgent(name, ns, dataplane)
		if err != nil {
			return err
		}
		if name == "inner" {
			c.inner = a
			c.honest = append(c.honest, &gobgpSpeaker{a, c.gobgp, "GoBGP"})
		} else {
			c.reflector = a
		}
	}
	return nil
}

func (c *cluster) startBird(
	ctx context.Context, ns *netlab.Namespace, address netip.Addr, block netip.Prefix,
) (*birdSpeaker, error) {
	pool, up := netip.MustParsePrefix("10.1.0.0/16"), reflectorID
	if address.Is6() {
		pool, up = netip.MustParsePrefix("fd01::/48"), netip.MustParseAddr("fd00::1")
	}
	if err := c.data.ClaimBlock(ctx, "bird", block); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("bird-%d", address.BitLen())
	bird, err := c.lab.StartBird(ctx, c.programs.bird, ns, name, netlab.BirdConfig{
		RouterID: honestID, Address: address, AS: localAS,
		Pools: []netlab.BirdPool{{Prefix: pool}}, Blocks: []netip.Prefix{block},
		Peers: []netlab.BirdPeer{{Name: "Reflector", Address: up, AS: localAS}},
	})
	b := &birdSpeaker{bird, address}
	c.honest = append(c.honest, b)
	return b, err
}

// bulk is how many prefixes of each family FRR outside announces: a dump takes several messages.
const bulk = 600

func (c *cluster) startFRR(ctx context.Context, name string, last, as int) (*frrSpeaker, error) {
	ns, addresses, err := c.dualStack(name, last)
	if err != nil {
		return nil, err
	}
	lines := []string{
		fmt.Sprintf("router bgp %d", as), "bgp router-id " + addresses[0].Addr().String(),
		"no bgp ebgp-requires-policy", "no bgp network import-check",
		"timers bgp 30 90", "no bgp default ipv4-unicast",
	}
	for _, up := range []string{"10.0.0.1", "fd00::1"} {
		lines = append(lines, fmt.Sprintf("neighbor %s remote-as %d", up, localAS),
			"neighbor "+up+" timers connect 1")
	}
	for i, up := range []string{"10.0.0.1", "fd00::1"} {
		family := []string{"ipv4", "ipv6"}[i]
		lines = append(lines, "address-family "+family+" unicast", "neighbor "+up+" activate",
			// FRR sends back what it hears by eBGP, and does not survive that it does not fit then.
			"neighbor "+up+" filter-list own out")
		n := 1
		if as != localAS {
			n = bulk
		}
		for k := range n {
			p := fmt.Sprintf("10.1.%d.%d/29", last+100+k/32, k%32*8)
			if i == 1 {
				p = fmt.Sprintf("fd01::%x:%x:0/122", last, k)
			}
			lines = append(lines, "network "+p)
		}
		lines = append(lines, "exit-address-family")
	}
	lines = append(lines, "exit", "bgp as-path access-list own permit ^$")
	config := netlab.FRRConfig{BGP: strings.Join(lines, "\n") + "\n"}
	frr, err := c.lab.StartFRR(ctx, c.programs.frr, ns, name, config)
	f := &frrSpeaker{frr, name, as}
	c.honest = append(c.honest, f)
	return f, err
}
