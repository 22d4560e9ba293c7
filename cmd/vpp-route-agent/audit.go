package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/audit"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/etcd"
	"vpp-route-agent/internal/calico/kubernetes"
	"vpp-route-agent/internal/reflectors"
)

// auditCall is a call of audit.
type auditCall struct {
	nodeCall
	socket          string
	cluster, agents bool
	ignored         []string
}

func auditCommand() *cobra.Command {
	var a auditCall
	c := a.addTo(&cobra.Command{
		Use:   "audit | audit --cluster [--ask-agents]",
		Short: "Compare our routes with the data plane, or find what does not fit in the cluster",
		Long: `Compare all routes of ours with one listing of the data plane, and show what is
missing, different or extra. It is repaired or only reported, as --drift of the running agent says.
VPP's workers stand still while VPP writes the listing: about 0.2 s for 100 000 routes. Exit status
0 says that everything agrees, whether or not routes of others hide some of ours.

--cluster asks no data plane. It reads Calico's data of all nodes and what agents publish
(--publish-status) by one list of each kind, and finds what does not fit together: addresses that
two have, affinities and blocks without each other or without a Node, blocks that others announce,
host routes of borrowed addresses that nobody announces, sessions that one end alone wants, and
nodes that are behind, lost sessions or have drift. --ask-agents asks the agents that publish
something, too, each by one request. If anything is found, all is read again after 3 s, and what is
found both times is shown. Exit status with --cluster, for cron: 0 nothing was found, 1 something
was, 2 error. docs/operating.md has each kind of finding; --ignore leaves some out.

` + asking,
		Example: `  vpp-route-agent audit
  vpp-route-agent audit --cluster --config /etc/vpp-route-agent/agent.yaml
  vpp-route-agent audit --cluster --ask-agents --ignore nothing-published,sessions-down`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !a.cluster {
				return a.one(cmd)
			}
			err := a.all(cmd)
			if err != nil && !errors.Is(err, errSilent) {
				return diffError{err}
			}
			return err
		},
	})
	socketFlag(c, &a.socket)
	c.Flags().BoolVar(&a.cluster, "cluster", false, "find what does not fit in the whole cluster")
	c.Flags().BoolVar(&a.agents, "ask-agents", false, "with --cluster: ask the agents, too")
	c.Flags().StringSliceVar(&a.ignored, "ignore", nil, "with --cluster: kinds of findings that "+
		"are not shown and do not count")
	return c
}

// one compares the routes of the running agent.
func (a *auditCall) one(cmd *cobra.Command) error {
	for _, name := range append([]string{"config", "ask-agents", "ignore", "query-port",
		"timeout"}, nodeSettings...) {
		if cmd.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s goes with --cluster", name)}
		}
	}
	var r agent.AuditStatus
	if err := post(cmd.Context(), a.socket, "/v1/audit", nil, &r); err != nil {
		return err
	}
	if err := show(agentFlags{asJSON: a.asJSON}, cmd.OutOrStdout(), r, printAudit); err != nil {
		return err
	}
	if n := r.Missing + r.Different + r.Extra; n > 0 {
		return fmt.Errorf("%s not as the data plane had acknowledged",
			count(n, "route is", "routes are"))
	}
	return nil
}

// clusterAudit is the JSON of audit --cluster; docs/operating.md describes it.
type clusterAudit struct {
	OK       bool            `json:"ok"`
	Revision int64           `json:"revision"` // of etcd; 0 in Kubernetes
	Nodes    int             `json:"nodes"`
	Agents   int             `json:"agents"` // that publish something
	Asked    int             `json:"asked"`  // of these, that have answered
	Ignored  int             `json:"ignored"`
	Findings []audit.Finding `json:"findings"`
}

// all looks at the cluster.
func (a *auditCall) all(cmd *cobra.Command) error {
	for _, k := range a.ignored {
		if !slices.Contains(audit.Kinds, audit.Kind(k)) {
			return usageError{fmt.Errorf("--ignore: %q is not one of %v", k, audit.Kinds)}
		}
	}
	if err := a.read(cmd); err != nil {
		return err
	}
	if a.agents && a.cert == nil {
		return usageError{errNoCertificate}
	}
	out, err := a.look(cmd.Context())
	if err != nil {
		return err
	}
	if !out.OK {
		if out, err = a.lookAgain(cmd.Context(), out.Findings); err != nil {
			return err
		}
	}
	if err := show(agentFlags{asJSON: a.asJSON}, cmd.OutOrStdout(), out,
		printClusterAudit); err != nil {
		return err
	}
	if !out.OK {
		return errSilent
	}
	return nil
}

// auditPause is how long what changes while it is read may take until it fits together.
const auditPause = 3 * time.Second

// lookAgain keeps of what was found before what is found once more. Kinds are listed one after
// another, in Kubernetes not even at one revision, so what changes between two lists is no finding.
func (a *auditCall) lookAgain(ctx context.Context, before []audit.Finding) (out clusterAudit,
	err error) {
	select {
	case <-time.After(auditPause):
	case <-ctx.Done():
		return out, errInterrupted
	}
	if out, err = a.look(ctx); err != nil {
		return out, err
	}
	out.Findings = inBoth(before, out.Findings)
	out.OK = len(out.Findings) == 0
	return out, nil
}

// inBoth are the findings of the second look that the first has, too, whatever it said of them.
func inBoth(first, second []audit.Finding) []audit.Finding {
	return slices.DeleteFunc(second, func(f audit.Finding) bool {
		return !slices.ContainsFunc(first, func(x audit.Finding) bool {
			return x.Kind == f.Kind && x.Item == f.Item
		})
	})
}

// look reads everything once.
func (a *auditCall) look(ctx context.Context) (out clusterAudit, err error) {
	reading, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	done := sayWhenSlow(func() string {
		return fmt.Sprintf("%s, for %s at most", a.cfg.where(), clusterPatience)
	})
	v, err := a.view(reading)
	done()
	if err == nil && len(v.Cluster.Snapshot.Nodes) == 0 {
		err = errNoNode
	}
	if err != nil {
		return out, fmt.Errorf("%s (%s): %w", a.cfg.where(), a.cfg.settingsOfWhere(), err)
	}
	if a.agents {
		a.askAll(ctx, &v)
	}
	out = clusterAudit{Revision: v.Cluster.Snapshot.Revision, Agents: len(v.Statuses),
		Nodes: len(v.Cluster.Snapshot.Nodes), Asked: len(v.Answers), Findings: audit.Find(v)}
	all := len(out.Findings)
	out.Findings = slices.DeleteFunc(out.Findings, func(f audit.Finding) bool {
		return slices.Contains(a.ignored, string(f.Kind))
	})
	out.Ignored, out.OK = all-len(out.Findings), len(out.Findings) == 0
	return out, nil
}

// errNoNode: an empty datastore has no findings, and must not pass for a healthy one.
var errNoNode = errors.New("there is no Node in it: it is empty, or not the one that Calico uses")

// clusterPatience bounds the reading of a whole cluster.
const clusterPatience = readPatience

// view reads the datastore.
func (a *auditCall) view(ctx context.Context) (v audit.View, err error) {
	store, err := a.cfg.kubernetesStore()
	if err != nil {
		return v, err
	}
	if store == nil {
		v.Cluster, err = etcd.ReadCluster(ctx, a.cfg.etcd())
	} else {
		v.Cluster, err = kubernetes.ReadCluster(ctx, store.Client,
			kubernetes.Config{Group: a.cfg.apiGroup, UsePodCIDR: a.cfg.usePodCIDR})
	}
	if err != nil {
		return v, err
	}
	v.Statuses, v.Problems, err = reflectors.Statuses(ctx, a.cfg.etcd(), store, version)
	for name := range v.Statuses {
		if _, there := v.Cluster.Snapshot.Nodes[name]; !there {
			delete(v.Statuses, name) // an agent that ends as its Node does
		}
	}
	return v, err
}

// parallelAgents bounds how many are asked at a time.
const parallelAgents = 16

// askAll asks each agent that publishes something.
func (a *auditCall) askAll(ctx context.Context, v *audit.View) {
	v.Answers, v.NotAsked = map[string]audit.Answer{}, map[string]string{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(parallelAgents)
	for _, name := range slices.Sorted(maps.Keys(v.Statuses)) {
		group.Go(func() error {
			answer, err := a.askOne(ctx, v.Cluster.Snapshot.Nodes[name])
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				v.NotAsked[name] = err.Error()
			} else {
				v.Answers[name] = answer
			}
			return nil
		})
	}
	_ = group.Wait()
}

func (a *auditCall) askOne(ctx context.Context, n calico.Node) (audit.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	client, err := a.agentOf(n)
	if err != nil {
		return audit.Answer{}, err
	}
	s, err := client.Status(ctx)
	if err == nil && s.Node != n.Name {
		err = fmt.Errorf("%s is that of %s", client, s.Node)
	}
	if err != nil {
		return audit.Answer{}, err
	}
	out := audit.Answer{Announced: []netip.Prefix{}}
	for _, x := range s.BGP.Announcements {
		out.Announced = append(out.Announced, x.Prefix)
	}
	for _, x := range s.BGP.Withheld {
		out.Withheld = append(out.Withheld, x.Prefix)
	}
	out.Draining = s.Drain != nil && s.Drain.Phase != agent.NotDraining
	for _, c := range s.FIB.Routes {
		out.Drifted += c.Drifted
		out.Refused += c.Failed
	}
	return out, nil
}

func printClusterAudit(w io.Writer, r clusterAudit) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s, %d with an agent that publishes its status",
		count(r.Nodes, "node", "nodes"), r.Agents)
	if r.Asked > 0 {
		fmt.Fprintf(b, ", %d asked", r.Asked)
	}
	fmt.Fprintf(b, ": %s", count(len(r.Findings), "finding", "findings"))
	if r.Ignored > 0 {
		fmt.Fprintf(b, ", %d ignored", r.Ignored)
	}
	fmt.Fprintln(b)
	var kind audit.Kind
	shown, of := 0, map[audit.Kind]int{}
	for _, f := range r.Findings {
		of[f.Kind]++
	}
	for _, f := range r.Findings {
		if f.Kind != kind {
			kind, shown = f.Kind, 0
			fmt.Fprintf(b, "\n%s\n", kind)
		}
		switch shown++; {
		case shown <= mostShown:
			fmt.Fprintf(b, "  %s: %s\n", f.Item, f.Text)
		case shown == of[kind]:
			fmt.Fprintf(b, "  and %d more, see -o json\n", shown-mostShown)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
