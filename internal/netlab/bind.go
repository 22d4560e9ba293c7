package netlab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Bind mounts Source, a file or a directory, on Target, which must exist, for one program.
type Bind struct {
	Source, Target string
}

// mountBinds mounts in the current mount namespace, which must not be shared.
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

// keepMounts makes the mounts of a new mount namespace private, so that the host does not see them.
func keepMounts() error {
	if err := unix.Mount("", "/", "none", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// copies of the labs' names would keep the namespaces alive
	unix.Unmount(runNetns, unix.MNT_DETACH)
	return nil
}
