package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/agent"
)

// explainCall is a call of explain.
type explainCall struct {
	nodeCall
	socket, from string
}

func explainCommand() *cobra.Command {
	var e explainCall
	c := e.addTo(&cobra.Command{
		Use:   "explain ADDRESS|PREFIX [--from NODE]",
		Short: "Show how packets to an address are forwarded, or the first step that fails",
		Long: `Show how packets to an address or prefix are forwarded, or why not. The first line is
the verdict: it names the first step that fails, from Calico's data to what the data plane answers
at this moment. Then come the steps, and all that they were judged by: whose the address is, what
peers announced, which routes cover it, and what peers get of it.

With --from NODE the agents of both ends are asked: that of NODE, and that of the node that IPAM
gives the address to. The verdict names the end that is broken.

` + asking + `

Exit status 0 says that no step fails, 1 that one does, or with --from that an end could not be
asked. docs/explain.md has the verdict on each of many broken situations, and what to do.`,
		Example: `  vpp-route-agent explain 10.1.0.7
  vpp-route-agent explain 10.1.0.0/26 -o json
  vpp-route-agent explain 10.1.0.7 --from edge-7 --config /etc/vpp-route-agent/agent.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("explain takes one address or prefix")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := agent.ParsePrefixOrAddr(args[0])
			if err != nil {
				return usageError{err}
			}
			if cmd.Flags().Changed("from") {
				return e.both(cmd, asked)
			}
			return e.here(cmd, args[0])
		},
	})
	socketFlag(c, &e.socket)
	c.Flags().StringVar(&e.from, "from", "", "node that the packets come from: ask the agents of "+
		"both ends")
	return c
}

// here asks the agent of this node.
func (e *explainCall) here(cmd *cobra.Command, asked string) error {
	for _, name := range append([]string{"config", "query-port", "timeout"}, nodeSettings...) {
		if cmd.Flags().Changed(name) {
			return usageError{fmt.Errorf("--%s goes with --from", name)}
		}
	}
	var x agent.Explanation
	query := url.Values{"prefix": {asked}}
	if err := get(cmd.Context(), e.socket, "/v1/explain", query, &x); err != nil {
		return err
	}
	if err := show(agentFlags{asJSON: e.asJSON}, cmd.OutOrStdout(), x,
		printExplanation); err != nil {
		return err
	}
	if !x.OK {
		return errSilent
	}
	return nil
}

func printExplanation(w io.Writer, e agent.Explanation) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s\n\n", e.Verdict)
	writeSteps(b, e.Steps)
	writePaths(b, e.Paths)
	writeClaims(b, e.Routes)
	writeInside(b, e)
	if d := e.Dataplane; d.Entry != "" {
		fmt.Fprintf(b, "\nThe data plane, asked just now for %s: %s%s\n",
			askedFor(e).Prefix, d.Entry, counted(d))
		writeHops(b, askedFor(e), d)
	}
	writeExports(b, e.Exports)
	for _, p := range e.Problems {
		fmt.Fprintf(b, "! %s\n", p)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeSteps(b *strings.Builder, steps []agent.ExplainStep) {
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, s := range steps {
		mark := "ok"
		if !s.OK {
			mark = "FAILS"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", s.Name, mark, s.Text)
	}
	_ = tw.Flush() // to a strings.Builder
}

// counted says what was forwarded by an entry; "" where nothing counts.
func counted(d agent.DataplaneAnswer) string {
	switch {
	case d.Packets != nil && d.Bytes != nil:
		return fmt.Sprintf("; %s, %d bytes since it was made",
			count(int(*d.Packets), "packet", "packets"), *d.Bytes)
	case d.NotCounted != "":
		return "; packets are not counted: " + d.NotCounted
	}
	return ""
}

// writeHops says what was sent to each next hop, where one of several is a question.
func writeHops(b *strings.Builder, r agent.ExplainedRoute, d agent.DataplaneAnswer) {
	for _, h := range d.NextHops {
		fmt.Fprintf(b, "  to %s, for whatever prefix: %s, %d bytes\n", hopText(h),
			count(int(*h.Packets), "packet", "packets"), *h.Bytes)
	}
	if len(r.Paths) > 1 && d.NextHopsNotCounted != "" && d.NextHopsNotCounted != d.NotCounted {
		fmt.Fprintf(b, "  by next hop: %s\n", d.NextHopsNotCounted)
	}
}

// askedFor is the first route that was acknowledged.
func askedFor(e agent.Explanation) agent.ExplainedRoute {
	for _, r := range e.Routes {
		switch r.State {
		case "programmed", "shadowed", "drifted", "held":
			return r
		}
	}
	return agent.ExplainedRoute{}
}

func writePaths(b *strings.Builder, paths []agent.ReceivedStatus) {
	if len(paths) == 0 {
		return
	}
	fmt.Fprintln(b)
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ANNOUNCED\tBY\tNEXT HOP\tATTRIBUTES\tIMPORT\tBEST\tREASON")
	for _, p := range paths {
		best := "no"
		if p.Best {
			best = "yes"
		}
		if p.Stale {
			best += ", stale"
		}
		rule := p.Import
		if len(p.Operations) > 0 {
			rule += ": " + strings.Join(p.Operations, ", ")
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Prefix,
			strings.TrimSpace(p.Node+" "+p.Peer.String()), p.NextHop, attributes(p), rule, best,
			p.Reason)
	}
	_ = tw.Flush()
}

// attributes are those that most paths differ by.
func attributes(p agent.ReceivedStatus) string {
	var all []string
	if p.LocalPref != nil {
		all = append(all, fmt.Sprintf("local-pref %d", *p.LocalPref))
	}
	if len(p.ASPath) > 0 {
		all = append(all, "as "+strings.Trim(fmt.Sprint(p.ASPath), "[]"))
	}
	if p.MED != nil {
		all = append(all, fmt.Sprintf("med %d", *p.MED))
	}
	if p.Origin != "IGP" {
		all = append(all, "origin "+p.Origin)
	}
	for _, c := range p.Communities {
		all = append(all, "community "+c)
	}
	if p.Originator != "" {
		all = append(all, "originator "+p.Originator)
	}
	if len(p.ClusterList) > 0 {
		all = append(all, "clusters "+strings.Join(p.ClusterList, " "))
	}
	return strings.Join(all, ", ")
}

func writeClaims(b *strings.Builder, routes []agent.ExplainedRoute) {
	if len(routes) == 0 {
		return
	}
	fmt.Fprintln(b)
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ROUTE\tSOURCE\tDISTANCE\tTAKEN\tNEXT HOP\tREACHED BY\tSTATE\tSINCE\tREASON")
	for _, r := range routes {
		prefix, state, age := r.Prefix.String(), r.State, since(&r.Since)
		if r.Elevated {
			prefix += " elevated"
		}
		if len(r.Claims) == 0 {
			fmt.Fprintf(tw, "%s\t%s\t\t\t\t\t%s\t%s\t%s\n", prefix, r.Origin, state, age, r.Reason)
		}
		for _, c := range r.Claims {
			taken := "no"
			if c.Chosen {
				taken = "yes"
			}
			line := func(hop, by, reason string) {
				fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", prefix, c.Origin,
					c.Distance, taken, hop, by, state, age, reason)
				prefix, state, age = "", "", ""
			}
			if len(c.Paths) == 0 {
				line(c.Kind, "", cmp.Or(c.Reason, r.Reason))
			}
			for _, way := range c.Paths {
				hop := strings.TrimSpace(way.NextHop + " " + way.Interface)
				if len(way.Used) > 0 {
					hop = hops(way.Used)
				}
				line(hop, strings.TrimSpace(way.By+" "+way.Owner), cmp.Or(way.Reason, c.Reason,
					r.Reason))
			}
		}
	}
	_ = tw.Flush()
}

func writeInside(b *strings.Builder, e agent.Explanation) {
	if len(e.Inside) == 0 {
		return
	}
	fmt.Fprintf(b, "\nLonger routes of ours inside %s:\n", e.Asked)
	_ = printRoutes(b, e.Inside)
	if e.InsideMore > 0 {
		fmt.Fprintf(b, "and %d more, see `routes %s`\n", e.InsideMore, e.Asked)
	}
}

func writeExports(b *strings.Builder, exports []agent.ExportStatus) {
	if len(exports) == 0 {
		return
	}
	fmt.Fprintln(b)
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SENT\tTO\tSESSION\tNEXT HOP\tATTRIBUTES\tRULE")
	for _, e := range exports {
		session := "up"
		switch {
		case e.Deferring:
			session = "up, UPDATEs wait"
		case !e.Established:
			session = "down"
		}
		var attributes []string
		if e.LocalPref != nil {
			attributes = append(attributes, fmt.Sprintf("local-pref %d", *e.LocalPref))
		}
		if len(e.ASPath) > 0 {
			attributes = append(attributes, "as "+strings.Trim(fmt.Sprint(e.ASPath), "[]"))
		}
		for _, c := range e.Communities {
			attributes = append(attributes, "community "+c)
		}
		prefix := e.Prefix.String()
		if !e.Accept {
			prefix += " not"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", prefix,
			strings.TrimSpace(e.Node+" "+e.Peer.String()), session, e.NextHop,
			strings.Join(attributes, ", "), e.Rule)
	}
	_ = tw.Flush()
}
