package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// marker is the environment variable that identifies a lab's processes, also of a killed run or
// outside their group. A user's shell in a namespace does not have it and is left alone.
const marker = "VRA_NETLAB="

// prefixPattern finds a lab's prefix in the name of a namespace, a directory or a marker:
// "vra-NAME-PID" or "vra-NAME-PID.N".
var prefixPattern = regexp.MustCompile(`^vra-[a-z0-9]+-(\d+)(?:\.\d+)?`)

// orphaned reports whether name belongs to a lab whose process is gone, and the lab's prefix.
func orphaned(name string) (prefix string, ok bool) {
	m := prefixPattern.FindStringSubmatch(name)
	if m == nil {
		return "", false
	}
	pid, err := strconv.Atoi(m[1])
	return m[0], err == nil && syscall.Kill(pid, 0) == syscall.ESRCH
}

// sweep removes the processes, namespaces and directories of labs whose process is gone.
func sweep(log *slog.Logger) error {
	var errs []error
	var prefixes []string
	for _, parent := range []string{runNetns, os.TempDir()} {
		entries, err := os.ReadDir(parent)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("netlab: %w", err))
		}
		for _, e := range entries {
			prefix, ok := orphaned(e.Name())
			if !ok {
				continue
			}
			if !slices.Contains(prefixes, prefix) {
				log.Info("netlab: removing what a killed run left", "lab", prefix)
				prefixes = append(prefixes, prefix)
				errs = append(errs, killMarked(prefix), removeSharedMemory(prefix))
			}
			path := filepath.Join(parent, e.Name())
			if parent == runNetns {
				errs = append(errs, removeNetns(path))
			} else {
				errs = append(errs, os.RemoveAll(path))
			}
		}
	}
	return errors.Join(errs...)
}

// sharedMemory is where VPP keeps its API segment. A killed VPP leaves it behind.
const sharedMemory = "/dev/shm"

func removeSharedMemory(prefix string) error {
	// the pattern is well formed
	files, _ := filepath.Glob(filepath.Join(sharedMemory, prefix+"-*"))
	var errs []error
	for _, file := range files {
		errs = append(errs, os.Remove(file))
	}
	return errors.Join(errs...)
}

// killMarked kills the processes with the marker of prefix and waits for their end.
func killMarked(prefix string) error {
	deadline := time.Now().Add(stopGrace)
	for {
		pids := marked(prefix)
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("netlab: processes %v of %s do not end", pids, prefix)
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// Traces lists what exists of a lab, for tests: files, namespaces and shared memory by their names,
// mounts, and processes. The prefix is "vra-NAME-PID".
func Traces(prefix string) (found []string) {
	for _, parent := range []string{runNetns, os.TempDir(), sharedMemory} {
		entries, _ := os.ReadDir(parent) // what is not there has no trace
		for _, e := range entries {
			if e.Name() == prefix || strings.HasPrefix(e.Name(), prefix+"-") {
				found = append(found, filepath.Join(parent, e.Name()))
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		found = append(found, err.Error())
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, prefix+"-") {
			found = append(found, "mount "+line)
		}
	}
	for _, pid := range marked(prefix) {
		found = append(found, fmt.Sprintf("process %d", pid))
	}
	return found
}

func marked(prefix string) (pids []int) {
	want := []byte(marker + prefix)
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well formed
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		if !slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool {
			return bytes.Equal(v, want)
		}) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil &&
			pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
