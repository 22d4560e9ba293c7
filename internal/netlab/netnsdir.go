package netlab

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// runNetns is where iproute2 keeps named namespaces, so `ip netns exec` finds ours.
const runNetns = "/run/netns"

// netnsMark exists while a lab has prepared /run/netns, and holds "made" if it made the directory.
// The last lab undoes both, whichever came first.
const netnsMark = "/run/vra-netns"

// withNetnsDir runs f while no other lab changes the directory.
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

// prepareNetnsDir makes /run/netns a shared mount of itself, as iproute2 does (ip/ipnetns.c):
// otherwise the first `ip netns add` would cover our mounts with copies, which could not be
// removed. Needs withNetnsDir.
func prepareNetnsDir() error {
	mark := ""
	switch err := os.Mkdir(runNetns, 0o755); {
	case err == nil:
		mark = "made"
	case !os.IsExist(err):
		return err
	}
	share := func() error {
		return unix.Mount("", runNetns, "none", unix.MS_SHARED|unix.MS_REC, "")
	}
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

// releaseNetnsDir undoes prepareNetnsDir if no namespace is left. Needs withNetnsDir.
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
	case nil, unix.EINVAL: // EINVAL: already done
	case unix.EBUSY: // a process uses it
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

// removeNetns removes a namespace's name. The namespace ends with its last process and descriptor.
func removeNetns(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL &&
		err != unix.ENOENT {
		return fmt.Errorf("netlab: unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("netlab: %w", err)
	}
	return nil
}
