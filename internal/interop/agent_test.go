package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// agentNode is a node with our agent.
type agentNode struct {
	*host
	agent *testcluster.Agent
}

// agentNode makes a node and registers it in Calico's data as calico-node does. The agent is not
// started.
func (l *lab) agentNode(t *testing.T, name string, addresses ...string) *agentNode {
	t.Helper()
	n := l.host(t, name, addresses...).agent()
	check(t, l.Data.AddNode(t.Context(), name, prefixes(addresses...)...))
	return n
}

// agent is our agent on a node, with the kernel as its data plane.
func (h *host) agent() *agentNode {
	return &agentNode{h, h.lab.NewAgent(h.name, h.NS, h.Dataplane()...)}
}

func (n *agentNode) start(t *testing.T) {
	t.Helper()
	check(t, n.agent.Start(t.Context()))
}

// session returns how the session with peer stands, and an error while it is not up.
func (n *agentNode) session(ctx context.Context, peer netip.Addr) (agent.PeerStatus, error) {
	s, err := n.agent.Status(ctx)
	if err != nil {
		return agent.PeerStatus{}, err
	}
	peers := s.BGP.Peers
	i := slices.IndexFunc(peers, func(p agent.PeerStatus) bool { return p.Address == peer })
	switch {
	case i < 0:
		return agent.PeerStatus{}, fmt.Errorf("%s has no peer %s", n.name, peer)
	case !peers[i].Established:
		return peers[i], fmt.Errorf("%s: peer %s is %s %s",
			n.name, peer, peers[i].State, peers[i].LastError)
	}
	return peers[i], nil
}

// awaitPeers waits until the sessions with exactly these peers are up.
func (n *agentNode) awaitPeers(t *testing.T, peers ...string) {
	t.Helper()
	await(t, fmt.Sprintf("%s has %d sessions", n.name, len(peers)),
		func(ctx context.Context) error {
			s, err := n.agent.Status(ctx)
			if err != nil {
				return err
			}
			var up []string
			for _, p := range s.BGP.Peers {
				if p.Established {
					up = append(up, p.Address.String())
				}
			}
			if all := len(s.BGP.Peers); all != len(peers) {
				return fmt.Errorf("%d peers are configured", all)
			}
			return same("established", up, sorted(peers...))
		})
}

// sorted returns addresses in numerical order.
func sorted(addresses ...string) []string {
	slices.SortFunc(addresses, func(a, b string) int { return addr(a).Compare(addr(b)) })
	return addresses
}

const agentProtocol = testcluster.AgentProtocol

// awaitFIB waits until the routes of one family ("-4", "-6") that the agent has in the kernel are
// exactly these, in the form of kernelRoute, and `routes` shows each of them as programmed.
func (n *agentNode) awaitFIB(t *testing.T, family string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	await(t, fmt.Sprintf("%s has exactly %d routes", n.name, len(want)),
		func(ctx context.Context) error {
			got, err := n.kernel(ctx, family, agentProtocol)
			if err == nil {
				err = same("kernel of "+n.name, stripMetric(got), want)
			}
			if err != nil {
				return err
			}
			return n.showsProgrammed(ctx, family, got)
		})
}

// showsProgrammed compares the agent's own account with the kernel's.
func (n *agentNode) showsProgrammed(
	ctx context.Context, family string, kernel []kernelRoute,
) error {
	var routes []agent.RouteStatus
	if err := n.agent.Get(ctx, "/v1/routes", &routes); err != nil {
		return err
	}
	var shown []string
	for _, r := range routes {
		if r.Prefix.Addr().Is6() != (family == "-6") {
			continue
		}
		if r.State != "programmed" {
			return fmt.Errorf("%s: %s is %s: %s", n.name, r.Prefix, r.State, r.Reason)
		}
		line := r.Prefix.String() + " blackhole"
		if r.Kind == "via" {
			line = r.Prefix.String() + " via"
			for _, p := range r.Paths {
				line += " " + p.NextHop
			}
		}
		shown = append(shown, line)
	}
	slices.Sort(shown)
	return same("routes of "+n.name+", against its kernel", shown, stripMetric(kernel))
}

// ribPath is what `gobgp global rib -j` says of a path.
type ribPath struct {
	Best  bool                         `json:"best"`
	Stale bool                         `json:"stale"`
	Attrs []map[string]json.RawMessage `json:"attrs"`
}

// attr returns a path attribute by its type code as JSON.
func (p ribPath) attr(code string) (map[string]json.RawMessage, bool) {
	for _, a := range p.Attrs {
		if string(a["type"]) == code {
			return a, true
		}
	}
	return nil, false
}

// has looks for text in the JSON of the attribute.
func (p ribPath) has(code, text string) error {
	a, ok := p.attr(code)
	if !ok {
		return fmt.Errorf("no attribute %s in %v", code, p.Attrs)
	}
	out, err := json.Marshal(a)
	if err == nil && !strings.Contains(string(out), text) {
		err = fmt.Errorf("no %s in attribute %s", text, out)
	}
	return err
}

// rib asks the stock gobgp command for all paths of a family ("ipv4", "ipv6"), by prefix.
func (n *agentNode) rib(ctx context.Context, family string) (all map[string][]ribPath, err error) {
	out, err := n.NS.Run(ctx, programs.gobgp, "global", "rib", "-j", "-a", family)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("gobgp: %w: %s", err, out)
	}
	return all, nil
}

const flowInterval = time.Millisecond

// flow sends 1000 packets a second.
func flow(t *testing.T, from *netlab.Namespace, to string) *netlab.Flow {
	t.Helper()
	f, err := from.StartFlow(netlab.FlowConfig{
		To: addr(to), Interval: flowInterval, Timeout: 2 * time.Second,
	})
	check(t, err)
	return f
}
