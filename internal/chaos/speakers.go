package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/adminclient"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
)

// agentSpeaker is our agent.
type agentSpeaker struct {
	n      *node
	binary string
	dir    string
	extra  []string // arguments of one trial
	wrap   []string // a command that runs the agent, with its own arguments
	admin  *adminclient.Client

	process *netlab.Process
}

func newAgent(n *node) *agentSpeaker {
	a := &agentSpeaker{n: n, binary: n.cluster.settings.agent, dir: filepath.Join(n.cluster.lab.Dir(), n.name)}
	a.admin = adminclient.New(a.socket())
	return a
}

func (a *agentSpeaker) socket() string   { return filepath.Join(a.dir, "agent.sock") }
func (a *agentSpeaker) stateDir() string { return filepath.Join(a.dir, "state") }
func (a *agentSpeaker) protocol() string { return "179" }

func (a *agentSpeaker) start(context.Context) (err error) {
	args := []string{
		"run", "--node-name", a.n.name, "--etcd-endpoints", strings.Join(a.n.cluster.etcd.endpoints(), ","),
		"--admin-socket", a.socket(), "--state-dir", a.stateDir(),
	}
	switch {
	case a.n.vpp != nil:
		args = append(args, "--dataplane", "vpp", "--vpp-socket", a.n.vpp.APISocket())
		if a.binary == a.n.cluster.settings.agent { // an older one may not know the flag
			args = append(args, "--vpp-stats-socket", a.n.vpp.StatsSocket())
		}
	case a.n.api != nil:
		args = append(args, "--dataplane", "vpp", "--vpp-socket", a.n.api.Socket())
	default:
		args = append(args, "--dataplane", "kernel", "--kernel-protocol", a.protocol())
	}
	args = append(args, a.extra...)
	path := a.binary
	if len(a.wrap) > 0 {
		path, args = a.wrap[0], slices.Concat(a.wrap[1:], []string{a.binary}, args)
	}
	a.process, err = a.n.cluster.lab.Start(netlab.Spec{Name: a.n.name, Namespace: a.n.ns, Path: path, Args: args})
	return err
}

func (a *agentSpeaker) kill() error { return a.process.Kill() }
func (a *agentSpeaker) stop() error { return a.process.Stop() }

// alive returns an error if the agent has ended: it will not answer any more.
func (a *agentSpeaker) alive() error {
	select {
	case <-a.process.Done():
		return fmt.Errorf("the agent of %s has ended: %v; its log: %s", a.n.name, a.process.Err(), a.process.LogPath())
	default:
		return nil
	}
}

const askTimeout = 5 * time.Second

// get reads path from the agent.
func (a *agentSpeaker) get(ctx context.Context, path string, out any) error {
	if err := a.alive(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return a.admin.Get(ctx, path, nil, out)
}

// post has the agent do something.
func (a *agentSpeaker) post(ctx context.Context, path string, query url.Values, out any) error {
	if err := a.alive(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return a.admin.Post(ctx, path, query, out)
}

func (a *agentSpeaker) status(ctx context.Context) (s agent.Status, err error) {
	return s, a.get(ctx, "/v1/status", &s)
}

func (a *agentSpeaker) ready(ctx context.Context, peers []netip.Addr) error {
	s, err := a.status(ctx)
	if err != nil {
		return err
	}
	up := map[netip.Addr]bool{}
	for _, p := range s.BGP.Peers {
		up[p.Address] = p.Established
		switch {
		case !slices.Contains(peers, p.Address):
		case !p.Established:
			return fmt.Errorf("session with %s is %s %s", p.Address, p.State, p.LastError)
		case !p.EndOfRIB:
			return fmt.Errorf("no End-of-RIB of %s", p.Address)
		}
	}
	for _, p := range peers {
		if !up[p] {
			return fmt.Errorf("no session with %s", p)
		}
	}
	if s.FIB.Sweep != "done" {
		return errors.New("sweep: " + s.FIB.Sweep)
	}
	if !s.Ready {
		return fmt.Errorf("not ready: %+v", s.Conditions)
	}
	return nil
}

// copyIsNew sees that the agent's copy of Calico's data on disk is as new as what it works with.
func (a *agentSpeaker) copyIsNew(ctx context.Context) error {
	s, err := a.status(ctx)
	if err == nil && s.Datastore.KeptBehind {
		err = errors.New("it is behind")
	}
	return err
}

// audited are the agent's routes, after it has compared all of them with a listing of the data plane and found no difference.
func (a *agentSpeaker) audited(ctx context.Context) (map[netip.Prefix]netip.Addr, error) {
	var report agent.AuditStatus
	if err := a.post(ctx, "/v1/audit", nil, &report); err != nil {
		return nil, err
	}
	if n := report.Missing + report.Different + report.Extra; n > 0 {
		return nil, fmt.Errorf("VPP differs in %d routes: %+v", n, report.Findings)
	}
	var routes []agent.RouteStatus
	if err := a.get(ctx, "/v1/routes", &routes); err != nil {
		return nil, err
	}
	found := map[netip.Prefix]netip.Addr{}
	for _, r := range routes {
		if r.State != "programmed" {
			return nil, fmt.Errorf("%s is %s: %s", r.Prefix, r.State, r.Reason)
		}
		found[r.Prefix] = netip.Addr{}
		if len(r.Paths) > 0 && r.Kind == "via" {
			hop, err := netip.ParseAddr(r.Paths[0].NextHop)
			if err != nil {
				return nil, err
			}
			found[r.Prefix] = hop
		}
	}
	return found, nil
}

// metric reads one sample without labels from the agent's /metrics.
func (a *agentSpeaker) metric(ctx context.Context, name string) (value float64, err error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = a.n.ns.Do(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9179/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// logged reports whether the agent has ever logged text.
func (a *agentSpeaker) logged(text string) bool {
	raw, err := os.ReadFile(a.process.LogPath())
	return err == nil && strings.Contains(string(raw), text)
}

// birdSpeaker is BIRD as calico-node configures it.
type birdSpeaker struct {
	c      *cluster
	n      *node
	config netlab.BirdConfig
	names  map[netip.Addr]string // of protocols
	bird   *netlab.Bird
}

func newBird(c *cluster, n *node, blocks ...netip.Prefix) *birdSpeaker {
	b := &birdSpeaker{c: c, n: n, names: map[netip.Addr]string{}}
	b.config = netlab.BirdConfig{RouterID: n.address, Address: n.address, AS: asNumber, Pools: []netlab.BirdPool{{Prefix: pods}}, Blocks: blocks}
	for _, other := range c.nodes {
		if other != n {
			peer := netlab.MeshPeer(n.address, other.address, asNumber)
			b.config.Peers = append(b.config.Peers, peer)
			b.names[other.address] = peer.Name
		}
	}
	return b
}

func (b *birdSpeaker) start(ctx context.Context) (err error) {
	if b.bird != nil {
		return b.bird.Restart(ctx)
	}
	b.bird, err = b.c.lab.StartBird(ctx, b.c.bird, b.n.ns, b.n.name, b.config)
	return err
}

func (b *birdSpeaker) kill() error      { return b.bird.Kill() }
func (b *birdSpeaker) stop() error      { return b.bird.Stop() }
func (b *birdSpeaker) protocol() string { return "bird" }

func (b *birdSpeaker) ready(ctx context.Context, peers []netip.Addr) error {
	protocols, err := b.bird.Protocols(ctx)
	if err != nil {
		return err
	}
	for _, peer := range peers {
		i := slices.IndexFunc(protocols, func(p netlab.BirdProtocol) bool { return p.Name == b.names[peer] })
		if i < 0 || protocols[i].Info != "Established" {
			return fmt.Errorf("BIRD has no session with %s", peer)
		}
	}
	details, err := b.bird.Command(ctx, "show protocols all")
	if err != nil {
		return err
	}
	// Until End-of-RIB; what is stale would be dropped if its speaker went once more (bgp_handle_graceful_restart).
	if slices.ContainsFunc(details, func(line string) bool { return strings.Contains(line, "Neighbor graceful restart active") }) {
		return errors.New("BIRD has stale routes")
	}
	return nil
}
