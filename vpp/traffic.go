package vpp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"

	"vpp-route-agent/internal/route"
)

// Forwarded returns how many packets VPP has received on all interfaces since its start, including
// those of the host, from its statistics segment. Each call maps the segment anew, as VPP may have
// restarted. A frozen VPP blocks it: GoVPP's client has no timeout.
func (v *VPP) Forwarded() (packets uint64, err error) {
	err = v.counted("/if/rx", func(thread []adapter.CombinedCounter) {
		for _, i := range thread {
			packets += i.Packets()
		}
	})
	if err != nil {
		return 0, fmt.Errorf("vpp: count packets: %w", err)
	}
	return packets, nil
}

// Counted returns how many packets and bytes VPP has forwarded by its entry of a prefix, whoever's
// that is, since the entry was made. ok is false without one. It blocks as Forwarded does.
func (v *VPP) Counted(ctx context.Context, k route.Key) (packets, bytes uint64, ok bool,
	err error) {
	l, err := v.current()
	if err != nil {
		return 0, 0, false, err
	}
	found, ok, err := l.lookup(ctx, k.Table, k.Prefix, true)
	if err == nil && ok {
		err = v.counted("/net/route/to", func(thread []adapter.CombinedCounter) {
			if i := int(found.StatsIndex); i < len(thread) {
				packets, bytes = packets+thread[i].Packets(), bytes+thread[i].Bytes()
			}
		})
	}
	if err != nil {
		return 0, 0, false, fmt.Errorf("vpp: count packets to %s: %w", k, err)
	}
	return packets, bytes, ok, nil
}

// counted hands over a vector of counters, thread by thread.
func (v *VPP) counted(name string, add func(thread []adapter.CombinedCounter)) (err error) {
	if _, err := os.Stat(v.cfg.StatsSocket); err != nil {
		return err
	}
	// it would also print the error that it returns
	statsclient.Log.SetLevel(1)
	c := statsclient.NewStatsClient(v.cfg.StatsSocket,
		statsclient.SetSocketRetryTimeout(time.Second))
	if err := c.Connect(); err != nil {
		return fmt.Errorf("%s: %w", v.cfg.StatsSocket, err)
	}
	defer func() { err = errors.Join(err, c.Disconnect()) }()
	entries, err := c.DumpStats("^" + name + "$")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if counters, ok := e.Data.(adapter.CombinedCounterStat); ok {
			for _, thread := range counters {
				add(thread)
			}
			return nil
		}
	}
	return errors.New("there is no " + name)
}
