package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"vpp-route-agent/internal/netlab"
)

// The tour is a page as a lab's README is, but its nodes are those of the demo, which starts by
// itself, and of what its commands print only the status at their end and the headings of tables
// must be the page's: its reader sees times, counts and rates as they were.

// walkTour starts the demo and walks through a page.
func (c config) walkTour(ctx context.Context, page string) (err error) {
	start := time.Now()
	w, err := readWalk(page)
	if err != nil {
		return err
	}
	dataplane := "vpp"
	switch _, err := netlab.FindVPP(); {
	case errors.Is(err, netlab.ErrNoVPP) && c.update:
		return fmt.Errorf("the tour is written with VPP: %w", err)
	case errors.Is(err, netlab.ErrNoVPP):
		dataplane = "kernel"
	case err != nil:
		return err
	}
	d, err := startDemo(ctx, filepath.Join(c.build, "vpp-route-agent"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	checker := &checker{net: d, walk: w, dataplane: dataplane, update: c.update, out: c.out,
		tour: true}
	if err := checker.run(ctx); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s holds, on %s, in %.0f s\n", page, dataplane, time.Since(start).Seconds())
	return nil
}

// exitLine begins the last line of what a command printed that failed.
const exitLine = "exit status "

// heading is the first line of a table, in columns or in a box.
var heading = regexp.MustCompile(
	`^(\| )?[A-Z][A-Z ]*(\s*\||\s{2,})(\s*[A-Z][A-Z ]*(\s*\||\s{2,}|$))+$`)

// tourShape is what must be the same of an output each time.
func tourShape(out string) string {
	var kept []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if heading.MatchString(line) || strings.HasPrefix(line, exitLine) {
			kept = append(kept, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(kept, "\n")
}

// keptDemo is the demo as --keep leaves it up.
type keptDemo struct {
	binary string
	cmd    *exec.Cmd
	ended  chan struct{} // closed when err is there
	err    error

	mu   sync.Mutex // guards the following
	said bytes.Buffer
	up   chan struct{} // closed when all is shown
}

const (
	// host is the machine itself, on whose terminal the demo runs.
	host    = "host"
	hostRun = "make demo ARGS=--keep"
	// The demo ends its story with the one and its list of things to try with the other.
	storyEnds, listEnds = "\nAll ", "   logs are in "
)

// startDemo runs the demo until it has shown all and stays.
func startDemo(ctx context.Context, binary string) (*keptDemo, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	d := &keptDemo{binary: binary, ended: make(chan struct{}), up: make(chan struct{})}
	d.cmd = exec.Command(binary, "demo", "--keep")
	d.cmd.Stdout, d.cmd.Stderr = d, os.Stderr
	// A Ctrl-C is ours, and then we end it. It ends with us: with this thread, which is locked.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	runtime.LockOSThread()
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { d.err = d.cmd.Wait(); close(d.ended) }()
	select {
	case <-d.up:
		return d, nil
	case <-d.ended:
		return nil, fmt.Errorf("the demo ended: %w:\n%s", d.err, d.story())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), d.Close())
	}
}

// Write takes what the demo says.
func (d *keptDemo) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := bytes.Contains(d.said.Bytes(), []byte(listEnds))
	d.said.Write(p)
	if !before && bytes.Contains(d.said.Bytes(), []byte(listEnds)) {
		close(d.up)
	}
	return len(p), nil
}

// story is all that the demo has said.
func (d *keptDemo) story() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.said.String()
}

// run runs a line of shell on a node. On the host it is the demo itself, of which the end is shown,
// by the names that a reader's clone has.
func (d *keptDemo) run(ctx context.Context, node, line string) ([]byte, error) {
	if node != host {
		return exec.CommandContext(ctx, d.binary, "demo", "exec", "--pid",
			strconv.Itoa(d.cmd.Process.Pid), node, "sh", "-c", line).CombinedOutput()
	}
	if line != hostRun {
		return nil, fmt.Errorf("the only command on the host is %q", hostRun)
	}
	_, end, found := strings.Cut(d.story(), storyEnds)
	if !found {
		return nil, fmt.Errorf("not all checks of the demo held:\n%s", d.story())
	}
	end, _, _ = strings.Cut(end, listEnds)
	end = strings.ReplaceAll(end, d.binary, "build/"+filepath.Base(d.binary))
	end = strings.ReplaceAll(end, "--pid "+strconv.Itoa(d.cmd.Process.Pid)+" ", "")
	return []byte("…\n" + strings.TrimPrefix(storyEnds, "\n") + end), nil
}

func (d *keptDemo) hint(node, command string) string {
	return d.binary + " demo exec " + node + " " + command
}

func (d *keptDemo) removal() string { return "the next demo" }

// Close ends the demo, which removes what it has made.
func (d *keptDemo) Close() error {
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-d.ended
	return d.err
}
