package demo

import (
	"context"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"vpp-route-agent/internal/testcluster"
)

// speaker is a node's BGP daemon, in a process of its own.
type speaker interface {
	name() string // for people: "vpp-route-agent", "BIRD 1.6.8"
	Start(ctx context.Context) error
	// Established are the addresses of the peers with a session that is up, sorted.
	Established(ctx context.Context) ([]netip.Addr, error)
	Protocol() string // of its routes in the kernel
	ready(ctx context.Context) error
	// quote runs a command that shows its peers to a person.
	quote(ctx context.Context) (command, output string, err error)
	// commands are what a person may try on its node, with programs: by name, the words to run.
	commands() []string
	programs() map[string][]string
}

// agentSpeaker is our own agent: `run` of the demo's own binary.
type agentSpeaker struct{ *testcluster.Agent }

func (agentSpeaker) name() string { return "vpp-route-agent" }

// quote returns what `vpp-route-agent status` prints for a person.
func (a agentSpeaker) quote(ctx context.Context) (command, output string, err error) {
	out, err := a.NS.Run(ctx, a.Binary, "status", "--admin-socket", a.Socket)
	return "vpp-route-agent status", string(out), err
}

// ready is later than the routes: it takes the sweep, which waits for End-of-RIB of all peers.
func (a agentSpeaker) ready(ctx context.Context) error {
	s, err := a.Status(ctx)
	return held(s.Ready, err)
}

func (a agentSpeaker) commands() []string {
	all := []string{"vpp-route-agent status", "vpp-route-agent routes"}
	if !slices.Contains(a.Flags, "ipam") { // else there is no BGP to plan
		all = append(all, "vpp-route-agent plan --live --diff")
	}
	if _, found := a.programs()["gobgp"]; found {
		all = append(all, "gobgp global rib")
	}
	return all
}

// programs are the agent itself, for its client commands, and the gobgp that make builds beside it.
func (a agentSpeaker) programs() map[string][]string {
	client := append(append([]string{"env"}, a.Environment()...), a.Binary)
	all := map[string][]string{"vpp-route-agent": client}
	gobgp, err := exec.LookPath(filepath.Join(filepath.Dir(a.Binary), "gobgp"))
	if err == nil {
		all["gobgp"] = []string{gobgp}
	}
	return all
}

// birdSpeaker is BIRD as calico-node configures it.
type birdSpeaker struct {
	*testcluster.Bird
	tools testcluster.Programs
}

// addBIRD gives n a BIRD with the configuration that confd would write: the mesh, the pool and n's
// blocks.
func (d *demo) addBIRD(n *node) {
	config := testcluster.BirdConfig(n.Address, allBut(d.addresses(), n.Address)...)
	for _, block := range d.blocks {
		if block.owner == n {
			config.Blocks = append(config.Blocks, block.cidr)
		}
	}
	n.speaker = birdSpeaker{d.NewBird(n.Name, n.NS, config), d.Programs}
}

func (b birdSpeaker) name() string {
	version, _, _ := strings.Cut(b.tools.Bird.Version, "-") // without Debian's revision
	return "BIRD " + version
}

func (birdSpeaker) ready(context.Context) error { return nil }

func (b birdSpeaker) quote(ctx context.Context) (command, output string, err error) {
	lines, err := b.Command(ctx, "show protocols")
	return "birdc show protocols", strings.Join(lines, "\n"), err
}

func (birdSpeaker) commands() []string {
	return []string{"birdc show protocols", "birdc show route"}
}

func (b birdSpeaker) programs() map[string][]string {
	birdc := []string{b.tools.Bird.Birdc, "-s", b.Bird.Socket()}
	if env := b.tools.Bird.Env; len(env) > 0 { // unpacked: its libraries are too
		birdc = slices.Concat([]string{"/usr/bin/env"}, env, birdc)
	}
	return map[string][]string{"birdc": birdc}
}
