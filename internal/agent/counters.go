package agent

import (
	"vpp-route-agent/internal/fib"
	"vpp-route-agent/internal/recorder"
)

// Counters are what has happened since the start, and where that has led: few numbers, that cost
// nothing to read.
type Counters struct {
	Put, Deleted, Refused        uint64 // operations, by the data plane's answer
	UpdatesReceived, UpdatesSent uint64
	SessionsLost                 uint64
	Peers, Established           int
	Desired, Programmed, Queued  int           // routes; operations
	Delays                       fib.Histogram // from an event of the datastore to the FIB
	Steps                        recorder.Times
}

// Counters returns those now.
func (a *Agent) Counters() Counters {
	var c Counters
	for _, p := range a.cfg.Speaker.Peers() {
		c.UpdatesReceived += p.UpdatesReceived
		c.UpdatesSent += p.UpdatesSent
		c.SessionsLost += uint64(p.Flaps)
		c.Peers++
		if p.Established {
			c.Established++
		}
	}
	if a.cfg.FIB != nil {
		s := a.cfg.FIB.Stats()
		c.Put, c.Deleted, c.Refused, c.Queued = s.Put, s.Deleted, s.Errors, s.Queued
		c.Delays = s.Delays
		for _, r := range s.Routes {
			c.Desired, c.Programmed = c.Desired+r.Desired, c.Programmed+r.Programmed
		}
	}
	if a.cfg.Recorder != nil {
		c.Steps = a.cfg.Recorder.Times()
	}
	return c
}
