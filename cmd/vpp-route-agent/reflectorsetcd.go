package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vpp-route-agent/bgp/reflector"
	"vpp-route-agent/internal/reflectors"
)

// deskSettings are the settings of `run` that say where agents and controllers meet.
var deskSettings = []string{"etcd-endpoints", "etcd-username", "etcd-password-file",
	"etcd-ca-cert-file", "etcd-cert-file", "etcd-key-file", "datastore-type", "kubeconfig",
	"k8s-current-context", "k8s-api-endpoint", "k8s-ca-file", "k8s-cert-file", "k8s-key-file",
	"k8s-insecure-skip-tls-verify", "calico-api-group", "reflector-namespace"}

// deskCommand is a command that reads or writes what a reflector controller works by.
func deskCommand(c *cobra.Command, run func(*cobra.Command, []string, *reflectors.Desk) error,
) *cobra.Command {
	addMissing(c.Flags(), deskSettings)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := settingsOf(cmd)
		if err != nil {
			return usageError{err}
		}
		cfg.forReflectors()
		desk, err := newDesk(cfg)
		if err != nil {
			return usageError{err}
		}
		defer sayWhenSlow(func() string {
			return fmt.Sprintf("%s, for %s at most, and what follows from it", cfg.where(),
				reflectors.Patience)
		})()
		err = run(cmd, args, desk)
		if err == nil || errors.Is(err, errSilent) || errors.As(err, new(usageError)) ||
			errors.As(err, new(refusal)) || isOfOutput(err) {
			return err
		}
		return fmt.Errorf("%s (%s): %s", cfg.where(), cfg.settingsOfWhere(), desk.Explain(err))
	}
	return c
}

// isOfOutput reports whether standard output could not be written.
func isOfOutput(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p) && p.Path == os.Stdout.Name()
}

func newDesk(cfg config) (*reflectors.Desk, error) {
	store, err := cfg.kubernetesStore()
	if store == nil && err == nil {
		return reflectors.NewDesk(cfg.etcd(), version)
	}
	if err != nil {
		return nil, err
	}
	return reflectors.NewKubernetesDesk(*store, version), nil
}

// refusal is a sentence that says why a command changes nothing.
type refusal struct{ error }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// reflectorsView is what reflectors status shows.
type reflectorsView struct {
	Goal        reflector.Goal     `json:"goal"`
	Reached     bool               `json:"reached"`
	Controllers []reflectors.State `json:"controllers"` // the one that leads is the first
	Stray       []string           `json:"stray"`       // keys that no controller has written
	reflector.Overview
}

func reflectorsStatus() *cobra.Command {
	var asJSON bool
	var kubeconfig string
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the reflectors, the goal, and what the controller does or waits for",
		Long: `Show the goal, what the controller does or waits for, the reflectors and how many
nodes have all their routes, and what is not as wanted. It is read from the datastore: no agent and
no controller is asked. In a pod, or with --kubeconfig, Nodes of Kubernetes count, too.

Exit status 1 says that sessions are down, that an agent has not applied the last change, that a
client is in a group that a person chose, or that the goal is not reached.`,
		Example: `  vpp-route-agent reflectors status
  vpp-route-agent reflectors status -o json`,
	}
	outputFlag(c, &asJSON)
	addKubeconfig(c.Flags(), &kubeconfig)
	return deskCommand(c, func(cmd *cobra.Command, _ []string, desk *reflectors.Desk) error {
		consult, err := consultation(cmd, desk, kubeconfig)
		if err != nil {
			return err
		}
		v, err := look(cmd, desk)
		if err != nil {
			return err
		}
		consult(v)
		overview, err := reflector.NewOverview(v.World, v.Goal.Config)
		if err != nil {
			return refuse("the configuration in the goal: %w", err)
		}
		out := reflectorsView{v.Goal, v.Reached(), v.Controllers, v.Stray, overview}
		print := printReflectors
		if asJSON {
			print = func(w io.Writer, r reflectorsView) error { return printJSON(w, r) }
		}
		if err := print(cmd.OutOrStdout(), out); err != nil {
			return err
		}
		if len(out.Problems) > 0 || isGoal(out.Goal) && !out.Reached {
			return errSilent
		}
		return nil
	})
}

// look reads everything; a goal that cannot be read is an error.
func look(cmd *cobra.Command, desk *reflectors.Desk) (reflectors.View, error) {
	v, err := desk.Look(cmd.Context())
	if err == nil && v.BadGoal != nil {
		err = refusal{v.BadGoal}
	}
	return v, err
}

// kubernetesPatience is how long a command waits for Nodes of Kubernetes, which it can do without.
const kubernetesPatience = 5 * time.Second

// consultation asks Kubernetes for its Nodes, if they count, and returns what lets them. While the
// API server does not answer they do not, as for a controller.
func consultation(cmd *cobra.Command, desk *reflectors.Desk, kubeconfig string) (
	func(reflectors.View), error) {
	nothing := func(reflectors.View) {}
	client, err := desk.Kubernetes(), error(nil)
	if client == nil || kubeconfig == noNodes {
		client, err = kubernetesClient(kubeconfig)
	}
	switch {
	case err != nil:
		return nil, usageError{err}
	case client == nil:
		return nothing, nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), kubernetesPatience)
	defer cancel()
	nodes, err := client.Nodes(ctx)
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: Nodes of Kubernetes do not count: %v\n", err)
		return nothing, nil
	}
	return func(v reflectors.View) { v.Consult(nodes) }, nil
}

func isGoal(g reflector.Goal) bool {
	return cmp.Or(g.Mode, reflector.Observe) != reflector.Observe
}

func printReflectors(w io.Writer, v reflectorsView) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "Goal: %s\n", goalText(v.Goal))
	writeControllers(b, v)
	mesh := "off"
	if v.MeshOn {
		mesh = "on"
	}
	fmt.Fprintf(b, "Mesh: %s. %s, %d with an agent of this version\n", mesh,
		count(v.Nodes, "node", "nodes"), v.Agents)
	if len(v.Unseen) > 0 {
		fmt.Fprintf(b, "Without one: %s\n", firstOf(v.Unseen))
	}
	if len(v.Reflectors) > 0 {
		tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "REFLECTOR\tZONE\tMADE BY\tSESSIONS\tCOMPLETE\tNOTE")
		for _, r := range v.Reflectors {
			by := "controller"
			if r.Person {
				by = "a person"
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%s\n", r.Node, cmp.Or(r.Zone, "-"), by, r.Sessions,
				r.Complete, cmp.Or(r.Unfit, "-"))
		}
		_ = tw.Flush() // into memory
	}
	for _, c := range v.Cordoned {
		fmt.Fprintf(b, "Cordoned: %s (%s)\n", c.Node, c.Reason)
	}
	const few = 10
	for i, p := range v.Problems {
		if i == few {
			fmt.Fprintf(b, "! and %d more; -o json has all\n", len(v.Problems)-few)
			break
		}
		fmt.Fprintf(b, "! %s\n", p)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func goalText(g reflector.Goal) string {
	text := string(cmp.Or(g.Mode, reflector.Observe))
	if g.Undo != "" {
		text += "; undone: " + g.Undo
	}
	if !g.Since.IsZero() && isGoal(g) {
		text += ", last step or change at " + g.Since.Local().Format(time.DateTime)
	}
	if g.Paused {
		text += ", paused"
	}
	return text
}

func writeControllers(b *strings.Builder, v reflectorsView) {
	for _, key := range v.Stray {
		fmt.Fprintf(b, "Delete %s in etcd: no controller has written it, and none leads before\n",
			key)
	}
	if len(v.Controllers) == 0 || !v.Controllers[0].Leads {
		fmt.Fprintln(b, "Controller: none leads, so nothing goes on")
		return
	}
	leader := v.Controllers[0]
	fmt.Fprintf(b, "Controller: %s leads, version %s", leader.Name, leader.Version)
	if n := len(v.Controllers) - 1; n > 0 {
		fmt.Fprintf(b, "; %d more", n)
	}
	switch {
	case leader.Waits != "" && leader.Person:
		fmt.Fprintf(b, "\n  waits for a person: %s\n", leader.Waits)
	case leader.Waits != "":
		fmt.Fprintf(b, "\n  waits: %s\n", leader.Waits)
	default:
		fmt.Fprintf(b, "\n  done: %s\n", leader.Done)
	}
	if leader.Kubernetes != "" {
		fmt.Fprintf(b, "  Kubernetes: %s\n", leader.Kubernetes)
	}
	if leader.Last != "" {
		fmt.Fprintf(b, "  last step, at %s: %s\n", leader.LastAt.Local().Format(time.DateTime),
			leader.Last)
	}
}

func firstOf(all []string) string {
	const few = 5
	if len(all) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
	}
	return strings.Join(all, ", ")
}

func reflectorsMigrate() *cobra.Command {
	var (
		toMode                   string
		dryRun, asJSON           bool
		acceptLoss, acceptUnseen bool
		kubeconfig               string
	)
	c := &cobra.Command{
		Use:   "migrate --to reflectors|mesh",
		Short: "Have the controller move the cluster to route reflectors, or back to the mesh",
		Long: `Have the controller move the cluster to route reflectors, or back to the mesh. This
command checks what is in the datastore, and writes the goal. The controller takes the steps, each
once its gates are open, and undoes them where a gate stays shut; "reflectors status" shows how far
it is.

--dry-run shows the steps and what would be in the way, and writes nothing. In a pod, or with
--kubeconfig, it chooses reflectors by Nodes of Kubernetes, too, as such a controller does.

Exit status 1 says that nothing was written, and why.`,
		Example: `  vpp-route-agent reflectors migrate --to reflectors --dry-run
  vpp-route-agent reflectors migrate --to reflectors
  vpp-route-agent reflectors migrate --to mesh`,
	}
	outputFlag(c, &asJSON)
	f := c.Flags()
	f.StringVar(&toMode, "to", "", "reflectors or mesh")
	f.BoolVar(&dryRun, "dry-run", false, "show the steps and write nothing")
	f.BoolVar(&acceptLoss, "accept-loss", false,
		"accept that flows beside nodes with BIRD are lost for some seconds")
	f.BoolVar(&acceptUnseen, "accept-unseen", false, "accept that no gate looks at nodes whose "+
		"calico-node does not answer, or whose agent has another version")
	addKubeconfig(f, &kubeconfig)
	_ = c.RegisterFlagCompletionFunc("to",
		cobra.FixedCompletions(reflectorModes, cobra.ShellCompDirectiveNoFileComp))
	return deskCommand(c, func(cmd *cobra.Command, _ []string, desk *reflectors.Desk) error {
		if !slices.Contains(reflectorModes, toMode) {
			return usageError{fmt.Errorf("--to %q is neither reflectors nor mesh%s", toMode,
				didYouMean(toMode, reflectorModes))}
		}
		if asJSON && !dryRun {
			return usageError{errors.New("-o json goes with --dry-run")}
		}
		consult, err := consultation(cmd, desk, kubeconfig)
		if err != nil {
			return err
		}
		mode := reflector.Mode(toMode)
		if dryRun {
			return previewMigration(cmd, desk, mode, consult, asJSON)
		}
		return steer(cmd, desk, func(v reflectors.View, g *reflector.Goal) error {
			if g.Mode == mode && g.Undo == "" && !g.Paused && g.AcceptLoss == acceptLoss &&
				g.AcceptUnseen == acceptUnseen {
				return refuse("the goal is %s already", mode)
			}
			*g = g.Migrate(v.World, mode)
			g.AcceptLoss, g.AcceptUnseen = acceptLoss, acceptUnseen
			consult(v)
			p, err := reflector.NewPreview(v.World, *g)
			switch {
			case err != nil:
				return refuse("the configuration in the goal: %w", err)
			case len(p.Obstacles) > 0:
				return refuse("in the way: %s", strings.Join(p.Obstacles, "; "))
			case p.Loss != "" && !acceptLoss:
				return refuse("%s. Say --accept-loss", p.Loss)
			}
			return nil
		})
	})
}

// previewMigration shows the steps to a mode from what is in the datastore.
func previewMigration(cmd *cobra.Command, desk *reflectors.Desk, mode reflector.Mode,
	consult func(reflectors.View), asJSON bool) error {
	v, err := look(cmd, desk)
	if err != nil {
		return err
	}
	consult(v)
	p, err := reflector.NewPreview(v.World, v.Goal.Migrate(v.World, mode))
	if err != nil {
		return refuse("the configuration in the goal: %w", err)
	}
	return showPreview(cmd.OutOrStdout(), p, asJSON)
}

// steer changes the goal, and says what it is now.
func steer(cmd *cobra.Command, desk *reflectors.Desk,
	change func(reflectors.View, *reflector.Goal) error) error {
	var after reflectors.View
	err := desk.Change(cmd.Context(), func(v reflectors.View) (reflectors.Changes, error) {
		if v.BadGoal != nil {
			return reflectors.Changes{}, refusal{v.BadGoal}
		}
		g := v.Goal
		err := change(v, &g)
		after = v
		after.Goal = g
		return reflectors.Changes{Goal: &g}, err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "goal: %s\n", goalText(after.Goal))
	if _, leads := after.Leader(); !leads && isGoal(after.Goal) {
		fmt.Fprintln(cmd.ErrOrStderr(),
			"warning: no controller leads, so nothing goes on: start one with "+
				"`vpp-route-agent reflector-controller`")
	}
	return nil
}

// errNoGoal is for commands that change a migration.
var errNoGoal = refuse("there is no migration: the goal is observe")

func reflectorsPause() *cobra.Command {
	return deskCommand(&cobra.Command{
		Use: "pause", Short: "Have the controller take no step until resume",
		Long: `Have the controller take no step until resume. What is done stays, and sessions and
routes with it. While it is paused no reflector that dies is replaced.`,
	}, func(cmd *cobra.Command, _ []string, desk *reflectors.Desk) error {
		return steer(cmd, desk, func(_ reflectors.View, g *reflector.Goal) error {
			if !isGoal(*g) {
				return errNoGoal
			}
			g.Paused = true
			return nil
		})
	})
}

func reflectorsResume() *cobra.Command {
	return deskCommand(&cobra.Command{
		Use: "resume", Short: "End a pause; gates have their whole time limit again",
	}, func(cmd *cobra.Command, _ []string, desk *reflectors.Desk) error {
		return steer(cmd, desk, func(_ reflectors.View, g *reflector.Goal) error {
			if !g.Paused {
				return refuse("the controller is not paused")
			}
			g.Paused = false
			if !g.Since.IsZero() {
				g.Since = time.Now()
			}
			return nil
		})
	})
}

func reflectorsAbort() *cobra.Command {
	return deskCommand(&cobra.Command{
		Use: "abort", Short: "Have the steps of the present migration undone, in reverse order",
		Long: `Have the steps of the present migration undone in reverse order, each through its
gates. Once the goal is reached there is nothing to abort: "migrate" goes the other way.`,
	}, func(cmd *cobra.Command, _ []string, desk *reflectors.Desk) error {
		return steer(cmd, desk, func(_ reflectors.View, g *reflector.Goal) error {
			switch {
			case !isGoal(*g):
				return errNoGoal
			case g.Undo != "":
				return refuse("it is undone already: %s", g.Undo)
			case g.From == "":
				return refuse("no migration goes on: there is nothing to abort, use migrate --to")
			case g.From == g.Mode && g.Mode == reflector.Reflectors:
				return refuse("the cluster had reflectors before: there is nothing to abort")
			case g.From == g.Mode:
				return refuse("the cluster has had no reflectors: there is nothing to abort")
			}
			g.Undo, g.Paused, g.Since = reflector.Aborted, false, time.Now()
			return nil
		})
	})
}

func reflectorsForget() *cobra.Command {
	return deskCommand(&cobra.Command{
		Use: "forget NODE", Short: "Say that a node runs no agent any more",
		Long: `Say that a node runs no agent any more, but BIRD. An agent without a status may be
cut off from the datastore and go on with what it has read, so the controller waits for it. Forget
it only when it has ended. A node whose Calico Node is deleted is forgotten by itself.`,
		Args: arguments(1, 1),
	}, func(cmd *cobra.Command, args []string, desk *reflectors.Desk) error {
		node := args[0]
		err := desk.Change(cmd.Context(), func(v reflectors.View) (c reflectors.Changes, _ error) {
			switch a, known := v.World.Agents[node]; {
			case !slices.Contains(v.Noted, node):
				return c, refuse("no agent is noted for %s", node)
			case known && a.Lost.IsZero():
				return c, refuse("the agent of %s publishes its status", node)
			}
			c.Noted = slices.DeleteFunc(slices.Clone(v.Noted), func(n string) bool {
				return n == node
			})
			return c, nil
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s counts as a node without an agent\n", node)
		return err
	})
}

func reflectorsSet() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "set -f FILE|-", Short: "Set how reflectors are chosen",
		Long: `Set how reflectors are chosen: a YAML file whose fields docs/reflectors.md lists, as
for "reflectors plan --rules". What the file does not name has its default. It is kept with the
goal, so that all controllers have the same. While the cluster has reflectors, the controller
follows at once; label, clusterID and topology cannot change then.`,
		Example: `  vpp-route-agent reflectors set -f rules.yaml`,
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "YAML file; - for standard input")
	return deskCommand(c, func(cmd *cobra.Command, _ []string, desk *reflectors.Desk) error {
		if file == "" {
			return usageError{errors.New("give -f FILE, or -f - for standard input")}
		}
		var config reflector.Config
		if err := readRules(cmd, file, &config); err != nil {
			return usageError{err}
		}
		if err := config.Check(); err != nil {
			return usageError{fmt.Errorf("%s: %w", file, err)}
		}
		return steer(cmd, desk, func(v reflectors.View, g *reflector.Goal) error {
			if v.World.Begun() && !g.Config.SameRoles(config) {
				return refuse("label, clusterID and topology stay as they are while there are " +
					"reflectors: migrate --to mesh first")
			}
			g.Config = config
			if isGoal(*g) {
				g.Since = time.Now()
			}
			return nil
		})
	})
}
