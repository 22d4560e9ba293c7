package netlab

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// runNetns is where iproute2 keeps its named namespaces, so `ip netns exec` finds ours.
const runNetns = "/run/netns"

// netnsMark exists while /run/netns is as a lab has prepared it, and holds "made" if the directory is a lab's as well: the last lab to
// go undoes that, whichever came first.
const netnsMark = "/run/vra-netns"

// withNetnsDir runs f while no other lab makes or undoes the directory.
func withNetnsDir(f func() error) error {
	lock, err := os.Open("/run")
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock /run: %w", err)
	}
	return f()
}

// prepareNetnsDir makes /run/netns a shared mount of itself, as iproute2 does (ip/ipnetns.c): were our namespaces mounted below a
// plain directory, the user's first `ip netns add` would cover them with a copy and they could not be removed. Needs withNetnsDir.
func prepareNetnsDir() error {
	mark := ""
	switch err := os.Mkdir(runNetns, 0o755); {
	case err == nil:
		mark = "made"
	case !os.IsExist(err):
		return err
	}
	share := func() error { return unix.Mount("", runNetns, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if err == unix.EINVAL { // not a mount point yet
		if err = unix.Mount(runNetns, runNetns, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = errors.Join(os.WriteFile(netnsMark, []byte(mark), 0o600), share())
		}
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", runNetns, err)
	}
	return nil
}

// releaseNetnsDir undoes prepareNetnsDir once no namespace is left. Needs withNetnsDir.
func releaseNetnsDir() error {
	mark, err := os.ReadFile(netnsMark)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	entries, err := os.ReadDir(runNetns)
	if err != nil || len(entries) > 0 {
		return err
	}
	switch err := unix.Unmount(runNetns, 0); err {
	case nil, unix.EINVAL: // EINVAL: somebody else did
	case unix.EBUSY: // somebody looks around in it
		return nil
	default:
		return fmt.Errorf("unmount %s: %w", runNetns, err)
	}
	if string(mark) == "made" {
		if err := os.Remove(runNetns); err != nil {
			return err
		}
	}
	return os.Remove(netnsMark)
}

// removeNetns takes a namespace's name away. The namespace ends with its last process and descriptor.
func removeNetns(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("netlab: unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("netlab: %w", err)
	}
	return nil
}
