package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"vpp-route-agent/internal/netlab"
)

// tools are the programs of others that the demo runs.
type tools struct {
	bird netlab.BirdPrograms
	vpp  *netlab.VPPPrograms // nil: the agents' nodes forward with the kernel
}

// findTools looks for them, and gets BIRD's package where there is none.
func findTools(ctx context.Context, cfg Config) (t tools, err error) {
	if t.vpp, err = findVPP(cfg.Dataplane); err != nil {
		return tools{}, err
	}
	if cfg.Learn != "bgp" {
		return t, nil // agents alone
	}
	if t.bird, err = netlab.FindBird(ctx, filepath.Join(cfg.BuildDir, "packages")); err != nil {
		return tools{}, fmt.Errorf("the demo needs BIRD 1.6 and cannot get it: %w", err)
	}
	return t, nil
}

// findVPP returns the VPP for that choice of a data plane, nil for the kernel. "auto" is content without one, but not with one that
// was named and is not there.
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

func (t tools) dataplane() string {
	if t.vpp != nil {
		return "vpp"
	}
	return "kernel"
}

// describe says what the agents' nodes forward with, and why.
func (t tools) describe(wanted string) string {
	switch {
	case t.vpp != nil:
		return "VPP, one process each (" + t.vpp.VPP + ")"
	case wanted == "kernel":
		return "the Linux kernel, as asked for"
	}
	return "the Linux kernel (" + netlab.ErrNoVPP.Error() + ")"
}
