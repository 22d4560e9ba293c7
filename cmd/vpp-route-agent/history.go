package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/recorder"
	"vpp-route-agent/internal/route"
)

// stateDirFlag adds the flag that finds what an agent has recorded, whether or not it runs.
func stateDirFlag(c *cobra.Command, dir *string) {
	const env = ownEnvPrefix + "STATE_DIR"
	c.Flags().StringVar(dir, "state-dir", cmp.Or(os.Getenv(env), defaultStateDir),
		"state directory of the agent (environment: "+env+")")
}

// recordTime is how moments are printed: a change may take 50 µs.
const recordTime = "2006-01-02 15:04:05.000000"

func historyCommand() *cobra.Command {
	var asJSON bool
	var dir string
	c := &cobra.Command{
		Use:   "history ADDRESS|PREFIX",
		Short: "Show what was recorded about a prefix: what was heard, decided and written",
		Long: `Show what was recorded about a prefix, or about all prefixes that contain an address.

That is what sources wanted, what was decided and why, and what the data plane was asked and
answered, with the time of each step. The state directory is read: the agent need not run.`,
		Example: `  vpp-route-agent history 10.1.0.0/26
  vpp-route-agent history 10.1.0.7 -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("history takes one address or prefix")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := parseAbout(args[0])
			if err != nil {
				return err
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			printer := historyPrinter(w, asked.prefix)
			if asJSON {
				printer = listPrinter[recorder.Step](w)
			}
			each := func(s recorder.Step) error {
				asked.shown = asked.shown || s.Step != recorder.StepStart
				return printer.each(s)
			}
			problems, err := recorder.History(recorderDir(dir), asked.prefix, asked.has, each)
			if err == nil {
				err = printer.end()
			}
			err = sayProblems(cmd.ErrOrStderr(), problems, errors.Join(err, w.Flush()))
			if err == nil {
				asked.sayNone(cmd.ErrOrStderr())
			}
			return err
		},
	}
	outputFlag(c, &asJSON)
	stateDirFlag(c, &dir)
	return c
}

// sayProblems says which records cannot be read; err is that of all of them.
func sayProblems(w io.Writer, problems []error, err error) error {
	for _, p := range problems {
		fmt.Fprintln(w, "not read:", p)
	}
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: does the agent run with this --state-dir, and not with "+
			"--recorder-size 0 or, for mrt, --recorder-updates-size 0? Is its disk full?", err)
	}
	return err
}

// about is which keys an argument is about: those of a prefix, or all that contain an address.
type about struct {
	prefix    netip.Prefix
	isAddress bool

	shown  bool         // something was printed
	around netip.Prefix // the longest that has records and contains a prefix
}

func parseAbout(text string) (*about, error) {
	prefix, err := agent.ParsePrefixOrAddr(text)
	if err != nil {
		return nil, usageError{err}
	}
	_, err = netip.ParseAddr(text)
	return &about{prefix: prefix, isAddress: err == nil}, nil
}

func (a *about) has(k route.Key) bool {
	contains := k.Prefix.Bits() <= a.prefix.Bits() && k.Prefix.Contains(a.prefix.Addr())
	if k.Prefix == a.prefix || contains && a.isAddress {
		return true
	}
	if contains && k.Prefix.Bits() > a.around.Bits() {
		a.around = k.Prefix
	}
	return false
}

// sayNone says so if nothing was printed, as for a wrong length.
func (a *about) sayNone(w io.Writer) {
	switch {
	case a.shown:
	case a.isAddress:
		fmt.Fprintf(w, "nothing to show about prefixes that contain %s\n", a.prefix.Addr())
	case a.around.IsValid():
		fmt.Fprintf(w, "nothing to show about %s; there are records about %s, which contains it\n",
			a.prefix, a.around)
	default:
		fmt.Fprintf(w, "nothing to show about %s\n", a.prefix)
	}
}

// printer prints what comes one by one, so that memory does not grow with it.
type printer[T any] struct {
	each func(T) error
	end  func() error
}

// historyPrinter prints a table. The column of prefixes grows when a longer one comes.
func historyPrinter(w io.Writer, prefix netip.Prefix) printer[recorder.Step] {
	width := max(len("PREFIX"), len(prefix.String()))
	row := func(at, prefix, step, after, what string) error {
		width = max(width, len(prefix))
		_, err := fmt.Fprintf(w, "%-*s  %-*s  %-*s  %-*s  %s\n", len(recordTime), at, width, prefix,
			len(recorder.StepDatastore), step, len("59m59.9s"), after, what)
		return err
	}
	head := sync.OnceValue(func() error { return row("TIME", "PREFIX", "STEP", "AFTER", "WHAT") })
	return printer[recorder.Step]{
		each: func(s recorder.Step) error {
			return errors.Join(head(), row(s.At.Local().Format(recordTime),
				keyText(s.Prefix, s.Table, s.Elevated), string(s.Step), took(s.Seconds), s.Text))
		},
		end: head,
	}
}

// listPrinter prints a list as printJSON does.
func listPrinter[T any](w io.Writer) printer[T] {
	before, n := "[\n  ", 0
	return printer[T]{
		each: func(v T) error {
			text, err := json.MarshalIndent(v, "  ", "  ")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(w, "%s%s", before, text)
			before, n = ",\n  ", n+1
			return err
		},
		end: func() error {
			end := "\n]\n"
			if n == 0 {
				end = "[]\n"
			}
			_, err := io.WriteString(w, end)
			return err
		},
	}
}

func keyText(p netip.Prefix, table uint32, elevated bool) string {
	if !p.IsValid() {
		return ""
	}
	return route.Key{Prefix: p, Table: table, Elevated: elevated}.String()
}

// took prints a duration with three digits at most; "" for none.
func took(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d <= 0 {
		return ""
	}
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

func traceCommand() *cobra.Command {
	var asJSON bool
	var dir string
	var number int
	var since time.Duration
	c := &cobra.Command{
		Use:   "trace",
		Short: "Show which recent changes took longest, and in which step",
		Long: `Show which recent changes of the data plane took longest, the slowest first.

The steps are: until it was decided (DECIDE), until the data plane was asked for the last time
(WAIT), and until it had answered for all that it was asked at once (ANSWER). The state directory is
read: the agent need not run.`,
		Example: `  vpp-route-agent trace
  vpp-route-agent trace --since 10m --number 3 -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if number < 1 || since <= 0 {
				return usageError{errors.New("--number and --since must be more than 0")}
			}
			all, problems, err := recorder.Trace(recorderDir(dir), number, time.Now().Add(-since))
			if err := sayProblems(cmd.ErrOrStderr(), problems, err); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), append([]recorder.Change{}, all...))
			}
			return printTrace(cmd.OutOrStdout(), all)
		},
	}
	outputFlag(c, &asJSON)
	stateDirFlag(c, &dir)
	c.Flags().IntVar(&number, "number", 20, "how many")
	c.Flags().DurationVar(&since, "since", time.Hour, "how old a change may be")
	return c
}

func printTrace(w io.Writer, all []recorder.Change) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TIME\tPREFIX\tCHANGE\tTOOK\tDECIDE\tWAIT\tANSWER\tTRIES\tREFUSED")
	for _, c := range all {
		change := "put"
		if c.Deletes {
			change = "delete"
		}
		fmt.Fprintln(tw, strings.Join([]string{c.At.Local().Format(recordTime),
			keyText(c.Prefix, c.Table, c.Elevated), change, took(c.Seconds), took(c.Decide),
			took(c.Wait), took(c.Answer), fmt.Sprint(c.Tries), c.Refuse}, "\t"))
	}
	return tw.Flush()
}

func replayCommand() *cobra.Command {
	var asJSON bool
	var dir string
	c := &cobra.Command{
		Use:   "replay",
		Short: "Decide again by all that was recorded, and compare",
		Long: `Decide again by all that was recorded, with the agent's own functions, and compare.

Each decision is compared at the moment when the agent had decided all. A difference is a defect of
the agent or of another version: replay with the binary that recorded.

The state directory is read: the agent need not run. Exit status 1 says that something differs, or
that nothing could be compared.`,
		Example: `  vpp-route-agent replay
  vpp-route-agent replay -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, problems, err := recorder.Replay(recorderDir(dir), agent.NewReplanner)
			if err := sayProblems(cmd.ErrOrStderr(), problems, err); err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), got)
			} else {
				err = printReplayed(cmd.OutOrStdout(), got)
			}
			switch {
			case err != nil:
				return err
			case len(got.Runs) == 0:
				return fmt.Errorf("there is nothing to replay in %s", recorderDir(dir))
			case !got.OK():
				return errSilent
			}
			return nil
		},
	}
	outputFlag(c, &asJSON)
	stateDirFlag(c, &dir)
	return c
}

func printReplayed(w io.Writer, r recorder.Replayed) error {
	b := &strings.Builder{}
	for _, run := range r.Runs {
		fmt.Fprintf(b, "Run of %s, %s: ", run.Process.Local().Format(time.DateTime), run.Version)
		if run.Problem != "" {
			fmt.Fprintf(b, "not compared: %s\n", run.Problem)
			continue
		}
		fmt.Fprintf(b, "%s from %s to %s; ", count(run.Inputs, "input", "inputs"),
			run.From.Local().Format(time.DateTime), run.To.Local().Format(time.DateTime))
		fmt.Fprintf(b, "compared %s and %s; ", count(run.Compared, "decision", "decisions"),
			count(run.Plans, "plan", "plans"))
		if len(run.Differences) == 0 {
			fmt.Fprintf(b, "the same %s", count(run.Keys, "route", "routes"))
		} else {
			fmt.Fprint(b, count(len(run.Differences)+run.More, "DIFFERENCE", "DIFFERENCES"))
		}
		if run.Undecided > 0 {
			fmt.Fprintf(b, ", %s not decided upon", count(run.Undecided, "input", "inputs"))
		}
		if run.Gaps > 0 {
			fmt.Fprintf(b, ", %s", count(run.Gaps, "gap", "gaps"))
		}
		fmt.Fprintln(b)
		for _, n := range run.NotCompared {
			fmt.Fprintf(b, "  not compared from %s to %s, %s and %s: %v\n",
				n.From.Local().Format(time.DateTime), n.To.Local().Format(time.DateTime),
				count(n.Moments, "moment", "moments"), count(n.Inputs, "input", "inputs"), n.Reason)
		}
		for _, d := range run.Differences {
			fmt.Fprintf(b, "  %s: recorded %q, replayed %q\n", d.Key, d.Recorded, d.Replayed)
		}
		if run.More > 0 {
			fmt.Fprintf(b, "  and %d more\n", run.More)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
