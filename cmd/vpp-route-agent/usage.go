package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a mistake of the operator's: one sentence, exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// execute runs the command line. What fails before a command starts is the caller's mistake: Cobra
// itself ends a conflict of flags, or an unknown subcommand, with the status of any other error.
func execute(ctx context.Context) error {
	root, started := newCommand(), false
	var unknown error
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		// Cobra shows the help of the command before the unknown one.
		if c.HasSubCommands() {
			unknown = unknownCommand(c, c.Flags().Args())
		}
		if unknown == nil {
			help(c, args)
		}
	})
	forEachCommand(root, func(c *cobra.Command) {
		if run := c.RunE; run != nil {
			c.RunE = func(cmd *cobra.Command, args []string) error {
				started = true
				return run(cmd, args)
			}
		}
	})
	err := cmp.Or(root.ExecuteContext(ctx), unknown)
	if err != nil && !started {
		return usageError{err}
	}
	return err
}

func forEachCommand(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		forEachCommand(sub, do)
	}
}

// checkArguments gives a command without arguments of its own the check of what follows its name.
func checkArguments(c *cobra.Command) {
	switch {
	case c.HasSubCommands() && !c.Runnable():
		c.Args = unknownCommand
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	case c.Args == nil:
		c.Args = noArguments
	}
}

func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no arguments, and %q is one", c.Name(), args[0])
}

func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	return fmt.Errorf("unknown command %q%s; see %s --help", args[0], didYouMean(args[0], names),
		c.CommandPath())
}

// helpCommand is Cobra's, which takes an unknown command for no error.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]...", Short: "Show the help of a command", Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) (names []string,
			_ cobra.ShellCompDirective) {
			of, _, _ := c.Root().Find(args)
			for _, sub := range of.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			of, rest, err := c.Root().Find(args)
			if err == nil {
				err = unknownCommand(of, rest)
			}
			if err != nil {
				return usageError{err}
			}
			of.InitDefaultHelpFlag() // as Cobra's does, so that it is shown
			return of.Help()
		},
	}
}

// wanted is what flags take whose types are those of pflag.
var wanted = map[string]string{
	"bool": "true or false", "int": "a whole number", "duration": "a duration such as 30s or 5m",
}

// flagError completes pflag's message, and replaces strconv's.
func flagError(c *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		flag, why := bad.GetFlag(), bad.Unwrap()
		if what := wanted[flag.Value.Type()]; what != "" {
			why = fmt.Errorf("%q is not %s", bad.GetValue(), what)
		}
		return fmt.Errorf("--%s: %w", flag.Name, why)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return fmt.Errorf("%w%s", err, didYouMean("--"+unknown.GetSpecifiedName(), names))
}

// didYouMean is the part of a message that names the known word nearest to a wrong one, or "".
func didYouMean(word string, known []string) string {
	nearest, least := "", min(3, (len(word)+1)/2)
	for _, k := range known {
		if d := editDistance(word, k); d < least {
			nearest, least = k, d
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", nearest)
}

// editDistance counts the letters to insert, remove or replace (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
