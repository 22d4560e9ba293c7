package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/external/etcd"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// backupDistance is after BGP (20) and before IPAM (250).
const backupDistance = 200

// parseExternal takes the sources, the first of which wins.
func parseExternal(c *config, s string) error {
	for name := range strings.SplitSeq(s, ",") {
		if name != etcd.Name {
			return fmt.Errorf("%q is no source of external configuration: %s is", name, etcd.Name)
		}
	}
	c.external = []string{etcd.Name}
	return nil
}

func parseExternalPrefix(c *config, s string) error {
	c.externalPrefix = s
	return etcd.CheckPrefix(s)
}

// distances are those that differ from the origins' own.
func (c config) distances() map[route.Origin]uint8 {
	if c.externalTable0 != "backup" {
		return nil
	}
	return map[route.Origin]uint8{route.External: backupDistance}
}

// externalParts are the sources of external configuration, and what keeps the FIB equal to them.
type externalParts struct {
	cfg        config
	source     *etcd.Source
	controller *external.Controller
	engine     *fib.Engine
	agent      *agent.Agent // set before Run
}

func newExternal(cfg config, engine *fib.Engine, log *slog.Logger) (*externalParts, error) {
	source, err := etcd.New(etcd.Config{Etcd: cfg.etcd(), Prefix: cfg.externalPrefix,
		Node: cfg.nodeName, StateDir: cfg.stateDir, Log: log})
	if err != nil {
		return nil, err
	}
	p := &externalParts{cfg: cfg, source: source, engine: engine}
	p.controller = external.NewController([]external.Adapter{source},
		external.Policy{Table0: cfg.externalTable0 != "", Tables: cfg.dataplane != "kernel"}, p)
	return p, nil
}

// Run works until ctx ends.
func (p *externalParts) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.source.Run(ctx) })
	group.Go(func() error { return p.controller.Run(ctx) })
	return group.Wait()
}

// Want implements external.FIB.
func (p *externalParts) Want(all fib.Source) uint64 { return p.agent.Want(route.External, all) }

// Find implements external.FIB.
func (p *externalParts) Find(keys []route.Key) ([]fib.Entry, uint64) { return p.engine.Find(keys) }

// Objects implements external.FIB.
func (p *externalParts) Objects() []fib.Entry { return p.engine.Objects() }

// Changed implements external.FIB.
func (p *externalParts) Changed() <-chan struct{} { return p.engine.ExternalChanged() }

// Away implements external.FIB.
func (p *externalParts) Away() string {
	f := p.engine.Facts()
	switch {
	case p.cfg.dataplane == "none":
		return "there is no data plane (--dataplane none)"
	case f.Identity != "":
		return ""
	case f.Problem != "":
		return "the data plane is away: " + f.Problem
	}
	return "the data plane has not answered yet"
}

// shown is what the agent shows of it.
func (p *externalParts) shown() *agent.External {
	return &agent.External{Sources: p.sources, Items: p.items, Owner: p.controller.Owner,
		Backup: p.cfg.externalTable0 == "backup"}
}

func (p *externalParts) sources() []agent.ExternalSource {
	s := p.source.Status()
	out := agent.ExternalSource{
		Name: etcd.Name, Connected: s.Connected, Synced: s.Synced, Revision: s.Revision,
		Observed: s.Observed, Error: s.Error, AnswerProblem: s.AnswerProblem, Stale: s.Stale,
		Kept: "ok", States: map[string]int{},
	}
	if s.CopyProblem != "" {
		out.Kept = "degraded: " + s.CopyProblem
	}
	if s.Stale {
		out.AsOf = &s.AsOf
	}
	for _, state := range external.States {
		out.States[state.String()] = 0
	}
	for _, v := range p.controller.Verdicts() {
		if v.State != external.Removed {
			out.Items++
			out.States[v.State.String()]++
		}
	}
	return []agent.ExternalSource{out}
}

func (p *externalParts) items() (all []agent.ExternalItem) {
	for _, v := range p.controller.Verdicts() {
		all = append(all, agent.ExternalItem{
			Source: v.Source, Key: v.Key, State: v.State.String(),
			Details: append([]string{}, v.Details...), Attempts: v.Attempts, Revision: v.Revision,
			LastGood: v.LastGood,
		})
	}
	return all
}

func externalCommand() *cobra.Command {
	c := &cobra.Command{Use: "external", Short: "External configuration of the running agent"}
	var f agentFlags
	c.AddCommand(f.addTo(&cobra.Command{
		Use:   "get [PART-OF-KEY]",
		Short: "Show the items of external configuration and how each stands",
		Long: `Show the items of external configuration and how each stands: CONFIGURED (the data
plane has acknowledged it), PENDING (something is missing that may come), RETRYING (the data plane
refuses it), FAILED (the agent does), INVALID, UNIMPLEMENTED, or for 10 s REMOVED. Exit status 0
says that the agent answered.`,
		Example: `  vpp-route-agent external get
  vpp-route-agent external get vrf/0/dst/10.9.1.0/24 -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{}
			if len(args) == 1 {
				query.Set("key", args[0])
			}
			var items []agent.ExternalItem
			if err := get(cmd.Context(), f.socket, "/v1/external", query, &items); err != nil {
				return err
			}
			return show(f, cmd.OutOrStdout(), items, printExternal)
		},
	}))
	return c
}

func printExternal(w io.Writer, items []agent.ExternalItem) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SOURCE\tKEY\tSTATE\tDETAILS")
	for _, i := range items {
		details := strings.Join(i.Details, "; ")
		if i.LastGood {
			details += " (its last good value is in use)"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", i.Source, i.Key, i.State, details)
	}
	return tw.Flush()
}

// writeExternalLines writes a line for each source.
func writeExternalLines(b *strings.Builder, sources []agent.ExternalSource) {
	for _, s := range sources {
		state := "connected"
		switch {
		case s.Stale:
			state = "NOT CONNECTED, working with the copy on disk"
		case !s.Connected:
			state = "NOT CONNECTED"
		}
		fmt.Fprintf(b, "ext   %s: %s, revision %d, %d items", s.Name, state, s.Observed, s.Items)
		for _, name := range external.States {
			if n := s.States[name.String()]; n > 0 {
				fmt.Fprintf(b, ", %d %s", n, name)
			}
		}
		if strings.HasPrefix(s.Kept, "degraded") {
			fmt.Fprintf(b, "; copy on disk %s", s.Kept)
		}
		fmt.Fprintln(b)
		if s.AnswerProblem != "" {
			fmt.Fprintf(b, "  ! clients are not told how their items stand: %s\n", s.AnswerProblem)
		}
	}
}
