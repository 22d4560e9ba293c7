package main

import (
	"fmt"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/plot"
)

// aroundFault is how much of the time before the fault, and after the last moment, is drawn.
const aroundFault = 3 * time.Second

// chart draws what all flows sent, and what of it was lost, by when it was sent: that nothing was
// lost says something only while something was sent.
func chart(r *result, start time.Time, moments []moment, flows []flow) *plot.Chart {
	from := start.Add(-aroundFault).Truncate(netlab.SlotLength)
	to := start
	for _, m := range moments {
		to = m.at
	}
	to = to.Add(aroundFault)
	slots := map[time.Time]netlab.Slot{}
	var last time.Time
	for _, f := range flows {
		// the first and the last slot of a flow are not whole
		for i := 1; i < len(f.Timeline)-1; i++ {
			s := f.Timeline[i]
			sum := slots[s.From]
			sum.Sent, sum.Lost = sum.Sent+s.Sent, sum.Lost+s.Lost
			slots[s.From] = sum
			if last.Before(s.From) {
				last = s.From
			}
		}
	}
	sent := plot.Series{Name: fmt.Sprintf("sent: %d in all, by %d flows", r.Sent, r.Flows)}
	lost := plot.Series{Name: fmt.Sprintf("lost: %d", r.Lost)}
	const perSecond = float64(time.Second / netlab.SlotLength)
	for at := from; !at.After(last) && !at.After(to); at = at.Add(netlab.SlotLength) {
		s, ok := slots[at]
		if !ok && len(sent.Points) == 0 {
			continue // before the flows began
		}
		x := at.Add(netlab.SlotLength / 2).Sub(start).Seconds()
		sent.Points = append(sent.Points, plot.Point{X: x, Y: float64(s.Sent) * perSecond})
		lost.Points = append(lost.Points, plot.Point{X: x, Y: float64(s.Lost) * perSecond})
	}
	if len(sent.Points) == 0 {
		return nil
	}
	c := &plot.Chart{
		Title: fmt.Sprintf("%s: %d of %d packets lost", r.Name, r.Lost, r.Sent),
		Note:  strings.Join(append([]string{"forwards: " + r.Dataplane, r.What}, r.Notes...), "; "),
		X:     plot.Axis{Label: "seconds since the fault began, by when a packet was sent"},
		Y:     plot.Axis{Label: "packets a second", Zero: true},
		Description: fmt.Sprintf("%d packets were sent by %d flows; %d of them were lost, and %d "+
			"may be.", r.Sent, r.Flows, r.Lost, r.Allowed),
		Series: []plot.Series{sent, lost},
	}
	for _, m := range moments {
		x := m.at.Sub(start).Seconds()
		c.Marks = append(c.Marks, plot.Mark{X: x, Label: m.what})
		c.Description += fmt.Sprintf(" %.1f s after the fault: %s.", x, m.what)
	}
	return c
}

// charts are those of the faults that had packets, by the names of the faults.
func charts(results []result) map[string]plot.Chart {
	all := map[string]plot.Chart{}
	for _, r := range results {
		if r.chart != nil {
			all[r.Name] = *r.chart
		}
	}
	return all
}
