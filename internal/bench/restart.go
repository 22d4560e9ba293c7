package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"vpp-route-agent/internal/agent"
	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

const (
	neighbours = 12
	// lasting is what an agent takes for a session that came to something.
	lasting = 11 * time.Second
)

// restart ends the agent among twelve peers, which run BIRD as calico-node does, or agents, and
// takes the time from its start until all sessions are up. Then the node is off the network, too,
// and has lost its routes: the time until the last of them is back in the FIB. All of the peers
// dial (the greater address does), so most of the time is what is left of their pauses.
func restart(b *bench) error {
	programs, err := netlab.FindBird(b.ctx, b.build)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	blocks := blockPrefixes(neighbours)
	timers := "BIRD dials, 2 s after the end and then every 5 s"
	byBird := func(l *lab, i int, ns *netlab.Namespace) error {
		_, err := l.StartBird(b.ctx, programs, ns, ns.Short(), netlab.BirdConfig{
			RouterID: peerAddress(i), Address: peerAddress(i), AS: asNumber,
			Blocks: blocks[i : i+1],
			Peers:  []netlab.BirdPeer{netlab.MeshPeer(peerAddress(i), nodeAddress, asNumber)},
		})
		return err
	}
	if !b.short {
		err := b.beside("BIRD "+programs.Version, timers, noBudget, noBudget, byBird)
		if err != nil {
			return err
		}
	}
	timers = "the peers dial, after pauses of at most 0.8 s"
	byAgent := func(l *lab, i int, ns *netlab.Namespace) error {
		name := fmt.Sprintf("peer-%d", i)
		if err := l.Data.ClaimBlock(b.ctx, name, blocks[i]); err != nil {
			return err
		}
		a := l.NewAgent(name, ns, "--dataplane", "none")
		a.Flags = []string{
			"--metrics-listen", "off", "--gobgp-listen", "off", "--log-level", "warn",
		}
		return a.Start(b.ctx)
	}
	return b.beside("agents", timers, b.quiet(atMost(1)), b.quiet(atMost(3)), byAgent)
}

// beside does so with neighbours that start starts.
func (b *bench) beside(
	name, timers string, established, last budget,
	start func(l *lab, i int, ns *netlab.Namespace) error,
) (err error) {
	hosts := make([]*netlab.Namespace, neighbours)
	l, err := b.labOf("restart", func(l *lab) (err error) {
		end := func(ns *netlab.Namespace, a netip.Addr) netlab.End {
			on := []netip.Prefix{netip.PrefixFrom(a, 16)}
			return netlab.End{Namespace: ns, Device: "eth0", Addresses: on}
		}
		ends := []netlab.End{end(l.node, nodeAddress)}
		for i := range hosts {
			if hosts[i], err = l.Namespace(fmt.Sprintf("peer%d", i)); err != nil {
				return err
			}
			ends = append(ends, end(hosts[i], peerAddress(i)))
		}
		_, err = l.Segment("lan", ends...)
		return err
	})
	if err != nil {
		return err
	}
	defer l.close(&err)
	if err := l.startEtcd(neighbours); err != nil {
		return err
	}
	for i, ns := range hosts {
		if err := start(l, i, ns); err != nil {
			return err
		}
	}
	n, err := l.startAgent("state", "--dataplane", "kernel")
	if err != nil {
		return err
	}
	if err := n.awaitProgrammed(neighbours); err != nil {
		return err
	}
	// Pauses that double from 50 ms have reached 5 s after 10 s.
	away := time.Duration(b.pick(10, 3)) * time.Second
	again := func(reboot bool) (up []time.Duration, last time.Duration, err error) {
		err = errors.Join(testcluster.Pause(b.ctx, lasting), n.Kill())
		if reboot { // the kernel forgets the routes, and nothing answers
			err = errors.Join(err, l.node.SetLink("eth0", false))
		}
		if err := errors.Join(err, testcluster.Pause(b.ctx, away)); err != nil {
			return nil, 0, err
		}
		if reboot {
			if err := l.node.SetLink("eth0", true); err != nil {
				return nil, 0, err
			}
		}
		began := time.Now()
		if err := n.Start(l.b.ctx); err != nil {
			return nil, 0, err
		}
		var s agent.Status
		if err := n.until(func(now agent.Status) error { s = now; return allUp(now) }); err != nil {
			return nil, 0, err
		}
		for _, p := range s.BGP.Peers {
			up = append(up, p.Since.Sub(began))
		}
		slices.Sort(up)
		err = n.awaitProgrammed(neighbours)
		return up, time.Since(began), err
	}
	up, _, err := again(false)
	if err != nil {
		return err
	}
	note := func() string {
		return fmt.Sprintf("%s away; first session after %.2f s, half of them %.2f s; %s",
			away, up[0].Seconds(), up[neighbours/2].Seconds(), timers)
	}
	all := up[neighbours-1].Seconds()
	b.single("restart beside "+name+", 12 sessions Established", "s", all, established, note())
	if b.short {
		return nil
	}
	up, took, err := again(true)
	if err != nil {
		return err
	}
	b.single("reboot beside "+name+", last route in the FIB", "s", took.Seconds(), last, note())
	return nil
}

// allUp says which sessions are not.
func allUp(s agent.Status) error {
	var down []string
	for _, p := range s.BGP.Peers {
		if !p.Established {
			down = append(down, p.Address.String()+" "+p.State)
		}
	}
	if len(s.BGP.Peers) != neighbours || len(down) > 0 {
		return fmt.Errorf("%d sessions; down: %s", len(s.BGP.Peers), strings.Join(down, ", "))
	}
	return nil
}
