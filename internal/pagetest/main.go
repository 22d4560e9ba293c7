// Command pagetest proves the status page: it runs agents with real peers in namespaces, opens
// their page in Chromium, and judges what is on the screen and what the page does. It also takes
// the pictures of docs/images.
//
// It drives Chromium over its DevTools pipe by itself (devtools.go). It needs npm's axe-core and
// Debian's Chromium, so it is no test of `make test`. Nothing that it starts is left behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

func main() { testcluster.Main("pagetest", run, nil) }

// harness is what a run has.
type harness struct {
	ctx      context.Context
	log      *slog.Logger
	programs testcluster.Programs
	build    string // where packages are
	images   string // folder for pictures; "": none are taken
	short    bool
	peers    int
	routes   int
	browser  *browser
	results  *results
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("pagetest", flag.ContinueOnError)
	h := &harness{ctx: ctx, results: &results{}}
	flags.StringVar(&h.programs.Agent, "agent", "build/vpp-route-agent", "`path` of the agent")
	flags.StringVar(&h.build, "build", "build", "`folder` for Chromium and axe-core")
	flags.StringVar(&h.images, "images", "", "`folder` for pictures of each view; empty: none")
	flags.BoolVar(&h.short, "short", false, "fewer measurements: what CI runs")
	flags.IntVar(&h.peers, "peers", 1000, "peers of the large scene")
	flags.IntVar(&h.routes, "routes", 100_000, "routes of the large scene")
	if err := flags.Parse(args); err != nil {
		return err
	}
	h.results.short = h.short
	h.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := testcluster.ClearSettings(); err != nil {
		return err
	}
	if h.programs.Agent, err = filepath.Abs(h.programs.Agent); err != nil {
		return err
	}
	defer func() {
		h.results.print(out)
		if err == nil {
			err = h.results.verdict()
		}
	}()
	return h.prove()
}

// notHere is the error that a machine lacks something. A short run only says so: it is for machines
// of which nothing is known.
func (h *harness) notHere(err error) error {
	if !h.short {
		return err
	}
	fmt.Fprintf(os.Stderr, "page: %v; NOTHING WAS CHECKED\n", err)
	return nil
}

// script runs the tests of what in the page's JavaScript needs no page. It fails without Node.js.
func (h *harness) script() error {
	node, err := exec.LookPath("node")
	if err != nil {
		return fmt.Errorf("the tests of the page's JavaScript need Node.js 20: %w", err)
	}
	files, err := filepath.Glob("internal/statuspage/assets/*.test.mjs")
	if err != nil {
		return err
	}
	h.results.step("JavaScript without a page", func() (string, []string, error) {
		out, err := exec.CommandContext(h.ctx, node, append([]string{"--test"}, files...)...).
			CombinedOutput()
		if err != nil {
			return "", strings.Split(string(out), "\n"), err
		}
		return fmt.Sprintf("%d files", len(files)), nil, nil
	})
	return nil
}

// pick returns n, or in a short run the smaller number.
func (h *harness) pick(n, short int) int {
	if h.short {
		return short
	}
	return n
}

// prove runs everything. What fails without a scene is an error, the rest is a finding.
func (h *harness) prove() (err error) {
	packages := filepath.Join(h.build, "packages")
	chromium, err := findChromium(h.ctx, packages)
	var axe string
	if err == nil {
		axe, err = axeSource(h.ctx, packages)
	}
	if err == nil {
		err = h.script()
	}
	if err != nil {
		return h.notHere(err)
	}
	if h.programs.Bird, err = netlab.FindBird(h.ctx, packages); err != nil {
		return err
	}
	lab, err := netlab.New("pagebrowser", h.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	if h.browser, err = startBrowser(h.ctx, lab, chromium); err != nil {
		return h.notHere(err)
	}
	defer h.browser.close()
	h.browser.axe = axe

	began := time.Now()
	var small, large, empty *scene
	defer func() {
		for _, s := range []*scene{small, large, empty} {
			if s != nil {
				err = errors.Join(err, s.close())
			}
		}
	}()
	group, ctx := errgroup.WithContext(h.ctx)
	build := *h
	build.ctx = ctx // ends with the first that fails
	for _, x := range []struct {
		name  string
		scene **scene
		fill  func(*scene) error
	}{
		{"pageempty", &empty, build.empty},
		{"pagesmall", &small, build.small},
		{"pagelarge", &large, build.large},
	} {
		group.Go(func() (err error) {
			*x.scene, err = build.newScene(x.name, x.fill)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "scenes: %.0f s\n", time.Since(began).Seconds())
	return h.judge(small, large, empty)
}
