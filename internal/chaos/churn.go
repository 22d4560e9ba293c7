package main

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"vpp-route-agent/internal/testcluster"
)

// The blocks that churn changes are in 10.1.232.0 to 10.1.255.255.
const (
	firstChanging = 232
	changing      = 24
)

// churn changes Calico's data by chance: blocks of both nodes of ours, of those that no fault uses,
// the filter of their sessions with the rack's router, and who has such a session. It notes in
// touched whose that was.
func churn(random *rand.Rand, touched map[session]bool) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		changes := 20 + random.IntN(60)
		// at most one such change, since a session needs a few seconds to come back
		join := random.IntN(4 * changes)
		for i := range changes {
			var err error
			switch {
			case i == join:
				err = churnPeer(ctx, t, t.nodes[random.IntN(2)], touched)
			case random.IntN(30) == 0:
				err = churnFilter(ctx, t, random)
			default:
				err = churnBlock(ctx, t, random)
			}
			if err != nil {
				return err
			}
			if random.IntN(10) == 0 {
				err := testcluster.Pause(ctx, time.Duration(random.IntN(500))*time.Millisecond)
				if err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func churnBlock(ctx context.Context, t *trial, random *rand.Rand) error {
	block := netip.PrefixFrom(
		netip.AddrFrom4([4]byte{10, 1, byte(firstChanging + random.IntN(changing)),
			byte(random.IntN(4) * 64)}),
		26)
	if _, claimed := t.blocks[block]; claimed {
		return t.release(ctx, block)
	}
	return t.claim(ctx, t.nodes[random.IntN(2)], block)
}

// churnFilter rejects some destinations of the router and, half of the time, a third of the
// changing blocks.
func churnFilter(ctx context.Context, t *trial, random *rand.Rand) error {
	rejected := map[netip.Prefix]bool{}
	for range random.IntN(destinations / 2) {
		rejected[destination(random.IntN(destinations))] = true
	}
	withheld := netip.Prefix{}
	if random.IntN(2) == 0 {
		withheld = netip.PrefixFrom(
			netip.AddrFrom4([4]byte{10, 1, byte(firstChanging + changing/3*random.IntN(3)), 0}), 21)
	}
	return t.filterRack(ctx, rejected, withheld)
}

func churnPeer(ctx context.Context, t *trial, n *node, touched map[session]bool) error {
	touched[session{n.Name, t.rack.address}] = true
	if t.rack.serves(n) {
		return t.leaveRack(ctx, n)
	}
	return t.joinRack(ctx, n)
}
