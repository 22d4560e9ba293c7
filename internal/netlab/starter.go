package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// starter is the only thread that forks: a parent death signal comes when the *thread* that forked
// ends, so this one lives as long as the lab.
type starter struct {
	jobs chan func()
	done chan struct{}
}

func newStarter() *starter {
	s := &starter{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: it ends with the goroutine
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

func (s *starter) start(cmd *exec.Cmd, r room) error {
	result := make(chan error)
	s.jobs <- func() { result <- r.start(cmd) }
	return <-result
}

func (s *starter) close() {
	close(s.jobs)
	<-s.done
}

// room selects where a program runs. The zero value is the host.
type room struct {
	net    *Namespace
	mounts func() error // in a mount namespace of its own, that this fills
	// a process whose namespaces the program shares; 0: none
	machine int
}

// start forks with the calling thread inside the room, and restores the thread.
func (r room) start(cmd *exec.Cmd) (err error) {
	var v visit
	defer func() {
		if back := v.leave(); back != nil {
			panic("netlab: the starter thread cannot go back: " + back.Error())
		}
	}()
	if err := v.enter(r); err != nil {
		return err
	}
	return cmd.Start()
}

// visit records the other namespaces that a thread has entered.
type visit struct {
	undo []func() error // in the order of entering
}

// enterable lists a machine's namespaces in the order of entering. The mounts are last, since they
// change /proc.
var enterable = []struct {
	name string
	flag int
}{{"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}, {"ipc", unix.CLONE_NEWIPC},
	{"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS}}

func (v *visit) enter(r room) error {
	if r.net != nil {
		if err := v.swap("net", unix.CLONE_NEWNET, func() error {
			return unix.Setns(int(r.net.file.Fd()), unix.CLONE_NEWNET)
		}); err != nil {
			return fmt.Errorf("enter %s: %w", r.net.Name(), err)
		}
	}
	if r.mounts != nil {
		if err := v.swap("mnt", unix.CLONE_NEWNS, func() error {
			return unix.Unshare(unix.CLONE_NEWNS)
		}); err != nil {
			return fmt.Errorf("unshare mounts: %w", err)
		}
		return r.mounts()
	}
	if r.machine == 0 {
		return nil
	}
	for _, ns := range enterable {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", r.machine, ns.name))
		if err != nil {
			return err
		}
		err = v.swap(ns.name, ns.flag, func() error { return unix.Setns(int(f.Fd()), ns.flag) })
		f.Close()
		if err != nil {
			return fmt.Errorf("enter %s of process %d: %w", ns.name, r.machine, err)
		}
	}
	return nil
}

// swap enters a namespace and records how to leave it.
func (v *visit) swap(name string, flag int, into func() error) error {
	file := "/proc/thread-self/ns/" + name
	if name == "pid" { // "pid" itself never changes for a thread
		file += "_for_children"
	}
	home, err := os.Open(file)
	if err != nil {
		return err
	}
	dir := -1
	if flag == unix.CLONE_NEWNS {
		// A thread that shares its root and directory cannot change its mounts. Leaving resets both
		// to "/".
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return errors.Join(err, home.Close())
		}
		if dir, err = unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return errors.Join(err, home.Close())
		}
	}
	v.undo = append(v.undo, func() error {
		defer home.Close()
		if err := unix.Setns(int(home.Fd()), flag); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if dir < 0 {
			return nil
		}
		defer unix.Close(dir)
		return unix.Fchdir(dir)
	})
	return into()
}

func (v *visit) leave() error {
	var errs []error
	for i := len(v.undo) - 1; i >= 0; i-- {
		errs = append(errs, v.undo[i]())
	}
	return errors.Join(errs...)
}
