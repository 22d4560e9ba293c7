package vpp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
	"golang.org/x/sys/unix"
)

// On the API socket each message follows a header of 16 bytes, whose bytes 8 to 11 are its length
// (src/vlibmemory/socket_api.c). A request begins with message id, client index and a context,
// which VPP copies into every reply. A reply begins with id and context, an event with id, index
// and pid.
const (
	headerLen     = 16
	requestPrefix = 10
	replyPrefix   = 6

	// createID is the only fixed message id. Its message fetches all others
	// (src/vlibmemory/memclnt.api).
	createID = 15

	// maxMessage bounds a message. The largest real one, the message table, has about 200 KB.
	maxMessage = 16 << 20

	// writeSize is the size of one write. More than 64 KiB gains nothing.
	writeSize = 64 << 10
	// firstWrite is the size of the first write, as much as VPP reads at a time. VPP works on it
	// while we encode the next.
	firstWrite = 4 << 10

	// sendBuffer, which Linux doubles, holds a whole window of requests with one path each, so that
	// the writer does not block in the middle of a write.
	sendBuffer = 1 << 20
	// While a pipeline awaits manyReplies or more, the reader pauses for gatherTime (plus Linux'
	// timer slack) to read many at once: VPP sends each reply of 30 bytes by its own system call,
	// every 4 or 5 µs. After a millisecond about 280 of them would fill VPP's send buffer.
	manyReplies = 256
	gatherTime  = 50 * time.Microsecond

	// A context has the number of a call in its upper bits and that of a request in the lower ones.
	seqBits = 12
	seqMask = 1<<seqBits - 1
)

// conn is one connection to VPP's binary API; it never reconnects. GoVPP's core drops replies when
// a receiver is slow and makes a system call per message, so it is not used. VPP answers in order:
// a call ends with a control ping. Once VPP has answered that, it has dropped every earlier request
// that has no reply, also those of a batch that was started before the call.
type conn struct {
	nc      net.Conn
	timeout time.Duration
	index   uint32            // the cookie that VPP wants to see in each request
	ids     map[string]uint16 // name_crc → id, of this generation of VPP

	pingID, pingReplyID, routeID, routeReplyID uint16 // 0: not in ids

	awaited atomic.Int64 // replies that a pipeline waits for before it goes on
	heard   atomic.Int64 // when VPP last sent something, in milliseconds of Unix time

	wmu sync.Mutex // held while writing: messages do not mix

	mu     sync.Mutex
	calls  map[uint32]call             // by number
	last   uint32                      // number of the newest call
	events map[uint16]func(msg []byte) // by message id; called on the reader
	err    error                       // why the connection ended

	ended chan struct{} // closed when err is set
	done  chan struct{} // closed when the reader has returned
}

// dial connects and fetches the message table.
func dial(ctx context.Context, cfg Config) (*conn, error) {
	timeout := cfg.ReplyTimeout
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	nc, err := cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if socket, ok := nc.(*net.UnixConn); ok {
		growSendBuffer(socket)
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	c := newConn(nc, timeout)
	r := newReader(c)
	err = c.handshake(r, cfg.ClientName)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("no answer to the greeting within %s", timeout)
		}
		if errors.Is(err, errNoMessage) {
			return nil, fmt.Errorf("%s is not VPP's API socket: %w", cfg.Socket, err)
		}
		return nil, readError(err, timeout)
	}
	go c.read(r)
	return c, nil
}

// growSendBuffer sets the send buffer, within net.core.wmem_max without privileges. A smaller one
// is only slower.
func growSendBuffer(nc *net.UnixConn) {
	forced := false
	if raw, err := nc.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			forced = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE,
				sendBuffer) == nil
		})
	}
	if !forced {
		nc.SetWriteBuffer(sendBuffer)
	}
}

func newConn(nc net.Conn, timeout time.Duration) *conn {
	return &conn{
		nc:      nc,
		timeout: timeout,
		calls:   map[uint32]call{},
		events:  map[uint16]func([]byte){},
		ended:   make(chan struct{}),
		done:    make(chan struct{}),
	}
}

// greeting is the first frame of a client. sockclnt_create has id and context but no client index,
// which GoVPP models as a reply.
func greeting(name string) ([]byte, error) {
	buf, err := codec.EncodeMsg(&memclnt.SockclntCreate{Name: name}, createID)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, headerLen, headerLen+len(buf))
	binary.BigEndian.PutUint32(frame[8:], uint32(len(buf)))
	return append(frame, buf...), nil
}

func (c *conn) handshake(r *bufio.Reader, name string) error {
	hello, err := greeting(name)
	if err != nil {
		return err
	}
	if err := c.write(hello); err != nil {
		return err
	}
	msg, err := readMessage(r)
	if err != nil {
		return err
	}
	var reply memclnt.SockclntCreateReply
	if err := codec.DecodeMsg(msg, &reply); err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	if reply.Response != 0 {
		return fmt.Errorf("greeting refused: %d", reply.Response)
	}
	c.index = reply.Index
	ids := make(map[string]uint16, len(reply.MessageTable))
	for _, e := range reply.MessageTable {
		ids[strings.TrimRight(e.Name, "\x00")] = e.Index
	}
	c.know(ids)
	if c.pingID == 0 || c.pingReplyID == 0 {
		return errors.New("it has no control_ping: not a VPP that this agent knows")
	}
	return nil
}

// know sets the ids of messages. Those of each batch of routes are looked up only here.
func (c *conn) know(ids map[string]uint16) {
	c.ids = ids
	c.pingID, _ = c.id((*memclnt.ControlPing)(nil))
	c.pingReplyID, _ = c.id((*memclnt.ControlPingReply)(nil))
	c.routeID, _ = c.id((*ip.IPRouteAddDelV2)(nil))
	c.routeReplyID, _ = c.id((*ip.IPRouteAddDelV2Reply)(nil))
}

// id returns VPP's id of a message that has exactly our form.
func (c *conn) id(m api.Message) (uint16, bool) {
	id, ok := c.ids[messageName(m)]
	return id, ok
}

func messageName(m api.Message) string { return m.GetMessageName() + "_" + m.GetCrcString() }

// missing returns which of msgs VPP lacks or has in another form.
func (c *conn) missing(msgs []api.Message) []string {
	var names []string
	for _, m := range msgs {
		if _, ok := c.id(m); !ok {
			names = append(names, messageName(m))
		}
	}
	return names
}

// silence reads from the socket. No data within the reply time-out means that VPP hangs, or that
// this process was stopped and sent no ping. So it reads for lastChance more, in which the overdue
// ping is answered.
type silence struct{ c *conn }

const lastChance = time.Second // for the answer to an overdue ping

func (s silence) Read(p []byte) (int, error) {
	if s.c.awaited.Load() >= manyReplies {
		pause := syscall.NsecToTimespec(gatherTime.Nanoseconds())
		syscall.Nanosleep(&pause, nil) // the runtime's own timers would make a millisecond of it
	}
	n, err := s.within(s.c.timeout, p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		n, err = s.within(min(lastChance, s.c.timeout), p)
	}
	if n > 0 {
		s.c.heard.Store(time.Now().UnixMilli())
	}
	return n, err
}

func (s silence) within(d time.Duration, p []byte) (int, error) {
	if err := s.c.nc.SetReadDeadline(time.Now().Add(d)); err != nil {
		return 0, err
	}
	return s.c.nc.Read(p)
}

func newReader(c *conn) *bufio.Reader { return bufio.NewReaderSize(silence{c}, writeSize) }

// errNoMessage is for what cannot be a message, such as the prompt on VPP's CLI socket.
var errNoMessage = errors.New("received something other than a message")

// readMessage returns the next message, which is valid until the next call.
func readMessage(r *bufio.Reader) ([]byte, error) {
	header, err := r.Peek(headerLen)
	if err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(header[8:]))
	if n < replyPrefix || n > maxMessage {
		return nil, fmt.Errorf("%w (length %d)", errNoMessage, n)
	}
	r.Discard(headerLen)
	if n > r.Size() {
		msg := make([]byte, n)
		_, err := io.ReadFull(r, msg)
		return msg, err
	}
	msg, err := r.Peek(n)
	if err != nil {
		return nil, err
	}
	r.Discard(n) // only moves the read position
	return msg, nil
}

func (c *conn) read(r *bufio.Reader) {
	defer close(c.done)
	for {
		msg, err := readMessage(r)
		if err != nil {
			c.end(readError(err, c.timeout))
			c.loseCalls()
			return
		}
		id, context := binary.BigEndian.Uint16(msg), binary.BigEndian.Uint32(msg[2:])
		c.mu.Lock()
		event := c.events[id]
		call := c.calls[context>>seqBits]
		c.mu.Unlock()
		switch {
		case event != nil:
			event(msg)
		case call.reply != nil: // nil: the caller gave up
			call.reply(context&seqMask, id, msg)
		}
	}
}

// readError explains why reading or writing ended.
func readError(err error, timeout time.Duration) error {
	var n net.Error
	switch {
	case errors.As(err, &n) && n.Timeout():
		return fmt.Errorf("VPP is silent for %s", timeout)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE),
		errors.Is(err, syscall.ECONNRESET):
		return errors.New("VPP closed the connection")
	}
	return err
}

// end closes the connection for a reason, of which the first counts. Pending calls fail at once.
func (c *conn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.ended)
		c.nc.Close()
	}
}

// loseCalls tells those who wait elsewhere that no reply comes any more.
func (c *conn) loseCalls() {
	c.mu.Lock()
	calls := c.calls
	c.calls = map[uint32]call{}
	c.mu.Unlock()
	for _, call := range calls {
		if call.lost != nil {
			call.lost(c.cause())
		}
	}
}

// close ends the connection and waits for the reader.
func (c *conn) close() {
	c.leave()
	c.end(errors.New("connection closed by the agent"))
	<-c.done
}

// cause returns why the connection ended. Call it after ended is closed.
func (c *conn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// send writes encoded frames. An error ends the connection, as part of a message may have been
// sent.
func (c *conn) send(buf []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.sendLocked(buf)
}

// sendLocked is called with c.wmu held.
func (c *conn) sendLocked(buf []byte) error {
	if err := c.write(buf); err != nil {
		c.end(readError(err, c.timeout))
		return c.cause()
	}
	return nil
}

// write is called with c.wmu held, or by the handshake.
func (c *conn) write(buf []byte) error {
	// VPP stops reading only if it hangs: its replies never block on us.
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	_, err := c.nc.Write(buf)
	return err
}

// open registers a call and returns its number.
func (c *conn) open(h handler) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.register(call{reply: h})
}

// start registers a call that hears of the connection's end, sets its number, and sends its
// requests. If it reports false it has done none of that.
func (c *conn) start(x call, number *uint32, encode func() ([]byte, error)) bool {
	c.wmu.Lock() // the ping of a call that finds x among started is written behind x's requests
	defer c.wmu.Unlock()
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return false
	}
	*number = c.register(x) // before the reader finds x
	c.mu.Unlock()
	buf, err := encode()
	if err != nil {
		return !c.forget(*number)
	}
	_ = c.sendLocked(buf) // an error ends the connection
	return true
}

// started returns the calls of start that are not answered yet.
func (c *conn) started() (numbers []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for number, x := range c.calls {
		if x.lost != nil {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// isOpen reports whether any of these calls is still open.
func (c *conn) isOpen(numbers []uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(numbers, func(n uint32) bool {
		_, open := c.calls[n]
		return open
	})
}

// onEvent registers f for events of the kind of m. f runs on the reader and keeps nothing of msg.
func (c *conn) onEvent(m api.Message, f func(msg []byte)) {
	id, ok := c.id(m)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events[id] = f
}

// frame appends m as a request to buf.
func (c *conn) frame(buf []byte, id uint16, context uint32, m codec.Marshaler) ([]byte, error) {
	size := m.Size()
	at := len(buf)
	buf = append(buf, make([]byte, headerLen+requestPrefix+size)...)
	f := buf[at:]
	binary.BigEndian.PutUint32(f[8:], uint32(requestPrefix+size))
	binary.BigEndian.PutUint16(f[headerLen:], id)
	binary.BigEndian.PutUint32(f[headerLen+2:], c.index)
	binary.BigEndian.PutUint32(f[headerLen+6:], context)
	if _, err := m.Marshal(f[headerLen+requestPrefix:]); err != nil {
		return buf[:at], err
	}
	return buf, nil
}
