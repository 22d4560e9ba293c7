package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const blocksPerPeer = 5

// mesh starts the agent cold among 300 nodes in full mesh, each with five blocks, and takes the time until the FIB is complete; then what
// it costs while nothing happens.
func mesh(b *bench) (err error) {
	const peers = 300
	l, err := b.newLab("mesh", peers)
	if err != nil {
		return err
	}
	defer l.close(&err)
	if err := l.startEtcd(peers); err != nil {
		return err
	}
	p, err := l.startPlane("512M")
	if err != nil {
		return err
	}
	blocks := blockPrefixes(peers * blocksPerPeer)
	began := time.Now()
	n, err := l.startAgent("state", "--vpp-socket", p.socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	speakers := make([]*speaker, peers)
	for i := range peers {
		group.Go(func() (err error) {
			if speakers[i], err = l.peer(ctx, i); err != nil {
				return err
			}
			own := blocks[i*blocksPerPeer:][:blocksPerPeer]
			return speakers[i].send(append(announce(peerAddress(i), own), endOfRIB...))
		})
	}
	defer func() {
		for _, s := range speakers {
			if s != nil {
				s.close()
			}
		}
	}()
	if err := errors.Join(group.Wait(), n.awaitProgrammed(len(blocks))); err != nil {
		return err
	}
	took := time.Since(began)
	used, err := cpuSeconds(n.Process)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%d peers, %d blocks, on %s", peers, len(blocks), p.name)
	b.single("mesh, cold start to complete FIB", "s", took.Seconds(), noBudget, note)
	b.single("mesh, CPU of the agent for it", "s", used, noBudget, "")
	return l.idle(n, used)
}

// idle is what the agent uses while its peers send keepalives and nothing else happens.
func (l *lab) idle(n *node, used float64) error {
	span := time.Duration(l.b.pick(60, 20)) * time.Second
	select {
	case <-l.b.ctx.Done():
		return l.b.ctx.Err()
	case <-time.After(span):
	}
	now, err := cpuSeconds(n.Process)
	if err != nil {
		return err
	}
	resident, err := residentBytes(n.Process)
	if err != nil {
		return err
	}
	l.b.single("mesh, idle", "% of a CPU", (now-used)/span.Seconds()*100, noBudget, fmt.Sprintf("over %s", span))
	l.b.single("mesh, resident size of the agent", "MiB", resident/(1<<20), noBudget, "")
	return nil
}
