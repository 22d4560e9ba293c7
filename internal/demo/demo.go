// Package demo shows the whole line on one machine: Calico's data in an etcd, three nodes in
// network namespaces of which two run our agent and one runs BIRD as calico-node configures it,
// workloads in namespaces of their own, and real packets between them.
//
// It owns the story and its checks. The cluster is testcluster's, and nothing of it is left behind.
// It decides nothing about routes: what is shown is what the agents, as processes of this same
// binary, did.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// Config says what to show and where.
type Config struct {
	Binary    string // of vpp-route-agent: the agents and the etcd are processes of it
	Command   string // what a person types to run it
	BuildDir  string // where packages are unpacked, for the next time too
	Dataplane string // of the agents' nodes: "vpp", "kernel", or "auto": VPP where there is one
	// where the agents' routes come from: "bgp", "ipam" (no BGP at all), or "bgp,ipam"
	Learn string
	// Datastore is where the agents find Calico's data: "etcd", or "kubernetes", a stand-in for its
	// API with what is in the etcd.
	Datastore string
	// Encap is the mode of the pool, which needs VPP and "ipam": "none", "ipip" or "vxlan".
	Encap string
	Keep  bool // when all is shown, leave it running until ctx ends
	Out   io.Writer
	Color bool
	Log   *slog.Logger
}

// Available says in one sentence why there can be no demo here with that data plane, or returns
// nil.
func Available(dataplane string) error {
	if netlab.Available() != nil {
		return errors.New(
			"the demo needs root, because it makes network namespaces (and removes " +
				"them at the end)")
	}
	_, err := findVPP(dataplane)
	return err
}

// ErrChecks says that the demo ran to its end and something did not hold.
var ErrChecks = errors.New("not every check of the demo held")

// demo is one showing.
type demo struct {
	*testcluster.Cluster
	cfg    Config
	report *report

	nodes     []*node
	workloads []*workload
	blocks    []block
}

// step is one chapter. An error ends the demo: there is nothing to show any more. What is shown and
// does not hold is a failed check.
type step struct {
	title string
	run   func(*demo, context.Context) error
}

// steps are the chapters of the story that Config.Learn asks for.
func (d *demo) steps() []step {
	if d.encapsulates() {
		return encapSteps
	}
	switch d.cfg.Learn {
	case "ipam":
		return ipamSteps
	case "bgp,ipam":
		return bothSteps
	}
	return bgpSteps
}

var bgpSteps = []step{
	{"A cluster: etcd, two nodes with our agent, one with BIRD, five workloads",
		(*demo).buildCluster},
	{"BGP: the agents and BIRD peer in Calico's node-to-node mesh", (*demo).startSpeakers},
	{"Routes: what each node has learned, and where it is programmed", (*demo).showRoutes},
	{"Packets: every workload pings every other", (*demo).pingAll},
	{"A workload moves to another node: its /32 beats the block", (*demo).moveWorkload},
	{"A block is released: its route goes everywhere", (*demo).releaseBlock},
	{"The agent is killed and started again under traffic", (*demo).restartAgent},
}

// Run shows everything. The result says what held; the error is ErrChecks when something did not,
// or says why the demo broke off. Whatever happens, nothing is left behind.
func Run(ctx context.Context, cfg Config) (result Result, err error) {
	if err := testcluster.ClearSettings(); err != nil {
		return Result{}, err
	}
	d := &demo{cfg: cfg, report: &report{out: cfg.Out, color: cfg.Color}}
	programs, err := findPrograms(ctx, cfg)
	if err != nil {
		return Result{}, err
	}
	d.report.result.Dataplane = "kernel"
	if programs.VPP != nil {
		d.report.result.Dataplane = "vpp"
	}
	if d.Cluster, err = testcluster.New("demo", programs, cfg.Log); err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	start := time.Now()
	d.introduce()
	if err := d.showAll(ctx); err != nil {
		return d.report.result, err
	}
	d.report.finish(time.Since(start))
	if cfg.Keep {
		if err := d.invite(); err != nil {
			return d.report.result, err
		}
		<-ctx.Done()
		d.report.printf("\nremoving the nodes, workloads and files of the demo\n")
	}
	if !d.report.result.OK {
		return d.report.result, ErrChecks
	}
	return d.report.result, nil
}

// showPatience bounds the whole demo, also when one check after the other waits in vain.
const showPatience = 80 * time.Second

// showAll runs the steps. An error ends it: an interruption, or something that is not there to be
// shown.
func (d *demo) showAll(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, showPatience)
	defer cancel()
	d.report.interrupted = func() bool { return ctx.Err() != nil }
	for _, s := range d.steps() {
		d.report.chapter(s.title)
		start := time.Now()
		err := s.run(d, limited)
		d.report.endChapter(time.Since(start))
		switch {
		case ctx.Err() != nil:
			return errors.New("interrupted; everything is removed again")
		case limited.Err() != nil:
			d.report.check(false, "the demo comes to its end", "not after "+inSeconds(showPatience))
			return nil
		case err != nil:
			return fmt.Errorf("demo: %w", err)
		}
	}
	return nil
}
