// Command lab builds the topologies in labs/ and walks through their READMEs: every command that a
// page shows is run, and what it prints must have the shape that the page shows. With -update it
// writes what was printed into the page.
//
// A topology is a containerlab file. Where containerlab and a Docker engine are here they build it;
// otherwise it is built from network namespaces (internal/netlab), with what this machine and a few
// unpacked Debian packages have. The lab's owner is this process: whatever was made goes with it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/netlab"
)

const usage = `usage:
  lab check [flags] FOLDER...   build each lab, walk through its README, remove it
  lab tour [flags] PAGE         walk through docs/tour.md in the demo
  lab exec LAB NODE COMMAND...  run a command on a node of a lab that check -keep left running

flags of check and tour:
`

func main() {
	// A closed terminal, or `lab check | head`, must not leave namespaces behind either.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP, syscall.SIGPIPE)
	err := command(ctx, os.Args[1:])
	stop()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case errors.As(err, &exit) && len(os.Args) > 1 && os.Args[1] == "exec":
		os.Exit(exit.ExitCode()) // the command has said why
	default:
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

// config is what the flags say.
type config struct {
	build, with       string
	update, vpp, keep bool
	out               io.Writer
}

func command(ctx context.Context, args []string) error {
	c := config{out: os.Stdout, with: "auto"}
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.StringVar(&c.build, "build", "build",
		"folder with the agent, and with the packages that are unpacked")
	flags.Func("with",
		"`what` builds the labs: containerlab, namespaces, or auto (default) for containerlab "+
			"where it is here", c.setWith)
	flags.BoolVar(&c.update, "update", false, "write what the commands print into the README")
	flags.BoolVar(&c.vpp, "vpp", false,
		"the agents' nodes forward with VPP: on PATH, or VPP_BIN with VPP_PLUGIN_PATH")
	flags.BoolVar(&c.keep, "keep", false,
		"leave the lab up until Ctrl-C instead of walking through it")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	help := func(arg string) bool { return slices.Contains([]string{"-h", "--help", "help"}, arg) }
	switch {
	case slices.ContainsFunc(args[:min(2, len(args))], help):
		flags.SetOutput(c.out)
		flags.Usage()
		return nil
	case len(args) > 1 && args[0] == "exec":
		return attach(args[1], args[2:])
	case len(args) > 1 && args[0] == "check":
		if err := flags.Parse(args[1:]); err != nil {
			return flag.ErrHelp // it has said why
		}
		if flags.NArg() > 0 {
			return c.checkAll(ctx, flags.Args())
		}
	case len(args) > 1 && args[0] == "tour":
		if err := flags.Parse(args[1:]); err != nil {
			return flag.ErrHelp // it has said why
		}
		if flags.NArg() == 1 {
			return c.walkTour(ctx, flags.Arg(0))
		}
	}
	flags.Usage()
	return flag.ErrHelp
}

func (c *config) setWith(with string) error {
	if !slices.Contains([]string{"auto", "containerlab", "namespaces"}, with) {
		return errors.New("want auto, containerlab or namespaces")
	}
	c.with = with
	return nil
}

// checkAll goes through all labs, also when one of them fails. Labs wait most of the time, so two
// are up at once; what each says is printed when it ends.
func (c config) checkAll(ctx context.Context, folders []string) error {
	if c.keep || len(folders) == 1 {
		return c.checkOne(ctx, folders[0]) // one lab at a time is kept
	}
	var g errgroup.Group
	g.SetLimit(2)
	var printing sync.Mutex
	errs := make([]error, len(folders))
	for i, folder := range folders {
		g.Go(func() error {
			var said bytes.Buffer
			each := c
			each.out = &said
			errs[i] = each.checkOne(ctx, folder)
			printing.Lock()
			defer printing.Unlock()
			c.out.Write(said.Bytes())
			return nil
		})
	}
	g.Wait()
	return errors.Join(errs...)
}

func (c config) checkOne(ctx context.Context, folder string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	start := time.Now()
	if err := c.check(ctx, folder); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(folder), err)
	}
	if !c.keep {
		fmt.Fprintf(c.out, "%s holds, in %.0f s\n\n",
			filepath.Base(folder), time.Since(start).Seconds())
	}
	return nil
}

func (c config) check(ctx context.Context, folder string) (err error) {
	file, err := find(folder)
	if err != nil {
		return err
	}
	t, err := readTopology(file, c.getenv)
	if err != nil {
		return err
	}
	w, err := readWalk(filepath.Join(folder, "README.md"))
	if err != nil {
		return err
	}
	if err := w.fits(t); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s: %d nodes are being made and started\n", t.Name, len(t.Nodes))
	n, how, err := c.up(ctx, t, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	fmt.Fprintf(c.out, "%s: %d nodes as %s, forwarding with %s\n",
		t.Name, len(t.Nodes), how, c.dataplane())
	if c.keep {
		c.awaitSessions(ctx, n, t.agents())
		fmt.Fprint(c.out, "It is up until Ctrl-C, which removes it. On another terminal:\n\n")
		for _, command := range []string{"vpp-route-agent status", "gobgp neighbor", "sh"} {
			fmt.Fprintf(c.out, "    %s\n", n.hint(w.steps[0].node, command))
		}
		fmt.Fprintf(c.out, "\nIf this process is killed, %s removes the lab.\n", n.removal())
		<-ctx.Done()
		fmt.Fprintf(c.out, "\nremoving %s\n", t.Name)
		return nil
	}
	return (&checker{net: n, walk: w, dataplane: c.dataplane(), update: c.update, out: c.out}).run(
		ctx)
}

// awaitSessions waits until these agents of a lab are ready and their sessions are Established, but
// not for ever: a person may have come to see why they are not.
func (c config) awaitSessions(ctx context.Context, n network, waiting []string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := netlab.WhenSlow(func() {
		fmt.Fprintf(c.out, "waiting for the sessions of %s\n", strings.Join(waiting, ", "))
	})
	defer done()
	for ctx.Err() == nil {
		waiting = slices.DeleteFunc(waiting, func(node string) bool {
			_, err := n.run(ctx, node, "vpp-route-agent status --quiet")
			return err == nil
		})
		if len(waiting) == 0 {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery):
		}
	}
	if context.Cause(ctx) == context.DeadlineExceeded {
		fmt.Fprintf(c.out, "not ready, or without one of their sessions, after %v: %s\n", patience,
			strings.Join(waiting, ", "))
	}
}

// up builds the lab, and says of what.
func (c config) up(ctx context.Context, t *topology, file string) (network, string, error) {
	missing := containerlabMissing(ctx)
	if c.with == "containerlab" && missing != nil {
		return nil, "", missing
	}
	if c.with == "containerlab" || c.with == "auto" && missing == nil {
		n, err := buildContainers(ctx, t, file, c.dataplane(), c.out)
		return n, "containers", err
	}
	build, err := filepath.Abs(c.build)
	if err != nil {
		return nil, "", err
	}
	done := netlab.WhenSlow(func() {
		fmt.Fprintf(c.out, "%s: downloading Debian's packages to %s, once\n", t.Name, build)
	})
	p, err := findParts(ctx, build, c.vpp)
	done()
	if err != nil {
		return nil, "", err
	}
	n, err := buildNamespaces(ctx, t, p,
		slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	return n, "network namespaces", err
}

func (c config) dataplane() string {
	if c.vpp {
		return "vpp"
	}
	return "kernel"
}

// getenv is the environment of a topology file.
func (c config) getenv(name string) (string, bool) {
	if name == "DATAPLANE" {
		return c.dataplane(), true
	}
	return os.LookupEnv(name)
}

// fits says whether all nodes that the page names are there.
func (w *walk) fits(t *topology) error {
	for _, s := range w.steps {
		if _, known := t.Nodes[s.node]; !known {
			return fmt.Errorf("%s:%d: the topology has no node %q", w.file, s.at, s.node)
		}
	}
	return nil
}
