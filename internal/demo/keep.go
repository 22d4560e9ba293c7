package demo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"vpp-route-agent/internal/netlab"
)

// binDir is the folder of a node, in the folder of a kept demo, with what Exec puts first on PATH.
const binDir = "bin"

// invite prints what is running and what to try.
func (d *demo) invite() error {
	for _, n := range d.nodes {
		if err := d.putOnPath(n.Name, n.programs()); err != nil {
			return err
		}
	}
	for _, w := range d.workloads {
		if err := d.putOnPath(w.Name, nil); err != nil {
			return err
		}
	}
	d.report.printf("\n%s\n", d.report.paint(bold, "It keeps running until Ctrl-C, which removes "+
		"everything. Things to try, as root, in another terminal:"))
	enter := d.cfg.Command + " demo exec "
	if _, err := netlab.Running("demo", 0, "*/"+binDir); err != nil { // this is not the only one
		enter += fmt.Sprintf("--pid %d ", os.Getpid())
	}
	try := func(node string, commands ...string) {
		for _, c := range commands {
			d.report.printf("     %s%s %s\n", enter, node, c)
		}
	}
	for _, n := range d.nodes {
		d.report.note("%s, %s", n.Name, n.speaker.name())
		try(n.Name, append(n.speaker.commands(), n.command())...)
	}
	d.report.note("workloads and Calico's data")
	w, one, two := d.workloads[w1], d.nodes[node1].Name, d.nodes[node2].Name
	try(w.Name, "ping -c 3 "+d.workloads[w3].Address.String())
	try(one, "vpp-route-agent lab attach "+one+" web",
		"vpp-route-agent lab borrow "+one+" cache "+two, "vpp-route-agent lab release web")
	d.report.note("logs are in %s", d.Dir())
	return nil
}

// putOnPath makes the folder by which Exec knows a node, with a script for each program.
func (d *demo) putOnPath(node string, programs map[string][]string) error {
	dir := filepath.Join(d.Dir(), node, binDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	for name, words := range programs {
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		script := "#!/bin/sh\nexec " + strings.Join(quoted, " ") + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	return nil
}

// ErrNoNode is the error of Exec about a wrong name.
var ErrNoNode = errors.New("the demo has no node")

// Exec replaces this process by a command on a node, or in a workload, of the kept demo that runs
// on this machine, as the process pid where there are several.
func Exec(pid int, node string, command []string) error {
	if netlab.Available() != nil {
		return errors.New("a command on a node of the demo needs root, as the demo does")
	}
	dir, err := netlab.Running("demo", pid, "*/"+binDir)
	switch {
	case errors.Is(err, netlab.ErrNone) && pid != 0:
		return fmt.Errorf("no demo of process %d is up", pid)
	case errors.Is(err, netlab.ErrNone):
		return errors.New("no demo is up; `vpp-route-agent demo --keep` leaves one up")
	case err != nil:
		return fmt.Errorf("which demo? --pid names one of several: %w", err)
	}
	all, _ := filepath.Glob(filepath.Join(dir, "*", binDir)) // the pattern is well formed
	var names []string
	for _, d := range all {
		names = append(names, filepath.Base(filepath.Dir(d)))
	}
	if !slices.Contains(names, node) {
		return fmt.Errorf("%w %s, it has %s", ErrNoNode, node, strings.Join(names, ", "))
	}
	if len(command) == 0 {
		return fmt.Errorf("which command on %s of the demo?", node)
	}
	bin := filepath.Join(dir, node, binDir)
	for name, value := range map[string]string{
		"PATH":                         bin + ":" + os.Getenv("PATH"),
		"VPP_ROUTE_AGENT_ADMIN_SOCKET": filepath.Join(dir, node, "agent.sock"),
		"VPP_ROUTE_AGENT_STATE_DIR":    filepath.Join(dir, node, "state"),
		"CALICO_ETCD_ENDPOINTS":        "unix://" + filepath.Join(dir, "etcd.sock"),
	} {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("%s: %w", node, err)
	}
	return netlab.Become(dir, node, path, command[1:], os.Environ())
}
