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
	if cfg.Dataplane != "kernel" {
		switch vpp, err := netlab.FindVPP(); {
		case err == nil:
			t.vpp = &vpp
		case cfg.Dataplane == "vpp" || !errors.Is(err, netlab.ErrNoVPP):
			return tools{}, fmt.Errorf("demo: no VPP to forward with: %w", err)
		}
	}
	if t.bird, err = netlab.FindBird(ctx, filepath.Join(cfg.BuildDir, "packages")); err != nil {
		return tools{}, fmt.Errorf("demo: it needs BIRD 1.6, which is in Debian's package bird: %w", err)
	}
	return t, nil
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
