package testcluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Roles are parts that a program runs as processes of its own binary, by their first argument.
type Roles map[string]func(ctx context.Context, args []string) error

// Main runs a program, or one of its roles, and exits. A closed terminal ends ctx too, and leaves
// no namespace behind. SIGPIPE does not: Go would report a peer that closes its connection as well.
func Main(
	name string, run func(ctx context.Context, args []string, out io.Writer) error, roles Roles,
) {
	ctx, stop := signal.NotifyContext(context.Background(),
		os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	args := os.Args[1:]
	var err error
	if role := roles[append(args, "")[0]]; role != nil {
		err = role(ctx, args[1:])
	} else {
		err = run(ctx, args, os.Stdout)
	}
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
