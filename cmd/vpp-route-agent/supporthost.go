package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/support"
	"vpp-route-agent/vpp"
)

// What support reads of the host: its system, its log, VPP and the kernel.

func writesJSON(make func() (any, error)) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		v, err := make()
		if err != nil {
			return err
		}
		return printJSON(w, v)
	}
}

// hostVersion is version.json.
type hostVersion struct {
	build
	Kernel   string    `json:"kernel"`
	Machine  string    `json:"machine"`
	System   string    `json:"system"` // PRETTY_NAME of os-release
	Time     time.Time `json:"time"`
	Hostname string    `json:"hostname"`
}

func thisHost() hostVersion {
	h := hostVersion{build: thisBuild(), Time: time.Now().UTC()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel, h.Machine = unix.ByteSliceToString(u.Release[:]),
			unix.ByteSliceToString(u.Machine[:])
	}
	h.Hostname, _ = os.Hostname()
	text, _ := readFile("/etc/os-release", maxSettings)
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			h.System = strings.Trim(strings.TrimSpace(name), `"`)
		}
	}
	return h
}

func splitQuery(path string) (string, url.Values, error) {
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	return path, query, err
}

// runs writes what a program prints. What it says on standard error is in the error if it fails.
func runs(ctx context.Context, w io.Writer, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return support.Absent(fmt.Sprintf("there is no %s on this host", name))
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = w, &said
	cmd.WaitDelay = time.Second // for a child of its that has its output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w %s", name, strings.Join(args, " "), err,
			strings.TrimSpace(said.String()))
	}
	return nil
}

// readLog reads systemd's journal. Elsewhere nothing on this host keeps the log.
func readLog(ctx context.Context, w io.Writer) error {
	const elsewhere = "the log is not in systemd's journal, or this user may not read it: its " +
		"end is in agent/log.txt, and all of it went to the agent's standard error, in a pod to " +
		"kubectl logs"
	count := &counter{w: w}
	err := runs(ctx, count, "journalctl", "--unit", "vpp-route-agent", "--lines",
		fmt.Sprint(logLines), "--no-pager", "--output", "short-iso", "--quiet")
	if errors.As(err, new(support.Absent)) || count.n == 0 {
		return support.Absent(elsewhere)
	}
	return err
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return c.w.Write(p)
}

// dataplaneParts are VPP's own view, where routes are programmed there, and the kernel's.
func (s *supportCall) dataplaneParts() []support.Part {
	var parts []support.Part
	if s.setting("--dataplane") == "vpp" {
		parts = s.vppParts()
	}
	for _, p := range []struct {
		name, about string
		args        []string
	}{
		{"links", "interfaces", []string{"-details", "-statistics", "link"}},
		{"addresses", "addresses", []string{"address"}},
		{"rules", "rules", []string{"rule"}},
		{"routes", "routes of all tables", []string{"route", "show", "table", "all"}},
		{"routes6", "and of IPv6", []string{"-6", "route", "show", "table", "all"}},
	} {
		parts = append(parts, support.Part{Name: "kernel/" + p.name + ".txt",
			About: p.about + " of Linux",
			Collect: func(ctx context.Context, w io.Writer) error {
				return runs(ctx, w, "ip", p.args...)
			}})
	}
	return parts
}

// vppParts ask VPP over one connection, one after the other: it answers in that order anyway.
func (s *supportCall) vppParts() []support.Part {
	var mu sync.Mutex
	type reader = func(context.Context, *vpp.CLI) (string, error)
	show := func(about, name string, read reader) support.Part {
		return support.Part{Name: "vpp/" + name + ".txt", About: about,
			Collect: func(ctx context.Context, w io.Writer) error {
				mu.Lock()
				defer mu.Unlock()
				cli, err := vpp.DialCLI(ctx, vpp.Config{Socket: s.setting("--vpp-socket"),
					ReplyTimeout: s.patience})
				if err != nil {
					return err
				}
				defer cli.Close()
				text, err := read(ctx, cli)
				_, _ = io.WriteString(w, text) // what there is of it
				return err
			}}
	}
	var parts []support.Part
	for _, v := range vpp.Views {
		parts = append(parts, show("VPP: "+strings.Join(v.Commands, ", "), v.Name,
			func(ctx context.Context, c *vpp.CLI) (string, error) { return c.Show(ctx, v) }))
	}
	return append(parts, show("VPP: the FIBs, if they are small", "fib",
		func(ctx context.Context, c *vpp.CLI) (string, error) { return c.Routes(ctx) }))
}
