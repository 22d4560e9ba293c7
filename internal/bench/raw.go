package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"go.fd.io/govpp/api"
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
	index uint32            // of this client
	ids   map[string]uint16 // of messages
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
	r.ids = make(map[string]uint16, len(names))
	for id, name := range names {
		r.ids[name] = id
	}
	r.index = binary.BigEndian.Uint32(m[14:])
	path := fib_types.FibPath{SwIfIndex: link, Weight: 1}
	path.Nh.Address = ip_types.AddressUnionIP4(next.As4())
	r.put, err = r.encode(&ip.IPRouteAddDelV2{IsAdd: true, Route: ip.IPRouteV2{
		Prefix: ip_types.Prefix{Len: 32}, Paths: []fib_types.FibPath{path},
	}})
	if err != nil {
		return err
	}
	r.del, err = r.encode(&ip.IPRouteAddDelV2{
		Route: ip.IPRouteV2{Prefix: ip_types.Prefix{Len: 32}},
	})
	return err
}

// encode returns the frame of a message, but for its context.
func (r *raw) encode(m api.Message) ([]byte, error) {
	b, err := codec.EncodeMsg(m, r.ids[m.GetMessageName()])
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(b[2:], r.index)
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
	err := r.exchange(len(prefixes), routeAnswer, func(out []byte, i int) []byte {
		at := len(out)
		out = append(out, request...)
		a := prefixes[i].Addr().As4()
		copy(out[at+requestAddress:], a[:])
		return out
	})
	return time.Since(began), err
}

// exchange writes n frames, which add appends without their contexts, and reads an answer to each.
func (r *raw) exchange(n int, answer answer, add func(out []byte, i int) []byte) error {
	room := make(chan int, min(n, rawWindow)) // replies that were read
	failed := make(chan error, 1)
	go func() {
		failed <- r.replies(n, answer, room)
		close(room)
	}()
	var out []byte
	inFlight := 0
	for i := range n {
		at := len(out)
		out = add(out, i)
		binary.BigEndian.PutUint32(out[at+requestContext:], uint32(i))
		inFlight++
		if inFlight%rawGather != 0 && i < n-1 {
			continue
		}
		for inFlight > rawWindow-rawGather {
			n, ok := <-room
			if !ok {
				return <-failed
			}
			inFlight -= n
		}
		if _, err := r.conn.Write(out); err != nil {
			return err
		}
		out = out[:0]
	}
	for range room {
	}
	return <-failed
}

// answer is the reply to a request: its name, and its length after id, context and return value.
type answer struct {
	name string
	more int
}

var routeAnswer = answer{routeReply, 4} // statistics index

// replies reads n replies, which come in order, and reports all that came with one read of the
// socket at once.
func (r *raw) replies(n int, answer answer, room chan<- int) error {
	size, reply := apiHeader+2+4+4+answer.more, r.ids[answer.name]
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
			if id != reply || context != uint32(seen) || retval != 0 {
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
