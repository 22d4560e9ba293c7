package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"vpp-route-agent/internal/netlab"
)

// bare is the released GoBGP by itself, in a process of its own: configured as the agent configures
// its own (peer, policies, multipath, collector), but without a watcher of what it learns.
type bare struct {
	*netlab.Process
	l    net.Listener
	conn net.Conn // carries the number of paths after each End-of-RIB
}

// watching says whether best paths are watched over GoBGP's API, and thrown away. The
// agent watches with what the build adds to GoBGP
// (docs/decisions/0013-best-paths-without-protobuf.md).
type watching string

const (
	unwatched watching = "unwatched"
	watched   watching = "watched"
)

func (l *lab) startBare(watch watching) (*bare, error) {
	program, err := l.buildBare()
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(l.Dir(), "bare.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	b := &bare{l: listener}
	b.Process, err = l.Start(netlab.Spec{Name: "gobgp", Namespace: l.node,
		Path: program, Args: []string{
			socket, nodeAddress.String(), peerAddress(0).String(), string(watch),
		}})
	if err == nil {
		listener.(*net.UnixListener).SetDeadline(time.Now().Add(10 * time.Second))
		b.conn, err = listener.Accept()
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return b, nil
}

// awaitEndOfRIB waits until the peer has sent End-of-RIB, and checks how many routes came.
func (b *bare) awaitEndOfRIB(paths int) error {
	b.conn.SetReadDeadline(time.Now().Add(5 * time.Minute))
	var got int
	if _, err := fmt.Fscanln(b.conn, &got); err != nil {
		return fmt.Errorf("bare GoBGP: %w", err)
	}
	if got != paths {
		return fmt.Errorf("bare GoBGP has %d paths instead of %d", got, paths)
	}
	return nil
}

func (b *bare) kill() error {
	return errors.Join(b.conn.Close(), b.l.Close(), b.Kill())
}

// buildBare builds the program against the released module, which go.mod replaces.
func (l *lab) buildBare() (program string, err error) {
	program = filepath.Join(l.Dir(), "baregobgp")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	module := filepath.Join(l.Dir(), "released")
	for _, c := range [][]string{
		{"third_party/gobgp/series", "released", module},
		{"go", "build", "-trimpath", "-modfile=" + module + ".mod", "-o", program,
			"./internal/bench/baregobgp"},
	} {
		if out, err := exec.CommandContext(l.b.ctx, c[0], c[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("building a bare GoBGP: %w\n%s", err, out)
		}
	}
	return program, nil
}
