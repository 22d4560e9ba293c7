package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
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
	// memory needs a cgroup that bounds it.
	memory bool
	// run makes it happen and returns when it is over. Convergence is waited for afterwards, unless
	// it was itself.
	run func(ctx context.Context, t *trial) error
}

// faults are all that this command can make, in the order of the table.
var faults = slices.Concat(agentFaults, ipv6Faults, drainFaults, configFaults, peerFaults,
	routerFaults, reflectorFaults, etcdFaults, inputFaults, hostFaults, memoryFaults,
	vppFaults, apiFaults)

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
	spared int       // so many flows, from the first, may lose nothing, whatever the budget
	whole  time.Time // from start until then no flow may lose anything, whatever the budget
	failed []string  // what must hold and did not
	astray []string  // flows that lost what they should not have, apart from the budget
	notes  []string  // figures for the reader
}

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
	packetInterval = time.Millisecond // 1000 packets per second
	// answerPatience is long: on a busy machine a packet may be late, which is not to be lost.
	answerPatience = 3 * time.Second
	// onTheWay is how long before a fault a packet may be sent and still be lost by it.
	onTheWay = 100 * time.Millisecond
	// stallSlack is how long a packet may be on its way to a stall, or what tells us of that on its
	// way to us.
	stallSlack = 10 * time.Millisecond
	// shortestStall is what it takes for the ring between the kernel and VPP to overflow: 160
	// blocks, of which one is used up each millisecond in which a packet comes (VPP's af_packet.c,
	// AF_PACKET_RX_BLOCK_NR and tp_retire_blk_tov).
	shortestStall = 150 * time.Millisecond
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
	OK         bool     `json:"ok"`

	onlyPackets bool // not OK, but nothing else than packets was missed
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
	if c := *shared; c != nil && (f.fresh || c.kind != f.kind) {
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
	watches := watchVPPs(c)
	watch, err := c.nodes[2].NS.WatchGaps(c.log)
	var flows, control []*netlab.Flow
	if err == nil {
		flows, control, err = startFlows(c)
	}
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
	r.Converged = time.Since(t.start).Seconds()
	if err == nil && f.keepsSessions {
		err = c.sessionsKept(ctx, before, f.mayEnd)
	}
	if err == nil {
		err = testcluster.Pause(ctx, 500*time.Millisecond)
	}
	reports := stopFlows(flows)
	idle := stopFlows(control)
	stalls := watches.stop()
	excused := func(int, netlab.Report) int { return 0 } // of a flow's report
	if watch != nil {
		gaps := watch.Stop()
		excused = func(flow int, r netlab.Report) int {
			switch flow {
			case 1: // the answers go through BIRD's kernel
				return r.LostInGaps(gaps, c.nodes[1].workload.Address, packetInterval)
			case 2: // the requests do
				return r.LostInGaps(gaps, c.nodes[0].workload.Address, packetInterval)
			}
			return 0
		}
	}
	inGaps := 0
	for i, report := range reports {
		inGaps += excused(i, report)
	}
	if inGaps > 0 {
		t.budget += inGaps
		t.note("lost while BIRD replaced routes in its kernel: %d", inGaps)
	}
	r.Flows, r.Sent, r.Lost = len(flows), 0, 0
	r.Allowed, r.Notes, r.Failed = t.budget, t.notes, t.failed
	for i, report := range reports {
		r.Sent += report.Sent
		r.Lost += report.Lost
		if i < t.spared && report.Lost > excused(i, report) {
			t.mustArrive(false, "flow %d should have lost nothing: %s", i+1, report)
		}
		if early := lostBetween(report, t.start, t.whole); early.Lost > excused(i, early) {
			t.mustArrive(false, "flow %d lost %d packets too early", i+1, early.Lost)
		}
	}
	if err != nil {
		r.Failed = append(r.Failed, err.Error())
	}
	if r.Lost > r.Allowed {
		t.astray = append(t.astray, outages(reports, t.start)...)
	}
	r.onlyPackets = len(r.Failed) == 0 && len(t.astray) > 0
	r.Failed = append(r.Failed, t.astray...)
	controlLost = lostBefore(reports, began)
	for _, report := range idle {
		r.Control, controlLost = report.String(), controlLost+report.Lost
	}
	if lost := lostInStalls(reports, stalls); lost > 0 {
		r.Control = fmt.Sprintf("%s, %d more of the flows while a VPP was not run", r.Control, lost)
		controlLost = controlLost + lost
	}
	if f.onlyFirst && len(reports) > 1 {
		controlLost += reports[1].Lost - excused(1, reports[1]) // from node 2 to node 3
	}
	r.OK = len(r.Failed) == 0 && r.Lost <= r.Allowed && (r.Sent > 0 || c.kind == apiNodes)
	return controlLost
}

// lostBetween is what a flow lost in rows that began in a time.
func lostBetween(report netlab.Report, start, end time.Time) (part netlab.Report) {
	for _, o := range report.Outages {
		if o.First.After(start) && o.First.Before(end) {
			part.Outages = append(part.Outages, o)
			part.Lost += o.Lost
		}
	}
	return part
}

// lostBefore returns how many packets were lost that had been sent, in a row, before the fault, and
// not just before it: those it may have met on their way.
func lostBefore(reports []netlab.Report, start time.Time) (lost int) {
	for _, report := range reports {
		for _, o := range report.Outages {
			if start.Sub(o.Last) > onTheWay {
				lost += o.Lost
			}
		}
	}
	return lost
}

// stallWatches are the watches of the nodes that forward with VPP, for times in which the machine
// does not run it: what such a time costs is no fault's doing.
type stallWatches map[int]*netlab.StallWatch // by the node's place

// anyNode is the place of what a processor of the machine did to all nodes.
const anyNode = -1

func watchVPPs(c *cluster) stallWatches {
	watches := stallWatches{}
	for i, n := range c.nodes {
		if n.VPP != nil {
			watches[i] = n.VPP.WatchStalls(shortestStall)
			if watches[anyNode] == nil {
				watches[anyNode] = netlab.WatchProcessors(shortestStall)
			}
		}
	}
	return watches
}

// stop ends the watches and returns the stalls by node.
func (w stallWatches) stop() map[int][]netlab.Stall {
	stalls := map[int][]netlab.Stall{}
	for i, watch := range w {
		stalls[i] = watch.Stop()
	}
	return stalls
}

// lostInStalls returns how many packets were lost in a row that fell into a stall of a VPP on their
// way. Flow i goes from node i to the next.
func lostInStalls(reports []netlab.Report, stalls map[int][]netlab.Stall) (lost int) {
	for i, report := range reports {
		met := slices.Concat(stalls[i], stalls[(i+1)%len(reports)], stalls[anyNode])
		for _, o := range report.Outages {
			if slices.ContainsFunc(met, func(s netlab.Stall) bool {
				return o.First.After(s.From.Add(shortestStall-stallSlack)) &&
					o.Last.Before(s.To.Add(stallSlack))
			}) {
				lost += o.Lost
			}
		}
	}
	return lost
}

// outages says when which flow lost packets.
func outages(reports []netlab.Report, start time.Time) (text []string) {
	for i, report := range reports {
		for j, o := range report.Outages {
			if j == 3 {
				text = append(text,
					fmt.Sprintf("flow %d: %d outages more", i+1, len(report.Outages)-j))
				break
			}
			text = append(text,
				fmt.Sprintf("flow %d: %d lost %.3f s after the start",
					i+1, o.Lost, o.First.Sub(start).Seconds()))
		}
	}
	return text
}

// startFlows sends from each workload to the next: between two nodes of ours, from ours to BIRD's
// and back. Echo makes each of them two ways.
func startFlows(c *cluster) (flows, control []*netlab.Flow, err error) {
	if c.kind == apiNodes {
		return nil, nil, nil
	}
	for i, n := range c.nodes {
		to := c.nodes[(i+1)%len(c.nodes)].workload
		f, err := n.workload.NS.StartFlow(netlab.FlowConfig{
			From: n.workload.Address, To: to.Address, Interval: packetInterval,
			Timeout: answerPatience,
		})
		if err != nil {
			return flows, control, err
		}
		flows = append(flows, f)
	}
	f, err := c.control[0].StartFlow(netlab.FlowConfig{
		To: c.controlTo, Interval: packetInterval, Timeout: answerPatience,
	})
	if err == nil {
		control = append(control, f)
	}
	return flows, control, err
}

func stopFlows(flows []*netlab.Flow) []netlab.Report {
	reports := make([]netlab.Report, len(flows))
	var wg sync.WaitGroup
	for i, f := range flows {
		wg.Go(func() { reports[i] = f.Stop() })
	}
	wg.Wait()
	return reports
}
