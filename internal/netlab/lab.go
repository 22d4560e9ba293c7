// Package netlab builds topologies out of network namespaces and counts packets in them: the ground under the demo, the
// interoperation tests and the labs. It owns everything it makes (namespaces with their links, processes and their shared memory, a directory, the
// mounts of /run/netns) and removes all of it on Close, and it removes what an earlier run that was killed has left.
//
// It knows BIRD, FRR and VPP as programs to configure, start and ask, and machines, which are what containers are; it does not know Calico or
// our agent, and it imports no testing.
//
// A segment is a Linux bridge in a namespace of its own, everything else is veth: both are in every distribution's kernel,
// while dummy, vrf, ipip and netem devices may be missing.
//
// Everything here needs root and works on this machine only: no packet leaves the namespaces.
package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
)

// Lab is one topology. Its methods may be called from several goroutines, except Close, which comes last.
type Lab struct {
	prefix  string // of every name this lab makes: "vra-demo-4711"
	dir     string
	log     *slog.Logger
	starter *starter

	mu         sync.Mutex // guards the following
	namespaces []*Namespace
	processes  []*Process
}

var labName = regexp.MustCompile(`^[a-z0-9]{1,24}$`)

// Available says in one sentence why no lab can be made here, or returns nil.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	return nil
}

// New removes what dead runs have left and makes an empty lab. The name (lower case letters and digits) and our pid become
// part of all its namespaces' names, so that labs which run side by side do not collide.
func New(name string, log *slog.Logger) (*Lab, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	if !labName.MatchString(name) {
		return nil, fmt.Errorf("netlab: name %q: want up to 24 lower case letters and digits", name)
	}
	if err := sweep(log); err != nil {
		log.Warn("netlab: something of an earlier run stays behind", "err", err)
	}
	l := &Lab{log: log}
	if err := l.claim(name); err != nil {
		return nil, err
	}
	l.starter = newStarter()
	return l, nil
}

// claim takes the first free prefix: making the directory is the atomic step.
func (l *Lab) claim(name string) error {
	for i := 1; ; i++ {
		l.prefix = fmt.Sprintf("vra-%s-%d", name, os.Getpid())
		if i > 1 {
			l.prefix += fmt.Sprintf(".%d", i)
		}
		l.dir = filepath.Join(os.TempDir(), l.prefix)
		err := os.Mkdir(l.dir, 0o700)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("netlab: %w", err)
		}
	}
}

// Dir is the lab's directory for configurations, sockets and logs; it goes with the lab.
func (l *Lab) Dir() string { return l.dir }

// Close stops every process and removes every namespace, mount and file of the lab. It does all it can and joins the errors.
func (l *Lab) Close() error {
	l.mu.Lock()
	processes, namespaces := l.processes, l.namespaces
	l.processes, l.namespaces = nil, nil
	l.mu.Unlock()

	var errs []error
	errs = append(errs, stopAll(processes))
	errs = append(errs, killMarked(l.prefix))
	l.starter.close()
	for _, n := range namespaces {
		errs = append(errs, n.remove())
	}
	errs = append(errs, removeSharedMemory(l.prefix))
	errs = append(errs, withNetnsDir(releaseNetnsDir))
	errs = append(errs, os.RemoveAll(l.dir))
	return errors.Join(errs...)
}
