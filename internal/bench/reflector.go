package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// routesPerClient are announced by each client, in one UPDATE.
const routesPerClient = 10

const clusterID = "10.255.255.1"

// routeReflector has the clients of a route reflector announce their routes, and takes its
// processor time until every client has the routes of all others: of the agent, of BIRD 2, and of
// GoBGP as released.
func routeReflector(l *lab) error {
	b, clients := l.b, l.nodes
	us := testcluster.ReflectorNode("node", clusterID,
		fmt.Sprintf("ipv4Address: %s/16", nodeAddress))
	if err := l.apply(testcluster.NoMesh + us + testcluster.ToReflectors); err != nil {
		return err
	}
	programs, err := netlab.FindBird2(b.ctx, b.build)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	byAgent := func(clients int, cpu, memory *series) error {
		n, err := l.startAgent("state", "--dataplane", "none")
		if err != nil {
			return err
		}
		err = l.reflect(n.Process, clients, cpu)
		peak, errMemory := n.mebibytes("VmHWM")
		*memory = append(*memory, peak)
		return errors.Join(err, errMemory, n.Kill())
	}
	byBird := func(clients int, cpu *series) error {
		x, err := l.StartBirdText(b.ctx, programs, l.node, "bird2", birdReflector(clients))
		if err != nil {
			return err
		}
		return errors.Join(l.reflect(x.Process, clients, cpu), x.Kill())
	}
	var ours, bird, memory series
	err = rounds(2,
		func() error { return byAgent(clients, &ours, &memory) },
		func() error { return byBird(clients, &bird) })
	if err != nil {
		return err
	}
	const unit = "µs/route and client"
	of := func(clients int) string {
		return fmt.Sprintf("%d clients × %d routes", clients, clients*routesPerClient)
	}
	on := of(clients)
	b.compare("reflector, CPU of the agent", unit, ours, "BIRD "+programs.Version,
		bird, atMost(3), on)
	b.single("reflector, most memory of the agent", "MiB", memory.best(), atMost(1024), on)
	if b.short {
		return nil
	}
	const few = 200 // for all clients the released GoBGP needs minutes
	ours = nil
	if err := byAgent(few, &ours, &memory); err != nil {
		return err
	}
	released, err := l.throughReleased(few)
	b.compare("reflector, CPU of the agent, fewer clients", unit, ours, "GoBGP as released",
		released, noBudget, of(few))
	return err
}

// throughReleased is reflect of the released GoBGP.
func (l *lab) throughReleased(clients int) (cpu series, err error) {
	gobgpd, err := l.releasedGoBGP()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(l.Dir(), "gobgpd.toml")
	if err := os.WriteFile(config, []byte(gobgpReflector(clients)), 0o600); err != nil {
		return nil, err
	}
	p, err := l.Start(netlab.Spec{
		Name: "gobgpd", Namespace: l.node, Path: gobgpd, Args: []string{"-f", config},
	})
	if err != nil {
		return nil, err
	}
	err = errors.Join(l.reflect(p, clients, &cpu), p.Kill())
	return cpu, err
}

// reflect brings the clients' sessions up and then has them announce their routes. It appends the
// processor time that p took from the first UPDATE in to the last route out, per route and client.
func (l *lab) reflect(p *netlab.Process, clients int, cpu *series) error {
	routes := blockPrefixes(clients * routesPerClient)
	own := func(i int) (from, to int) { return i * routesPerClient, (i + 1) * routesPerClient }
	has := make([][]bool, clients)
	for i := range has {
		has[i] = make([]bool, len(routes))
		from, to := own(i)
		for r := from; r < to; r++ {
			has[i][r] = true // no client is sent its own
		}
	}
	var missing, ended atomic.Int64
	missing.Store(int64(clients * (len(routes) - routesPerClient)))
	quietly := func(int) []byte { return endOfRIB }
	all, err := l.meet(clients, quietly, func(i int, update []byte) {
		if len(update) == len(endOfRIB)-testcluster.HeaderLength {
			ended.Add(1)
			return
		}
		missing.Add(-int64(tick(has[i], update)))
	})
	defer all.close()
	if err != nil {
		return err
	}
	if err := awaitCount(l.b.ctx, &ended, clients); err != nil {
		return errors.Join(err, all.alive())
	}
	before, err := p.CPUSeconds()
	if err != nil {
		return err
	}
	for i, s := range all {
		from, to := own(i)
		if err := s.send(announce(peerAddress(i), routes[from:to])); err != nil {
			return err
		}
	}
	err = await(l.b.ctx, 5*time.Minute, pollInterval, func() error {
		if n := missing.Load(); n > 0 {
			return fmt.Errorf("%d routes have not arrived", n)
		}
		return nil
	})
	if err != nil {
		return errors.Join(err, all.alive())
	}
	after, err := p.CPUSeconds()
	*cpu = append(*cpu, (after-before)*1e6/float64(clients*len(routes)))
	return err
}

// tick notes those of blockPrefixes that an UPDATE announces, and returns how many are new.
func tick(has []bool, update []byte) (fresh int) {
	for range 2 { // withdrawn routes, attributes (RFC 4271 §4.3)
		update = update[2+binary.BigEndian.Uint16(update):]
	}
	for ; len(update) >= 5; update = update[5:] {
		if i := (binary.BigEndian.Uint32(update[1:]) - 30<<24) >> 6; !has[i] {
			has[i] = true
			fresh++
		}
	}
	return fresh
}

// birdReflector is a configuration of BIRD 2 with those clients.
func birdReflector(clients int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `log stderr { warning, error, fatal, bug };
router id %[1]s;
protocol device {}
protocol direct { ipv4; }
template bgp node {
  local %[1]s as %[2]d;
  rr client; rr cluster id %[3]s;
  passive; hold time %[4]d; graceful restart;
  ipv4 { import all; export all; };
}
`, nodeAddress, asNumber, clusterID, holdTime)
	for i := range clients {
		fmt.Fprintf(&b, "protocol bgp from node { neighbor %s as %d; }\n", peerAddress(i), asNumber)
	}
	return b.String()
}

// gobgpReflector is a configuration of gobgpd with those clients.
func gobgpReflector(clients int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[global.config]\nas = %d\nrouter-id = \"%s\"\n", asNumber, nodeAddress)
	for i := range clients {
		fmt.Fprintf(&b, `[[neighbors]]
[neighbors.config]
neighbor-address = "%s"
peer-as = %d
[neighbors.transport.config]
passive-mode = true
[neighbors.route-reflector.config]
route-reflector-client = true
route-reflector-cluster-id = "%s"
[neighbors.graceful-restart.config]
enabled = true
restart-time = 120
[[neighbors.afi-safis]]
[neighbors.afi-safis.config]
afi-safi-name = "ipv4-unicast"
[neighbors.afi-safis.mp-graceful-restart.config]
enabled = true
`, peerAddress(i), asNumber, clusterID)
	}
	return b.String()
}

// releasedGoBGP builds gobgpd of the module that the agent's GoBGP is made from.
func (l *lab) releasedGoBGP() (string, error) {
	dir, err := exec.CommandContext(l.b.ctx, "go", "list", "-m", "-f", "{{.Dir}}",
		"-modfile=third_party/gobgp/upstream.mod", "github.com/osrg/gobgp/v3").Output()
	if err != nil {
		return "", fmt.Errorf("the released GoBGP: %w", err)
	}
	program := filepath.Join(l.Dir(), "gobgpd.released")
	build := exec.CommandContext(l.b.ctx, "go", "build", "-o", program, "./cmd/gobgpd")
	build.Dir = strings.TrimSpace(string(dir))
	out, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the released GoBGP: %w\n%s", err, out)
	}
	return program, nil
}
