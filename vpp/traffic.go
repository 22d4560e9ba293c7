package vpp

import (
	"errors"
	"fmt"
	"os"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"
)

// Forwarded is how many packets VPP has received on all its interfaces since it started, out of its statistics segment. VPP has no count of
// forwarded packets alone: what the host sends and receives through VPP is among them. The segment is mapped for each call, so that it is
// always the one of the VPP that runs. A VPP that is frozen is waited for, without end: GoVPP's client has no deadline for it.
func (v *VPP) Forwarded() (packets uint64, err error) {
	if _, err := os.Stat(v.cfg.StatsSocket); err != nil {
		return 0, fmt.Errorf("vpp: count packets: %w", err)
	}
	statsclient.Log.SetLevel(1) // it would write to the standard output what it returns as an error too
	c := statsclient.NewStatsClient(v.cfg.StatsSocket, statsclient.SetSocketRetryTimeout(time.Second))
	if err := c.Connect(); err != nil {
		return 0, fmt.Errorf("vpp: count packets: %s: %w", v.cfg.StatsSocket, err)
	}
	defer func() { err = errors.Join(err, c.Disconnect()) }()
	entries, err := c.DumpStats("^/if/rx$")
	if err != nil {
		return 0, fmt.Errorf("vpp: count packets: %w", err)
	}
	for _, e := range entries {
		counters, ok := e.Data.(adapter.CombinedCounterStat)
		if !ok {
			continue
		}
		for _, thread := range counters {
			for _, i := range thread {
				packets += i.Packets()
			}
		}
		return packets, nil
	}
	return 0, errors.New("vpp: count packets: there is no /if/rx")
}
