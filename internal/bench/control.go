package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

// control is what latency is held against: the same bytes through as many processes and sockets,
// which only pass them on. One process stands for the agent, one for VPP, on whose processor it
// answers with what it is sent.
type control struct {
	conn  net.Conn // to the first process
	relay *relay
}

// passRole and echoRole are the arguments that make this program one of the two.
const (
	passRole = "pass"
	echoRole = "echo"
)

const passPort = 1179

func (l *lab) startControl() (*control, error) {
	echo := filepath.Join(l.Dir(), "echo.sock")
	if _, err := l.Start(netlab.Spec{Name: "echo", Path: l.b.self,
		Args: []string{echoRole, echo, strconv.Itoa(l.plane.process.PID())}}); err != nil {
		return nil, err
	}
	err := await(l.b.ctx, 10*time.Second, time.Millisecond, func() error {
		_, err := os.Stat(echo)
		return err
	})
	if err != nil {
		return nil, err
	}
	socket := func(path string) net.Addr { return &net.UnixAddr{Net: "unix", Name: path} }
	r, err := relayTo(socket(filepath.Join(l.Dir(), "control.sock")), socket(echo), true)
	if err != nil {
		return nil, err
	}
	at := netip.AddrPortFrom(nodeAddress, passPort).String()
	_, err = l.Start(netlab.Spec{
		Name: "pass", Namespace: l.node, Path: l.b.self, Args: []string{passRole, at, r.path()},
	})
	c := &control{relay: r}
	if err == nil {
		err = await(l.b.ctx, 10*time.Second, time.Millisecond, func() error {
			c.conn, err = testcluster.Dial(l.b.ctx, l.far, "tcp4", at)
			return err
		})
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("control: %w", err)
	}
	return c, nil
}

func (c *control) send(b []byte) error {
	_, err := c.conn.Write(b)
	return err
}

func (c *control) close() {
	c.conn.Close()
	c.relay.close()
}

// servePass is the process: `bench pass ADDRESS SOCKET`.
func servePass(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: bench %s ADDRESS SOCKET", passRole)
	}
	return serveOne(ctx, "tcp4", args[0], func(near net.Conn) error {
		far, err := net.Dial("unix", args[1])
		if err != nil {
			return err
		}
		defer far.Close()
		go io.Copy(io.Discard, far)
		return passOn(far, near)
	})
}

// serveEcho is the process: `bench echo SOCKET PID`. It keeps to the processors of the process in
// whose place it is: VPP binds its thread to one.
func serveEcho(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: bench %s SOCKET PID", echoRole)
	}
	pid, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var processors unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &processors); err != nil {
		return err
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks { // those to come inherit it
		task, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(task, &processors)
		}
		if err != nil {
			return err
		}
	}
	return serveOne(ctx, "unix", args[0], func(conn net.Conn) error { return passOn(conn, conn) })
}

// serveOne serves the first connection until it or ctx ends.
func serveOne(ctx context.Context, network, address string, serve func(net.Conn) error) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return serve(conn)
}

// passOn reads and writes: io.Copy would leave it to the kernel (splice(2)).
func passOn(to io.Writer, from io.Reader) error {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return nil // the benchmark is over
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return err
		}
	}
}
