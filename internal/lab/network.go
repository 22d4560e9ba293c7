package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/netlab"
)

// network is a lab that is up.
type network interface {
	// run runs a line of shell on a node and returns what it wrote.
	run(ctx context.Context, node, line string) ([]byte, error)
	// hint is what a person types to run a command on a node.
	hint(node, command string) string
	// removal is what removes the lab when this process cannot.
	removal() string
	Close() error
}

// parts are what the nodes of a lab need of this machine when they are no containers.
type parts struct {
	programs []string // ours: the agent and gobgp
	packages []netlab.Package
	vpp      *netlab.VPPPrograms // nil: the nodes forward with the kernel
}

// labImage are the packages of the image that a machine may lack, with the version that a lab may
// rely on.
var labImage = []struct{ name, version string }{
	{"bird", "1.6."}, {"frr", ""}, {"ethtool", ""}, {"procps", ""},
	{"etcd-client", ""},
}

func findParts(ctx context.Context, build string, withVPP bool) (parts, error) {
	var p parts
	for _, name := range []string{"vpp-route-agent", "gobgp"} {
		path := filepath.Join(build, name)
		if _, err := os.Stat(path); err != nil {
			return p, fmt.Errorf("no %s to run: %w (make build)", name, err)
		}
		p.programs = append(p.programs, path)
	}
	for _, want := range labImage {
		pkg, err := netlab.Unpack(ctx, filepath.Join(build, "packages"), want.name, want.version)
		if err != nil {
			return p, err
		}
		p.packages = append(p.packages, pkg)
	}
	if withVPP {
		vpp, err := netlab.FindVPP()
		if err != nil {
			return p, err
		}
		p.vpp = &vpp
	}
	return p, nil
}

// namespaces is a lab made of network namespaces: every node a machine, every link a veth pair.
type namespaces struct {
	lab      *netlab.Lab
	name     string
	machines map[string]*netlab.Machine
}

// netlabName is the name that a lab's namespaces have: netlab takes letters and digits.
func netlabName(lab string) string { return "lab" + strings.ReplaceAll(lab, "-", "") }

func buildNamespaces(
	ctx context.Context, t *topology, p parts, log *slog.Logger,
) (_ network, err error) {
	if err := netlab.MachinesAvailable(); err != nil {
		return nil, err
	}
	lab, err := netlab.New(netlabName(t.Name), log)
	if err != nil {
		return nil, err
	}
	n := &namespaces{lab: lab, name: t.Name, machines: map[string]*netlab.Machine{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	for _, name := range t.names() {
		if n.machines[name], err = lab.Machine(ctx, name, t.machineConfig(name, p)); err != nil {
			return nil, err
		}
	}
	for _, l := range t.Links {
		err = lab.Veth(
			netlab.End{Namespace: n.machines[l.ends[0].node].Namespace, Device: l.ends[0].device},
			netlab.End{Namespace: n.machines[l.ends[1].node].Namespace, Device: l.ends[1].device})
		if err != nil {
			return nil, err
		}
	}
	return n, n.start(ctx, t)
}

// machineConfig gives a node the packages of the image, our programs where the image has them, and
// what the topology binds.
func (t *topology) machineConfig(name string, p parts) netlab.MachineConfig {
	c := netlab.MachineConfig{
		Packages: p.packages,
		Accounts: []netlab.Account{{Name: "frr", ID: 64900, Groups: []string{"frrvty"}},
			{Name: "bird", ID: 64910}},
	}
	for _, path := range p.programs {
		c.Binds = append(c.Binds,
			netlab.Bind{Source: path, Target: "/usr/bin/" + filepath.Base(path)})
	}
	for _, b := range t.Nodes[name].Binds {
		source := b.source
		if !filepath.IsAbs(source) {
			source = filepath.Join(t.dir, source)
		}
		c.Binds = append(c.Binds, netlab.Bind{Source: source, Target: b.target})
	}
	for k, v := range t.Nodes[name].Env {
		c.Env = append(c.Env, k+"="+v)
	}
	if p.vpp != nil {
		c.Links = []netlab.Bind{
			{Source: p.vpp.VPP, Target: "/usr/bin/vpp"},
			{Source: p.vpp.Vppctl, Target: "/usr/bin/vppctl"},
		}
		c.Env = append(c.Env, "VPP_PLUGIN_PATH="+p.vpp.Plugins)
	}
	return c
}

// start runs every node's lines, in their order, all nodes at the same time: containerlab promises
// no more.
func (n *namespaces) start(ctx context.Context, t *topology) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range t.names() {
		g.Go(func() error {
			for _, line := range t.Nodes[name].Exec {
				words, err := splitWords(line)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", name, line, err)
				}
				if out, err := n.machines[name].Exec(ctx, "/usr/bin/env", words...); err != nil {
					return fmt.Errorf("%s: %s: %w: %s", name, line, err, tidy(out))
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (n *namespaces) run(ctx context.Context, node, line string) ([]byte, error) {
	return n.machines[node].Exec(ctx, "/bin/sh", "-c", line)
}

func (n *namespaces) hint(node, command string) string {
	return "build/lab exec " + n.name + " " + node + " " + command
}

func (n *namespaces) removal() string { return "the next lab that is built" }

func (n *namespaces) Close() error { return n.lab.Close() }

// containers is a lab that containerlab has made.
type containers struct {
	file, name string
	out        io.Writer
}

// containerlabMissing says what is not here of containerlab and a Docker engine, or returns nil.
func containerlabMissing(ctx context.Context) error {
	if _, err := exec.LookPath("containerlab"); err != nil {
		return errors.New("containerlab is not on PATH")
	}
	if err := exec.CommandContext(ctx, "docker", "info", "--format",
		"{{.ServerVersion}}").Run(); err != nil {
		return fmt.Errorf("no Docker engine answers: docker info: %w", err)
	}
	return nil
}

func buildContainers(
	ctx context.Context, t *topology, file, dataplane string, out io.Writer,
) (network, error) {
	c := &containers{file: file, name: t.Name, out: out}
	if err := t.imagesAreThere(ctx, dataplane == "vpp", out); err != nil {
		return nil, err
	}
	// The lines of one node wait for what another one brings, and by default only as many nodes as
	// there are processors are worked on at a time.
	workers := strconv.Itoa(len(t.Nodes))
	cmd := exec.CommandContext(ctx, "containerlab", "deploy", "--reconfigure", "--max-workers",
		workers, "--topo", file)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Env = append(os.Environ(), "DATAPLANE="+dataplane)
	if err := cmd.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("containerlab deploy: %w", err), c.Close())
	}
	return c, nil
}

// imagesAreThere looks before the lab is built: containerlab would search the network for an image,
// and nodes without VPP would only be silent. It tells of what version the images are, which may
// not be that of this folder.
func (t *topology) imagesAreThere(ctx context.Context, vpp bool, out io.Writer) error {
	images := map[string]bool{}
	for _, n := range t.Nodes {
		images[n.Image] = true
	}
	const label = `{{index .Config.Labels "org.opencontainers.image.version"}}`
	for _, image := range slices.Sorted(maps.Keys(images)) {
		version, err := exec.CommandContext(ctx, "docker", "image", "inspect", "--format",
			label, image).Output()
		if err != nil {
			return fmt.Errorf("there is no image %s: make image", image)
		}
		fmt.Fprintf(out, "%s: containers of %s, version %s\n", t.Name, image, tidy(version))
		if !vpp {
			continue
		}
		has, err := exec.CommandContext(ctx, "docker", "run", "--rm", "--network", "none", image,
			"sh", "-c", "command -v vpp || echo none").CombinedOutput()
		if err != nil {
			return fmt.Errorf("docker run %s: %w: %s", image, err, tidy(has))
		}
		if tidy(has) == "none" {
			return fmt.Errorf(
				"the image %s has no VPP: make image VPP_DEBS='…', with the paths of "+
					"VPP's Debian packages", image)
		}
	}
	return nil
}

func (c *containers) container(node string) string { return "clab-" + c.name + "-" + node }

func (c *containers) run(ctx context.Context, node, line string) ([]byte, error) {
	return exec.CommandContext(ctx, "docker", "exec", c.container(node), "sh", "-c",
		line).CombinedOutput()
}

func (c *containers) hint(node, command string) string {
	return "docker exec -it " + c.container(node) + " " + command
}

func (c *containers) removal() string {
	return "`containerlab destroy --cleanup --topo " + c.file + "`"
}

func (c *containers) Close() error {
	cmd := exec.Command("containerlab", "destroy", "--cleanup", "--topo", c.file)
	cmd.Stdout, cmd.Stderr = c.out, c.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a second Ctrl-C is not for it
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("containerlab destroy: %w; %s removes what is left", err, c.removal())
	}
	return nil
}

// attach runs a command on a node of a lab that is up, with our own input and output. The words are
// the node and the command.
func attach(lab string, words []string) error {
	machines, err := netlab.Machines(netlabName(lab))
	switch {
	case errors.Is(err, netlab.ErrNone):
		return fmt.Errorf("lab %s: %w; `make lab-%s ARGS=-keep` leaves one up", lab, err, lab)
	case err != nil:
		return fmt.Errorf("lab %s: %w", lab, err)
	}
	names := strings.Join(slices.Sorted(maps.Keys(machines)), ", ")
	if len(words) == 0 {
		return fmt.Errorf("which node of lab %s? It has %s", lab, names)
	}
	init, ok := machines[words[0]]
	if !ok {
		return fmt.Errorf("lab %s has no node %s, it has %s", lab, words[0], names)
	}
	if len(words) == 1 {
		return fmt.Errorf("which command on %s of lab %s?", words[0], lab)
	}
	words = words[1:]
	if isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		words = onOwnTerminal(words)
	}
	cmd := exec.Command("/usr/bin/env", words...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return netlab.Attach(init, cmd)
}

// onOwnTerminal lets util-linux's script, where it is here, run a command on a terminal of the
// node's own: a shell there cannot do its jobs on ours, whose processes it does not see.
func onOwnTerminal(words []string) []string {
	if _, err := exec.LookPath("script"); err != nil {
		return words
	}
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return []string{
		"script", "--quiet", "--return", "--command",
		"exec " + strings.Join(quoted, " "), "/dev/null",
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
