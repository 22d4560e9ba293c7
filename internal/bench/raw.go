package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/codec"
)

// raw writes routes as fast as VPP's API socket takes them: frames made from a template, gathered
// into large writes, a window of them on the way. It reads every reply, and does nothing else. It
// is the ceiling that the agent is held against.
type raw struct {
	conn  net.Conn
	in    *bufio.Reader
	put   []byte // a whole frame; address and context are filled in
	del   []byte
	reply uint16
}

const (
	rawWindow = 4096
	rawGather = 256 // frames in one write: 56 KiB of puts

	requestContext = apiHeader + 2 + 4 // after id and client index
	requestAddress = apiHeader + 10 + 11
)

// connectRaw opens a connection to VPP; the routes go through next on the interface.
func connectRaw(socket string, link uint32, next netip.Addr) (*raw, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	r := &raw{conn: conn, in: bufio.NewReaderSize(conn, 256<<10)}
	if err := r.greet(link, next); err != nil {
		conn.Close()
		return nil, fmt.Errorf("raw writer: %w", err)
	}
	return r, nil
}

func (r *raw) greet(link uint32, next netip.Addr) error {
	hello := make([]byte, 2+4+64) // sockclnt_create: id, context, name
	binary.BigEndian.PutUint16(hello, 15)
	copy(hello[6:], "bench-raw")
	if _, err := r.conn.Write(frame(hello)); err != nil {
		return err
	}
	m, err := r.read()
	if err != nil {
		return err
	}
	names, err := messageTable(m)
	if err != nil {
		return err
	}
	var id uint16
	for n, name := range names {
		switch name {
		case "ip_route_add_del_v2":
			id = n
		case routeReply:
			r.reply = n
		}
	}
	index := binary.BigEndian.Uint32(m[14:])
	path := fib_types.FibPath{SwIfIndex: link, Weight: 1}
	path.Nh.Address = ip_types.AddressUnionIP4(next.As4())
	r.put, err = template(id, index, &ip.IPRouteAddDelV2{IsAdd: true, Route: ip.IPRouteV2{
		Prefix: ip_types.Prefix{Len: 32}, Paths: []fib_types.FibPath{path},
	}})
	if err != nil {
		return err
	}
	r.del, err = template(id, index, &ip.IPRouteAddDelV2{
		Route: ip.IPRouteV2{Prefix: ip_types.Prefix{Len: 32}},
	})
	return err
}

func template(id uint16, index uint32, m *ip.IPRouteAddDelV2) ([]byte, error) {
	b, err := codec.EncodeMsg(m, id)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(b[2:], index)
	return frame(b), nil
}

func frame(m []byte) []byte {
	f := make([]byte, apiHeader, apiHeader+len(m))
	binary.BigEndian.PutUint32(f[8:], uint32(len(m)))
	return append(f, m...)
}

// read returns the next message.
func (r *raw) read() ([]byte, error) {
	var head [apiHeader]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint32(head[8:]))
	_, err := io.ReadFull(r.in, m)
	return m, err
}

// program puts or deletes /32s and returns how long it took until the last was answered.
func (r *raw) program(prefixes []netip.Prefix, request []byte) (time.Duration, error) {
	began := time.Now()
	room := make(chan int, rawWindow) // replies that were read
	failed := make(chan error, 1)
	go func() {
		failed <- r.replies(len(prefixes), room)
		close(room)
	}()
	var out []byte
	inFlight := 0
	for i, p := range prefixes {
		at := len(out)
		out = append(out, request...)
		a := p.Addr().As4()
		copy(out[at+requestAddress:], a[:])
		binary.BigEndian.PutUint32(out[at+requestContext:], uint32(i))
		inFlight++
		if inFlight%rawGather != 0 && i < len(prefixes)-1 {
			continue
		}
		for inFlight > rawWindow-rawGather {
			n, ok := <-room
			if !ok {
				return 0, <-failed
			}
			inFlight -= n
		}
		if _, err := r.conn.Write(out); err != nil {
			return 0, err
		}
		out = out[:0]
	}
	for range room {
	}
	return time.Since(began), <-failed
}

// replies reads n replies, which come in order, and reports all that came with one read of the
// socket at once.
func (r *raw) replies(n int, room chan<- int) error {
	const size = apiHeader + 2 + 4 + 4 + 4 // id, context, return value, statistics index
	for seen := 0; seen < n; {
		if _, err := r.in.Peek(size); err != nil {
			return err
		}
		count := min(r.in.Buffered()/size, n-seen)
		b, err := r.in.Peek(count * size)
		if err != nil {
			return err
		}
		wrong := error(nil)
		used := eachMessage(b, func(id uint16, m []byte) {
			context, retval := binary.BigEndian.Uint32(m[2:]), int32(binary.BigEndian.Uint32(m[6:]))
			if id != r.reply || context != uint32(seen) || retval != 0 {
				wrong = fmt.Errorf("raw writer: reply %d: message %d, context %d, error %d",
					seen, id, context, retval)
			}
			seen++
		})
		if wrong == nil && used != len(b) {
			wrong = fmt.Errorf("raw writer: replies of an unknown size")
		}
		if wrong != nil {
			return wrong
		}
		r.in.Discard(used)
		room <- count
	}
	return nil
}

func (r *raw) close() { r.conn.Close() }
