// Command vpp-route-agent is a node daemon for Calico clusters that forward with VPP. This package
// turns flags, environment and file into configuration and puts the parts together; it decides
// nothing about routes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"vpp-route-agent/bgp/gobgp"
	"vpp-route-agent/internal/agent"
)

// version is set by the Makefile (-ldflags -X main.version=…) from git describe.
var version = "unknown"

// errSilent ends a command with status 1 and without a message.
var errSilent = errors.New("not well")

func main() {
	// Go ends a crash, and a watchdog's SIGABRT, with status 2. That is ours for a wrong call,
	// after which supervisors do not start us again; so a crash ends by the signal.
	debug.SetTraceback("crash")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, agent.ErrDrained) && !errors.Is(err, errSilent) {
		fmt.Fprintln(os.Stderr, "vpp-route-agent:", err)
	}
	os.Exit(exitStatus(err))
}

// exitStatus is what the process ends with.
func exitStatus(err error) int {
	isUsage := errors.As(err, &usageError{}) && !errors.Is(err, errInterrupted)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, agent.ErrDrained):
		return 3
	case errors.Is(err, errSilent):
		return 1
	case isUsage || errors.As(err, &diffError{}):
		return 2
	}
	return 1
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "vpp-route-agent",
		Short: "Calico's routes over BGP into VPP",
		Long: `vpp-route-agent announces this node's Calico IPAM blocks and workload addresses over
BGP, peers with calico-node (BIRD), route reflectors and routers as Calico's resources say, and
keeps the FIB of VPP (or of the kernel) equal to what those peers announce.

Exit status: 0 success, 1 failure, 2 wrong usage, 3 run ended because the node was drained. With
plan --diff 1 means that something would change, and 2 any error.`,
		SilenceUsage: true, SilenceErrors: true,
		Version: version,
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(runCommand(), statusCommand(), explainCommand(), historyCommand(),
		traceCommand(), dumpCommand(), mrtCommand(), replayCommand(), peersCommand(),
		routesCommand(), tunnelsCommand(), auditCommand(), guardCommand(), externalCommand(),
		drainCommand(), logLevelCommand(), planCommand(), diffCommand(),
		supportCommand(), reflectorsCommand(),
		reflectorControllerCommand(), versionCommand(), demoCommand(), labCommand(),
		configReferenceCommand(), manCommand())
	root.SetHelpCommand(helpCommand())
	root.InitDefaultCompletionCmd()
	forEachCommand(root, checkArguments)
	return root
}

// build is the JSON of version.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	GoBGP    string `json:"gobgp"`
	Outdated bool   `json:"gobgpOutdated,omitempty"`
}

func thisBuild() build {
	return build{version, runtime.Version(), runtime.GOOS, runtime.GOARCH, gobgp.Version(),
		gobgp.Outdated()}
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Print the version of this binary",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := thisBuild()
			if asJSON {
				return printJSON(cmd.OutOrStdout(), v)
			}
			note := ""
			if v.Outdated {
				note = "; NOT those of this commit: it was built without make"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "vpp-route-agent %s (%s %s/%s, GoBGP %s%s)\n",
				v.Version, v.Go, v.OS, v.Arch, v.GoBGP, note)
			return err
		},
	}
	outputFlag(c, &asJSON)
	return c
}
