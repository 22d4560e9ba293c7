package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/plot"
	"vpp-route-agent/internal/testcluster"
)

// fault is something that breaks. To add one, write its run and put it into the list of its file.
type fault struct {
	name string // for -run: "agent-kill"
	what string // for people: what happens
	kind kind
	long bool // not with -short
	// allowed says in words what may be lost; "0" where nothing may. How many packets that is in
	// one run, the fault says by trial.allow.
	allowed string
	// onlyFirst: it touches node 1 alone, so that the flow between the two others is a control flow
	// too, over the same kind of forwarding.
	onlyFirst bool
	// uponChanges: it may as well come upon changes that have not arrived everywhere; the soak has
	// it so, half of the time.
	uponChanges bool
	// keepsSessions: no session of our agents may go down, but for those that run notes in mayEnd.
	keepsSessions bool
	mayEnd        map[session]bool
	// anyNodes: it works as well on nodes that forward with VPP; the soak makes it there.
	anyNodes bool
	// fresh asks for a cluster of its own, which goes with it: for faults that leave something
	// behind.
	fresh bool
	// oldEtcd has Debian's etcd in the cluster; such a fault is fresh.
	oldEtcd bool
	// upgrade needs an older agent.
	upgrade bool
	// layout is the form of the cluster, if it is not the usual one.
	layout layout
	// memory needs a cgroup that bounds it.
	memory bool
	// run makes it happen and returns when it is over. Convergence is waited for afterwards, unless
	// it was itself.
	run func(ctx context.Context, t *trial) error
}

// faults are all that this command can make, in the order of the table.
var faults = slices.Concat(agentFaults, ipv6Faults, drainFaults, configFaults, peerFaults,
	routerFaults, reflectorFaults, etcdFaults, inputFaults, hostFaults, memoryFaults,
	vppFaults, overlayFaults, apiFaults, controllerFaults, kubernetesFaults)

// pick returns the faults to run, grouped by the kind of cluster that they need.
func pick(all []fault, chosen *regexp.Regexp, short bool) (picked []fault) {
	for _, f := range all {
		if chosen.MatchString(f.name) && !(short && f.long) {
			picked = append(picked, f)
		}
	}
	slices.SortStableFunc(picked, func(a, b fault) int {
		return strings.Compare(string(a.kind), string(b.kind))
	})
	return picked
}

// trial is one run of a fault.
type trial struct {
	*cluster
	start  time.Time // of what has to converge: the fault, once it is prepared
	budget int       // packets of all flows that may be lost
	// flows that may lose nothing, whatever the budget; nil: none
	spared func(flow) bool
	whole  time.Time // from start until then no flow may lose anything, whatever the budget
	failed []string  // what must hold and did not
	astray []string  // flows that lost what they should not have, apart from the budget
	notes  []string  // figures for the reader
	// moments are what happened when, besides the start, for -plot
	moments []moment
}

// moment is something that happened during a trial.
type moment struct {
	at   time.Time
	what string
}

func (t *trial) happened(what string) { t.moments = append(t.moments, moment{time.Now(), what}) }

// must notes what has to hold besides the packets.
func (t *trial) must(holds bool, format string, args ...any) {
	if !holds {
		t.failed = append(t.failed, fmt.Sprintf(format, args...))
	}
}

// mustArrive notes a flow that lost too much: as with the budget, the machine may have been too
// busy.
func (t *trial) mustArrive(holds bool, format string, args ...any) {
	if !holds {
		t.astray = append(t.astray, fmt.Sprintf(format, args...))
	}
}

func (t *trial) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// allowOutage allows that so many of the three flows lose all their packets for so long.
func (t *trial) allowOutage(flows int, d time.Duration) {
	t.budget += flows * int(d/packetInterval)
}

// ours is the agent of node 1 or 2.
func (t *trial) ours(number int) *testcluster.Agent { return t.nodes[number-1].agent() }

const (
	// attempts is how often a fault is made before a control flow that lost packets is taken for
	// the machine's own fault.
	attempts = 3
	// recovery bounds convergence: BIRD waits up
	// to 30 s after errors.
	recovery = 90 * time.Second
)

// result is a line of the table.
type result struct {
	Name       string   `json:"name"`
	What       string   `json:"what"`
	Dataplane  string   `json:"dataplane"`
	Flows      int      `json:"flows"`
	Sent       int      `json:"sent"`
	Lost       int      `json:"lost"`
	Allowed    int      `json:"allowed"`
	AllowedFor string   `json:"allowedFor"`
	Converged  float64  `json:"convergedSeconds"`
	Control    string   `json:"control,omitempty"`
	Attempts   int      `json:"attempts"`
	Repeated   []string `json:"repeated,omitempty"` // why earlier attempts proved nothing
	Failed     []string `json:"failed,omitempty"`
	Notes      []string `json:"notes,omitempty"`
	Skipped    string   `json:"skipped,omitempty"`
	Replayed   replayed `json:"replayed"` // of the last attempt
	OK         bool     `json:"ok"`

	onlyPackets bool        // not OK, but nothing else than packets was missed
	chart       *plot.Chart // of the last attempt; nil: there were no packets
}

// miss notes what had to hold besides the packets and did not.
func (r *result) miss(what string) {
	r.OK, r.onlyPackets, r.Failed = false, false, append(r.Failed, what)
}

// runAll runs the faults, on one cluster for each kind as long as it stays whole.
func runAll(ctx context.Context, s settings, picked []fault) (results []result) {
	var c *cluster
	defer func() {
		if c != nil {
			c.close()
		}
	}()
	for i, f := range picked {
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(os.Stderr, "%2d/%d %-28s", i+1, len(picked), f.name)
		began := time.Now()
		r := runFault(ctx, s, f, &c)
		fmt.Fprintf(os.Stderr, " %-4s %d of %d lost, %d allowed, %.0f s %s\n", verdict(r), r.Lost,
			r.Sent, r.Allowed, time.Since(began).Seconds(), strings.Join(r.Failed, "; "))
		results = append(results, r)
	}
	return results
}

// runFault makes a cluster where there is none that fits, and runs one fault in it, again while the
// control flow says that the machine was too busy.
func runFault(ctx context.Context, s settings, f fault, shared **cluster) result {
	r := result{Name: f.name, What: f.what, Dataplane: string(f.kind), AllowedFor: f.allowed}
	if f.layout.controlled && f.kind == vppNodes {
		r.Dataplane = twelveWithVPP
	}
	if f.kind == vppNodes && s.programs.VPP == nil {
		r.Skipped = netlab.ErrNoVPP.Error()
		return r
	}
	if f.upgrade && s.previous == "" {
		r.Skipped = "no older agent given (-previous)"
		return r
	}
	if f.memory {
		if err := canLimitMemory(); err != nil {
			r.Skipped = err.Error()
			return r
		}
	}
	for r.Attempts < attempts {
		r.Attempts++
		c, err := clusterFor(ctx, s, f, shared)
		if err != nil {
			r.Failed = nil
			r.miss(err.Error())
			return r
		}
		lost := runOnce(ctx, c, f, &r)
		if r.OK && !f.upgrade { // an older agent may decide otherwise
			var wrong []string
			r.Replayed, wrong = c.replayed(ctx)
			for _, what := range wrong {
				r.miss(what)
			}
		}
		whole := r.OK && !f.fresh
		if !whole {
			if !r.OK && s.keepLogs != "" {
				testcluster.SaveLogs(c.Lab, filepath.Join(s.keepLogs, f.name)) // what can be had
			}
			c.close()
			*shared = nil
		}
		if lost == 0 || r.Attempts == attempts || !r.OK && !r.onlyPackets {
			break
		}
		r.Repeated = append(r.Repeated,
			fmt.Sprintf("attempt %d: %d of %d lost, %d allowed; the machine lost %d",
				r.Attempts, r.Lost, r.Sent, r.Allowed, lost))
	}
	return r
}

func clusterFor(ctx context.Context, s settings, f fault, shared **cluster) (*cluster, error) {
	if c := *shared; c != nil && (f.fresh || c.kind != f.kind || c.layout != f.layout) {
		c.close()
		*shared = nil
	}
	if *shared == nil {
		c, err := makeFor(ctx, s, f)
		if err != nil {
			return nil, fmt.Errorf("the cluster does not come up: %w", err)
		}
		*shared = c
	}
	return *shared, nil
}

func makeFor(ctx context.Context, s settings, f fault) (*cluster, error) {
	if f.layout.controlled {
		return newControlled(ctx, s, f.kind, f.layout)
	}
	if f.layout.overlay {
		return newOverlay(ctx, s, f.kind, f.layout)
	}
	if f.layout.kubernetes {
		return newKubernetes(ctx, s, f.kind, f.layout)
	}
	if !f.oldEtcd {
		return newCluster(ctx, s, f.kind)
	}
	pkg, err := netlab.Unpack(ctx, filepath.Join(s.build, "packages"), "etcd-server", "")
	if err != nil {
		return nil, err
	}
	program, err := pkg.Program(ctx, "etcd")
	if err != nil {
		return nil, err
	}
	return newClusterWith(ctx, s, f.kind, program)
}

// runOnce runs a fault under flows. It returns how many packets were lost that the fault cannot be
// the cause of: those of the control flow, and those that were lost before it began.
func runOnce(ctx context.Context, c *cluster, f fault, r *result) (controlLost int) {
	t := &trial{cluster: c}
	traffic, err := startTraffic(c)
	if err == nil {
		err = testcluster.Pause(ctx, 500*time.Millisecond)
	}
	var before map[session]time.Time
	if err == nil && f.keepsSessions {
		before, err = c.sessions(ctx)
	}
	began := time.Now()
	t.start = began
	if err == nil {
		err = f.run(ctx, t)
	}
	if err == nil {
		err = c.converged(ctx, recovery)
	}
	if err == nil {
		t.happened("converged")
	}
	r.Converged = time.Since(t.start).Seconds()
	if err == nil && f.keepsSessions {
		err = c.sessionsKept(ctx, before, f.mayEnd)
	}
	if err == nil {
		err = testcluster.Pause(ctx, 500*time.Millisecond)
	}
	seen := traffic.stop()
	inGaps := 0
	for _, f := range seen.flows {
		inGaps += f.inGaps(seen.gaps)
	}
	if inGaps > 0 {
		t.budget += inGaps
		t.note("lost while BIRD replaced routes in its kernel: %d", inGaps)
	}
	r.Flows, r.Sent, r.Lost = len(seen.flows), 0, 0
	r.Allowed, r.Notes, r.Failed = t.budget, t.notes, t.failed
	for _, flow := range seen.flows {
		r.Sent += flow.Sent
		r.Lost += flow.Lost
		if t.spared != nil && t.spared(flow) && flow.Lost > flow.inGaps(seen.gaps) {
			t.mustArrive(false, "%s should have lost nothing: %s", flow, flow.Report)
		}
		if early := flow.lostBetween(t.start, t.whole); early.Lost > early.inGaps(seen.gaps) {
			t.mustArrive(false, "%s lost %d packets too early", flow, early.Lost)
		}
	}
	if err != nil {
		r.Failed = append(r.Failed, err.Error())
	}
	if f.layout.loss {
		r.Notes = append(r.Notes, longestOutage(seen.flows))
	}
	if r.Lost > r.Allowed {
		t.astray = append(t.astray, outages(seen.flows, t.start)...)
	}
	r.onlyPackets = len(r.Failed) == 0 && len(t.astray) > 0
	r.Failed = append(r.Failed, t.astray...)
	controlLost = lostBefore(seen.flows, began)
	for _, report := range seen.control {
		r.Control, controlLost = report.String(), controlLost+report.Lost
	}
	if lost := lostInStalls(seen.flows, seen.stalls); lost > 0 {
		r.Control = fmt.Sprintf("%s, %d more of the flows while a VPP was not run", r.Control, lost)
		controlLost = controlLost + lost
	}
	if f.onlyFirst && len(seen.flows) > 1 {
		second := seen.flows[1] // from node 2 to node 3
		controlLost += second.Lost - second.inGaps(seen.gaps)
	}
	r.chart = chart(r, t.start, t.moments, seen.flows)
	r.OK = len(r.Failed) == 0 && r.Lost <= r.Allowed && (r.Sent > 0 || c.kind == apiNodes)
	return controlLost
}
