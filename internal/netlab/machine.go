package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Machine resembles a container: a network namespace with its own processes, host name and files.
// Its files are this machine's and its packages'. Changes of /etc, /root, /srv, /usr and /var are
// its own. /dev/shm, /run, /tmp, /var/lib, /var/log and /var/tmp are empty at first. It is safe for
// concurrent use.
type Machine struct {
	*Namespace
	init *Process
	env  []string
}

// MachineConfig configures a machine. The zero value is usable.
type MachineConfig struct {
	Packages []Package // merged into /usr
	Binds    []Bind    // targets are made where they are missing
	// the same by symbolic links, for programs that locate their files by their real path
	Links    []Bind
	Env      []string // of everything that runs in it
	Accounts []Account
}

// Account is a user with a group of the same name, as an installation would create it.
type Account struct {
	Name   string
	ID     int
	Groups []string // further ones, made as well
}

// overlay lists what is writable in a machine, over this machine's files.
var overlay = []string{"/usr", "/etc", "/root", "/srv", "/var"}

// emptied lists the directories with the state of this machine's programs, and their modes.
var emptied = []struct{ dir, mode string }{
	{"/tmp", "1777"}, {"/var/tmp", "1777"}, {"/dev/shm", "1777"}, {"/run", "755"},
	{"/var/lib", "755"}, {"/var/log", "755"},
}

// MachinesAvailable returns nil, or one sentence why no machine can be made here.
func MachinesAvailable() error {
	if err := Available(); err != nil {
		return err
	}
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("netlab: %w", err)
	}
	if !bytes.Contains(known, []byte("\toverlay\n")) {
		return errors.New("this kernel has no overlay file system (modprobe overlay)")
	}
	return nil
}

// machineInit is the first process of a machine: SIGTERM ends it and all others, and it reaps
// orphans. It logs that it is up. mount does not write mtab, as a file of the host may be bound
// there.
const machineInit = `mount -n -t proc proc /proc &&
echo "$HOSTNAME" > /proc/sys/kernel/hostname && echo ` + machineUp + ` || exit
trap 'exit 0' TERM
sleep infinity &
wait`

// Machine makes a machine and waits until it is up. The name is unique in the lab and is its host
// name.
func (l *Lab) Machine(ctx context.Context, name string, c MachineConfig) (*Machine, error) {
	n, err := l.Namespace(name)
	if err != nil {
		return nil, err
	}
	m := &Machine{Namespace: n, env: append([]string{"PATH=" + machinePath, "HOME=/root",
		"HOSTNAME=" + name}, c.Env...)}
	if err := m.boot(ctx, c); err != nil {
		return nil, fmt.Errorf("netlab: machine %s: %w", name, err)
	}
	return m, nil
}

const machineUp = "up"

// machinePath is Debian's PATH, with FRR's directory.
const machinePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/frr"

func (m *Machine) boot(ctx context.Context, c MachineConfig) error {
	l := m.lab
	staging := filepath.Join(l.dir, m.short+".files")
	if err := os.Mkdir(staging, 0o755); err != nil {
		return err
	}
	p := &Process{name: m.short, log: filepath.Join(l.dir, m.short+".log"),
		done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	p.cmd = exec.Command("/bin/sh", "-c", machineInit)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = out, out, "/"
	p.cmd.Env = append(slices.Clone(m.env), marker+l.prefix)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{
		// the kernel kills all others with the first process of a machine
		Setpgid: true, Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := l.starter.start(p.cmd, room{net: m.Namespace, mounts: func() error {
		return mountMachine(staging, c)
	}}); err != nil {
		return err
	}
	l.adopt(p)
	m.init = p
	if err := os.WriteFile(filepath.Join(l.dir, m.short+".pid"), fmt.Appendln(nil, p.PID()),
		0o600); err != nil {
		return err
	}
	return p.await(ctx, func() error {
		said, err := os.ReadFile(p.log)
		if err == nil && !strings.HasSuffix(string(said), machineUp+"\n") {
			err = errors.New("not up yet")
		}
		return err
	})
}

// mountMachine fills a new mount namespace. It opens the sources of binds first, which may lie
// below an emptied directory.
func mountMachine(staging string, c MachineConfig) error {
	if err := keepMounts(); err != nil {
		return err
	}
	sources, err := openSources(c.Binds)
	defer closeAll(sources)
	if err != nil {
		return err
	}
	if err := unix.Mount("none", staging, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	for _, dir := range overlay {
		if !isDir(dir) {
			continue // a minimal machine's /srv
		}
		lower := []string{}
		for _, p := range c.Packages {
			if inside := filepath.Join(p.Root, dir); isDir(inside) {
				lower = append(lower, inside)
			}
		}
		if err := mountOverlay(staging, dir, append(lower, dir)); err != nil {
			return err
		}
	}
	for _, e := range emptied {
		if err := unix.Mount("none", e.dir, "tmpfs", 0, "mode="+e.mode); err != nil {
			return fmt.Errorf("empty %s: %w", e.dir, err)
		}
	}
	if err := addAccounts(c.Accounts); err != nil {
		return err
	}
	if err := linkAll(c.Links); err != nil {
		return err
	}
	return showAll(sources, c.Binds)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// mountOverlay makes dir writable without changing the host's. The first of lower hides later ones.
func mountOverlay(staging, dir string, lower []string) error {
	upper, work := filepath.Join(staging, dir, "upper"), filepath.Join(staging, dir, "work")
	for _, d := range []string{upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", strings.Join(lower, ":"), upper,
		work)
	if err := unix.Mount("none", dir, "overlay", 0, options); err != nil {
		return fmt.Errorf("overlay on %s: %w", dir, err)
	}
	return nil
}

func openSources(binds []Bind) (files []*os.File, err error) {
	for _, b := range binds {
		fd, err := unix.Open(b.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return files, fmt.Errorf("bind %s: %w", b.Source, err)
		}
		files = append(files, os.NewFile(uintptr(fd), b.Source))
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// showAll binds each open source to its target.
func showAll(sources []*os.File, binds []Bind) error {
	for i, b := range binds {
		from := fmt.Sprintf("/proc/self/fd/%d", sources[i].Fd())
		if err := makeTarget(b.Target, isDir(from), binds[:i]); err != nil {
			return fmt.Errorf("bind %s: %w", b.Target, err)
		}
		if err := unix.Mount(from, filepath.Clean(b.Target), "none", unix.MS_BIND|unix.MS_REC,
			""); err != nil {
			return fmt.Errorf("bind %s at %s: %w", b.Source, b.Target, err)
		}
	}
	return nil
}

// makeTarget makes the target of a bind in the machine's own files. Elsewhere it must exist.
func makeTarget(target string, dir bool, shown []Bind) error {
	target = filepath.Clean(target)
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	real, err := reached(target)
	if err != nil {
		return err
	}
	for _, b := range shown {
		if below(real, filepath.Clean(b.Target)) {
			return fmt.Errorf("not there in %s, which is shown at %s", b.Source, b.Target)
		}
	}
	own := slices.Clone(overlay)
	for _, e := range emptied {
		own = append(own, e.dir)
	}
	if !slices.ContainsFunc(own, func(d string) bool { return below(real, d) }) {
		return fmt.Errorf("not there, and only below %s can it be made", strings.Join(own, ", "))
	}
	if dir {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, nil, 0o644)
}

// reached returns the existing part of a path, without symbolic links.
func reached(path string) (string, error) {
	for _, err := os.Lstat(path); err != nil; _, err = os.Lstat(path) {
		path = filepath.Dir(path)
	}
	return filepath.EvalSymlinks(path) // an error: a link to nowhere
}

// below reports whether a path is dir or inside it.
func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func linkAll(links []Bind) error {
	for _, b := range links {
		os.Remove(b.Target) // in the overlay only
		if err := os.Symlink(b.Source, b.Target); err != nil {
			return err
		}
	}
	return nil
}

// addAccounts appends to the machine's own /etc/passwd and /etc/group.
func addAccounts(accounts []Account) error {
	for _, a := range accounts {
		if err := appendLine("/etc/passwd",
			fmt.Sprintf("%s:x:%d:%d::/nonexistent:/usr/sbin/nologin", a.Name, a.ID,
				a.ID)); err != nil {
			return err
		}
		for i, group := range append([]string{a.Name}, a.Groups...) {
			if err := appendLine("/etc/group", fmt.Sprintf("%s:x:%d:%s", group, a.ID+i,
				a.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func appendLine(file, line string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	key, _, _ := strings.Cut(line, ":")
	if strings.HasPrefix(string(text), key+":") || strings.Contains(string(text), "\n"+key+":") {
		return nil // a package that is installed here as well
	}
	return os.WriteFile(file, append(bytes.TrimRight(text, "\n"), "\n"+line+"\n"...), 0o644)
}

// Exec runs a program to its end in the machine and returns its output. The output is a file, not a
// pipe, as a daemon that it leaves behind may keep it open.
func (m *Machine) Exec(ctx context.Context, path string, args ...string) ([]byte, error) {
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("netlab: %w", err)
	}
	out := os.NewFile(uintptr(fd), "output")
	defer out.Close()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, "/"
	cmd.Env = append(slices.Clone(m.env), marker+m.lab.prefix)
	// no parent death signal: its parent is not in a namespace that it sees
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := m.lab.starter.start(cmd, room{machine: m.init.PID()}); err != nil {
		return nil, fmt.Errorf("netlab: %s: %w", m.short, err)
	}
	err = cmd.Wait()
	if _, seek := out.Seek(0, io.SeekStart); seek != nil {
		return nil, errors.Join(err, seek)
	}
	text, read := io.ReadAll(out)
	return text, errors.Join(err, read)
}

// Attach runs a program in the machine of another process's lab until it ends; init is the pid in
// the file NAME.pid of that lab's directory.
func Attach(init int, cmd *exec.Cmd) error {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", init))
	if err != nil {
		return fmt.Errorf("netlab: %w", err)
	}
	for v := range strings.SplitSeq(strings.TrimRight(string(env), "\x00"), "\x00") {
		cmd.Env = append(cmd.Env, v)
	}
	cmd.Dir = "/"
	s := newStarter()
	defer s.close()
	if err := s.start(cmd, room{machine: init}); err != nil {
		return fmt.Errorf("netlab: %w", err)
	}
	return cmd.Wait()
}

// Machines returns the machines of the running lab with this name, and their pids for Attach.
func Machines(lab string) (map[string]int, error) {
	dir, err := Running(lab, 0, "*.pid")
	if err != nil {
		return nil, err
	}
	return machinesIn(dir), nil
}

func machinesIn(dir string) map[string]int {
	machines := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(dir, "*.pid")) // the pattern is well formed
	for _, file := range files {
		var pid int
		text, err := os.ReadFile(file)
		if err != nil {
			continue // going away
		}
		if _, err := fmt.Sscan(string(text), &pid); err == nil {
			machines[strings.TrimSuffix(filepath.Base(file), ".pid")] = pid
		}
	}
	return machines
}
