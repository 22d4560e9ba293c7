package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/adminclient"
	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/route"
)

// outputFlag adds -o, which every command that prints data has.
func outputFlag(c *cobra.Command, asJSON *bool) {
	var form string
	c.Flags().StringVarP(&form, "output", "o", "table", "table or json")
	_ = c.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	c.PreRunE = func(*cobra.Command, []string) error {
		switch form {
		case "table", "json":
			*asJSON = form == "json"
			return nil
		}
		return usageError{fmt.Errorf("-o %q is neither table nor json", form)}
	}
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// socketFlag adds the flag that finds a running agent.
func socketFlag(c *cobra.Command, socket *string) {
	const env = ownEnvPrefix + "ADMIN_SOCKET"
	c.Flags().StringVar(socket, "admin-socket", cmp.Or(os.Getenv(env), defaultAdminSocket),
		"admin socket of the agent to ask (environment: "+env+")")
}

var errNoSocket = usageError{errors.New("--admin-socket must not be empty")}

// requestTimeout bounds a request to an agent that hangs.
const requestTimeout = time.Minute

// get reads path from the agent behind the admin socket and decodes the answer into out.
func get(ctx context.Context, socket, path string, query url.Values, out any) error {
	if socket == "" {
		return errNoSocket
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	defer sayWhenSlow(func() string { return awaited(ctx, socket, path) })()
	return adminclient.New(socket).Get(ctx, path, query, out)
}

// post has the agent behind the admin socket do something, and decodes its answer into out.
func post(ctx context.Context, socket, path string, query url.Values, out any) error {
	if socket == "" {
		return errNoSocket
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	defer sayWhenSlow(func() string { return awaited(ctx, socket, path) })()
	return adminclient.New(socket).Post(ctx, path, query, out)
}

// A command that waits says for what within 2 s: it finds out after one, within another half.
const (
	slow       = 1300 * time.Millisecond
	askingTime = 500 * time.Millisecond
)

// sayWhenSlow says on standard error what a command waits for, when it is slow. What it returns
// ends that.
func sayWhenSlow(awaited func() string) (done func()) {
	t := time.AfterFunc(slow, func() { fmt.Fprintln(os.Stderr, "waiting for", awaited()) })
	return func() { t.Stop() }
}

// awaited is what the agent behind a socket, by its own account, does instead of answering path.
func awaited(ctx context.Context, socket, path string) string {
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	s, err := adminclient.New(socket).Status(ctx)
	does := "it answers nothing"
	if err == nil {
		does = occupation(path, s)
	}
	return fmt.Sprintf("the agent behind %s, for %s at most: %s", socket, requestTimeout, does)
}

// occupation is what an agent that answers otherwise needs for its answer to a request.
func occupation(path string, s agent.Status) string {
	condition := map[string]agent.Condition{}
	for _, c := range s.Conditions {
		condition[c.Name] = c
	}
	switch dataplane := condition["dataplane"]; {
	case strings.HasPrefix(path, "/v1/drain"):
		return "it writes the drain to its state directory"
	case path == "/v1/audit" && !dataplane.OK:
		return "it needs the data plane: " + dataplane.Message
	case path == "/v1/audit":
		return "the data plane lists its routes"
	case path == "/v1/routes":
		return "it lists its routes, for one command at a time"
	}
	return "it answers slowly"
}

// agentFlags are those of the commands that show something of a running agent.
type agentFlags struct {
	socket string
	asJSON bool
}

func (f *agentFlags) addTo(c *cobra.Command) *cobra.Command {
	outputFlag(c, &f.asJSON)
	socketFlag(c, &f.socket)
	return c
}

// show prints v as JSON, or as print does.
func show[T any](f agentFlags, w io.Writer, v T, print func(io.Writer, T) error) error {
	if f.asJSON {
		return printJSON(w, v)
	}
	return print(w, v)
}

func statusCommand() *cobra.Command {
	var f agentFlags
	var check, quiet bool
	c := f.addTo(&cobra.Command{
		Use:   "status",
		Short: "Show the state of the running agent: peers, FIB, etcd, what is missing",
		Long: `Show the state of the running agent. Exit status 0 says that the agent answered.
With --check it says that all is well: the agent is ready, every session is Established and the
data plane refuses no route.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s agent.Status
			if err := get(cmd.Context(), f.socket, "/v1/status", nil, &s); err != nil {
				return err
			}
			if !quiet {
				if err := show(f, cmd.OutOrStdout(), s, printStatus); err != nil {
					return err
				}
			}
			wrong := whatIsWrong(s)
			switch {
			case len(wrong) == 0 || !check && !quiet:
				return nil
			case quiet:
				return errSilent
			}
			return errors.New(strings.Join(wrong, "; "))
		},
	})
	c.Flags().BoolVar(&check, "check", false, "end with status 1 unless all is well")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "like --check, and print nothing")
	return c
}

// whatIsWrong lists what keeps `status --check` from ending with 0.
func whatIsWrong(s agent.Status) (wrong []string) {
	for _, c := range s.Conditions {
		if !c.OK {
			wrong = append(wrong, c.Name+": "+c.Message)
		}
	}
	if down := sessionsDown(s); down > 0 {
		wrong = append(wrong, fmt.Sprintf("%d of %d sessions down", down, len(s.BGP.Peers)))
	}
	failed := 0
	for _, c := range s.FIB.Routes {
		failed += c.Failed
	}
	if failed > 0 {
		wrong = append(wrong, "the data plane refuses "+count(failed, "route", "routes"))
	}
	return wrong
}

func peersCommand() *cobra.Command {
	var f agentFlags
	return f.addTo(&cobra.Command{
		Use: "peers", Short: "Show the BGP peers with AS, direction, state and path counts",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s agent.Status
			if err := get(cmd.Context(), f.socket, "/v1/status", nil, &s); err != nil {
				return err
			}
			if isOff(s) && !f.asJSON {
				_, err := fmt.Fprintln(cmd.OutOrStdout(),
					"There are no peers: the agent runs with --learn ipam, without BGP.")
				return err
			}
			return show(f, cmd.OutOrStdout(), s.BGP.Peers, printPeers)
		},
	})
}

func routesCommand() *cobra.Command {
	var f agentFlags
	var counters bool
	c := f.addTo(&cobra.Command{
		Use:   "routes [PREFIX|ADDRESS]",
		Short: "Show the routes that are desired or programmed, and why one is not",
		Long: fmt.Sprintf(`Show the routes that are desired or programmed, and why one is not. With
a prefix or an address: those inside it and those that cover it.

With --counters: what VPP has forwarded by its entry for each, since that was made, and then what it
has sent to each next hop, if its counters of adjacencies are on. For more than %d routes VPP lists
all, and its workers stand still meanwhile: about 0.2 s for 100 000 routes. Linux counts none.`,
			route.MaxLookups),
		Example: `  vpp-route-agent routes
  vpp-route-agent routes 10.1.0.7
  vpp-route-agent routes 10.1.0.0/16 --counters
  vpp-route-agent routes 10.1.0.0/16 -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("routes takes one prefix or address, and %q is another", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{}
			if len(args) == 1 {
				if _, err := agent.ParsePrefixOrAddr(args[0]); err != nil {
					return usageError{err}
				}
				query.Set("prefix", args[0])
			}
			printTable := printRoutes
			if counters {
				query.Set("counters", "true")
				printTable = printCountedRoutes
			}
			var routes []agent.RouteStatus
			if err := get(cmd.Context(), f.socket, "/v1/routes", query, &routes); err != nil {
				return err
			}
			if err := show(f, cmd.OutOrStdout(), routes, printTable); err != nil || f.asJSON {
				return err
			}
			if counters {
				var hops agent.HopsCounted
				err := get(cmd.Context(), f.socket, "/v1/next-hops", nil, &hops)
				if err != nil {
					return err
				}
				return printCountedHops(cmd.OutOrStdout(), routes, hops)
			}
			if len(args) == 0 {
				return nil
			}
			var s agent.Status
			if err := get(cmd.Context(), f.socket, "/v1/status", nil, &s); err != nil {
				return err
			}
			p, _ := agent.ParsePrefixOrAddr(args[0])
			note := remark(p, routes, s.BGP.Announcements, func() (m agent.MatchStatus, err error) {
				query := url.Values{"address": {p.Addr().String()}}
				return m, get(cmd.Context(), f.socket, "/v1/match", query, &m)
			})
			_, err := io.WriteString(cmd.OutOrStdout(), note)
			return err
		},
	})
	c.Flags().BoolVar(&counters, "counters", false, "with packets and bytes, where VPP counts them")
	return c
}

func tunnelsCommand() *cobra.Command {
	var f agentFlags
	return f.addTo(&cobra.Command{
		Use: "tunnels", Short: "Show the tunnels to other nodes, and why one is not there",
		Long: `Show the tunnels to other nodes, and why one is not there. There is one to each
other Node with an address as soon as a pool encapsulates: also those to which packets leave as they
are may send tunnelled ones.

Packets and bytes are counted by VPP: in both directions for VXLAN, with the headers of Ethernet,
and going out all others; for IPIP those of routes to that node alone, since each was made.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []agent.TunnelStatus
			if err := get(cmd.Context(), f.socket, "/v1/tunnels", nil, &all); err != nil {
				return err
			}
			return show(f, cmd.OutOrStdout(), all, printTunnels)
		},
	})
}

func guardCommand() *cobra.Command {
	c := &cobra.Command{Use: "guard", Short: "The guard against mass deletion"}
	var socket string
	release := &cobra.Command{
		Use: "release", Short: "Carry out the deletions that the guard holds now",
		Long: `Suspiciously many deletions after a new listing of etcd are held for a minute
(--guard-share, --guard-minimum). status shows them. This carries them out at once.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var held []agent.GuardStatus
			if err := post(cmd.Context(), socket, "/v1/guard/release", nil, &held); err != nil {
				return err
			}
			if len(held) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing was held")
			}
			for _, g := range held {
				fmt.Fprintf(cmd.OutOrStdout(), "released %d deletions of %s\n", g.Held,
					heldBy(g))
			}
			return nil
		},
	}
	socketFlag(release, &socket)
	c.AddCommand(release)
	return c
}
