package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/adminclient"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/ipam"
)

// The JSON of explain --from; docs/explain.md describes it. It only grows.
type (
	pathExplanation struct {
		Asked netip.Prefix `json:"asked"`
		From  string       `json:"from"`
		To    string       `json:"to,omitempty"` // absent where no node has it
		OK    bool         `json:"ok"`
		// Broken is the node of the end that is; "between" where both say that it is what is
		// between them; absent where none is, or it is not known.
		Broken  string    `json:"broken,omitempty"`
		Verdict string    `json:"verdict"`
		Ends    []pathEnd `json:"ends"` // From, and To where that is another
	}
	pathEnd struct {
		Node        string             `json:"node"`
		Problem     string             `json:"problem,omitempty"` // why its agent has not answered
		Explanation *agent.Explanation `json:"explanation,omitempty"`

		away bool // its host does not answer at all
	}
)

// between stands for a node where what is broken lies between the two.
const between = "between"

// both asks the agents of both ends.
func (e *explainCall) both(cmd *cobra.Command, asked netip.Prefix) error {
	if err := e.read(cmd); err != nil {
		return err
	}
	if e.cert == nil {
		return usageError{errNoCertificate}
	}
	out := pathExplanation{Asked: asked, From: e.from}
	var nodes map[string]calico.Node
	err := withDatastore(cmd.Context(), e.cfg, e.from, func(ctx context.Context, from source,
		s *calico.Snapshot) (err error) {
		nodes = s.Nodes
		out.To, err = nodeOf(ctx, from, e.from, asked, s)
		return err
	})
	if err != nil {
		return err
	}
	if _, there := nodes[e.from]; !there {
		return usageError{fmt.Errorf("--from: there is no Node(%s)%s", e.from,
			didYouMean(e.from, slices.Sorted(maps.Keys(nodes))))}
	}
	out.Ends = []pathEnd{{Node: e.from}}
	if out.To != "" && out.To != e.from {
		out.Ends = append(out.Ends, pathEnd{Node: out.To})
	}
	var asking sync.WaitGroup
	for i := range out.Ends {
		asking.Go(func() { e.askEnd(cmd.Context(), &out.Ends[i], nodes, asked) })
	}
	asking.Wait()
	out.judge()
	if err := show(agentFlags{asJSON: e.asJSON}, cmd.OutOrStdout(), out,
		printPath); err != nil {
		return err
	}
	if !out.OK {
		return errSilent
	}
	return nil
}

// nodeOf says which node packets to a prefix belong to, by IPAM and the Nodes; "": to none.
func nodeOf(ctx context.Context, from source, self string, asked netip.Prefix,
	s *calico.Snapshot) (string, error) {
	if asked.IsSingleIP() {
		if node := ipam.NodesByAddress(s)[asked.Addr()]; node != "" {
			return node, nil
		}
	}
	var read []calico.Ownership
	if o, ok := from.(owners); ok {
		var err error
		if read, err = o.Owners(ctx, s.BlocksAround(asked)); err != nil {
			return "", fmt.Errorf("whose %s is: %w", asked, err)
		}
	}
	return ipam.OwnershipOf(self, asked, read, s).Host, nil
}

func (e *explainCall) askEnd(ctx context.Context, end *pathEnd, nodes map[string]calico.Node,
	asked netip.Prefix) {
	ctx, cancel := context.WithTimeout(ctx, e.patience)
	defer cancel()
	var x agent.Explanation
	node, there := nodes[end.Node]
	if !there {
		end.Problem = fmt.Sprintf("there is no Node(%s)", end.Node)
		return
	}
	client, err := e.agentOf(node)
	if err == nil {
		err = client.Get(ctx, "/v1/explain", url.Values{"prefix": {asked.String()}}, &x)
	}
	if err == nil && x.Node != end.Node {
		err = fmt.Errorf("%s is that of %s", client, x.Node)
	}
	if err != nil {
		end.Problem, end.away = err.Error(), errors.Is(err, adminclient.ErrAway)
		return
	}
	end.Explanation = &x
}

// fails is the first step that does at an end whose agent has answered; "": none.
func (p *pathEnd) fails() string {
	if p.Explanation == nil {
		return ""
	}
	return p.Explanation.Fails
}

// says is the verdict of an end with its name, or why there is none.
func (p *pathEnd) says() string {
	if p.Explanation == nil {
		return fmt.Sprintf("%s cannot be asked: %s", p.Node, p.Problem)
	}
	return fmt.Sprintf("%s says: %s", p.Node, p.Explanation.Verdict)
}

// byOthers are the steps that fail at the one end for what the other does, or does not.
var byOthers = []string{"ipam", "session", "announcement", "destination"}

// judge finds the end that is broken.
func (p *pathExplanation) judge() {
	from := &p.Ends[0]
	subject := fmt.Sprintf("packets from %s to %s", p.From, asAddress(p.Asked))
	broken := func(node, format string, args ...any) {
		p.Broken, p.Verdict = node, subject+" do not get there: "+fmt.Sprintf(format, args...)
	}
	if len(p.Ends) == 1 {
		switch {
		case from.Explanation == nil:
			p.Verdict = subject + ": " + from.says()
		case !from.Explanation.OK:
			broken(p.From, "%s is broken: %s", p.From, from.Explanation.Verdict)
		default:
			p.OK, p.Verdict = true, subject+": "+from.says()
			if p.To == "" {
				p.Verdict += "; no node of the cluster has it, so that nobody else was asked"
			}
		}
		return
	}
	to := &p.Ends[1]
	waits := slices.Contains(byOthers, from.fails())
	switch {
	case from.Explanation == nil && to.Explanation == nil:
		p.Verdict = subject + ": " + from.says() + "; " + to.says()
	case from.Explanation != nil && to.Explanation != nil && from.Explanation.OK &&
		to.Explanation.OK:
		p.OK, p.Verdict = true, subject+" get there: "+from.says()
	case to.Explanation == nil && from.fails() == "":
		p.Verdict = subject + " leave as they should, and " + to.says()
	case to.Explanation == nil && from.fails() == "session" && to.away:
		broken(p.To, "%s is away: %s; %s", p.To, from.says(), to.says())
	case to.Explanation == nil && waits:
		p.Verdict = subject + " do not get there: " + from.says() + "; " + to.says()
	case from.Explanation == nil && from.away && to.fails() == "session":
		broken(p.From, "%s is away: %s; %s", p.From, from.says(), to.says())
	case from.Explanation == nil && to.fails() == "session":
		p.Verdict = subject + " do not get there: " + to.says() + "; " + from.says()
	case from.Explanation == nil && to.fails() == "":
		p.Verdict = subject + " would be taken, and " + from.says()
	case to.fails() == "session" && waits && from.fails() != "destination":
		broken(between, "the session between the two is down: %s; %s", from.says(), to.says())
	case to.fails() != "" && (waits || from.fails() == ""):
		broken(p.To, "%s is broken: %s", p.To, to.Explanation.Verdict)
	case to.fails() != "":
		broken(p.From, "%s is broken: %s; so is %s: %s", p.From, from.Explanation.Verdict, p.To,
			to.Explanation.Verdict)
	case waits && to.Explanation != nil:
		p.lostBetween(from, to, broken)
	default:
		broken(p.From, "%s is broken: %s", p.From, from.Explanation.Verdict)
	}
}

// lostBetween judges where the far end is well and this one waits for it: by what that sends here.
func (p *pathExplanation) lostBetween(from, to *pathEnd,
	broken func(node, format string, args ...any)) {
	i := slices.IndexFunc(to.Explanation.Exports, func(x agent.ExportStatus) bool {
		return x.Node == p.From
	})
	switch {
	case i < 0:
		broken(between, "%s announces it, not to %s itself, and who should pass it on does not: %s",
			p.To, p.From, from.says())
	case !to.Explanation.Exports[i].Established:
		broken(between, "the session between the two is down: %s", from.says())
	case !to.Explanation.Exports[i].Accept:
		broken(p.To, "%s does not send it to %s: %s", p.To, p.From,
			to.Explanation.Exports[i].Rule)
	case to.Explanation.Exports[i].Deferring:
		broken(p.To, "%s has restarted, and sends it to %s once all its peers have sent what they "+
			"have (RFC 4724 §4.1)", p.To, p.From)
	default:
		broken(p.From, "%s sends it, and %s does not have it: %s", p.To, p.From, from.says())
	}
}

// asAddress shows a prefix of one address as that.
func asAddress(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func printPath(w io.Writer, p pathExplanation) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s\n", p.Verdict)
	for _, end := range p.Ends {
		if end.Explanation == nil {
			fmt.Fprintf(b, "\n%s was not asked: %s\n", end.Node, end.Problem)
			continue
		}
		fmt.Fprintf(b, "\n%s, agent %s\n", end.Node, end.Explanation.Version)
		writeSteps(b, end.Explanation.Steps)
	}
	if versions := p.versions(); len(versions) > 1 {
		fmt.Fprintf(b, "\nThe agents are of different versions: %s. What the older one does not "+
			"tell is missing.\n", strings.Join(versions, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// versions are those of the agents that answered, sorted.
func (p pathExplanation) versions() (all []string) {
	for _, end := range p.Ends {
		if end.Explanation != nil {
			all = append(all, end.Explanation.Version)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
