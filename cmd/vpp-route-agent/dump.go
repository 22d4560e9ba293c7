package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/recorder"
)

func dumpCommand() *cobra.Command {
	var dir string
	var since time.Duration
	c := &cobra.Command{
		Use:   "dump [ADDRESS|PREFIX]",
		Short: "Write all that was recorded as JSON, an object on each line",
		Long: `Write all that was recorded as JSON, an object on each line, the oldest first.

With an address or prefix: what is about that prefix, or about all prefixes that contain the
address, and where records are missing. docs/recorder.md lists the objects. The state directory is
read: the agent need not run. What peers have sent is written by mrt.`,
		Example: `  vpp-route-agent dump --since 10m
  vpp-route-agent dump 10.1.0.0/26 | jq -c 'select(.record == "decided")'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("dump takes one address or prefix, or none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var s recorder.Selection
			asked := &about{shown: true} // all
			var err error
			if len(args) > 0 {
				if asked, err = parseAbout(args[0]); err != nil {
					return err
				}
				s.About = asked.has
			}
			if s.Since, err = sinceTime(cmd, since); err != nil {
				return err
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			enc := json.NewEncoder(w)
			enc.SetEscapeHTML(false)
			problems, err := recorder.Dump(recorderDir(dir), s, func(d recorder.Dumped) error {
				asked.shown = true
				return enc.Encode(d)
			})
			err = sayProblems(cmd.ErrOrStderr(), problems, errors.Join(err, w.Flush()))
			if err == nil {
				asked.sayNone(cmd.ErrOrStderr())
			}
			return err
		},
	}
	stateDirFlag(c, &dir)
	sinceFlag(c, &since)
	return c
}

// sinceFlag adds a flag for how old a record may be; without it all are asked for.
func sinceFlag(c *cobra.Command, since *time.Duration) {
	c.Flags().DurationVar(since, "since", 0, "how old a record may be; default: all")
}

// sinceTime is the time that sinceFlag names; zero: any.
func sinceTime(cmd *cobra.Command, since time.Duration) (time.Time, error) {
	switch {
	case !cmd.Flags().Changed("since"):
		return time.Time{}, nil
	case since <= 0:
		return time.Time{}, usageError{errors.New("--since must be more than 0")}
	}
	return time.Now().Add(-since), nil
}
