package mrt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Record is one that a Writer wrote.
type Record struct {
	At   time.Time
	Peer netip.Addr
	// States are those of a change of state; 0: the record is of a message.
	From, To State
	// Bytes are all of the record.
	Bytes []byte
}

// ErrDamaged says that what is read was not written so.
var ErrDamaged = errors.New("damaged")

// Read calls each for every record, until one is damaged. The end may be cut off anywhere: that is
// no error. One of each ends reading and is returned as it is.
func Read(r io.Reader, each func(Record) error) error {
	head := make([]byte, headerSize)
	for at := 0; ; {
		if _, err := io.ReadFull(r, head); err != nil {
			return torn(err)
		}
		size := binary.BigEndian.Uint32(head[8:])
		if size > mostSize {
			return fmt.Errorf("%w at byte %d: a record of %d bytes", ErrDamaged, at, size)
		}
		b := append(make([]byte, 0, headerSize+int(size)), head...)[:headerSize+int(size)]
		if _, err := io.ReadFull(r, b[headerSize:]); err != nil {
			return torn(err)
		}
		record, err := parse(b)
		if err != nil {
			return fmt.Errorf("%w at byte %d: %w", ErrDamaged, at, err)
		}
		if err := each(record); err != nil {
			return err
		}
		at += len(b)
	}
}

// mostSize bounds what follows the header of a record: the longest BGP message and what comes
// before it for IPv6.
const mostSize = microsecondsSize + 44 + bgpMost

func torn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

func parse(b []byte) (r Record, err error) {
	seconds, kind := binary.BigEndian.Uint32(b), binary.BigEndian.Uint16(b[4:])
	subtype, rest := binary.BigEndian.Uint16(b[6:]), b[headerSize:]
	if kind != typeBGP4MPET || len(rest) < microsecondsSize {
		return r, fmt.Errorf("type %d is not BGP4MP_ET", kind)
	}
	microseconds := binary.BigEndian.Uint32(rest)
	if microseconds >= 1e6 {
		return r, fmt.Errorf("%d microseconds", microseconds)
	}
	r = Record{At: time.Unix(int64(seconds), int64(microseconds)*1000), Bytes: b}
	rest = rest[microsecondsSize:]
	asSize := 8
	switch subtype {
	case messageAS2, messageAS2PathIDs:
		asSize = 4
	case messageAS4, messageAS4PathIDs, stateChangeAS4:
	default:
		return r, fmt.Errorf("unknown subtype %d", subtype)
	}
	if len(rest) < asSize+4 {
		return r, errors.New("too short")
	}
	afi, rest := binary.BigEndian.Uint16(rest[asSize+2:]), rest[asSize+4:]
	addrSize := map[uint16]int{afiIPv4: 4, afiIPv6: 16}[afi]
	if addrSize == 0 || len(rest) < 2*addrSize {
		return r, fmt.Errorf("family %d", afi)
	}
	r.Peer, _ = netip.AddrFromSlice(rest[:addrSize])
	rest = rest[2*addrSize:]
	if subtype == stateChangeAS4 {
		if len(rest) != 4 {
			return r, errors.New("no states")
		}
		r.From = State(binary.BigEndian.Uint16(rest))
		r.To = State(binary.BigEndian.Uint16(rest[2:]))
		return r, nil
	}
	if len(rest) < bgpHeader || !bytes.Equal(rest[:16], marker) ||
		int(binary.BigEndian.Uint16(rest[16:])) != len(rest) {
		return r, errors.New("no BGP message")
	}
	return r, nil
}

// marker is what a BGP message begins with (RFC 4271 §4.1).
var marker = bytes.Repeat([]byte{0xff}, 16)

// WithoutMicroseconds returns a record as one of type BGP4MP, which readers know that do not know
// BGP4MP_ET.
func WithoutMicroseconds(record []byte) []byte {
	b := append([]byte{}, record[:headerSize]...)
	binary.BigEndian.PutUint16(b[4:], typeBGP4MP)
	rest := record[headerSize+microsecondsSize:]
	binary.BigEndian.PutUint32(b[8:], uint32(len(rest)))
	return append(b, rest...)
}
