package vpp_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"vpp-route-agent/vpp"
)

// TestVPPForgetsConnectionsThatEnded: a VPP that had to wait for room in a socket takes the end of
// another connection for "no data yet", and reads it again and again. We leave so that it does not,
// and a new connection of ours ends what a process that was killed has left.
func TestVPPForgetsConnectionsThatEnded(t *testing.T) {
	r := startVPP(t)
	slow := r.greetRaw(t)
	defer slow.Close()
	killed := r.greetRaw(t)
	r.crowd(t, slow)
	killed.Close()
	if !r.becomes(true) {
		t.Log("this VPP notices the end of a connection: nothing to remedy")
	}

	a := runAgent(t, vpp.Config{Socket: r.path("api.sock")})
	a.await(t, "connection", present)
	if !r.becomes(false) {
		t.Error("VPP still reads a connection that ended before we came")
	}

	r.crowd(t, slow)
	a.stop()
	if !r.becomes(false) {
		t.Error("VPP reads our connection for ever")
	}
}

// greetRaw is a client that has said hello.
func (r *realVPP) greetRaw(t *testing.T) *rawClient {
	t.Helper()
	c, err := net.Dial("unix", r.path("api.sock"))
	check(t, err)
	raw := &rawClient{Conn: c, in: bufio.NewReader(c)}
	hello := make([]byte, 2+4+64)
	binary.BigEndian.PutUint16(hello, 15) // sockclnt_create
	_, err = c.Write(rawFrame(hello))
	check(t, err)
	reply := raw.read(t)
	raw.index = binary.BigEndian.Uint32(reply[14:])
	return raw
}

type rawClient struct {
	net.Conn
	in    *bufio.Reader
	index uint32
}

func rawFrame(m []byte) []byte {
	f := make([]byte, 16, 16+len(m))
	binary.BigEndian.PutUint32(f[8:], uint32(len(m)))
	return append(f, m...)
}

func (c *rawClient) read(t *testing.T) []byte {
	t.Helper()
	check(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	var header [16]byte
	_, err := io.ReadFull(c.in, header[:])
	check(t, err)
	m := make([]byte, binary.BigEndian.Uint32(header[8:]))
	_, err = io.ReadFull(c.in, m)
	check(t, err)
	return m
}

// crowd has VPP find no room for its replies: many pings are sent before the first reply is read.
func (r *realVPP) crowd(t *testing.T, c *rawClient) {
	t.Helper()
	const pings = 4000
	ping := make([]byte, 10)
	binary.BigEndian.PutUint16(ping, 23)
	binary.BigEndian.PutUint32(ping[2:], c.index)
	for range pings {
		_, err := c.Write(rawFrame(ping))
		check(t, err)
	}
	// a VPP that did not get there yet only makes the test test less
	time.Sleep(100 * time.Millisecond)
	for range pings {
		c.read(t)
	}
}

var readCalls = regexp.MustCompile(`syscr: (\d+)`)

// becomes waits until VPP reads all the time, or does not.
func (r *realVPP) becomes(busy bool) bool {
	for range 20 {
		before := r.reads()
		time.Sleep(300 * time.Millisecond)
		if now := r.reads(); (now-before > 300) == busy {
			return true
		}
	}
	return false
}

// reads is how many system calls VPP made to read something.
func (r *realVPP) reads() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", r.process.Process.Pid))
	m := readCalls.FindSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}
