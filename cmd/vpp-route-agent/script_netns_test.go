package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// The loopback interface has one IPv6 address, so a script about IPv6 sessions needs a network
// namespace with more of them, one about interfaces of Linux a namespace to make them in, and one
// about a full disk a namespace to mount it in. It needs no root where users may make namespaces.

const (
	namespaceVariable = "VPP_ROUTE_AGENT_TEST_NAMESPACE"
	namespaceNet6     = "fd00:5::" // $NET6: this node is fd00:5::5
)

func inLoopbackNamespace() bool { return os.Getenv(namespaceVariable) != "" }

// enterLoopbackNamespace prepares the namespace that TestScriptsInNamespaces made for this process.
func enterLoopbackNamespace() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for n := 1; n < 10; n++ {
		addr, err := netlink.ParseAddr(fmt.Sprintf("%s%d/64", namespaceNet6, n))
		if err != nil {
			return err
		}
		addr.Flags = syscall.IFA_F_NODAD
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return fmt.Errorf("address %s: %w", addr, err)
		}
	}
	return nil
}

// TestScriptsInNamespaces runs each of these scripts in a namespace of its own: they use the same
// addresses and interfaces.
func TestScriptsInNamespaces(t *testing.T) {
	if inLoopbackNamespace() {
		t.Skip("runs in the process outside")
	}
	t.Parallel()
	var scripts []string
	for _, pattern := range []string{"ipv6*", "linux*", "disk-full*"} {
		found, err := filepath.Glob("testdata/script/" + pattern + ".txtar")
		if err != nil || len(found) == 0 {
			t.Fatalf("no scripts %s found: %v", pattern, err)
		}
		scripts = append(scripts, found...)
	}
	for _, file := range scripts {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runInNamespace(t, name)
		})
	}
}

func runInNamespace(t *testing.T, script string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^TestScripts$/^" + script + "$", "-test.v"}
	if *update {
		args = append(args, "-update")
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), namespaceVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case err != nil && len(out) == 0:
		t.Skipf("no network namespace here: %v", err)
	case err != nil || !strings.Contains(text, "--- PASS: TestScripts/"+script+" "):
		t.Errorf("%v\n%s", err, text)
	}
}

// setParallel sets how many scripts run at once, unless the command line says it: they wait more
// than they work.
func setParallel(n string) {
	if err := flag.Set("test.parallel", n); err != nil {
		panic(err)
	}
}
