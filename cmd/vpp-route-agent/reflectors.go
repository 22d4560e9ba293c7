package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/calico"
	"vpp-route-agent/internal/selector"
	"vpp-route-agent/internal/yamldoc"
)

func reflectorsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "reflectors", Short: "Route reflectors, and the way from the mesh to them",
	}
	c.AddCommand(reflectorsPlan(), reflectorsStatus(), reflectorsMigrate(), reflectorsPause(),
		reflectorsResume(), reflectorsAbort(), reflectorsCordon(), reflectorsUncordon(),
		reflectorsForget(), reflectorsSet(), reflectorsAdopt())
	return c
}

// reflectorsCall is a call of reflectors plan.
type reflectorsCall struct {
	file, rules, to        string
	bird, withoutWorkloads string // selectors
	strict, asJSON         bool
}

func reflectorsPlan() *cobra.Command {
	var r reflectorsCall
	c := &cobra.Command{
		Use:   "plan -f FILE|-",
		Short: "Show which nodes would be route reflectors, and each step to them or back",
		Long: `Show how a cluster would move from the mesh to route reflectors, or back: which nodes
are chosen and why not the others, the steps, the sessions before and after, and the packets that
would be lost. The file has Calico's Nodes, BGPPeers and BGPConfiguration in calicoctl's YAML, or in
kubectl's where they are in the Kubernetes API. Nothing is asked and nothing is written.

The plan takes every gate between two steps for open: whether sessions are up, and nodes have all
routes, no file can say. "reflectors migrate --dry-run" plans with what is in the datastore.

The file does not say what runs on the nodes. Each is taken for one with an agent and workloads;
--bird and --without-workloads select the others by their labels. --rules is a YAML file of how
reflectors are chosen: docs/reflectors.md lists its fields.

Exit status 1 says that something is in the way of the migration.`,
		Example: `  for kind in nodes bgppeers bgpconfigurations; do
    calicoctl get $kind -o yaml; echo ---
  done >cluster.yaml
  vpp-route-agent reflectors plan -f cluster.yaml
  vpp-route-agent reflectors plan -f cluster.yaml --bird "bgp == 'bird'" -o json
  vpp-route-agent reflectors plan -f cluster.yaml --to mesh`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	outputFlag(c, &r.asJSON)
	f := c.Flags()
	f.StringVarP(&r.file, "filename", "f", "", "file with the resources; - for standard input")
	f.StringVar(&r.to, "to", string(reflector.Reflectors), "reflectors or mesh")
	f.StringVar(&r.rules, "rules", "", "YAML file of how reflectors are chosen")
	f.StringVar(&r.bird, "bird", "", "selector of the nodes that run BIRD")
	f.StringVar(&r.withoutWorkloads, "without-workloads", "",
		"selector of the nodes whose agent has --dataplane none")
	f.BoolVar(&r.strict, "strict", false, "refuse a file with unknown fields, instead of a warning")
	_ = c.RegisterFlagCompletionFunc("to",
		cobra.FixedCompletions(reflectorModes, cobra.ShellCompDirectiveNoFileComp))
	return c
}

var reflectorModes = []string{string(reflector.Reflectors), string(reflector.Mesh)}

func (r *reflectorsCall) run(cmd *cobra.Command) error {
	if !slices.Contains(reflectorModes, r.to) {
		return usageError{fmt.Errorf("--to %q is neither reflectors nor mesh%s", r.to,
			didYouMean(r.to, reflectorModes))}
	}
	goal := reflector.Goal{Mode: reflector.Mode(r.to)}
	if r.rules != "" {
		if err := readRules(cmd, r.rules, &goal.Config); err != nil {
			return usageError{err}
		}
	}
	w, err := r.world(cmd)
	if err != nil {
		return usageError{err}
	}
	defer sayWhenSlow(func() string { return "the sessions of every node, before and after" })()
	p, err := reflector.NewPreview(w, goal)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", cmp.Or(r.rules, "--rules"), err)}
	}
	return showPreview(cmd.OutOrStdout(), p, r.asJSON)
}

// showPreview prints a preview; obstacles end in status 1.
func showPreview(w io.Writer, p reflector.Preview, asJSON bool) error {
	print := printPreview
	if asJSON {
		print = func(w io.Writer, p reflector.Preview) error { return printJSON(w, p) }
	}
	if err := print(w, p); err != nil {
		return err
	}
	if len(p.Obstacles) > 0 {
		return errSilent
	}
	return nil
}

// readRules reads how reflectors are chosen.
func readRules(cmd *cobra.Command, file string, into *reflector.Config) error {
	text, err := readFileOr(cmd, file)
	if err != nil {
		return err
	}
	asJSON, err := yamldoc.One(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(asJSON, &fields) != nil {
		return fmt.Errorf("%s: want a field and a value on each line, such as `max: 5`", file)
	}
	known := jsonFields(reflect.TypeFor[reflector.Config]())
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s: unknown field %q%s", file, name, didYouMean(name, known))
		}
	}
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(asJSON, into); errors.As(err, &wrong) {
		return fmt.Errorf("%s: %s: %s is not of type %s", file, wrong.Field, wrong.Value,
			wrong.Type)
	}
	return nothingMeansDefault(file, fields, *into)
}

// nothingMeansDefault refuses a field with 0 or an empty text that would silently get its default.
func nothingMeansDefault(file string, fields map[string]json.RawMessage, c reflector.Config) error {
	given, whole := reflect.ValueOf(c), reflect.ValueOf(c.WithDefaults())
	for i, name := range jsonFields(given.Type()) {
		value, ok := fields[name]
		if ok && given.Field(i).IsZero() && !whole.Field(i).IsZero() {
			return fmt.Errorf("%s: %s: %s is no value; without the field it is %v", file, name,
				value, whole.Field(i))
		}
	}
	return nil
}

// jsonFields are the names of a struct's fields in JSON.
func jsonFields(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// world is the file's, with the agents that the flags say.
func (r *reflectorsCall) world(cmd *cobra.Command) (*reflector.World, error) {
	bird, err := parseSelector("bird", r.bird)
	if err != nil {
		return nil, err
	}
	withoutWorkloads, err := parseSelector("without-workloads", r.withoutWorkloads)
	if err != nil {
		return nil, err
	}
	read, err := readManifest(cmd, r.file, r.strict)
	if err != nil {
		return nil, err
	}
	var objects []reflector.Object
	agents := map[string]reflector.Agent{}
	nodes := 0
	add := func(key calico.Key, value []byte) {
		objects = append(objects, reflector.Object{Key: key, Value: value, Revision: 1})
		if key.Kind != calico.KindNode {
			return
		}
		nodes++
		var node struct {
			Metadata struct{ Labels map[string]string }
		}
		_ = json.Unmarshal(value, &node) // it was read before
		a := reflector.Agent{Status: reflector.Status{
			Format: reflector.StatusFormat, Version: version, Dataplane: "vpp",
		}}
		if withoutWorkloads(node.Metadata.Labels) {
			a.Status.Dataplane = "none"
		}
		if !bird(node.Metadata.Labels) {
			agents[key.Name] = a
		}
	}
	for _, resource := range read.Resources {
		key, value, err := resource.Stored()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", r.file, resource, err)
		}
		add(key, value)
	}
	for _, o := range read.Objects {
		key, value, is, err := o.Resource()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.file, err)
		}
		if is {
			add(key, value)
		}
	}
	if nodes == 0 {
		return nil, fmt.Errorf("%s: there is no Node in it", r.file)
	}
	w := reflector.Read(objects)
	w.Now, w.Version, w.Agents = time.Now(), version, agents
	return w, nil
}

// parseSelector returns what a flag selects; without a text that is nothing.
func parseSelector(flag, text string) (func(labels map[string]string) bool, error) {
	if text == "" {
		return func(map[string]string) bool { return false }, nil
	}
	s, err := selector.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return s.Matches, nil
}

func printPreview(w io.Writer, p reflector.Preview) error {
	b := &strings.Builder{}
	if p.To == reflector.Reflectors {
		writeChoice(b, p.Choice)
	}
	fmt.Fprintf(b, "Steps to the goal, %s:\n", p.To)
	for i, s := range p.Steps {
		fmt.Fprintf(b, "  %d. %s\n", i+1, s.Does)
	}
	for _, o := range p.Obstacles {
		fmt.Fprintf(b, "  ! in the way: %s\n", o)
	}
	fmt.Fprintf(b, "Sessions between Calico nodes:\n  before: %s\n  after: %s\n",
		sessions(p.Before), sessions(p.After))
	switch {
	case p.Loss != "":
		fmt.Fprintf(b, "Loss: %s. The migration will need --accept-loss.\n", p.Loss)
	case len(p.Birds) > 0:
		fmt.Fprintln(b, "Loss: none expected, except what BIRD loses when it changes routes in "+
			"the kernel.")
	default:
		fmt.Fprintln(b, "Loss: none expected, since all nodes run an agent.")
	}
	if len(p.Birds) > 0 {
		fmt.Fprintf(b, "Gates ask %s through calico-node. Where it does not answer, the "+
			"migration will need --accept-unseen.\n",
			count(len(p.Birds), "node with BIRD", "nodes with BIRD"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeChoice writes a table of reflectors, and the other nodes by the reason against them.
func writeChoice(b *strings.Builder, c reflector.Choice) {
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "REFLECTOR\tZONE\tREASON")
	for _, r := range c.Reflectors {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", r.Node, cmp.Or(r.Zone, "-"), r.Reason)
	}
	_ = tw.Flush() // into memory
	fmt.Fprintf(b, "Reflectors: %d of %s. The others:\n", len(c.Reflectors),
		count(c.Nodes, "node", "nodes"))
	byReason := map[string][]string{}
	for _, o := range c.Others {
		byReason[o.Reason] = append(byReason[o.Reason], o.Node)
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		nodes := byReason[reason]
		const few = 5
		more := ""
		if len(nodes) > few {
			more = fmt.Sprintf(" and %d more", len(nodes)-few)
		}
		fmt.Fprintf(b, "  %s%s: %s\n", strings.Join(nodes[:min(few, len(nodes))], ", "), more,
			reason)
	}
}

func sessions(s reflector.Sessions) string {
	text := fmt.Sprintf("%d, at most %d at a node", s.Total, s.MostAtOther)
	if s.MostAtReflector > 0 {
		text += fmt.Sprintf(" and %d at a reflector", s.MostAtReflector)
	}
	return text
}
