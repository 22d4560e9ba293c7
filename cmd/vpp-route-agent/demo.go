package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/demo"
)

func demoCommand() *cobra.Command {
	var (
		asJSON bool
		cfg    demo.Config
	)
	dataplanes := []string{"auto", "vpp", "kernel"}
	learn := []string{"bgp", "ipam", "bgp,ipam"}
	datastores := []string{"etcd", "kubernetes"}
	encaps := []string{"none", "ipip", "vxlan"}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole cluster on this machine: etcd, three nodes, BIRD, real packets",
		Long: `Run a whole cluster on this machine, in network namespaces: Calico's data in an
etcd, two nodes with this agent, one with BIRD as calico-node configures it, and workloads that
ping each other while one moves, a block is released and an agent is killed. It takes less than 90
s, needs root, and leaves nothing behind. Exit status 0 means that every check held.

The agents' nodes forward with VPP where there is a vpp on PATH, or VPP_BIN (with VPP_PLUGIN_PATH)
names one; else with the kernel.`,
		Example: `  sudo vpp-route-agent demo
  sudo vpp-route-agent demo --keep
  sudo vpp-route-agent demo --learn ipam
  sudo vpp-route-agent demo --datastore kubernetes
  sudo vpp-route-agent demo --encap vxlan
  sudo VPP_BIN=/path/vpp VPP_PLUGIN_PATH=/path/vpp_plugins vpp-route-agent demo --dataplane vpp`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(dataplanes, cfg.Dataplane) {
				return usageError{fmt.Errorf(
					"--dataplane %q is none of auto, vpp, kernel", cfg.Dataplane)}
			}
			cfg.Learn = strings.Replace(cfg.Learn, "etcd", "ipam", 1) // its earlier name
			if !slices.Contains(learn, cfg.Learn) {
				return usageError{fmt.Errorf(
					"--learn %q is none of bgp, ipam and bgp,ipam", cfg.Learn)}
			}
			switch {
			case !slices.Contains(datastores, cfg.Datastore):
				return usageError{fmt.Errorf(
					"--datastore %q is neither etcd nor kubernetes", cfg.Datastore)}
			case cfg.Datastore == "kubernetes" && cfg.Learn == "ipam":
				return usageError{errors.New("--learn ipam publishes uplinks, which needs etcd: " +
					"not with --datastore kubernetes")}
			}
			switch {
			case !slices.Contains(encaps, cfg.Encap):
				return usageError{fmt.Errorf(
					"--encap %q is none of none, ipip and vxlan", cfg.Encap)}
			case cfg.Encap == "none":
			case cfg.Dataplane == "kernel":
				return usageError{errors.New("--encap needs VPP: on Linux Felix has the tunnels")}
			case cmd.Flags().Changed("learn") && cfg.Learn != "ipam" ||
				cfg.Datastore == "kubernetes":
				return usageError{fmt.Errorf("--encap %s is a story without BGP, with its data in "+
					"etcd", cfg.Encap)}
			default:
				cfg.Learn, cfg.Dataplane = "ipam", "vpp"
			}
			if err := demo.Available(cfg.Dataplane); err != nil {
				return usageError{err}
			}
			cfg.Command = os.Args[0]
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			if cfg.BuildDir, err = buildDir(cfg.BuildDir, cfg.Binary); err != nil {
				return err
			}
			cfg.Out, cfg.Color = cmd.OutOrStdout(),
				isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == ""
			if asJSON {
				cfg.Out, cfg.Color = cmd.ErrOrStderr(), false
			}
			cfg.Log = slog.New(slog.NewTextHandler(
				os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
			// A closed terminal, or `demo | head`, must not leave namespaces behind either.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP, syscall.SIGPIPE)
			defer stop()
			result, err := demo.Run(ctx, cfg)
			if asJSON && len(result.Steps) > 0 {
				err = errors.Join(err, printJSON(cmd.OutOrStdout(), result))
			}
			return err
		},
	}
	c.Flags().BoolVar(&cfg.Keep, "keep", false, "leave everything running until Ctrl-C and print "+
		"what to try")
	c.Flags().StringVar(&cfg.Dataplane, "dataplane", "auto", "what the agents' nodes forward "+
		"with: vpp, kernel, or auto for VPP where there is one")
	_ = c.RegisterFlagCompletionFunc("dataplane",
		cobra.FixedCompletions(dataplanes, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&cfg.Learn, "learn", "bgp", "which story: bgp (with BIRD), ipam (agents "+
		"without BGP), or bgp,ipam (IPAM's routes behind BGP's)")
	_ = c.RegisterFlagCompletionFunc("learn",
		cobra.FixedCompletions(learn, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&cfg.Datastore, "datastore", "etcd", "where the agents find Calico's "+
		"data: etcd, or kubernetes, a stand-in for its API")
	_ = c.RegisterFlagCompletionFunc("datastore",
		cobra.FixedCompletions(datastores, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&cfg.Encap, "encap", "none", "what packets between nodes travel in: none, "+
		"ipip or vxlan, which need VPP, and have a story without BGP")
	_ = c.RegisterFlagCompletionFunc("encap",
		cobra.FixedCompletions(encaps, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&cfg.BuildDir, "build-dir", "", "where BIRD's package is unpacked; "+
		"default: the folder build that this program is in, else the user's cache folder")
	outputFlag(c, &asJSON)
	c.AddCommand(demoExecCommand())
	return c
}

func demoExecCommand() *cobra.Command {
	var pid int
	c := &cobra.Command{
		Use:   "exec NODE COMMAND...",
		Short: "Run a command on a node of the demo that demo --keep left running",
		Long: `Run a command on a node, or in a workload, of the demo that "demo --keep" left
running. The client commands of vpp-route-agent, gobgp, birdc and vppctl find the daemons of that
node, and "vpp-route-agent lab" finds the etcd. The exit status is the command's.`,
		Example: `  sudo vpp-route-agent demo exec node-1 vpp-route-agent status
  sudo vpp-route-agent demo exec node-1 gobgp global rib
  sudo vpp-route-agent demo exec node-3 birdc show route
  sudo vpp-route-agent demo exec w1 ping -c 3 10.1.0.129`,
		Args: arguments(1, math.MaxInt), // one is too few, but Exec names the nodes
		RunE: func(_ *cobra.Command, args []string) error {
			err := demo.Exec(pid, args[0], args[1:])
			if len(args) == 1 || errors.Is(err, demo.ErrNoNode) {
				return usageError{err}
			}
			return err
		},
	}
	c.Flags().IntVar(&pid, "pid", 0, "process of the demo, where several are up")
	c.Flags().SetInterspersed(false) // the command's flags are its own
	return c
}

// buildDir is where to unpack packages, for the next time too: never beside a program that was
// installed.
func buildDir(given, binary string) (string, error) {
	if given != "" {
		return given, nil
	}
	if dir := filepath.Dir(binary); filepath.Base(dir) == "build" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", usageError{fmt.Errorf("nowhere to unpack BIRD's package, give --build-dir: %w",
			err)}
	}
	return filepath.Join(cache, "vpp-route-agent"), nil
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
