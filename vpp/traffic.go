package vpp

import (
	"errors"
	"fmt"
	"os"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"
)

// Forwarded returns how many packets VPP has received on all interfaces since its start, including
// those of the host, from its statistics segment. Each call maps the segment anew, as VPP may have
// restarted. A frozen VPP blocks it: GoVPP's client has no timeout.
func (v *VPP) Forwarded() (packets uint64, err error) {
	if _, err := os.Stat(v.cfg.StatsSocket); err != nil {
		return 0, fmt.Errorf("vpp: count packets: %w", err)
	}
	// it would also print the error that it returns
	statsclient.Log.SetLevel(1)
	c := statsclient.NewStatsClient(v.cfg.StatsSocket,
		statsclient.SetSocketRetryTimeout(time.Second))
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
