package vpp

import (
	"maps"
	"sync"
	"time"
)

// Stats are counters since New.
type Stats struct {
	Connections uint64            // made ready for use: one more than reconnects
	Refused     map[string]uint64 // ops, by the name of VPP's error
	LastContact time.Time         // when VPP last sent something; zero if never
}

type counters struct {
	mu          sync.Mutex
	connections uint64
	newest      *conn // that was made ready for use
	refused     map[string]uint64
}

func (c *counters) connected(to *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connections++
	c.newest = to
}

func (c *counters) refuse(e apiError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = map[string]uint64{}
	}
	c.refused[e.name()]++
}

// Stats returns the current counters.
func (v *VPP) Stats() Stats {
	v.counters.mu.Lock()
	defer v.counters.mu.Unlock()
	s := Stats{Connections: v.counters.connections, Refused: maps.Clone(v.counters.refused)}
	if c := v.counters.newest; c != nil {
		s.LastContact = time.UnixMilli(c.heard.Load())
	}
	return s
}
