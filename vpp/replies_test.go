package vpp

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/memclnt"
	"golang.org/x/sys/unix"
)

// The reader pauses while many replies are awaited: it must learn when they no longer are.
func TestNobodyAwaitsRepliesOfAnEndedStream(t *testing.T) {
	fresh := func() *stream {
		c := newConn(nil, 0)
		c.know(fuzzIDs())
		s, err := newStream(c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	awaits := func(s *stream, want int64) {
		t.Helper()
		if got := s.conn.awaited.Load(); got != want {
			t.Errorf("%d replies awaited instead of %d", got, want)
		}
	}
	reply := make([]byte, replyPrefix+8)

	s := fresh()
	awaits(s, 0)
	if _, enough, _ := s.take(1000); enough {
		t.Error("1000 replies came of themselves")
	}
	awaits(s, 1000)
	for n := range uint32(1000) {
		s.reply(n&seqMask, s.conn.routeReplyID, reply)
	}
	awaits(s, 0)
	s.reply(1000, s.conn.routeReplyID, reply) // more than is waited for
	awaits(s, 0)

	s = fresh()
	s.take(1000)
	s.end()
	awaits(s, 0)
	s.reply(0, s.conn.routeReplyID, reply) // it was on its way
	awaits(s, 0)

	s = fresh()
	s.take(1000)
	s.reply(1, s.conn.routeReplyID, reply) // out of order
	awaits(s, 0)
}

// Who gives up a call reads what it has collected.
func TestNoReplyIsHandledAfterItsCall(t *testing.T) {
	near, far := net.Pipe()
	c := newConn(near, time.Minute)
	c.know(fuzzIDs())
	go c.read(newReader(c))
	defer c.close()
	const first = 1
	reply := make([]byte, headerLen+replyPrefix)
	binary.BigEndian.PutUint32(reply[8:], replyPrefix)
	binary.BigEndian.PutUint32(reply[headerLen+2:], first<<seqBits)

	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		far.Read(make([]byte, headerLen)) // now the call is open
		go io.Copy(io.Discard, far)
		far.Write(slices.Concat(reply, reply))
	}()
	handled := 0
	_, err := c.call(ctx, []request{&memclnt.ControlPing{}}, func(int, uint16, []byte) error {
		giveUp()
		time.Sleep(50 * time.Millisecond)
		handled++
		return nil
	})
	if !errors.Is(err, context.Canceled) || handled == 0 {
		t.Errorf("%v when %d replies had been handled", err, handled)
	}
	was := handled
	if time.Sleep(200 * time.Millisecond); handled != was {
		t.Errorf("%d replies were handled later", handled-was)
	}
}

// Without NET_ADMIN the buffer is bounded by net.core.wmem_max.
func TestSendBufferHoldsAWindow(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/core/wmem_max")
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	growSendBuffer(nc.(*net.UnixConn))
	raw, err := nc.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	if err := raw.Control(func(fd uintptr) {
		size, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
	}); err != nil {
		t.Fatal(err)
	}
	if want := 2 * min(sendBuffer, most); err != nil || size < want {
		t.Errorf("a send buffer of %d bytes, %v; want %d", size, err, want)
	}
}
