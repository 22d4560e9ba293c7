package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/calico/manifest"
	"vpp-route-agent/internal/route"
	"vpp-route-agent/ipam"
)

// planCall is a call of plan.
type planCall struct {
	node, file, routerID string
	prefixes             []string
	strict, live         bool
	usePodCIDR           bool
	diff                 string // "", diffAgent or diffDatastore
	agentFlags
}

// What --diff compares with.
const (
	diffAgent     = "agent"
	diffDatastore = "datastore"
)

// planSettings are the settings of `run` that plan takes for --live.
var planSettings = []string{"etcd-endpoints", "etcd-username", "etcd-password-file",
	"etcd-ca-cert-file", "etcd-cert-file", "etcd-key-file", "datastore-type", "kubeconfig",
	"k8s-current-context", "k8s-api-endpoint", "k8s-ca-file", "k8s-cert-file", "k8s-key-file",
	"k8s-insecure-skip-tls-verify", "calico-api-group", "next-hop", "advertise-cluster-ips",
	"prefix-limit"}

// planCommand evaluates resources for a node: a file, the live datastore, or both.
func planCommand() *cobra.Command {
	var p planCall
	c := &cobra.Command{
		Use:   "plan --node NAME -f FILE|- | plan --live [-f FILE|-] [--diff]",
		Short: "Show what a node would do with a file of Calico resources, or what would change",
		Long: `Show what a node would do with Calico resources in calicoctl's YAML: its BGP
sessions, what it would announce, and what would become of given prefixes at each peer. Nothing is
asked and nothing is changed: neither an agent nor etcd need to run.

With --live the resources are those in etcd or the Kubernetes API, by the settings of this node:
--config, environment and flags, as of "run". -f FILE besides applies that file to them, as
"calicoctl apply" would.

--diff shows what would change for the running agent, in the form of diff: lines with - are what it
has, lines with + what it would have. --diff=datastore compares with the datastore, and needs no
agent. Exit status with --diff: 0 nothing would change, 1 something would, 2 error.

The kinds are Node, IPPool, BGPConfiguration, BGPPeer, BGPFilter, WorkloadEndpoint, BlockAffinity,
ClusterInformation, FelixConfiguration and LiveMigration, alone or in lists, as "calicoctl get KIND
-o yaml" prints them. Of a cluster that keeps Calico's data in the Kubernetes API take "kubectl get
-o yaml" of the same, with Nodes, Pods and, for blocks, BlockAffinities and IPAMBlocks.
docs/plan.md describes the JSON.`,
		Example: `  vpp-route-agent plan --node edge-7 -f resources.yaml
  vpp-route-agent plan --node edge-7 -f resources.yaml --prefix 10.77.4.0/26 -o json
  vpp-route-agent plan --live --config /etc/vpp-route-agent/agent.yaml
  vpp-route-agent plan --live -f new-peer.yaml --diff --config /etc/vpp-route-agent/agent.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == diffAgent || args[0] == diffDatastore) {
				return fmt.Errorf("write --diff=%s", args[0])
			}
			return arguments(0, 0)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := p.run(cmd)
			if p.diff != "" && err != nil && !errors.Is(err, errSilent) {
				return diffError{err}
			}
			return err
		},
	}
	c.Flags().StringVar(&p.node, "node", "", "name of the node in Calico; with --live the default "+
		"is this one, with --diff that of the agent")
	c.Flags().StringVarP(&p.file, "filename", "f", "",
		"file with the resources; - for standard input")
	c.Flags().StringSliceVar(&p.prefixes, "prefix", nil, "prefix or address to show; may be "+
		"given several times")
	c.Flags().StringVar(&p.routerID, "router-id", "",
		`the node's CALICO_ROUTER_ID: a dotted quad, or "hash"; empty: its IPv4 address`)
	c.Flags().BoolVar(&p.strict, "strict", false, "refuse a file with unknown fields, instead of "+
		"a warning, and one with objects of kubectl's that cannot be used")
	c.Flags().BoolVar(&p.usePodCIDR, "use-pod-cidr", false, "take the podCIDRs of Nodes in "+
		"kubectl's YAML for their blocks, as where calico-node has USE_POD_CIDR")
	c.Flags().BoolVar(&p.live, "live", false,
		"plan with what is in the datastore; -f is applied to it")
	c.Flags().StringVar(&p.diff, "diff", "", "show what would change for the running agent, or, "+
		"with --diff=datastore, against the datastore")
	c.Flags().Lookup("diff").NoOptDefVal = diffAgent
	addSettings(c.Flags(), func(s setting) bool { return slices.Contains(planSettings, s.flag) })
	return p.addTo(c)
}

// diffError is an error of plan --diff, whose status 1 says that something differs.
type diffError struct{ error }

func (e diffError) Unwrap() error { return e.error }

// check refuses flags that do not go together.
func (p *planCall) check(flags *pflag.FlagSet) error {
	switch {
	case p.diff != "" && p.diff != diffAgent && p.diff != diffDatastore:
		return fmt.Errorf("--diff %q is neither %s nor %s", p.diff, diffAgent, diffDatastore)
	case p.file == "" && !p.live:
		return errors.New("give -f FILE, or -f - for standard input, or --live")
	case p.file == "" && p.diff == diffDatastore:
		return errors.New("--diff=datastore compares a file with the datastore: give -f FILE")
	case p.diff != "" && len(p.prefixes) > 0:
		return errors.New("--prefix does not go with --diff")
	case p.node == "" && !p.live && p.diff == "":
		return errors.New("give --node NAME")
	}
	for _, name := range append([]string{"config"}, planSettings...) {
		if flags.Changed(name) && !p.readsDatastore() {
			return fmt.Errorf("--%s goes with --live or --diff=datastore: nothing else reads "+
				"the datastore", name)
		}
	}
	return nil
}

func (p *planCall) readsDatastore() bool { return p.live || p.diff == diffDatastore }

// side is what is planned with, or compared with.
type side struct {
	name     string // for people
	snapshot *calico.Snapshot
}

func (p *planCall) run(cmd *cobra.Command) error {
	if err := p.check(cmd.Flags()); err != nil {
		return usageError{err}
	}
	asked, err := parsePrefixes(p.prefixes)
	if err != nil {
		return usageError{err}
	}
	var now agent.CurrentPlan
	if p.diff == diffAgent {
		if err := get(cmd.Context(), p.socket, "/v1/plan", nil, &now); err != nil {
			return err
		}
		if p.node = cmp.Or(p.node, now.Plan.Node); p.node != now.Plan.Node {
			return usageError{fmt.Errorf("--node %s: the agent behind %s is that of %s", p.node,
				p.socket, now.Plan.Node)}
		}
	}
	options, live, err := p.datastore(cmd, now.Options)
	if err != nil {
		return err
	}
	to, err := p.input(cmd, live)
	if err != nil {
		return err
	}
	defer sayWhenSlow(func() string { return "the plan of " + p.node + ", of " + to.name })()
	plan := bgp.PlanFor(p.node, to.snapshot, options)
	shown := agent.NodePlanOf(p.node, to.snapshot, plan)
	if p.live && now.ClusterInformation && !to.snapshot.ClusterInformation {
		shown.HandsOff = true // lastgood.Keeper takes it for locked
	}
	switch p.diff {
	case diffAgent:
		from := fmt.Sprintf("the agent of %s, revision %d", now.Plan.Node, now.Revision)
		return p.showDiff(cmd.OutOrStdout(), from, to.name, now.Plan, shown)
	case diffDatastore:
		from := agent.NodePlanOf(p.node, live.snapshot,
			bgp.PlanFor(p.node, live.snapshot, options))
		return p.showDiff(cmd.OutOrStdout(), live.name, to.name, from, shown)
	}
	return show(p.agentFlags, cmd.OutOrStdout(), withPrefixes(shown, plan, asked,
		p.encapsulation(to.snapshot, options)), printPlan)
}

func (p *planCall) encapsulation(s *calico.Snapshot, o bgp.Options) *route.Encapsulation {
	e, _ := ipam.Encapsulation(p.node, o.Tunnels, o.FelixTunnels, s)
	return e
}

// datastore returns what is in etcd, if that is asked for, and the options of the plan: by this
// node's settings, or those of the agent that is compared with.
func (p *planCall) datastore(cmd *cobra.Command, agents bgp.Options) (bgp.Options, side, error) {
	if !p.readsDatastore() {
		if p.diff != diffAgent {
			agents.Tunnels = tunnels("vpp") // as without --dataplane
		}
		agents.RouterID = cmp.Or(p.routerID, agents.RouterID)
		_, err := bgp.ChooseRouterID(agents.RouterID, p.node, netip.Addr{})
		if p.routerID != "" && err != nil {
			return bgp.Options{}, side{}, usageError{fmt.Errorf("--router-id: %w", err)}
		}
		return agents, side{}, nil
	}
	cfg, err := settingsOf(cmd)
	if err == nil && !cfg.learnBGP {
		err = errors.New("--learn ipam: without BGP there is nothing to plan")
	}
	if err != nil {
		return bgp.Options{}, side{}, usageError{err}
	}
	p.node = cmp.Or(p.node, cfg.nodeName)
	o := cfg.bgpOptions()
	o.Arrived, o.Outgoing = agents.Arrived, agents.Outgoing // facts that only the agent knows
	s, err := readDatastore(cmd.Context(), cfg, p.node)
	if err != nil {
		return bgp.Options{}, side{}, err
	}
	return o, side{fmt.Sprintf("the datastore, revision %d", s.Revision), s}, nil
}

// input returns what is to be planned with.
func (p *planCall) input(cmd *cobra.Command, live side) (side, error) {
	if p.file == "" {
		return live, nil
	}
	read, err := readManifest(cmd, p.file, p.strict)
	if err != nil {
		return side{}, usageError{err}
	}
	to := side{name: p.file}
	switch {
	case !p.live:
		to.snapshot, err = read.Snapshot(p.node, p.usePodCIDR)
	case read.Objects != nil:
		err = errors.New("objects as kubectl prints them do not go with --live: apply them")
	default:
		to.name = fmt.Sprintf("%s with %s", live.name, p.file)
		to.snapshot, err = manifest.Over(live.snapshot, p.node, read.Resources)
	}
	if err == nil && !p.live {
		err = p.usable(to.snapshot)
	}
	if err != nil {
		return side{}, usageError{fmt.Errorf("%s: %w", p.file, err)}
	}
	return to, nil
}

// usable refuses a file without the node, and if strict one with what an agent would leave out. The
// plan names that, too.
func (p *planCall) usable(s *calico.Snapshot) error {
	if p.strict && len(s.Problems) > 0 {
		return fmt.Errorf("%s: %s", s.Problems[0].Resource, s.Problems[0].Err)
	}
	if s.Nodes[p.node].Name == "" {
		return fmt.Errorf("there is no Node(%s) in it", p.node)
	}
	return nil
}

// readManifest reads a file of resources. Unknown fields are warnings, or errors if strict.
func readManifest(cmd *cobra.Command, file string, strict bool) (manifest.Manifest, error) {
	text, err := readFileOr(cmd, file)
	if err != nil {
		return manifest.Manifest{}, err
	}
	read, skipped, err := manifest.ReadKnown(text)
	if strict {
		err = cmp.Or(errors.Join(skipped...), err)
	}
	if err != nil {
		return manifest.Manifest{}, fmt.Errorf("%s: %w", file, err)
	}
	for _, s := range skipped {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s; it is ignored\n", file, s)
	}
	return read, nil
}

func parsePrefixes(texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range texts {
		p, err := agent.ParsePrefixOrAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--prefix: %w", err)
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// nodePlan is the JSON of plan.
type nodePlan struct {
	agent.NodePlan
	Prefixes []prefixPlan `json:"prefixes"`
}

func withPrefixes(shown agent.NodePlan, p bgp.Plan, asked []netip.Prefix,
	encapsulation *route.Encapsulation) nodePlan {
	out := nodePlan{NodePlan: shown, Prefixes: []prefixPlan{}}
	if p.Waiting != "" {
		return out
	}
	for _, prefix := range asked {
		one := planPrefix(prefix, p)
		one.Encapsulation = planEncapsulation(prefix, encapsulation)
		out.Prefixes = append(out.Prefixes, one)
	}
	return out
}
