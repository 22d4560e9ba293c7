package netlab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopGrace is how long a process may take between SIGTERM and SIGKILL.
const stopGrace = 5 * time.Second

// Spec is a program to run. Path is looked up in PATH when it has no slash.
type Spec struct {
	// name of the process and, with ".log", of its log file in the lab's directory; unique among
	// running processes
	Name      string
	Namespace *Namespace // nil: the host's
	Path      string
	Args      []string
	Env       []string   // added to ours
	Dir       string     // working directory; empty: ours
	Binds     []Bind     // what this program alone sees in place of the machine's files
	Files     []*os.File // its descriptors from 3 on; the caller closes its own
}

func (s Spec) room() room {
	r := room{net: s.Namespace}
	if len(s.Binds) > 0 {
		r.mounts = func() error { return mountBinds(s.Binds) }
	}
	return r
}

// Process is a program of the lab. It leads a process group, and dies with us even if we are
// killed.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; valid once done is closed
}

// Start runs a program until it ends, is stopped, or the lab is closed. Its log has both outputs.
func (l *Lab) Start(s Spec) (*Process, error) {
	p := &Process{name: s.Name, log: filepath.Join(l.dir, s.Name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("netlab: %w", err)
	}
	defer out.Close() // the child has its own copy
	p.cmd = exec.Command(s.Path, s.Args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Dir, p.cmd.ExtraFiles = s.Dir, s.Files
	if err := l.launch(p.cmd, s.room(), s.Env); err != nil {
		return nil, fmt.Errorf("netlab: start %s: %w", s.Name, err)
	}
	l.adopt(p)
	return p, nil
}

// adopt waits for a running process, and stops it with the lab.
func (l *Lab) adopt(p *Process) {
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	l.mu.Lock()
	l.processes = append(l.processes, p)
	l.mu.Unlock()
}

// Run runs a program to its end in the namespace and returns its output. The error has its stderr.
func (n *Namespace) Run(ctx context.Context, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := n.lab.launch(cmd, room{net: n}, nil)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return stdout.Bytes(), fmt.Errorf("netlab: %s %s: %w: %s", path, strings.Join(args, " "),
			err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

func (l *Lab) launch(cmd *exec.Cmd, r room, env []string) error {
	cmd.Env = append(append(os.Environ(), env...), marker+l.prefix)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return l.starter.start(cmd, r)
}

// Name is the one given in Spec.
func (p *Process) Name() string { return p.name }

// PID is the process id, which is also that of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// LogPath is the file with the process's output.
func (p *Process) LogPath() string { return p.log }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is the process's error, nil for status 0. Call it after Done.
func (p *Process) Err() error { return p.err }

// Memory returns a value of the process's memory in bytes: VmRSS now, VmHWM the maximum.
func (p *Process) Memory(figure string) (bytes int, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, fmt.Errorf("netlab: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), figure+":"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("netlab: %s has no %s", p.name, figure)
}

// CPUSeconds is the processor time that the process has used so far, in user and kernel mode.
func (p *Process) CPUSeconds() (float64, error) {
	// The clock that clock_getcpuclockid(3) names; proc(5) has the same in steps of 10 ms.
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.PID()<<3|2), &t); err != nil {
		return 0, fmt.Errorf("netlab: processor time of %s: %w", p.name, err)
	}
	return time.Duration(t.Nano()).Seconds(), nil
}

// Signal sends a signal to the whole group. It succeeds if the process has ended.
func (p *Process) Signal(s syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(-p.PID(), s); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("netlab: signal %s: %w", p.name, err)
	}
	return nil
}

// Stop ends the process group with SIGTERM, and after five seconds SIGKILL. The exit status is no
// error.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timeout := time.NewTimer(stopGrace)
	defer timeout.Stop()
	select {
	case <-p.done:
	case <-timeout.C:
	}
	return p.Kill()
}

// Kill ends the process and its group by SIGKILL and waits for it.
func (p *Process) Kill() error {
	if p.isReused() {
		return nil
	}
	// also what a process that ended left of its group
	err := syscall.Kill(-p.PID(), syscall.SIGKILL)
	<-p.done
	if err != nil && err != syscall.ESRCH {
		return fmt.Errorf("netlab: kill %s: %w", p.name, err)
	}
	return nil
}

// isReused reports whether p has ended and another process has its PID, which the kernel gives to
// none while there is something left of p's group.
func (p *Process) isReused() bool {
	select {
	case <-p.done:
		return syscall.Kill(p.PID(), 0) != syscall.ESRCH
	default:
		return false
	}
}

// await waits until ready returns nil, or p has ended.
func (p *Process) await(ctx context.Context, ready func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.Done():
			text, _ := os.ReadFile(p.LogPath())
			return fmt.Errorf("netlab: %s ended at once: %s", p.Name(), lastLine(string(text)))
		case <-ctx.Done():
			return fmt.Errorf("netlab: %s is not ready (%w): %w", p.Name(), err, context.Cause(ctx))
		}
	}
}

func stopAll(processes []*Process) error {
	errs := make([]error, len(processes))
	var wg sync.WaitGroup
	for i, p := range processes {
		wg.Go(func() { errs[i] = p.Stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
