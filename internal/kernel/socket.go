package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// receiveBuffer holds unread answers and events, in bytes as the kernel counts them (about 1 KiB
// for a small message).
const receiveBuffer = 8 << 20

// answerTimeout bounds the wait for an answer. The kernel answers during the send, so it expires
// only if the kernel is broken.
const answerTimeout = 10 * time.Second

// socket is a netlink socket for routes. exchange and dump hold mu, so requests run one at a time.
type socket struct {
	file *os.File
	raw  syscall.RawConn
	port uint32 // our netlink address, which events carry as the originator's

	mu  sync.Mutex // guards the following
	seq uint32
	buf []byte
}

// openSocket opens a socket in the network namespace of the calling thread.
func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), "netlink"), buf: make([]byte, 1<<16)}
	if err := s.setUp(fd); err != nil {
		s.Close()
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return s, nil
}

func (s *socket) setUp(fd int) (err error) {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	// Exceeding the system's limit needs CAP_NET_ADMIN, as changing routes does.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF,
			receiveBuffer); err != nil {
			return err
		}
	}
	// Extended errors, answers without the request, dumps filtered in the kernel (Linux 4.20).
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK,
		unix.NETLINK_GET_STRICT_CHK} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, 1); err != nil {
			return err
		}
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	s.port = name.(*unix.SockaddrNetlink).Pid
	s.raw, err = s.file.SyscallConn()
	return err
}

func (s *socket) Close() { s.file.Close() }

// cookie returns the number of the socket's namespace, 0 before Linux 5.14.
func (s *socket) cookie() (cookie uint64, err error) {
	err2 := s.raw.Control(func(fd uintptr) {
		cookie, err = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	})
	if errors.Is(err, unix.ENOPROTOOPT) {
		err = nil
	}
	return cookie, errors.Join(err, err2)
}

func (s *socket) send(b []byte) error {
	var sent error
	err := s.raw.Write(func(fd uintptr) bool {
		sent = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return sent != unix.EAGAIN
	})
	return errors.Join(sent, err)
}

// receive waits for one datagram, which is valid until the next call.
func (s *socket) receive() ([]byte, error) {
	var n int
	var received error
	err := s.raw.Read(func(fd uintptr) bool {
		n, received = recv(int(fd), s.buf)
		return received != unix.EAGAIN
	})
	if received != nil {
		return nil, received
	}
	return s.buf[:n], err
}

// recv reads one datagram. A truncated one is an error.
func recv(fd int, buf []byte) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n > len(buf):
			return 0, unix.EMSGSIZE
		}
		return n, nil
	}
}

// message is one netlink message.
type message struct {
	kind, flags uint16
	seq, port   uint32
	body        []byte
}

// messages iterates over the messages of a datagram and stops at a malformed one.
func messages(b []byte) iter.Seq[message] {
	return func(yield func(message) bool) {
		for len(b) >= unix.NLMSG_HDRLEN {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				return
			}
			m := message{
				kind: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
				seq: binary.NativeEndian.Uint32(b[8:]), port: binary.NativeEndian.Uint32(b[12:]),
				body: b[unix.NLMSG_HDRLEN:size],
			}
			if !yield(m) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// align rounds up to the 4-byte boundary of messages and attributes.
func align(n int) int { return (n + 3) &^ 3 }

// batch collects requests for one datagram. The kernel executes them in order before send returns.
type batch struct {
	bytes []byte
	count int
	last  int // where the last request begins
}

// begin starts a request and end finishes it. exchange sets the sequence numbers.
func (b *batch) begin(kind, flags uint16) {
	b.last = len(b.bytes)
	b.count++
	b.bytes = append(b.bytes, make([]byte, unix.NLMSG_HDRLEN)...)
	binary.NativeEndian.PutUint16(b.bytes[b.last+4:], kind)
	binary.NativeEndian.PutUint16(b.bytes[b.last+6:], flags|unix.NLM_F_REQUEST)
}

func (b *batch) end() {
	b.bytes = append(b.bytes, make([]byte, align(len(b.bytes))-len(b.bytes))...)
	binary.NativeEndian.PutUint32(b.bytes[b.last:], uint32(len(b.bytes)-b.last))
}

func (b *batch) reset() { *b = batch{bytes: b.bytes[:0]} }

// number assigns consecutive sequence numbers and requests an acknowledgement of the last request.
func (b *batch) number(first uint32) {
	at, seq := 0, first
	for range b.count {
		binary.NativeEndian.PutUint32(b.bytes[at+8:], seq)
		at, seq = at+int(binary.NativeEndian.Uint32(b.bytes[at:])), seq+1
	}
	binary.NativeEndian.PutUint16(b.bytes[b.last+6:],
		binary.NativeEndian.Uint16(b.bytes[b.last+6:])|unix.NLM_F_ACK)
}

// exchange sends a batch and calls failed with the position of each refused request. The kernel
// executes in order and always reports refusals (netlink_rcv_skb in net/netlink/af_netlink.c), so
// one acknowledgement confirms all others of the batch.
func (s *socket) exchange(b *batch, failed func(i int, err error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.seq + 1
	s.seq += uint32(b.count)
	last := s.seq
	b.number(first)
	if err := s.send(b.bytes); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	if err := s.file.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	for {
		datagram, err := s.receive()
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		for m := range messages(datagram) {
			i := m.seq - first
			if m.kind != unix.NLMSG_ERROR || i >= uint32(b.count) {
				continue
			}
			if err := refusal(m); err != nil {
				failed(int(i), err)
			}
			if m.seq == last {
				return nil
			}
		}
	}
}

var errInterrupted = errors.New("the table changed while it was read")

// query sends one request and calls each for every answer until it returns false. The body is valid
// only during the call.
func (s *socket) query(b *batch, each func(body []byte) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	b.number(s.seq)
	if err := s.send(b.bytes); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	interrupted, wanted := false, true
	for {
		if err := s.file.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		datagram, err := s.receive()
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		for m := range messages(datagram) {
			if m.seq != s.seq {
				continue
			}
			interrupted = interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
			switch m.kind {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if err := refusal(m); err != nil {
					return err
				}
				if interrupted {
					return errInterrupted
				}
				return nil
			case unix.RTM_NEWROUTE:
				wanted = wanted && each(m.body)
			}
		}
	}
}

// Refusal is the kernel's error for a request.
type Refusal struct {
	Errno   syscall.Errno
	Message string // the kernel's own words, where it has some
}

func (r *Refusal) Error() string {
	if r.Message == "" {
		return r.Errno.Error()
	}
	return fmt.Sprintf("%s (%s)", r.Errno, r.Message)
}

// Unwrap supports errors.Is with error numbers of package syscall.
func (r *Refusal) Unwrap() error { return r.Errno }

// refusal decodes NLMSG_ERROR and the status of NLMSG_DONE: the error number, for an error the
// request's header, and optional attributes with a text (NLMSGERR_ATTR_MSG, linux/netlink.h). nil
// is an acknowledgement.
func refusal(m message) error {
	if len(m.body) < 4 {
		return nil
	}
	code := int32(binary.NativeEndian.Uint32(m.body))
	if code == 0 {
		return nil
	}
	r := &Refusal{Errno: syscall.Errno(-code)}
	skip := 4
	if m.kind == unix.NLMSG_ERROR {
		skip += unix.NLMSG_HDRLEN // NETLINK_CAP_ACK: the request's header without its body
	}
	if m.flags&unix.NLM_F_ACK_TLVS != 0 && len(m.body) > skip {
		for a := range attributes(m.body[skip:]) {
			if a.kind == unix.NLMSGERR_ATTR_MSG {
				r.Message = unix.ByteSliceToString(a.value)
			}
		}
	}
	return r
}
