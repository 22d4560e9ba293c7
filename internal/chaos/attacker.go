package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"

	"vpp-route-agent/internal/netlab"
)

const attackerAS = 65099

var attackerAddress = netip.MustParseAddr("192.168.4.99")

// attackerPeer is what makes node 1 peer with the attacker, in calicoctl's YAML.
const attackerPeer = `
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: attacker}
spec: {node: node-1, peerIP: 192.168.4.99, asNumber: 65099}
`

// attacker is a BGP speaker that sends whatever it is told, right or wrong. It waits to be dialled, again and again.
type attacker struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu   sync.Mutex
	conn net.Conn // of the session that is up, nil while none is
}

// newAttacker makes the attacker's machine on the underlay, once for each cluster, and has it listen until close.
func newAttacker(c *cluster) (*attacker, error) {
	if c.outside == nil {
		ns, err := c.machine("attacker", attackerAddress)
		if err != nil {
			return nil, err
		}
		c.outside = ns
	}
	x := &attacker{}
	err := c.outside.Do(func() (err error) {
		x.listener, err = net.Listen("tcp4", netip.AddrPortFrom(attackerAddress, 179).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	x.wg.Go(x.serve)
	return x, nil
}

func (x *attacker) close() {
	x.listener.Close()
	if conn := x.session(); conn != nil {
		conn.Close()
	}
	x.wg.Wait()
}

func (x *attacker) session() net.Conn {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.conn
}

func (x *attacker) setSession(conn net.Conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.conn = conn
}

// serve takes one session after the other and reads it to its end.
func (x *attacker) serve() {
	for {
		conn, err := x.listener.Accept()
		if err != nil {
			return
		}
		if err = x.open(conn); err == nil {
			x.setSession(conn)
		}
		for err == nil {
			var kind byte
			if kind, err = readBGP(conn); kind == msgKeepalive && err == nil {
				_, err = conn.Write(message(msgKeepalive, nil))
			}
		}
		x.setSession(nil)
		conn.Close()
	}
}

// BGP's message types (RFC 4271 §4.1).
const (
	msgOpen      = 1
	msgUpdate    = 2
	msgKeepalive = 4
)

func (x *attacker) open(conn net.Conn) error {
	capabilities := binary.BigEndian.AppendUint32([]byte{1, 4, 0, 1, 0, 1, 65, 4}, attackerAS) // IPv4 unicast, four-octet AS numbers
	body := append([]byte{4, 0x5b, 0xa0, 0, 90}, attackerAddress.AsSlice()...)                 // version 4, AS_TRANS, hold time 90
	body = append(body, byte(len(capabilities)+2), 2, byte(len(capabilities)))
	if _, err := conn.Write(slices.Concat(message(msgOpen, append(body, capabilities...)), message(msgKeepalive, nil))); err != nil {
		return err
	}
	for _, want := range []byte{msgOpen, msgKeepalive} {
		if kind, err := readBGP(conn); err != nil || kind != want {
			return fmt.Errorf("message %d instead of %d: %w", kind, want, err)
		}
	}
	return nil
}

// up waits for the session.
func (x *attacker) up(ctx context.Context) error {
	return netlab.Await(ctx, recovery, "the session with the attacker", func(context.Context) error {
		if x.session() == nil {
			return errors.New("it is not up")
		}
		return nil
	})
}

// send writes UPDATEs. That the other end has had enough is no error.
func (x *attacker) send(updates ...[]byte) {
	if conn := x.session(); conn != nil {
		conn.Write(slices.Concat(updates...))
	}
}

func readBGP(conn net.Conn) (kind byte, err error) {
	var head [19]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return 0, err
	}
	n := int64(binary.BigEndian.Uint16(head[16:])) - int64(len(head))
	_, err = io.CopyN(io.Discard, conn, max(n, 0))
	return head[18], err
}

func message(kind byte, body []byte) []byte {
	m := make([]byte, 16, 19+len(body))
	for i := range m {
		m[i] = 0xff
	}
	m = binary.BigEndian.AppendUint16(m, uint16(19+len(body)))
	return append(append(m, kind), body...)
}

// update is an UPDATE with these attributes, right or wrong, for these prefixes.
func update(attributes []byte, prefixes ...netip.Prefix) []byte {
	body := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(attributes)))
	body = append(body, attributes...)
	for _, p := range prefixes {
		body = append(append(body, byte(p.Bits())), p.Addr().AsSlice()[:(p.Bits()+7)/8]...)
	}
	return message(msgUpdate, body)
}

// Attributes of a well-formed path, RFC 4271 §4.3: flags, type, length, value.
var (
	origin  = []byte{0x40, 1, 1, 0}
	asPath  = []byte{0x40, 2, 6, 2, 1, 0, 0, attackerAS >> 8, attackerAS & 0xff}
	nextHop = []byte{0x40, 3, 4, 192, 168, 4, 99}
	good    = slices.Concat(origin, asPath, nextHop)
)

// malformed are attributes that RFC 7606 has treated as a withdrawal, not answered by the end of the session.
var malformed = map[string][]byte{
	"ORIGIN 9 (§7.1)":                slices.Concat([]byte{0x40, 1, 1, 9}, asPath, nextHop),
	"ORIGIN of two bytes (§7.1)":     slices.Concat([]byte{0x40, 1, 2, 0, 0}, asPath, nextHop),
	"AS_PATH cut short (§7.2)":       slices.Concat(origin, []byte{0x40, 2, 6, 2, 9, 0, 0, 1, 1}, nextHop),
	"NEXT_HOP of three bytes (§7.3)": slices.Concat(origin, asPath, []byte{0x40, 3, 3, 192, 168, 4}),
	"MED of three bytes (§7.4)":      slices.Concat(good, []byte{0x80, 4, 3, 0, 0, 1}),
	"COMMUNITY of 5 bytes (§7.8)":    slices.Concat(good, []byte{0xc0, 8, 5, 0, 1, 0, 1, 0}),
	"no ORIGIN (§3 d)":               slices.Concat(asPath, nextHop),
	"no AS_PATH (§3 d)":              slices.Concat(origin, nextHop),
	"no NEXT_HOP (§3 d)":             slices.Concat(origin, asPath),
}
