package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/recorder"
)

func mrtCommand() *cobra.Command {
	var s recorder.UpdatesSelection
	var dir, peer string
	var since time.Duration
	c := &cobra.Command{
		Use:   "mrt",
		Short: "Write what BGP peers have sent, as an MRT file",
		Long: `Write what BGP peers have sent to standard output, as an MRT file, the oldest first.

These are messages as they were received, also such as were refused, but for OPEN and KEEPALIVE, and
sessions that came up or went, with microseconds (RFC 6396 BGP4MP_ET, RFC 8050). bgpdump and gobgp
read it. The state directory is read: the agent need not run.`,
		Example: `  vpp-route-agent mrt --since 10m | bgpdump -m -
  vpp-route-agent mrt --peer 10.0.0.1 > tor-1.mrt`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if s.Since, err = sinceTime(cmd, since); err != nil {
				return err
			}
			if peer != "" {
				if s.Peer, err = netip.ParseAddr(peer); err != nil {
					return usageError{err}
				}
				s.Peer = s.Peer.Unmap().WithZone("")
			}
			count := &counter{w: cmd.OutOrStdout()}
			w := bufio.NewWriter(count)
			problems, err := recorder.Updates(recorderDir(dir), s, w)
			err = sayProblems(cmd.ErrOrStderr(), problems, errors.Join(err, w.Flush()))
			if err == nil && count.n == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no message is recorded that fits")
			}
			return err
		},
	}
	stateDirFlag(c, &dir)
	sinceFlag(c, &since)
	c.Flags().StringVar(&peer, "peer", "", "address of the peer; default: all")
	c.Flags().BoolVar(&s.WholeSeconds, "whole-seconds", false, "leave out microseconds "+
		"(BGP4MP), for readers that do not know BGP4MP_ET, such as the released gobgp 3")
	return c
}
