package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/agent"
)

func drainCommand() *cobra.Command {
	var (
		socket               string
		wait                 time.Duration
		untilIdle            rate
		stay, cancel, detach bool
	)
	c := &cobra.Command{
		Use:   "drain",
		Short: "Take this node out of service without losing packets that have another path",
		Long: `Take this node out of service. What it announces gets the community
GRACEFUL_SHUTDOWN (RFC 8326) and LOCAL_PREF 0, and what it passes on to eBGP peers gets the
community, so that other nodes use other paths. After --wait its routes are withdrawn. Then BGP
sends CEASE and the agent ends with status 3, after which the systemd unit does not start it again.
Until then --cancel ends the drain. The FIB stays.

With --until-idle the wait ends as soon as this node has forwarded at most that many packets a
second for 5 s; --wait bounds it. Without VPP these are the packets that the kernel forwards; with
VPP all that it receives on its interfaces, also those of the host itself, out of its statistics
segment (--vpp-stats-socket of the agent). Where they cannot be counted, only time counts, and
status says so.

With --stay the agent goes on, withdrawn, also across restarts, until --cancel: for supervisors
that start again whatever ends, such as a DaemonSet.

The command waits until the drain is over; interrupting it does not cancel the drain.`,
		Example: `  vpp-route-agent drain --wait 2m
  vpp-route-agent drain --until-idle 10 --wait 30m
  vpp-route-agent drain --stay --detach
  vpp-route-agent drain --cancel`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if cancel {
				for _, other := range []string{"stay", "wait", "detach", "until-idle"} {
					if cmd.Flags().Changed(other) {
						return usageError{fmt.Errorf("--cancel and --%s exclude each other", other)}
					}
				}
				var d agent.DrainStatus
				if err := post(cmd.Context(), socket, "/v1/drain/cancel", nil, &d); err != nil {
					return err
				}
				fmt.Fprintln(out, "cancelled: everything is announced as before")
				warnAfterRestart(cmd.ErrOrStderr(), d)
				return nil
			}
			if wait < 0 || wait > agent.MaxDrain {
				return usageError{fmt.Errorf("--wait must lie between 0s and %s", agent.MaxDrain)}
			}
			var d agent.DrainStatus
			query := url.Values{"wait": {wait.String()}, "stay": {strconv.FormatBool(stay)}}
			when := "withdrawn at"
			if cmd.Flags().Changed("until-idle") {
				query.Set("until-idle", untilIdle.String())
				when = "withdrawn when idle, at the latest at"
			}
			if err := post(cmd.Context(), socket, "/v1/drain", query, &d); err != nil {
				return err
			}
			fmt.Fprintf(out, "draining: announced as the worst choice, %s %s; `drain --cancel` "+
				"ends that\n", when, d.Until.Local().Format(time.TimeOnly))
			warnAfterRestart(cmd.ErrOrStderr(), d)
			if detach {
				return nil
			}
			return followDrain(cmd.Context(), out, socket)
		},
	}
	socketFlag(c, &socket)
	c.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long others may take to find other "+
		"paths before everything is withdrawn")
	c.Flags().Var(&untilIdle, "until-idle", "withdraw earlier, when this node has "+
		"forwarded at most that many for 5 s; not given: only time counts")
	c.Flags().BoolVar(&stay, "stay", false, "do not end the agent; stay withdrawn until "+
		"--cancel, also across restarts")
	c.Flags().BoolVar(&cancel, "cancel", false, "take a drain back")
	c.Flags().BoolVar(&detach, "detach", false, "do not wait until the drain is over")
	return c
}

// rate is the value of a flag.
type rate float64

func (r *rate) String() string { return strconv.FormatFloat(float64(*r), 'g', -1, 64) }
func (r *rate) Type() string   { return "packets/s" }
func (r *rate) Set(text string) error {
	parsed, err := agent.ParseRate(text)
	*r = rate(parsed)
	return err
}

// warnAfterRestart warns of a note on disk that is not right: a restart would not follow the drain.
func warnAfterRestart(w io.Writer, d agent.DrainStatus) {
	if after := d.AfterRestart(); after != "" {
		fmt.Fprintln(w, "warning:", after)
	}
}

var errDrainGoesOn = errors.New("interrupted; the drain goes on, `drain --cancel` ends it")

// followDrain waits until the drain is over or was cancelled.
func followDrain(ctx context.Context, out io.Writer, socket string) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	withdrawn, said := false, ""
	var started time.Time // of the agent that was seen withdrawn

	say := func(waitsFor string) { // once
		if waitsFor != said {
			said = waitsFor
			fmt.Fprintln(out, waitsFor)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return errDrainGoesOn
		case <-tick.C:
		}
		var s agent.Status
		err := get(ctx, socket, "/v1/status", nil, &s)
		switch {
		case ctx.Err() != nil:
			return errDrainGoesOn
		case err != nil && withdrawn && !errors.Is(err, context.DeadlineExceeded):
			fmt.Fprintln(out, "drained: the agent has stopped")
			return nil
		case err != nil:
			return err
		case s.Drain == nil && withdrawn && !s.Started.Equal(started):
			fmt.Fprintln(out, "drained: the agent has stopped, and was started again")
			return nil
		case s.Drain == nil:
			return errors.New("the drain was cancelled")
		case s.Drain.Phase == agent.Withdrawn && !withdrawn:
			withdrawn, started = true, s.Started
			fmt.Fprintln(out, "withdrawn")
			if s.Drain.Stay {
				return nil
			}
			say("the agent ends when that has had time to reach every node")
		case s.Drain.NotWithdrawn != "":
			say("not everything is withdrawn yet: " + s.Drain.NotWithdrawn)
		case s.Drain.TrafficUnknown != "":
			say("packets cannot be counted, so only time counts: " + s.Drain.TrafficUnknown)
		case s.Drain.Ending != "":
			say("the agent ends: " + s.Drain.Ending)
		}
	}
}
