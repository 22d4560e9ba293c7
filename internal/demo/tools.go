package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// findPrograms looks for what the demo runs, and gets BIRD's package where there is none. Without
// VPP the agents' nodes forward with the kernel.
func findPrograms(ctx context.Context, cfg Config) (p testcluster.Programs, err error) {
	p.Agent = cfg.Binary
	if p.VPP, err = findVPP(cfg.Dataplane); err != nil || cfg.Learn != "bgp" {
		return p, err // agents alone
	}
	defer netlab.WhenSlow(func() {
		fmt.Fprintf(cfg.Out, "downloading Debian's package of BIRD to %s, once\n", cfg.BuildDir)
	})()
	if p.Bird, err = netlab.FindBird(ctx, filepath.Join(cfg.BuildDir, "packages")); err != nil {
		return p, fmt.Errorf("the demo needs BIRD 1.6 and cannot get it: %w", err)
	}
	return p, nil
}

// findVPP returns the VPP for that choice of a data plane, nil for the kernel. "auto" is content
// without one, but not with one that was named and is not there.
func findVPP(dataplane string) (*netlab.VPPPrograms, error) {
	if dataplane == "kernel" {
		return nil, nil
	}
	found, err := netlab.FindVPP()
	switch {
	case err == nil:
		return &found, nil
	case dataplane == "auto" && errors.Is(err, netlab.ErrNoVPP):
		return nil, nil
	}
	return nil, fmt.Errorf("no VPP to forward with: %w", err)
}

// describe says what the agents' nodes forward with, and why.
func (d *demo) describe() string {
	switch {
	case d.VPP != nil:
		return "VPP, one process each (" + d.VPP.VPP + ")"
	case d.cfg.Dataplane == "kernel":
		return "the Linux kernel, as asked for"
	}
	return "the Linux kernel (" + netlab.ErrNoVPP.Error() + ")"
}
