package testcluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"vpp-route-agent/internal/netlab"
)

// BGP's message types (RFC 4271 §4.1, RFC 2918 §3), and its lengths.
const (
	MsgOpen = iota + 1
	MsgUpdate
	MsgNotification
	MsgKeepalive
	MsgRefresh

	HeaderLength = 19
	MaxMessage   = 4096
)

// Message puts BGP's header in front of a body.
func Message(kind byte, body []byte) []byte { return AppendMessage(nil, kind, body) }

// AppendMessage appends a message to others.
func AppendMessage(b []byte, kind byte, body []byte) []byte {
	b = append(b, strings.Repeat("\xff", 16)...)
	b = binary.BigEndian.AppendUint16(b, uint16(HeaderLength+len(body)))
	return append(append(b, kind), body...)
}

// ReadMessage reads one message into buffer, which has room for any.
func ReadMessage(r io.Reader, buffer []byte) (kind byte, body []byte, err error) {
	head := buffer[:HeaderLength]
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint16(head[16:]))
	if n < HeaderLength || n > len(buffer) {
		return 0, nil, fmt.Errorf("BGP message of %d bytes", n)
	}
	kind, body = head[18], buffer[:n-HeaderLength]
	_, err = io.ReadFull(r, body)
	return kind, body, err
}

// OpenMessage is an OPEN of a speaker with four-octet AS numbers and these further capabilities.
func OpenMessage(as uint32, hold uint16, id netip.Addr, capabilities ...byte) []byte {
	capabilities = binary.BigEndian.AppendUint32(append(capabilities, 65, 4), as)
	short := uint16(23456) // AS_TRANS (RFC 6793 §4.2.2)
	if as < 1<<16 {
		short = uint16(as)
	}
	body := binary.BigEndian.AppendUint16([]byte{4}, short) // version
	body = binary.BigEndian.AppendUint16(body, hold)
	body = append(body, id.AsSlice()...)
	body = append(body, byte(len(capabilities)+2), 2, byte(len(capabilities)))
	return Message(MsgOpen, append(body, capabilities...))
}

// Unicast is the capability of unicast routes of an address's family (RFC 4760 §8).
func Unicast(a netip.Addr) []byte { return []byte{1, 4, 0, AFI(a), 0, 1} }

// AFI is the second byte of an address's family, whose first is 0.
func AFI(a netip.Addr) byte {
	if a.Is6() {
		return 2
	}
	return 1
}

// UpdateMessage is an UPDATE; the attributes may be right or wrong.
func UpdateMessage(withdrawn []netip.Prefix, attributes []byte, nlri ...netip.Prefix) []byte {
	w := AppendPrefixes(nil, withdrawn...)
	body := append(binary.BigEndian.AppendUint16(nil, uint16(len(w))), w...)
	body = binary.BigEndian.AppendUint16(body, uint16(len(attributes)))
	return Message(MsgUpdate, AppendPrefixes(append(body, attributes...), nlri...))
}

// AppendPrefixes appends prefixes as NLRI has them.
func AppendPrefixes(b []byte, prefixes ...netip.Prefix) []byte {
	for _, p := range prefixes {
		b = append(append(b, byte(p.Bits())), p.Addr().AsSlice()[:(p.Bits()+7)/8]...)
	}
	return b
}

// Speaker is a BGP speaker that sends what a test gives it, right or wrong. It waits to be dialled,
// again and again.
type Speaker struct {
	greeting []byte
	heard    func(kind byte, body []byte)
	listener net.Listener
	wg       sync.WaitGroup

	mu   sync.Mutex // guards the following
	conn net.Conn   // the newest
	up   bool       // its session
	err  error      // why the last session ended
}

var keepalive = Message(MsgKeepalive, nil)

// Listen makes a speaker at an address of a namespace. It answers an OPEN with its own and
// greeting, and calls heard, which may be nil, for each message.
func Listen(
	ns *netlab.Namespace, address netip.Addr, open, greeting []byte,
	heard func(kind byte, body []byte),
) (*Speaker, error) {
	s := &Speaker{greeting: slices.Concat(open, keepalive, greeting), heard: heard}
	if heard == nil {
		s.heard = func(byte, []byte) {}
	}
	err := ns.Do(func() (err error) {
		s.listener, err = net.Listen("tcp", netip.AddrPortFrom(address, 179).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	s.wg.Go(s.serve)
	return s, nil
}

// Close ends the session without a word.
func (s *Speaker) Close() {
	s.listener.Close()
	s.mu.Lock()
	if s.conn != nil {
		s.conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Session is the connection of the session that is up, nil while none is, and why the last one
// ended.
func (s *Speaker) Session() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up {
		return nil, s.err
	}
	return s.conn, s.err
}

// Send writes messages to the present session.
func (s *Speaker) Send(messages ...[]byte) error {
	conn, err := s.Session()
	if conn == nil {
		return errors.Join(errors.New("no session"), err)
	}
	_, err = conn.Write(slices.Concat(messages...))
	return err
}

func (s *Speaker) serve() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conn = conn
		s.mu.Unlock()
		err = s.talk(conn)
		s.mu.Lock()
		if s.up {
			s.up, s.err = false, err
		}
		s.mu.Unlock()
		conn.Close()
	}
}

func (s *Speaker) talk(conn net.Conn) error {
	for buffer := make([]byte, MaxMessage); ; {
		kind, body, err := ReadMessage(conn, buffer)
		if err != nil {
			return err
		}
		s.heard(kind, body)
		switch kind {
		case MsgOpen:
			_, err = conn.Write(s.greeting)
		case MsgKeepalive:
			s.mu.Lock()
			first := !s.up
			s.up = true
			s.mu.Unlock()
			if !first {
				_, err = conn.Write(keepalive)
			}
		case MsgNotification:
			err = fmt.Errorf("NOTIFICATION %v", body)
		}
		if err != nil {
			return err
		}
	}
}
