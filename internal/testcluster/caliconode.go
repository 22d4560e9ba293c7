package testcluster

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"sync"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/calicotest"
	"vpp-route-agent/internal/netlab"
)

// CalicoNode is what calico-node runs: BIRD, confd's part, which gives BIRD the sessions that
// Calico's data say, also when they change, and the answers to CalicoNodeStatus.
type CalicoNode struct {
	*Bird
	cluster *Cluster

	mu      sync.Mutex // guards Config, BIRD's process, and follows
	follows bool
}

// NewCalicoNode returns one that is not started. Its sessions are not taken from config.
func (c *Cluster) NewCalicoNode(
	name string, ns *netlab.Namespace, config netlab.BirdConfig,
) *CalicoNode {
	return &CalicoNode{Bird: c.NewBird(name, ns, config), cluster: c}
}

// Start runs BIRD, for the first time or again; the rest runs until the cluster is closed.
func (n *CalicoNode) Start(ctx context.Context) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Config, err = n.confd(ctx); err != nil {
		return err
	}
	if err := n.Bird.Start(ctx); err != nil || n.follows {
		return err
	}
	n.follows = true
	answers := calicotest.CalicoNode{
		Node: n.Name, Client: n.cluster.Data.Client(), Tables: n.tables,
	}
	n.cluster.background(func(ctx context.Context) error { return answers.Run(ctx) })
	for _, kind := range []calico.Kind{
		calico.KindNode, calico.KindBGPPeer, calico.KindBGPConfiguration,
	} {
		n.cluster.background(func(ctx context.Context) error {
			return n.cluster.Data.Follow(ctx, kind, n.reconfigure)
		})
	}
	return nil
}

// Ready returns what BIRD still lacks, as a Bird does.
func (n *CalicoNode) Ready(ctx context.Context, peers []netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Bird.Ready(ctx, peers)
}

// reconfigure gives BIRD other sessions if Calico's data make others of them.
func (n *CalicoNode) reconfigure(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	config, err := n.confd(ctx)
	if err != nil || reflect.DeepEqual(config, n.Config) {
		return err
	}
	select {
	case <-n.Done(): // it starts with the configuration of then
		return nil
	default:
	}
	n.Config = config
	return n.Reconfigure(ctx, config)
}

// confd is the configuration with the sessions that Calico's data say.
func (n *CalicoNode) confd(ctx context.Context) (netlab.BirdConfig, error) {
	config := n.Config
	s, err := n.cluster.Data.Snapshot(ctx, n.Name)
	if err != nil {
		return config, err
	}
	config.Peers, config.Cluster = nil, netip.Addr{}
	if id := s.Nodes[n.Name].RouteReflectorClusterID; id != "" {
		if config.Cluster, err = netip.ParseAddr(id); err != nil {
			return config, err
		}
	}
	peers, _ := bgp.Peers(n.Name, s)
	for _, p := range peers {
		peer := netlab.MeshPeer(config.Address, p.Address, p.RemoteAS)
		peer.Client, peer.RestartTime = p.Client, p.RestartTime
		_, address, _ := strings.Cut(peer.Name, "_")
		switch p.Scope {
		case bgp.ScopeMesh:
		case bgp.ScopeGlobal:
			peer.Name = "Global_" + address
		default: // either end dials
			peer.Name, peer.Passive = "Node_"+address, false
		}
		config.Peers = append(config.Peers, peer)
	}
	return config, nil
}

// nodePeerTypes is what calico-node makes of the names that confd gives to sessions.
var nodePeerTypes = map[string]string{
	"Mesh": "NodeMesh", "Node": "NodePeer", "Global": "GlobalPeer",
}

// tables are BIRD's sessions and routes as calico-node reads them off BIRD's socket.
func (n *CalicoNode) tables(ctx context.Context, ipv6 bool) (
	peers []calicotest.NodePeer, routes []calicotest.NodeRoute, err error,
) {
	if ipv6 { // bird6 runs, and has none
		return nil, nil, nil
	}
	protocols, err := n.Protocols(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range protocols {
		kind, address := sessionOf(p.Name)
		if kind == "" {
			continue
		}
		state, _, _ := strings.Cut(p.Info, " ")
		peers = append(peers, calicotest.NodePeer{
			PeerIP: address, Type: kind, State: state, Since: p.Since,
		})
	}
	lines, err := n.Command(ctx, "show route")
	return peers, nodeRoutes(lines), err
}

// sessionOf is the kind and the address of a peer by its protocol's name; "" for other protocols.
func sessionOf(protocol string) (kind, address string) {
	scope, address, _ := strings.Cut(protocol, "_")
	return nodePeerTypes[scope], strings.ReplaceAll(address, "_", ".")
}

// nodeRoutes reads `show route`: "PREFIX via ADDRESS on DEVICE [PROTOCOL TIME…] * (PREFERENCE…)",
// with a blank prefix for further routes of the same one.
func nodeRoutes(lines []string) (all []calicotest.NodeRoute) {
	prefix := ""
	for _, line := range lines {
		way, rest, ok := strings.Cut(line, "[")
		origin, flags, closed := strings.Cut(rest, "]")
		source := strings.Fields(origin)
		if !ok || !closed || len(source) == 0 {
			continue
		}
		words := strings.Fields(way)
		if !strings.HasPrefix(way, " ") && len(words) > 0 {
			prefix, words = words[0], words[1:]
		}
		r := calicotest.NodeRoute{Type: "RIB", Destination: prefix}
		if strings.HasPrefix(strings.TrimSpace(flags), "*") {
			r.Type = "FIB"
		}
		for i := 0; i+1 < len(words); i += 2 {
			switch words[i] {
			case "via":
				r.Gateway = words[i+1]
			case "on":
				r.Interface = words[i+1]
			}
		}
		r.LearnedFrom.SourceType, r.LearnedFrom.PeerIP = sessionOf(source[0])
		if r.LearnedFrom.SourceType == "" {
			r.LearnedFrom.PeerIP = ""
		}
		all = append(all, r)
	}
	return all
}

// background runs f until the cluster is closed. What f returns is the cluster's to tell then.
func (c *Cluster) background(f func(ctx context.Context) error) {
	c.running.Go(func() {
		if err := f(c.ctx); err != nil && !errors.Is(err, context.Canceled) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ended = errors.Join(c.ended, err)
		}
	})
}

// Ended is why something has ended that should run until the cluster is closed.
func (c *Cluster) Ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}
