package demo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"vpp-route-agent/internal/netlab"
)

// birdSpeaker is BIRD as calico-node configures it.
type birdSpeaker struct {
	lab      *netlab.Lab
	programs netlab.BirdPrograms
	node     string
	ns       *netlab.Namespace
	config   netlab.BirdConfig
	peers    map[string]netip.Addr // by name of their protocol

	bird *netlab.Bird
}

const asNumber = 64512 // Calico's default

// addBIRD gives n a BIRD with the configuration that confd would write: the mesh, the pool and n's blocks.
func (d *demo) addBIRD(n *node) {
	b := &birdSpeaker{lab: d.lab, programs: d.tools.bird, node: n.name, ns: n.ns, peers: map[string]netip.Addr{}}
	b.config = netlab.BirdConfig{
		RouterID: n.address, Address: n.address, AS: asNumber,
		Pools: []netlab.BirdPool{{Prefix: netip.MustParsePrefix("10.1.0.0/16")}},
	}
	for _, block := range d.blocks {
		if block.owner == n {
			b.config.Blocks = append(b.config.Blocks, block.cidr)
		}
	}
	for _, address := range allBut(d.addresses(), n.address) {
		peer := netlab.MeshPeer(n.address, address, asNumber)
		b.config.Peers = append(b.config.Peers, peer)
		b.peers[peer.Name] = address
	}
	n.speaker = b
}

func (b *birdSpeaker) name() string {
	version, _, _ := strings.Cut(b.programs.Version, "-") // without Debian's revision
	return "BIRD " + version
}

func (b *birdSpeaker) start(ctx context.Context) (err error) {
	b.bird, err = b.lab.StartBird(ctx, b.programs, b.ns, b.node, b.config)
	return err
}

func (b *birdSpeaker) sessions(ctx context.Context) (up []netip.Addr, err error) {
	protocols, err := b.bird.Protocols(ctx)
	for _, p := range protocols {
		if a, ok := b.peers[p.Name]; ok && p.Info == "Established" {
			up = append(up, a)
		}
	}
	slices.SortFunc(up, netip.Addr.Compare)
	return up, err
}

func (b *birdSpeaker) quote(ctx context.Context) (command, output string, err error) {
	lines, err := b.bird.Command(ctx, "show protocols")
	return "birdc show protocols", strings.Join(lines, "\n"), err
}

func (b *birdSpeaker) commands() []string {
	birdc := fmt.Sprintf("%s -s %s", b.programs.Birdc, b.bird.Socket())
	if len(b.programs.Env) > 0 { // unpacked: its libraries are too
		birdc = strings.Join(b.programs.Env, " ") + " " + birdc
	}
	return []string{birdc + " show protocols", birdc + " show route"}
}
