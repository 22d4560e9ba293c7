package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
)

// pingAll sends packets between all pairs of workloads and shows the round trips.
func (d *demo) pingAll(ctx context.Context) error {
	n := len(d.workloads)
	rtt := make([][]time.Duration, n) // 0: no answer
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for i, from := range d.workloads {
		rtt[i] = make([]time.Duration, n)
		for j, to := range d.workloads {
			if i != j {
				wg.Go(func() { rtt[i][j], _ = from.ns.Ping(ctx, to.address) })
			}
		}
	}
	wg.Wait()

	header := []string{"from \\ to"}
	for _, w := range d.workloads {
		header = append(header, w.name)
	}
	rows := [][]string{append(header, "", "")}
	answered := 0
	for i, from := range d.workloads {
		row := []string{from.name}
		for j := range d.workloads {
			switch {
			case i == j:
				row = append(row, "·")
			case rtt[i][j] == 0:
				row = append(row, "LOST")
			default:
				answered++
				row = append(row, inSeconds(rtt[i][j]))
			}
		}
		rows = append(rows, append(row, "   "+from.address.String(), "on "+from.node.name))
	}
	d.report.table(rows)
	d.report.check(answered == n*(n-1), "every pair of workloads reaches each other", fmt.Sprintf("%d of %d", answered, n*(n-1)))
	return nil
}

// flows are streams of numbered packets between workloads, to see what an event costs.
type flows struct {
	names []string
	flows []*netlab.Flow
}

// startFlow adds a flow of 100 packets per second.
func (f *flows) startFlow(from, to *workload) error {
	flow, err := from.ns.StartFlow(netlab.FlowConfig{From: from.address, To: to.address})
	if err != nil {
		return err
	}
	f.names = append(f.names, from.name+" → "+to.name)
	f.flows = append(f.flows, flow)
	return nil
}

// stop ends all flows and returns what became of their packets. The flows of a demo that breaks off end with its process.
func (f *flows) stop() []netlab.Report {
	reports := make([]netlab.Report, len(f.flows))
	var wg sync.WaitGroup
	for i, flow := range f.flows {
		wg.Go(func() { reports[i] = flow.Stop() })
	}
	wg.Wait()
	return reports
}

// judge stops the flows and notes for each whether it lost nothing.
func (f *flows) judge(r *report) {
	for i, report := range f.stop() {
		r.check(report.Sent > 0 && report.Lost == 0, "ping "+f.names[i]+" at 100/s lost no packet", report.String())
	}
}
