package netlab

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// netnsDir remembers what we did to /run/netns, to undo exactly that.
type netnsDir struct{ made, mounted bool }

// mountNetnsDir makes /run/netns a shared mount of itself, as iproute2 does (ip/ipnetns.c): were our namespaces mounted below a
// plain directory, the user's first `ip netns add` would cover them with a copy and they could not be removed.
func mountNetnsDir() (d netnsDir, err error) {
	switch err := os.Mkdir(runNetns, 0o755); {
	case err == nil:
		d.made = true
	case !os.IsExist(err):
		return d, fmt.Errorf("netlab: %w", err)
	}
	share := func() error { return unix.Mount("", runNetns, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if err == unix.EINVAL { // not a mount point yet
		if err = unix.Mount(runNetns, runNetns, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			d.mounted = true
			err = share()
		}
	}
	if err != nil {
		return d, fmt.Errorf("netlab: share %s: %w", runNetns, err)
	}
	return d, nil
}

// release undoes mountNetnsDir unless somebody else keeps namespaces there by now.
func (d netnsDir) release() error {
	entries, err := os.ReadDir(runNetns)
	if err != nil || len(entries) > 0 {
		return err
	}
	if d.mounted {
		if err := unix.Unmount(runNetns, 0); err != nil && err != unix.EBUSY && err != unix.EINVAL {
			return fmt.Errorf("netlab: unmount %s: %w", runNetns, err)
		}
	}
	if d.made {
		os.Remove(runNetns) // busy or filled meanwhile: then it is not ours any more
	}
	return nil
}
