package main

import (
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"time"
)

// relay stands between a client and a server, as the agent and VPP's API socket, and counts what
// passes, by the names of VPP's messages.
type relay struct {
	to    net.Addr
	plain bool // what passes is not VPP's API, and each answer counts as written
	l     net.Listener
	wg    sync.WaitGroup

	mu    sync.Mutex // guards the following
	bytes int        // of the server's answers
	conns map[net.Conn]bool
	seen  map[string]int
	names map[uint16]string // of this generation of VPP
	// written has the time at which VPP's answer to a route came in, while somebody listens.
	written chan time.Time
}

// routeReply is VPP's acknowledgement of a written route.
const routeReply = "ip_route_add_del_v2_reply"

// startRelay relays between two unix sockets.
func startRelay(path, to string) (*relay, error) {
	return relayTo(&net.UnixAddr{Net: "unix", Name: path},
		&net.UnixAddr{Net: "unix", Name: to}, false)
}

func relayTo(at, to net.Addr, plain bool) (*relay, error) {
	l, err := net.Listen(at.Network(), at.String())
	if err != nil {
		return nil, err
	}
	r := &relay{
		to: to, plain: plain, l: l, conns: map[net.Conn]bool{}, seen: map[string]int{},
		names: map[uint16]string{}, written: make(chan time.Time, 1),
	}
	r.wg.Go(r.accept)
	return r, nil
}

func (r *relay) path() string { return r.l.Addr().String() }

func (r *relay) accept() {
	for {
		near, err := r.l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial(r.to.Network(), r.to.String())
		if err != nil {
			near.Close()
			continue
		}
		r.mu.Lock()
		r.conns[near], r.conns[far] = true, true
		r.mu.Unlock()
		r.wg.Go(func() { r.copy(far, near, r.request) })
		r.wg.Go(func() { r.copy(near, far, r.answer) })
	}
}

// copy passes bytes on at once and looks at whole messages afterwards: measuring holds up nothing.
func (r *relay) copy(to, from net.Conn, look func(now time.Time, messages []byte) (used int)) {
	defer to.Close()
	defer from.Close()
	chunk := make([]byte, 256<<10)
	var carry []byte
	for {
		n, err := from.Read(chunk)
		now := time.Now()
		if n > 0 {
			if _, err := to.Write(chunk[:n]); err != nil {
				return
			}
			carry = append(carry, chunk[:n]...)
			used := look(now, carry)
			carry = carry[:copy(carry, carry[used:])]
		}
		if err != nil {
			return
		}
	}
}

// apiHeader is what stands before each message: bytes 8 to 11 are its length.
const apiHeader = 16

// eachMessage calls f for the whole messages at the front of b and returns how many bytes they
// have.
func eachMessage(b []byte, f func(id uint16, message []byte)) (used int) {
	for len(b)-used >= apiHeader {
		n := int(binary.BigEndian.Uint32(b[used+8:]))
		if len(b)-used < apiHeader+n || n < 2 {
			break
		}
		m := b[used+apiHeader : used+apiHeader+n]
		f(binary.BigEndian.Uint16(m), m)
		used += apiHeader + n
	}
	return used
}

func (r *relay) request(_ time.Time, b []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plain {
		return len(b)
	}
	return eachMessage(b, func(id uint16, _ []byte) { r.seen[r.names[id]]++ })
}

func (r *relay) answer(now time.Time, b []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plain {
		r.bytes += len(b)
		r.note(now)
		return len(b)
	}
	return eachMessage(b, func(id uint16, m []byte) {
		if id == createReplyID {
			r.names, _ = messageTable(m)
			return
		}
		name := r.names[id]
		r.seen[name]++
		if name == routeReply {
			r.note(now)
		}
	})
}

func (r *relay) note(now time.Time) {
	select {
	case r.written <- now:
	default:
	}
}

// count returns how many messages of that name have passed.
func (r *relay) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[name]
}

// answered is how many bytes of answers have passed a plain relay.
func (r *relay) answered() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(r.bytes)
}

func (r *relay) close() {
	r.l.Close()
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// createReplyID is the fixed id of sockclnt_create_reply, which has the ids of all other messages.
const createReplyID = 16

// messageTable reads it: id, client index, context, response, index, count, then ids and names,
// which end in "_" and a checksum.
func messageTable(m []byte) (map[uint16]string, error) {
	const front, entry = 2 + 4 + 4 + 4 + 4 + 2, 2 + 64
	if len(m) < front {
		return nil, errors.New("short message table")
	}
	n := int(binary.BigEndian.Uint16(m[front-2:]))
	if len(m) < front+n*entry {
		return nil, errors.New("short message table")
	}
	names := make(map[uint16]string, n)
	for i := range n {
		e := m[front+i*entry:][:entry]
		name := strings.TrimRight(string(e[2:]), "\x00")
		if cut := strings.LastIndexByte(name, '_'); cut > 0 {
			name = name[:cut]
		}
		names[binary.BigEndian.Uint16(e)] = name
	}
	return names, nil
}
