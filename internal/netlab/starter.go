package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// starter is the one thread that forks: a child with a parent death signal is killed when the *thread* that forked it ends, so this
// thread lives as long as the lab.
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

// room is where a program runs. The zero value is the host.
type room struct {
	net   *Namespace
	binds []Bind
}

// start forks with the calling thread inside the room, and brings the thread back.
func (r room) start(cmd *exec.Cmd) error {
	var left []func() error // undo, the last first
	defer func() {
		for i := len(left) - 1; i >= 0; i-- {
			if err := left[i](); err != nil {
				panic("netlab: the starter thread cannot go back: " + err.Error())
			}
		}
	}()
	enter := func(kind string, flag int, into func() error) error {
		home, err := os.Open("/proc/thread-self/ns/" + kind)
		if err != nil {
			return err
		}
		if err := into(); err != nil {
			return errors.Join(err, home.Close())
		}
		left = append(left, func() error { return errors.Join(unix.Setns(int(home.Fd()), flag), home.Close()) })
		return nil
	}
	if r.net != nil {
		if err := enter("net", unix.CLONE_NEWNET, func() error { return unix.Setns(int(r.net.file.Fd()), unix.CLONE_NEWNET) }); err != nil {
			return err
		}
	}
	if len(r.binds) > 0 {
		// This thread's root and directory are its own from now on: a thread that shares them cannot change its mounts.
		if err := enter("mnt", unix.CLONE_NEWNS, func() error { return unix.Unshare(unix.CLONE_NEWNS) }); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := mountBinds(r.binds); err != nil {
			return err
		}
	}
	return cmd.Start()
}
