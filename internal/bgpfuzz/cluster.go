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

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

const (
	localAS   = testcluster.AS
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
var resources = testcluster.Resource("IPPool", "honest4",
	"cidr: 10.1.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never") +
	testcluster.Resource("IPPool", "honest6",
		`cidr: "fd01::/48", blockSize: 122, ipipMode: Never, vxlanMode: Never`) +
	testcluster.Resource("IPPool", "wild4",
		"cidr: 10.66.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never") +
	testcluster.Resource("IPPool", "wild6",
		`cidr: "fd66::/32", blockSize: 122, ipipMode: Never, vxlanMode: Never`) +
	testcluster.NoMesh +
	testcluster.ReflectorNode("reflector", "10.0.0.100",
		`ipv4Address: 10.0.0.1/24, ipv6Address: "fd00::1/64"`) +
	testcluster.ToReflectors +
	`
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
func peer(name string, address netip.Addr, as uint32, more string) string {
	return testcluster.Peer(name, address.String(), as, "node: reflector"+more)
}

// programs are what a cluster runs.
type programs struct {
	testcluster.Programs
	gobgp string
	frr   netlab.FRRPrograms
}

func findPrograms(ctx context.Context, build string) (p programs, err error) {
	if build, err = filepath.Abs(build); err != nil {
		return p, err
	}
	p.Agent, p.gobgp = filepath.Join(build, "vpp-route-agent"), filepath.Join(build, "gobgp")
	for _, file := range []string{p.Agent, p.gobgp} {
		if _, err := os.Stat(file); err != nil {
			return p, err
		}
	}
	packages := filepath.Join(build, "packages")
	if p.Bird, err = netlab.FindBird(ctx, packages); err != nil {
		return p, err
	}
	p.frr, err = netlab.FindFRR(ctx, packages)
	return p, err
}

// agent is one of ours: the reflector, which everybody talks to, or a node behind it.
type agent struct{ *testcluster.Agent }

// cluster is the topology: a reflector, honest speakers, and the machine that all attackers share.
type cluster struct {
	*testcluster.Cluster
	programs  programs
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
	if c.Cluster, err = testcluster.New("bgpfuzz", p.Programs, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	etcd, err := c.Machine("etcd", netip.MustParsePrefix("10.0.0.250/24"))
	if err != nil {
		return nil, err
	}
	if err := c.StartEtcd(ctx, etcd, netip.MustParseAddr("10.0.0.250")); err != nil {
		return nil, err
	}
	yaml, err := c.addAttackers()
	if err != nil {
		return nil, err
	}
	for i, name := range []string{"frr", "tor"} {
		as := []uint32{localAS, torAS}[i]
		for _, a := range []string{"10.0.0.1%d", "fd00::1%d"} {
			address := netip.MustParseAddr(fmt.Sprintf(a, 3+i))
			yaml += peer(fmt.Sprintf("%s-%d", name, address.BitLen()), address, as, "")
		}
	}
	if err := c.Apply(ctx, resources+yaml); err != nil {
		return nil, err
	}
	if err := c.startHonest(ctx); err != nil {
		return nil, err
	}
	return c, c.settle(ctx)
}

func (c *cluster) dualStack(name string, last int) (*netlab.Namespace, []netip.Prefix, error) {
	addresses := []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", last)),
		netip.MustParsePrefix(fmt.Sprintf("fd00::%d/64", last)),
	}
	ns, err := c.Machine(name, addresses...)
	return ns, addresses, err
}

// addAttackers gives each an address and a session with the reflector.
func (c *cluster) addAttackers() (yaml string, err error) {
	addresses := []netip.Prefix{netip.PrefixFrom(hop4, 24), netip.PrefixFrom(hop6, 64)}
	for k, kind := range kinds {
		c.free[kind] = make(chan netip.Addr, perKind)
		as := map[byte]uint32{'i': localAS, 'e': foreignAS}[kind[0]]
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
	c.wild, err = c.Machine("wild", addresses...)
	return yaml, err
}

// startHonest starts BIRD for each family, FRR inside and outside, a node of ours, and the
// reflector.
func (c *cluster) startHonest(ctx context.Context) error {
	ns, addresses, err := c.dualStack("bird", 11)
	if err != nil {
		return err
	}
	if err := c.Data.AddNode(ctx, "bird", addresses...); err != nil {
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
			if err := c.Data.AddNode(ctx, name, addresses...); err != nil {
				return err
			}
		}
		for _, block := range []string{"10.1.%d.64/26", "fd01::%d:0/122"} {
			block := netip.MustParsePrefix(fmt.Sprintf(block, 100+last))
			if err := c.Data.ClaimBlock(ctx, name, block); err != nil {
				return err
			}
		}
		a := &agent{c.NewAgent(name, ns, "--dataplane", dataplane)}
		if err := a.Start(ctx); err != nil {
			return err
		}
		if name == "inner" {
			c.inner = a
			c.honest = append(c.honest, &gobgpSpeaker{a, c.programs.gobgp, "GoBGP"})
		} else {
			c.reflector = a
		}
	}
	return nil
}

func (c *cluster) startBird(
	ctx context.Context, ns *netlab.Namespace, address netip.Addr, block netip.Prefix,
) (*birdSpeaker, error) {
	up := reflectorID
	if address.Is6() {
		up = netip.MustParseAddr("fd00::1")
	}
	if err := c.Data.ClaimBlock(ctx, "bird", block); err != nil {
		return nil, err
	}
	config := testcluster.BirdConfig(address)
	config.RouterID, config.Blocks = honestID, []netip.Prefix{block}
	config.Peers = []netlab.BirdPeer{{Name: "Reflector", Address: up, AS: localAS}}
	name := fmt.Sprintf("bird-%d", address.BitLen())
	bird, err := c.StartBird(ctx, c.Bird, ns, name, config)
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
	frr, err := c.StartFRR(ctx, c.programs.frr, ns, name, config)
	f := &frrSpeaker{frr, name, as}
	c.honest = append(c.honest, f)
	return f, err
}
