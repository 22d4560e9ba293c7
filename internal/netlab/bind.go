package netlab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Bind shows Source, a file or a directory, at Target, which must be there to be covered. Nobody else sees it.
type Bind struct {
	Source, Target string
}

// mountBinds needs a mount namespace that nobody else uses.
func mountBinds(binds []Bind) error {
	if err := keepMounts(); err != nil {
		return err
	}
	for _, b := range binds {
		if err := unix.Mount(b.Source, b.Target, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("show %s at %s: %w", b.Source, b.Target, err)
		}
	}
	return nil
}

// keepMounts makes the mounts of a new mount namespace its own, or the host would see what is mounted in it.
func keepMounts() error {
	if err := unix.Mount("", "/", "none", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	unix.Unmount(runNetns, unix.MNT_DETACH) // its copy of the labs' names would keep the namespaces alive
	return nil
}
