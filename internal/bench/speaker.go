package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"vpp-route-agent/internal/netlab"
	"vpp-route-agent/internal/testcluster"
)

const (
	asNumber = testcluster.AS // of all speakers here
	bgpPort  = 179
	holdTime = 90 // seconds; RFC 4271 §10
)

// speaker is a BGP speaker that sends what it is given, at the least cost: what is measured
// is the other side. IPv4 unicast over iBGP, with graceful restart (RFC 4724), so that End-of-RIB
// counts.
type speaker struct {
	conn net.Conn
	// gets the body of each UPDATE, to be read before it returns; nil: not read
	heard func(update []byte)
	quit  chan struct{}
	wg    sync.WaitGroup

	mu  sync.Mutex // one writer at a time, and guards err
	err error      // why the session ended
}

// dialRetry is the pause after a dial that failed, or that found a peer not ready.
const dialRetry = 50 * time.Millisecond

// connect comes up as local, which is an address in namespace ns, with the speaker at remote. It
// tries until ctx ends.
func connect(
	ctx context.Context, ns *netlab.Namespace, local, remote netip.Addr, heard func(update []byte),
) (*speaker, error) {
	var last error
	for {
		s, err := tryConnect(ctx, ns, local, remote, heard)
		if err == nil {
			return s, nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("session %s to %s: %w",
				local, remote, errors.Join(last, context.Cause(ctx)))
		case <-time.After(dialRetry):
		}
	}
}

func tryConnect(
	ctx context.Context, ns *netlab.Namespace, local, remote netip.Addr, heard func(update []byte),
) (*speaker, error) {
	var conn net.Conn
	err := ns.Do(func() (err error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: local.AsSlice()}, Timeout: 2 * time.Second}
		conn, err = d.DialContext(ctx, "tcp4", netip.AddrPortFrom(remote, bgpPort).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	s := &speaker{conn: conn, heard: heard, quit: make(chan struct{})}
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if err := s.handshake(local); err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	s.wg.Go(s.listen)
	s.wg.Go(s.keepalives)
	return s, nil
}

// handshake is RFC 4271 §8 without its timers.
func (s *speaker) handshake(local netip.Addr) error {
	if err := s.send(openMessage(local)); err != nil {
		return err
	}
	buffer := make([]byte, testcluster.MaxMessage)
	for _, want := range []byte{testcluster.MsgOpen, testcluster.MsgKeepalive} {
		kind, body, err := testcluster.ReadMessage(s.conn, buffer)
		if err != nil {
			return err
		}
		if kind != want {
			return fmt.Errorf("message %d with %x instead of %d", kind, body, want)
		}
		if kind == testcluster.MsgOpen {
			if err := s.send(testcluster.Message(testcluster.MsgKeepalive, nil)); err != nil {
				return err
			}
		}
	}
	return nil
}

// listen hands over what the peer says, until it ends the session.
func (s *speaker) listen() {
	in, buffer := bufio.NewReaderSize(s.conn, 64<<10), make([]byte, testcluster.MaxMessage)
	for {
		kind, body, err := testcluster.ReadMessage(in, buffer)
		if err == nil && kind == testcluster.MsgNotification {
			err = fmt.Errorf("NOTIFICATION %x", body)
		}
		if err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			return
		}
		if kind == testcluster.MsgUpdate && s.heard != nil {
			s.heard(body)
		}
	}
}

func (s *speaker) keepalives() {
	tick := time.NewTicker(holdTime * time.Second / 3)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
			// an error shows in listen, too
			s.send(testcluster.Message(testcluster.MsgKeepalive, nil))
		}
	}
}

// send writes whole messages.
func (s *speaker) send(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return fmt.Errorf("the session has ended: %w", s.err)
	}
	_, err := s.conn.Write(b)
	return err
}

// close breaks the connection without a word.
func (s *speaker) close() {
	close(s.quit)
	s.conn.Close()
	s.wg.Wait()
}

func openMessage(id netip.Addr) []byte {
	return testcluster.OpenMessage(asNumber, holdTime, id, append(testcluster.Unicast(id),
		2, 0, // route refresh (RFC 2918)
		// graceful restart: 120 s, IPv4 unicast, forwarding kept (RFC 4724 §3)
		64, 6, 0, 120, 0, 1, 1, 0x80)...)
}
