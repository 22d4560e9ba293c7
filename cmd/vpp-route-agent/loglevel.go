package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/agent"
)

// asConfigured ends what log-level has changed.
const asConfigured = "configured"

var logLevels = []string{"debug", "info", "warn", "error", asConfigured}

func logLevelCommand() *cobra.Command {
	var f agentFlags
	var during time.Duration
	c := f.addTo(&cobra.Command{
		Use:   "log-level [debug|info|warn|error|configured]",
		Short: "Show the log level of the running agent, or change it for a while",
		Long: `Show the log level of the running agent, or change it for a while, without a restart.
It overrides --log-level and Calico's logSeverityScreen for as long as --for says, 24h at most, and
ends with the process. "configured" ends it at once.`,
		Example: `  vpp-route-agent log-level
  vpp-route-agent log-level debug --for 5m
  vpp-route-agent log-level configured`,
		ValidArgs: logLevels,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return fmt.Errorf("log-level takes one level, and %q is another", args[1])
			case len(args) == 1 && !slices.Contains(logLevels, args[0]):
				return fmt.Errorf("%q is none of %s", args[0], strings.Join(logLevels, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var s agent.LogLevelStatus
			switch {
			case cmd.Flags().Changed("for") && (len(args) == 0 || args[0] == asConfigured):
				return usageError{errors.New("--for goes with a level")}
			case len(args) == 0:
				err = get(cmd.Context(), f.socket, "/v1/log-level", nil, &s)
			case args[0] == asConfigured:
				err = post(cmd.Context(), f.socket, "/v1/log-level", url.Values{"for": {"0"}}, &s)
			case during <= 0, during > agent.MaxLogOverride:
				return usageError{fmt.Errorf("--for %s is not more than 0 and at most %s", during,
					agent.MaxLogOverride)}
			default:
				err = post(cmd.Context(), f.socket, "/v1/log-level", url.Values{"level": {args[0]},
					"for": {during.String()}}, &s)
			}
			if err != nil {
				return err
			}
			if len(args) == 1 && args[0] == asConfigured && !f.asJSON {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "as configured again")
				return err
			}
			return show(f, cmd.OutOrStdout(), s, printLogLevel)
		},
	})
	c.Flags().DurationVar(&during, "for", 5*time.Minute, "how long it stays so")
	return c
}

func printLogLevel(w io.Writer, s agent.LogLevelStatus) error {
	if s.Until == nil {
		_, err := fmt.Fprintf(w, "%s, as configured\n", s.Level)
		return err
	}
	_, err := fmt.Fprintf(w, "%s until %s\n", s.Level, s.Until.Local().Format(time.TimeOnly))
	return err
}
