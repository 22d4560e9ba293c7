package demo

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
)

// end is one end of a ping.
type end struct {
	name    string
	ns      *netlab.Namespace
	address netip.Addr
	where   string
}

// pingAll sends packets between all workloads and shows the round trips.
func (d *demo) pingAll(ctx context.Context) error {
	var ends []end
	for _, w := range d.workloads {
		ends = append(ends, end{w.Name, w.NS, w.Address, "on " + w.node.Name})
	}
	rtt, answered := pingEach(ctx, ends)
	d.report.table(matrix(ends, rtt))
	all := len(ends) * (len(ends) - 1)
	d.report.check(answered == all, "every workload reaches every other",
		fmt.Sprintf("%d of %d", answered, all))
	return nil
}

// pingPatience is how long a pair may take to its first answer: neighbours must find each other
// first.
const pingPatience = 20 * time.Second

// pingEach pings between all ends, at once, until answered. The round trip is 0 where no answer
// came.
func pingEach(ctx context.Context, ends []end) (rtt [][]time.Duration, answered int) {
	ctx, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	rtt = make([][]time.Duration, len(ends))
	var wg sync.WaitGroup
	for i, from := range ends {
		rtt[i] = make([]time.Duration, len(ends))
		for j, to := range ends {
			if i != j {
				// an error is no answer
				wg.Go(func() { rtt[i][j], _ = from.ns.Ping(ctx, to.address) })
			}
		}
	}
	wg.Wait()
	for _, row := range rtt {
		for _, d := range row {
			if d > 0 {
				answered++
			}
		}
	}
	return rtt, answered
}

func matrix(ends []end, rtt [][]time.Duration) [][]string {
	rows := [][]string{{"FROM \\ TO"}}
	for _, e := range ends {
		rows[0] = append(rows[0], e.name)
	}
	for i, e := range ends {
		row := []string{e.name}
		for j := range ends {
			switch {
			case i == j:
				row = append(row, "·")
			case rtt[i][j] == 0:
				row = append(row, "LOST")
			default:
				row = append(row, fmt.Sprintf("%.2f ms", rtt[i][j].Seconds()*1e3))
			}
		}
		rows = append(rows, append(row, " "+e.address.String(), e.where))
	}
	return rows
}

// stream is a flow of 100 packets per second between two workloads.
type stream struct {
	name string
	flow *netlab.Flow
}

// answerPatience is long: on a busy machine a packet may be late, which is not to be lost.
const answerPatience = 3 * time.Second

func startStream(from, to *workload) (stream, error) {
	flow, err := from.NS.StartFlow(netlab.FlowConfig{
		From: from.Address, To: to.Address, Timeout: answerPatience,
	})
	return stream{from.Name + " → " + to.Name, flow}, err
}

// underTraffic runs event, which can be repeated, while packets flow between the pairs, and notes
// whether all arrived. The control pair's packets take ways that the event does not touch: when
// some of them are lost too, the machine is to blame, and it is all done once more, at most twice.
func (d *demo) underTraffic(
	ctx context.Context, pairs [][2]*workload, control [2]*workload,
	event func(context.Context) error,
) error {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		reports, err := during(ctx, append(pairs[:len(pairs):len(pairs)], control), event)
		if err != nil {
			return err
		}
		idle := reports[len(reports)-1]
		if !idle.complete() && attempt < attempts {
			d.report.note(
				"the control flow %s, which this cannot touch, lost packets too (%s): once more",
				idle.name, idle.report)
			continue
		}
		for _, r := range reports[:len(reports)-1] {
			d.report.check(r.complete(),
				fmt.Sprintf("ping %s, 100 packets per second: none is lost", r.name), r.String())
		}
		d.report.note("control flow %s: %s", idle.name, idle)
		return nil
	}
}

// streamReport is what became of a stream.
type streamReport struct {
	name   string
	start  time.Time
	report netlab.Report
}

// complete reports that packets were sent and all were answered.
func (r streamReport) complete() bool {
	return r.report.Sent > 0 && r.report.Received == r.report.Sent
}

func (r streamReport) String() string {
	text := r.report.String()
	for _, o := range r.report.Outages {
		text += fmt.Sprintf(", %d after %s", o.Lost, inSeconds(o.First.Sub(r.start)))
	}
	return strings.ReplaceAll(text, " received, 0 lost", " received")
}

// during runs event while packets flow between the pairs.
func during(
	ctx context.Context, pairs [][2]*workload, event func(context.Context) error,
) ([]streamReport, error) {
	start := time.Now()
	var streams []stream
	var err error
	for _, pair := range pairs {
		var s stream
		if s, err = startStream(pair[0], pair[1]); err != nil {
			break
		}
		streams = append(streams, s)
	}
	if err == nil {
		err = event(ctx)
	}
	reports := make([]streamReport, len(streams))
	var wg sync.WaitGroup
	for i, s := range streams {
		wg.Go(func() { reports[i] = streamReport{s.name, start, s.flow.Stop()} })
	}
	wg.Wait()
	return reports, err
}
