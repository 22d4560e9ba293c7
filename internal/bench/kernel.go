package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"vpp-route-agent/internal/netlab"
)

// birdAndKernel sends the same routes to BIRD and to the agent, both with the Linux kernel as data
// plane.
func birdAndKernel(l *lab) error {
	b := l.b
	programs, err := netlab.FindBird(b.ctx, b.build)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	count := b.pick(200_000, 50_000)
	prefixes := hostPrefixes(count)
	updates := announce(hops[0], prefixes)
	var birdRate, agentRate series
	byBird := func() error {
		took, err := l.throughBird(programs, updates, withdraw(prefixes), count)
		birdRate = append(birdRate, rate(count, took.Seconds()))
		return err
	}
	byAgent := func() error {
		n, err := l.startAgent("kernel", "--dataplane", "kernel")
		if err != nil {
			return err
		}
		took, _, err := l.deliver(updates, nil, func() error { return n.awaitProgrammed(count) })
		agentRate = append(agentRate, rate(count, took.Seconds()))
		if err == nil {
			_, err = l.emptyAgain(n, prefixes)
		}
		return errors.Join(err, n.Kill())
	}
	if err := rounds(b.pick(5, 2), byBird, byAgent); err != nil {
		return err
	}
	b.compare("end to end, Linux kernel", "route/s", agentRate, "BIRD "+programs.Version, birdRate,
		noBudget, fmt.Sprintf("%d /32s", count))
	return nil
}

// throughBird runs BIRD as calico-node configures it.
func (l *lab) throughBird(
	programs netlab.BirdPrograms, updates, withdrawals []byte, count int,
) (took time.Duration, err error) {
	bird, err := l.StartBird(l.b.ctx, programs, l.node, "bird", netlab.BirdConfig{
		RouterID: nodeAddress, Address: nodeAddress, AS: asNumber,
		Peers: []netlab.BirdPeer{netlab.MeshPeer(nodeAddress, peerAddress(0), asNumber)},
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, bird.Stop()) }()
	s, err := l.session()
	if err != nil {
		return 0, err
	}
	// BIRD starts in restart recovery: it writes nothing before End-of-RIB.
	if err := s.send(endOfRIB); err != nil {
		return 0, err
	}
	err = l.untilBird(bird, "show status", func(text string) bool {
		return !strings.Contains(text, "recovery in progress")
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := s.send(updates); err != nil {
		return 0, err
	}
	if err := l.untilBird(bird, "show protocols all kernel1", exported(count)); err != nil {
		return 0, err
	}
	took = time.Since(began)
	if err := s.send(withdrawals); err != nil {
		return 0, err
	}
	return took, l.untilBird(bird, "show protocols all kernel1", exported(0))
}

var birdExported = regexp.MustCompile(`Routes:.* (\d+) exported`)

// exported: BIRD waits for the kernel's answer to each route, so what it counts is there.
func exported(want int) func(string) bool {
	return func(text string) bool {
		m := birdExported.FindStringSubmatch(text)
		if m == nil {
			return false
		}
		got, err := strconv.Atoi(m[1])
		// Its own device routes may be among them.
		return err == nil && (want == 0 && got < 10 || want > 0 && got >= want)
	}
}

func (l *lab) untilBird(bird *netlab.Bird, command string, holds func(string) bool) error {
	return await(l.b.ctx, 2*time.Minute, pollInterval, func() error {
		lines, err := bird.Command(l.b.ctx, command)
		text := strings.Join(lines, "\n")
		if err == nil && !holds(text) {
			err = errors.New(text)
		}
		return err
	})
}
