package testcluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/adminclient"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/recorder"
)

// AgentProtocol marks our agent's routes in the kernel, its default.
const AgentProtocol = "179"

// Agent is our agent in a namespace, a process of its own. Its fields may be changed between runs.
type Agent struct {
	*netlab.Process // nil before Start
	Name            string
	NS              *netlab.Namespace
	Binary          string
	Dataplane       []string // flags
	Flags           []string // besides those that every agent has
	Wrap            []string // a command that runs the agent, with its own arguments
	Socket          string
	StateDir        string
	Admin           *adminclient.Client

	cluster *Cluster
}

// NewAgent returns an agent that is not started.
func (c *Cluster) NewAgent(name string, ns *netlab.Namespace, dataplane ...string) *Agent {
	dir := filepath.Join(c.Dir(), name)
	a := &Agent{
		Name: name, NS: ns, Binary: c.Agent, Dataplane: dataplane,
		Socket: filepath.Join(dir, "agent.sock"), StateDir: filepath.Join(dir, "state"), cluster: c,
	}
	a.Admin = adminclient.New(a.Socket)
	return a
}

// Start runs the agent, for the first time or again.
func (a *Agent) Start(context.Context) (err error) {
	if err := os.MkdirAll(filepath.Dir(a.Socket), 0o700); err != nil {
		return err
	}
	args := slices.Concat(a.Wrap, []string{
		a.Binary, "run", "--node-name", a.Name,
		"--admin-socket", a.Socket, "--state-dir", a.StateDir,
	}, a.cluster.Datastore(), a.Dataplane, a.Flags)
	a.Process, err = a.cluster.Start(netlab.Spec{
		Name: a.Name, Namespace: a.NS, Path: args[0], Args: args[1:],
	})
	return err
}

// Datastore are the flags by which agents, and commands, find the data.
func (c *Cluster) Datastore() []string {
	if c.Kubeconfig != "" {
		return []string{"--datastore-type", "kubernetes", "--kubeconfig", c.Kubeconfig}
	}
	return []string{"--etcd-endpoints", strings.Join(c.Endpoints, ",")}
}

// Environment has the settings that commands of the agent's binary read on its node.
func (a *Agent) Environment() []string {
	if c := a.cluster; c.Kubeconfig != "" {
		return []string{"VPP_ROUTE_AGENT_NODE_NAME=" + a.Name,
			"VPP_ROUTE_AGENT_DATASTORE_TYPE=kubernetes",
			"VPP_ROUTE_AGENT_KUBECONFIG=" + c.Kubeconfig}
	}
	return []string{
		"VPP_ROUTE_AGENT_NODE_NAME=" + a.Name,
		"VPP_ROUTE_AGENT_ETCD_ENDPOINTS=" + strings.Join(a.cluster.Endpoints, ","),
	}
}

// Protocol is that of its routes in the kernel.
func (a *Agent) Protocol() string { return AgentProtocol }

// Alive returns an error if the agent has ended: it will not answer any more.
func (a *Agent) Alive() error {
	select {
	case <-a.Done():
		return fmt.Errorf("the agent of %s has ended: %w\n%s", a.Name, a.Err(),
			Tail(a.LogPath(), 15))
	default:
		return nil
	}
}

// answerPatience is how long an agent may take for an answer, on a machine with much to do.
const answerPatience = 30 * time.Second

// Get reads a path of the admin API.
func (a *Agent) Get(ctx context.Context, path string, out any) error {
	if err := a.Alive(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	return a.Admin.Get(ctx, path, nil, out)
}

// Post has the agent do something.
func (a *Agent) Post(ctx context.Context, path string, query url.Values, out any) error {
	if err := a.Alive(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	return a.Admin.Post(ctx, path, query, out)
}

// Status is what the agent says of itself.
func (a *Agent) Status(ctx context.Context) (s agent.Status, err error) {
	return s, a.Get(ctx, "/v1/status", &s)
}

// Established are the peers with a session that is up, sorted.
func (a *Agent) Established(ctx context.Context) (up []netip.Addr, err error) {
	s, err := a.Status(ctx)
	for _, p := range s.BGP.Peers {
		if p.Established {
			up = append(up, p.Address)
		}
	}
	slices.SortFunc(up, netip.Addr.Compare)
	return up, err
}

// Ready returns what the agent still lacks: a session with one of these peers, its End-of-RIB, the
// sweep, or readiness.
func (a *Agent) Ready(ctx context.Context, peers []netip.Addr) error {
	s, err := a.Status(ctx)
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
	if s.FIB.Dataplane != "none" && s.FIB.Sweep != "done" {
		return errors.New("sweep: " + s.FIB.Sweep)
	}
	if !s.Ready {
		return fmt.Errorf("not ready: %+v", s.Conditions)
	}
	return nil
}

// Audited are the agent's routes, after it has compared all of them with a listing of the data
// plane and found no difference.
func (a *Agent) Audited(ctx context.Context) (FIB, error) {
	var report agent.AuditStatus
	if err := a.Post(ctx, "/v1/audit", nil, &report); err != nil {
		return nil, err
	}
	if n := report.Missing + report.Different + report.Extra; n > 0 {
		return nil, fmt.Errorf("the data plane differs in %d routes: %+v", n, report.Findings)
	}
	var routes []agent.RouteStatus
	if err := a.Get(ctx, "/v1/routes", &routes); err != nil {
		return nil, err
	}
	found := FIB{}
	for _, s := range routes {
		if s.State != "programmed" {
			return nil, fmt.Errorf("%s is %s: %s", s.Prefix, s.State, s.Reason)
		}
		r := Route{Prefix: s.Prefix}
		if s.Kind != "via" {
			r.Kind = s.Kind
		}
		for _, p := range s.Paths {
			if hop, err := netip.ParseAddr(p.NextHop); err == nil && s.Kind == "via" {
				r.NextHops, r.Device = append(r.NextHops, hop), p.Interface
			}
		}
		found[s.Prefix] = r
	}
	return found, nil
}

// Replayed is what the agent's binary decides again by the records of all its processes. Records
// that it cannot read are an error.
func (a *Agent) Replayed(ctx context.Context) (r recorder.Replayed, err error) {
	cmd := exec.CommandContext(ctx, a.Binary, "replay", "--state-dir", a.StateDir, "-o", "json")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	exit := &exec.ExitError{}
	switch {
	case said.Len() > 0:
		return r, errors.New(strings.TrimSpace(said.String()))
	case errors.As(err, &exit) && out.Len() > 0: // something differs, as it says
	case err != nil:
		return r, err
	}
	return r, json.Unmarshal(out.Bytes(), &r)
}

// MetricsAddress is the agent's default.
const MetricsAddress = "127.0.0.1:9179"

// Fetch reads a path that the agent serves beside its metrics.
func (a *Agent) Fetch(ctx context.Context, path string) ([]byte, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return Dial(ctx, a.NS, network, address)
		}}}
	url := "http://" + MetricsAddress + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %s", path, resp.Status, bytes.TrimSpace(body))
	}
	return body, err
}

// Figure is the number behind a line's beginning in what Fetch reads, as a metric without labels.
func (a *Agent) Figure(ctx context.Context, path, line string) (float64, error) {
	text, err := a.Fetch(ctx, path)
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), line); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, fmt.Errorf("%s has no line %q", path, line)
}

// Logged reports whether the agent has ever logged text.
func (a *Agent) Logged(text string) bool {
	raw, err := os.ReadFile(a.LogPath())
	return err == nil && strings.Contains(string(raw), text)
}

// Dial connects from inside a namespace.
func Dial(
	ctx context.Context, ns *netlab.Namespace, network, address string,
) (conn net.Conn, err error) {
	err = ns.Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
