// Package interop holds the agent against the BGP speakers that it meets in clusters: BIRD 1.6,
// configured as calico-node configures it, and BIRD 2 and FRR as routers outside. Each test is a
// lab of network namespaces with an etcd that holds Calico's data, the real binary as a process
// with the kernel as its data plane, and workloads that exchange packets. What counts is what both
// sides' RIBs and kernels hold, and the packets; nothing is looked up inside the agent's process.
//
// The package has tests only; clusters are testcluster's. The agent must find out all by itself
// from etcd and BGP.
package interop

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// programs are what the labs run; TestMain fills it in.
var programs struct {
	testcluster.Programs
	gobgp   string
	missing error // why there can be no labs
}

// packages is where the Makefile keeps what is unpacked.
const packages = "../../build/packages"

func TestMain(m *testing.M) {
	flag.Parse()
	// The labs wait for timers most of the time: more of them may run beside each other than there
	// are processors.
	flag.VisitAll(func(f *flag.Flag) {
		if f.Name == "test.parallel" && f.Value.String() == f.DefValue {
			if err := f.Value.Set("6"); err != nil {
				panic(err)
			}
		}
	})
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if programs.missing = netlab.Available(); programs.missing != nil {
		return m.Run() // every test says why it is skipped
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := build(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	programs.Bird, programs.missing = netlab.FindBird(ctx, packages)
	return m.Run()
}

// build makes the agent, and the gobgp command of the same module.
func build(ctx context.Context, dir string) error {
	programs.Agent = filepath.Join(dir, "vpp-route-agent")
	programs.gobgp = filepath.Join(dir, "gobgp")
	return testcluster.Build(ctx, dir, testcluster.AgentPackage,
		"github.com/osrg/gobgp/v3/cmd/gobgp")
}
