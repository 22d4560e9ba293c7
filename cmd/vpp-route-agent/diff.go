package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vpp-route-agent/bgp"
	"vpp-route-agent/internal/agent"
)

// diffCall is a call of diff.
type diffCall struct{ nodeCall }

func diffCommand() *cobra.Command {
	var d diffCall
	c := d.addTo(&cobra.Command{
		Use:   "diff NODE NODE",
		Short: "Compare what two nodes shall do, and what they do where their agents can be asked",
		Long: `Compare what Calico's data ask of two nodes: sessions, filters, services that they
announce, pools and how packets to them leave. Where their agents can be asked, also their routes,
sessions, settings and versions. What must differ is left out: each node's own blocks, addresses and
router ID, and the session between the two.

` + asking + `

Exit status: 0 nothing differs, 1 something does, 2 error, also when nothing differs and an agent
could not be asked.`,
		Example: `  vpp-route-agent diff edge-3 edge-7 --config /etc/vpp-route-agent/agent.yaml
  vpp-route-agent diff edge-3 edge-7 -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] == args[1] {
				return errors.New("diff takes the names of two nodes")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			err := d.run(cmd, args)
			if err != nil && !errors.Is(err, errSilent) {
				return diffError{err}
			}
			return err
		},
	})
	return c
}

// The JSON of diff; docs/operating.md describes it. It only grows, and lists are never null.
type (
	nodesDiff struct {
		Nodes       []nodeSide   `json:"nodes"` // two
		Same        bool         `json:"same"`
		Differences []difference `json:"differences"`
	}
	nodeSide struct {
		Node     string `json:"node"`
		Revision int64  `json:"revision"` // of the datastore
		Asked    bool   `json:"asked"`    // its agent has answered
		// Problem is why not.
		Problem string `json:"problem,omitempty"`
		Version string `json:"version,omitempty"`
	}
	difference struct {
		Section string `json:"section"`
		Item    string `json:"item,omitempty"`
		Only    string `json:"only,omitempty"` // the node that has it; absent where both have
		// Fields are the names of those that differ, and Values what each node has of them; without
		// Fields one of Values is null.
		Fields []string `json:"fields"`
		Values []fields `json:"values"`
		Why    string   `json:"why"` // it matters
	}
)

func (d *diffCall) run(cmd *cobra.Command, names []string) error {
	if err := d.read(cmd); err != nil {
		return err
	}
	if !d.cfg.learnBGP {
		return usageError{errors.New("--learn ipam: without BGP there is nothing to compare")}
	}
	nodes := make([]*compared, len(names))
	for i, name := range names {
		s, err := readDatastore(cmd.Context(), d.cfg, name)
		if err != nil {
			return err
		}
		self, there := s.Nodes[name]
		if !there {
			return usageError{fmt.Errorf("there is no Node(%s)%s", name,
				didYouMean(name, slices.Sorted(maps.Keys(s.Nodes))))}
		}
		nodes[i] = &compared{nodeSide: nodeSide{Node: name, Revision: s.Revision}, snapshot: s,
			self: self, words: words(self), options: d.cfg.bgpOptions()}
		if d.cert != nil {
			d.ask(cmd.Context(), nodes[i])
		}
		if !nodes[i].Asked && nodes[i].options.RouterID == "" && !self.IPv4.IsValid() {
			// Its settings have one, which is not compared; without one nothing would be planned.
			nodes[i].options.RouterID = "hash"
		}
		// What only the agent's data plane knows is not compared.
		nodes[i].options.Arrived, nodes[i].options.Outgoing = nil, nil
		nodes[i].plan = agent.NodePlanOf(name, s, bgp.PlanFor(name, s, nodes[i].options))
	}
	out := compareNodes(nodes[0], nodes[1])
	if err := show(agentFlags{asJSON: d.asJSON}, cmd.OutOrStdout(), out,
		printNodesDiff); err != nil {
		return err
	}
	for _, n := range nodes {
		if out.Same && n.Problem != "" {
			return fmt.Errorf("nothing differs as far as is known: %s", n.Problem)
		}
	}
	if !out.Same {
		return errSilent
	}
	return nil
}

// ask takes what the agent of a node tells. Of an agent without BGP there is no plan.
func (d *diffCall) ask(ctx context.Context, n *compared) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	client, err := d.agentOf(n.self)
	var status agent.Status
	var current agent.CurrentPlan
	if err == nil {
		status, err = client.Status(ctx)
	}
	if err == nil && status.Node != n.Node {
		err = fmt.Errorf("%s is that of %s", client, status.Node)
	}
	if err == nil {
		err = client.Get(ctx, "/v1/plan", nil, &current)
	}
	if err == nil {
		err = client.Get(ctx, "/v1/routes", url.Values{}, &n.routes)
	}
	if err != nil {
		n.Problem, n.routes = err.Error(), nil
		return
	}
	n.Asked, n.Version = true, status.Version
	n.status, n.current, n.options = &status, &current, current.Options
}

// whyItMatters says so by section.
var whyItMatters = map[string]string{
	"node":          "one of them does not take part in BGP as the other does",
	"speaker":       "neighbours see them differently: AS, port, or role as a reflector",
	"peers":         "what this peer announces reaches one of them directly, or by other rules",
	"services":      "packets to these service addresses come to one of them alone",
	"withheld":      "one keeps back what the other would announce",
	"filters":       "other routes are accepted or sent",
	"policies":      "other prefixes are announced or passed on",
	"notProgrammed": "one has no route for them, whatever peers announce",
	"problems":      "one cannot use a piece of Calico's data that the other can, or does not need",
	"pools":         "packets to this pool leave in another way",
	"settings":      "the agents were started with other settings",
	"agent":         "they are not of one kind, or one is not well",
	"applied":       "the agent works by other data than the datastore has: it is behind",
	"sessions":      "one gets the routes of this peer and the other does not",
	"routes":        "packets to this prefix go another way, or nowhere",
}

// mostShown bounds the differences of a section for people; the JSON has all.
const mostShown = 20

func printNodesDiff(w io.Writer, d nodesDiff) error {
	b := &strings.Builder{}
	a, z := d.Nodes[0], d.Nodes[1]
	if d.Same {
		fmt.Fprintf(b, "%s and %s differ in nothing that must not differ\n", a.Node, z.Node)
	} else {
		fmt.Fprintf(b, "%s and %s differ in %s\n", a.Node, z.Node,
			count(len(d.Differences), "thing", "things"))
	}
	for _, n := range d.Nodes {
		switch {
		case n.Asked:
			fmt.Fprintf(b, "  %s: datastore at revision %d, agent %s\n", n.Node, n.Revision,
				n.Version)
		case n.Problem != "":
			fmt.Fprintf(b, "  %s: datastore at revision %d; its agent was not asked: %s\n", n.Node,
				n.Revision, n.Problem)
		default:
			fmt.Fprintf(b, "  %s: datastore at revision %d; without a certificate its agent is "+
				"not asked for sessions and routes\n", n.Node, n.Revision)
		}
	}
	section, shown := "", 0
	for i, x := range d.Differences {
		if x.Section != section {
			section, shown = x.Section, 0
			fmt.Fprintf(b, "\n%s: %s\n", section, x.Why)
		}
		if shown++; shown > mostShown {
			if i+1 == len(d.Differences) || d.Differences[i+1].Section != section {
				fmt.Fprintf(b, "  and %d more, see -o json\n", shown-mostShown)
			}
			continue
		}
		writeDifference(b, x, a.Node, z.Node)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeDifference(b *strings.Builder, x difference, first, second string) {
	name := cmp.Or(x.Item, x.Section)
	if x.Only != "" {
		fmt.Fprintf(b, "  %s: only %s\n", name, x.Only)
		return
	}
	for _, f := range x.Fields {
		fmt.Fprintf(b, "  %s: %s is %s on %s, %s on %s\n", name, f, jsonText(x.Values[0][f]), first,
			jsonText(x.Values[1][f]), second)
	}
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("diff: %T: %v", v, err)) // it was JSON
	}
	return string(text)
}
