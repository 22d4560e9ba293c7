package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/external"
	"vpp-route-agent/internal/external/etcd"
	"vpp-route-agent/internal/external/grpc"
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/route"
)

// backupDistance is after BGP (20) and before IPAM (250).
const backupDistance = 200

// parseExternal takes the sources, the first of which wins.
func parseExternal(c *config, s string) error {
	c.external = nil
	for name := range strings.SplitSeq(s, ",") {
		switch {
		case name != etcd.Name && name != grpc.Name:
			return fmt.Errorf("%q is no source of external configuration: %s and %s are", name,
				etcd.Name, grpc.Name)
		case slices.Contains(c.external, name):
			return fmt.Errorf("source %s is there twice", name)
		}
		c.external = append(c.external, name)
	}
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
	etcd       *etcd.Source // nil: off
	grpc       *grpc.Source // nil: off
	server     *grpc.Server
	listeners  []net.Listener // of server
	controller *external.Controller
	agent      *agent.Agent // set before Run
	log        *slog.Logger
}

// newExternal makes the parts. linux has the items of Linux; nil: engine has them.
func newExternal(cfg config, engine, linux *fib.Engine, log *slog.Logger) (*externalParts, error) {
	p := &externalParts{cfg: cfg, log: log}
	var adapters []external.Adapter
	for _, name := range cfg.external {
		if name == grpc.Name {
			p.grpc = grpc.New(grpc.Config{StateDir: cfg.stateDir,
				Linux: cfg.dataplane == "kernel", Log: log})
			adapters = append(adapters, p.grpc)
			continue
		}
		var err error
		p.etcd, err = etcd.New(etcd.Config{Etcd: cfg.etcd(), Prefix: cfg.externalPrefix,
			Node: cfg.nodeName, StateDir: cfg.stateDir, Log: log})
		if err != nil {
			return nil, err
		}
		adapters = append(adapters, p.etcd)
	}
	policy := external.Policy{Table0: cfg.externalTable0 != "", Linux: cfg.dataplane == "kernel"}
	for _, a := range cfg.uplinkAddress {
		policy.Own = append(policy.Own, route.Address{Interface: cfg.uplink, Address: a})
	}
	planes := []external.Plane{{Policy: policy, FIB: &externalPlane{Engine: engine,
		none: cfg.dataplane == "none", set: func(all fib.Source) uint64 {
			return p.agent.Want(route.External, all)
		}}}}
	if linux != nil {
		planes[0].Takes = func(key string) bool { return !external.IsLinux(key) }
		planes = append(planes, external.Plane{
			Policy: external.Policy{Takes: external.IsLinux},
			FIB: &externalPlane{Engine: linux, set: func(all fib.Source) uint64 {
				w := fib.Wanted{Complete: all.Complete}
				w.Sources[route.External] = all
				return linux.Set(w)
			}},
		})
	}
	p.controller = external.NewController(adapters, planes...)
	return p, nil
}

// listen opens what clients of gRPC call.
func (p *externalParts) listen() error {
	if p.grpc == nil {
		return nil
	}
	policy, err := p.cfg.externalPolicy()
	conf, tlsErr := p.cfg.externalTLS()
	if err = cmp.Or(err, tlsErr); err != nil {
		return usageError{err}
	}
	p.server = grpc.NewServer(p.grpc, p.controller, policy, conf, p.log)
	l, err := agent.Listen("external socket", p.cfg.externalSocket, p.log)
	if err != nil {
		return err
	}
	p.listeners = append(p.listeners, l)
	if p.cfg.externalListen == "" {
		return nil
	}
	if l, err = net.Listen("tcp", p.cfg.externalListen); err != nil {
		p.close()
		return fmt.Errorf("external: %w", err)
	}
	p.listeners = append(p.listeners, l)
	return nil
}

// externalPolicy says who may write what over gRPC.
func (c config) externalPolicy() (grpc.Policy, error) {
	if c.externalPolicyFile == "" {
		return grpc.DefaultPolicy(c.plaintext), nil
	}
	return grpc.ReadPolicy(c.externalPolicyFile)
}

// reload reads the policy again. The old one stays in force when that fails.
func (p *externalParts) reload(to config) {
	if p == nil || p.server == nil {
		return
	}
	policy, err := to.externalPolicy()
	if err != nil {
		p.log.Error("the policy is not reloaded; the old one stays in force", "err", err)
		return
	}
	p.server.SetPolicy(policy)
}

func (p *externalParts) close() {
	for _, l := range p.listeners {
		l.Close()
	}
}

// Run works until ctx ends.
func (p *externalParts) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if p.etcd != nil {
		group.Go(func() error { return p.etcd.Run(ctx) })
	}
	if p.grpc != nil {
		group.Go(func() error { return p.grpc.Run(ctx) })
	}
	for _, l := range p.listeners {
		group.Go(func() error { return p.server.Serve(ctx, l) })
	}
	group.Go(func() error {
		select { // so that nothing is programmed inside own blocks that are not known yet
		case <-p.agent.HasPlan():
		case <-time.After(planPatience):
		case <-ctx.Done():
		}
		return p.controller.Run(ctx)
	})
	return group.Wait()
}

// planPatience is how long external configuration waits for Calico's data, without which it works.
// It is longer than it takes to start from the copy on disk.
const planPatience = 10 * time.Second

// externalPlane is an engine as external configuration sees it.
type externalPlane struct {
	*fib.Engine
	none bool // --dataplane none
	set  func(fib.Source) (revision uint64)
}

// Want implements external.FIB.
func (p *externalPlane) Want(all fib.Source) uint64 { return p.set(all) }

// Changed implements external.FIB.
func (p *externalPlane) Changed() <-chan struct{} { return p.ExternalChanged() }

// Away implements external.FIB.
func (p *externalPlane) Away() string {
	f := p.Facts()
	switch {
	case p.none:
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
	return &agent.External{Sources: p.sources, Items: p.items, History: p.history,
		Owner: p.controller.Owner, Backup: p.cfg.externalTable0 == "backup"}
}

func (p *externalParts) sources() (all []agent.ExternalSource) {
	for _, name := range p.cfg.external {
		out := p.grpcSource
		if name == etcd.Name {
			out = p.etcdSource
		}
		all = append(all, p.counted(out()))
	}
	return all
}

func (p *externalParts) etcdSource() agent.ExternalSource {
	s := p.etcd.Status()
	out := agent.ExternalSource{
		Name: etcd.Name, Connected: s.Connected, Synced: s.Synced, Revision: s.Revision,
		Observed: s.Observed, Error: s.Error, AnswerProblem: s.AnswerProblem, Stale: s.Stale,
		Kept: kept(s.CopyProblem),
	}
	if s.Stale {
		out.AsOf = &s.AsOf
	}
	return out
}

func (p *externalParts) grpcSource() agent.ExternalSource {
	s := p.grpc.Status()
	return agent.ExternalSource{
		Name: grpc.Name, Connected: true, Synced: s.Synced, Revision: s.Txn, Observed: s.Observed,
		Kept: kept(s.Problem), Listens: p.cfg.externalSocket,
	}
}

func kept(problem string) string {
	if problem == "" {
		return "ok"
	}
	return "degraded: " + problem
}

// counted counts the items of a source and of the clients that call it.
func (p *externalParts) counted(s agent.ExternalSource) agent.ExternalSource {
	s.States = map[string]int{}
	for _, state := range external.States {
		s.States[state.String()] = 0
	}
	for _, v := range p.controller.Verdicts() {
		if v.State != external.Removed && external.IsOf(v.Source, s.Name) {
			s.Items++
			s.States[v.State.String()]++
		}
	}
	return s
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

func (p *externalParts) history() []agent.ExternalEvent {
	all := []agent.ExternalEvent{}
	for _, e := range p.controller.History() {
		event := agent.ExternalEvent{Sources: e.Sources, Revision: e.Revision, At: e.At,
			Put: e.Put, Deleted: e.Deleted}
		if !e.Answered.IsZero() {
			event.Answered = &e.Answered
		}
		all = append(all, event)
	}
	return all
}

func externalCommand() *cobra.Command {
	c := &cobra.Command{Use: "external", Short: "External configuration of the running agent"}
	c.AddCommand(externalGet(), externalWait(), externalHistory())
	c.AddCommand(externalChangeCommands()...)
	return c
}

func externalGet() *cobra.Command {
	var f agentFlags
	return f.addTo(&cobra.Command{
		Use:   "get [PART-OF-KEY]",
		Short: "Show the items of external configuration and how each stands",
		Long: `Show the items of external configuration and how each stands: CONFIGURED (the data
plane has acknowledged it), PENDING (something is missing that may come), RETRYING (the data plane
refuses it), FAILED (the agent does), INVALID, UNIMPLEMENTED, or for 10 s REMOVED. Exit status 0
says that the agent answered.`,
		Example: `  vpp-route-agent external get
  vpp-route-agent external get vrf/0/dst/10.9.1.0/24 -o json`,
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			items, err := f.externalItems(cmd.Context(), args)
			if err != nil {
				return err
			}
			return show(f, cmd.OutOrStdout(), items, printExternal)
		},
	})
}

func (f agentFlags) externalItems(ctx context.Context, args []string) (
	items []agent.ExternalItem, err error) {
	query := url.Values{}
	if len(args) == 1 {
		query.Set("key", args[0])
	}
	return items, get(ctx, f.socket, "/v1/external", query, &items)
}

// waitPause is the pause between two looks of `external wait`.
const waitPause = 200 * time.Millisecond

func externalWait() *cobra.Command {
	var f agentFlags
	var timeout time.Duration
	c := f.addTo(&cobra.Command{
		Use:   "wait [PART-OF-KEY]",
		Short: "Wait until all items of external configuration are CONFIGURED",
		Long: `Wait until all items of external configuration are CONFIGURED, or those with
PART-OF-KEY in their key, of which there must be one. Exit status 1 says that some are not after
--timeout, and they are printed.`,
		Example: "  vpp-route-agent external wait vrf/7/ --timeout 10s",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return usageError{errors.New("--timeout must not be negative")}
			}
			for end := time.Now().Add(timeout); ; {
				items, err := f.externalItems(cmd.Context(), args)
				if err != nil {
					return err
				}
				left := slices.DeleteFunc(slices.Clone(items), func(i agent.ExternalItem) bool {
					return i.State == external.Configured.String()
				})
				if len(left) == 0 && (len(items) > 0 || len(args) == 0) {
					return nil
				}
				if time.Now().After(end) {
					if err := show(f, cmd.OutOrStdout(), left, printExternal); err != nil {
						return err
					}
					return fmt.Errorf("%d of %d items are not CONFIGURED after %v", len(left),
						len(items), timeout)
				}
				select {
				case <-cmd.Context().Done():
					return cmd.Context().Err()
				case <-time.After(waitPause):
				}
			}
		},
	})
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait")
	return c
}

func externalHistory() *cobra.Command {
	var f agentFlags
	return f.addTo(&cobra.Command{
		Use: "history", Short: "Show the last changes of external configuration",
		Long: `Show the last 200 changes of external configuration since the agent started: when, by
which source, how many items were put and deleted, and after how long the data plane had answered
for all items.`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var events []agent.ExternalEvent
			err := get(cmd.Context(), f.socket, "/v1/external/history", nil, &events)
			if err != nil {
				return err
			}
			return show(f, cmd.OutOrStdout(), events, printExternalHistory)
		},
	})
}

func printExternalHistory(w io.Writer, events []agent.ExternalEvent) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TIME\tREVISION\tSOURCE\tPUT\tDELETED\tANSWERED")
	for _, e := range events {
		answered := "not yet"
		if e.Answered != nil {
			answered = "after " + e.Answered.Sub(e.At).Round(time.Millisecond).String()
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t%d\t%d\t%s\n", e.At.Local().Format(time.DateTime),
			e.Revision, strings.Join(e.Sources, ","), e.Put, e.Deleted, answered)
	}
	return tw.Flush()
}

func printExternal(w io.Writer, items []agent.ExternalItem) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SOURCE\tKEY\tSTATE\tDETAILS")
	for _, i := range items {
		details := strings.Join(i.Details, "; ")
		if i.LastGood {
			details += " (its last good value is in use)"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", i.Source, visible(i.Key), i.State, visible(details))
	}
	return tw.Flush()
}

// visible quotes what would do something to a terminal: clients choose keys.
func visible(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// writeExternalLines writes a line for each source.
func writeExternalLines(b *strings.Builder, sources []agent.ExternalSource) {
	for _, s := range sources {
		state := "connected"
		switch {
		case s.Listens != "":
			state = "listens on " + s.Listens
		case s.Stale:
			state = "NOT CONNECTED, working with the copy on disk"
		case !s.Connected:
			state = "NOT CONNECTED"
		}
		fmt.Fprintf(b, "ext   %s: %s, revision %d, %s", s.Name, state, s.Observed,
			count(s.Items, "item", "items"))
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

func writeLinuxLine(b *strings.Builder, l *agent.LinuxStatus) {
	if l == nil {
		return
	}
	o := l.Objects
	fmt.Fprintf(b, "linux %d of %s programmed, %d failed, %d held", o.Programmed,
		count(o.Desired, "object", "objects"), o.Failed, o.Held)
	if o.Shadowed > 0 {
		fmt.Fprintf(b, ", %d made by other programs", o.Shadowed)
	}
	fmt.Fprintf(b, "; journal %s\n", l.Journal)
	if l.Problem != "" {
		fmt.Fprintf(b, "  ! %s\n", l.Problem)
	}
}
