// Package netlab builds topologies of network namespaces and counts packets in them. It runs BIRD,
// FRR and VPP there, and machines, which resemble containers. It does not know Calico or our agent,
// and does not import testing. It needs root.
//
// Close removes everything that a lab has made; New also removes what a killed run has left. A
// segment is a bridge in its own namespace and everything else is veth: dummy, vrf, ipip and netem
// may be missing in a distribution's kernel.
package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Lab is a topology. Its methods are safe for concurrent use, except Close, which comes last.
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

// Available returns nil, or one sentence why no lab can be made here.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	return nil
}

// New removes what dead runs have left and makes an empty lab. All its namespaces' names contain
// the name (lower case letters and digits) and our pid, so labs can run side by side.
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

// ErrNone means that no lab of this name runs.
var ErrNone = errors.New("none of this name is up in namespaces")

// Running returns the directory of the one running lab with this name, of the process pid or, with
// 0, of whichever, that has files of this pattern there.
func Running(lab string, pid int, pattern string) (string, error) {
	process := "*"
	if pid != 0 {
		process = strconv.Itoa(pid)
	}
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "vra-"+lab+"-"+process, pattern))
	if err != nil {
		return "", fmt.Errorf("netlab: %w", err)
	}
	depth := strings.Count(pattern, "/") + 1
	found := map[string]bool{}
	for _, dir := range files {
		for range depth {
			dir = filepath.Dir(dir)
		}
		if _, dead := orphaned(filepath.Base(dir)); !dead {
			found[dir] = true
		}
	}
	dirs := slices.Sorted(maps.Keys(found))
	switch len(dirs) {
	case 0:
		return "", ErrNone
	case 1:
		return dirs[0], nil
	}
	return "", fmt.Errorf("%d of this name are up: %s", len(dirs), strings.Join(dirs, ", "))
}

// Dir is the lab's directory for configurations, sockets and logs. Close removes it.
func (l *Lab) Dir() string { return l.dir }

// Close stops every process and removes every namespace, mount and file of the lab. It continues
// after an error and joins all of them.
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
