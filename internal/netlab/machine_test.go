package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newMachine(t *testing.T, l *Lab, name string, c MachineConfig) *Machine {
	t.Helper()
	if err := MachinesAvailable(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return must[*Machine](t)(l.Machine(ctx, name, c))
}

// says runs a line of shell in the machine.
func says(t *testing.T, m *Machine, line string) string {
	t.Helper()
	out, err := m.Exec(t.Context(), "/bin/sh", "-c", line)
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestMachineHasFilesProcessesAndANameOfItsOwn(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir() // below /tmp, which is emptied in the machine
	check(t, os.WriteFile(filepath.Join(dir, "conf"), []byte("bound\n"), 0o644))
	m := newMachine(t, l, "one", MachineConfig{
		Binds: []Bind{{Source: filepath.Join(dir, "conf"), Target: "/etc/some/new/conf"},
			{Source: dir, Target: "/usr/local/lab"}},
		Links:    []Bind{{Source: "/bin/sh", Target: "/usr/local/bin/same"}},
		Env:      []string{"COLOUR=blue"},
		Accounts: []Account{{Name: "labby", ID: 64000, Groups: []string{"labbyvty"}}},
	})
	other := newMachine(t, l, "two", MachineConfig{})
	for line, want := range map[string]string{
		"hostname": "one",
		"cat /etc/some/new/conf /usr/local/lab/conf": "bound\nbound",
		"same -c 'echo $COLOUR'":                     "blue",
		"ls /tmp /var/lib | grep -v :":               "",
		"id -nG labby | cut -d' ' -f1":               "labby",
		"cat /proc/1/comm":                           "sh",
		"grep ^labbyvty: /etc/group":                 "labbyvty:x:64001:labby",
		"echo x > /etc/vra-test; cat /etc/vra-test":  "x",
	} {
		if got := says(t, m, line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if got := says(t, other, "ls -d /etc/some /etc/vra-test 2>/dev/null; hostname"); got != "two" {
		t.Errorf("the other machine sees %q", got)
	}
	for _, file := range []string{"/etc/vra-test", "/etc/some", "/usr/local/bin/same",
		"/usr/local/lab"} {
		if _, err := os.Lstat(file); err == nil {
			t.Errorf("%s is on the host", file)
		}
	}
	if wd, _ := os.Getwd(); wd == "/" {
		t.Error("this process was moved to /")
	}
	p := must[*Process](t)(l.Start(Spec{Name: "pwd", Path: "pwd"}))
	<-p.Done()
	wd, _ := os.Getwd()
	if log := must[[]byte](t)(os.ReadFile(p.LogPath())); strings.TrimSpace(string(log)) != wd {
		t.Errorf("the next process starts in %s, want %s", log, wd)
	}
}

// What a machine writes to the places where programs keep state is neither on the host nor on
// another machine.
func TestMachineLeavesNothing(t *testing.T) {
	l := newLab(t)
	a, b := newMachine(t, l, "a", MachineConfig{}), newMachine(t, l, "b", MachineConfig{})
	for _, dir := range []string{"/dev/shm", "/etc", "/root", "/run", "/srv", "/tmp", "/usr",
		"/var", "/var/cache", "/var/lib", "/var/log", "/var/spool", "/var/tmp"} {
		if !isDir(dir) {
			continue
		}
		file := dir + "/." + l.prefix + "test"
		says(t, a, "echo x > "+file)
		if _, err := os.Lstat(file); err == nil {
			os.Remove(file)
			t.Errorf("%s: the host has what a machine wrote", dir)
		}
		if got := says(t, b, "ls "+file+" 2>/dev/null; true"); got != "" {
			t.Errorf("%s: another machine has what a machine wrote", dir)
		}
	}
	if got := says(t, a, "stat -c %a /dev/shm /tmp /var/tmp"); got != "1777\n1777\n1777" {
		t.Errorf("modes %q", got)
	}
}

func TestMachinesAreJoinedByTheirNamespaces(t *testing.T) {
	l := newLab(t)
	a, b := newMachine(t, l, "a", MachineConfig{}), newMachine(t, l, "b", MachineConfig{})
	check(t, l.Veth(
		End{Namespace: a.Namespace, Device: "eth1", Addresses: []netip.Prefix{pfx("10.0.0.1/24")}},
		End{Namespace: b.Namespace, Device: "eth1", Addresses: []netip.Prefix{pfx("10.0.0.2/24")}}))
	answers(t, a.Namespace, "10.0.0.2")
	if got := says(t, b, "ip -o -4 addr show eth1"); !strings.Contains(got, "10.0.0.2/24") {
		t.Errorf("inside b: %s", got)
	}
	// A namespace inside the machine is nobody else's, and goes with it.
	says(t, b, "ip netns add inner && ip netns exec inner ip link set lo up")
	if _, err := os.Stat("/run/netns/inner"); err == nil {
		t.Error("the host sees the machine's namespace")
	}
}

func TestWhatAMachineStartedEndsWithIt(t *testing.T) {
	l := newLab(t)
	m := newMachine(t, l, "a", MachineConfig{})
	says(t, m, "setsid -f sleep 1000")
	if n := len(marked(l.prefix)); n < 3 {
		t.Fatalf("%d processes, want init, its sleep and ours", n)
	}
	check(t, m.init.Stop())
	waitFor(t, "the end of its processes", func() bool { return len(marked(l.prefix)) == 0 })
}

func TestExecEndsWithTheContextAndTellsTheStatus(t *testing.T) {
	l := newLab(t)
	m := newMachine(t, l, "a", MachineConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Exec(ctx, "/bin/sleep", "1000"); err == nil {
		t.Error("no error of a command that was cut off")
	}
	var exit *exec.ExitError
	if _, err := m.Exec(t.Context(), "/bin/sh", "-c", "exit 7"); !errors.As(err, &exit) ||
		exit.ExitCode() != 7 {
		t.Errorf("got %v, want status 7", err)
	}
}

func TestAttachFindsAMachineByName(t *testing.T) {
	name := fmt.Sprintf("attach%d", os.Getpid()) // other runs of this test are no business of ours
	l := newLabNamed(t, name)
	newMachine(t, l, "a", MachineConfig{Env: []string{"COLOUR=blue"}})
	found, err := Machines(name)
	check(t, err)
	var out bytes.Buffer
	cmd := exec.Command("/bin/sh", "-c", "hostname; echo $COLOUR")
	cmd.Stdout = &out
	check(t, Attach(found["a"], cmd))
	if out.String() != "a\nblue\n" {
		t.Errorf("got %q", out.String())
	}
	if _, err := Machines("nosuchlab"); err == nil {
		t.Error("found a lab that is not up")
	}
}

func TestMachineThatCannotBeMadeSaysWhy(t *testing.T) {
	l := newLab(t)
	newMachine(t, l, "a", MachineConfig{}) // skips where there are none
	for want, c := range map[string]MachineConfig{
		"no such file":  {Binds: []Bind{{Source: "/nonexistent", Target: "/etc/x"}}},
		"only below":    {Binds: []Bind{{Source: "/etc/passwd", Target: "/nonexistent/x"}}},
		"ended at once": {Env: []string{"PATH=/nonexistent"}},
	} {
		_, err := l.Machine(t.Context(), "b"+want[:2], c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Neither dots nor a symbolic link make a bind's target outside of what is the machine's own.
func TestBindMakesNothingOnTheHost(t *testing.T) {
	// in no directory that a machine has for itself
	outside := must[string](t)(os.MkdirTemp("/", ".vra-test-"))
	defer os.RemoveAll(outside)
	root := t.TempDir() // of a package whose files lead out
	check(t, os.MkdirAll(filepath.Join(root, "usr/vra-out"), 0o755))
	check(t, os.Symlink(outside, filepath.Join(root, "usr/vra-out/dir")))
	check(t, os.Symlink(filepath.Join(outside, "dangling"),
		filepath.Join(root, "usr/vra-out/file")))
	l := newLab(t)
	newMachine(t, l, "ok", MachineConfig{}) // skips where there are none
	for i, target := range []string{"/etc/.." + outside + "/dots", "/usr/vra-out/dir/link",
		"/usr/vra-out/dir/deep/link", "/usr/vra-out/file"} {
		_, err := l.Machine(t.Context(), fmt.Sprintf("m%d", i), MachineConfig{
			Packages: []Package{{Root: root}},
			Binds:    []Bind{{Source: "/etc/passwd", Target: target}},
		})
		if err == nil || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: got %v", target, err)
		}
	}
	_, err := l.Machine(t.Context(), "below", MachineConfig{Binds: []Bind{
		{Source: outside, Target: "/etc/vra-out"},
		{Source: "/etc/passwd", Target: "/etc/vra-out/below"},
	}})
	if err == nil || !strings.Contains(err.Error(), "/etc/vra-out/below") {
		t.Errorf("below another bind: got %v", err)
	}
	for _, e := range must[[]os.DirEntry](t)(os.ReadDir(outside)) {
		t.Errorf("the host has %s now", e.Name())
	}
}

func TestBindKeepsItsSourceAsItWas(t *testing.T) {
	l, dir := newLab(t), t.TempDir()
	m := newMachine(t, l, "a", MachineConfig{Binds: []Bind{{Source: dir, Target: "/run"}}})
	if got := says(t, m, "hostname; ls -A /run"); got != "a" {
		t.Errorf("a machine whose /run is shown from outside says %q", got)
	}
	for _, e := range must[[]os.DirEntry](t)(os.ReadDir(dir)) {
		t.Errorf("the folder that was shown has %s now", e.Name())
	}
}

func TestTwoLabsOfOneNameAreNotTakenForOne(t *testing.T) {
	name := fmt.Sprintf("two%d", os.Getpid())
	a, b := newLabNamed(t, name), newLabNamed(t, name)
	newMachine(t, a, "a", MachineConfig{})
	newMachine(t, b, "b", MachineConfig{})
	found, err := Machines(name)
	if err == nil || !strings.Contains(err.Error(), "2 of this name are up") {
		t.Errorf("found %v, %v", found, err)
	}
}
