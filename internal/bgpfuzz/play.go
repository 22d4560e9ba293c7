package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

const (
	dialPatience  = time.Minute     // the reflector rests for 5 s after a session, as a rule
	awaitPatience = 2 * time.Second // a message that does not come is no finding
	claimPatience = 30 * time.Second
	writePatience = 5 * time.Second
)

// conn is one connection of a scenario.
type conn struct {
	net.Conn
	self netip.Addr

	mu    sync.Mutex // guards the following
	seen  [8]int     // messages, by type
	told  [2]int     // of the NOTIFICATION
	muted bool
	over  bool // nothing more comes
	done  chan struct{}
}

// play does the steps of a scenario. Its error is a finding; that an attacker gets nowhere is none.
func (c *cluster) play(ctx context.Context, s scenario, cast map[string]netip.Addr) error {
	conns := map[string]*conn{}
	defer func() {
		for _, k := range conns {
			k.Close()
			<-k.done
		}
	}()
	for _, st := range s.steps {
		k := conns[st.on]
		switch st.verb {
		case dial, connect, accept:
			fresh, err := c.reach(ctx, st, cast)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if k != nil {
				k.Close()
				<-k.done
				delete(conns, st.on)
			}
			if fresh != nil {
				conns[st.on] = fresh
			}
			continue
		case pause:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(st.pause):
			}
			continue
		case routed, unrouted:
			if err := c.claim(ctx, st); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			continue
		}
		if k == nil { // a connection that was refused
			continue
		}
		if err := k.do(ctx, st); err != nil {
			return fmt.Errorf("%s: %s: %w", s.name, st, err)
		}
	}
	return nil
}

// reach makes a connection; nil when it was refused and may be.
func (c *cluster) reach(ctx context.Context, s step, cast map[string]netip.Addr) (*conn, error) {
	switch {
	case slices.Contains(services, s.to):
		raw, err := c.service(s.to)
		if err != nil {
			return nil, nil
		}
		return newConn(raw, netip.Addr{}), nil
	case s.verb == connect:
		raw, err := c.connect(cast[s.to])
		if err != nil {
			return nil, nil
		}
		return newConn(raw, cast[s.to]), nil
	case s.verb == accept:
		return c.accept(ctx, cast[s.to])
	}
	var k *conn
	what := fmt.Sprintf("the reflector takes a session with %s", cast[s.to])
	err := netlab.Await(ctx, dialPatience, what, func(ctx context.Context) error {
		raw, err := c.connect(cast[s.to])
		if err != nil {
			return err
		}
		k = newConn(raw, cast[s.to])
		if k.await(ctx, testcluster.MsgOpen, awaitPatience) {
			return nil
		}
		k.Close()
		<-k.done
		pauseFor(ctx, 200*time.Millisecond)
		return errors.New("no OPEN")
	})
	return k, err
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (c *cluster) connect(from netip.Addr) (raw net.Conn, err error) {
	to := reflectorID
	if from.Is6() {
		to = netip.MustParseAddr("fd00::1")
	}
	err = c.wild.Do(func() error {
		self := net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		d := net.Dialer{Timeout: writePatience, LocalAddr: self}
		raw, err = d.Dial("tcp", netip.AddrPortFrom(to, 179).String())
		return err
	})
	return raw, err
}

// service connects to what is not BGP, as a program on the reflector's host would.
func (c *cluster) service(name string) (raw net.Conn, err error) {
	if name == "admin" {
		return net.DialTimeout("unix", c.reflector.Socket, writePatience)
	}
	address := map[string]string{"metrics": "127.0.0.1:9179", "grpc": "127.0.0.1:50051"}[name]
	err = c.reflector.NS.Do(func() error {
		raw, err = net.DialTimeout("tcp", address, writePatience)
		return err
	})
	return raw, err
}

// accept waits for the reflector to connect; that it does not is no finding.
func (c *cluster) accept(ctx context.Context, self netip.Addr) (*conn, error) {
	var l net.Listener
	err := c.wild.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(self, 179).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(15 * time.Second))
	raw, err := l.Accept()
	if err != nil {
		return nil, nil
	}
	k := newConn(raw, self)
	k.await(ctx, testcluster.MsgOpen, awaitPatience)
	return k, nil
}

// newConn reads on until it is muted or closed.
func newConn(raw net.Conn, self netip.Addr) *conn {
	k := &conn{Conn: raw, self: self, done: make(chan struct{})}
	go k.read()
	return k
}

func (k *conn) read() {
	defer close(k.done)
	defer func() {
		k.mu.Lock()
		k.over = !k.muted
		k.mu.Unlock()
	}()
	if !k.self.IsValid() { // no BGP
		for b := make([]byte, 4096); !k.isMuted(); {
			if _, err := k.Read(b); err != nil {
				return
			}
		}
		return
	}
	for !k.isMuted() {
		var head [testcluster.HeaderLength]byte
		if _, err := io.ReadFull(k, head[:]); err != nil {
			return
		}
		body := make([]byte,
			max(0, int(binary.BigEndian.Uint16(head[16:]))-testcluster.HeaderLength))
		if _, err := io.ReadFull(k, body); err != nil {
			return
		}
		k.mu.Lock()
		k.seen[min(int(head[18]), len(k.seen)-1)]++
		if head[18] == testcluster.MsgNotification && len(body) > 1 {
			k.told = [2]int{int(body[0]), int(body[1])}
		}
		k.mu.Unlock()
	}
}

func (k *conn) isMuted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.muted
}

// take reports whether a message has come, which then counts no more, and whether more may come.
func (k *conn) take(kind byte) (came, over bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen[kind] > 0 {
		k.seen[kind]--
		return true, k.over
	}
	return false, k.over
}

// await waits for a message.
func (k *conn) await(ctx context.Context, kind byte, patience time.Duration) bool {
	for end := time.Now().Add(patience); ; {
		came, over := k.take(kind)
		if came || over || ctx.Err() != nil || time.Now().After(end) {
			return came
		}
		pauseFor(ctx, 2*time.Millisecond)
	}
}

func (k *conn) do(ctx context.Context, s step) error {
	tcp, isTCP := k.Conn.(*net.TCPConn)
	switch s.verb {
	case send:
		b := s.bytes
		if k.self.IsValid() {
			b = k.signed(b)
		}
		k.SetWriteDeadline(time.Now().Add(writePatience))
		for range s.times {
			if _, err := k.Write(b); err != nil {
				return nil // the reflector has had enough
			}
		}
	case await:
		k.await(ctx, s.kind, awaitPatience)
	case mute:
		k.mu.Lock()
		k.muted = true
		k.mu.Unlock()
	case shut:
		if isTCP {
			tcp.CloseWrite()
		}
	case reset:
		if isTCP {
			tcp.SetLinger(0)
		}
		k.Close()
	case closing:
		k.Close()
	case told:
		came := k.await(ctx, testcluster.MsgNotification, claimPatience)
		k.mu.Lock()
		defer k.mu.Unlock()
		if !came || k.told[0] != s.code[0] || s.code[1] >= 0 && k.told[1] != s.code[1] {
			return fmt.Errorf("the NOTIFICATION was %d/%d", k.told[0], k.told[1])
		}
	case up:
		pauseFor(ctx, 300*time.Millisecond)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.over || k.seen[testcluster.MsgNotification] > 0 {
			return fmt.Errorf("it has ended; the NOTIFICATION was %d/%d", k.told[0], k.told[1])
		}
	}
	return nil
}

// signed puts the attacker's own BGP identifier where ownID stands for it.
func (k *conn) signed(b []byte) []byte {
	address := k.self.As16()
	id := []byte{10, 0, 0, address[15]} // which tells attackers apart
	return bytes.ReplaceAll(b, ownID.AsSlice(), id)
}

// claim waits until the honest speakers of a family have a prefix, or until none has.
func (c *cluster) claim(ctx context.Context, s step) error {
	return netlab.Await(ctx, claimPatience, s.String(), func(ctx context.Context) error {
		for _, h := range c.honest {
			b, isBird := h.(*birdSpeaker)
			otherFamily := isBird && b.address.Is6() != s.prefix.Addr().Is6()
			if otherFamily || !strings.Contains(h.String(), s.where) {
				continue
			}
			lines, err := h.routes(ctx)
			if err != nil {
				return err
			}
			has := slices.ContainsFunc(lines, func(line string) bool {
				return strings.HasPrefix(line, s.prefix.String()+" ")
			})
			if has != (s.verb == routed) {
				return fmt.Errorf("%s has it: %t", h, has)
			}
		}
		return nil
	})
}
