package vpptest

import (
	"bufio"
	"encoding/binary"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

const (
	headerLen  = 16
	maxMessage = 16 << 20

	// The only fixed message ids: those of memclnt.api, in file order.
	createID      = 15
	createReplyID = 16
	deleteID      = 17
	deleteReplyID = 18
	pingID        = 23
	pingReplyID   = 24
	firstFree     = 100
)

// numberMessages gives each message that the bindings know a number of this generation.
func (s *Server) numberMessages() {
	s.ids, s.messages = map[string]uint16{}, map[uint16]api.Message{}
	fixed := map[string]uint16{
		"sockclnt_create": createID, "sockclnt_create_reply": createReplyID,
		"sockclnt_delete": deleteID, "sockclnt_delete_reply": deleteReplyID,
		"control_ping": pingID, "control_ping_reply": pingReplyID,
	}
	var rest []api.Message
	for _, byName := range api.GetRegisteredMessages() {
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			m := byName[name]
			if id, ok := fixed[m.GetMessageName()]; ok {
				s.ids[name], s.messages[id] = id, m
			} else {
				rest = append(rest, m)
			}
		}
	}
	rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	first := firstFree + uint16(rand.Uint32N(1000))
	for i, m := range rest {
		s.ids[nameOf(m)], s.messages[first+uint16(i)] = first+uint16(i), m
	}
}

func nameOf(m api.Message) string { return m.GetMessageName() + "_" + m.GetCrcString() }

// client is one connection.
type client struct {
	server *Server
	nc     net.Conn
	index  uint32
	lacks  map[string]bool

	wantsEvents uint32 // pid of the subscription to interface events; guarded by Server.mu
	subscribed  bool   // guarded by Server.mu

	mu    sync.Mutex // guards out and over
	out   []byte     // as in VPP, replies wait without bound for a client that reads slowly
	over  bool
	ready chan struct{} // size 1
}

func newClient(s *Server, nc net.Conn) *client {
	return &client{server: s, nc: nc, index: rand.Uint32(), ready: make(chan struct{}, 1)}
}

// end closes the connection.
func (c *client) end() {
	c.nc.Close()
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.signal()
}

func (c *client) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// read takes requests until the connection ends.
func (c *client) read() {
	defer func() {
		c.server.mu.Lock()
		delete(c.server.clients, c)
		c.server.mu.Unlock()
		c.end()
	}()
	r := bufio.NewReaderSize(c.nc, 64<<10)
	var header [headerLen]byte
	for {
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return
		}
		size := binary.BigEndian.Uint32(header[8:])
		if size > maxMessage {
			return
		}
		msg := make([]byte, size)
		if _, err := io.ReadFull(r, msg); err != nil {
			return
		}
		if !c.server.serve(c, msg) {
			return
		}
		if r.Buffered() < headerLen {
			c.signal()
		}
	}
}

// write sends what has gathered.
func (c *client) write() {
	for range c.ready {
		c.mu.Lock()
		out, over := c.out, c.over
		c.out = nil
		c.mu.Unlock()
		if len(out) > 0 {
			if _, err := c.nc.Write(out); err != nil {
				over = true
			}
		}
		if over {
			c.nc.Close()
			return
		}
	}
}

// send queues a message. extra is what stands between the id and the body.
func (c *client) send(id uint16, m api.Message, extra ...uint32) {
	body, err := m.(codec.Marshaler).Marshal(nil)
	if err != nil {
		panic("vpptest: " + err.Error())
	}
	n := 2 + 4*len(extra) + len(body)
	frame := make([]byte, 0, headerLen+n)
	frame = append(frame, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0) // a pointer in VPP: means nothing
	frame = binary.BigEndian.AppendUint32(frame, uint32(n))
	frame = append(frame, 0xff, 0xff, 0xff, 0xff)
	frame = binary.BigEndian.AppendUint16(frame, id)
	for _, e := range extra {
		frame = binary.BigEndian.AppendUint32(frame, e)
	}
	frame = append(frame, body...)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	if f := &c.server.faults; f.cutting {
		if f.cutIn == 0 {
			f.cutting = false
			c.out, c.over = append(c.out, frame[:len(frame)/2]...), true
			return
		}
		f.cutIn--
	}
	c.out = append(c.out, frame...)
}

// serve carries out one message; it returns false where the connection ends.
func (s *Server) serve(c *client, msg []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.faults.stalled != nil && !s.closed {
		stalled := s.faults.stalled
		s.mu.Unlock()
		<-stalled
		s.mu.Lock()
	}
	if d := s.faults.delay; d > 0 {
		s.mu.Unlock()
		began := time.Now()
		time.Sleep(d)
		took := time.Since(began)
		s.mu.Lock()
		s.delayed += took
	}
	if !s.clients[c] {
		return false // of an earlier generation
	}
	if len(msg) < 2 {
		return true
	}
	switch id := binary.BigEndian.Uint16(msg); id {
	case createID:
		c.greet(msg)
	case deleteID:
		if len(msg) < 10 {
			return true
		}
		c.send(deleteReplyID, &memclnt.SockclntDeleteReply{Response: 1},
			binary.BigEndian.Uint32(msg[6:]))
		c.mu.Lock()
		c.over = true
		c.mu.Unlock()
		return false
	default:
		s.dispatch(c, id, msg)
	}
	return true
}

// greet answers sockclnt_create: id, context, name[64].
func (c *client) greet(msg []byte) {
	if len(msg) < 6+64 {
		return
	}
	s := c.server
	c.lacks = maps.Clone(s.faults.lack)
	reply := &memclnt.SockclntCreateReply{Index: c.index}
	for name, id := range s.ids {
		if c.lacks[s.messages[id].GetMessageName()] {
			continue
		}
		reply.MessageTable = append(reply.MessageTable,
			memclnt.MessageTableEntry{Index: id, Name: name})
	}
	reply.Count = uint16(len(reply.MessageTable))
	// This one reply has a client index before the context.
	c.send(createReplyID, reply, 0, binary.BigEndian.Uint32(msg[2:]))
}

// dispatch decodes a request and hands it to its handler; what cannot be read is dropped.
func (s *Server) dispatch(c *client, id uint16, msg []byte) {
	proto, ok := s.messages[id]
	if !ok || len(msg) < 10 || c.lacks[proto.GetMessageName()] {
		return
	}
	name := proto.GetMessageName()
	handle, ok := handlers[name]
	if !ok || strings.HasSuffix(name, "_reply") {
		return
	}
	req := newMessage(proto)
	if err := codec.DecodeMsg(msg, req); err != nil {
		return
	}
	if f := s.faults.swallow; f != nil && f(req) {
		return
	}
	s.requests[name]++
	a := answer{server: s, client: c, context: binary.BigEndian.Uint32(msg[6:])}
	if f := s.faults.refuse; f != nil {
		if retval := f(req); retval != 0 {
			a.refuse(name, retval)
			return
		}
	}
	if f := &s.faults; f.cutAt != nil && f.cutAt(req) {
		f.cutAt, f.cutting, f.cutIn = nil, true, 0
	}
	handle(a, req)
}

// answer is where the replies to one request go.
type answer struct {
	server  *Server
	client  *client
	context uint32
}

func (a answer) send(m api.Message) { a.client.send(a.server.ids[nameOf(m)], m, a.context) }

// refuse answers with a return value; every reply that has one begins with it.
func (a answer) refuse(request string, retval int32) {
	for id, m := range a.server.messages {
		if m.GetMessageName() != request+"_reply" {
			continue
		}
		reply := newMessage(m)
		body := make([]byte, reply.(codec.Marshaler).Size())
		binary.BigEndian.PutUint32(body, uint32(retval))
		if err := reply.(codec.Unmarshaler).Unmarshal(body); err != nil {
			panic("vpptest: " + err.Error())
		}
		a.client.send(id, reply, a.context)
	}
}
