package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"vpp-route-agent/internal/testcluster"
)

const blocksPerPeer = 10

// meshOfPeers makes every node a peer of every other, and one filter part of all those sessions.
var meshOfPeers = testcluster.NoMesh +
	testcluster.Resource("BGPPeer", "everybody",
		`nodeSelector: "all()", peerSelector: "all()", filters: [everywhere]`)

// everywhere is that filter; it rejects a prefix in both directions.
const everywhere = `
---
apiVersion: projectcalico.org/v3
kind: BGPFilter
metadata: {name: everywhere}
spec:
  importV4: [{cidr: %[1]s, matchOperator: In, action: Reject}]
  exportV4: [{cidr: %[2]s, matchOperator: In, action: Reject}]
`

// mesh starts the agent cold among its peers, and takes the time until the FIB is complete; then
// until a change of their filter is effective; then what it costs while nothing happens.
func mesh(l *lab) error {
	b, p, peers := l.b, l.plane, l.nodes
	blocks := blockPrefixes(peers*blocksPerPeer + 1)
	own, blocks := blocks[len(blocks)-1], blocks[:len(blocks)-1]
	if err := l.Data.ClaimBlock(b.ctx, "node", own); err != nil {
		return err
	}
	nowhere := netip.MustParsePrefix("203.0.113.0/24")
	if err := l.apply(meshOfPeers + fmt.Sprintf(everywhere, nowhere, nowhere)); err != nil {
		return err
	}
	began := time.Now()
	n, err := l.startAgent("state", "--vpp-socket", p.socket)
	if err != nil {
		return err
	}
	var announced, withdrawn atomic.Int64 // peers that were sent our block, and its withdrawal
	all, err := l.meet(peers, func(i int) []byte {
		return append(announce(peerAddress(i), blocks[i*blocksPerPeer:][:blocksPerPeer]),
			endOfRIB...)
	}, func(_ int, update []byte) {
		switch {
		case binary.BigEndian.Uint16(update) > 0:
			withdrawn.Add(1)
		case len(update) > len(endOfRIB)-testcluster.HeaderLength:
			announced.Add(1)
		}
	})
	defer all.close()
	if err := errors.Join(err, n.awaitProgrammed(len(blocks))); err != nil {
		return err
	}
	took := time.Since(began)
	used, err := n.CPUSeconds()
	if err != nil {
		return err
	}
	if err := awaitCount(b.ctx, &announced, peers); err != nil {
		return err
	}
	note := fmt.Sprintf("%d peers, %d blocks, on %s", peers, len(blocks), p.name)
	b.single("mesh, cold start to complete FIB", "s", took.Seconds(), b.quiet(atMost(15)), note)
	b.single("mesh, CPU of the agent for it", "s", used, noBudget, "")
	if err := l.refilter(n, blocks, own, &withdrawn, peers); err != nil {
		return err
	}
	return l.idle(n)
}

// refilter changes the filter of all sessions. It is effective when the blocks that it rejects have
// left the FIB, and every peer has received the withdrawal of our own block.
func (l *lab) refilter(
	n *node, blocks []netip.Prefix, own netip.Prefix, withdrawn *atomic.Int64, peers int,
) error {
	// A rule is about a prefix, which holds as many blocks as a power of two: up to half of all.
	size, bits := 1, blocks[0].Bits()
	for size*2 <= len(blocks)/2 {
		size, bits = size*2, bits-1
	}
	used, err := n.CPUSeconds()
	if err != nil {
		return err
	}
	began := time.Now()
	err = l.apply(fmt.Sprintf(everywhere, netip.PrefixFrom(blocks[0].Addr(), bits), own))
	if err != nil {
		return err
	}
	if err := n.awaitProgrammed(len(blocks) - size); err != nil {
		return err
	}
	if err := awaitCount(l.b.ctx, withdrawn, peers); err != nil {
		return err
	}
	took := time.Since(began)
	now, err := n.CPUSeconds()
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%d routes leave the FIB, one is withdrawn at %d peers", size, peers)
	limit := l.b.quiet(atMost(2))
	l.b.single("mesh, a filter of all peers changes", "s", took.Seconds(), limit, note)
	l.b.single("mesh, CPU of the agent for it", "s", now-used, noBudget, "")
	return nil
}

func awaitCount(ctx context.Context, count *atomic.Int64, want int) error {
	return await(ctx, time.Minute, pollInterval, func() error {
		if got := count.Load(); got != int64(want) {
			return fmt.Errorf("%d instead of %d", got, want)
		}
		return nil
	})
}

// idle is what the agent uses while its peers send keepalives and nothing else happens.
func (l *lab) idle(n *node) error {
	used, err := n.CPUSeconds()
	if err != nil {
		return err
	}
	span := time.Duration(l.b.pick(60, 10)) * time.Second
	select {
	case <-l.b.ctx.Done():
		return l.b.ctx.Err()
	case <-time.After(span):
	}
	now, err := n.CPUSeconds()
	if err != nil {
		return err
	}
	resident, err := n.mebibytes("VmRSS")
	if err != nil {
		return err
	}
	idle := (now - used) / span.Seconds() * 100
	l.b.single("mesh, idle", "% of a CPU", idle, noBudget, fmt.Sprintf("over %s", span))
	l.b.single("mesh, resident size of the agent", "MiB", resident, noBudget, "")
	return nil
}
