package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
)

const (
	packetInterval = time.Millisecond // 1000 packets per second
	// pairInterval is that of twelve nodes, of which each two send to each other.
	pairInterval = 10 * time.Millisecond
	pairPort     = 7 // of UDP
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
)

// traffic is all that is sent while a fault happens, and what is watched meanwhile.
type traffic struct {
	nodes   []*node         // with a workload
	echoes  []*netlab.Flow  // from each node to the next
	pairs   []*netlab.Pairs // in place of echoes, for each family; nil: there are none
	control []*netlab.Flow
	gaps    map[*node]*netlab.GapWatch // of the nodes with BIRD
	stalls  stallWatches
}

// seen is what became of the packets, and what may excuse a loss.
type seen struct {
	flows   []flow
	control []netlab.Report
	gaps    map[*node][]netlab.Gap
	stalls  map[*node][]netlab.Stall
}

// flow is what became of the packets from the workload of one node to that of another, and of the
// answers if they are echo requests.
type flow struct {
	from, to *node
	echo     bool
	interval time.Duration
	netlab.Report
}

func (f flow) String() string { return f.from.Name + " to " + f.to.Name }

// startTraffic sends from each workload to the next: between two nodes of ours, from ours to BIRD's
// and back. Echo makes each of them two ways. Of twelve nodes each two send to each other.
func startTraffic(c *cluster) (t *traffic, err error) {
	t = &traffic{gaps: map[*node]*netlab.GapWatch{}, stalls: watchVPPs(c)}
	for _, n := range c.nodes {
		if n.workload != nil {
			t.nodes = append(t.nodes, n)
		}
	}
	for _, n := range c.nodes {
		if !n.runsBird() {
			continue
		}
		if t.gaps[n], err = n.NS.WatchGaps(c.log); err != nil {
			delete(t.gaps, n)
			return t, err
		}
	}
	if c.kind == apiNodes {
		return t, nil
	}
	if err := t.startFlows(c); err != nil {
		return t, err
	}
	f, err := c.control[0].StartFlow(netlab.FlowConfig{
		To: c.controlTo, Interval: packetInterval, Timeout: answerPatience,
	})
	if err == nil {
		t.control = append(t.control, f)
	}
	return t, err
}

func (t *traffic) startFlows(c *cluster) (err error) {
	if c.controllers != nil {
		var v4, v6 []netlab.Host
		for i, n := range t.nodes {
			v4 = append(v4, netlab.Host{NS: n.workload.NS, Address: n.workload.Address})
			if c.layout.ipv6 {
				v6 = append(v6, netlab.Host{NS: n.workload.NS, Address: workload6(i)})
			}
		}
		return errors.Join(t.startPairs(v4), t.startPairs(v6))
	}
	for i, n := range t.nodes {
		to := t.nodes[(i+1)%len(t.nodes)].workload
		f, err := n.workload.NS.StartFlow(netlab.FlowConfig{
			From: n.workload.Address, To: to.Address, Interval: packetInterval,
			Timeout: answerPatience,
		})
		if err != nil {
			return err
		}
		t.echoes = append(t.echoes, f)
	}
	return nil
}

// startPairs has each two of some hosts send to each other.
func (t *traffic) startPairs(hosts []netlab.Host) error {
	if len(hosts) == 0 {
		return nil
	}
	p, err := netlab.StartPairs(netlab.PairsConfig{
		Hosts: hosts, Port: pairPort, Interval: pairInterval, Timeout: answerPatience,
	})
	if err == nil {
		t.pairs = append(t.pairs, p)
	}
	return err
}

// stop ends all and says what was seen.
func (t *traffic) stop() (s seen) {
	for i, r := range stopFlows(t.echoes) {
		s.flows = append(s.flows, flow{
			t.nodes[i], t.nodes[(i+1)%len(t.nodes)], true, packetInterval, r,
		})
	}
	for _, p := range t.pairs {
		for _, r := range p.Stop() {
			s.flows = append(s.flows, flow{
				t.nodes[r.From], t.nodes[r.To], false, pairInterval, r.Report,
			})
		}
	}
	s.control, s.stalls = stopFlows(t.control), t.stalls.stop()
	s.gaps = map[*node][]netlab.Gap{}
	for n, watch := range t.gaps {
		s.gaps[n] = watch.Stop()
	}
	return s
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

// inGaps returns how many packets were lost in gaps of the kernels with BIRD that send them on:
// that of where they come from, and for the answers that of where they go.
func (f flow) inGaps(gaps map[*node][]netlab.Gap) int {
	lost := f.LostInGaps(gaps[f.from], f.to.workload.Address, f.interval)
	if f.echo {
		lost += f.LostInGaps(gaps[f.to], f.from.workload.Address, f.interval)
	}
	return min(lost, f.Lost)
}

// lostBetween is a flow with what it lost in rows that began in a time.
func (f flow) lostBetween(start, end time.Time) flow {
	outages := f.Outages
	f.Report = netlab.Report{}
	for _, o := range outages {
		if o.First.After(start) && o.First.Before(end) {
			f.Outages = append(f.Outages, o)
			f.Lost += o.Lost
		}
	}
	return f
}

// lostBefore returns how many packets were lost that had been sent, in a row, before the fault, and
// not just before it: those it may have met on their way.
func lostBefore(flows []flow, start time.Time) (lost int) {
	for _, f := range flows {
		for _, o := range f.Outages {
			if start.Sub(o.Last) > onTheWay {
				lost += o.Lost
			}
		}
	}
	return lost
}

// stallWatches are the watches of the nodes that forward with VPP, for times in which the machine
// does not run it: what such a time costs is no fault's doing.
type stallWatches map[*node]*netlab.StallWatch

// anyNode has what a processor of the machine did to all nodes.
var anyNode *node

func watchVPPs(c *cluster) stallWatches {
	watches := stallWatches{}
	for _, n := range c.nodes {
		if n.VPP != nil {
			watches[n] = n.VPP.WatchStalls(shortestStall)
			if watches[anyNode] == nil {
				watches[anyNode] = netlab.WatchProcessors(shortestStall)
			}
		}
	}
	return watches
}

// stop ends the watches and returns the stalls by node.
func (w stallWatches) stop() map[*node][]netlab.Stall {
	stalls := map[*node][]netlab.Stall{}
	for n, watch := range w {
		stalls[n] = watch.Stop()
	}
	return stalls
}

// lostInStalls returns how many packets were lost in a row that fell into a stall of a VPP on their
// way.
func lostInStalls(flows []flow, stalls map[*node][]netlab.Stall) (lost int) {
	for _, f := range flows {
		met := slices.Concat(stalls[f.from], stalls[f.to], stalls[anyNode])
		for _, o := range f.Outages {
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
func outages(flows []flow, start time.Time) (text []string) {
	const most = 20
	for _, f := range flows {
		for j, o := range f.Outages {
			if j == 3 {
				text = append(text, fmt.Sprintf("%s: %d outages more", f, len(f.Outages)-j))
				break
			}
			text = append(text, fmt.Sprintf("%s: %d lost %.3f s after the start", f, o.Lost,
				o.First.Sub(start).Seconds()))
		}
	}
	if more := len(text) - most; more > 0 {
		text = append(text[:most], fmt.Sprintf("and %d lines more", more))
	}
	return text
}

// longestOutage says how many flows lost packets, and for how long in a row at most.
func longestOutage(flows []flow) string {
	var longest time.Duration
	hit := 0
	for _, f := range flows {
		if f.Lost > 0 {
			hit++
		}
		for _, o := range f.Outages {
			longest = max(longest, o.Last.Sub(o.First)+f.interval)
		}
	}
	if hit == 0 {
		return "no flow lost a packet"
	}
	return fmt.Sprintf("%d flows lost packets, at most %.1f s in a row", hit,
		longest.Seconds())
}
